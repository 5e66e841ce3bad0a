//! Stopping containers and Pods.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use cri::runtime as pb;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, Lifecycle, Pod};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::actions::KillReason;
use super::addresses::Addresses;
use super::observed::{ContainerStatus, PodStatus};
use super::{hooks, spec};
use crate::config::Config;
use crate::log_links::LogLinks;
use crate::logs;
use crate::recorder::PodRecorder;
use crate::runtime::{CallError, Runtime, unless_gone};
use crate::work::{Interrupted, try_blocking};

/// The shortest grace a container gets; upstream's.
const MIN_GRACE: i64 = 2;

/// The grace of a container in seconds: the Pod's, or a failed probe's own.
fn grace(pod: &Pod, container: &Container, reason: KillReason) -> i64 {
    let probe = match reason {
        KillReason::LivenessProbe => container.liveness_probe.as_ref(),
        KillReason::StartupProbe => container.startup_probe.as_ref(),
        _ => None,
    };
    if let Some(deletion) = pod.metadata.deletion_grace_period_seconds {
        return deletion;
    }
    let Some(of_pod) = spec::spec(pod).termination_grace_period_seconds else { return MIN_GRACE };
    probe.and_then(|p| p.termination_grace_period_seconds).unwrap_or(of_pod)
}

/// The runtime's errors, one for each container or sandbox that it could not end.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
pub(crate) struct CallErrors(Vec<CallError>);

impl CallErrors {
    fn unless_empty(errors: Vec<CallError>) -> Result<(), Self> {
        if errors.is_empty() { Ok(()) } else { Err(Self(errors)) }
    }
}

