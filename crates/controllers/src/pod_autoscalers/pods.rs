//! A Pod as autoscalers read it.

use std::collections::{BTreeMap, BTreeSet};

use api::Status;
use client::{Cached, FromJson, Identity};
use compact_str::CompactString as Text;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use objects::labels::CompactLabels;
use objects::resources::{Counting, pod_requests};

/// The state of the condition `Ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Readiness {
    /// Its status, where it is `True` or `False`.
    pub(super) status: Option<bool>,
    /// The time of its last change.
    pub(super) since: Option<Timestamp>,
}

/// Amounts of resources, in thousandths.
type Amounts = BTreeMap<Text, i64>;

/// A Pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MeasuredPod {
    namespace: Text,
    pub(super) name: Text,
    uid: Text,
    resource_version: Text,
    pub(super) labels: CompactLabels,
    pub(super) deleting: bool,
    pub(super) phase: Text,
    pub(super) started: Option<Timestamp>,
    pub(super) ready: Option<Readiness>,
    /// The requests of containers and sidecars, by name.
    requests: Box<[(Text, Amounts)]>,
    /// The requests of the Pod as a whole, if it says so itself.
    whole: Option<Box<Amounts>>,
}

/// Whether a Pod may request a resource as a whole.
fn is_of_pods(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

fn amounts(resources: Option<&ResourceRequirements>) -> Amounts {
    let requests = resources.and_then(|r| r.requests.as_ref());
    let all = requests.into_iter().flatten();
    all.map(|(name, amount)| (name.as_str().into(), objects::quantity::milli(Some(amount)))).collect()
}

impl From<&Pod> for MeasuredPod {
    fn from(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let text = |t: &Option<String>| Text::from(t.as_deref().unwrap_or_default());
        let containers = objects::pod::running_containers(pod);
        let requests: Box<[_]> =
            containers.map(|c| (Text::from(c.name.as_str()), amounts(c.resources.as_ref()))).collect();
        let own = amounts(pod.spec.as_ref().and_then(|s| s.resources.as_ref()));
        let whole = own.keys().any(|name| is_of_pods(name)).then(|| {
            let sum = pod_requests(pod, Counting::default());
            let names: BTreeSet<&Text> =
                requests.iter().flat_map(|(_, of)| of.keys()).chain(own.keys()).collect();
            let milli = |name: &Text| {
                let factor = if name == "cpu" { 1 } else { 1000 };
                i64::try_from(sum.get(name).saturating_mul(factor)).unwrap_or(i64::MAX)
            };
            Box::new(names.into_iter().map(|name| (name.clone(), milli(name))).collect())
        });
        let ready = objects::pod::condition(pod, "Ready").map(|c| Readiness {
            status: match c.status.as_str() {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            },
            since: c.last_transition_time.as_ref().map(|t| t.0),
        });
        Self {
            namespace: text(&meta.namespace),
            name: text(&meta.name),
            uid: text(&meta.uid),
            resource_version: text(&meta.resource_version),
            labels: meta.labels.iter().flatten().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
            deleting: meta.deletion_timestamp.is_some(),
            phase: objects::pod::phase(pod).into(),
            started: pod.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0),
            ready,
            requests,
            whole,
        }
    }
}

impl Cached for MeasuredPod {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        Pod::from_json(json).map(|pod| Self::from(&pod))
    }
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }
}

impl MeasuredPod {
    /// Whether it runs and is ready.
    pub(super) fn serves(&self) -> bool {
        self.phase == "Running" && self.ready.is_some_and(|r| r.status == Some(true))
    }

    /// The thousandths of a resource that one of its containers requests, or with "" the Pod. The error is upstream's.
    pub(super) fn request(&self, container: &str, resource: &str) -> Result<i64, String> {
        let name = &self.name;
        if let Some(whole) = self.whole.as_ref().filter(|_| container.is_empty()) {
            let amount = whole.get(resource).copied();
            return amount.ok_or_else(|| format!("missing pod-level request for {resource} in Pod {name}"));
        }
        let mut sum = 0_i64;
        let mut found = false;
        for (of, amounts) in self.requests.iter().filter(|(of, _)| container.is_empty() || of == container) {
            let Some(amount) = amounts.get(resource) else {
                return Err(format!("missing request for {resource} in container {of} of Pod {name}"));
            };
            sum = sum.saturating_add(*amount);
            found = true;
        }
        if !found && !container.is_empty() {
            return Err(format!("container {container} not found in Pod {name}"));
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> MeasuredPod {
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
        MeasuredPod::decode(pod.to_string().as_bytes()).unwrap()
    }

    /// Upstream's cases of `TestCalculateRequests` and `TestCalculatePodRequestsFromContainers_NonExistentContainer`.
    #[test]
    fn requests() {
        let check = |spec: &Value, container: &str, want: Result<i64, &str>| {
            let got = pod(spec.clone()).request(container, "cpu");
            assert_eq!(got, want.map_err(str::to_owned), "{spec} {container}");
        };
        let of = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let sidecar = |name: &str, cpu: &str| json!({"name": name, "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        let two = json!({"containers": [of("a", "100m"), of("b", "50m")]});
        check(&two, "", Ok(150));
        check(&two, "b", Ok(50));
        check(&two, "c", Err("container c not found in Pod p"));
        let one = json!({"containers": [of("container1", "100m")]});
        let missing = "container non-existent-container not found in Pod p";
        check(&one, "non-existent-container", Err(missing));
        let with_sidecar =
            json!({"containers": [of("a", "100m")], "initContainers": [of("i", "1"), sidecar("s", "50m")]});
        check(&with_sidecar, "", Ok(150));
        check(&with_sidecar, "s", Ok(50));
        check(&with_sidecar, "i", Err("container i not found in Pod p"));
        let none = json!({"containers": [of("a", "100m"), {"name": "b"}]});
        check(&none, "", Err("missing request for cpu in container b of Pod p"));
        check(&none, "a", Ok(100));
        check(&none, "b", Err("missing request for cpu in container b of Pod p"));
        let whole =
            json!({"resources": {"requests": {"cpu": "1"}}, "containers": [of("a", "100m"), {"name": "b"}]});
        check(&whole, "", Ok(1000));
        check(&whole, "a", Ok(100));
        let other = json!({"resources": {"requests": {"memory": "1Gi"}}, "containers": [{"name": "a"}]});
        check(&other, "", Err("missing pod-level request for cpu in Pod p"));
        let below = json!({"resources": {"requests": {"memory": "1Gi"}}, "containers": [of("a", "100m")]});
        check(&below, "", Ok(100));
    }

    #[test]
    fn fields() {
        let time = "2026-01-01T00:00:00Z";
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a": "b"}, "deletionTimestamp": time},
            "status": {"phase": "Running", "startTime": time,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time}]},
        });
        let pod = MeasuredPod::decode(pod.to_string().as_bytes()).unwrap();
        let at: Timestamp = time.parse().unwrap();
        assert_eq!((pod.deleting, pod.serves(), pod.started), (true, true, Some(at)));
        assert_eq!(pod.ready, Some(Readiness { status: Some(true), since: Some(at) }));
        assert_eq!((pod.labels.get("a"), pod.request("", "cpu")), (Some("b"), Ok(0)));
    }
}
