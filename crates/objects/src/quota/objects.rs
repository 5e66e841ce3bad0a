//! The amounts of Pods, Services, claims of volumes and claims of devices.

use std::collections::{BTreeMap, BTreeSet};

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{
    Affinity, Container, PersistentVolumeClaim, Pod, PodAffinityTerm, PodSpec, ResourceRequirements, Service,
};
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::{BY_CLASS, Counted, Kind, OF_DEVICES, PodFacts, REQUESTS, Usage, after_grace, is_extended};
use crate::pod::is_terminal;
use crate::quantity::ResourceList;
use crate::resources::{Amount, Counting, Resources, pod_limits, pod_requests};

impl Counted {
    /// A Pod.
    pub fn pod(pod: &Pod) -> Self {
        let mut counted = Self::number(&Kind::Pods);
        counted.always.remove("pods");
        let default = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&default);
        let class = pod.status.as_ref().and_then(|s| s.qos_class.as_deref()).filter(|c| !c.is_empty());
        counted.pod = Some(facts(spec, class));
        let claim = pod.status.as_ref().and_then(|s| s.extended_resource_claim_status.as_ref());
        counted.claim = claim.map(|c| c.resource_claim_name.clone());
        if is_terminal(pod) {
            return counted;
        }
        let meta = &pod.metadata;
        if let (Some(deleted), Some(grace)) = (&meta.deletion_timestamp, meta.deletion_grace_period_seconds) {
            counted.gone = Some(after_grace(deleted.0, grace));
        }
        let requests = pod_requests(pod, Counting { status: true, ..Counting::default() });
        counted.alive = compute(spec, &requests, &pod_limits(pod));
        counted
    }

    /// A Service.
    pub fn service(service: &Service) -> Self {
        let mut counted = Self::number(&Kind::Services);
        let spec = service.spec.clone().unwrap_or_default();
        let ports = spec.ports.unwrap_or_default();
        let number = |n: usize| Quantity::from_value(i64::try_from(n).unwrap_or(i64::MAX));
        let balanced = spec.type_.as_deref() == Some("LoadBalancer");
        let node_ports = match spec.type_.as_deref() {
            Some("NodePort") => ports.len(),
            Some("LoadBalancer") if spec.allocate_load_balancer_node_ports == Some(false) => {
                ports.iter().filter(|p| p.node_port.is_some_and(|n| n != 0)).count()
            }
            Some("LoadBalancer") => ports.len(),
            _ => 0,
        };
        counted.always.insert("services".to_owned(), number(1));
        counted.always.insert("services.nodeports".to_owned(), number(node_ports));
        counted.always.insert("services.loadbalancers".to_owned(), number(usize::from(balanced)));
        counted
    }

    /// A claim.
    pub fn claim(claim: &PersistentVolumeClaim) -> Self {
        let mut counted = Self::number(&Kind::Claims);
        let (spec, status) =
            (claim.spec.clone().unwrap_or_default(), claim.status.clone().unwrap_or_default());
        let annotated = claim.metadata.annotations.as_ref();
        let annotated = annotated.and_then(|a| a.get("volume.beta.kubernetes.io/storage-class")).cloned();
        let class = annotated.or(spec.storage_class_name).filter(|c| !c.is_empty());
        let mut take = |name: &str, amount: Quantity| {
            if let Some(class) = &class {
                counted.always.insert(format!("{class}{BY_CLASS}{name}"), amount.clone());
            }
            counted.always.insert(name.to_owned(), amount);
        };
        take("persistentvolumeclaims", Quantity::from_value(1));
        let storage = |list: Option<&ResourceList>| Some(whole(&list?.get("storage")?.0));
        let wanted = spec.resources.as_ref().and_then(|r| storage(r.requests.as_ref()));
        let allocated = storage(status.allocated_resources.as_ref());
        if let Some(wanted) = wanted {
            let greater = allocated.filter(|a| a > &wanted);
            take("requests.storage", greater.unwrap_or(wanted));
        }
        let modified = status.modify_volume_status.and_then(|m| m.target_volume_attributes_class_name);
        let classes =
            [spec.volume_attributes_class_name, status.current_volume_attributes_class_name, modified];
        counted.attributes = Some(classes.into_iter().flatten().collect());
        counted
    }

    /// A claim of devices.
    pub fn device_claim(claim: &ResourceClaim) -> Self {
        let mut counted = Self::number(&Kind::DeviceClaims);
        let requests = claim.spec.devices.as_ref().and_then(|d| d.requests.as_ref());
        let mut devices: BTreeMap<&str, i64> = BTreeMap::new();
        for request in requests.into_iter().flatten() {
            let first = request.first_available.as_deref().unwrap_or_default();
            if first.is_empty() {
                if let Some(exact) = &request.exactly {
                    let number = number_of_devices(exact.allocation_mode.as_deref(), exact.count);
                    let sum = devices.entry(&exact.device_class_name).or_default();
                    *sum = sum.saturating_add(number);
                }
                continue;
            }
            // The worst of the alternatives counts, class by class.
            let mut most: BTreeMap<&str, i64> = BTreeMap::new();
            for sub in first {
                let number = number_of_devices(sub.allocation_mode.as_deref(), sub.count);
                let most = most.entry(&sub.device_class_name).or_default();
                *most = number.max(*most);
            }
            for (class, number) in most.into_iter().filter(|(_, number)| *number > 0) {
                let sum = devices.entry(class).or_default();
                *sum = sum.saturating_add(number);
            }
        }
        let named =
            |(class, number): (&str, i64)| (format!("{class}{OF_DEVICES}"), Quantity::from_value(number));
        counted.always.extend(devices.into_iter().map(named));
        let meta = &claim.metadata;
        let annotations = meta.annotations.as_ref();
        if annotations.and_then(|a| a.get(STANDS_FOR_POD)).is_some_and(|v| v == "true") {
            let owner = meta.owner_references.iter().flatten().find(|r| r.controller == Some(true));
            let pod = owner.filter(|r| r.kind == "Pod" && r.api_version == "v1");
            counted.stands_for = pod.map(|r| (r.name.clone(), r.uid.clone()));
        }
        counted
    }
}

