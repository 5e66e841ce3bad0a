//! The resources that Pods request and nodes offer, as integers (upstream's `component-helpers/resource`).

use std::collections::BTreeMap;

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, ResourceRequirements};

use crate::pod::is_sidecar;
use crate::quantity::ResourceList;

/// An amount of a resource.
///
/// DIFFERENCE: upstream counts in 64 bits, and sums of absurd amounts wrap there; no sum of amounts that the API
/// accepts overflows this.
pub type Amount = i128;

/// Amounts of resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// CPU, in thousandths.
    pub milli_cpu: Amount,
    /// Memory, in bytes.
    pub memory: Amount,
    /// Ephemeral storage, in bytes.
    pub ephemeral_storage: Amount,
    /// Every other resource by name, in whole units; `pods` is not among them.
    pub scalar: BTreeMap<String, Amount>,
}

impl Resources {
    /// Reads a resource list; unreadable quantities count as zero (the API server refuses them).
    pub fn from_list(list: Option<&ResourceList>) -> Self {
        let mut r = Self::default();
        for (name, quantity) in list.into_iter().flatten() {
            let Ok(q) = Quantity::parse(&quantity.0) else { continue };
            match name.as_str() {
                "cpu" => r.milli_cpu = q.milli_value().into(),
                "memory" => r.memory = q.value().into(),
                "ephemeral-storage" => r.ephemeral_storage = q.value().into(),
                "pods" => {}
                other => {
                    r.scalar.insert(other.to_owned(), q.value().into());
                }
            }
        }
        r
    }

    /// An amount by name: CPU in thousandths, any other resource in units.
    pub fn get(&self, name: &str) -> Amount {
        match name {
            "cpu" => self.milli_cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral_storage,
            other => self.scalar.get(other).copied().unwrap_or(0),
        }
    }

    fn set(&mut self, name: &str, amount: Amount) {
        match name {
            "cpu" => self.milli_cpu = amount,
            "memory" => self.memory = amount,
            "ephemeral-storage" => self.ephemeral_storage = amount,
            other => drop(self.scalar.insert(other.to_owned(), amount)),
        }
    }

    /// Whether all amounts are zero.
    pub fn is_zero(&self) -> bool {
        self.milli_cpu == 0
            && self.memory == 0
            && self.ephemeral_storage == 0
            && self.scalar.values().all(|v| *v == 0)
    }

    /// Adds `sign` times the other amounts.
    pub fn add(&mut self, other: &Self, sign: Amount) {
        self.milli_cpu += sign * other.milli_cpu;
        self.memory += sign * other.memory;
        self.ephemeral_storage += sign * other.ephemeral_storage;
        for (name, v) in &other.scalar {
            *self.scalar.entry(name.clone()).or_default() += sign * v;
        }
    }

    /// Raises each amount to the other's.
    pub fn raise(&mut self, other: &Self) {
        self.milli_cpu = self.milli_cpu.max(other.milli_cpu);
        self.memory = self.memory.max(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.max(other.ephemeral_storage);
        for (name, v) in &other.scalar {
            let mine = self.scalar.entry(name.clone()).or_default();
            *mine = (*mine).max(*v);
        }
    }
}

/// The way in which a Pod's requests are counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counting {
    /// Whether a container under resize counts with the largest of its wanted, allocated and actual amounts.
    pub status: bool,
    /// Whether a Pod whose own amounts are under resize counts likewise.
    pub whole: bool,
    /// CPU in thousandths and memory in bytes of a container without requests.
    pub assumed: (Amount, Amount),
}

