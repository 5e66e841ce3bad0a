//! The sources of the Pods of this node: the API, a directory or file of manifests, and a URL.

pub(crate) mod api;
pub(crate) mod directory;
pub mod manifest;
pub(crate) mod mirrors;
mod references;
pub(crate) mod statics;
pub(crate) mod url;

use std::sync::Arc;

use component::Shutdown;
use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::core::v1::Pod;

pub use self::manifest::{ManifestError, Manifests, Statics};
use crate::pods::host::PodHost;
use crate::pods::spec;

/// A source of Pods.
pub(crate) trait Source: Send + Sync {
    /// Tells `host` of its Pods until the shutdown.
    fn follow(self: Arc<Self>, host: Arc<PodHost>, shutdown: &Shutdown);
    /// Resolves once it has said which Pods there are.
    fn known(&self) -> BoxFuture<'_, ()>;
    /// The Pods that are to run, as far as they are known.
    fn pods(&self) -> Vec<Arc<Pod>>;
}

/// All sources of a kubelet.
#[derive(Clone)]
pub(crate) struct Sources(pub(crate) Arc<[Arc<dyn Source>]>);

impl Sources {
    /// Resolves once it is known which Pods there are: before, every Pod looks like nobody's.
    pub(crate) async fn known(&self) {
        join_all(self.0.iter().map(|source| source.known())).await;
    }

    /// The Pods that are to run.
    pub(crate) fn pods(&self) -> Vec<Arc<Pod>> {
        let all = self.0.iter().flat_map(|source| source.pods());
        all.filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
    }

    /// The static Pods, by namespace and name.
    pub(crate) fn statics(&self) -> Vec<Arc<Pod>> {
        self.pods().into_iter().filter(|pod| spec::is_static(pod)).collect()
    }
}
