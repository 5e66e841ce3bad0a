//! What Pods request and nodes offer, as integers.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

/// An amount of a resource.
///
/// DIFFERENCE: upstream counts in 64 bits, and sums of absurd amounts wrap there; no sum of amounts that the API can say
/// overflows this.
pub type Amount = i128;

/// Milli-CPU that scoring assumes for a container without a request (upstream's `DefaultMilliCPURequest`).
const DEFAULT_MILLI_CPU: Amount = 100;
/// Bytes of memory that scoring assumes for a container without a request (upstream's `DefaultMemoryRequest`).
const DEFAULT_MEMORY: Amount = 200 * 1024 * 1024;

/// Amounts of resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// Thousandths of a CPU.
    pub milli_cpu: Amount,
    /// Bytes.
    pub memory: Amount,
    /// Bytes.
    pub ephemeral_storage: Amount,
    /// Every other resource by name, in whole units; `pods` is not among them.
    pub scalar: BTreeMap<String, Amount>,
}

impl Resources {
    /// From a resource list; unreadable quantities count as zero (the API server refuses them).
    pub fn from_list(list: Option<&BTreeMap<String, Text>>) -> Self {
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

    /// Whether nothing is asked for.
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

/// What a Pod counts for on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRequests {
    /// What it requests, as `NodeResourcesFit` counts it.
    pub fit: Resources,
    /// Milli-CPU with the assumption for containers that request none; scoring uses it.
    pub nonzero_milli_cpu: Amount,
    /// Memory with the same assumption.
    pub nonzero_memory: Amount,
}

/// What a Pod requests: the larger of its containers' sum and the highest point of its init
/// containers (restartable ones go on running), pod-level requests in their place where set, plus
/// overhead; during a resize the largest of wanted, allocated and actual (upstream's
/// `resource.PodRequests` with `UseStatusResources`).
pub fn pod_requests(pod: &Pod) -> PodRequests {
    let Some(spec) = &pod.spec else { return PodRequests::default() };
    let infeasible = pod.status.as_ref().and_then(|s| s.conditions.as_ref()).is_some_and(|c| {
        c.iter().any(|c| c.type_ == "PodResizePending" && c.reason.as_deref() == Some("Infeasible"))
    });
    let mut fit = sum(pod, infeasible, None);
    let mut nonzero = sum(pod, infeasible, Some((DEFAULT_MILLI_CPU, DEFAULT_MEMORY)));
    if let Some(requests) = spec.resources.as_ref().and_then(|r| r.requests.as_ref()) {
        let pod_level = Resources::from_list(Some(requests));
        for r in [&mut fit, &mut nonzero] {
            if requests.contains_key("cpu") {
                r.milli_cpu = pod_level.milli_cpu;
            }
            if requests.contains_key("memory") {
                r.memory = pod_level.memory;
            }
            for (name, v) in pod_level.scalar.iter().filter(|(n, _)| n.starts_with("hugepages-")) {
                r.scalar.insert(name.clone(), *v);
            }
        }
    }
    let overhead = Resources::from_list(spec.overhead.as_ref());
    fit.add(&overhead, 1);
    nonzero.add(&overhead, 1);
    PodRequests { fit, nonzero_milli_cpu: nonzero.milli_cpu, nonzero_memory: nonzero.memory }
}

/// The containers' part of [`pod_requests`]; `assume` fills in for missing CPU and memory requests.
fn sum(pod: &Pod, infeasible: bool, assume: Option<(Amount, Amount)>) -> Resources {
    let Some(spec) = &pod.spec else { return Resources::default() };
    let requests = |c: &Container, resizable: bool| {
        let wanted = c.resources.as_ref().and_then(|r| r.requests.as_ref());
        let mut r = Resources::from_list(wanted);
        let status = pod.status.as_ref().filter(|_| resizable).and_then(|s| {
            s.container_statuses
                .iter()
                .chain(s.init_container_statuses.iter())
                .flatten()
                .find(|s| s.name == c.name && s.resources.is_some())
        });
        if let Some(status) = status {
            let actual = Resources::from_list(status.resources.as_ref().and_then(|r| r.requests.as_ref()));
            let allocated = Resources::from_list(status.allocated_resources.as_ref());
            if infeasible {
                r = actual;
            } else {
                r.raise(&actual);
            }
            r.raise(&allocated);
        }
        if let Some((cpu, memory)) = assume {
            if wanted.is_none_or(|w| !w.contains_key("cpu")) {
                r.milli_cpu = r.milli_cpu.max(cpu);
            }
            if wanted.is_none_or(|w| !w.contains_key("memory")) {
                r.memory = r.memory.max(memory);
            }
        }
        r
    };
    let mut total = Resources::default();
    for c in &spec.containers {
        total.add(&requests(c, true), 1);
    }
    let mut sidecars = Resources::default();
    let mut peak = Resources::default();
    for c in spec.init_containers.iter().flatten() {
        if c.restart_policy.as_deref() == Some("Always") {
            let r = requests(c, true);
            total.add(&r, 1);
            sidecars.add(&r, 1);
            peak.raise(&sidecars);
        } else {
            let mut at = requests(c, false);
            at.add(&sidecars, 1);
            peak.raise(&at);
        }
    }
    total.raise(&peak);
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: serde_json::Value, cpu: Amount, memory: Amount, nonzero: (Amount, Amount)) {
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": spec})).unwrap();
        let r = pod_requests(&pod);
        assert_eq!((r.fit.milli_cpu, r.fit.memory), (cpu, memory));
        assert_eq!((r.nonzero_milli_cpu, r.nonzero_memory), nonzero);
    }

    fn container(cpu: &str, memory: &str, sidecar: bool) -> serde_json::Value {
        let mut c =
            serde_json::json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
        if sidecar {
            c["restartPolicy"] = "Always".into();
        }
        c
    }

    #[test]
    fn requests_follow_upstreams_formula() {
        check(serde_json::json!({"containers": [{"name": "c"}]}), 0, 0, (100, DEFAULT_MEMORY));
        let one = container("500m", "1Gi", false);
        check(serde_json::json!({"containers": [one, one]}), 1000, 2 << 30, (1000, 2 << 30));
        let init = container("3", "1Mi", false);
        check(
            serde_json::json!({"containers": [one], "initContainers": [init]}),
            3000,
            1 << 30,
            (3000, 1 << 30),
        );
        let sidecar = container("200m", "1Gi", true);
        check(
            serde_json::json!({"containers": [one], "initContainers": [sidecar, container("600m", "1Mi", false)]}),
            800,
            2 << 30,
            (800, 2 << 30),
        );
        check(
            serde_json::json!({"containers": [one], "overhead": {"cpu": "250m"}, "resources": {"requests": {"cpu": "2"}}}),
            2250,
            1 << 30,
            (2250, 1 << 30),
        );
    }
}
