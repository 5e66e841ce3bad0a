//! The order in which a Pod that runs is given other resources, and whether its memory can shrink.
//!
//! Growth goes from the outside inwards: the Pod, then its containers. A reduction goes the other way. So the
//! containers together never have more than their Pod.

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};

use super::resources::{self, PodCgroup};
use super::{allocation, spec};
use objects::quantity;

/// A resource that is resized in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    Memory,
    Cpu,
}

impl Resource {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
        }
    }
}

/// A container that runs with other resources than it is to have.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    /// CRI id.
    pub(super) id: String,
    pub(super) container: Container,
    /// Its resources now and then, with the Pod's limits where it has no own.
    pub(super) has: ResourceRequirements,
    pub(super) wants: ResourceRequirements,
}

/// Limit and request: cpu in thousandths, memory in bytes.
fn amounts(of: &ResourceRequirements, resource: Resource) -> (i64, i64) {
    let one = |list: Option<&quantity::ResourceList>| {
        let amount = list.and_then(|list| list.get(resource.name()));
        if resource == Resource::Cpu { quantity::milli(amount) } else { quantity::value(amount) }
    };
    (one(of.limits.as_ref()), one(of.requests.as_ref()))
}

impl Change {
    /// The container's resources once this resource has changed, and everything else not yet.
    pub(super) fn with(&self, resource: Resource) -> ResourceRequirements {
        let mut all = self.has.clone();
        let name = resource.name();
        for (mine, wanted) in
            [(&mut all.requests, &self.wants.requests), (&mut all.limits, &self.wants.limits)]
        {
            match wanted.as_ref().and_then(|list| list.get(name)) {
                Some(amount) => drop(mine.get_or_insert_default().insert(name.to_owned(), amount.clone())),
                None => drop(mine.as_mut().and_then(|list| list.remove(name))),
            }
        }
        all
    }

    /// Whether the resource changes, and whether it shrinks.
    fn shrinks(&self, resource: Resource) -> Option<bool> {
        let (has, wants) = (amounts(&self.has, resource), amounts(&self.wants, resource));
        if has.0 == wants.0 { (has.1 != wants.1).then_some(wants.1 < has.1) } else { Some(wants.0 < has.0) }
    }

    /// The limit of memory in bytes that the container gets, if it is less than it has.
    fn less_memory(&self) -> Option<i64> {
        let (has, wants) = (amounts(&self.has, Resource::Memory).0, amounts(&self.wants, Resource::Memory).0);
        (wants != 0 && (has == 0 || wants < has)).then_some(wants)
    }

    /// Whether the container wants a restart when one of the resources that differ changes.
    pub(super) fn needs_restart(&self) -> bool {
        self.container.resize_policy.iter().flatten().any(|p| {
            let resource =
                [Resource::Memory, Resource::Cpu].into_iter().find(|r| r.name() == p.resource_name);
            p.restart_policy == "RestartContainer" && resource.is_some_and(|r| self.shrinks(r).is_some())
        })
    }
}

/// The changes of the containers that run; `has` tells what one has by its name and its id, if it runs.
pub(super) fn changes<'p>(
    pod: &'p Pod,
    mut has: impl FnMut(&'p Container) -> Option<(String, ResourceRequirements)>,
) -> Vec<Change> {
    let all = spec::containers(pod).iter().chain(spec::init_containers(pod));
    let change = |c: &'p Container| {
        let ((id, has), wants) = (has(c)?, resources::effective(pod, c));
        (!allocation::same(&has, &wants)).then(|| Change { id, container: c.clone(), has, wants })
    };
    all.filter_map(change).collect()
}

/// A step of a resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// The Pod's limit is set.
    Limit,
    /// The Pod's part of the processors is set.
    Request,
    /// A container is changed, the one at this place.
    Container(usize),
}

