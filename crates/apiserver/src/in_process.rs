//! The API server without a listener: the whole pipe over a store, for components of the same process.

use std::net::IpAddr;
use std::sync::Arc;

use access::security::{Security, SecurityConfig};
use component::Shutdown;
use storage::Store;

use crate::authorization_feed;
use crate::config::Config;
use crate::reader::Reader;
use crate::server::Server;
use crate::standalone::{self, StartError};

/// Makes a server over a store, with authorization and admission as `security` says, and the objects that every cluster
/// has. It answers [`Server::transport`] alone; it neither serves exec, logs and proxies nor documents of OpenAPI.
///
/// # Errors
/// Where something of it cannot be made.
pub async fn start(
    config: Config,
    store: Store,
    security: SecurityConfig,
    shutdown: &Shutdown,
) -> Result<Server, StartError> {
    let reader = Reader::new(store.clone(), &config)?;
    let security = Security::new(security, Arc::new(reader.clone()))?;
    let find = |group: &str, plural: &str| reader.resource(group, plural);
    let feeds = authorization_feed::feed(&security.authorizer, &store, shutdown, find);
    let advertised = config.advertise_address.unwrap_or(IpAddr::from([127, 0, 0, 1]));
    let server = Server::new(config, reader, security.auth, security.admission, shutdown.clone())?;
    server.health().follow(feeds);
    let own = server.transport(standalone::own_identity(), "kube-apiserver");
    server.run_hooks(own, advertised, shutdown).await.map_err(StartError::Bootstrap)?;
    Ok(server)
}
