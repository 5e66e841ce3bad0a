//! Removal of things that no Pod owns, again and again: sandboxes, containers, directories with
//! their mounts, cgroups, logs. Dead containers and sandboxes of Pods go, too, but the newest.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::{Backoff, Informer};
use cri::runtime as pb;
use k8s_openapi::api::core::v1::{Container, Lifecycle, Pod};
use tokio::sync::Notify;

use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::files;
use crate::pods::kill::{Killer, RemoveError};
use crate::pods::labels::ROOT_ANNOTATION;
use crate::pods::worker::Worker;
use crate::pods::workers::Workers;
use crate::pods::{labels, spec};
use crate::runtime::{CallError, Runtime};
use crate::volumes::VolumeManager;
use crate::work::{Interrupted, try_blocking};

/// How often everything is looked at. Upstream looks every 2 s. Here each Pod's worker cleans after
/// itself, and what comes into being without one wakes the search: the period is only for what nobody
/// told, and it is that of upstream's garbage collection.
const PERIOD: Duration = Duration::from_mins(1);
/// The least time between two searches.
const SETTLE: Duration = Duration::from_secs(1);
/// How many dead containers of a name are kept; upstream's `maximum-dead-containers-per-container`.
const MAX_PER_POD_CONTAINER: usize = 1;

/// The sandboxes and containers of one kubelet.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    sandboxes: Vec<pb::PodSandbox>,
    containers: Vec<pb::Container>,
}

impl Listing {
    /// Asks the runtime. Several kubelets may share one: a sandbox tells by an annotation whose it is, a
    /// container belongs to whom its sandbox belongs, or tells, too.
    pub(crate) async fn of(runtime: &Runtime, root_dir: &Path) -> Result<Self, CallError> {
        let service = runtime.service();
        // Containers first: a sandbox is there before its containers.
        let containers = service.list_containers(pb::ListContainersRequest::default()).await?;
        let sandboxes = service.list_pod_sandbox(pb::ListPodSandboxRequest::default()).await?;
        let root = root_dir.to_string_lossy();
        Ok(Self::own(&root, sandboxes.into_inner().items, containers.into_inner().containers))
    }

    fn own(root: &str, mut sandboxes: Vec<pb::PodSandbox>, mut containers: Vec<pb::Container>) -> Self {
        let own = |annotations: &HashMap<String, String>| {
            annotations.get(ROOT_ANNOTATION).is_some_and(|r| r == root)
        };
        sandboxes.retain(|s| own(&s.annotations));
        containers.retain(|c| own(&c.annotations) || sandboxes.iter().any(|s| s.id == c.pod_sandbox_id));
        Self { sandboxes, containers }
    }

    /// Which Pods it has anything of.
    pub(crate) fn uids(&self) -> BTreeSet<String> {
        let sandboxes = self.sandboxes.iter().filter_map(|s| s.metadata.as_ref()).map(|m| m.uid.clone());
        let containers = self.containers.iter().filter_map(|c| c.labels.get(labels::POD_UID)).cloned();
        sandboxes.chain(containers).collect()
    }

    /// A Pod as far as its sandboxes and containers tell of it: enough to end it as it wanted.
    fn restore(&self, uid: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        let of_pod = |s: &&pb::PodSandbox| s.metadata.as_ref().is_some_and(|m| m.uid == uid);
        if let Some(m) = self.sandboxes.iter().find(of_pod).and_then(|s| s.metadata.as_ref()) {
            pod.metadata.namespace = Some(m.namespace.clone());
            pod.metadata.name = Some(m.name.clone());
        }
        let spec = pod.spec.get_or_insert_default();
        let mut containers: Vec<&pb::Container> = self
            .containers
            .iter()
            .filter(|c| c.labels.get(labels::POD_UID).is_some_and(|u| u == uid))
            .collect();
        containers.sort_by_key(|c| std::cmp::Reverse(c.created_at));
        for c in containers {
            let label = |key: &str| c.labels.get(key).cloned();
            pod.metadata.namespace = pod.metadata.namespace.or_else(|| label(labels::POD_NAMESPACE));
            pod.metadata.name = pod.metadata.name.or_else(|| label(labels::POD_NAME));
            let number = |key: &str| c.annotations.get(key).and_then(|n| n.parse::<i64>().ok());
            pod.metadata.deletion_grace_period_seconds =
                pod.metadata.deletion_grace_period_seconds.or(number(labels::POD_DELETION_GRACE_PERIOD));
            spec.termination_grace_period_seconds =
                spec.termination_grace_period_seconds.or(number(labels::POD_TERMINATION_GRACE_PERIOD));
            let Some(name) = label(labels::CONTAINER_NAME) else { continue };
            if spec.containers.iter().all(|known| known.name != name) {
                spec.containers.push(restore_container(name, &c.annotations));
            }
        }
        pod
    }

