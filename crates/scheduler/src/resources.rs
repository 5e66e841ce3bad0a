//! The resources that Pods count for on a node.

use k8s_openapi::api::core::v1::Pod;
use objects::resources::{Amount, Counting, Resources};

/// Milli-CPU that scoring assumes for a container without a request (upstream's `DefaultMilliCPURequest`).
const DEFAULT_MILLI_CPU: Amount = 100;
/// Bytes of memory that scoring assumes for a container without a request (upstream's `DefaultMemoryRequest`).
const DEFAULT_MEMORY: Amount = 200 * 1024 * 1024;

/// The resources that a Pod counts for on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRequests {
    /// Its requests, as `NodeResourcesFit` counts them.
    pub fit: Resources,
    /// Milli-CPU with the assumption for containers that request none; scoring uses it.
    pub nonzero_milli_cpu: Amount,
    /// Memory with the same assumption.
    pub nonzero_memory: Amount,
}

/// Whether there is less of anything than before (upstream's `extractPodScaleDown`).
pub fn is_reduced(before: &Resources, after: &Resources) -> bool {
    let named = ["cpu", "memory", "ephemeral-storage"].into_iter();
    let mut names = named.chain(before.scalar.keys().map(String::as_str));
    names.any(|name| before.get(name) > after.get(name))
}

/// The requests of a Pod; under a resize the largest of what it wants, was given and has.
pub fn pod_requests(pod: &Pod) -> PodRequests {
    let counted =
        |assumed| objects::resources::pod_requests(pod, Counting { status: true, whole: true, assumed });
    let nonzero = counted((DEFAULT_MILLI_CPU, DEFAULT_MEMORY));
    PodRequests { fit: counted((0, 0)), nonzero_milli_cpu: nonzero.milli_cpu, nonzero_memory: nonzero.memory }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scoring_assumes_what_is_not_said() {
        let check = |requests: serde_json::Value, fit: (Amount, Amount), nonzero: (Amount, Amount)| {
            let spec =
                serde_json::json!({"containers": [{"name": "c", "resources": {"requests": requests}}]});
            let pod: Pod = serde_json::from_value(serde_json::json!({"spec": spec})).unwrap();
            let r = pod_requests(&pod);
            assert_eq!((r.fit.milli_cpu, r.fit.memory), fit);
            assert_eq!((r.nonzero_milli_cpu, r.nonzero_memory), nonzero);
        };
        check(serde_json::json!({}), (0, 0), (100, DEFAULT_MEMORY));
        check(serde_json::json!({"cpu": "500m", "memory": "1Gi"}), (500, 1 << 30), (500, 1 << 30));
    }
}
