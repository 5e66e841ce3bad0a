//! How the runtime is: asked again and again, apart from those who report it, so that a runtime that
//! hangs holds up nobody.

use std::path::PathBuf;
use std::time::Duration;

use cri::runtime as pb;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::node::status::{Image, RuntimeState};
use crate::runtime::Runtime;

/// How often the runtime is asked; upstream's period of `updateRuntimeUp`.
const ASK: Duration = Duration::from_secs(5);
/// How often it is asked until it is ready. A new node waits for its pod network, which comes within
/// moments, and nothing announces that the runtime has seen it.
const ASK_STARTING: Duration = Duration::from_millis(100);
/// For how long it is asked that often.
const STARTING: Duration = Duration::from_secs(30);
/// How often images are listed.
const LIST_IMAGES: Duration = Duration::from_secs(30);
/// After this time without an answer the runtime counts as down.
const RUNTIME_DOWN: Duration = Duration::from_secs(30);
/// After this time without a list of containers nobody sees what happens to them.
const RELIST: Duration = Duration::from_mins(3);
/// How long a runtime may take to answer after this kubelet itself stood still.
const CATCH_UP: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct State {
    /// When the runtime last said that it is ready.
    ready: Option<Instant>,
    /// Why it is not.
    runtime_error: Option<String>,
    /// Why Pods have no network; none before the first answer, either.
    network_error: Option<String>,
    /// When its containers were listed last.
    relisted: Option<Instant>,
    /// Whether it told its version when it was asked last.
    versioned: bool,
    handlers: Vec<(String, bool, bool)>,
    supplemental_groups_policy: Option<bool>,
    /// Whether it gives users of their own to Pods in the node's network, as it said first.
    host_network_users: Option<bool>,
    images: Option<Vec<Image>>,
    image_dir: Option<PathBuf>,
    container_dir: Option<PathBuf>,
}

impl State {
    /// Whether answers came once, but too long ago.
    fn old(&self, now: Instant) -> bool {
        self.ready.is_some_and(|at| now.duration_since(at) >= RUNTIME_DOWN)
            || self.relisted.is_some_and(|at| now.duration_since(at) > RELIST)
    }

    /// Why no Pods can run, in upstream's words and order.
    fn errors(&self, now: Instant) -> Vec<String> {
        let mut errors = Vec::new();
        match self.ready {
            None => errors.push("container runtime status check may not have completed yet".to_owned()),
            Some(at) if now.duration_since(at) >= RUNTIME_DOWN => {
                errors.push("container runtime is down".to_owned());
            }
            Some(_) => {}
        }
        match self.relisted.map(|at| now.duration_since(at)) {
            None => errors.push("PLEG is not healthy: pleg has yet to be successful".to_owned()),
            Some(passed) if passed > RELIST => errors.push(format!(
                "PLEG is not healthy: pleg was last seen active {} ago; threshold is 3m0s",
                go_duration(passed)
            )),
            Some(_) => {}
        }
        errors.extend(self.runtime_error.clone());
        errors.extend(self.network_error.clone());
        errors
    }
}

/// The runtime's health as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Health {
    state: RwLock<State>,
    /// Whether Pods can run has changed.
    pub(crate) changed: Notify,
}

impl Health {
    /// Why no Pods can run; empty if they can.
    pub(crate) fn errors(&self) -> Vec<String> {
        self.state.read().errors(Instant::now())
    }

    /// Whether the runtime said a short while ago that it has a network for Pods.
    pub(crate) fn has_network(&self) -> bool {
        let state = self.state.read();
        state.network_error.is_none() && state.ready.is_some_and(|at| at.elapsed() < 2 * ASK)
    }

    /// Notes that containers were listed at `at`.
    pub(crate) fn relisted(&self, at: Instant) {
        self.update(|state| state.relisted = Some(at));
    }

    /// Whether the runtime can mount read-only all the way down.
    pub(crate) fn recursive_read_only(&self) -> bool {
        self.state.read().handlers.iter().any(|(name, read_only, _)| name.is_empty() && *read_only)
    }

    /// Whether a handler of the runtime gives Pods users of their own; none if it is not known. A runtime that tells of no
    /// handlers gives none.
    pub(crate) fn user_namespaces(&self, handler: &str) -> Option<bool> {
        let state = self.state.read();
        if state.handlers.is_empty() {
            return Some(false);
        }
        state.handlers.iter().find(|(name, ..)| name == handler).map(|(.., namespaces)| *namespaces)
    }

