//! Pod garbage collection: deletes Pods that no kubelet will ever end (upstream: `pkg/controller/podgc`).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Client, Informer, PartialObject, Patch, resource_of};
use component::Clock;
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::eviction::disruption;
use super::metrics::{self, FORCE_ERRORS, FORCED};
use super::taints::OUT_OF_SERVICE;
use crate::common::counters::Counters;
use crate::common::{pods, within};
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::{NodeView, PodView, nodes};

const PERIOD: Duration = Duration::from_secs(20);
/// The number of requests that are made at a time.
const AT_ONCE: usize = 16;
/// The time for which a node must be missing before its Pods go.
const QUARANTINE: Duration = Duration::from_secs(40);

/// The reason for which a Pod is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// The Pod is being deleted and never got a node.
    Unscheduled,
    /// The Pod is being deleted, and somebody said that its node is off.
    OutOfService,
    /// Too many Pods have ended.
    Terminated,
    /// The Pod's node is gone.
    Orphaned,
}

impl Why {
    /// The reason's name in metrics; upstream's.
    fn name(self) -> &'static str {
        match self {
            Self::Unscheduled => "unscheduled",
            Self::OutOfService => "out-of-service",
            Self::Terminated => "terminated",
            Self::Orphaned => "orphaned",
        }
    }
}

/// The only key of the controller: all Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AllPods;

impl fmt::Display for AllPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all pods")
    }
}

/// The controller of Pod garbage collection.
pub(crate) struct PodGc {
    client: Client,
    clock: Clock,
    nodes: Informer<NodeView>,
    pods: Informer<PodView>,
    /// The number of ended Pods beyond which the oldest go; 0 keeps them all.
    threshold: usize,
    missing: Mutex<Quarantine>,
    counters: Arc<Counters>,
}

impl Controller for PodGc {
    const NAME: &'static str = "pod-garbage-collector-controller";
    const ALIASES: &'static [&'static str] = &["podgc"];
    const ACCOUNT: &'static str = "pod-garbage-collector";
    const QUEUE: &'static str = "orphaned_pods_nodes";
    type Key = AllPods;

    fn new(host: &Host<Self::Key>) -> Self {
        let counters = Arc::new(metrics::podgc());
        let reported = counters.clone();
        host.metrics().register(Self::NAME, move |page| reported.report(page));
        Self {
            counters,
            client: host.client(),
            clock: host.clock(),
            nodes: nodes(host.factory()),
            pods: pods::informer(host.factory()),
            threshold: host.config().terminated_pods,
            missing: Mutex::default(),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<AllPods>) {
        wiring.queue().add(AllPods);
    }

    async fn sync(&self, _: AllPods) -> Result<Next, Status> {
        self.pass().await;
        Ok(Next::After(PERIOD))
    }
}

/// The deletions and open questions of one pass.
#[derive(Debug, Default)]
struct Plan {
    /// The Pods to be ended and deleted at once.
    delete: Vec<(Arc<PodView>, Why)>,
    /// The nodes that Pods name and that are not cached.
    missing: HashSet<String>,
}

/// The nodes that Pods name and that are missing, with the times since when.
#[derive(Debug, Default)]
struct Quarantine(HashMap<String, Instant>);

impl Quarantine {
    /// Notes the nodes that are missing now; returns the ones that have been for long enough.
    fn over(&mut self, missing: HashSet<String>, now: Instant) -> Vec<String> {
        self.0.retain(|node, _| missing.contains(node));
        for node in missing {
            self.0.entry(node).or_insert(now);
        }
        let long = self.0.iter().filter(|(_, since)| now - **since >= QUARANTINE);
        long.map(|(node, _)| node.clone()).collect()
    }
}

/// Makes the patch by which a Pod ends in its status; `None` if it has ended.
fn ending(pod: &PodView, why: Why, now: Timestamp) -> Option<Value> {
    if pod.is_terminal() {
        return None;
    }
    let mut patch = match why {
        Why::Orphaned => disruption(pod, "DeletionByPodGC", "PodGC: node no longer exists", now),
        _ => json!({"metadata": {"uid": pod.uid()}, "status": {}}),
    };
    patch["status"]["phase"] = json!("Failed");
    if let Some(generation) = pod.generation {
        patch["status"]["observedGeneration"] = json!(generation);
    }
    Some(patch)
}

