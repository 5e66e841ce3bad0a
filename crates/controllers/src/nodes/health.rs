//! The health of a node, by its signs of life: pure.

use std::time::Duration;

use crate::views::NodeView;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

/// The time of a look, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// The monotonic clock, by which silence is measured.
    pub(super) monotonic: Instant,
    /// The time of day, which is written into conditions.
    pub(super) day: Timestamp,
}

/// The facts about a node that are kept between two looks. Only the controller's own monotonic clock counts: a
/// heartbeat or a renewal that differs from the last one is a sign of life, whatever time it shows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Health {
    /// Whether the node has a Ready condition.
    posted: bool,
    /// The heartbeat of that condition.
    heartbeat: Option<Timestamp>,
    /// The renewal of the Lease.
    renewed: Option<Timestamp>,
    /// The time of the last sign of life, or of the first look at a node that never gave one.
    pub(super) alive: Instant,
    /// The age of the node at the first look, if it never gave a sign of life.
    before: Duration,
}

impl Health {
    /// Counts this time as a sign of life.
    pub(super) fn revive(&mut self, now: Now) {
        self.alive = now.monotonic;
        self.before = Duration::ZERO;
    }
}

/// The times for which a node may be silent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grace {
    /// The time for a node that has posted its status.
    pub(super) running: Duration,
    /// The time for a node that has not yet posted its status.
    pub(super) starting: Duration,
}

fn ready(node: &NodeView) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == "Ready")
}

/// The status of a node's Ready condition; "" for none.
pub(super) fn readiness(node: &NodeView) -> &str {
    ready(node).map_or("", |c| &c.status)
}

/// Compares a node's state with the last look, and returns its health.
pub(super) fn look(before: Option<&Health>, node: &NodeView, renewed: Option<Timestamp>, now: Now) -> Health {
    let ready = ready(node);
    let posted = ready.is_some();
    let heartbeat = ready.and_then(|c| c.last_heartbeat_time.as_ref()).map(|t| t.0);
    let (alive, none) = (now.monotonic, Duration::ZERO);
    let mut health = match before {
        Some(b) if (b.posted, b.heartbeat) == (posted, heartbeat) => b.clone(),
        None if !posted => {
            let created = node.metadata.creation_timestamp.as_ref().map_or(now.day, |t| t.0);
            let before = Duration::try_from(now.day.duration_since(created)).unwrap_or_default();
            Health { posted, heartbeat, renewed: None, alive, before }
        }
        _ => Health { posted, heartbeat, renewed: before.and_then(|b| b.renewed), alive, before: none },
    };
    // DIFFERENCE: upstream waits for a later time, and takes a node whose clock was set back for a silent one.
    if renewed.is_some() && renewed != health.renewed {
        health.renewed = renewed;
        health.revive(now);
    }
    health
}

/// Whether a node has been silent for too long, and does not say so already.
pub(super) fn is_silent(node: &NodeView, health: &Health, grace: Grace, now: Now) -> bool {
    let allowed = if ready(node).is_some() { grace.running } else { grace.starting };
    let silent = health.before.saturating_add(now.monotonic.saturating_duration_since(health.alive));
    silent > allowed && readiness(node) != "Unknown"
}

