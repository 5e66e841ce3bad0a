//! The resources that the containers of a Pod are given. A Pod that is running may ask for more, or less:
//! it has what it was given until the node can give what it asks for.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::{FeatureGates, Gate};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::allocated::Entry;
use super::spec;
use objects::quantity::{self, ResourceList};

/// The resources that may be resized here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scope {
    /// Pods as a whole; upstream's gate `InPlacePodLevelResourcesVerticalScaling`.
    pub(crate) whole: bool,
    /// Init containers that end; upstream's gate `InPlacePodVerticalScalingInitContainers`.
    pub(crate) init: bool,
}

impl Scope {
    /// By the gates.
    pub(crate) fn of(gates: FeatureGates) -> Self {
        Self {
            whole: gates.enabled(Gate::InPlacePodLevelResourcesVerticalScaling),
            init: gates.enabled(Gate::InPlacePodVerticalScalingInitContainers),
        }
    }
}

/// The resources that a Pod was given.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Allocation {
    /// By container.
    containers: BTreeMap<String, ResourceRequirements>,
    /// The Pod's own.
    whole: Option<ResourceRequirements>,
    /// Whether the Pod's own can differ from those that it asks for.
    counts_whole: bool,
}

impl Allocation {
    /// As it is kept for a kubelet that starts anew.
    pub(crate) fn entry(&self) -> Entry {
        Entry {
            container_resources: Some(self.containers.clone()),
            pod_level_resources: self.whole.clone().filter(|_| self.counts_whole),
        }
    }
}

/// Why a resize is not carried out: upstream's reason and text of the condition `PodResizePending`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    /// `Infeasible` or `Deferred`.
    pub(crate) reason: &'static str,
    /// The resource that is lacking.
    pub(crate) message: String,
    /// Upstream's word for it, by which resizes are counted that are infeasible.
    pub(crate) detail: &'static str,
}

impl Pending {
    fn infeasible(detail: &'static str, message: String) -> Self {
        Self { reason: "Infeasible", message, detail }
    }
}

/// The detail of what lacks room on the node.
const NO_ROOM: &str = "insufficient_node_allocatable";

/// The resources that can be resized in place; upstream's.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

fn all(pod: &Pod) -> impl Iterator<Item = &Container> {
    spec::containers(pod).iter().chain(spec::init_containers(pod))
}

fn resizable(pod: &Pod, scope: Scope) -> impl Iterator<Item = &Container> {
    let inits = spec::init_containers(pod).iter().filter(move |c| scope.init || spec::is_sidecar(c));
    spec::containers(pod).iter().chain(inits)
}

/// Whether two sets of resources are the same, where none are as good as empty ones.
pub(crate) fn same_or_none(a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => same(a, b),
        (one, other) => one.or(other).is_none_or(is_empty),
    }
}

/// Whether two sets of resources are the same, however they are written.
pub(crate) fn same(a: &ResourceRequirements, b: &ResourceRequirements) -> bool {
    let equal = |a: Option<&ResourceList>, b: Option<&ResourceList>| {
        RESIZABLE.iter().all(|name| {
            let (a, b) = (a.and_then(|l| l.get(*name)), b.and_then(|l| l.get(*name)));
            a.is_some() == b.is_some() && quantity::milli(a) == quantity::milli(b)
        })
    };
    equal(a.requests.as_ref(), b.requests.as_ref()) && equal(a.limits.as_ref(), b.limits.as_ref())
}

/// The resources that a Pod asks for.
pub(crate) fn wanted(pod: &Pod, scope: Scope) -> Allocation {
    Allocation {
        containers: resizable(pod, scope)
            .map(|c| (c.name.clone(), c.resources.clone().unwrap_or_default()))
            .collect(),
        whole: spec::spec(pod).resources.clone(),
        counts_whole: scope.whole,
    }
}

/// The resources that a Pod was given before this kubelet started: as they were kept, or as its status has them; those that
/// it asks for where nothing says anything.
pub(crate) fn before(pod: &Pod, kept: Option<Entry>, scope: Scope) -> Allocation {
    let mut given = wanted(pod, scope);
    if let Some(kept) = kept {
        let mut containers = kept.container_resources.unwrap_or_default();
        for (name, resources) in &mut given.containers {
            if let Some(kept) = containers.remove(name) {
                *resources = kept;
            }
        }
        given.whole = kept.pod_level_resources;
        return given;
    }
    let status = spec::status(pod);
    let lists = [status.container_statuses.as_ref(), status.init_container_statuses.as_ref()];
    let known: HashMap<&str, &ContainerStatus> =
        lists.into_iter().flatten().flatten().map(|s| (s.name.as_str(), s)).collect();
    for (name, resources) in &mut given.containers {
        let Some(status) = known.get(name.as_str()) else { continue };
        let limits = status.resources.as_ref().and_then(|r| r.limits.as_ref());
        replace(resources, status.allocated_resources.as_ref(), limits);
    }
    if let (Some(whole), Some(told)) = (&mut given.whole, &status.resources) {
        replace(whole, told.requests.as_ref(), told.limits.as_ref());
    }
    given
}