    /// Dead containers and sandboxes that newer ones have replaced, each with its Pod; upstream's rules.
    fn garbage(&self) -> Garbage {
        let mut dead: BTreeMap<(&str, &str), Vec<&pb::Container>> = BTreeMap::new();
        for c in self.containers.iter().filter(|c| c.state() != pb::ContainerState::ContainerRunning) {
            let label = |key: &str| c.labels.get(key).map_or("", String::as_str);
            dead.entry((label(labels::POD_UID), label(labels::CONTAINER_NAME))).or_default().push(c);
        }
        let mut garbage = Garbage::default();
        for ((uid, _), mut all) in dead {
            all.sort_by_key(|c| std::cmp::Reverse(c.created_at));
            let old = all.into_iter().skip(MAX_PER_POD_CONTAINER);
            garbage.containers.extend(old.map(|c| (uid.to_owned(), c.id.clone())));
        }
        let mut sandboxes: BTreeMap<&str, Vec<&pb::PodSandbox>> = BTreeMap::new();
        for s in &self.sandboxes {
            sandboxes.entry(s.metadata.as_ref().map_or("", |m| &m.uid)).or_default().push(s);
        }
        for (uid, mut all) in sandboxes {
            all.sort_by_key(|s| std::cmp::Reverse(s.created_at));
            let empty = |s: &&pb::PodSandbox| {
                s.state() != pb::PodSandboxState::SandboxReady
                    && self.containers.iter().all(|c| c.pod_sandbox_id != s.id)
            };
            let old = all.into_iter().skip(1).filter(empty);
            garbage.sandboxes.extend(old.map(|s| (uid.to_owned(), s.id.clone())));
        }
        garbage
    }
}

fn restore_container(name: String, annotations: &HashMap<String, String>) -> Container {
    let json = |key: &str| annotations.get(key).map(String::as_str).unwrap_or_default();
    Container {
        name,
        ports: serde_json::from_str(json(labels::CONTAINER_PORTS)).ok(),
        termination_message_path: annotations.get(labels::TERMINATION_MESSAGE_PATH).cloned(),
        lifecycle: serde_json::from_str(json(labels::PRE_STOP_HANDLER))
            .ok()
            .map(|hook| Lifecycle { pre_stop: Some(hook), ..Lifecycle::default() }),
        ..Container::default()
    }
}

/// Sandboxes and containers that can go of Pods that are there: uid and CRI id.
#[derive(Debug, Default, PartialEq, Eq)]
struct Garbage {
    containers: Vec<(String, String)>,
    sandboxes: Vec<(String, String)>,
}