/// Why a container that has ended, or its log, was not removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoveError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{}: {error}", path.display())]
    Log { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Stops what Pods run, and removes it from the runtime.
#[derive(Clone)]
pub(crate) struct Killer {
    runtime: Runtime,
    recorder: PodRecorder,
    addresses: Addresses,
    /// Where Pods' directories are.
    pods: PathBuf,
    links: LogLinks,
}

impl Killer {
    /// Runs hooks at the Pods' addresses.
    pub(crate) fn new(
        config: &Config,
        runtime: Runtime,
        recorder: PodRecorder,
        addresses: Addresses,
    ) -> Self {
        Self { runtime, recorder, addresses, pods: config.pods_dir(), links: LogLinks::new(config) }
    }

    /// Runs the preStop hook, and stops the container.
    pub(crate) async fn container(
        &self,
        pod: &Pod,
        status: &ContainerStatus,
        message: &str,
        reason: KillReason,
        grace_override: Option<i64>,
        turn: Option<&Turns>,
    ) -> Result<(), CallError> {
        let found = spec::find_container(pod, &status.name);
        let container =
            found.unwrap_or_else(|| Container { name: status.name.clone(), ..Container::default() });
        let text = if message.is_empty() {
            format!("Stopping container {}", status.name)
        } else {
            message.to_owned()
        };
        self.recorder.container(pod, &status.name, "Normal", "Killing", text);
        let mut left = grace_override.unwrap_or_else(|| grace(pod, &container, reason));
        if let Some(Lifecycle { pre_stop: Some(hook), .. }) = &container.lifecycle
            && left > 0
        {
            let began = Instant::now();
            let limit = Duration::from_secs(u64::try_from(left).unwrap_or(0));
            match timeout(
                limit,
                hooks::run(&self.runtime, &self.addresses, &self.recorder, pod, &container, &status.id, hook),
            )
            .await
            {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    self.recorder.container(
                        pod,
                        &status.name,
                        "Warning",
                        "FailedPreStopHook",
                        "PreStopHook failed",
                    );
                    tracing::debug!(
                        pod = spec::full_name(pod),
                        container = status.name,
                        %error,
                        "preStop hook"
                    );
                }
                Err(_) => tracing::debug!(
                    pod = spec::full_name(pod),
                    container = status.name,
                    "preStop hook took all its time"
                ),
            }
            left -= began.elapsed().as_secs() as i64;
        }
        if let Some(turns) = turn
            && left > 0
        {
            left -= turns.wait(&status.name, left).await;
        }
        let left = left.max(MIN_GRACE);
        let request = pb::StopContainerRequest { container_id: status.id.clone(), timeout: left };
        let stopped = unless_gone(self.runtime.of(spec::uid(pod)).stop_container(request).await);
        if stopped.is_ok()
            && let Some(turns) = turn
        {
            turns.ended(&status.name);
        }
        stopped
    }

    /// Stops every container of a Pod, in order, then its sandboxes.
    ///
    /// # Errors
    /// The runtime's, joined; what could be stopped is stopped.
    pub(crate) async fn pod(
        &self,
        pod: &Pod,
        observed: &PodStatus,
        grace_override: Option<i64>,
    ) -> Result<(), CallErrors> {
        let running: Vec<&ContainerStatus> = observed
            .containers
            .iter()
            .filter(|c| !matches!(c.state, super::observed::State::Exited | super::observed::State::Created))
            .collect();
        let names: Vec<&str> = running.iter().map(|c| c.name.as_str()).collect();
        let sidecars = spec::init_containers(pod).iter().any(spec::is_sidecar);
        let turns = sidecars.then(|| Turns::new(pod, &names));
        let kills = running
            .iter()
            .map(|c| self.container(pod, c, "", KillReason::None, grace_override, turns.as_ref()));
        let mut errors: Vec<CallError> = join_all(kills).await.into_iter().filter_map(Result::err).collect();
        for sandbox in &observed.sandboxes {
            errors.extend(self.stop_sandbox(&observed.uid, &sandbox.id).await.err());
        }
        CallErrors::unless_empty(errors)
    }

    /// Stops a sandbox of a Pod and its network.
    async fn stop_sandbox(&self, uid: &str, id: &str) -> Result<(), CallError> {
        let request = pb::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        unless_gone(self.runtime.of(uid).stop_pod_sandbox(request).await)
    }

    /// Removes a Pod's containers and sandboxes from the runtime.
    ///
    /// # Errors
    /// The runtime's, joined; what could be removed is removed.
    pub(crate) async fn remove(&self, observed: &PodStatus) -> Result<(), CallErrors> {
        let mut errors = Vec::new();
        for c in &observed.containers {
            errors.extend(self.remove_container(&observed.uid, &c.id).await.err());
        }
        self.unlink(observed).await;
        for sandbox in &observed.sandboxes {
            errors.extend(self.remove_sandbox(&observed.uid, &sandbox.id).await.err());
        }
        CallErrors::unless_empty(errors)
    }

    /// Removes the links to the logs of a Pod's containers.
    async fn unlink(&self, observed: &PodStatus) {
        let links = self.links.clone();
        let logs = observed.containers.iter().map(|c| (PathBuf::from(&c.log_path), c.id.clone()));
        let logs: Vec<_> = logs.collect();
        let removed = try_blocking(move || logs.iter().try_for_each(|(log, id)| links.remove(log, id))).await;
        if let Err(error) = removed {
            // It goes when links to logs that are gone are looked for.
            tracing::debug!(uid = observed.uid, %error, "the link to a log stays");
        }
    }

    /// Removes a container that has ended.
    pub(crate) async fn remove_container(&self, uid: &str, id: &str) -> Result<(), CallError> {
        let request = pb::RemoveContainerRequest { container_id: id.to_owned() };
        unless_gone(self.runtime.of(uid).remove_container(request).await)
    }

    /// Removes a container that has ended, and what it leaves on the node: its logs, the link to them, and its message.
    pub(crate) async fn remove_with_log(&self, uid: &str, c: &ContainerStatus) -> Result<(), RemoveError> {
        self.remove_container(uid, &c.id).await?;
        let (log, message) = (PathBuf::from(&c.log_path), c.termination_message_host_path.clone());
        let dir = self.pods.join(uid).join("containers").join(&c.name);
        let (links, id) = (self.links.clone(), c.id.clone());
        try_blocking(move || {
            // Only what this kubelet made: the Pod may have mounted anything at that path.
            if let Some(message) = message.map(PathBuf::from).filter(|m| m.parent() == Some(&dir)) {
                let _ = std::fs::remove_file(message);
            }
            match logs::remove(&log).and_then(|()| links.remove(&log, &id)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(RemoveError::Log { path: log, error })
                }
                _ => Ok(()),
            }
        })
        .await
    }

    /// Stops and removes a sandbox. It should be stopped; where it is not, its network must go first.
    pub(crate) async fn remove_sandbox(&self, uid: &str, id: &str) -> Result<(), CallError> {
        self.stop_sandbox(uid, id).await?;
        let request = pb::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        unless_gone(self.runtime.of(uid).remove_pod_sandbox(request).await)
    }
}

/// The order in which a Pod's containers end: sidecars after the containers, the last one first.
pub(crate) struct Turns {
    ended: HashMap<String, watch::Sender<bool>>,
    main: Vec<String>,
    /// The sidecars, each with the one that starts after it.
    later: HashMap<String, Option<String>>,
}

