//! Questions about Pods that several components ask.

use k8s_openapi::api::core::v1::{Container, Pod, PodCondition};

/// The Pod's phase, "" if it has none yet.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

/// The node to which the Pod is bound, "" for none.
pub fn node_name(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default()
}

/// Whether the Pod has ended for good.
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// The Pod's condition of a type.
pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == kind)
}

/// Whether an init container runs beside the containers and is restarted always.
pub fn is_sidecar(init: &Container) -> bool {
    init.restart_policy.as_deref() == Some("Always")
}

/// The containers that run as long as the Pod does: its containers, then its sidecars.
pub fn running_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.iter();
    let sidecars = spec.clone().flat_map(|s| s.init_containers.iter().flatten()).filter(|c| is_sidecar(c));
    spec.flat_map(|s| &s.containers).chain(sidecars)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers() {
        let pod: Pod = serde_json::from_value(json!({
            "spec": {"nodeName": "n", "containers": [{"name": "a"}, {"name": "b"}],
                "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]},
            "status": {"phase": "Failed", "conditions": [{"type": "Ready", "status": "False"}]},
        }))
        .unwrap();
        assert_eq!((phase(&pod), node_name(&pod), is_terminal(&pod)), ("Failed", "n", true));
        assert_eq!(condition(&pod, "Ready").map(|c| &*c.status), Some("False"));
        assert_eq!(condition(&pod, "Other"), None);
        let names: Vec<&str> = running_containers(&pod).map(|c| &*c.name).collect();
        assert_eq!(names, ["a", "b", "s"]);
        let none = Pod::default();
        assert_eq!((phase(&none), node_name(&none), is_terminal(&none)), ("", "", false));
        assert_eq!(running_containers(&none).count(), 0);
    }
}
