//! GangScheduling: the Pods of a PodGroup with a gang's policy get nodes together or not at all (upstream's
//! `plugins/gangscheduling`). It is one of the default plugins where its gate is on.

use std::sync::Arc;
use std::time::Duration;

use api::go::quote;

use crate::cache::Cache;
use crate::events::{About, Events, Happening, Pair};
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{Permission, Permit, PreEnqueue, Prospects};
use crate::framework::state::State;
use crate::framework::verdict::Rejection;
use crate::groups::{Groups, Members};
use crate::pod::PodInfo;

/// The plugin's name.
pub const NAME: &str = "GangScheduling";
/// Why a Pod waits that has a node.
pub const WAITS: &str = "waiting for minCount pods from a gang to be scheduled";

/// How long a Pod that has a node waits for the others.
const TIMEOUT: Duration = Duration::from_mins(5);

/// How many Pods of a Pod's group must have nodes; `None` if it is no gang.
fn needed(pod: &PodInfo, groups: &Groups) -> Option<Result<usize, ()>> {
    pod.group()?;
    let Some(group) = groups.of(pod) else { return Some(Err(())) };
    let gang = group.spec.scheduling_policy.gang.as_ref()?;
    Some(Ok(usize::try_from(gang.min_count).unwrap_or(0)))
}

struct Gang;

impl PreEnqueue for Gang {
    fn pre_enqueue(&self, pod: &PodInfo, prospects: &Prospects) -> Result<(), Rejection> {
        match needed(pod, &prospects.groups) {
            None => Ok(()),
            Some(Err(())) => {
                let name = quote(pod.group().unwrap_or_default());
                let why = format!("waiting for pods's pod group {name} to appear in scheduling queue");
                Err(Rejection::lasting(NAME, why))
            }
            Some(Ok(needed)) if prospects.groups.members(pod, Members::count) < needed => {
                let why = "waiting for minCount pods from a gang to appear in scheduling queue";
                Err(Rejection::lasting(NAME, why))
            }
            Some(Ok(_)) => Ok(()),
        }
    }
}

impl Permit for Gang {
    fn permit(
        &self,
        pod: &PodInfo,
        cluster: &Cache,
        _node: &str,
        _carried: &mut State,
    ) -> Result<Permission, Rejection> {
        match needed(pod, cluster.groups()) {
            None => Ok(Permission::Granted),
            Some(Err(())) => {
                let (namespace, name) = (pod.namespace(), pod.group().unwrap_or_default());
                let missing = format!("podgroup.scheduling.k8s.io {} not found", quote(name));
                let why = format!("failed to get podGroup {namespace}/{name}: {missing}");
                Err(Rejection::failure(NAME, why))
            }
            Some(Ok(needed)) => Ok(cluster.groups().members(pod, |members| {
                if members.count_placed() < needed {
                    return Permission::Wait(TIMEOUT);
                }
                Permission::GrantedWith(members.placed().cloned().collect())
            })),
        }
    }
}

/// Another Pod of the same group comes, or the group itself.
fn hint(pod: &PodInfo, what: &Happening, _cluster: &Cache) -> Result<bool, String> {
    let Some(group) = pod.group() else { return Ok(false) };
    Ok(match &what.about {
        About::Pod(Pair { new: Some(new), .. }) => {
            new.namespace() == pod.namespace() && new.group() == Some(group)
        }
        About::Group(Pair { new: Some(new), .. }) => {
            new.metadata.namespace.as_deref() == Some(pod.namespace())
                && new.metadata.name.as_deref() == Some(group)
        }
        _ => true,
    })
}

pub(super) fn plugin() -> Plugin {
    let plugin = Arc::new(Gang);
    let points = Points { pre_enqueue: Some(plugin.clone()), permit: Some(plugin), ..Points::default() };
    let events = Events::POD_ADDED | Events::UNPLACED_ADDED | Events::GROUP_ADDED;
    Plugin::new(NAME, points).lifted_by(events).hinted(hint)
}

#[cfg(test)]
mod tests {
    use client::Change;
    use serde_json::{Value, json};

    use super::*;

    fn pod(namespace: &str, uid: &str, group: &str) -> PodInfo {
        let group = (!group.is_empty()).then(|| json!({"podGroupName": group}));
        let pod = json!({
            "metadata": {"namespace": namespace, "name": uid, "uid": uid},
            "spec": {"containers": [], "schedulingGroup": group},
        });
        PodInfo::new(serde_json::from_value(pod).unwrap())
    }

