//! Pod garbage collection: Pods that no kubelet will ever end (upstream: `pkg/controller/podgc`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Client, Factory, Informer, Patch};
use component::{Clock, Shutdown};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior};

use super::eviction::disruption;
use super::taints::{self, OUT_OF_SERVICE};
use crate::common::{deleting, pods};

const PERIOD: Duration = Duration::from_secs(20);
/// How long a node must be missing before its Pods go.
const QUARANTINE: Duration = Duration::from_secs(40);

struct Controller {
    client: Client,
    clock: Clock,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    threshold: usize,
}

/// Starts it. Beyond `threshold` ended Pods the oldest go; 0 keeps them all.
pub(crate) fn start(client: Client, clock: Clock, threshold: usize, factory: &Factory, shutdown: &Shutdown) {
    let controller =
        Controller { client, clock, nodes: factory.informer(), pods: pods::informer(factory), threshold };
    crate::when_synced(factory, shutdown, move |shutdown| {
        let stop = shutdown.clone();
        shutdown.spawn(async move {
            let _ = stop.run(controller.follow()).await;
        });
    });
}

/// What is to go in one pass.
#[derive(Debug, Default)]
struct Plan {
    /// To be ended and deleted at once.
    delete: Vec<Arc<Pod>>,
    /// Nodes that Pods name and nobody knows.
    missing: HashSet<String>,
}

fn plan(all: &[Arc<Pod>], nodes: &[Arc<Node>], threshold: usize) -> Plan {
    let known: HashMap<&str, &Arc<Node>> =
        nodes.iter().map(|n| (n.metadata.name.as_deref().unwrap_or_default(), n)).collect();
    let mut plan = Plan::default();
    let mut ended: Vec<&Arc<Pod>> = Vec::new();
    for pod in all {
        let node = pods::node_name(pod);
        if !matches!(pods::phase(pod), "Pending" | "Running" | "Unknown") {
            ended.push(pod);
        }
        let stuck = if node.is_empty() {
            deleting(&pod.metadata)
        } else if let Some(node) = known.get(node) {
            deleting(&pod.metadata) && is_out_of_service(node)
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
            let evicted = pods::phase(p) == "Failed"
                && p.status.as_ref().and_then(|s| s.reason.as_deref()) == Some("Evicted");
            (!evicted, p.metadata.creation_timestamp.as_ref().map(|t| t.0), p.metadata.name.clone())
        });
        plan.delete.extend(ended.into_iter().take(surplus).cloned());
    }
    plan
}

fn is_out_of_service(node: &Node) -> bool {
    let ready = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let ready = ready.filter(|c| c.type_ == "Ready").any(|c| c.status == "True");
    !ready && taints::of(node).iter().any(|t| t.key == OUT_OF_SERVICE)
}

impl Controller {
    async fn follow(&self) {
        let mut missing_since: HashMap<String, Instant> = HashMap::new();
        let mut tick = tokio::time::interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let all = self.pods.list();
            let plan = plan(&all, &self.nodes.list(), self.threshold);
            let now = Instant::now();
            missing_since.retain(|node, _| plan.missing.contains(node));
            for node in plan.missing {
                missing_since.entry(node).or_insert(now);
            }
            let mut gone: HashSet<&str> = HashSet::new();
            for (node, since) in &missing_since {
                // The cache may be late; the server has the last word.
                if now - *since >= QUARANTINE
                    && self.client.api::<Node>("").get(node).await.is_err_and(|e| e.is_not_found())
                {
                    gone.insert(node);
                }
            }
            let orphaned = all.iter().filter(|p| gone.contains(pods::node_name(p)));
            let message = Some(("DeletionByPodGC", "PodGC: node no longer exists"));
            let work =
                plan.delete.iter().map(|p| self.end(p, None)).chain(orphaned.map(|p| self.end(p, message)));
            for result in join_all(work.collect::<Vec<_>>()).await {
                if let Err(error) = result {
                    tracing::debug!(%error, "unable to delete a pod, will retry");
                }
            }
        }
    }

    /// Ends a Pod in its status, where nobody else will, and deletes it.
    async fn end(&self, pod: &Pod, why: Option<(&str, &str)>) -> Result<(), Status> {
        let api = self.client.api::<Pod>(pod.metadata.namespace.as_deref().unwrap_or_default());
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        if !pods::is_terminal(pod) {
            let mut patch = match why {
                Some((reason, message)) => disruption(pod, reason, message, self.clock.now()),
                None => json!({"metadata": {"uid": pod.metadata.uid}, "status": {}}),
            };
            patch["status"]["phase"] = json!("Failed");
            if let Some(generation) = pod.metadata.generation {
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

    fn pod(name: &str, node: &str, phase: &str, deleting: bool, created: i64) -> Arc<Pod> {
        let time = |s: i64| jiff::Timestamp::from_second(s).unwrap().to_string();
        let mut value = json!({
            "metadata": {"name": name, "creationTimestamp": time(created)},
            "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase},
        });
        if deleting {
            value["metadata"]["deletionTimestamp"] = json!(time(9));
        }
        Arc::new(serde_json::from_value(value).unwrap())
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
        let check =
            |pods: &[Arc<Pod>], nodes: &[Arc<Node>], threshold: usize, want: &[&str], missing: &[&str]| {
                let plan = plan(pods, nodes, threshold);
                let names: Vec<_> = plan.delete.iter().map(|p| p.metadata.name.clone().unwrap()).collect();
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
}
