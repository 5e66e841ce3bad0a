//! The API servers that share an etcd: each keeps its address there, under a lease, as upstream's do.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{NewObject, Text};
use bytes::Bytes;
use component::Shutdown;
use etcd::Error;
use etcd::rpc::PutRequest;
use tokio::sync::watch;

use super::Engine;

/// The time for which an address stays when its server is gone, and the interval at which a server renews it;
/// upstream's numbers.
const TTL: Duration = Duration::from_secs(15);
const RENEW: Duration = Duration::from_secs(10);
/// The time to wait after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// The addresses of all API servers.
#[derive(Clone)]
pub struct Servers {
    engine: Arc<Engine>,
    addresses: watch::Receiver<BTreeSet<Text>>,
}

impl Servers {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        let addresses = engine.servers.subscribe();
        Self { engine, addresses }
    }

    /// The present addresses, ordered.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.addresses.borrow().iter().filter_map(|a| a.parse().ok()).collect()
    }

    /// Resolves when the addresses change; never after the store closed.
    pub async fn changed(&mut self) {
        if self.addresses.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Announces an address and keeps it until the shutdown's signal, then takes it back. Returns once the address is
    /// written.
    pub async fn announce(&self, address: IpAddr, shutdown: &Shutdown) -> Result<(), Error> {
        let mut lease = self.put(address).await?;
        let (this, stop) = (self.clone(), shutdown.clone());
        shutdown.spawn(async move {
            let mut pause = RENEW;
            while stop.run(tokio::time::sleep(pause)).await.is_some() {
                let renewed = match this.engine.client.keep_alive(lease).await {
                    // The lease ended while etcd could not be reached, or somebody removed the key.
                    Err(Error::NoLease) => this.put(address).await.map(|new| lease = new),
                    Ok(()) if !this.addresses().contains(&address) => {
                        this.put(address).await.map(|new| lease = new)
                    }
                    other => other,
                };
                pause = RENEW;
                if let Err(error) = renewed {
                    tracing::warn!(%error, "this server's address in etcd was not renewed");
                    pause = RETRY;
                }
            }
            if let Err(error) = this.engine.client.revoke(lease).await {
                tracing::debug!(%error, "this server's address in etcd is left to its lease");
            }
        });
        Ok(())
    }

    async fn put(&self, address: IpAddr) -> Result<i64, Error> {
        let address = address.to_string();
        let client = &self.engine.client;
        let lease = client.grant(TTL).await?;
        let key = self.engine.keys.server(&address);
        let value = self.engine.codec.encode("", "endpoints", &key, &endpoints(&address));
        let value = value.map_err(|e| Error::Other(e.to_string().into()))?;
        client.put(PutRequest { key, value, lease }).await?;
        Ok(lease)
    }
}

/// The object that upstream stores for an address: Endpoints without a name.
fn endpoints(address: &str) -> NewObject {
    const HEAD: &str = r#"{"metadata":{"resourceVersion":""#;
    let body = format!(r#"{HEAD}","generation":1}},"subsets":[{{"addresses":[{{"ip":"{address}"}}]}}]}}"#);
    NewObject {
        name: Text::default(),
        namespace: Text::default(),
        uid: Text::default(),
        labels: Box::default(),
        owners: Box::default(),
        fields: Box::default(),
        deleting: false,
        finalizers: false,
        stamp: 0,
        body: Bytes::from(body),
        rv_at: HEAD.len() as u32,
    }
}