/// The requests of a Pod: the larger of its containers' sum and the highest point of its init containers (sidecars go
/// on running), the Pod's own requests in their place, and the overhead.
pub fn pod_requests(pod: &Pod, counting: Counting) -> Resources {
    let Some(spec) = &pod.spec else { return Resources::default() };
    let infeasible = is_resize_infeasible(pod);
    let mut total =
        aggregate(pod, |c, resizable| container_requests(pod, c, resizable, infeasible, counting));
    let said = spec.resources.as_ref().and_then(|r| r.requests.as_ref());
    overrule(&mut total, said, &Resources::from_list(said));
    let overhead = Resources::from_list(spec.overhead.as_ref());
    if counting.whole
        && let Some(status) = &pod.status
        && let Some(actual) = &status.resources
    {
        let mut effective = Resources::from_list(actual.requests.as_ref());
        effective.raise(&Resources::from_list(status.allocated_resources.as_ref()));
        // DIFFERENCE: upstream counts the overhead twice, which a status has in its amounts.
        effective.add(&overhead, -1);
        if !infeasible {
            effective.raise(&Resources::from_list(said));
        }
        overrule(&mut total, said, &effective);
    }
    total.add(&overhead, 1);
    total
}

/// The requests of a Pod by its containers alone, by the same formula.
pub fn container_requests_of(pod: &Pod) -> Resources {
    aggregate(pod, |c, _| Resources::from_list(c.resources.as_ref().and_then(|r| r.requests.as_ref())))
}

/// The limits of a Pod, by the same formula. The overhead counts where there is a limit.
pub fn pod_limits(pod: &Pod) -> Resources {
    let Some(spec) = &pod.spec else { return Resources::default() };
    let mut total = aggregate(pod, |c, _| {
        Resources::from_list(c.resources.as_ref().and_then(|r: &ResourceRequirements| r.limits.as_ref()))
    });
    let said = spec.resources.as_ref().and_then(|r| r.limits.as_ref());
    overrule(&mut total, said, &Resources::from_list(said));
    let overhead = Resources::from_list(spec.overhead.as_ref());
    for name in spec.overhead.iter().flat_map(|o| o.keys()) {
        let limit = total.get(name);
        if limit != 0 {
            total.set(name, limit + overhead.get(name));
        }
    }
    total
}

/// The containers' part of a formula; the second argument of `of` tells whether a container may be resized.
fn aggregate(pod: &Pod, of: impl Fn(&Container, bool) -> Resources) -> Resources {
    let Some(spec) = &pod.spec else { return Resources::default() };
    let mut total = Resources::default();
    for c in &spec.containers {
        total.add(&of(c, true), 1);
    }
    let mut sidecars = Resources::default();
    let mut peak = Resources::default();
    for c in spec.init_containers.iter().flatten() {
        if is_sidecar(c) {
            let r = of(c, true);
            total.add(&r, 1);
            sidecars.add(&r, 1);
            peak.raise(&sidecars);
        } else {
            let mut at = of(c, false);
            at.add(&sidecars, 1);
            peak.raise(&at);
        }
    }
    total.raise(&peak);
    total
}

/// Puts the Pod's own amounts in the place of its containers' sum, for the resources of a Pod that it says something of.
fn overrule(total: &mut Resources, said: Option<&ResourceList>, amounts: &Resources) {
    for name in said.into_iter().flat_map(|s| s.keys()) {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            total.set(name, amounts.get(name));
        }
    }
}

fn is_resize_infeasible(pod: &Pod) -> bool {
    let pending = crate::pod::condition(pod, "PodResizePending");
    pending.is_some_and(|c| c.reason.as_deref() == Some("Infeasible"))
}

fn container_requests(
    pod: &Pod,
    c: &Container,
    resizable: bool,
    infeasible: bool,
    how: Counting,
) -> Resources {
    let wanted = c.resources.as_ref().and_then(|r| r.requests.as_ref());
    let mut amounts = Resources::from_list(wanted);
    if how.status
        && resizable
        && let Some(status) = status_with_resources(pod, &c.name)
    {
        let actual = Resources::from_list(status.resources.as_ref().and_then(|r| r.requests.as_ref()));
        if infeasible {
            amounts = actual;
        } else {
            amounts.raise(&actual);
        }
        amounts.raise(&Resources::from_list(status.allocated_resources.as_ref()));
    }
    if wanted.is_none_or(|w| !w.contains_key("cpu")) {
        amounts.milli_cpu = amounts.milli_cpu.max(how.assumed.0);
    }
    if wanted.is_none_or(|w| !w.contains_key("memory")) {
        amounts.memory = amounts.memory.max(how.assumed.1);
    }
    amounts
}

