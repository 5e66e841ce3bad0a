//! The Pods that the API has for this node.

use std::sync::Arc;

use client::Informer;
use component::Shutdown;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;

use super::Source;
use crate::pods::host::PodHost;
use crate::pods::spec;

/// The Pods that are bound to the node.
pub(crate) struct ApiSource(pub(crate) Informer<Pod>);

impl Source for ApiSource {
    fn follow(self: Arc<Self>, host: Arc<PodHost>, shutdown: &Shutdown) {
        self.0.handle(move |change| host.changed(change));
        self.0.start(shutdown);
    }

    fn known(&self) -> BoxFuture<'_, ()> {
        self.0.synced().map(drop).boxed()
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.0.list().iter().filter(|pod| !spec::is_mirror(pod)).map(spec::of_api).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pods::labels;

    #[test]
    fn nobody_makes_a_pod_of_the_api_static() {
        let pod = |annotations: serde_json::Value| -> Arc<Pod> {
            let value = json!({"metadata": {"name": "p", "annotations": annotations}});
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let claims = pod(json!({labels::CONFIG_SOURCE: "file", "a": "b"}));
        assert!(spec::is_static(&claims) && spec::is_critical(&claims));
        let taken = spec::of_api(&claims);
        assert!(!spec::is_static(&taken) && !spec::is_critical(&taken));
        assert_eq!(taken.metadata.annotations.as_ref().unwrap()["a"], "b");
        for other in [pod(json!({})), pod(json!({labels::CONFIG_SOURCE: "api"}))] {
            assert!(Arc::ptr_eq(&spec::of_api(&other), &other));
        }
    }
}
