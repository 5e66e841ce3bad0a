//! Preemption for a whole PodGroup: which less important Pods and groups would have to go so that it fits (upstream's
//! `framework/preemption/podgrouppreemption.go`). It is DefaultPreemption's part with the gate WorkloadAwarePreemption.
//!
//! A victim is a Pod, or all Pods of a group whose mode of disruption is that of a group: those go together or stay
//! together, and their priority is the group's.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;

use super::preemption::Allowed;
use crate::cache::Cache;
use crate::pod::PodInfo;

/// Pods that go together.
#[derive(Debug, Clone)]
pub struct Victim {
    /// The Pods; there is one at least.
    pub pods: Vec<PodInfo>,
    /// The Pod's priority, or the group's.
    pub priority: i32,
    /// When the first of them started; [`Timestamp::MAX`] if none did.
    ///
    /// DIFFERENCE: upstream looks at the group's first Pod that it comes upon.
    pub started: Timestamp,
}

/// The cluster of a simulation.
pub trait Room {
    /// Takes a victim's Pods off their nodes.
    fn take(&mut self, victim: &Victim);
    /// Puts them back.
    fn put_back(&mut self, victim: &Victim);
    /// Looks whether the group fits now.
    fn fits(&mut self) -> impl Future<Output = Fit>;
}

/// Whether a group fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// It does.
    Yes,
    /// It does not, for this reason.
    No(String),
    /// There can be no decision.
    Error(String),
}

/// The priority of a group.
pub fn priority(group: &PodGroup) -> i32 {
    group.spec.priority.unwrap_or(0)
}

/// The group of a Pod, if its Pods go together.
fn whole(pod: &PodInfo, cluster: &Cache) -> Option<Arc<PodGroup>> {
    pod.group()?;
    let group = cluster.groups().of(pod)?;
    (group.spec.disruption_mode.as_deref() == Some("PodGroup")).then_some(group)
}

/// All possible victims of a cluster (upstream's `newDomainForWorkloadPreemption`), in no particular order.
pub fn victims(cluster: &Cache) -> Vec<Victim> {
    let mut all: Vec<Victim> = Vec::new();
    let mut groups: HashMap<String, usize> = HashMap::new();
    for pod in cluster.nodes().iter().flat_map(|node| node.pods.values()) {
        let started = pod.started.unwrap_or(Timestamp::MAX);
        let alone = |priority| Victim { pods: vec![pod.clone()], priority, started };
        let Some(group) = whole(pod, cluster) else {
            all.push(alone(pod.priority()));
            continue;
        };
        let uid = group.metadata.uid.clone().unwrap_or_default();
        if let Some(victim) = groups.get(&uid).and_then(|at| all.get_mut(*at)) {
            victim.pods.push(pod.clone());
            victim.started = victim.started.min(started);
        } else {
            groups.insert(uid, all.len());
            all.push(alone(priority(&group)));
        }
    }
    all
}

/// The most important first (upstream's `moreImportantVictim`): higher priority; Pods of groups before others; of single
/// Pods the longer running; of groups the larger, then the longer running.
fn by_importance(a: &Victim, b: &Victim) -> Ordering {
    let grouped = |v: &Victim| v.pods.first().is_some_and(|p| p.group().is_some());
    let size = |v: &Victim| if grouped(v) { v.pods.len() } else { 0 };
    (b.priority.cmp(&a.priority))
        .then_with(|| grouped(b).cmp(&grouped(a)))
        .then_with(|| size(b).cmp(&size(a)))
        .then_with(|| a.started.cmp(&b.started))
}