fn status_with_resources<'p>(pod: &'p Pod, container: &str) -> Option<&'p ContainerStatus> {
    let status = pod.status.as_ref()?;
    let lists = [&status.container_statuses, &status.init_container_statuses];
    lists.into_iter().flatten().flatten().find(|s| s.name == container && s.resources.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MIB: Amount = 1 << 20;
    const COUNTED: Counting = Counting { status: true, whole: true, assumed: (0, 0) };

    fn pod(spec: &Value, status: &Value) -> Pod {
        serde_json::from_value(json!({"spec": spec, "status": status})).unwrap()
    }

    fn container(name: &str, requests: Value) -> Value {
        json!({"name": name, "resources": {"requests": requests, "limits": requests}})
    }

    fn sidecar(name: &str, requests: Value) -> Value {
        let mut c = container(name, requests);
        c["restartPolicy"] = "Always".into();
        c
    }

    /// Cases after upstream's `TestPodResourceRequests` and `TestPodResourceLimits`: CPU, memory and one other
    /// resource, by both formulas.
    #[test]
    fn formulas() {
        let check = |spec: Value, requests: (Amount, Amount, Amount), limits: (Amount, Amount, Amount)| {
            let pod = pod(&spec, &json!({}));
            let shown = |r: Resources| (r.milli_cpu, r.memory, r.get("example.com/x"));
            assert_eq!(shown(pod_requests(&pod, COUNTED)), requests, "requests of {spec}");
            assert_eq!(shown(pod_requests(&pod, Counting::default())), requests, "requests of {spec}");
            assert_eq!(shown(pod_limits(&pod)), limits, "limits of {spec}");
        };
        let both = |spec: Value, want: (Amount, Amount, Amount)| check(spec, want, want);
        let one = |cpu: &str| container("c", json!({"cpu": cpu}));
        both(json!({"containers": [{"name": "c"}]}), (0, 0, 0));
        both(json!({"containers": [one("1"), one("500m")]}), (1500, 0, 0));
        both(json!({"containers": [one("1")], "initContainers": [one("3")]}), (3000, 0, 0));
        both(json!({"containers": [one("4"), one("1")], "initContainers": [one("3")]}), (5000, 0, 0));
        // A sidecar runs beside the containers, and beside init containers that come after it.
        let side = |cpu: &str| sidecar("s", json!({"cpu": cpu}));
        both(json!({"containers": [one("1")], "initContainers": [side("2")]}), (3000, 0, 0));
        both(json!({"containers": [one("1")], "initContainers": [side("2"), one("10")]}), (12_000, 0, 0));
        both(json!({"containers": [one("1")], "initContainers": [one("10"), side("2")]}), (10_000, 0, 0));
        both(
            json!({"containers": [one("20")], "initContainers": [side("2"), one("10"), side("3"), side("4")]}),
            (29_000, 0, 0),
        );
        both(
            json!({"containers": [container("c", json!({"cpu": "1u", "memory": "1500m", "example.com/x": "2"}))]}),
            (1, 2, 2),
        );
        // The overhead is no limit by itself.
        let overhead = json!({"cpu": "250m", "memory": "1Mi"});
        check(json!({"containers": [one("1")], "overhead": overhead}), (1250, MIB, 0), (1250, 0, 0));
        check(json!({"containers": [{"name": "c"}], "overhead": overhead}), (250, MIB, 0), (0, 0, 0));
        // The Pod's own amounts count for the resources that a Pod may have.
        let said = json!({"cpu": "2", "example.com/x": "7"});
        let own = json!({"containers": [one("5")], "resources": {"requests": said, "limits": said}});
        both(own, (2000, 0, 0));
        let zero = json!({"cpu": "0"});
        both(json!({"containers": [one("5")], "resources": {"requests": zero, "limits": zero}}), (0, 0, 0));
        let huge = json!({"hugepages-2Mi": "4Mi"});
        let spec = json!({"containers": [one("1")], "resources": {"requests": huge}});
        assert_eq!(pod_requests(&pod(&spec, &json!({})), COUNTED).get("hugepages-2Mi"), 4 * MIB);
        assert_eq!(pod_requests(&Pod::default(), COUNTED), Resources::default());
    }

    /// Upstream's rule: the largest of the wanted, allocated and actual amounts, without the wanted one if it is
    /// infeasible.
    #[test]
    fn resizes() {
        let check = |actual: Value, allocated: Value, conditions: Value, cpu: Amount| {
            let spec = json!({"containers": [container("c", json!({"cpu": "2"}))]});
            let mut status =
                json!({"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0});
            status["allocatedResources"] = allocated.clone();
            if !actual.is_null() {
                status["resources"] = json!({"requests": actual});
            }
            let pod = pod(&spec, &json!({"containerStatuses": [status], "conditions": conditions}));
            assert_eq!(pod_requests(&pod, COUNTED).milli_cpu, cpu, "{actual} {allocated} {conditions}");
            assert_eq!(pod_requests(&pod, Counting::default()).milli_cpu, 2000);
        };
        let cpu = |n: &str| json!({"cpu": n});
        let pending =
            |reason: &str| json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
        check(json!(null), json!(null), json!([]), 2000);
        check(cpu("4"), json!(null), json!([]), 4000);
        check(cpu("1"), cpu("3"), json!([]), 3000);
        check(cpu("1"), cpu("1"), json!([]), 2000);
        check(cpu("1"), cpu("1"), pending("Deferred"), 2000);
        check(cpu("1"), cpu("1"), pending("Infeasible"), 1000);
        check(cpu("1"), cpu("3"), pending("Infeasible"), 3000);
    }

    /// The same rule for the Pod's own amounts.
    #[test]
    fn resizes_of_whole_pods() {
        let check = |actual: Value, allocated: Value, conditions: Value, overhead: &str, cpu: Amount| {
            let list = |of: &str| json!({"requests": {"cpu": of}});
            let spec = json!({"containers": [container("c", json!({"cpu": "1"}))], "resources": list("2"),
                "overhead": {"cpu": overhead}});
            let mut status = json!({"allocatedResources": allocated.clone(), "conditions": conditions});
            if !actual.is_null() {
                status["resources"] = json!({"requests": actual});
            }
            let pod = pod(&spec, &status);
            assert_eq!(pod_requests(&pod, COUNTED).milli_cpu, cpu, "{actual} {allocated} {conditions}");
            let not_whole = Counting { whole: false, ..COUNTED };
            assert_eq!(pod_requests(&pod, not_whole), pod_requests(&pod, Counting::default()));
        };
        let cpu = |n: &str| json!({"cpu": n});
        let infeasible = || json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        check(json!(null), cpu("9"), json!([]), "0", 2000);
        check(cpu("4"), cpu("1"), json!([]), "0", 4000);
        check(cpu("1"), cpu("3"), json!([]), "0", 3000);
        check(cpu("1"), cpu("1"), json!([]), "0", 2000);
        check(cpu("1"), cpu("1"), infeasible(), "0", 1000);
        check(cpu("2500m"), cpu("2500m"), json!([]), "500m", 2500);
    }

    #[test]
    fn what_is_assumed() {
        let check = |requests: Value, want: (Amount, Amount)| {
            let spec = json!({"containers": [container("c", requests)]});
            let got = pod_requests(
                &pod(&spec, &json!({})),
                Counting { status: true, whole: true, assumed: (100, 200) },
            );
            assert_eq!((got.milli_cpu, got.memory), want, "{spec}");
        };
        check(json!({}), (100, 200));
        check(json!({"cpu": "1"}), (1000, 200));
        check(json!({"cpu": "0", "memory": "0"}), (0, 0));
    }

    #[test]
    fn absurd_amounts_neither_wrap_nor_panic() {
        let one = container("c", json!({"cpu": "9223372036854775807", "memory": "9223372036854775807"}));
        let pod = pod(&json!({"containers": [one, one, one]}), &json!({}));
        let got = pod_requests(&pod, COUNTED);
        assert_eq!(got.memory, 3 * Amount::from(i64::MAX));
        assert_eq!(pod_limits(&pod), got);
    }
}