/// The steps by which one resource changes.
pub(super) fn order(resource: Resource, now: &PodCgroup, wanted: &PodCgroup, changes: &[Change]) -> Vec<Act> {
    let limit = |of: &PodCgroup| match resource {
        Resource::Memory => of.memory.unwrap_or(i64::MAX),
        Resource::Cpu => of.quota.unwrap_or(i64::MAX),
    };
    // The request of memory is not in the cgroup.
    let request = |of: &PodCgroup| if resource == Resource::Cpu { of.shares } else { 0 };
    let ((limit_now, limit_then), (request_now, request_then)) =
        ((limit(now), limit(wanted)), (request(now), request(wanted)));
    let mut acts = Vec::new();
    // A limit is never below a request.
    acts.extend((limit_then > limit_now).then_some(Act::Limit));
    acts.extend((request_then > request_now).then_some(Act::Request));
    for shrinks in [true, false] {
        let of = changes.iter().enumerate().filter(|(_, c)| c.shrinks(resource) == Some(shrinks));
        acts.extend(of.map(|(at, _)| Act::Container(at)));
    }
    acts.extend((request_then < request_now).then_some(Act::Request));
    acts.extend((limit_then < limit_now).then_some(Act::Limit));
    acts
}

/// The containers whose limit of memory shrinks: name, id and the new limit in bytes.
pub(super) fn shrinking(changes: &[Change]) -> Vec<(&str, &str, i64)> {
    let all = changes.iter().filter_map(|c| Some((c, c.less_memory()?)));
    all.map(|(c, limit)| (c.container.name.as_str(), c.id.as_str(), limit)).collect()
}

