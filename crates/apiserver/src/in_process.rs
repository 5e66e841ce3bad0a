//! The API server without a listener: the whole pipe over a store, for components of the same process.

use std::sync::Arc;

use access::security::{Keys, Security};
use access::webhook::Network;
use component::Shutdown;
use storage::Store;

use crate::authorization_feed;
use crate::catalog::webhook_converter::ConversionWebhooks;
use crate::config::Config;
use crate::hooks::{self, AuthenticationInfo, Env};
use crate::objects::Objects;
use crate::server::{Parts, Server};
use crate::standalone::{self, StartError};

/// Makes a server over a store, with the objects that every cluster has. It answers [`Server::transport`] alone; it
/// serves neither exec, logs and proxies nor a port.
///
/// # Errors
/// Where something of it cannot be made.
pub async fn start(
    config: Config,
    keys: Keys,
    store: Store,
    shutdown: &Shutdown,
) -> Result<Server, StartError> {
    let objects = Arc::new(Objects::new(store.clone(), &config)?);
    let surroundings = (config.gates, config.clock);
    // Nobody else writes endpoints here.
    let network = Arc::new(Network::new(Arc::<Objects>::clone(&objects), |_| true));
    let live = (Arc::<Objects>::clone(&objects) as _, Arc::clone(&network));
    let security = Security::new(&config.security, keys, surroundings, live)?;
    let find = |group: &str, plural: &str| objects.id((group, plural));
    let feeds = authorization_feed::feed(&security.authorizer, &store, shutdown, find);
    let (admission, token_uses) = (Arc::clone(&security.admission), security.token_uses);
    let parts = Parts {
        objects,
        auth: security.auth,
        admission: security.admission,
        feeds: Some(feeds),
        connect: None,
        shutdown: shutdown.clone(),
    };
    let server = Server::new(&config, parts)?;
    admission.connect(server.own_clients());
    network.connect(server.own_clients());
    let env = Env {
        objects: Arc::clone(&server.0.objects),
        allocators: Arc::clone(&server.0.handlers.allocators),
        conversions: Arc::new(ConversionWebhooks::new(Arc::clone(&network))),
        port: config.serving.port,
        node_port: config.services.kubernetes_node_port,
        endpoints: config.services.kubernetes_endpoints,
        transport: server.transport(standalone::own_identity(), "kube-apiserver"),
        advertised: config.serving.advertised(),
        network,
        front_proxy: None,
        authentication: AuthenticationInfo::default(),
        gates: config.gates,
        hostname: config.serving.hostname.clone(),
        token_uses,
        metrics: Arc::clone(&server.0.front.metrics),
        flow: Arc::clone(&server.0.front.flow),
        ending: server.0.front.ending.begun().clone(),
        shutdown: shutdown.clone(),
    };
    hooks::run(&server.0, env).await.map_err(StartError::Bootstrap)?;
    Ok(server)
}
