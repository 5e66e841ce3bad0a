//! Writes into the status of Pods: one a Pod at a time, in the order of the decisions.

use std::collections::HashMap;
use std::sync::Arc;

use client::Patch;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Input, Scheduler};
use crate::pod::PodView;

/// The longest text of an Event (upstream's `NoteLengthLimit`).
const NOTE: usize = 1024;

/// A text as an Event may have it.
pub(super) fn note(message: &str) -> String {
    if message.len() <= NOTE {
        return message.to_owned();
    }
    let end = (0..=NOTE - 4).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
    format!("{} ...", &message[..end])
}

/// The change of `status.nominatedNodeName`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Nominate {
    /// It stays.
    Keep,
    /// It is this node, or "" for none.
    Node(String),
}

/// A report that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    /// Reason and message of `PodScheduled=False`.
    pub(super) condition: Option<(&'static str, String)>,
    pub(super) nominate: Nominate,
}

impl Report {
    /// This report after an earlier one that is not written yet.
    fn after(self, earlier: Self) -> Self {
        Self {
            condition: self.condition.or(earlier.condition),
            nominate: if self.nominate == Nominate::Keep { earlier.nominate } else { self.nominate },
        }
    }

    /// The patch that makes a Pod say so; `None` if it does, or if it has a node meanwhile.
    fn patch(&self, pod: &PodView, now: Timestamp) -> Option<Value> {
        if pod.node().is_some() {
            return None;
        }
        let status = pod.whole().status.as_ref();
        let mut patch = json!({});
        if let Some((reason, message)) = &self.condition {
            let conditions = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
            let before = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False");
            let says = |c: &k8s_openapi::api::core::v1::PodCondition| {
                c.reason.as_deref() == Some(reason)
                    && c.message.as_ref() == Some(message)
                    && c.observed_generation == pod.generation
            };
            if !before.is_some_and(says) {
                let since = before.and_then(|c| c.last_transition_time.as_ref()).map_or(now, |t| t.0);
                patch["conditions"] = json!([{
                    "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
                    "lastTransitionTime": api::time::format(since).as_str(), "lastProbeTime": null,
                    "observedGeneration": pod.generation,
                }]);
            }
        }
        if let Nominate::Node(node) = &self.nominate
            && pod.nominated() != node
        {
            patch["nominatedNodeName"] = if node.is_empty() { Value::Null } else { node.as_str().into() };
        }
        let changes = patch.as_object().is_some_and(|p| !p.is_empty());
        // The uid keeps it from a Pod that has the same name and was made later.
        changes.then(|| json!({"metadata": {"uid": pod.uid()}, "status": patch}))
    }
}

/// A write that is under way.
struct Slot {
    /// Held until it is done.
    lock: Arc<Mutex<()>>,
    next: Option<Report>,
}

/// The writes that are under way, by the Pod's uid.
#[derive(Default)]
pub(super) struct Writes {
    under_way: HashMap<String, Slot>,
    /// How many others wait for one of them.
    pending: usize,
}

impl Writes {
    /// A write about the Pod is done; gives what is to be written next.
    pub(super) fn done(&mut self, uid: &str) -> Option<Report> {
        let next = self.under_way.remove(uid)?.next;
        self.pending -= usize::from(next.is_some());
        next
    }

    /// How many writes wait for others.
    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// Nothing more is written about the Pod; gives what to wait for if something is under way.
    pub(super) fn last(&mut self, uid: &str) -> Option<Arc<Mutex<()>>> {
        let slot = self.under_way.get_mut(uid)?;
        self.pending -= usize::from(slot.next.take().is_some());
        Some(slot.lock.clone())
    }
}

impl Scheduler {
    /// Writes a report, after the one that is under way.
    pub(super) fn submit(&mut self, pod: &PodView, report: Report) {
        if let Some(slot) = self.writes.under_way.get_mut(pod.uid()) {
            slot.next = Some(if let Some(earlier) = slot.next.take() {
                report.after(earlier)
            } else {
                self.writes.pending += 1;
                report
            });
            return;
        }
        let [namespace, name, uid] = [pod.namespace(), pod.name(), pod.uid()].map(str::to_owned);
        self.write(namespace, name, uid, report);
    }

