//! A Pod's start and its containers' ends, as the changes of its status tell of them, for the counters.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use tokio::time::Instant;

use super::spec;
use crate::metrics::{self, Metrics};

/// The start of a Pod as this kubelet sees it.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    /// When the kubelet saw the Pod first.
    pub(crate) seen: Instant,
    /// How long its images were pulled.
    pub(crate) pulled: Duration,
    /// A step was taken for it.
    pub(crate) synced: bool,
    /// Whether it runs already, and that was counted.
    running: bool,
    /// Whether the API knows that it runs, and that was counted.
    told: bool,
}

impl Start {
    /// Of a Pod with this status: one that runs already is not counted.
    pub(crate) fn new(status: &PodStatus) -> Self {
        let before = !matches!(status.phase.as_deref(), None | Some("" | "Pending"));
        Self { seen: Instant::now(), pulled: Duration::ZERO, synced: false, running: before, told: before }
    }

    /// Takes a status that was computed.
    pub(crate) fn computed(&mut self, status: &PodStatus, metrics: &Metrics) {
        if !self.running && status.phase.as_deref() == Some("Running") {
            self.running = true;
            metrics.took(&metrics::POD_START_DURATION_SECONDS, &[], self.seen.elapsed());
        }
    }

    /// Takes a status that the API has now.
    pub(crate) fn written(&mut self, pod: &Pod, status: &PodStatus, now: Timestamp, metrics: &Metrics) {
        if self.told || !has_started(status) {
            return;
        }
        self.told = true;
        let Some(created) = pod.metadata.creation_timestamp.as_ref() else { return };
        // A static Pod is not what the objective is about, nor one that others had to make room for.
        if spec::is_static(pod) || was_unschedulable(pod) {
            return;
        }
        let total = Duration::try_from(now.duration_since(created.0)).unwrap_or_default();
        metrics.took(&metrics::POD_START_TOTAL_DURATION_SECONDS, &[], total);
        if is_stateful(pod) {
            return;
        }
        let alone = total.saturating_sub(self.pulled).saturating_sub(init_time(status));
        metrics.took(&metrics::POD_START_SLI_DURATION_SECONDS, &[], alone);
        if !spec::host_network(pod) {
            metrics.set_first(&metrics::FIRST_NETWORK_POD_START_SLI_DURATION_SECONDS, alone.as_secs_f64());
        }
    }
}

/// Whether each container was started once.
fn has_started(status: &PodStatus) -> bool {
    let running = |c: &ContainerStatus| c.state.as_ref().is_some_and(|s| s.running.is_some());
    status.container_statuses.as_ref().is_some_and(|all| !all.is_empty() && all.iter().all(running))
}

fn was_unschedulable(pod: &Pod) -> bool {
    let conditions = spec::status(pod).conditions.iter().flatten();
    conditions.into_iter().any(|c| c.type_ == "PodScheduled" && c.status == "False")
}

/// Whether the Pod has volumes of another kind than files and scratch space; upstream's rule.
fn is_stateful(pod: &Pod) -> bool {
    spec::spec(pod).volumes.iter().flatten().any(|v| {
        v.secret.is_none()
            && v.config_map.is_none()
            && v.downward_api.is_none()
            && v.empty_dir.is_none()
            && v.projected.is_none()
    })
}

/// How long init containers ran.
fn init_time(status: &PodStatus) -> Duration {
    let ends =
        status.init_container_statuses.iter().flatten().filter_map(|c| c.state.as_ref()?.terminated.as_ref());
    let ran = ends.filter_map(|t| Some(t.finished_at.as_ref()?.0.duration_since(t.started_at.as_ref()?.0)));
    ran.map(|ran| Duration::try_from(ran).unwrap_or_default()).sum()
}

/// Upstream's names of the kinds of containers.
pub(crate) fn kind(pod: &Pod, container: &str) -> &'static str {
    if spec::init_containers(pod).iter().any(|c| c.name == container) {
        "init_container"
    } else if spec::containers(pod).iter().any(|c| c.name == container) {
        "container"
    } else {
        "ephemeral_container"
    }
}