/// Why memory cannot shrink, in upstream's words: it is in use. `pod` is the new limit of the Pod if it shrinks, and what the
/// Pod uses; `containers` are those of [`shrinking`] with what they use; all in bytes.
///
/// DIFFERENCE: upstream's text on a container has the use of the whole Pod. A Pod whose limit alone shrinks is not looked at
/// there, and the kernel ends some of its processes.
pub(super) fn in_use(
    pod: Option<(i64, Option<u64>)>,
    containers: &[(&str, i64, Option<u64>)],
) -> Option<String> {
    let exceeds = |limit: i64, used: u64| u64::try_from(limit).is_ok_and(|limit| used >= limit);
    let mut found = Vec::new();
    match pod {
        Some((_, None)) => found.push("missing pod memory usage".to_owned()),
        Some((limit, Some(used))) if exceeds(limit, used) => {
            found.push(format!("attempting to set pod memory limit ({limit}) below current usage ({used})"));
        }
        _ => {}
    }
    for (name, limit, used) in containers {
        match used {
            None => found.push(format!("missing container {name:?} memory usage")),
            Some(used) if exceeds(*limit, *used) => found.push(format!(
                "attempting to set container {name:?} memory limit ({limit}) below current usage ({used})"
            )),
            Some(_) => {}
        }
    }
    let text = match found.as_slice() {
        [] => return None,
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    };
    Some(format!("cannot decrease memory limits: {text}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Resources as `CPU,MEMORY-CPU,MEMORY` of requests and limits, in thousandths and bytes.
    fn amounts(text: &str) -> ResourceRequirements {
        let list = |of: &str| -> Value {
            let (cpu, memory) = of.split_once(',').unwrap_or((of, ""));
            let set =
                [("cpu", cpu, "m"), ("memory", memory, "")].into_iter().filter(|(_, n, _)| !n.is_empty());
            set.map(|(name, n, unit)| (name.to_owned(), json!(format!("{n}{unit}"))))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let (requests, limits) = text.split_once('-').unwrap_or((text, ""));
        serde_json::from_value(json!({"requests": list(requests), "limits": list(limits)})).unwrap()
    }

    fn change(has: &str, wants: &str) -> Change {
        let container = Container { name: "c".into(), ..Container::default() };
        Change { id: "id".into(), container, has: amounts(has), wants: amounts(wants) }
    }

    /// A Pod with one container that changes, and one with or without limits beside it.
    fn cgroup(whole: &str, container: &str, others_limited: bool) -> PodCgroup {
        let other = if others_limited { amounts("100,100-100,100") } else { amounts("100,100") };
        let mut spec = json!({"containers": [
            {"name": "c", "resources": amounts(container)}, {"name": "d", "resources": other}]});
        if !whole.is_empty() {
            spec["resources"] = json!(amounts(whole));
        }
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        resources::pod_cgroup(&pod, &crate::enforcement::Limits::default())
    }

    /// The steps of both resources, memory first: `limit`, `request` of the Pod, `c` of the container.
    fn steps(whole: (&str, &str), container: (&str, &str), others_limited: bool) -> String {
        let now = cgroup(whole.0, container.0, others_limited);
        let wanted = cgroup(whole.1, container.1, others_limited);
        let changes = [change(container.0, container.1)];
        let mut words = Vec::new();
        for resource in [Resource::Memory, Resource::Cpu] {
            for act in order(resource, &now, &wanted, &changes) {
                let what = match act {
                    Act::Limit => "limit",
                    Act::Request => "request",
                    Act::Container(_) => "c",
                };
                words.push(format!("{}:{what}", resource.name()));
            }
        }
        words.join(" ")
    }

    /// Upstream's cases of `TestDoPodResizeAction` that are not about errors of calls: with their updates of the Pod's cgroup
    /// and of the container, in order.
    #[test]
    fn a_resize_has_an_order() {
        let check = |whole: (&str, &str), container: (&str, &str), others: bool, expected: &str| {
            assert_eq!(steps(whole, container, others), expected, "{whole:?} {container:?} {others}");
        };
        let none = ("", "");
        let same = ("100,100-100,100", "100,100-100,100");
        let more = ("100,100-100,100", "200,200-200,200");
        check(none, more, true, "memory:limit memory:c cpu:limit cpu:request cpu:c");
        check(none, more, false, "memory:c cpu:request cpu:c");
        check(none, ("100,100-200,200", "150,150-200,200"), false, "memory:c cpu:request cpu:c");
        check(none, ("100,100", "100,200"), false, "memory:c");
        check(none, ("100,100", "200,100"), false, "cpu:request cpu:c");
        check(none, ("100,100", "100,100-100,100"), false, "memory:c cpu:c");
        // Limits of the Pod that come into being bound it after its containers are bound.
        check(none, ("100,100", "100,100-100,100"), true, "memory:c memory:limit cpu:c cpu:limit");
        check(
            none,
            ("200,200-200,200", "100,100-100,100"),
            true,
            "memory:c memory:limit cpu:c cpu:request cpu:limit",
        );
        check(("100,100-100,100", "100,200-100,100"), same, true, "");
        check(("100,100-100,100", "100,100-100,200"), same, true, "memory:limit");
        check(("100-100", "200-100"), ("100-100", "100-100"), true, "cpu:request");
        check(("100-100", "100-200"), ("100-100", "100-100"), true, "cpu:limit");
        check(("100-100", "100-300"), ("100-100", "100-200"), true, "cpu:limit cpu:c");
        check((",100-,200", ",200-,200"), (",100-,200", ",150-,200"), true, "memory:c");
        check(("100-200", "200-200"), ("100-200", "150-200"), true, "cpu:request cpu:c");
        check(("300,300-300,300", "100,100-100,100"), same, true, "memory:limit cpu:request cpu:limit");
    }

    /// Containers that shrink make room for those that grow.
    #[test]
    fn containers_that_shrink_come_first() {
        let changes =
            [change("100-200", "200-300"), change("300-400", "200-300"), change("100-200", "100-200")];
        let same = PodCgroup::default();
        let got = order(Resource::Cpu, &same, &same, &changes);
        assert_eq!(got, [Act::Container(1), Act::Container(0)]);
        assert_eq!(order(Resource::Memory, &same, &same, &changes), []);
    }

    #[test]
    fn one_resource_changes_at_a_time() {
        let check = |has: &str, wants: &str, resource: Resource, expected: &str| {
            let got = change(has, wants).with(resource);
            assert!(allocation::same(&got, &amounts(expected)), "{got:?}");
        };
        check("1,2-3,4", "5,6-7,8", Resource::Memory, "1,6-3,8");
        check("1,2-3,4", "5,6-7,8", Resource::Cpu, "5,2-7,4");
        check("1,2", "1,2-3,4", Resource::Cpu, "1,2-3");
        check("1,2-3,4", "1,2", Resource::Memory, "1,2-3");
    }

    /// Upstream's 17 cases of `TestComputePodActionsForPodResize`, of which those of the whole Pod's resources differ in its
    /// limits alone: the Pod's limits, then each container `c1`, `c2`, `c3` as `WANTS/HAS` of limits of cpu and memory or, after
    /// `|`, with its requests; `C` or `M` if it restarts for cpu or memory. Then the changes by resource, or the restart.
    #[test]
    fn resizes_change_or_restart_containers() {
        let list = |text: &str| -> Value {
            let (cpu, memory) = text.split_once(',').unwrap_or((text, ""));
            let set = [("cpu", cpu, "m"), ("memory", memory, "Mi")];
            let set = set.into_iter().filter(|(_, n, _)| !n.is_empty());
            set.map(|(name, n, unit)| (name.to_owned(), json!(format!("{n}{unit}"))))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let resources = |text: &str| -> Value {
            let (limits, requests) = text.split_once('|').unwrap_or((text, ""));
            json!({"limits": list(limits), "requests": list(requests)})
        };
        let check = |whole: &str, containers: [&str; 3], expected: &str| {
            let mut made = Vec::new();
            let mut has = Vec::new();
            for (at, text) in containers.into_iter().enumerate() {
                let (amounts, policies) = text.split_once(' ').unwrap_or((text, ""));
                let (wanted, given) = amounts.split_once('/').unwrap_or((amounts, amounts));
                let policy = |name: &str, mark: char| {
                    let restart = policies.contains(mark);
                    json!({"resourceName": name,
                        "restartPolicy": if restart { "RestartContainer" } else { "NotRequired" }})
                };
                made.push(json!({"name": format!("c{}", at + 1), "resources": resources(wanted),
                    "resizePolicy": [policy("cpu", 'C'), policy("memory", 'M')]}));
                has.push(serde_json::from_value(resources(given)).unwrap());
            }
            let mut spec = json!({ "containers": made });
            if !whole.is_empty() {
                spec["resources"] = json!({"limits": list(whole)});
            }
            let pod: Pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
            let mut all = has.into_iter();
            let found = changes(&pod, |c| Some((c.name.clone(), all.next()?)));
            let (restarts, rest): (Vec<_>, Vec<_>) = found.into_iter().partition(Change::needs_restart);
            let mut words: Vec<String> =
                restarts.iter().map(|c| format!("restart:{}", c.container.name)).collect();
            for resource in [Resource::Memory, Resource::Cpu] {
                let of = rest.iter().filter(|c| c.shrinks(resource).is_some());
                words.extend(of.map(|c| format!("{}:{}", resource.name(), c.container.name)));
            }
            assert_eq!(words.join(" "), expected, "{whole} {containers:?}");
        };
        let (small, large) = ("100,100", "200,200");
        check("", ["", small, ""], "");
        check("200,200", [small, small, small], "");
        check("", ["", "100,100/200,200", ""], "memory:c2 cpu:c2");
        check("600,600", [small, "200,200/100,100", small], "memory:c2 cpu:c2");
        check("600,600", [small, "/300,300", small], "memory:c2 cpu:c2");
        check("600,600", [small, "/300,300 C", small], "restart:c2");
        check("", ["", "100,100/200,200", ""], "memory:c2 cpu:c2");
        check("", ["", "100,100/200,100", ""], "cpu:c2");
        check("", ["", "", "200,200/200,100"], "memory:c3");
        check("100,100", ["/", "/100", "/"], "memory:c1 memory:c2 memory:c3 cpu:c1 cpu:c3");
        check("", ["", "200/200", ""], "");
        check("", ["", "/", ""], "");
        check("", [&format!("{large}/{small} C"), "", ""], "restart:c1");
        check("", ["", "", &format!("{large}/{small} M")], "restart:c3");
        check("", ["", "100,200/100,100 C", ""], "memory:c2");
        check("", ["", "", "200,100/100,100 M"], "cpu:c3");
        check("", ["", "", "200,200|100,100/200,200|100,200 M"], "restart:c3");
        check("", ["", "", "200,200|100,100/200,200|100,200"], "memory:c3");
    }

    #[test]
    fn some_resources_need_a_restart() {
        let check = |policy: Value, has: &str, wants: &str, expected: bool| {
            let mut change = change(has, wants);
            change.container.resize_policy = serde_json::from_value(policy.clone()).unwrap();
            assert_eq!(change.needs_restart(), expected, "{policy} {has} {wants}");
        };
        let policy = |name: &str, policy: &str| json!([{"resourceName": name, "restartPolicy": policy}]);
        let restart = "RestartContainer";
        check(policy("cpu", restart), "1,2", "2,2", true);
        check(policy("cpu", restart), "1,2-1", "1,2-2", true);
        check(policy("cpu", restart), "1,2", "1,3", false);
        check(policy("memory", restart), "1,2", "1,3", true);
        check(policy("memory", "NotRequired"), "1,2", "1,3", false);
        check(json!([]), "1,2", "1,3", false);
    }

    /// Upstream's 14 cases of `TestValidatePodResizeAction`: limits of the Pod now and then, the container's resources, and
    /// what both use.
    #[test]
    fn memory_in_use_is_not_taken() {
        type Amount = Option<u64>;
        let check =
            |pod: (Option<i64>, Option<i64>), has: &str, wants: &str, used: [Amount; 2], expected: bool| {
                let limit = pod.1.filter(|then| pod.0.is_none_or(|now| *then < now));
                let changes = [change(has, wants)];
                let containers: Vec<_> =
                    shrinking(&changes).into_iter().map(|(name, _, limit)| (name, limit, used[0])).collect();
                let got = in_use(limit.map(|limit| (limit, used[1])), &containers);
                assert_eq!(got.is_some(), expected, "{pod:?} {has} {wants} {used:?}: {got:?}");
            };
        let none = (None, None);
        let (bare, bound) = (",100", ",100-,100");
        check(none, "100,100", "100,200", [None, None], false);
        check(none, bare, bound, [Some(10), Some(10)], false);
        check(none, bare, bound, [Some(200), Some(200)], true);
        check(none, bare, bound, [None, Some(10)], true);
        check(none, bare, bound, [Some(10), None], false);
        check(none, bound, ",100-,200", [None, None], false);
        check(none, ",100-,200", bound, [Some(20), Some(20)], false);
        check(none, ",100-,200", bound, [Some(150), Some(150)], true);
        check((None, Some(100)), bound, bound, [Some(20), Some(20)], false);
        check((None, Some(100)), bound, bound, [Some(20), Some(200)], true);
        check((Some(100), Some(200)), bound, bound, [Some(20), Some(20)], false);
        check((Some(200), Some(100)), bound, bound, [Some(20), Some(20)], false);
        check((Some(200), Some(100)), bound, bound, [Some(50), Some(150)], true);
        check((Some(200), Some(100)), bound, bound, [Some(50), None], true);
    }

    #[test]
    fn memory_in_use_is_told_of() {
        let check =
            |pod: Option<(i64, Option<u64>)>, containers: &[(&str, i64, Option<u64>)], expected: &str| {
                assert_eq!(in_use(pod, containers).as_deref(), Some(expected));
            };
        let start = "cannot decrease memory limits: ";
        let of_pod = "attempting to set pod memory limit (100) below current usage (150)";
        let of_container = "attempting to set container \"c\" memory limit (10) below current usage (10)";
        check(Some((100, Some(150))), &[], &format!("{start}{of_pod}"));
        check(Some((100, Some(150))), &[("c", 10, Some(10))], &format!("{start}[{of_pod}, {of_container}]"));
        check(Some((100, None)), &[], &format!("{start}missing pod memory usage"));
        check(None, &[("c", 10, None)], &format!("{start}missing container \"c\" memory usage"));
    }
}
