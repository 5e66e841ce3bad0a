//! Connections that are kept for the next call.

use std::collections::HashMap;
use std::time::Duration;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::address::ClientConfig;
use super::connection::Connection;

/// The most webhooks to which connections are kept; upstream's.
const POOLS: usize = 200;
/// The most idle connections to a webhook; upstream's.
const IDLE: usize = 25;
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
        tls: impl FnOnce() -> Result<TlsConnector, String>,
    ) -> Result<Arc<Pool>, String> {
        let mut inner = self.0.lock();
        inner.uses += 1;
        let now = inner.uses;
        if let Some((used, pool)) = inner.pools.get_mut(config) {
            *used = now;
            return Ok(Arc::clone(pool));
        }
        let pool = Arc::new(Pool { tls: tls()?, idle: Mutex::default() });
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
    idle: Mutex<Vec<(Instant, Connection)>>,
}

impl Pool {
    /// The settings of new connections.
    pub(super) fn tls(&self) -> &TlsConnector {
        &self.tls
    }
    /// The connection that was used last.
    pub(super) fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        idle.retain(|(since, connection)| since.elapsed() < AGE && !connection.is_closed());
        let (since, connection) = idle.pop()?;
        if let Some(shared) = connection.share() {
            idle.push((since, connection));
            return Some(shared);
        }
        Some(connection)
    }
    /// Keeps a connection for the next call.
    pub(super) fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        // One that is shared is there already, unless it is new.
        if connection.share().is_some() {
            idle.clear();
        }
        if !connection.is_closed() && idle.len() < IDLE {
            idle.push((Instant::now(), connection));
        }
    }
}