/// Replaces the amounts that are there by what a status tells.
fn replace(all: &mut ResourceRequirements, requests: Option<&ResourceList>, limits: Option<&ResourceList>) {
    for name in RESIZABLE {
        let of = |list: Option<&ResourceList>| list.and_then(|l| l.get(name)).cloned();
        set(&mut all.requests, name, of(requests));
        set(&mut all.limits, name, of(limits));
    }
}

/// Replaces an amount that is there by another one.
fn set(list: &mut Option<ResourceList>, name: &str, amount: Option<Quantity>) {
    if let (Some(list), Some(amount)) = (list, amount)
        && list.contains_key(name)
    {
        list.insert(name.to_owned(), amount);
    }
}

/// The Pod with what it was given in the place of what it asks for.
pub(crate) fn given<'a>(pod: &'a Arc<Pod>, allocation: &Allocation) -> Cow<'a, Arc<Pod>> {
    let other = |c: &Container| {
        allocation.containers.get(&c.name).filter(|given| !same_or_none(Some(given), c.resources.as_ref()))
    };
    let whole = allocation.whole.as_ref();
    let other_whole = allocation.counts_whole && !same_or_none(whole, spec::spec(pod).resources.as_ref());
    if !other_whole && all(pod).all(|c| other(c).is_none()) {
        return Cow::Borrowed(pod);
    }
    let mut changed = (**pod).clone();
    if let Some(spec) = &mut changed.spec {
        if other_whole {
            spec.resources = whole.cloned();
        }
        for c in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            if let Some(given) = other(c) {
                c.resources = Some(given.clone());
            }
        }
    }
    Cow::Owned(Arc::new(changed))
}

/// The Pod that a status is about: with what it was given, and of the generation for which that was decided. A newer
/// object is not observed before that: a status of its generation would say that it has what it asks for.
pub(crate) fn shown<'a>(
    pod: &'a Arc<Pod>,
    allocation: &Allocation,
    decided: Option<i64>,
) -> Cow<'a, Arc<Pod>> {
    let mut shown = given(pod, allocation);
    if decided.is_some() && decided != pod.metadata.generation {
        Arc::make_mut(shown.to_mut()).metadata.generation = decided;
    }
    shown
}

fn is_empty(r: &ResourceRequirements) -> bool {
    same(r, &ResourceRequirements::default())
}