    fn group(
        namespace: &str,
        name: &str,
        policy: Value,
    ) -> Change<k8s_openapi::api::scheduling::v1alpha2::PodGroup> {
        let group =
            json!({"metadata": {"namespace": namespace, "name": name}, "spec": {"schedulingPolicy": policy}});
        Change::Added(Arc::new(serde_json::from_value(group).unwrap()))
    }

    /// The cases of upstream's `Test_isSchedulableAfterPodAdded` and `Test_isSchedulableAfterPodGroupAdded`.
    #[test]
    fn upstreams_hints() {
        let after = |pod: &PodInfo, what: &Happening| hint(pod, what, &Cache::default()).unwrap();
        for (mine, theirs, expected) in [
            (("", "pg"), ("", "pg"), true),
            (("", "pg"), ("foo", "pg"), false),
            (("", "pg1"), ("", "pg2"), false),
        ] {
            let (waiting, new) = (pod(mine.0, "p", mine.1), pod(theirs.0, "q", theirs.1));
            let pair = Pair { old: None, new: Some(new.shared()) };
            let what = Happening::new(Events::UNPLACED_ADDED, About::Pod(pair));
            assert_eq!(after(&waiting, &what), expected, "{mine:?} {theirs:?}");
            let what = Groups::default().take(&group(theirs.0, theirs.1, json!({"gang": {"minCount": 1}})));
            assert_eq!((what.kinds, after(&waiting, &what)), (Events::GROUP_ADDED, expected));
            assert!(!after(&pod("", "alone", ""), &what));
        }
    }

    /// The cases of upstream's `TestGangSchedulingFlow`.
    #[test]
    fn upstreams_flow() {
        let gang = |count: u32| json!({"gang": {"minCount": count}});
        let all = || [("pg1", gang(3)), ("pg2", gang(4)), ("pg3", json!({"basic": {}}))];
        let of = |uid: &str| match uid {
            "p1" | "p2" | "p3" => pod("ns1", uid, "pg1"),
            "p4" | "p5" => pod("ns1", uid, "pg2"),
            "basic-pod" => pod("ns1", uid, "pg3"),
            _ => pod("ns1", uid, ""),
        };
        type Answer<'a> = Result<Result<&'a [&'a str], ()>, &'a str>;
        let check =
            |uid: &str, groups: &[(&str, Value)], others: &[&str], placed: &[&str], expected: Answer<'_>| {
                let cluster = Cache::default();
                for (name, policy) in groups {
                    cluster.groups().take(&group("ns1", name, policy.clone()));
                }
                for member in others.iter().chain([&uid]) {
                    cluster.groups().waits(&of(member));
                }
                let prospects = Prospects { groups: cluster.groups().clone(), ..Prospects::default() };
                if let Err(rejection) = Gang.pre_enqueue(&of(uid), &prospects) {
                    assert_eq!(Err(rejection.reasons[0].as_ref()), expected);
                    assert!(rejection.unresolvable && !rejection.failed);
                    return;
                }
                for member in placed.iter().chain([&uid]) {
                    cluster.groups().placed(&of(member));
                }
                let answer = Gang.permit(&of(uid), &cluster, "some-node", &mut State::default()).unwrap();
                let expected = match expected.unwrap() {
                    Ok([]) => Permission::Granted,
                    Ok(allowed) => {
                        Permission::GrantedWith(allowed.iter().map(|uid| Arc::from(*uid)).collect())
                    }
                    Err(()) => Permission::Wait(TIMEOUT),
                };
                assert_eq!(answer, expected, "{uid}");
            };
        check("non-gang", &all(), &[], &[], Ok(Ok(&[])));
        check("basic-pod", &all(), &[], &[], Ok(Ok(&[])));
        let others = ["p2", "p3", "p4", "p5"];
        let missing = "waiting for pods's pod group \"pg1\" to appear in scheduling queue";
        check("p1", &[], &others, &[], Err(missing));
        let few = "waiting for minCount pods from a gang to appear in scheduling queue";
        check("p1", &all(), &["p2", "p4", "p5"], &[], Err(few));
        check("p1", &all(), &others, &["p2", "p4", "p5"], Ok(Err(())));
        check("p1", &all(), &others, &others, Ok(Ok(&["p1", "p2", "p3"])));
        let gone = Gang.permit(&of("p1"), &Cache::default(), "n", &mut State::default()).unwrap_err();
        assert!(gone.failed && gone.reasons[0].starts_with("failed to get podGroup ns1/pg1: "), "{gone:?}");
    }
}