    pub(super) fn write(&mut self, namespace: String, name: String, uid: String, report: Report) {
        let lock = Arc::new(Mutex::new(()));
        let Ok(held) = lock.clone().try_lock_owned() else { return };
        self.writes.under_way.insert(uid.clone(), Slot { lock, next: None });
        let (client, pods, tx, now) =
            (self.client.clone(), self.pods.clone(), self.tx.clone(), self.clock.now());
        let metrics = self.metrics.clone();
        self.aside(async move {
            let pod = pods.get(&namespace, &name).filter(|p| p.uid() == uid);
            if let Some(patch) = pod.and_then(|p| report.patch(&p, now)) {
                let start = Instant::now();
                let answer = client.api::<Pod>(&namespace).patch_status(&name, &Patch::Strategic(patch)).await;
                metrics.patched(answer.is_ok(), start.elapsed());
                match answer {
                    // Gone, or another Pod by now.
                    Err(e) if e.is_not_found() || e.is_conflict() => {}
                    Err(e) => {
                        tracing::warn!(pod = name, namespace, error = %e, "the condition PodScheduled was not written");
                    }
                    Ok(_) => {}
                }
            }
            drop(held);
            let _ = tx.send(Input::Written(namespace, name, uid));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: Value, report: &Report, expected: Option<Value>) {
        let pod =
            json!({"metadata": {"uid": "u", "generation": 2}, "spec": {"containers": []}, "status": status});
        let pod = PodView::new(serde_json::from_value(pod).unwrap());
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let expected = expected.map(|status| json!({"metadata": {"uid": "u"}, "status": status}));
        assert_eq!(report.patch(&pod, now), expected);
    }

    fn report(message: &str, nominate: Nominate) -> Report {
        Report { condition: Some(("Unschedulable", message.into())), nominate }
    }

    fn condition(message: &str, since: &str) -> Value {
        json!([{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            "lastTransitionTime": since, "lastProbeTime": null, "observedGeneration": 2
        }])
    }

    #[test]
    fn writes_what_is_new() {
        let (now, before) = ("2026-01-02T03:04:05Z", "2025-01-01T00:00:00Z");
        let node = |n: &str| Nominate::Node(n.into());
        check(json!({}), &report("m", Nominate::Keep), Some(json!({"conditions": condition("m", now)})));
        let said = json!({"conditions": condition("m", before)});
        check(said.clone(), &report("m", Nominate::Keep), None);
        check(
            said.clone(),
            &report("n", Nominate::Keep),
            Some(json!({"conditions": condition("n", before)})),
        );
        check(said.clone(), &report("m", node("")), None);
        check(said, &report("m", node("a")), Some(json!({"nominatedNodeName": "a"})));
        let waits = json!({"conditions": condition("m", before), "nominatedNodeName": "a"});
        check(waits.clone(), &report("m", Nominate::Keep), None);
        check(waits.clone(), &report("m", node("a")), None);
        check(waits.clone(), &report("m", node("")), Some(json!({"nominatedNodeName": null})));
        let only = Report { condition: None, nominate: node("b") };
        check(waits, &only, Some(json!({"nominatedNodeName": "b"})));
    }

    #[test]
    fn says_nothing_against_a_pod_that_has_a_node() {
        let pod = json!({"spec": {"nodeName": "n", "containers": []}});
        let pod = PodView::new(serde_json::from_value(pod).unwrap());
        assert_eq!(report("m", Nominate::Keep).patch(&pod, Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn later_reports_take_the_place_of_earlier_ones() {
        let node = |n: &str| Nominate::Node(n.into());
        let both = report("new", Nominate::Keep).after(report("old", node("a")));
        assert_eq!(both, report("new", node("a")));
        let clear = Report { condition: None, nominate: node("") };
        assert_eq!(clear.after(report("old", node("a"))), report("old", node("")));
    }

    #[test]
    fn notes_are_cut() {
        assert_eq!(note("short"), "short");
        let long = note(&"é".repeat(NOTE));
        assert!(long.len() <= NOTE && long.ends_with("é ..."), "{long}");
    }
}