/// Why something that no Pod owns is still there.
#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error("cannot list containers: {}", .0.message())]
    List(CallError),
    #[error(transparent)]
    Container(RemoveError),
    #[error(transparent)]
    Sandbox(CallError),
    #[error(transparent)]
    Volumes(io::Error),
    #[error("cgroup of Pod {uid}: {error}")]
    Cgroup { uid: String, error: io::Error },
    #[error("{}: {error}", path.display())]
    Path { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Removes what no Pod owns.
pub(crate) struct Housekeeper {
    pub(crate) config: Arc<Config>,
    pub(crate) runtime: Runtime,
    pub(crate) cgroups: Cgroups,
    pub(crate) killer: Killer,
    pub(crate) volumes: Arc<VolumeManager>,
    pub(crate) workers: Arc<Workers>,
    /// The Pods of this node.
    pub(crate) pods: Informer<Pod>,
    /// Something may be there that no Pod owns.
    pub(crate) woken: Arc<Notify>,
}

impl Housekeeper {
    /// Looks again and again; `start` starts a worker.
    pub(crate) async fn keep(&self, start: impl Fn(Arc<Worker>)) {
        // Before all Pods are known, every one of them looks like nobody's.
        self.pods.synced().await;
        let mut backoff = Backoff::new(SETTLE, PERIOD);
        loop {
            let errors = self.sweep(&start).await;
            let pause = if errors.is_empty() {
                backoff.reset();
                PERIOD
            } else {
                tracing::warn!(
                    errors = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
                    "not everything that no Pod owns could be removed"
                );
                backoff.delay()
            };
            tokio::time::sleep(SETTLE).await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.woken.notified() => {}
            }
        }
    }

    /// Looks once; answers what went wrong.
    async fn sweep(&self, start: &impl Fn(Arc<Worker>)) -> Vec<SweepError> {
        // The files are listed before the runtime is asked: files that come later belong to a Pod that is new.
        let mut errors = Vec::new();
        let remains = match self.remains().await {
            Ok(remains) => remains,
            Err(error) => {
                errors.push(error);
                Remains::default()
            }
        };
        let listing = match Listing::of(&self.runtime, &self.config.root_dir).await {
            Ok(listing) => listing,
            Err(error) => {
                errors.push(SweepError::List(error));
                return errors;
            }
        };
        // A Pod may have come back under the uid of one that was still being removed.
        for pod in self.pods.list().iter().filter(|p| p.metadata.deletion_timestamp.is_none()) {
            if self.workers.get(spec::uid(pod)).is_none() {
                start(Worker::new(pod.clone()));
            }
        }
        let listed = listing.uids();
        for uid in &listed {
            if self.workers.get(uid).is_none() {
                tracing::info!(uid, "containers of a Pod that is gone are removed");
                // DIFFERENCE: upstream gives them one second; here they get the end that they asked for.
                let worker = Worker::new(Arc::new(listing.restore(uid)));
                worker.deleted();
                start(worker);
            }
        }
        let garbage = listing.garbage();
        for (uid, id) in &garbage.containers {
            let observed = self.workers.get(uid).map(|w| w.state.lock().observed.clone());
            let status = observed.as_ref().and_then(|o| o.containers.iter().find(|c| c.id == *id));
            let removed = match status {
                Some(status) => self.killer.remove_with_log(uid, status).await,
                None => self.killer.remove_container(uid, id).await.map_err(RemoveError::Call),
            };
            errors.extend(removed.err().map(SweepError::Container));
        }
        for (uid, id) in &garbage.sandboxes {
            errors.extend(self.killer.remove_sandbox(uid, id).await.err().map(SweepError::Sandbox));
        }
        let nobodys = |uid: &str| self.workers.get(uid).is_none() && !listed.contains(uid);
        for uid in remains.dirs.iter().filter(|uid| nobodys(uid)) {
            errors.extend(self.volumes.remove_pod(uid).await.err().map(SweepError::Volumes));
        }
        for uid in remains.cgroups.iter().filter(|uid| nobodys(uid)) {
            errors.extend(
                self.cgroups.remove(uid).err().map(|error| SweepError::Cgroup { uid: uid.clone(), error }),
            );
        }
        for name in remains.logs.iter().filter(|name| nobodys(uid_of_logs(name))) {
            let dir = self.config.pod_logs_dir.join(name);
            let path = dir.clone();
            let removed = try_blocking(move || files::remove_tree(&dir)).await;
            errors.extend(removed.err().map(|error| SweepError::Path { path, error }));
        }
        errors
    }

    async fn remains(&self) -> Result<Remains, SweepError> {
        let (dirs, logs) = (self.config.root_dir.join("pods"), self.config.pod_logs_dir.clone());
        let cgroups = self.cgroups.clone();
        try_blocking(move || {
            let names = |dir: &Path| {
                let entries = std::fs::read_dir(dir);
                let entries = entries.map_err(|error| SweepError::Path { path: dir.to_owned(), error })?;
                let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
                Ok::<_, SweepError>(names.collect())
            };
            Ok(Remains { dirs: names(&dirs)?, cgroups: cgroups.pods(), logs: names(&logs)? })
        })
        .await
    }
}

/// The things of Pods on this machine beside the runtime: uids, and names of directories of logs.
#[derive(Debug, Default)]
struct Remains {
    dirs: Vec<String>,
    cgroups: BTreeSet<String>,
    logs: Vec<String>,
}

