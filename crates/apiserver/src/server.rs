//! The server and its parts.

use std::sync::{Arc, OnceLock};

use access::admission::Admission;
use access::auth::Auth;
use component::Shutdown;
use kinds::gated::Gated;

use crate::allocate::Allocators;
use crate::config::Config;
use crate::discovery::Discovery;
use crate::flow::Flow;
use crate::forms::FormCache;
use crate::health::Health;
use crate::hooks;
use crate::inner::Inner;
use crate::lanes::Lanes;
use crate::meta::Meta;
use crate::metrics::Metrics;
use crate::openapi::Documents;
use crate::proxy::Connect;
use crate::reader::Reader;
use crate::store_metrics::ObjectCounts;

/// Why a server could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The schema lacks a kind of the table of resources.
    #[error("{0}")]
    Schema(String),
    /// A service CIDR or a range of ports cannot be used.
    #[error("{0}")]
    Services(String),
}

/// The API server. Clones share it.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<Inner>);

impl Server {
    /// A server over the store of a reader. It answers HTTPS once `serve` is called; until then only
    /// [`Server::transport`] reaches it.
    pub fn new(
        config: Config,
        reader: Reader,
        auth: Auth,
        admission: Arc<dyn Admission>,
        shutdown: Shutdown,
    ) -> Result<Self, ServerError> {
        let (schema, registry, store) = (reader.schema, Arc::clone(&reader.registry), reader.store.clone());
        let meta =
            Meta::new(schema).ok_or_else(|| ServerError::Schema("the schema lacks ObjectMeta".into()))?;
        let (flow, metrics) = (Flow::new(&config), Metrics::new(&config));
        metrics.register(|registry| {
            flow.register(registry);
            registry.register_collector(Box::new(ObjectCounts(reader.clone())));
        });
        let allocators = Allocators::new(&config, reader.clone()).map_err(ServerError::Services)?;
        Ok(Self(Arc::new(Inner {
            schema,
            meta,
            gated: Gated::new(schema, |gate| config.gates.is_off(gate)),
            discovery: Discovery::new(&registry),
            registry,
            auth,
            admission,
            connect: OnceLock::new(),
            openapi: OnceLock::new(),
            openapi_index: OnceLock::new(),
            column_descriptions: OnceLock::new(),
            allocators,
            forms: FormCache::new(config.form_budget),
            flow,
            lanes: Lanes::with_threads(config.threads),
            metrics,
            health: Health::new(&shutdown, &store, &hooks::NAMES),
            reader,
            store,
            config,
            shutdown,
        })))
    }
    /// Sets what serves exec, logs and the proxies; once.
    pub fn set_connect(&self, connect: Connect) {
        let _ = self.0.connect.set(connect);
    }
    /// Sets what makes the documents of OpenAPI; once.
    pub fn set_openapi(&self, documents: Box<dyn Documents>) {
        let _ = self.0.openapi.set(documents);
    }
    /// The metrics, to register more.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }
    /// Typed reads over the store.
    pub fn reader(&self) -> &Reader {
        &self.0.reader
    }
    /// Health checks, to add to.
    pub fn health(&self) -> &Health {
        &self.0.health
    }
}