fn plan(all: &[Arc<PodView>], nodes: &[Arc<NodeView>], threshold: usize) -> Plan {
    let known: HashMap<&str, &Arc<NodeView>> =
        nodes.iter().map(|n| (n.metadata.name.as_deref().unwrap_or_default(), n)).collect();
    let mut plan = Plan::default();
    let mut ended: Vec<&Arc<PodView>> = Vec::new();
    for pod in all {
        let node = pod.node.as_str();
        if !matches!(pod.phase.as_str(), "Pending" | "Running" | "Unknown") {
            ended.push(pod);
        }
        let why = if node.is_empty() {
            pod.is_deleting().then_some(Why::Unscheduled)
        } else if let Some(node) = known.get(node) {
            (pod.is_deleting() && is_out_of_service(node)).then_some(Why::OutOfService)
        } else {
            plan.missing.insert(node.to_owned());
            None
        };
        plan.delete.extend(why.map(|why| (pod.clone(), why)));
    }
    let surplus = ended.len().saturating_sub(threshold);
    if threshold > 0 && surplus > 0 {
        ended.sort_by_cached_key(|p| {
            let evicted = p.phase == "Failed" && p.evicted;
            (!evicted, p.created, p.meta.name.clone())
        });
        plan.delete.extend(ended.into_iter().take(surplus).map(|pod| (pod.clone(), Why::Terminated)));
    }
    plan
}

fn is_out_of_service(node: &NodeView) -> bool {
    let ready = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let ready = ready.filter(|c| c.type_ == "Ready").any(|c| c.status == "True");
    !ready && node.taints().iter().any(|t| t.key == OUT_OF_SERVICE)
}

