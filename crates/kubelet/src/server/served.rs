//! The parts of a kubelet that its server shows.

use std::sync::Arc;

use client::Client;
use component::{Clock, Shutdown};

use crate::config::Config;
use crate::metrics::Metrics;
use crate::plugin_manager::PluginManager;
use crate::pod_certificates::PodCertificates;
use crate::pod_resources::PodResources;
use crate::pods::PodManager;
use crate::pods::admission::Admission;
use crate::pods::devices::Devices;
use crate::pods::mirrors::Mirrors;
use crate::pods::workers::Workers;
use crate::probes::Probes;
use crate::resource_managers::ResourceManagers;
use crate::runtime::Runtime;
use crate::stats::collect::Collector;

/// The parts of a kubelet that the server shows.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) config: Arc<Config>,
    /// Asks who may do what.
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) runtime: Runtime,
    pub(crate) pods: Arc<PodManager>,
    pub(crate) probes: Arc<Probes>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) workers: Arc<Workers>,
    /// Gathers the use of resources.
    pub(crate) collector: Arc<Collector>,
    pub(crate) devices: Devices,
    pub(crate) managers: Arc<ResourceManagers>,
    pub(crate) pod_resources: Arc<PodResources>,
    pub(crate) metrics: Metrics,
    pub(crate) certificates: PodCertificates,
    /// Plugins that register by sockets.
    pub(crate) plugins: Arc<PluginManager>,
    pub(crate) mirrors: Arc<Mirrors>,
    /// Streams end with the kubelet.
    pub(crate) shutdown: Shutdown,
}
