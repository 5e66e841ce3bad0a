//! The part of a Pod that only the controller of Jobs reads.

use compact_str::CompactString as Text;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde::de::IgnoredAny;

use client::json::or_default;

/// The finalizer of a Pod that its Job has not counted yet.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// The part of a Pod that only the controller of Jobs reads. The Pods of Jobs have it, and those of nobody.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Task {
    /// Whether it has the finalizer [`TRACKING`].
    pub tracked: bool,
    /// Its completion index.
    pub index: Option<i64>,
    /// The failures of its index that counted before it was made.
    pub failures: i32,
    /// The failures of its index that did not count.
    pub ignored: i32,
    /// The time at which it ended, as far as that can be known; otherwise the time at which it was made.
    pub finished: Option<Timestamp>,
    /// Its containers that ended with an error, init containers last.
    pub exits: Box<[Exit]>,
    /// The types and states of its conditions.
    pub conditions: Box<[(Text, Text)]>,
    /// The restarts of all its containers, init containers too.
    pub restarts: i32,
}

/// The end of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The container's name.
    pub container: Text,
    /// Its exit code.
    pub code: i32,
}

/// The state of a container.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct State {
    terminated: Option<Terminated>,
    waiting: Option<IgnoredAny>,
}

impl State {
    /// Whether the container runs, or may do so.
    pub(super) fn runs(&self) -> bool {
        self.terminated.is_none() && self.waiting.is_none()
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    #[serde(deserialize_with = "or_default")]
    exit_code: i32,
    finished_at: Option<Time>,
}

/// A container's name, whether it is a sidecar, its state and its restarts.
pub(super) type Container<'a> = (&'a Text, bool, &'a State, i32);

/// The times by which a Pod's end is known.
pub(super) struct Times {
    pub(super) unready: Option<Timestamp>,
    pub(super) deleted: Option<Timestamp>,
    pub(super) grace: i64,
    pub(super) created: Option<Timestamp>,
}

impl Task {
    /// Makes it of a Pod's annotations (index, failures, ignored failures), containers and times.
    pub(super) fn of(
        tracked: bool,
        [index, failures, ignored]: [Option<&Text>; 3],
        containers: &[Container<'_>],
        inits: &[Container<'_>],
        conditions: Box<[(Text, Text)]>,
        times: &Times,
    ) -> Self {
        let count = |text: Option<&Text>| text.and_then(|t| t.parse().ok()).filter(|n| *n >= 0).unwrap_or(0);
        let all = || containers.iter().chain(inits);
        let exits = all().filter_map(|(name, _, state, _)| {
            let code = state.terminated.as_ref()?.exit_code;
            (code != 0).then(|| Exit { container: (*name).clone(), code })
        });
        let deleted = times.deleted.and_then(|t| t.checked_sub(SignedDuration::from_secs(times.grace)).ok());
        let ended = ended(containers.iter().chain(inits.iter().filter(|c| c.1)));
        Self {
            tracked,
            index: index.and_then(|t| t.parse().ok()).filter(|i| *i >= 0),
            failures: count(failures),
            ignored: count(ignored),
            finished: ended.or(times.unready).or(deleted).or(times.created),
            exits: exits.collect(),
            conditions,
            restarts: all().fold(0, |sum: i32, c| sum.saturating_add(c.3)),
        }
    }
}

/// The time at which the last of some containers ended; `None` unless all of them did.
fn ended<'a>(mut containers: impl Iterator<Item = &'a Container<'a>>) -> Option<Timestamp> {
    containers
        .try_fold(None, |last: Option<Timestamp>, (_, _, state, _)| {
            let at = state.terminated.as_ref()?.finished_at.as_ref()?.0;
            Some(last.max(Some(at)))
        })
        .flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::views::tests::view;

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    #[test]
    fn fields() {
        let ended = |code: i32, time: &str| json!({"terminated": {"exitCode": code, "finishedAt": time}});
        let (early, late) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:09Z");
        let pod = view(&json!({
            "metadata": {
                "name": "p", "finalizers": [TRACKING], "annotations": {
                    "batch.kubernetes.io/job-completion-index": "7",
                    "batch.kubernetes.io/job-index-failure-count": "2",
                    "batch.kubernetes.io/job-index-ignored-failure-count": "-1",
                },
                "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}],
            },
            "spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]},
            "status": {
                "conditions": [{"type": "DisruptionTarget", "status": "True"}],
                "containerStatuses": [
                    {"name": "a", "restartCount": 2, "state": ended(0, early)},
                    {"name": "b", "restartCount": 1, "state": ended(3, early)}],
                "initContainerStatuses": [
                    {"name": "s", "restartCount": 4, "state": ended(5, late)},
                    {"name": "i", "restartCount": 8, "state": {"running": {}}}],
            },
        }));
        let task = pod.task().unwrap();
        assert_eq!((task.tracked, task.index, task.failures, task.ignored), (true, Some(7), 2, 0));
        assert_eq!((task.finished, task.restarts), (Some(at(late)), 15), "a sidecar ends later");
        let exits: Vec<_> = task.exits.iter().map(|e| (e.container.as_str(), e.code)).collect();
        assert_eq!(exits, [("b", 3), ("s", 5)]);
        assert_eq!(task.conditions.as_ref(), [("DisruptionTarget".into(), "True".into())]);
    }

    #[test]
    fn whose_it_is() {
        let check = |meta: Value, want: bool| {
            assert_eq!(view(&json!({ "metadata": meta })).task().is_some(), want, "{meta}");
        };
        let owned = |kind: &str| json!([{"apiVersion": "x/v1", "kind": kind, "name": "j", "uid": "u", "controller": true}]);
        check(json!({}), true);
        check(json!({"ownerReferences": owned("Job")}), true);
        check(json!({"ownerReferences": owned("ReplicaSet")}), false);
        check(json!({"ownerReferences": owned("ReplicaSet"), "finalizers": [TRACKING]}), true);
    }

    /// Upstream's cases of `TestGetFinishedTime`.
    #[test]
    fn the_end() {
        let check = |status: Value, meta: Value, want: &str| {
            let mut all = json!({"creationTimestamp": "2026-01-01T00:00:00Z"});
            all.as_object_mut().unwrap().extend(meta.as_object().unwrap().clone());
            let spec = json!({"initContainers": [{"name": "s", "restartPolicy": "Always"}]});
            let pod = view(&json!({"metadata": all, "spec": spec, "status": status}));
            assert_eq!(pod.task().unwrap().finished, Some(at(want)), "{status}");
        };
        let ended =
            |name: &str, time: &str| json!({"name": name, "state": {"terminated": {"finishedAt": time}}});
        let (t1, t2, t3) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z");
        check(json!({"containerStatuses": [ended("a", t3), ended("b", t2), ended("c", t1)]}), json!({}), t3);
        let restarted =
            json!({"containerStatuses": [ended("a", t1)], "initContainerStatuses": [ended("s", t2)]});
        check(restarted, json!({}), t2);
        let init = json!({"containerStatuses": [ended("a", t1)], "initContainerStatuses": [ended("i", t2)]});
        check(init, json!({}), t1);
        let unready = |state: &str| json!([{"type": "Ready", "status": state, "lastTransitionTime": t2}]);
        let running = json!({"name": "a", "state": {"running": {}}});
        check(
            json!({"containerStatuses": [ended("b", t3), running], "conditions": unready("False")}),
            json!({}),
            t2,
        );
        check(json!({"conditions": unready("False")}), json!({}), t2);
        check(json!({"conditions": unready("True")}), json!({}), "2026-01-01T00:00:00Z");
        let gone = json!({"deletionTimestamp": t3, "deletionGracePeriodSeconds": 2});
        check(json!({"containerStatuses": [running]}), gone, t1);
        let gone = json!({"deletionTimestamp": t3});
        check(json!({}), gone, t3);
        check(json!({}), json!({}), "2026-01-01T00:00:00Z");
    }
}
