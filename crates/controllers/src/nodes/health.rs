//! Whether a node is heard of: pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What is remembered of a node between two looks. Only the controller's own clock counts: a heartbeat
/// that differs from the last one is a sign of life, whatever time it says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Health {
    /// Whether it has a Ready condition.
    posted: bool,
    /// The heartbeat of that condition.
    heartbeat: Option<Timestamp>,
    /// The renewal of the Lease.
    renewed: Option<Timestamp>,
    /// When there was a sign of life last.
    pub(super) alive: Timestamp,
}

/// How long a node may be silent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grace {
    /// Once it has posted its status.
    pub(super) running: Duration,
    /// Before.
    pub(super) starting: Duration,
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == "Ready")
}

/// The status of a node's Ready condition; "" for none.
pub(super) fn readiness(node: &Node) -> &str {
    ready(node).map_or("", |c| &c.status)
}

/// Takes in what a node shows now.
pub(super) fn look(
    before: Option<&Health>,
    node: &Node,
    renewed: Option<Timestamp>,
    now: Timestamp,
) -> Health {
    let ready = ready(node);
    let posted = ready.is_some();
    let heartbeat = ready.and_then(|c| c.last_heartbeat_time.as_ref()).map(|t| t.0);
    let created = node.metadata.creation_timestamp.as_ref().map_or(now, |t| t.0);
    let mut health = match before {
        Some(b) if (b.posted, b.heartbeat) == (posted, heartbeat) => b.clone(),
        None if !posted => Health { posted, heartbeat, renewed: None, alive: created },
        _ => Health { posted, heartbeat, renewed: before.and_then(|b| b.renewed), alive: now },
    };
    if renewed > health.renewed {
        health.renewed = renewed;
        health.alive = now;
    }
    health
}

/// The conditions of a node that has been silent for too long; `None` if it is heard of, or says so already.
pub(super) fn silenced(
    node: &Node,
    health: &Health,
    grace: Grace,
    now: Timestamp,
) -> Option<Vec<NodeCondition>> {
    let allowed = if ready(node).is_some() { grace.running } else { grace.starting };
    let allowed = SignedDuration::try_from(allowed).unwrap_or(SignedDuration::MAX);
    if now.duration_since(health.alive) <= allowed || readiness(node) == "Unknown" {
        return None;
    }
    let mut conditions = node.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
    // NetworkUnavailable is the control plane's own.
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        match conditions.iter_mut().find(|c| c.type_ == kind) {
            None => conditions.push(NodeCondition {
                type_: kind.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(Time(now)),
            }),
            Some(c) if c.status != "Unknown" => {
                "Unknown".clone_into(&mut c.status);
                c.reason = Some("NodeStatusUnknown".to_owned());
                c.message = Some("Kubelet stopped posting node status.".to_owned());
                c.last_transition_time = Some(Time(now));
            }
            Some(_) => {}
        }
    }
    Some(conditions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const GRACE: Grace = Grace { running: Duration::from_secs(50), starting: Duration::from_mins(1) };

    fn at(s: i64) -> Timestamp {
        Timestamp::from_second(s).unwrap()
    }

    fn node(ready: Option<(&str, i64)>) -> Node {
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

    #[test]
    fn signs_of_life() {
        // Seen first long after its last heartbeat: it has its grace from now on.
        let first = look(None, &node(Some(("True", 5))), None, at(1000));
        assert_eq!(first.alive, at(1000));
        let same = look(Some(&first), &node(Some(("True", 5))), None, at(1030));
        assert_eq!(same.alive, at(1000));
        assert_eq!(look(Some(&same), &node(Some(("True", 6))), None, at(1031)).alive, at(1031));
        let leased = look(Some(&same), &node(Some(("True", 5))), Some(at(3)), at(1032));
        assert_eq!(leased.alive, at(1032));
        assert_eq!(look(Some(&leased), &node(Some(("True", 5))), Some(at(3)), at(1050)).alive, at(1032));
        assert_eq!(look(None, &node(None), None, at(1000)).alive, at(0), "never posted: since it was made");
    }

    #[test]
    fn silence() {
        let check = |ready: Option<(&str, i64)>, now: i64, want: Option<&str>| {
            let node = node(ready);
            let health = Health { posted: false, heartbeat: None, renewed: None, alive: at(0) };
            let got = silenced(&node, &health, GRACE, at(now));
            let reason = got.as_ref().map(|c| {
                assert_eq!(c.len(), 4);
                assert!(c.iter().all(|c| c.status == "Unknown"));
                c[0].reason.clone().unwrap()
            });
            assert_eq!(reason.as_deref(), want, "{ready:?} {now}");
        };
        check(Some(("True", 0)), 50, None);
        check(Some(("True", 0)), 51, Some("NodeStatusUnknown"));
        check(Some(("False", 0)), 51, Some("NodeStatusUnknown"));
        check(Some(("Unknown", 0)), 500, None);
        check(None, 60, None);
        check(None, 61, Some("NodeStatusNeverUpdated"));
    }
}
