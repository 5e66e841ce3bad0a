//! The parts of a running server, by who reads them.

use std::sync::Arc;
use std::time::Duration;

use access::auth::Auth;

use crate::catalog::Catalog;
use crate::config::LogFiles;
use crate::encoder::{Encoder, FormCache};
use crate::ending::Ending;
use crate::flow::Flow;
use crate::front::Policy;
use crate::handlers::Handlers;
use crate::health::Health;
use crate::lanes::Lanes;
use crate::metrics::Metrics;
use crate::objects::Objects;
use crate::proxy::Connect;
use crate::zpages::Told;

/// The front: the stages of a request before its handler.
pub(crate) struct Front {
    /// Authentication and authorization: the caller of a request, and whether it may.
    pub(crate) auth: Auth,
    /// How much of the server callers may use at once.
    pub(crate) flow: Arc<Flow>,
    /// Where long work is done.
    pub(crate) lanes: Lanes,
    /// The metrics.
    pub(crate) metrics: Arc<Metrics>,
    /// The health checks.
    pub(crate) health: Health,
    /// The connections of exec, logs and the proxies.
    pub(crate) connect: Option<Connect>,
    /// HTTP/2 ends for who stays unknown; upstream's `UnauthenticatedHTTP2DOSMitigation`.
    pub(crate) strangers_leave: bool,
    /// Whether redirects of aggregated servers are kept from clients.
    pub(crate) reject_redirects: bool,
    /// The files of this machine's logs, if they are served.
    pub(crate) logs: Option<LogFiles>,
    /// The facts of `/statusz` and `/flagz`.
    pub(crate) told: Told,
    /// How long a request that does not go on may take.
    pub(crate) request_timeout: Duration,
    /// The end of the server.
    pub(crate) ending: Ending,
    /// How many requests a client may have under way on a connection of HTTP/2; the usual number if it is zero.
    pub(crate) http2_streams: u32,
    /// The headers that clients are told with every answer, and connections that are made anew.
    pub(crate) policy: Policy,
    /// The URL of this server in what it tells others.
    pub(crate) url: String,
}

/// The parts of a server.
pub(crate) struct Rooms {
    /// The stored objects and their catalog.
    pub(crate) objects: Arc<Objects>,
    /// The front: the stages of a request before its handler.
    pub(crate) front: Front,
    /// The parts that handlers use.
    pub(crate) handlers: Handlers,
    /// Encoded forms that are kept.
    pub(crate) forms: Arc<FormCache>,
}

impl Rooms {
    /// The encoder of the answer to a request that began when `catalog` was served.
    pub(crate) fn encoder(&self, catalog: &Arc<Catalog>) -> Encoder {
        let (catalog, forms) = (Arc::clone(catalog), Arc::clone(&self.forms));
        Encoder { catalog, forms, clock: self.objects.clock }
    }
}
