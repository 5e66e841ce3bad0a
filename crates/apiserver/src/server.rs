//! The server, made of its parts.

use std::sync::Arc;

use access::admission::Admission;
use access::auth::Auth;
use api::Gate;
use component::Shutdown;

use crate::allocate::Allocators;
use crate::authorization_feed::Feeds;
use crate::config::Config;
use crate::encoder::FormCache;
use crate::ending::Ending;
use crate::flow::Flow;
use crate::front::Policy;
use crate::handlers::Handlers;
use crate::health::Health;
use crate::hooks;
use crate::lanes::Lanes;
use crate::metrics::Metrics;
use crate::objects::Objects;
use crate::proxy::Connect;
use crate::rooms::{Front, Rooms};
use crate::store_metrics::ObjectCounts;
use crate::usage::{Pages, Usage};
use crate::zpages::Told;

/// A service CIDR or a range of ports cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ServerError(String);

/// The parts of which a server is made.
pub(crate) struct Parts {
    /// The stored objects and their catalog.
    pub(crate) objects: Arc<Objects>,
    /// Authentication and authorization: the caller of a request, and whether it may.
    pub(crate) auth: Auth,
    /// The admission of writes.
    pub(crate) admission: Arc<dyn Admission>,
    /// The feeds that keep authorization in step with the store, if there are any.
    pub(crate) feeds: Option<Feeds>,
    /// The connections of exec, logs and the proxies, if these are served.
    pub(crate) connect: Option<Connect>,
    /// Stops the server.
    pub(crate) shutdown: Shutdown,
}

/// The API server. Clones share it.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<Rooms>);

impl Server {
    /// A server over the store of its objects. It answers HTTPS once `serve` is called; until then only
    /// [`Server::transport`] reaches it.
    pub(crate) fn new(config: &Config, parts: Parts) -> Result<Self, ServerError> {
        let Parts { objects, auth, admission, feeds, connect, shutdown } = parts;
        let flow = Arc::new(Flow::new(&config.limits, config.gates));
        let ending = Ending::new(&config.limits, &shutdown);
        let policy = Policy::new(&config.serving).map_err(ServerError)?;
        let metrics = Arc::new(Metrics::new(config.gates, config.shown.clone()));
        metrics.register(|registry| {
            registry.register_collector(Box::new(flow.metrics()));
            registry.register_collector(Box::new(ObjectCounts(Arc::clone(&objects))));
            if let Some(connect) = &connect {
                connect.register(registry);
            }
        });
        let allocators = Allocators::new(&config.services, Arc::clone(&objects)).map_err(ServerError)?;
        let kubelets = || connect.clone().map(|connect| Arc::new(connect) as Arc<dyn Pages>);
        let pages = config.pages.clone().or_else(kubelets);
        let usage = pages.map(|pages| Usage::new(pages, objects.clock, shutdown.clone()));
        let front = Front {
            auth: auth.clone(),
            flow,
            lanes: Lanes::with_threads(config.limits.threads),
            metrics: Arc::clone(&metrics),
            health: Health::new(
                ending.begun(),
                (&objects.store, config.storage.etcd.as_ref()),
                (&hooks::NAMES, config.limits.livez_grace),
                feeds,
            ),
            connect,
            strangers_leave: config.gates.enabled(Gate::UnauthenticatedHTTP2DOSMitigation),
            reject_redirects: config.calls.reject_redirects,
            logs: config.logs.clone(),
            told: Told {
                status: config.gates.enabled(Gate::ComponentStatusz),
                started: config.clock.now(),
                flags: config.gates.enabled(Gate::ComponentFlagz).then(|| config.flags.clone()),
            },
            request_timeout: config.limits.request_timeout,
            ending,
            http2_streams: config.serving.http2_streams,
            policy,
            url: format!("https://{}", config.serving.external_address()),
        };
        let handlers = Handlers {
            objects: Arc::clone(&objects),
            admission,
            auth,
            allocators: Arc::new(allocators),
            usage,
            metrics,
            privileged: config.privileged,
            garbage_collector: config.storage.garbage_collector,
            event_ttl: config.storage.event_ttl,
            min_request_timeout: config.limits.min_request_timeout,
            shutdown,
        };
        let forms = Arc::new(FormCache::new(config.limits.form_budget));
        Ok(Self(Arc::new(Rooms { objects, front, handlers, forms })))
    }
    /// The metrics, to register more.
    pub fn metrics(&self) -> &Metrics {
        &self.0.front.metrics
    }
    /// The stored objects and their catalog.
    pub fn objects(&self) -> &Arc<Objects> {
        &self.0.objects
    }
    /// Goes through the steps of the server's end up to its last request: it is not ready at once, goes on for
    /// [`Ending::delay`](crate::config::Ending::delay), takes no more requests, and waits for those under way. The
    /// shutdown's signal ends what is left then.
    pub async fn end(&self) {
        self.0.front.ending.run().await;
    }
    /// Health checks, to add to.
    pub fn health(&self) -> &Health {
        &self.0.front.health
    }
}