impl PodGc {
    async fn pass(&self) {
        let all = self.pods.list();
        let plan = plan(&all, &self.nodes.list(), self.threshold);
        let asked = self.missing.lock().over(plan.missing, self.clock.monotonic());
        let answers = stream::iter(asked).map(|node| self.is_gone(node).boxed());
        let gone: HashSet<String> =
            answers.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.into_iter().flatten().collect();
        let mut ends = plan.delete;
        let orphaned = all.into_iter().filter(|p| gone.contains(p.node.as_str()));
        ends.extend(orphaned.map(|p| (p, Why::Orphaned)));
        let ends = stream::iter(ends).map(|(pod, why)| self.try_end(pod, why).boxed());
        ends.buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    async fn try_end(&self, pod: Arc<PodView>, why: Why) {
        let pod = &*pod;
        let labels = [pod.namespace(), why.name()];
        self.counters.add(FORCED, &labels, 1);
        match AssertUnwindSafe(within(self.end(pod, why))).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                self.counters.add(FORCE_ERRORS, &labels, 1);
                tracing::debug!(%error, "unable to delete a pod, will retry");
            }
            Err(_) => {
                self.counters.add(FORCE_ERRORS, &labels, 1);
                tracing::error!(pod = %client::Cached::key(pod), "the end of a pod panicked, will retry");
            }
        }
    }

    /// Returns the node's name if the server has no such node: the cache may be late.
    async fn is_gone(&self, node: String) -> Option<String> {
        let api = self.client.resource::<PartialObject>(resource_of::<Node>(), "");
        within(api.get(&node)).await.is_err_and(|e| e.is_not_found()).then_some(node)
    }

    /// Ends a Pod in its status, unless another component will, and deletes it.
    async fn end(&self, pod: &PodView, why: Why) -> Result<(), Status> {
        let api = self.client.resource::<PodView>(resource_of::<Pod>(), pod.namespace());
        let name = pod.name();
        if let Some(patch) = ending(pod, why, self.clock.now()) {
            match api.patch_status(name, &Patch::Strategic(patch)).await {
                Err(e) if e.is_not_found() => return Ok(()),
                other => drop(other?),
            }
        }
        let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        match api.delete(name, Some(&now)).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tests::view;

    fn pod(name: &str, node: &str, phase: &str, deleting: bool, created: i64) -> Arc<PodView> {
        let time = |s: i64| jiff::Timestamp::from_second(s).unwrap().to_string();
        let mut value = json!({
            "metadata": {"name": name, "creationTimestamp": time(created)},
            "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase},
        });
        if deleting {
            value["metadata"]["deletionTimestamp"] = json!(time(9));
        }
        Arc::new(view(&value))
    }

    fn node(name: &str, ready: &str, taint: Option<&str>) -> Arc<NodeView> {
        let taints: Vec<_> = taint.iter().map(|k| json!({"key": k, "effect": "NoExecute"})).collect();
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name}, "spec": {"taints": taints},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn what_goes() {
        let check = |pods: &[Arc<PodView>],
                     nodes: &[Arc<NodeView>],
                     threshold: usize,
                     want: &[&str],
                     missing: &[&str]| {
            let plan = plan(pods, nodes, threshold);
            let names: Vec<_> = plan.delete.iter().map(|(p, _)| p.name().to_owned()).collect();
            assert_eq!(names, want);
            assert_eq!(plan.missing, missing.iter().map(|m| (*m).to_owned()).collect());
        };
        check(&[pod("a", "", "Pending", true, 0), pod("b", "", "Pending", false, 0)], &[], 0, &["a"], &[]);
        check(
            &[pod("a", "n", "Running", false, 0), pod("b", "x", "Running", false, 0)],
            &[node("n", "True", None)],
            0,
            &[],
            &["x"],
        );
        check(
            &[pod("a", "n", "Running", true, 0)],
            &[node("n", "Unknown", Some(OUT_OF_SERVICE))],
            0,
            &["a"],
            &[],
        );
        check(&[pod("a", "n", "Running", true, 0)], &[node("n", "True", Some(OUT_OF_SERVICE))], 0, &[], &[]);
        let ended = [
            pod("a", "n", "Failed", false, 3),
            pod("b", "n", "Succeeded", false, 1),
            pod("c", "n", "Running", false, 0),
        ];
        check(&ended, &[node("n", "True", None)], 1, &["b"], &[]);
        check(&ended, &[node("n", "True", None)], 2, &[], &[]);
        check(&ended, &[node("n", "True", None)], 0, &[], &[]);
    }
    /// The names of the Pods that go, without the nodes that are missing.
    fn goes(pods: &[Arc<PodView>], nodes: &[Arc<NodeView>], threshold: usize) -> Vec<String> {
        let plan = plan(pods, nodes, threshold);
        let mut names: Vec<String> = plan.delete.iter().map(|(p, _)| p.name().to_owned()).collect();
        names.sort();
        names
    }

    /// Upstream's 8 cases of `TestGCTerminated`; the Pods are as old as their place in the list says.
    #[test]
    fn ended_ones() {
        let check = |pods: &[(&str, &str, &str)], threshold: usize, want: &[&str]| {
            let made = pods.iter().zip(1..).map(|((name, phase, reason), hour)| {
                let created = jiff::Timestamp::from_second(hour * 3600).unwrap().to_string();
                Arc::new(view(&json!({"metadata": {"name": name, "creationTimestamp": created},
                    "spec": {"nodeName": "node", "containers": []},
                    "status": {"phase": phase, "reason": reason}})))
            });
            let made: Vec<_> = made.collect();
            assert_eq!(goes(&made, &[node("node", "True", None)], threshold), want, "{pods:?} {threshold}");
        };
        let (a, b) = (("a", "Failed", ""), ("b", "Succeeded", ""));
        let (c, running) = (("c", "Failed", ""), ("a", "Running", ""));
        check(&[a, b, c], 1, &["a", "b"]);
        check(&[a, b], 0, &[]);
        check(&[running, b, c], 1, &["b"]);
        check(&[a, b], 1, &["a"]);
        check(&[a, b], 5, &[]);
        let evicted = ("c", "Failed", "Evicted");
        check(&[a, b, evicted], 1, &["a", "c"]);
        check(&[running, b, evicted], 1, &["c"]);
    }

    /// Upstream's 2 cases of `TestGCUnscheduledTerminating` and 3 of `TestGCTerminating`.
    #[test]
    fn terminating_ones() {
        let check = |pods: &[(&str, &str, bool, &str)], nodes: &[Arc<NodeView>], want: &[&str]| {
            let made = pods.iter().map(|(name, phase, deleting, node)| pod(name, node, phase, *deleting, 0));
            assert_eq!(goes(&made.collect::<Vec<_>>(), nodes, 0), want, "{pods:?}");
        };
        let all = |deleting: bool, node: &'static str| {
            [
                ("a", "Failed", deleting, node),
                ("b", "Succeeded", deleting, node),
                ("c", "Running", deleting, node),
            ]
        };
        check(&all(true, ""), &[], &["a", "b", "c"]);
        check(
            &[("a", "Failed", false, ""), ("b", "Succeeded", false, "node"), ("c", "Running", true, "node")],
            &[],
            &[],
        );
        let silent = [node("worker-0", "False", None), node("worker-1", "False", None)];
        check(&[("a", "", true, "worker-0"), ("b", "", true, "worker-1")], &silent, &[]);
        let off = |name: &str, ready: &str, effect: Option<&str>| {
            let taints: Vec<_> = effect
                .iter()
                .map(|e| json!({"key": OUT_OF_SERVICE, "value": "any-value", "effect": e}))
                .collect();
            let value = json!({"metadata": {"name": name}, "spec": {"taints": taints},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}});
            Arc::new(serde_json::from_value::<NodeView>(value).unwrap())
        };
        let nodes = [
            off("worker-0", "False", Some("NoExecute")),
            off("worker-1", "False", None),
            off("worker-2", "True", None),
            off("worker-3", "False", Some("NoSchedule")),
            off("worker-4", "False", Some("PreferNoSchedule")),
        ];
        let on = |node: &'static str| {
            [
                ("plain", "", false, node),
                (node, "", true, node),
                ("pending", "Pending", false, node),
                ("running", "Running", false, node),
                ("unknown", "Unknown", false, node),
            ]
        };
        let pods: Vec<_> =
            ["worker-0", "worker-1", "worker-2", "worker-3", "worker-4"].into_iter().flat_map(on).collect();
        check(&pods, &nodes, &["worker-0", "worker-3", "worker-4"]);
        check(&all(true, "worker-0"), &nodes, &["a", "b", "c"]);
    }

    /// Which nodes are cached, and which the server has: before the quarantine, and after it.
    #[derive(Debug, Default, Clone, Copy)]
    struct Nodes<'a> {
        cached: [&'a [&'a str]; 2],
        /// Only after it: nobody is asked before.
        stored: &'a [&'a str],
    }

    /// Upstream's 11 cases of `TestGCOrphaned`: nodes, Pods with their nodes and phases, the time between two looks in units
    /// of the quarantine's half, the Pods that go, and those that are ended before.
    #[test]
    fn orphaned_ones() {
        let check =
            |nodes: Nodes<'_>, pods: &[(&str, &str, &str)], halves: u32, gone: &[&str], ended: &[&str]| {
                let pods: Vec<_> =
                    pods.iter().map(|(name, n, phase)| pod(name, n, phase, false, 0)).collect();
                let cached =
                    nodes.cached.map(|all| all.iter().map(|n| node(n, "True", None)).collect::<Vec<_>>());
                let (mut quarantine, start) = (Quarantine::default(), Instant::now());
                let first = plan(&pods, &cached[0], 0);
                assert!(first.delete.is_empty() && quarantine.over(first.missing, start).is_empty());
                let second = plan(&pods, &cached[1], 0);
                assert!(second.delete.is_empty());
                let mut asked = quarantine.over(second.missing, start + QUARANTINE / 2 * halves);
                asked.retain(|node| !nodes.stored.contains(&node.as_str()));
                let goes: Vec<_> = pods.iter().filter(|p| asked.iter().any(|n| *n == *p.node)).collect();
                assert_eq!(goes.iter().map(|p| p.name()).collect::<Vec<_>>(), gone, "{nodes:?} {pods:?}");
                let ends = goes.iter().filter(|p| ending(p, Why::Orphaned, Timestamp::UNIX_EPOCH).is_some());
                assert_eq!(ends.map(|p| p.name()).collect::<Vec<_>>(), ended, "{nodes:?} {pods:?}");
            };
        let none = Nodes::default();
        let both: &[&str] = &["existing1", "existing2"];
        let three =
            [("a", "existing1", "Running"), ("b", "existing2", "Failed"), ("c", "existing2", "Succeeded")];
        check(Nodes { cached: [both, both], ..none }, &three, 4, &[], &[]);
        check(Nodes { stored: both, ..none }, &three, 4, &[], &[]);
        let of = |name, phase| (name, "deleted", phase);
        let (a, b, c) = (of("a", "Failed"), of("b", "Succeeded"), of("c", "Running"));
        check(none, &[a, b], 4, &["a", "b"], &[]);
        check(none, &[a, b, c], 4, &["a", "b", "c"], &["c"]);
        check(none, &[a], 1, &[], &[]);
        let existing = Nodes { cached: [&["existing"], &["existing"]], ..none };
        check(existing, &[of("a", "Running")], 4, &["a"], &["a"]);
        let some = [a, ("b", "existing", "Failed"), of("c", "Succeeded"), of("d", "Running")];
        check(existing, &some, 4, &["a", "c", "d"], &["d"]);
        let one: &[&str] = &["node"];
        check(Nodes { stored: one, ..none }, &[("a", "node", "Running")], 4, &[], &[]);
        check(Nodes { cached: [&[], one], ..none }, &[("a", "node", "Failed")], 4, &[], &[]);
        check(none, &[("a", "node", "Failed")], 4, &["a"], &[]);
        check(Nodes { cached: [one, &[]], ..none }, &[("a", "node", "Succeeded")], 4, &[], &[]);
    }

    /// Upstream's case of `TestGCInspectingPatchedPodBeforeDeletion`, and Pods that are ended for other reasons, or whose
    /// disruption was announced before. The Pods of its other tests that are patched are those that have not ended.
    #[test]
    fn ends() {
        let now = "2026-01-01T00:00:00Z";
        let check = |phase: &str, said: Option<(&str, &str)>, why: Why, want: Option<Value>| {
            let mut conditions = vec![json!({"type": "Ready", "status": "True"})];
            conditions.extend(said.map(|(status, since)| {
                json!({"type": "DisruptionTarget", "status": status, "reason": "Another", "lastTransitionTime": since})
            }));
            let pod = view(&json!({"metadata": {"name": "testPod", "namespace": "default", "uid": "u"},
                "spec": {"nodeName": "deletedNode"}, "status": {"phase": phase, "conditions": conditions}}));
            assert_eq!(ending(&pod, why, now.parse().unwrap()), want, "{phase} {said:?} {why:?}");
        };
        let orphaned = |since: &str| {
            let told = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists", "lastTransitionTime": since});
            Some(json!({"metadata": {"uid": "u"}, "status": {"phase": "Failed", "conditions": [told]}}))
        };
        let plain = || Some(json!({"metadata": {"uid": "u"}, "status": {"phase": "Failed"}}));
        let before = "2025-01-01T00:00:00Z";
        check("Running", None, Why::Orphaned, orphaned(now));
        // The time is that of the change of the status, whatever the reason is.
        check("Running", Some(("True", before)), Why::Orphaned, orphaned(before));
        check("Running", Some(("False", before)), Why::Orphaned, orphaned(now));
        check("", None, Why::Unscheduled, plain());
        check("Running", None, Why::OutOfService, plain());
        check("Failed", None, Why::Orphaned, None);
        check("Succeeded", None, Why::OutOfService, None);
    }
}