/// The Pod's uid in the name of its directory of logs, `namespace_name_uid`.
fn uid_of_logs(name: &str) -> &str {
    name.rsplit('_').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn sandbox(id: &str, uid: &str, root: &str, ready: bool, created_at: i64) -> pb::PodSandbox {
        pb::PodSandbox {
            id: id.into(),
            metadata: Some(pb::PodSandboxMetadata {
                name: format!("pod-{uid}"),
                uid: uid.into(),
                namespace: "ns".into(),
                attempt: 0,
            }),
            state: i32::from(!ready),
            created_at,
            annotations: map(&[(ROOT_ANNOTATION, root)]),
            ..pb::PodSandbox::default()
        }
    }

    fn container(id: &str, name: &str, sandbox: &str, uid: &str, running: bool, at: i64) -> pb::Container {
        let state =
            if running { pb::ContainerState::ContainerRunning } else { pb::ContainerState::ContainerExited };
        pb::Container {
            id: id.into(),
            pod_sandbox_id: sandbox.into(),
            state: state.into(),
            created_at: at,
            labels: map(&[(labels::POD_UID, uid), (labels::CONTAINER_NAME, name)]),
            ..pb::Container::default()
        }
    }

    #[test]
    fn only_own_things_are_seen() {
        let mut alone = container("alone", "c", "gone", "u4", false, 0);
        alone.annotations = map(&[(ROOT_ANNOTATION, "/mine")]);
        let listing = Listing::own(
            "/mine",
            vec![sandbox("s1", "u1", "/mine", true, 0), sandbox("s2", "u2", "/theirs", true, 0)],
            vec![
                container("c1", "c", "s1", "u1", true, 0),
                container("c2", "c", "s2", "u2", true, 0),
                container("c3", "c", "gone", "u3", true, 0),
                alone,
            ],
        );
        assert_eq!(listing.uids(), ["u1", "u4"].map(str::to_owned).into());
        let ids: Vec<&str> = listing.containers.iter().map(|c| c.id.as_str()).collect();
        assert_eq!(ids, ["c1", "alone"]);
    }

    #[test]
    fn pods_are_restored_from_what_their_containers_tell() {
        let mut c = container("c1", "main", "s1", "u1", true, 2);
        c.annotations = map(&[
            (labels::PRE_STOP_HANDLER, r#"{"exec":{"command":["sh"]}}"#),
            (labels::CONTAINER_PORTS, r#"[{"name":"web","containerPort":80}]"#),
            (labels::POD_TERMINATION_GRACE_PERIOD, "7"),
        ]);
        let before = container("c0", "main", "s1", "u1", false, 1);
        let listing = Listing::own("/r", vec![sandbox("s1", "u1", "/r", true, 0)], vec![before, c]);
        let pod = listing.restore("u1");
        assert_eq!((spec::namespace(&pod), spec::name(&pod), spec::uid(&pod)), ("ns", "pod-u1", "u1"));
        assert_eq!(spec::grace_period(&pod), 7);
        let [restored] = spec::containers(&pod) else { panic!("one container") };
        let hook = restored.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref()).unwrap();
        assert_eq!(hook.exec.as_ref().unwrap().command.as_ref().unwrap(), &["sh"]);
        assert_eq!(restored.ports.as_ref().unwrap()[0].container_port, 80);
        // A Pod that was being deleted keeps the grace of its deletion; odd annotations are as none.
        let mut c = container("c1", "main", "gone", "u1", true, 2);
        c.annotations = map(&[
            (ROOT_ANNOTATION, "/r"),
            (labels::POD_DELETION_GRACE_PERIOD, "3"),
            (labels::POD_TERMINATION_GRACE_PERIOD, "x"),
            (labels::PRE_STOP_HANDLER, "{"),
        ]);
        c.labels.extend(map(&[(labels::POD_NAME, "n"), (labels::POD_NAMESPACE, "s")]));
        let pod = Listing::own("/r", Vec::new(), vec![c]).restore("u1");
        assert_eq!((spec::namespace(&pod), spec::name(&pod), spec::grace_period(&pod)), ("s", "n", 3));
        assert!(spec::containers(&pod)[0].lifecycle.is_none());
    }

    #[test]
    fn the_newest_of_the_dead_are_kept() {
        let check = |sandboxes: Vec<pb::PodSandbox>, containers: Vec<pb::Container>, expected: &[&str]| {
            let garbage = Listing::own("/r", sandboxes, containers).garbage();
            let ids: Vec<String> =
                garbage.containers.into_iter().chain(garbage.sandboxes).map(|(_, id)| id).collect();
            assert_eq!(ids, expected);
        };
        let now = || sandbox("now", "u", "/r", true, 9);
        let c = |id: &str, name: &str, running, at| container(id, name, "now", "u", running, at);
        check(vec![now()], vec![c("1", "a", false, 1), c("2", "a", true, 2)], &[]);
        check(vec![now()], vec![c("1", "a", false, 1), c("2", "a", false, 2), c("3", "a", true, 3)], &["1"]);
        check(vec![now()], vec![c("1", "a", false, 1), c("2", "b", false, 2)], &[]);
        check(vec![now(), sandbox("old", "u", "/r", false, 1)], Vec::new(), &["old"]);
        check(vec![now(), sandbox("old", "u", "/r", true, 1)], Vec::new(), &[]);
        check(
            vec![now(), sandbox("old", "u", "/r", false, 1)],
            vec![container("1", "a", "old", "u", false, 1)],
            &[],
        );
        check(vec![sandbox("last", "u", "/r", false, 1)], Vec::new(), &[]);
    }

    #[test]
    fn logs_name_their_pod() {
        assert_eq!(uid_of_logs("ns_name_1234-5"), "1234-5");
        assert_eq!(uid_of_logs("odd"), "odd");
    }
}