/// The containers that ended between two statuses: kind, exit code, reason.
fn ended(old: &PodStatus, new: &PodStatus) -> Vec<(&'static str, i32, String)> {
    type Of = fn(&PodStatus) -> Option<&Vec<ContainerStatus>>;
    let lists: [(&'static str, Of); 3] = [
        ("container", |s| s.container_statuses.as_ref()),
        ("init_container", |s| s.init_container_statuses.as_ref()),
        ("ephemeral_container", |s| s.ephemeral_container_statuses.as_ref()),
    ];
    let ends = |c: &ContainerStatus| {
        let states = [c.state.clone(), c.last_state.clone()];
        states.into_iter().flatten().filter_map(|s| s.terminated).collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    for (kind, of) in lists {
        let before: Vec<_> =
            of(old).into_iter().flatten().flat_map(ends).filter_map(|t| t.container_id).collect();
        for end in of(new).into_iter().flatten().flat_map(ends) {
            let known = end.container_id.as_ref().is_none_or(|id| before.contains(id));
            if !known {
                found.push((kind, end.exit_code, end.reason.unwrap_or_default()));
            }
        }
    }
    found
}

/// Counts the containers that ended between two statuses.
pub(crate) fn count_ended(old: &PodStatus, new: &PodStatus, metrics: &Metrics) {
    for (kind, code, reason) in ended(old, new) {
        metrics.count(&metrics::TERMINATED_CONTAINERS_TOTAL, &[kind, &code.to_string(), &reason]);
    }
}

#[cfg(test)]
mod tests {
    use component::metrics::Page;
    use serde_json::{Value, json};

    use super::*;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).unwrap()
    }

    fn container(state: Value, last: Value) -> Value {
        json!({"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state,
            "lastState": last})
    }

    #[test]
    fn ends_count_once() {
        let end = |id: &str, code: i32| json!({"terminated": {"containerID": id, "exitCode": code, "reason": "OOMKilled"}});
        let of = |state, last| status(json!({"containerStatuses": [container(state, last)]}));
        let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
        let check = |old: &PodStatus, new: &PodStatus, expected: &[i32]| {
            let codes: Vec<i32> = ended(old, new).into_iter().map(|(_, code, _)| code).collect();
            assert_eq!(codes, expected);
        };
        let (up, down) = (of(running.clone(), json!({})), of(end("a", 137), json!({})));
        check(&up, &down, &[137]);
        check(&down, &down, &[]);
        check(&down, &of(running, end("a", 137)), &[]);
        check(&down, &of(end("b", 1), end("a", 137)), &[1]);
        check(&PodStatus::default(), &of(end("b", 1), end("a", 137)), &[1, 137]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_is_counted_once() {
        let metrics = Metrics::default();
        let now: Timestamp = "2026-01-01T00:00:20Z".parse().unwrap();
        let pod = |volumes: Value| -> Pod {
            serde_json::from_value(
                json!({"metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"containers": [{"name": "c"}], "volumes": volumes}}),
            )
            .unwrap()
        };
        let init = container(
            json!({"terminated": {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:04Z"}}),
            json!({}),
        );
        let running = status(json!({"phase": "Running", "initContainerStatuses": [init],
            "containerStatuses": [container(json!({"running": {"startedAt": "2026-01-01T00:00:10Z"}}), json!({}))]}));
        let mut start = Start::new(&PodStatus::default());
        start.pulled = Duration::from_secs(6);
        tokio::time::advance(Duration::from_secs(7)).await;
        let plain = pod(json!([{"name": "v", "emptyDir": {}}]));
        start.written(&plain, &PodStatus::default(), now, &metrics);
        for _ in 0..2 {
            start.computed(&running, &metrics);
            start.written(&plain, &running, now, &metrics);
        }
        // One with a claim is not what the objective is about, and one that ran before is not counted.
        let claim = pod(json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]));
        Start::new(&PodStatus::default()).written(&claim, &running, now, &metrics);
        let mut before = Start::new(&running);
        before.computed(&running, &metrics);
        before.written(&plain, &running, now, &metrics);
        let mut page = Page::default();
        metrics.write(&mut page);
        let text = page.text();
        for line in [
            "kubelet_pod_start_duration_seconds_sum 7",
            "kubelet_pod_start_duration_seconds_count 1",
            "kubelet_pod_start_sli_duration_seconds_sum 10",
            "kubelet_pod_start_sli_duration_seconds_count 1",
            "kubelet_pod_start_total_duration_seconds_count 2",
            "kubelet_first_network_pod_start_sli_duration_seconds 10",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
