//! Connections that are kept for the next call.

use std::collections::HashMap;
use std::time::Duration;

use std::sync::Arc;

use client::Caller;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::address::ClientConfig;
use super::connection::Connection;

/// The most webhooks to which connections are kept; upstream's.
const POOLS: usize = 200;
/// The most idle connections to a webhook.
///
/// DIFFERENCE: upstream keeps 25. Where more requests than that wait for a webhook that speaks HTTP/1.1 alone, each tenth
/// would begin with a handshake.
const IDLE: usize = 100;
/// The time after which an idle connection is not used any more; Go's.
const AGE: Duration = Duration::from_secs(90);

/// The connections to all webhooks.
#[derive(Default)]
pub(super) struct Pools(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    pools: HashMap<ClientConfig, (u64, Arc<Pool>)>,
    /// Counts the uses, to tell which pool was used last.
    uses: u64,
}

impl Pools {
    /// The connections to a webhook. Where there are too many, those to the one go that was asked longest ago.
    pub(super) fn of(
        &self,
        config: &ClientConfig,
        make: impl FnOnce() -> Result<(TlsConnector, Caller), String>,
    ) -> Result<Arc<Pool>, String> {
        let mut inner = self.0.lock();
        inner.uses += 1;
        let now = inner.uses;
        if let Some((used, pool)) = inner.pools.get_mut(config) {
            *used = now;
            return Ok(Arc::clone(pool));
        }
        let (tls, caller) = make()?;
        let pool = Arc::new(Pool { tls, caller, idle: Mutex::default() });
        if inner.pools.len() >= POOLS {
            let oldest = inner.pools.iter().min_by_key(|(_, (used, _))| *used).map(|(c, _)| c.clone());
            oldest.map(|oldest| inner.pools.remove(&oldest));
        }
        inner.pools.insert(config.clone(), (now, Arc::clone(&pool)));
        Ok(pool)
    }
}

/// The connections to one webhook.
pub(super) struct Pool {
    tls: TlsConnector,
    caller: Caller,
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    since: Instant,
    /// The version of the client certificate with which it was made.
    version: u64,
    connection: Connection,
}

impl Pool {
    /// The settings of new connections.
    pub(super) fn tls(&self) -> &TlsConnector {
        &self.tls
    }
    /// The credentials that are shown on them.
    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }
    /// The connection that was used last, if it was made with this version of the client certificate.
    pub(super) fn take(&self, version: u64) -> Option<Connection> {
        let mut idle = self.idle.lock();
        while let Some(last) = idle.pop() {
            if last.since.elapsed() >= AGE || last.version != version || last.connection.is_closed() {
                continue;
            }
            if let Some(shared) = last.connection.share() {
                idle.push(last);
                return Some(shared);
            }
            return Some(last.connection);
        }
        None
    }
    /// Keeps a connection that was made with this version of the client certificate for the next call.
    pub(super) fn keep(&self, connection: Connection, version: u64) {
        let mut idle = self.idle.lock();
        // One that is shared is there already, unless it is new.
        if connection.share().is_some() {
            idle.clear();
        }
        let now = Instant::now();
        // The oldest stand first.
        let old = idle.iter().take_while(|i| now.duration_since(i.since) >= AGE).count();
        idle.drain(..old);
        if !connection.is_closed() && idle.len() < IDLE {
            idle.push(Idle { since: now, version, connection });
        }
    }
}
