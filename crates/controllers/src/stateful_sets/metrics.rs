//! The metrics of StatefulSets' updates.

use std::collections::HashMap;
use std::sync::Arc;

use client::Key;
use component::Registry;
use parking_lot::Mutex;

const UNAVAILABLE: &str = "statefulset_controller_statefulset_unavailable_replicas";
const MAX_UNAVAILABLE: &str = "statefulset_controller_statefulset_max_unavailable";

/// The numbers of one set.
struct Numbers {
    policy: &'static str,
    unavailable: i64,
    max_unavailable: i64,
}

/// The numbers of the sets whose updates count the Pods that are not available.
#[derive(Clone, Default)]
pub(super) struct Metrics(Arc<Mutex<HashMap<Key, Numbers>>>);

impl Metrics {
    /// Puts them into a registry.
    pub(super) fn register(&self, registry: &Registry) {
        let all = self.0.clone();
        registry.register("statefulset-controller", move |page| {
            let all = all.lock();
            if all.is_empty() {
                return;
            }
            let help = "[ALPHA] Current number of unavailable pods in StatefulSet";
            page.metric(UNAVAILABLE, "gauge", help);
            let help =
                "[ALPHA] Maximum number of unavailable pods allowed during StatefulSet rolling updates";
            page.metric(MAX_UNAVAILABLE, "gauge", help);
            for (key, n) in all.iter() {
                let labels = [
                    ("pod_management_policy", n.policy),
                    ("statefulset_name", key.name.as_str()),
                    ("statefulset_namespace", key.namespace.as_str()),
                ];
                page.value(UNAVAILABLE, &labels, n.unavailable as f64);
                page.value(MAX_UNAVAILABLE, &labels, n.max_unavailable as f64);
            }
        });
    }

    /// Sets the numbers of a set.
    pub(super) fn set(&self, key: &Key, parallel: bool, unavailable: i64, max_unavailable: i64) {
        let policy = if parallel { "Parallel" } else { "OrderedReady" };
        self.0.lock().insert(key.clone(), Numbers { policy, unavailable, max_unavailable });
    }

    /// Forgets a set.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_sets() {
        let (metrics, registry) = (Metrics::default(), Registry::default());
        metrics.register(&registry);
        let page = || registry.page().text();
        assert_eq!(page(), "");
        let key = Key::new("ns", "web");
        metrics.set(&key, true, 1, 2);
        let labels =
            r#"{pod_management_policy="Parallel",statefulset_name="web",statefulset_namespace="ns"}"#;
        assert!(page().contains(&format!("{UNAVAILABLE}{labels} 1")), "{}", page());
        assert!(page().contains(&format!("{MAX_UNAVAILABLE}{labels} 2")));
        metrics.forget(&key);
        assert_eq!(page(), "");
    }
}