impl Turns {
    /// From the specification and the containers that run.
    pub(crate) fn new(pod: &Pod, running: &[&str]) -> Self {
        let mut ended = HashMap::new();
        let mut sidecars = HashMap::new();
        let running: HashSet<&str> = running.iter().copied().collect();
        let main: Vec<String> = spec::containers(pod).iter().map(|c| c.name.clone()).collect();
        for c in spec::containers(pod).iter().chain(spec::init_containers(pod)) {
            ended.insert(c.name.clone(), watch::Sender::new(!running.contains(c.name.as_str())));
        }
        let mut later: Option<String> = None;
        for c in spec::init_containers(pod).iter().rev().filter(|c| spec::is_sidecar(c)) {
            sidecars.insert(c.name.clone(), later.replace(c.name.clone()));
        }
        Self { ended, main, later: sidecars }
    }
    /// Waits for those before, at most so many seconds; answers how many it took.
    async fn wait(&self, name: &str, seconds: i64) -> i64 {
        let began = Instant::now();
        let all = async {
            let Some(later) = self.later.get(name) else { return };
            for other in self.main.iter().chain(later) {
                if let Some(ended) = self.ended.get(other) {
                    // The sender lives as long as `self`.
                    let _ = ended.subscribe().wait_for(|e| *e).await;
                }
            }
        };
        let _ = timeout(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)), all).await;
        began.elapsed().as_secs() as i64
    }
    fn ended(&self, name: &str) {
        if let Some(ended) = self.ended.get(name) {
            ended.send_replace(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sidecars_end_last_in_reverse() {
        let p: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "main"}], "initContainers": [
                {"name": "i"}, {"name": "s1", "restartPolicy": "Always"}, {"name": "s2", "restartPolicy": "Always"}]}
        }))
        .unwrap();
        let turns = Turns::new(&p, &["main", "s1", "s2"]);
        assert_eq!(turns.wait("main", 30).await, 0);
        assert_eq!(turns.wait("s2", 30).await, 30, "the container still runs");
        turns.ended("main");
        assert_eq!(turns.wait("s2", 30).await, 0);
        assert_eq!(turns.wait("s1", 7).await, 7, "the later sidecar still runs");
        turns.ended("s2");
        assert_eq!(turns.wait("s1", 7).await, 0);
    }

    /// Upstream's Pods of `TestTerminationOrderingSidecarStopAfterMain`, `TestTerminationOrderingSidecarsInReverseOrder` and
    /// `TestTerminationOrderingObeysGrace`: how long each container waits, where it takes so long to end, and may wait at most
    /// so many seconds.
    #[tokio::test(start_paused = true)]
    async fn sidecars_wait_as_long_as_they_may() {
        async fn check(sidecars: &[&str], (most, takes): (i64, u64), expected: &[(&str, i64)]) {
            let init: Vec<_> =
                sidecars.iter().map(|name| json!({"name": name, "restartPolicy": "Always"})).collect();
            let pod = json!({"spec": {"containers": [{"name": "main"}], "initContainers": init}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let names: Vec<&str> = sidecars.iter().copied().chain(["main"]).collect();
            let turns = Turns::new(&pod, &names);
            let each = names.iter().map(|name| async {
                let waited = turns.wait(name, most).await;
                tokio::time::sleep(Duration::from_millis(takes)).await;
                turns.ended(name);
                (*name, waited)
            });
            assert_eq!(join_all(each).await, expected);
        }
        check(&["init"], (30, 1000), &[("init", 1), ("main", 0)]).await;
        let three = ["sc1", "sc2", "sc3"];
        check(&three, (30, 1250), &[("sc1", 3), ("sc2", 2), ("sc3", 1), ("main", 0)]).await;
        check(&three, (2, 1000), &[("sc1", 2), ("sc2", 2), ("sc3", 1), ("main", 0)]).await;
    }

    /// Upstream's 11 cases of `TestKillContainerGracePeriod`. The columns are the Pod's grace, those of the startup and the
    /// liveness probe, and why the container is killed.
    #[test]
    fn graces() {
        let check = |of_pod: Option<i64>,
                     startup: Option<i64>,
                     liveness: Option<i64>,
                     reason,
                     expected: i64| {
            let probe =
                |grace: Option<i64>| grace.map(|grace| json!({"terminationGracePeriodSeconds": grace}));
            let pod: Pod = serde_json::from_value(json!({"spec": {"terminationGracePeriodSeconds": of_pod,
                "containers": [{"name": "foo", "startupProbe": probe(startup), "livenessProbe": probe(liveness)}]}}))
            .unwrap();
            assert_eq!(
                grace(&pod, &spec::containers(&pod)[0], reason),
                expected,
                "{of_pod:?} {startup:?} {liveness:?}"
            );
        };
        let (short, medium, long) = (Some(10), Some(30), Some(60));
        check(None, None, None, KillReason::Unknown, 2);
        check(long, None, None, KillReason::Unknown, 60);
        check(long, None, short, KillReason::LivenessProbe, 10);
        check(long, short, None, KillReason::StartupProbe, 10);
        check(short, long, None, KillReason::StartupProbe, 60);
        check(short, None, long, KillReason::LivenessProbe, 60);
        check(long, None, short, KillReason::Unknown, 60);
        check(long, short, None, KillReason::Unknown, 60);
        check(long, short, medium, KillReason::Unknown, 60);
        check(long, short, medium, KillReason::StartupProbe, 10);
        check(long, short, medium, KillReason::LivenessProbe, 30);
        check(None, short, None, KillReason::StartupProbe, 2);
    }
}