/// The annotation of a claim that the scheduler makes for a Pod's extended resources.
const STANDS_FOR_POD: &str = "resource.kubernetes.io/extended-resource-claim";

/// The number of devices that a request may get.
fn number_of_devices(mode: Option<&str>, count: Option<i64>) -> i64 {
    match mode {
        Some("ExactCount") => count.unwrap_or_default(),
        // The most devices that a claim can have.
        Some("All") => 32,
        _ => 0,
    }
}

/// Reads an amount, rounded up to whole units; a malformed one is nothing.
fn whole(text: &str) -> Quantity {
    match Quantity::parse(text) {
        Err(_) => Quantity::from_value(0),
        Ok(exact) => {
            let mut rest = exact.clone();
            let rounded = if is_binary(text) {
                Quantity::from_bytes(exact.value())
            } else {
                Quantity::from_value(exact.value())
            };
            rest.sub(&rounded);
            if rest.is_zero() { exact } else { rounded }
        }
    }
}

/// Whether an amount is written with a binary suffix.
fn is_binary(text: &str) -> bool {
    text.ends_with('i')
}

fn all_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers.iter().chain(spec.init_containers.iter().flatten())
}

/// The amounts of a Pod by their names in quotas.
fn compute(spec: &PodSpec, requests: &Resources, limits: &Resources) -> Usage {
    let binary = |name: &str| {
        let of = |r: &ResourceRequirements| {
            let lists = [r.requests.as_ref(), r.limits.as_ref()];
            lists.into_iter().flatten().any(|l| l.get(name).is_some_and(|q| is_binary(&q.0)))
        };
        let own = spec.resources.as_ref();
        all_containers(spec).filter_map(|c| c.resources.as_ref()).chain(own).any(of)
    };
    let amount = |name: &str, amount: Amount| {
        let number = i64::try_from(amount).unwrap_or(i64::MAX);
        match name {
            "cpu" => Quantity::from_milli(number),
            _ if binary(name) => Quantity::from_bytes(number),
            _ => Quantity::from_value(number),
        }
    };
    let mut usage = Usage::from([("pods".to_owned(), Quantity::from_value(1))]);
    for name in ["cpu", "memory", "ephemeral-storage"] {
        let (request, limit) = (requests.get(name), limits.get(name));
        if request != 0 {
            usage.insert(name.to_owned(), amount(name, request));
            usage.insert(format!("{REQUESTS}{name}"), amount(name, request));
        }
        if limit != 0 {
            usage.insert(format!("limits.{name}"), amount(name, limit));
        }
    }
    for (name, request) in requests.scalar.iter().filter(|(_, request)| **request != 0) {
        if name.starts_with("hugepages-") {
            usage.insert(name.clone(), amount(name, *request));
        }
        if name.starts_with("hugepages-") || is_extended(name) {
            usage.insert(format!("{REQUESTS}{name}"), amount(name, *request));
        }
    }
    usage
}

