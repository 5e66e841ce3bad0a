//! Taint eviction: Pods leave a node that has a NoExecute taint which they do not tolerate, or no longer
//! (upstream: `pkg/controller/tainteviction`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Cached, Change, Client, EventType, Informer, Key, Patch, Queue, Recorder, resource_of};
use component::Clock;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Taint, Toleration};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::metrics::{self, DELETION_SECONDS, DELETIONS};
use crate::common::counters::Counters;
use crate::common::pods::Pods;
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::{NodeView, PodView, Truth, nodes};
use objects::taints::{NO_EXECUTE, Tolerance};

/// The wait where tolerations last beyond the end of time.
const FAR: Duration = Duration::from_hours(24 * 365 * 30);

/// The decision about a Pod.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Stay,
    Go,
    GoAfter(Duration),
}

/// Decides about a Pod from its node's NoExecute taints and its tolerations.
fn decide(tolerance: Tolerance, taints: &[&Taint], tolerations: &[Toleration]) -> Verdict {
    let mut shortest: Option<i64> = None;
    for taint in taints {
        let Some(used) = tolerations.iter().find(|t| tolerance.covers(t, taint)) else { return Verdict::Go };
        if let Some(seconds) = used.toleration_seconds {
            shortest = Some(shortest.map_or(seconds, |s| s.min(seconds)));
        }
    }
    match shortest {
        None => Verdict::Stay,
        Some(s) if s <= 0 => Verdict::Go,
        Some(s) => Verdict::GoAfter(Duration::from_secs(s.unsigned_abs())),
    }
}

/// The taint eviction controller.
pub(crate) struct TaintEviction {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    tolerance: Tolerance,
    nodes: Informer<NodeView>,
    pods: Pods,
    /// The Pods that tolerate their taints for a time, with the end of that time.
    waiting: Mutex<HashMap<Key, Instant>>,
    /// The Pods to look at; the main queue has nodes.
    queue: Queue<Key>,
    counters: Arc<Counters>,
}

impl Controller for TaintEviction {
    const NAME: &'static str = "taint-eviction-controller";
    const ACCOUNT: &'static str = "node-controller";
    const QUEUE: &'static str = "noexec_taint_node";
    const WORKERS: usize = 8;
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        let counters = Arc::new(metrics::eviction());
        let reported = counters.clone();
        host.metrics().register(Self::NAME, move |page| reported.report(page));
        Self {
            counters,
            client: host.client(),
            clock: host.clock(),
            tolerance: Tolerance::of(host.config().gates),
            recorder: host.recorder("taint-eviction-controller"),
            nodes: nodes(host.factory()),
            pods: Pods::of(host.factory()),
            waiting: Mutex::default(),
            queue: host.queue("noexec_taint_pod"),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let queue = wiring.queue();
        self.nodes.handle(move |change| {
            let same = match change {
                Change::Updated { old, new } => evicting(old) == evicting(new),
                Change::Added(node) => evicting(node).is_empty(),
                Change::Deleted(_) => false,
            };
            if !same {
                queue.add(change.object().key());
            }
        });
        let c = self.clone();
        self.pods.handle(move |change| {
            let same = match change {
                Change::Updated { old, new } => old.tolerations == new.tolerations && old.node == new.node,
                _ => false,
            };
            // Only Pods of tainted nodes and waiting Pods matter.
            let pod = change.object();
            let key = pod.key();
            if !same && (c.is_tainted(&pod.node) || c.waiting.lock().contains_key(&key)) {
                c.queue.add(key);
            }
        });
        let c = self.clone();
        wiring.work(&self.queue, Self::NAME, Self::WORKERS, move |key| {
            let c = c.clone();
            async move { c.look_at_pod(key).await }
        });
    }

    /// Looks at all Pods of a node.
    async fn sync(&self, node: Key) -> Result<Next, Status> {
        for pod in self.pods.on_node(&node.name) {
            self.queue.add(pod.key());
        }
        Ok(Next::Done)
    }
}

fn evicting(node: &NodeView) -> Vec<&Taint> {
    node.taints().iter().filter(|t| t.effect == NO_EXECUTE).collect()
}

impl TaintEviction {
    fn is_tainted(&self, node: &str) -> bool {
        !node.is_empty() && self.nodes.get("", node).is_some_and(|n| !evicting(&n).is_empty())
    }

