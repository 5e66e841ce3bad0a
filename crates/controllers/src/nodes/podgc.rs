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
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::eviction::disruption;
use super::taints::{self, OUT_OF_SERVICE};
use crate::common::{pods, within};
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::PodView;

const PERIOD: Duration = Duration::from_secs(20);
/// The number of requests that are made at a time.
const AT_ONCE: usize = 16;
/// The time for which a node must be missing before its Pods go.
const QUARANTINE: Duration = Duration::from_secs(40);

/// The reason for which a Pod is ended.
#[derive(Debug, Clone, Copy)]
enum Why {
    /// No other component will end the Pod, or too many Pods have ended.
    Left,
    /// The Pod's node is gone.
    Orphaned,
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
    nodes: Informer<Node>,
    pods: Informer<PodView>,
    /// The number of ended Pods beyond which the oldest go; 0 keeps them all.
    threshold: usize,
    /// The times since which nodes that Pods name are missing.
    missing: Mutex<HashMap<String, Instant>>,
}

impl Controller for PodGc {
    const NAME: &'static str = "pod-garbage-collector-controller";
    const ALIASES: &'static [&'static str] = &["podgc"];
    const ACCOUNT: &'static str = "pod-garbage-collector";
    const QUEUE: &'static str = "orphaned_pods_nodes";
    type Key = AllPods;

    fn new(host: &Host<Self::Key>) -> Self {
        Self {
            client: host.client(),
            clock: host.clock(),
            nodes: host.informer(),
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
    delete: Vec<Arc<PodView>>,
    /// The nodes that Pods name and that are not cached.
    missing: HashSet<String>,
}

fn plan(all: &[Arc<PodView>], nodes: &[Arc<Node>], threshold: usize) -> Plan {
    let known: HashMap<&str, &Arc<Node>> =
        nodes.iter().map(|n| (n.metadata.name.as_deref().unwrap_or_default(), n)).collect();
    let mut plan = Plan::default();
    let mut ended: Vec<&Arc<PodView>> = Vec::new();
    for pod in all {
        let node = pod.node.as_str();
        if !matches!(pod.phase.as_str(), "Pending" | "Running" | "Unknown") {
            ended.push(pod);
        }
        let stuck = if node.is_empty() {
            pod.is_deleting()
        } else if let Some(node) = known.get(node) {
            pod.is_deleting() && is_out_of_service(node)
        } else {
            plan.missing.insert(node.to_owned());
            false
        };
        if stuck {
            plan.delete.push(pod.clone());
        }
    }
    let surplus = ended.len().saturating_sub(threshold);
    if threshold > 0 && surplus > 0 {
        ended.sort_by_cached_key(|p| {
            let evicted = p.phase == "Failed" && p.evicted;
            (!evicted, p.created, p.meta.name.clone())
        });
        plan.delete.extend(ended.into_iter().take(surplus).cloned());
    }
    plan
}

fn is_out_of_service(node: &Node) -> bool {
    let ready = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let ready = ready.filter(|c| c.type_ == "Ready").any(|c| c.status == "True");
    !ready && taints::of_node(node).iter().any(|t| t.key == OUT_OF_SERVICE)
}

impl PodGc {
    async fn pass(&self) {
        let all = self.pods.list();
        let plan = plan(&all, &self.nodes.list(), self.threshold);
        let asked = self.missing_for_long(plan.missing);
        let answers = stream::iter(asked).map(|node| self.is_gone(node).boxed());
        let gone: HashSet<String> =
            answers.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.into_iter().flatten().collect();
        let mut ends: Vec<(Arc<PodView>, Why)> = plan.delete.into_iter().map(|p| (p, Why::Left)).collect();
        let orphaned = all.into_iter().filter(|p| gone.contains(p.node.as_str()));
        ends.extend(orphaned.map(|p| (p, Why::Orphaned)));
        let ends = stream::iter(ends).map(|(pod, why)| self.try_end(pod, why).boxed());
        ends.buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    /// Notes the nodes that are missing now; returns the ones that have been for long enough.
    fn missing_for_long(&self, missing: HashSet<String>) -> Vec<String> {
        let now = self.clock.monotonic();
        let mut since = self.missing.lock();
        since.retain(|node, _| missing.contains(node));
        for node in missing {
            since.entry(node).or_insert(now);
        }
        let long = since.iter().filter(|(_, since)| now - **since >= QUARANTINE);
        long.map(|(node, _)| node.clone()).collect()
    }

    async fn try_end(&self, pod: Arc<PodView>, why: Why) {
        let pod = &*pod;
        match AssertUnwindSafe(within(self.end(pod, why))).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "unable to delete a pod, will retry"),
            Err(_) => {
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
        if !pod.is_terminal() {
            let mut patch = match why {
                Why::Orphaned => {
                    let message = "PodGC: node no longer exists";
                    disruption(pod, "DeletionByPodGC", message, self.clock.now())
                }
                Why::Left => json!({"metadata": {"uid": pod.uid()}, "status": {}}),
            };
            patch["status"]["phase"] = json!("Failed");
            if let Some(generation) = pod.generation {
                patch["status"]["observedGeneration"] = json!(generation);
            }
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

    fn node(name: &str, ready: &str, taint: Option<&str>) -> Arc<Node> {
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
                     nodes: &[Arc<Node>],
                     threshold: usize,
                     want: &[&str],
                     missing: &[&str]| {
            let plan = plan(pods, nodes, threshold);
            let names: Vec<_> = plan.delete.iter().map(|p| p.name().to_owned()).collect();
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

    /// One node is missing, the requests about one Pod are never answered, and the time of day is set: the other Pods
    /// go after their time, and not before.
    #[tokio::test(start_paused = true)]
    async fn what_is_orphaned_goes_in_time() {
        use crate::fake::{Cluster, Fault};
        for hours in [0, 1, -1] {
            let cluster = Cluster::new();
            let mut shared = cluster.shared();
            shared.config.terminated_pods = 0;
            cluster.run_with::<PodGc>(&shared);
            for i in 0..40 {
                let pod = json!({
                    "metadata": {"name": format!("p{i}"), "namespace": "default"},
                    "spec": {"nodeName": "gone", "containers": []}, "status": {"phase": "Running"},
                });
                cluster.fake.put::<Pod>(&serde_json::from_value(pod).unwrap());
            }
            cluster.fake.fail(|call| (call.name == "p7").then_some(Fault::Hang));
            cluster.follow().await;
            tokio::time::sleep(Duration::from_secs(30)).await;
            cluster.clock.step(jiff::SignedDuration::from_hours(hours));
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(cluster.fake.list::<Pod>().len(), 40, "{hours}");
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_eq!(cluster.fake.list::<Pod>().len(), 1, "{hours}");
            cluster.fake.fail(|_| None);
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert_eq!(cluster.fake.list::<Pod>().len(), 0, "{hours}");
        }
    }
}