fn facts(spec: &PodSpec, class: Option<&str>) -> PodFacts {
    let own = spec.resources.as_ref();
    let says = |r: &ResourceRequirements, name: &str| {
        let nonzero = |list: &Option<ResourceList>| {
            list.as_ref().and_then(|l| l.get(name)).is_some_and(|q| !whole(&q.0).is_zero())
        };
        nonzero(&r.requests) || nonzero(&r.limits)
    };
    let any = |r: &ResourceRequirements| says(r, "cpu") || says(r, "memory");
    let of_pod = own.is_some_and(|r| {
        let named = |list: &Option<ResourceList>| list.as_ref().is_some_and(|l| !l.is_empty());
        named(&r.requests) || named(&r.limits)
    });
    let best_effort = if let Some(class) = class {
        class == "BestEffort"
    } else if of_pod {
        !own.is_some_and(any)
    } else {
        !all_containers(spec).filter_map(|c| c.resources.as_ref()).any(any)
    };
    PodFacts {
        terminating: spec.active_deadline_seconds.is_some_and(|s| s >= 0),
        best_effort,
        priority_class: spec.priority_class_name.clone().unwrap_or_default(),
        cross_namespace: spec.affinity.as_ref().is_some_and(looks_elsewhere),
        silent: if of_pod { BTreeMap::new() } else { silent(spec) },
    }
}

/// Finds the containers that say nothing of CPU or memory.
fn silent(spec: &PodSpec) -> BTreeMap<&'static str, BTreeSet<String>> {
    /// Names in quotas, and whether they are limits of a container, and of what.
    const WANTED: [(&str, bool, &str); 6] = [
        ("cpu", false, "cpu"),
        ("memory", false, "memory"),
        ("requests.cpu", false, "cpu"),
        ("requests.memory", false, "memory"),
        ("limits.cpu", true, "cpu"),
        ("limits.memory", true, "memory"),
    ];
    let mut silent: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    for container in all_containers(spec) {
        let has = |limit: bool, name: &str| {
            let lists = container.resources.as_ref();
            let list = lists.and_then(|r| if limit { r.limits.as_ref() } else { r.requests.as_ref() });
            list.is_some_and(|l| l.contains_key(name))
        };
        for (name, limit, of) in WANTED {
            if !has(limit, of) {
                silent.entry(name).or_default().insert(container.name.clone());
            }
        }
    }
    silent
}

/// Whether the affinity of a Pod depends on Pods of other namespaces.
fn looks_elsewhere(affinity: &Affinity) -> bool {
    let far = |term: &PodAffinityTerm| {
        term.namespaces.as_ref().is_some_and(|n| !n.is_empty()) || term.namespace_selector.is_some()
    };
    let near = affinity.pod_affinity.as_ref();
    let apart = affinity.pod_anti_affinity.as_ref();
    let required = near
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())
        .into_iter()
        .chain(apart.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()));
    let preferred = near
        .and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref())
        .into_iter()
        .chain(apart.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()));
    required.flatten().any(far) || preferred.flatten().any(|w| far(&w.pod_affinity_term))
}
