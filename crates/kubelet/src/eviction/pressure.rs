//! The node's shortages, as those see them who report the Node and admit Pods.

use k8s_openapi::api::core::v1::Pod;
use objects::taints::{self, Tolerance};
use parking_lot::RwLock;
use tokio::sync::Notify;

use super::message::REASON;
use super::signal::Condition;
use crate::pods::spec::{self, Qos};

/// The conditions that the Node has now.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    conditions: RwLock<Vec<Condition>>,
    /// They have changed.
    pub(crate) changed: Notify,
}

impl Pressure {
    /// Takes the conditions of this moment.
    pub(super) fn set(&self, conditions: Vec<Condition>) {
        let before = std::mem::replace(&mut *self.conditions.write(), conditions.clone());
        if before != conditions {
            self.changed.notify_one();
        }
    }

    /// Whether the Node has a condition.
    pub(crate) fn has(&self, condition: Condition) -> bool {
        self.conditions.read().contains(&condition)
    }

    /// Why a Pod is not taken now: reason and message; none if it is.
    pub(crate) fn refuses(&self, pod: &Pod) -> Option<(&'static str, String)> {
        refuses(&self.conditions.read(), pod)
    }
}

/// Upstream's rule: critical Pods are always taken; with memory short, those that asked for some, or say that they do not
/// mind; nobody else.
fn refuses(conditions: &[Condition], pod: &Pod) -> Option<(&'static str, String)> {
    if conditions.is_empty() || spec::is_critical(pod) {
        return None;
    }
    if conditions == [Condition::Memory] {
        let taint = k8s_openapi::api::core::v1::Taint {
            key: "node.kubernetes.io/memory-pressure".into(),
            effect: taints::NO_SCHEDULE.into(),
            ..Default::default()
        };
        // The taint has no value, so no operator compares it.
        let untolerated = Tolerance::default().uncovered([&taint], taints::tolerations(pod)).is_some();
        if spec::qos(pod) != Qos::BestEffort || !untolerated {
            return None;
        }
    }
    let names: Vec<_> = conditions.iter().map(|c| c.name()).collect();
    Some((REASON, format!("The node had condition: [{}]. ", names.join(" "))))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Upstream's cases of admission under pressure, and one for each rule.
    #[test]
    fn who_is_taken_under_pressure() {
        let check = |conditions: &[Condition], spec: Value, expected: Option<&str>| {
            let mut value = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}});
            for (key, field) in spec.as_object().unwrap() {
                value["spec"][key] = field.clone();
            }
            let pod: Pod = serde_json::from_value(value).unwrap();
            let got = refuses(conditions, &pod);
            let expected = expected.map(|names| ("Evicted", format!("The node had condition: [{names}]. ")));
            assert_eq!(got, expected, "{conditions:?} {spec}");
        };
        let burstable = json!({"containers": [{"name": "c", "resources": {"requests": {"memory": "1Mi"}}}]});
        let critical = json!({"priority": 2_000_000_000});
        let tolerates =
            |key: &str| json!({"tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"}]});
        let memory = tolerates("node.kubernetes.io/memory-pressure");
        let disk = tolerates("node.kubernetes.io/disk-pressure");
        let both = &[Condition::Disk, Condition::Memory];
        check(&[], json!({}), None);
        check(&[Condition::Memory], json!({}), Some("MemoryPressure"));
        check(&[Condition::Memory], burstable.clone(), None);
        check(&[Condition::Memory], critical.clone(), None);
        check(&[Condition::Memory], memory.clone(), None);
        check(&[Condition::Memory], disk.clone(), Some("MemoryPressure"));
        check(&[Condition::Disk], burstable.clone(), Some("DiskPressure"));
        check(&[Condition::Disk], disk, Some("DiskPressure"));
        check(&[Condition::Disk], critical, None);
        check(&[Condition::Pid], burstable, Some("PIDPressure"));
        check(both, memory, Some("DiskPressure MemoryPressure"));
    }
}