/// The fewest victims that must go for a group of Pods with this priority, the most important first. All that was taken is
/// put back but these.
///
/// # Errors
/// If that would not help or is not allowed, in upstream's words; or there can be no decision.
pub async fn select(
    (pods, priority): (&[PodInfo], i32),
    mut victims: Vec<Victim>,
    budgets: &[Arc<PodDisruptionBudget>],
    room: &mut impl Room,
) -> Result<Vec<Victim>, Fit> {
    let never = |pod: &PodInfo| pod.spec().and_then(|s| s.preemption_policy.as_deref()) == Some("Never");
    if pods.iter().any(never) {
        return Err(Fit::No("not eligible due to preemptionPolicy=Never.".to_owned()));
    }
    victims.retain(|v| v.priority < priority);
    if victims.is_empty() {
        return Err(Fit::No("No preemption victims found for incoming preemptor".to_owned()));
    }
    for victim in &victims {
        room.take(victim);
    }
    match room.fits().await {
        Fit::Yes => {}
        no => {
            for victim in &victims {
                room.put_back(victim);
            }
            return Err(no);
        }
    }
    victims.sort_by(by_importance);
    let mut allowed = Allowed::new(budgets);
    let mut broken = |v: &Victim| v.pods.iter().any(|pod| allowed.takes(pod).any(|broken| broken));
    let (protected, free): (Vec<Victim>, Vec<Victim>) = victims.into_iter().partition(|v| broken(v));
    let mut gone = Vec::new();
    for victim in protected.into_iter().chain(free) {
        room.put_back(&victim);
        if room.fits().await != Fit::Yes {
            room.take(&victim);
            gone.push(victim);
        }
    }
    gone.sort_by(by_importance);
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use client::Change;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn pod(of: &Value) -> PodInfo {
        let name = &of["name"];
        let group = of["group"].as_str().map(|group| json!({"podGroupName": group}));
        let at = of["started"].as_i64().map(|s| Timestamp::from_second(s).unwrap().to_string());
        let labels = of["app"].as_str().map(|app| json!({ "app": app }));
        let policy = (of["never"] == true).then_some("Never");
        PodInfo::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "uid": name, "namespace": "d", "labels": labels},
                "spec": {"containers": [], "priority": of["priority"], "schedulingGroup": group,
                    "preemptionPolicy": policy},
                "status": {"startTime": at},
            }))
            .unwrap(),
        )
    }

    /// A cluster of these nodes, Pods and groups.
    fn cluster(row: &Value) -> Cache {
        let list = |name: &str| row[name].as_array().unwrap().clone();
        let mut cluster = Cache::default();
        for name in list("nodes") {
            cluster.set_node(Arc::new(serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()));
        }
        for group in list("groups") {
            let group = json!({
                "metadata": {"name": group["name"], "uid": group["name"], "namespace": "d"},
                "spec": {"disruptionMode": group["mode"], "priority": group["priority"],
                    "schedulingPolicy": {"basic": {}}},
            });
            cluster.groups().take(&Change::Added(Arc::new(serde_json::from_value(group).unwrap())));
        }
        for of in list("pods") {
            cluster.set_pod(pod(&of), of["node"].as_str().unwrap());
        }
        cluster
    }

    /// Each rule of a case offers places on its node once the Pods that block it are gone.
    struct Rules {
        rules: Vec<(u64, BTreeSet<String>)>,
        needed: u64,
        there: BTreeSet<String>,
        tries: usize,
    }

    impl Room for Rules {
        fn take(&mut self, victim: &Victim) {
            assert!(victim.pods.iter().all(|pod| self.there.remove(pod.name())), "it is gone");
        }
        fn put_back(&mut self, victim: &Victim) {
            assert!(victim.pods.iter().all(|pod| self.there.insert(pod.name().to_owned())), "it is there");
        }
        async fn fits(&mut self) -> Fit {
            self.tries += 1;
            let free = self.rules.iter().filter(|(_, blocks)| blocks.is_disjoint(&self.there));
            let places: u64 = free.map(|(capacity, _)| capacity).sum();
            if places >= self.needed { Fit::Yes } else { Fit::No("no room".to_owned()) }
        }
    }

    async fn check(row: &Value) {
        let cluster = cluster(row);
        let names = |of: &Value| -> BTreeSet<String> {
            of.as_array().into_iter().flatten().map(|n| n.as_str().unwrap().to_owned()).collect()
        };
        let members: Vec<PodInfo> = names(&row["members"])
            .iter()
            .enumerate()
            .map(|(i, name)| pod(&json!({"name": name, "never": i == 0 && row["never"] == true})))
            .collect();
        let budget = row["protected"].as_i64().map(|allowed| {
            let budget = json!({
                "metadata": {"namespace": "d"}, "spec": {"selector": {"matchLabels": {"app": "foo"}}},
                "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
            });
            Arc::new(serde_json::from_value::<PodDisruptionBudget>(budget).unwrap())
        });
        let all: BTreeSet<String> =
            row["pods"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap().to_owned()).collect();
        let rule = |r: &Value| (r["capacity"].as_u64().unwrap(), names(&r["blocking"]));
        let mut room = Rules {
            rules: row["rules"].as_array().unwrap().iter().map(rule).collect(),
            needed: members.len() as u64,
            there: all.clone(),
            tries: 0,
        };
        let priority = i32::try_from(row["priority"].as_i64().unwrap()).unwrap();
        let budgets: Vec<_> = budget.into_iter().collect();
        let found = select((&members, priority), victims(&cluster), &budgets, &mut room).await;
        if let Some(refused) = row["refused"].as_str() {
            assert_eq!(found.unwrap_err(), Fit::No(refused.to_owned()), "{row}");
            assert_eq!((room.there, room.tries), (all, 0), "{row}");
            return;
        }
        let gone: BTreeSet<String> =
            found.unwrap().iter().flat_map(|v| &v.pods).map(|pod| pod.name().to_owned()).collect();
        assert_eq!(gone, names(&row["victims"]), "{row}");
        assert_eq!(&gone | &room.there, all, "{row}");
        assert!(gone.is_disjoint(&room.there), "{row}");
    }

    /// The 23 cases of upstream's `TestPodGroupEvaluator_SelectVictimsOnDomain`.
    #[tokio::test]
    async fn upstreams_victims() {
        let rows: Vec<Value> =
            include_str!("cases/pod_group_victims.jsonl").lines().map(|l| l.parse().unwrap()).collect();
        assert_eq!(rows.len(), 23);
        for row in &rows {
            check(row).await;
        }
    }

    proptest! {
        /// In a cluster in which a group fits where there is room enough, a plain count of places says whether it can be
        /// helped, and that none of the victims could stay.
        #[test]
        fn the_fewest_go(
            sizes in vec((1..6u64, 0..4i32, any::<bool>()), 1..8), needed in 1..30u64, priority in 0..5i32,
        ) {
            let victim = |(i, (size, priority, group)): (usize, &(u64, i32, bool))| {
                let group = group.then_some("pg");
                let names = (0..*size).map(|n| json!({"name": format!("{i}-{n}"), "group": group}));
                let pods: Vec<PodInfo> = names.map(|of| pod(&of)).collect();
                Victim { pods, priority: *priority, started: Timestamp::UNIX_EPOCH }
            };
            let all: Vec<Victim> = sizes.iter().enumerate().map(victim).collect();
            let there: BTreeSet<String> =
                all.iter().flat_map(|v| &v.pods).map(|p| p.name().to_owned()).collect();
            // Each Pod that goes frees one place.
            let rules = there.iter().map(|name| (1, BTreeSet::from([name.clone()]))).collect();
            let mut room = Rules { rules, needed, there: there.clone(), tries: 0 };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let found = runtime.block_on(select((&[], priority), all.clone(), &[], &mut room));
            let lower = || all.iter().filter(|v| v.priority < priority);
            let most: u64 = lower().map(|v| v.pods.len() as u64).sum();
            if most < needed {
                prop_assert!(matches!(found, Err(Fit::No(_))));
                prop_assert_eq!(room.there, there);
                return Ok(());
            }
            let gone = found.unwrap();
            let freed: u64 = gone.iter().map(|v| v.pods.len() as u64).sum();
            prop_assert!(freed >= needed && gone.iter().all(|v| v.priority < priority));
            prop_assert_eq!(room.there.len() as u64 + freed, there.len() as u64);
            for one in &gone {
                prop_assert!(freed - (one.pods.len() as u64) < needed, "{:?} could stay", one);
            }
        }
    }

    #[tokio::test]
    async fn nothing_is_taken_if_it_does_not_help() {
        let row = json!({"nodes": ["n"], "groups": [], "pods": [{"name": "p", "node": "n", "priority": 0}]});
        let there = BTreeSet::from(["p".to_owned()]);
        let mut room = Rules { rules: Vec::new(), needed: 1, there: there.clone(), tries: 0 };
        let found = select((&[], 1), victims(&cluster(&row)), &[], &mut room).await;
        assert_eq!(found.unwrap_err(), Fit::No("no room".to_owned()));
        assert_eq!((room.there, room.tries), (there, 1));
    }

    /// The ten cases of upstream's `TestMoreImportantVictim`.
    #[test]
    fn upstreams_importance() {
        let (before, now) = (500, 1000);
        let victim = |priority: i32, group: bool, pods: usize, started: i64| {
            let group = group.then_some("pg");
            let one = pod(&json!({"name": "p", "group": group}));
            let started = Timestamp::from_second(started).unwrap();
            Victim { pods: vec![one; pods], priority, started }
        };
        for (a, b) in [
            (victim(20, false, 1, now), victim(10, false, 1, now)),
            (victim(10, true, 1, now), victim(10, false, 1, now)),
            (victim(10, false, 1, before), victim(10, false, 1, now)),
            (victim(10, true, 2, now), victim(10, true, 1, now)),
            (victim(10, true, 2, before), victim(10, true, 2, now)),
        ] {
            assert_eq!(by_importance(&a, &b), Ordering::Less, "{a:?} {b:?}");
            assert_eq!(by_importance(&b, &a), Ordering::Greater, "{a:?} {b:?}");
        }
    }

    /// The cases of upstream's `TestNewDomainForWorkloadPreemption` (5) and `TestIsPodGroupPreemptiblePod` (5).
    #[test]
    fn upstreams_domains() {
        let check = |pods: Value, groups: Value, expected: &[(&[&str], i32)]| {
            let row = json!({"nodes": ["node1", "node2"], "pods": pods, "groups": groups});
            let mut found: Vec<(Vec<String>, i32)> = victims(&cluster(&row))
                .into_iter()
                .map(|v| {
                    let mut names: Vec<String> = v.pods.iter().map(|p| p.name().to_owned()).collect();
                    names.sort();
                    (names, v.priority)
                })
                .collect();
            found.sort();
            let expected: Vec<(Vec<String>, i32)> = expected
                .iter()
                .map(|(names, priority)| (names.iter().map(|n| (*n).to_owned()).collect(), *priority))
                .collect();
            assert_eq!(found, expected, "{row}");
        };
        let of = |name: &str, node: &str, group: Option<&str>, priority: i32| json!({"name": name, "node": node, "group": group, "priority": priority});
        let group = |name: &str, mode: Option<&str>, priority: i32| json!({"name": name, "mode": mode, "priority": priority});
        check(json!([]), json!([]), &[]);
        let alone = json!([of("p1", "node1", None, 10), of("p2", "node2", None, 20)]);
        check(alone, json!([]), &[(&["p1"], 10), (&["p2"], 20)]);
        let both = json!([of("p1", "node1", Some("pg1"), 10), of("p2", "node2", Some("pg1"), 20)]);
        let whole = group("pg1", Some("PodGroup"), 50);
        check(both.clone(), json!([whole]), &[(&["p1", "p2"], 50)]);
        for groups in [json!([]), json!([group("pg1", None, 50)]), json!([group("pg1", Some("Pod"), 50)])] {
            check(both.clone(), groups, &[(&["p1"], 10), (&["p2"], 20)]);
        }
        let mixed = json!([
            of("p1", "node1", Some("pg1"), 10),
            of("p2", "node2", Some("pg1"), 10),
            of("p3", "node1", Some("pg2"), 20),
            of("p4", "node2", None, 30),
        ]);
        check(
            mixed,
            json!([whole, group("pg2", Some("Pod"), 60)]),
            &[(&["p1", "p2"], 50), (&["p3"], 20), (&["p4"], 30)],
        );
    }
}
