//! The etcd engine against real etcd: the properties of every store, and those of one that is shared and can fail.
//! `cargo xtask setup` installs both versions.

mod apart;
mod errors;
mod faults;
mod shared;
mod unreadable;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::suite::{self, Fixture};
use api::NewObject;
use bytes::Bytes;
use component::Shutdown;
use ferrokube_storage::{Codec, CodecError, EtcdConfig, EtcdOpenError, EtcdServers, Placement, Store};
use futures::future::BoxFuture;
use testkit::Etcd;

/// Values as simple as the suite's objects: the fields that the body does not have, and the body. Values of nodes are
/// called encrypted.
#[derive(Clone, Default)]
pub(crate) struct Simple {
    /// While this is set, the data for reading encrypted values cannot be fetched.
    pub(crate) away: Arc<AtomicBool>,
}

const SEALED: &str = "k8s:enc:";

const HEAD: &str = r#"{"metadata":{"resourceVersion":""#;

impl Codec for Simple {
    fn placements(&self) -> Vec<Placement> {
        [
            ("", "pods"),
            ("g", "pods"),
            ("g", "podsets"),
            ("", "pod"),
            ("", "pods2"),
            ("", "nodes"),
            ("", "endpoints"),
        ]
        .map(|(group, plural)| Placement {
            group: group.into(),
            plural: plural.into(),
            path: if group.is_empty() { plural.to_owned() } else { format!("{group}/{plural}") },
        })
        .into()
    }
    fn encode(&self, _: &str, plural: &str, _: &[u8], object: &NewObject) -> Result<Bytes, CodecError> {
        let sealed = if plural == "nodes" { SEALED } else { "" };
        let node = object.fields.first().map_or("", |f| f.as_str());
        let body = std::str::from_utf8(&object.body).unwrap();
        Ok(format!("{sealed}{}\n{}\n{node}\n{body}", object.name, object.uid).into())
    }
    fn prepare<'a>(&'a self, _: &str, _: &str, _: &'a [u8]) -> Option<BoxFuture<'a, Result<(), CodecError>>> {
        let away = self.away.load(Ordering::Relaxed);
        away.then(|| Box::pin(async { Err(CodecError::new("the KMS does not answer")) }) as BoxFuture<_>)
    }
    fn decode(&self, _: &str, _: &str, _: &[u8], value: &[u8]) -> Result<NewObject, CodecError> {
        let text = std::str::from_utf8(value).map_err(|e| CodecError::new(e.to_string()))?;
        let mut parts = text.strip_prefix(SEALED).unwrap_or(text).splitn(4, '\n');
        let mut part = || parts.next().ok_or_else(|| CodecError::new("it is cut off"));
        let (name, uid, node, body) = (part()?, part()?, part()?, part()?);
        Ok(NewObject {
            uid: uid.into(),
            body: body.to_owned().into(),
            rv_at: HEAD.len() as u32,
            ..suite::object("", name, node, "")
        })
    }
}

/// A prefix that no other test has.
pub(crate) fn new_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("/test-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) async fn try_open(urls: Vec<String>, prefix: &str) -> Result<Store, EtcdOpenError> {
    open_at(EtcdServers { endpoints: urls, ..EtcdServers::default() }, prefix).await
}

pub(crate) async fn open_at(servers: EtcdServers, prefix: &str) -> Result<Store, EtcdOpenError> {
    Store::open_etcd(config(servers, prefix), &Shutdown::new()).await
}

pub(crate) fn config(servers: EtcdServers, prefix: &str) -> EtcdConfig {
    EtcdConfig {
        prefix: prefix.into(),
        progress_interval: Duration::from_millis(5),
        patience: Duration::from_secs(1),
        ..EtcdConfig::new(servers, Arc::new(Simple::default()))
    }
}

pub(crate) async fn open(etcd: &Etcd, prefix: &str) -> Store {
    try_open(etcd.urls(), prefix).await.unwrap()
}

/// One etcd for all tests of the suite, each under its own prefix: the keys of one are foreign to the others.
struct Shared<const OLD: bool> {
    store: Store,
    prefix: String,
    etcd: Arc<Etcd>,
}

impl<const OLD: bool> Shared<OLD> {
    /// The etcd of the tests that run now.
    fn etcd() -> Arc<Etcd> {
        static ETCD: [Mutex<Weak<Etcd>>; 2] = [const { Mutex::new(Weak::new()) }; 2];
        let mut running = ETCD[usize::from(OLD)].lock().unwrap();
        running.upgrade().unwrap_or_else(|| {
            let etcd = Arc::new(if OLD { Etcd::start_old(1) } else { Etcd::start(1) }.unwrap());
            *running = Arc::downgrade(&etcd);
            etcd
        })
    }
    async fn at(etcd: Arc<Etcd>, prefix: String) -> Self {
        Self { store: open(&etcd, &prefix).await, prefix, etcd }
    }
}

impl<const OLD: bool> Fixture for Shared<OLD> {
    async fn fresh() -> Self {
        Self::at(tokio::task::spawn_blocking(Self::etcd).await.unwrap(), new_prefix()).await
    }
    fn store(&self) -> &Store {
        &self.store
    }
    async fn reopen(self) -> Self {
        self.store.close().await;
        Self::at(self.etcd, self.prefix).await
    }
}

type New = Shared<false>;
type Old = Shared<true>;

mod new {
    use super::*;
    crate::suite!(New);
}

mod old {
    use super::*;
    crate::suite!(Old);
}