    async fn look_at_pod(&self, key: Key) -> Result<Next, Status> {
        let pod = self.pods.get_key(&key);
        let node = pod.as_ref().and_then(|p| self.nodes.get("", &p.node));
        // DIFFERENCE: upstream evicts a Pod in its time though its node is gone; the garbage collector of Pods sees to it.
        let (Some(pod), Some(node)) = (pod, node) else {
            self.cancel(&key);
            return Ok(Next::Done);
        };
        if pod.is_deleting() {
            self.waiting.lock().remove(&key);
            return Ok(Next::Done);
        }
        match decide(self.tolerance, &evicting(&node), &pod.tolerations) {
            Verdict::Stay => {
                self.cancel(&key);
                Ok(Next::Done)
            }
            Verdict::Go => {
                self.cancel(&key);
                self.evict(&key, &pod, Instant::now()).await?;
                Ok(Next::Done)
            }
            Verdict::GoAfter(term) => {
                let now = Instant::now();
                // The time runs from the first taint on, even if more taints come.
                let end = now.checked_add(term).unwrap_or_else(|| now + FAR);
                let until = *self.waiting.lock().entry(key.clone()).or_insert(end);
                if until > now {
                    return Ok(Next::After(until - now));
                }
                self.evict(&key, &pod, until).await?;
                self.waiting.lock().remove(&key);
                Ok(Next::Done)
            }
        }
    }

    fn tell(&self, key: &Key, text: String) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(key.namespace.to_string()),
            name: Some(key.name.to_string()),
            ..ObjectReference::default()
        };
        self.recorder.event_about(about, EventType::Normal, "TaintManagerEviction", text);
    }

    fn cancel(&self, key: &Key) {
        if self.waiting.lock().remove(key).is_some() {
            self.tell(key, format!("Cancelling deletion of Pod {key}"));
        }
    }

    /// Deletes a Pod whose time was over at `due`.
    async fn evict(&self, key: &Key, pod: &PodView, due: Instant) -> Result<(), Status> {
        self.tell(key, format!("Marking for deletion Pod {key}"));
        let api = self.client.resource::<PodView>(resource_of::<Pod>(), &key.namespace);
        let known =
            pod.disruption().is_some_and(|c| c.status == Truth::True && c.reason == "DeletionByTaintManager");
        if !known {
            let patch = disruption(
                pod,
                "DeletionByTaintManager",
                "Taint manager: deleting due to NoExecute taint",
                self.clock.now(),
            );
            match api.patch_status(&key.name, &Patch::Strategic(patch)).await {
                Err(e) if e.is_not_found() => return Ok(()),
                other => drop(other?),
            }
        }
        match api.delete(&key.name, None).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => {
                self.counters.add(DELETIONS, &[], 1);
                self.counters.observe(DELETION_SECONDS, &[], due.elapsed().as_secs_f64());
                Ok(())
            }
        }
    }
}

/// Makes the patch that notes in a Pod's status the reason for its deletion. The time is that since when one is noted.
pub(super) fn disruption(
    pod: &PodView,
    reason: &str,
    message: &str,
    now: jiff::Timestamp,
) -> serde_json::Value {
    let before = pod.disruption().filter(|c| c.status == Truth::True);
    let since = before.and_then(|c| c.since).unwrap_or(now);
    let mut condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(since),
    });
    if let Some(generation) = pod.generation {
        condition["observedGeneration"] = json!(generation);
    }
    json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}})
}

#[cfg(test)]
mod tests {
    use api::{FeatureGates, Gate};

    use super::*;