/// Makes the conditions of a node whose state is unknown.
pub(super) fn unknown(node: &NodeView, day: Timestamp) -> Vec<NodeCondition> {
    let mut conditions = node.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
    // NetworkUnavailable is the control plane's own condition.
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        match conditions.iter_mut().find(|c| c.type_ == kind) {
            None => conditions.push(NodeCondition {
                type_: kind.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(Time(day)),
            }),
            Some(c) if c.status != "Unknown" => {
                "Unknown".clone_into(&mut c.status);
                c.reason = Some("NodeStatusUnknown".to_owned());
                c.message = Some("Kubelet stopped posting node status.".to_owned());
                c.last_transition_time = Some(Time(day));
            }
            Some(_) => {}
        }
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const GRACE: Grace = Grace { running: Duration::from_secs(50), starting: Duration::from_mins(1) };

    fn at(s: i64) -> Timestamp {
        Timestamp::from_second(s).unwrap()
    }

    fn node(ready: Option<(&str, i64)>) -> NodeView {
        let conditions: Vec<_> = ready
            .iter()
            .map(|(s, t)| json!({"type": "Ready", "status": s, "lastHeartbeatTime": at(*t).to_string()}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "n", "creationTimestamp": at(0).to_string()},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    /// Returns a time so many seconds after `start`, by the monotonic clock; the time of day is any.
    fn later(start: Instant, seconds: u64, day: i64) -> Now {
        Now { monotonic: start + Duration::from_secs(seconds), day: at(day) }
    }

    #[test]
    fn signs_of_life() {
        let start = Instant::now();
        let now = |s: i64| later(start, u64::try_from(s).unwrap(), 5000 - s);
        let alive = |health: &Health| health.alive.duration_since(start).as_secs();
        // A node that is seen first long after its last heartbeat has its grace from then on.
        let first = look(None, &node(Some(("True", 5))), None, now(1000));
        assert_eq!((alive(&first), first.before), (1000, Duration::ZERO));
        let same = look(Some(&first), &node(Some(("True", 5))), None, now(1030));
        assert_eq!(alive(&same), 1000);
        assert_eq!(alive(&look(Some(&same), &node(Some(("True", 6))), None, now(1031))), 1031);
        let leased = look(Some(&same), &node(Some(("True", 5))), Some(at(3000)), now(1032));
        assert_eq!(alive(&leased), 1032);
        let quiet = look(Some(&leased), &node(Some(("True", 5))), Some(at(3000)), now(1050));
        assert_eq!(alive(&quiet), 1032);
        let set_back = look(Some(&quiet), &node(Some(("True", 5))), Some(at(3)), now(1051));
        assert_eq!(alive(&set_back), 1051, "its clock was set back");
        let mute = look(None, &node(None), None, later(start, 1000, 70));
        assert_eq!((alive(&mute), mute.before.as_secs()), (1000, 70), "never posted: since it was made");
    }

    #[test]
    fn silence() {
        let check = |ready: Option<(&str, i64)>, passed: u64, want: Option<&str>| {
            let start = Instant::now();
            let (node, before) = (node(ready), Duration::ZERO);
            let health = Health { posted: false, heartbeat: None, renewed: None, alive: start, before };
            for day in [0, 3600, 7200] {
                let silent = is_silent(&node, &health, GRACE, later(start, passed, day));
                assert_eq!(silent, want.is_some(), "{ready:?} {passed} {day}");
                if let Some(reason) = want {
                    let c = unknown(&node, at(day));
                    assert_eq!((c.len(), c[0].reason.as_deref()), (4, Some(reason)));
                    assert!(c.iter().all(|c| c.status == "Unknown"));
                    assert_eq!(c[0].last_transition_time, Some(Time(at(day))));
                }
            }
        };
        check(Some(("True", 0)), 50, None);
        check(Some(("True", 0)), 51, Some("NodeStatusUnknown"));
        check(Some(("False", 0)), 51, Some("NodeStatusUnknown"));
        check(Some(("Unknown", 0)), 500, None);
        check(None, 60, None);
        check(None, 61, Some("NodeStatusNeverUpdated"));
    }

    /// Upstream's cases of `TestMonitorNodeHealthUpdateStatus` and `TestMonitorNodeHealthUpdateNodeAndPodStatusWithLease`:
    /// whether the node is old, whether it has told its status, and whether it has a Lease at the first look; whether
    /// status and Lease are new an hour later; and whether the node is silent at each of the two looks.
    /// Whether Pods are marked, too, is left out: that is a write.
    #[test]
    fn upstreams_looks() {
        let start = Instant::now();
        let (made, first, hour) = (at(0), 100_000_000, 3600);
        let node = |old: bool, told: Option<i64>| {
            let created = if old { made } else { at(first) };
            let conditions: Vec<_> = told
                .iter()
                .map(|t| {
                    json!({"type": "Ready", "status": "True", "lastHeartbeatTime": at(*t).to_string(),
                    "lastTransitionTime": at(first).to_string()})
                })
                .collect();
            let node: NodeView = serde_json::from_value(json!({
                "metadata": {"name": "node0", "creationTimestamp": created.to_string()},
                "status": {"conditions": conditions},
            }))
            .unwrap();
            node
        };
        let check = |old: bool, told: bool, leased: bool, again: Option<(bool, bool)>, want: (bool, bool)| {
            let said = format!("{old} {told} {leased} {again:?}");
            let before = node(old, told.then_some(first));
            let now = later(start, 0, first);
            let health = look(None, &before, leased.then(|| at(first)), now);
            assert_eq!(is_silent(&before, &health, GRACE, now), want.0, "{said}");
            let Some((status, lease)) = again else { return };
            let after = node(old, told.then_some(if status { first + hour } else { first }));
            let now = later(start, 3600, first + hour);
            let renewed = leased.then(|| at(if lease { first + hour } else { first }));
            let health = look(Some(&health), &after, renewed, now);
            assert_eq!(is_silent(&after, &health, GRACE, now), want.1, "{said}");
        };
        // Without Leases.
        check(true, false, false, None, (true, true));
        check(false, false, false, None, (false, false));
        check(true, true, false, Some((false, false)), (false, true));
        check(true, true, false, None, (false, false));
        // With Leases.
        check(false, false, true, None, (false, false));
        check(true, false, true, Some((false, true)), (false, false));
        check(true, false, true, Some((false, false)), (false, true));
        check(true, true, true, Some((false, true)), (false, false));
        check(true, true, true, Some((true, false)), (false, false));
        check(true, true, true, Some((false, false)), (false, true));

        let conditions = |node: &NodeView, day: i64| {
            let all = unknown(node, at(day));
            let kinds: Vec<&str> = all.iter().map(|c| c.type_.as_str()).collect();
            assert_eq!(kinds, ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]);
            assert!(all.iter().all(|c| c.last_transition_time == Some(Time(at(day)))));
            let of = |c: &NodeCondition| {
                let text = |t: &Option<String>| t.clone().unwrap();
                (text(&c.reason), text(&c.message), c.last_heartbeat_time.as_ref().unwrap().0)
            };
            all.iter().map(of).collect::<Vec<_>>()
        };
        let never =
            ("NodeStatusNeverUpdated".to_owned(), "Kubelet never posted node status.".to_owned(), made);
        assert_eq!(conditions(&node(true, None), first), vec![never.clone(); 4]);
        let stopped =
            ("NodeStatusUnknown".to_owned(), "Kubelet stopped posting node status.".to_owned(), at(first));
        let want = [&[stopped][..], &vec![never; 3]].concat();
        assert_eq!(conditions(&node(true, Some(first)), first + hour), want);
    }

    /// Upstream's cases of `TestTryUpdateNodeHealth`: the Ready condition, whether it is older than the grace, and the
    /// readiness that is known then.
    #[test]
    fn readiness_that_is_known() {
        let check = |ready: Option<&str>, late: bool, want: &str| {
            let start = Instant::now();
            let node = node(ready.map(|status| (status, 0)));
            let health = look(None, &node, None, later(start, 0, 0));
            let now = later(start, if late { 366 * 86400 } else { 0 }, 0);
            let known = if is_silent(&node, &health, GRACE, now) {
                unknown(&node, at(0)).into_iter().find(|c| c.type_ == "Ready").unwrap().status
            } else {
                readiness(&node).to_owned()
            };
            assert_eq!(known, want, "{ready:?} {late}");
        };
        for late in [false, true] {
            check(Some("Unknown"), late, "Unknown");
            check(Some("True"), late, if late { "Unknown" } else { "True" });
            check(Some("False"), late, if late { "Unknown" } else { "False" });
            check(None, late, if late { "Unknown" } else { "" });
        }
    }
}