/// The changes that a Pod asks for: operation, requirement and resource, in upstream's words.
pub(crate) fn operations(has: &Pod, asks: &Pod) -> Vec<[&'static str; 3]> {
    let mut found = Vec::new();
    for (old, new) in all(has).zip(all(asks)) {
        type Of = fn(&ResourceRequirements) -> Option<&ResourceList>;
        let lists: [(&'static str, Of); 2] =
            [("requests", |r| r.requests.as_ref()), ("limits", |r| r.limits.as_ref())];
        for name in RESIZABLE {
            for (requirement, of) in lists {
                let amount = |c: &Container| {
                    quantity::milli(c.resources.as_ref().and_then(of).and_then(|list| list.get(name)))
                };
                let operation = match (amount(old), amount(new)) {
                    (a, b) if a == b => continue,
                    (0, _) => "add",
                    (_, 0) => "remove",
                    (a, b) if a < b => "increase",
                    _ => "decrease",
                };
                found.push([operation, requirement, name]);
            }
        }
    }
    found
}

/// Whether a guaranteed Pod asks for another amount of a resource that a policy of the node holds; `now` is the Pod with
/// what it has, and `holds` names resources with what holds them.
pub(crate) fn held(pod: &Pod, now: &Pod, holds: &[(&str, &str)]) -> Option<Pending> {
    if spec::qos(pod) != spec::Qos::Guaranteed {
        return None;
    }
    let requests = |pod: &Pod, name: &str| -> Vec<i64> {
        all(pod).map(|c| spec::amount(c.resources.as_ref().and_then(|r| r.requests.as_ref()), name)).collect()
    };
    let (name, by) = holds.iter().find(|(name, _)| requests(pod, name) != requests(now, name))?;
    let message = format!("Resize is infeasible for Guaranteed Pods alongside {by}");
    let detail = if *name == "cpu" {
        "guaranteed_pod_cpu_manager_static_policy"
    } else {
        "guaranteed_pod_memory_manager_static_policy"
    };
    Some(Pending::infeasible(detail, message))
}

/// Whether a container that may swap asks for another amount of memory without a restart: how much it may swap follows from
/// that amount, and cannot be changed. `swaps` tells whether a container of a Pod may; `now` is the Pod with what it has.
pub(crate) fn swapped(pod: &Pod, now: &Pod, swaps: impl Fn(&Pod, &Container) -> bool) -> Option<Pending> {
    let has: HashMap<&str, &Container> = all(now).map(|c| (c.name.as_str(), c)).collect();
    let memory =
        |c: &Container| spec::amount(c.resources.as_ref().and_then(|r| r.requests.as_ref()), "memory");
    let restarts = |c: &Container| {
        let policy = c.resize_policy.iter().flatten().find(|p| p.resource_name == "memory");
        policy.is_some_and(|p| p.restart_policy == "RestartContainer")
    };
    let refused = |wanted: &Container| {
        has.get(wanted.name.as_str()).is_some_and(|has| {
            memory(wanted) != memory(has) && !restarts(has) && (swaps(pod, wanted) || swaps(now, has))
        })
    };
    all(pod).any(refused).then(|| {
        let message = "In-place resize of containers with swap is not supported.";
        Pending::infeasible("swap_limitation", message.to_owned())
    })
}

/// Whether the node cannot give a Pod what it asks for, beside what it gave to others; `now` is the Pod
/// with what it has.
///
/// DIFFERENCE: 1.36.2 defers what no node of this size could ever give; here it is infeasible, as the
/// API describes it.
pub(crate) fn decide(
    pod: &Pod,
    now: &Pod,
    allocatable: &ResourceList,
    others: &[Arc<Pod>],
) -> Option<Pending> {
    for name in RESIZABLE {
        let request = spec::pod_request(pod, name);
        if !allocatable.contains_key(name) || request <= spec::pod_request(now, name) {
            continue;
        }
        let capacity = spec::capacity(allocatable, name);
        if request > capacity {
            let message = format!(
                "Node didn't have enough capacity: {name}, requested: {request}, capacity: {capacity}"
            );
            return Some(Pending::infeasible(NO_ROOM, message));
        }
        let used: i64 = others.iter().map(|p| spec::pod_request(p, name)).fold(0, i64::saturating_add);
        if request > capacity.saturating_sub(used) {
            let message = format!(
                "Node didn't have enough resource: {name}, requested: {request}, used: {used}, capacity: {capacity}"
            );
            return Some(Pending { reason: "Deferred", message, detail: NO_ROOM });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SCOPE: Scope = Scope { whole: true, init: true };

    fn pod(cpu: &str, status: Value) -> Arc<Pod> {
        let resources = json!({"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": cpu}});
        let pod = json!({"metadata": {"name": "p"}, "status": status,
            "spec": {"containers": [{"name": "c", "resources": resources}, {"name": "d"}]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_has_what_it_was_given() {
        let asks = pod("1000", json!({}));
        let allocation = wanted(&pod("1", json!({})), SCOPE);
        let has = given(&asks, &allocation).into_owned();
        let amount = |list: &Option<ResourceList>, name: &str| {
            quantity::milli(list.as_ref().and_then(|l| l.get(name)))
        };
        let first = |pod: &Pod| spec::containers(pod)[0].resources.clone().unwrap_or_default();
        assert_eq!(amount(&first(&has).requests, "cpu"), 1000);
        assert_eq!(spec::containers(&has)[1].resources, None);
        let same = pod("1000m", json!({}));
        assert!(matches!(given(&same, &allocation), Cow::Borrowed(_)), "written otherwise");
        // A kubelet that starts anew knows it from the status.
        let status = json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true,
            "restartCount": 0, "allocatedResources": {"cpu": "2"}, "resources": {"limits": {"cpu": "2"}}}]});
        let has =
            given(&pod("1000", status.clone()), &before(&pod("1000", status), None, SCOPE)).into_owned();
        assert_eq!(amount(&first(&has).limits, "cpu"), 2000);
        assert_eq!(amount(&first(&has).requests, "memory"), (1 << 30) * 1000);
    }

    /// Upstream's cases of `TestUpdatePodFromAllocation`: containers `a`, init container `i` and sidecar `s`, and the whole Pod
    /// `w`, each with its requests of cpu; then what was kept of them.
    #[test]
    fn pods_have_what_was_kept_of_them() {
        let resources = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let of = |text: &str| -> Arc<Pod> {
            let mut spec = json!({"containers": [], "initContainers": []});
            for word in text.split_whitespace() {
                let (name, cpu) = word.split_once(':').unwrap();
                let mut c = json!({"name": name, "resources": resources(cpu)});
                if name == "s" {
                    c["restartPolicy"] = json!("Always");
                }
                match name {
                    "w" => spec["resources"] = resources(cpu),
                    "i" | "s" => spec["initContainers"].as_array_mut().unwrap().push(c),
                    _ => spec["containers"].as_array_mut().unwrap().push(c),
                }
            }
            Arc::new(serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap())
        };
        let check = |asks: &str, kept: &str, scope: Scope, expected: Option<&str>| {
            let (asks, kept) = (of(asks), wanted(&of(kept), scope).entry());
            let allocation = before(&asks, Some(kept), scope);
            let expected = expected.map(of);
            match (given(&asks, &allocation), expected) {
                (Cow::Borrowed(_), None) => {}
                (Cow::Owned(got), Some(expected)) => assert_eq!(got.spec, expected.spec, "{asks:?}"),
                (got, expected) => panic!("{got:?} {expected:?}"),
            }
        };
        check("a:1 s:2", "a:1 s:2", SCOPE, None);
        check("a:1 s:2", "a:1000m s:2", SCOPE, None);
        check("a:1 s:2", "a:3 s:2", SCOPE, Some("a:3 s:2"));
        check("a:1 s:2", "a:1 s:3", SCOPE, Some("a:1 s:3"));
        check("a:1 b:1", "a:3", SCOPE, Some("a:3 b:1"));
        check("a:1 w:4", "a:1 w:4", SCOPE, None);
        check("a:1 w:4", "a:1 w:2", SCOPE, Some("a:1 w:2"));
        check("a:1 w:4", "a:2 w:2", SCOPE, Some("a:2 w:2"));
        check("a:1 w:4", "a:1", SCOPE, Some("a:1"));
        check("a:1", "a:1 w:2", SCOPE, Some("a:1 w:2"));
        check("a:1 i:2 s:2", "a:1 i:3 s:2", SCOPE, Some("a:1 i:3 s:2"));
        check("a:1 i:2 s:2", "a:1 i:3 s:4", SCOPE, Some("a:1 i:3 s:4"));
        check("a:1 i:2 s:2", "a:1 i:3 s:2", Scope { init: false, ..SCOPE }, None);
        check("a:1 i:2 s:2", "a:1 i:3 s:4", Scope { init: false, ..SCOPE }, Some("a:1 i:2 s:4"));
        let without = Scope { whole: false, ..SCOPE };
        check("a:1 w:4", "a:1 w:2", without, None);
        check("a:1 w:4", "a:2 w:2", without, Some("a:2 w:4"));
    }

    /// A kubelet that finds no file knows from the status what a whole Pod was given.
    #[test]
    fn a_status_tells_what_a_whole_pod_has() {
        let asks = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}],
            "resources": {"requests": {"cpu": "4", "memory": "1Gi"}, "limits": {"cpu": "8"}}},
            "status": {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3", "memory": "9Gi"}}}});
        let asks: Arc<Pod> = Arc::new(serde_json::from_value(asks).unwrap());
        let has = given(&asks, &before(&asks, None, SCOPE)).into_owned();
        let expected = json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "3"}});
        assert_eq!(serde_json::to_value(&spec::spec(&has).resources).unwrap(), expected);
    }

    #[test]
    fn changes_have_names() {
        let of = |resources: Value| -> Pod {
            let pod = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
            serde_json::from_value(pod).unwrap()
        };
        let check = |has: Value, asks: Value, expected: &[[&str; 3]]| {
            assert_eq!(operations(&of(has), &of(asks)), expected);
        };
        check(json!({"requests": {"cpu": "1"}}), json!({"requests": {"cpu": "1000m"}}), &[]);
        check(
            json!({"requests": {"cpu": "1", "memory": "2"}, "limits": {"cpu": "1"}}),
            json!({"requests": {"cpu": "2", "memory": "1"}, "limits": {"memory": "1"}}),
            &[
                ["increase", "requests", "cpu"],
                ["remove", "limits", "cpu"],
                ["decrease", "requests", "memory"],
                ["add", "limits", "memory"],
            ],
        );
    }

    #[test]
    fn a_status_is_about_what_was_decided() {
        let mut asks = pod("2", json!({}));
        Arc::make_mut(&mut asks).metadata.generation = Some(2);
        let before = wanted(&pod("1", json!({})), SCOPE);
        let check = |allocation: &Allocation, decided: Option<i64>, expected: (Option<i64>, &str)| {
            let shown = shown(&asks, allocation, decided);
            let cpu =
                spec::containers(&shown)[0].resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"]
                    .0
                    .clone();
            assert_eq!((shown.metadata.generation, cpu.as_str()), expected);
        };
        check(&before, Some(1), (Some(1), "1"));
        check(&before, Some(2), (Some(2), "1"));
        check(&wanted(&asks, SCOPE), Some(2), (Some(2), "2"));
        check(&wanted(&asks, SCOPE), None, (Some(2), "2"));
    }

    #[test]
    fn what_a_policy_holds_is_not_resized() {
        let holds =
            [("cpu", "CPU Manager policy \"static\""), ("memory", "Memory Manager policy \"Static\"")];
        let pod = |cpu: &str, memory: &str, limit: &str| -> Pod {
            let resources =
                json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": limit}});
            serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}))
                .unwrap()
        };
        let check = |from: (&str, &str), to: (&str, &str), held: &[(&str, &str)], want: Option<&str>| {
            let (now, pod) = (pod(from.0, from.1, from.1), pod(to.0, to.1, to.1));
            let got = super::held(&pod, &now, held);
            assert_eq!(got.as_ref().map(|p| p.message.as_str()), want, "{from:?} {to:?}");
        };
        let cpu = "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"";
        let memory = "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"";
        check(("1", "1Gi"), ("2", "1Gi"), &holds, Some(cpu));
        check(("1", "1Gi"), ("1", "2Gi"), &holds, Some(memory));
        check(("1", "1Gi"), ("2", "2Gi"), &holds[1..], Some(memory));
        check(("1", "1Gi"), ("1000m", "1024Mi"), &holds, None);
        check(("1", "1Gi"), ("2", "1Gi"), &[], None);
        let burstable = super::held(&pod("2", "1Gi", "2Gi"), &pod("1", "1Gi", "2Gi"), &holds);
        assert_eq!(burstable, None);
    }

    #[test]
    fn what_the_node_cannot_give_waits() {
        let allocatable: ResourceList = serde_json::from_value(json!({"cpu": "4", "memory": "8Gi"})).unwrap();
        let others = [pod("2", json!({}))];
        let check = |from: &str, to: &str, want: Option<(&str, &str)>| {
            let got = decide(&pod(to, json!({})), &pod(from, json!({})), &allocatable, &others);
            assert_eq!(got.as_ref().map(|p| (p.reason, p.message.as_str())), want, "{from} {to}");
        };
        check("1", "2", None);
        check("4", "3", None);
        check(
            "1",
            "1000",
            Some(("Infeasible", "Node didn't have enough capacity: cpu, requested: 1000000, capacity: 4000")),
        );
        check(
            "1",
            "3",
            Some((
                "Deferred",
                "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000",
            )),
        );
        check(
            "1",
            "9223372036854775",
            Some((
                "Infeasible",
                "Node didn't have enough capacity: cpu, requested: 9223372036854775000, capacity: 4000",
            )),
        );
    }

    /// Upstream's 3 cases of `TestRetryPendingResizesWithSwap`.
    #[test]
    fn containers_that_swap_are_restarted_or_left_alone() {
        let pod = |amount: (&str, &str), policy: &str| -> Pod {
            let policy = json!([{"resourceName": "memory", "restartPolicy": policy}]);
            let requests = json!({"cpu": amount.0, "memory": amount.1});
            serde_json::from_value(json!({"spec": {"containers": [
                {"name": "c1", "resources": {"requests": requests}, "resizePolicy": policy}]}}))
            .unwrap()
        };
        let check = |to: (&str, &str), policy: &str, swaps: bool, expected: Option<&str>| {
            let (now, pod) = (pod(("1", "1Gi"), policy), pod(to, policy));
            let got = swapped(&pod, &now, |_, _| swaps);
            assert_eq!(got.as_ref().map(|p| p.message.as_str()), expected, "{to:?} {policy} {swaps}");
            assert!(got.is_none_or(|p| (p.reason, p.detail) == ("Infeasible", "swap_limitation")));
        };
        let less = ("500m", "500Mi");
        let text = "In-place resize of containers with swap is not supported.";
        check(less, "RestartContainer", false, None);
        check(less, "RestartContainer", true, None);
        check(less, "NotRequired", true, Some(text));
        check(less, "NotRequired", false, None);
        check(("500m", "1024Mi"), "NotRequired", true, None);
    }

    /// 13 of upstream's 20 cases of `TestRetryPendingResizes`: those that say more than another one, and are not about whole
    /// Pods. The node has 4 processors and 4 GiB, of which two other Pods have one half. Requests are `CPU,MEMORY` in
    /// thousandths and MiB.
    #[test]
    fn resizes_are_given_or_wait() {
        let amounts = |text: &str| {
            let (cpu, memory) = text.split_once(',').unwrap();
            let set =
                [("cpu", cpu, "m"), ("memory", memory, "Mi")].into_iter().filter(|(_, n, _)| !n.is_empty());
            json!(
                set.map(|(name, n, unit)| (name.to_owned(), json!(format!("{n}{unit}"))))
                    .collect::<serde_json::Map<_, _>>()
            )
        };
        let pod = |requests: &str, limits: &str| -> Arc<Pod> {
            let resources = json!({"requests": amounts(requests), "limits": amounts(limits)});
            let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c1", "resources": resources}]}});
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let allocatable: ResourceList = serde_json::from_value(json!({"cpu": "4", "memory": "4Gi"})).unwrap();
        let others = [pod("1000,1024", ","), pod("1000,1024", ",")];
        let check = |(from, from_limits): (&str, &str),
                     (to, to_limits): (&str, &str),
                     expected: Option<(&str, &str)>| {
            let got = decide(&pod(to, to_limits), &pod(from, from_limits), &allocatable, &others);
            let got = got.as_ref().map(|p| (p.reason, p.message.as_str()));
            assert_eq!(got.map(|(reason, _)| reason), expected.map(|(reason, _)| reason), "{from} {to}");
            if let (Some((_, got)), Some((_, text))) = (got, expected) {
                assert!(got.contains(text), "{got}");
            }
        };
        let usual = ("1000,1024", ",");
        let lacks = |name: &'static str| Some(("Deferred", name));
        let (cpu, memory) =
            ("Node didn't have enough resource: cpu", "Node didn't have enough resource: memory");
        check(usual, ("500,500", ","), None);
        check(usual, ("1500,500", ","), None);
        check(usual, ("500,1500", ","), None);
        check(usual, ("2500,2500", ","), lacks(cpu));
        check(usual, ("500,2500", ","), lacks(memory));
        // DIFFERENCE, as above: upstream defers these two.
        check(
            usual,
            ("1000,4500", ","),
            Some(("Infeasible", "memory, requested: 4718592000, capacity: 4294967296")),
        );
        check(usual, ("5000,1024", ","), Some(("Infeasible", "cpu, requested: 5000, capacity: 4000")));
        check(usual, ("1500,1024", ","), None);
        check(usual, usual, None);
        check(("2,", ","), ("1000,", ","), None);
        check(("1000,", ","), ("2,", ","), None);
        check(("10,", "10,"), ("10,", "20,"), None);
        check(("10,", "20,"), ("10,", "10,"), None);
        // The cases about whole Pods: what the Pod asks for itself counts.
        let whole = |requests: &str| -> Arc<Pod> {
            let container = json!({"name": "c1", "resources": {"requests": amounts("100,100")}});
            let pod = json!({"metadata": {"name": "p"},
                "spec": {"containers": [container], "resources": {"requests": amounts(requests)}}});
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let check = |from: &str, to: &str, expected: Option<(&str, &str)>| {
            let got = decide(&whole(to), &whole(from), &allocatable, &others);
            let got = got.as_ref().map(|p| (p.reason, p.message.as_str()));
            assert_eq!(got.map(|(reason, _)| reason), expected.map(|(reason, _)| reason), "{from} {to}");
            assert!(got.zip(expected).is_none_or(|((_, got), (_, text))| got.contains(text)), "{got:?}");
        };
        check("1000,1000", "500,500", None);
        check("1000,1000", "1500,1500", None);
        check("1000,1000", "2500,2500", lacks(cpu));
        check("1000,1000", "500,2500", lacks(memory));
        check("1000,1000", "5000,1000", Some(("Infeasible", "cpu, requested: 5000, capacity: 4000")));
    }
}