    /// Whether the runtime gives users of their own to Pods in the node's network. It counts what is known when somebody asks
    /// first: a node declares its features once.
    pub(crate) fn host_network_users(&self) -> bool {
        *self.state.write().host_network_users.get_or_insert(false)
    }

    /// Where images and the layers of containers are kept, once the runtime has said so.
    pub(crate) fn file_systems(&self) -> (Option<PathBuf>, Option<PathBuf>) {
        let state = self.state.read();
        (state.image_dir.clone(), state.container_dir.clone())
    }

    /// The state to report. A state that looks bad may only be old, if this process itself stood still: then the
    /// runtime has a moment to answer.
    pub(crate) async fn report(&self, runtime: &Runtime) -> RuntimeState {
        let caught_up = async {
            while self.state.read().old(Instant::now()) {
                tokio::time::sleep(ASK_STARTING).await;
            }
        };
        let _ = timeout(CATCH_UP, caught_up).await;
        let version = runtime.version();
        let state = self.state.read();
        RuntimeState {
            version: if state.versioned {
                format!("{}://{}", version.runtime_name, version.runtime_version.trim_start_matches('v'))
            } else {
                format!("{}://Unknown", version.runtime_name)
            },
            errors: state.errors(Instant::now()),
            handlers: state.handlers.clone(),
            supplemental_groups_policy: state.supplemental_groups_policy,
            host_network_users: state.host_network_users.unwrap_or_default(),
            images: state.images.clone(),
        }
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.write();
        let before = state.errors(Instant::now()).is_empty();
        change(&mut state);
        if before != state.errors(Instant::now()).is_empty() {
            self.changed.notify_one();
        }
    }

    /// Asks the runtime how it is, and notes the answer.
    pub(crate) async fn ask(&self, runtime: &Runtime) {
        let versioned = runtime.refresh_version().await.is_ok();
        self.update(|state| state.versioned = versioned);
        match runtime.service().status(pb::StatusRequest { verbose: false }).await {
            Ok(answer) => {
                let answer = answer.into_inner();
                self.update(|state| note(state, answer));
            }
            Err(error) => tracing::warn!(error = error.message(), "the container runtime does not answer"),
        }
    }

    async fn list_images(&self, runtime: &Runtime) -> bool {
        let images = runtime.images();
        let listed = images.list_images(pb::ListImagesRequest { filter: None }).await;
        let done = listed.is_ok();
        if let Ok(answer) = listed {
            let image = |i: pb::Image| Image {
                names: i.repo_digests.into_iter().chain(i.repo_tags).collect(),
                size: i.size,
            };
            let images = answer.into_inner().images.into_iter().map(image).collect();
            self.state.write().images = Some(images);
        }
        if let Ok(answer) = images.image_fs_info(pb::ImageFsInfoRequest {}).await {
            let answer = answer.into_inner();
            let first = |all: Vec<pb::FilesystemUsage>| {
                all.into_iter().next()?.fs_id.map(|id| PathBuf::from(id.mountpoint))
            };
            let mut state = self.state.write();
            state.image_dir = first(answer.image_filesystems);
            state.container_dir = first(answer.container_filesystems);
        }
        done
    }
}

fn note(state: &mut State, answer: pb::StatusResponse) {
    let conditions = answer.status.unwrap_or_default().conditions;
    let error = |kind: &str, what: &str| match conditions.iter().find(|c| c.r#type == kind) {
        None => Some(format!("{what} not ready: <nil>")),
        Some(c) if !c.status => {
            Some(format!("{what} not ready: {kind}={} reason:{} message:{}", c.status, c.reason, c.message))
        }
        Some(_) => None,
    };
    state.network_error = error("NetworkReady", "container runtime network");
    state.runtime_error = error("RuntimeReady", "container runtime");
    if state.runtime_error.is_some() {
        return;
    }
    state.ready = Some(Instant::now());
    let features = answer.features.unwrap_or_default();
    state.host_network_users.get_or_insert(features.user_namespaces_host_network);
    state.supplemental_groups_policy = answer.features.map(|f| f.supplemental_groups_policy);
    state.handlers = answer
        .runtime_handlers
        .into_iter()
        .map(|h| {
            let features = h.features.unwrap_or_default();
            (h.name, features.recursive_read_only_mounts, features.user_namespaces)
        })
        .collect();
    // Each in its place, however the runtime orders them: the Node must not change for that.
    state.handlers.sort();
}

