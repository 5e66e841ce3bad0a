//! The sandboxes and containers that a runtime has of one kubelet.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use cri::runtime as pb;
use k8s_openapi::api::core::v1::{Container, Lifecycle, Pod};

use crate::pods::labels::{self, ROOT_ANNOTATION};
use crate::runtime::{CallError, Runtime};

/// The sandboxes and containers of one kubelet.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) sandboxes: Vec<pb::PodSandbox>,
    pub(crate) containers: Vec<pb::Container>,
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

    /// Which Pods have a sandbox that is ready, or a container that runs.
    pub(crate) fn going_on(&self) -> BTreeSet<String> {
        let ready = self.sandboxes.iter().filter(|s| s.state() == pb::PodSandboxState::SandboxReady);
        let running = self.containers.iter().filter(|c| c.state() == pb::ContainerState::ContainerRunning);
        let sandboxes = ready.filter_map(|s| s.metadata.as_ref()).map(|m| m.uid.clone());
        sandboxes.chain(running.filter_map(|c| c.labels.get(labels::POD_UID)).cloned()).collect()
    }

    /// A Pod as far as its sandboxes and containers tell of it: enough to end it as it wanted.
    pub(crate) fn restore(&self, uid: &str) -> Pod {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::spec;

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
}