    /// Cases like upstream's of `TestCreatePod` and `TestGetMinTolerationTime`.
    #[test]
    fn verdicts() {
        let taint = |key: &str| Taint { key: key.into(), effect: NO_EXECUTE.into(), ..Taint::default() };
        let toleration = |key: &str, seconds: Option<i64>| Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            effect: Some(NO_EXECUTE.into()),
            toleration_seconds: seconds,
            value: None,
        };
        let check = |keys: &[&str], tolerations: &[Toleration], want: Verdict| {
            let all: Vec<Taint> = keys.iter().map(|k| taint(k)).collect();
            assert_eq!(
                decide(Tolerance::default(), &all.iter().collect::<Vec<_>>(), tolerations),
                want,
                "{keys:?} {tolerations:?}"
            );
        };
        check(&[], &[], Verdict::Stay);
        check(&["a"], &[], Verdict::Go);
        check(&["a"], &[toleration("a", None)], Verdict::Stay);
        check(&["a"], &[toleration("a", Some(1))], Verdict::GoAfter(Duration::from_secs(1)));
        check(&["a"], &[toleration("a", Some(0))], Verdict::Go);
        check(&["a"], &[toleration("a", Some(-5))], Verdict::Go);
        check(&["a", "b"], &[toleration("a", Some(100))], Verdict::Go);
        let both = [toleration("a", Some(100)), toleration("b", None)];
        check(&["a", "b"], &both, Verdict::GoAfter(Duration::from_secs(100)));
    }

    /// Upstream's `createNoExecuteTaint`.
    fn taint(n: usize) -> Taint {
        Taint {
            key: format!("testTaint{n}"),
            value: Some(format!("test{n}")),
            effect: NO_EXECUTE.into(),
            ..Taint::default()
        }
    }

    /// Upstream's `addToleration`: that of a taint, for so many seconds, or for ever.
    fn toleration(n: usize, seconds: i64) -> Toleration {
        Toleration {
            key: Some(format!("testTaint{n}")),
            value: Some(format!("test{n}")),
            effect: Some(NO_EXECUTE.into()),
            toleration_seconds: (seconds >= 0).then_some(seconds),
            operator: None,
        }
    }

    /// The Pods of upstream's `TestCreatePod`, `TestUpdatePod`, `TestCreateNode`, `TestUpdateNode`,
    /// `TestUpdateNodeWithMultipleTaints` and `TestUpdateNodeWithMultiplePods`: the taints of a node, the tolerations of a Pod
    /// with their seconds, and the verdict. The simulation has the whole cases.
    #[test]
    fn upstreams_pods() {
        let check = |taints: &[usize], tolerations: &[(usize, i64)], want: Verdict| {
            let taints: Vec<Taint> = taints.iter().map(|n| taint(*n)).collect();
            let tolerations: Vec<_> = tolerations.iter().map(|(n, s)| toleration(*n, *s)).collect();
            assert_eq!(
                decide(Tolerance::default(), &taints.iter().collect::<Vec<_>>(), &tolerations),
                want,
                "{taints:?} {tolerations:?}"
            );
        };
        let after = |seconds: u64| Verdict::GoAfter(Duration::from_secs(seconds));
        check(&[], &[], Verdict::Stay);
        check(&[1], &[], Verdict::Go);
        check(&[1], &[(1, 100)], after(100));
        check(&[1], &[(1, -1)], Verdict::Stay);
        check(&[1], &[(2, -1)], Verdict::Go);
        check(&[1, 2], &[(1, 100)], Verdict::Go);
        check(&[], &[(1, 1)], Verdict::Stay);
        check(&[1, 2], &[(1, 1), (2, 100)], after(1));
        check(&[1], &[(1, 1)], after(1));
        // A taint that is tolerated for ever, with another that is not, and without it again.
        let both = &[(1, -1), (2, 60)];
        check(&[], both, Verdict::Stay);
        check(&[1], both, Verdict::Stay);
        check(&[1, 2], both, after(60));
        check(&[1, 2], &[(1, -1)], Verdict::Go);
    }

    /// 4 of upstream's 5 cases of `TestGetMinTolerationTime` (in the other there is none, and the Pod goes): the seconds of tolerations (none: for ever), each of a taint of its
    /// own, and the wait.
    #[test]
    fn shortest_tolerations() {
        let check = |seconds: &[Option<i64>], want: Verdict| {
            let taints: Vec<Taint> = (0..seconds.len()).map(taint).collect();
            let all: Vec<_> =
                seconds.iter().enumerate().map(|(n, s)| toleration(n, s.unwrap_or(-1))).collect();
            let got = decide(Tolerance::default(), &taints.iter().collect::<Vec<_>>(), &all);
            assert_eq!(got, want, "{seconds:?}");
        };
        let one = || Verdict::GoAfter(Duration::from_secs(1));
        check(&[None], Verdict::Stay);
        check(&[Some(1), Some(2)], one());
        check(&[Some(1), None], one());
        check(&[None, Some(1)], one());
    }

    /// A Pod whose toleration compares numbers stays, for its seconds, only where the gate is on.
    #[test]
    fn tolerations_that_compare_numbers() {
        let check = |compares: bool, operator: &str, seconds: Option<i64>, want: Verdict| {
            let gates = FeatureGates::default().with(Gate::TaintTolerationComparisonOperators, compares);
            let taint = Taint { value: Some("950".to_owned()), ..taint(1) };
            let toleration = Toleration {
                operator: Some(operator.to_owned()),
                value: Some("750".to_owned()),
                toleration_seconds: seconds,
                ..toleration(1, -1)
            };
            assert_eq!(decide(Tolerance::of(gates), &[&taint], &[toleration]), want, "{compares} {operator}");
        };
        check(true, "Gt", None, Verdict::Stay);
        check(true, "Gt", Some(30), Verdict::GoAfter(Duration::from_secs(30)));
        check(true, "Lt", None, Verdict::Go);
        check(false, "Gt", None, Verdict::Go);
    }

    /// Upstream's case of `TestFilterNoExecuteTaints`.
    #[test]
    fn taints_that_evict() {
        let node: NodeView = serde_json::from_value(json!({"spec": {"taints": [
            {"key": "one", "value": "one", "effect": "NoExecute"},
            {"key": "two", "value": "two", "effect": "NoSchedule"}]}}))
        .unwrap();
        assert_eq!(evicting(&node).iter().map(|t| t.key.as_str()).collect::<Vec<_>>(), ["one"]);
    }
}