/// Asks the runtime until the end.
pub(crate) async fn follow(health: &Health, runtime: &Runtime) {
    let status = async {
        let began = Instant::now();
        loop {
            health.ask(runtime).await;
            let starting = began.elapsed() < STARTING && !health.errors().is_empty();
            tokio::time::sleep(if starting { ASK_STARTING } else { ASK }).await;
        }
    };
    let images = async {
        loop {
            let done = health.list_images(runtime).await;
            tokio::time::sleep(if done { LIST_IMAGES } else { ASK }).await;
        }
    };
    tokio::join!(status, images);
}

/// A duration as Go prints it (`3m5.25s`).
pub(crate) fn go_duration(d: Duration) -> String {
    let (hours, minutes) = (d.as_secs() / 3600, d.as_secs() / 60 % 60);
    let mut seconds = format!("{}.{:09}", d.as_secs() % 60, d.subsec_nanos());
    let kept = seconds.trim_end_matches('0').trim_end_matches('.').len();
    seconds.truncate(kept);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, m) => format!("{m}m{seconds}s"),
        (h, m) => format!("{h}h{m}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(conditions: &[(&str, bool)]) -> pb::StatusResponse {
        let condition = |(kind, status): &(&str, bool)| pb::RuntimeCondition {
            r#type: (*kind).into(),
            status: *status,
            reason: "NetworkPluginNotReady".into(),
            message: "no network".into(),
        };
        pb::StatusResponse {
            status: Some(pb::RuntimeStatus { conditions: conditions.iter().map(condition).collect() }),
            ..pb::StatusResponse::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn errors_are_upstreams() {
        let health = Health::default();
        let check = |expected: &[&str]| assert_eq!(health.errors(), expected);
        check(&[
            "container runtime status check may not have completed yet",
            "PLEG is not healthy: pleg has yet to be successful",
        ]);
        let good = answer(&[("RuntimeReady", true), ("NetworkReady", true)]);
        health.relisted(Instant::now());
        health.update(|s| note(s, answer(&[("RuntimeReady", true), ("NetworkReady", false)])));
        check(&[
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no network",
        ]);
        assert!(!health.has_network());
        health.update(|s| note(s, good.clone()));
        check(&[]);
        assert!(health.has_network());
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(!health.has_network());
        check(&[]);
        tokio::time::advance(Duration::from_secs(1)).await;
        check(&["container runtime is down"]);
        tokio::time::advance(Duration::from_millis(150_500)).await;
        check(&[
            "container runtime is down",
            "PLEG is not healthy: pleg was last seen active 3m0.5s ago; threshold is 3m0s",
        ]);
        health.relisted(Instant::now());
        health.update(|s| note(s, answer(&[])));
        check(&[
            "container runtime is down",
            "container runtime not ready: <nil>",
            "container runtime network not ready: <nil>",
        ]);
        health.update(|s| note(s, good));
        check(&[]);
    }

    #[test]
    fn features_of_the_runtime_are_those_of_the_first_answer() {
        let said = |host_network: Option<bool>| pb::StatusResponse {
            features: host_network.map(|user_namespaces_host_network| pb::RuntimeFeatures {
                user_namespaces_host_network,
                ..pb::RuntimeFeatures::default()
            }),
            ..answer(&[("RuntimeReady", true), ("NetworkReady", true)])
        };
        let check = |answers: &[Option<bool>], expected: bool| {
            let health = Health::default();
            for one in answers {
                health.update(|s| note(s, said(*one)));
            }
            assert_eq!(health.host_network_users(), expected, "{answers:?}");
            health.update(|s| note(s, said(Some(!expected))));
            assert_eq!(health.host_network_users(), expected, "{answers:?}, then another");
        };
        check(&[], false);
        check(&[None], false);
        check(&[Some(false)], false);
        check(&[Some(true)], true);
        check(&[Some(true), Some(false)], true);
    }

    #[test]
    fn durations_as_go_prints_them() {
        for (millis, want) in [
            (0, "0s"),
            (1500, "1.5s"),
            (185_250, "3m5.25s"),
            (3_600_000, "1h0m0s"),
            (7_261_001, "2h1m1.001s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(millis)), want);
        }
    }
}
