//! Mirror Pods: what the API has for the static Pods of this node, so that others see them.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Backoff, Client};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    DeleteOptions, ObjectMeta, OwnerReference, Preconditions,
};

use super::Sources;
use crate::node::NodeView;
use crate::pods::mirrors::{Mirrors, Name, is_mirror_of, name};
use crate::pods::workers::Workers;
use crate::pods::{labels, spec};

/// How often it is looked whether each static Pod has its mirror, although nothing was heard.
const PERIOD: Duration = Duration::from_mins(1);

/// A change of the API's mirrors.
#[derive(Debug, Clone, PartialEq)]
enum Action {
    Create(Arc<Pod>),
    Delete(Arc<Pod>),
}

/// The changes by which the API gets a mirror of each of `wanted`, and no other; those of `ending` may stay.
fn plan(wanted: &[Arc<Pod>], ending: &[Name], mirrors: &[Arc<Pod>]) -> Vec<Action> {
    let mut actions = Vec::new();
    for mirror in mirrors {
        let pod = wanted.iter().find(|pod| name(pod) == name(mirror));
        let keep = match pod {
            Some(pod) => mirror.metadata.deletion_timestamp.is_none() && is_mirror_of(mirror, pod),
            None => ending.contains(&name(mirror)),
        };
        if !keep {
            actions.push(Action::Delete(mirror.clone()));
        }
    }
    // A mirror that is to be replaced is made once the other one is gone.
    let missing = wanted.iter().filter(|pod| mirrors.iter().all(|mirror| name(mirror) != name(pod)));
    actions.extend(missing.cloned().map(Action::Create));
    actions
}

/// The mirror of a static Pod, owned by the node.
fn mirror(pod: &Pod, node: &Node) -> Pod {
    let mut annotations = pod.metadata.annotations.clone().unwrap_or_default();
    let hash = annotations.get(labels::CONFIG_HASH).cloned().unwrap_or_default();
    annotations.insert(labels::CONFIG_MIRROR.into(), hash);
    Pod {
        metadata: ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            labels: pod.metadata.labels.clone(),
            annotations: Some(annotations),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: node.metadata.name.clone().unwrap_or_default(),
                uid: node.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: pod.spec.clone(),
        status: None,
    }
}

/// Keeps the API's mirrors.
pub(crate) struct Mirroring {
    pub(crate) client: Client,
    pub(crate) node: NodeView,
    pub(crate) sources: Sources,
    pub(crate) workers: Arc<Workers>,
    pub(crate) mirrors: Arc<Mirrors>,
}

impl Mirroring {
    /// Makes and removes mirrors until the end.
    pub(crate) async fn keep(&self) {
        // Before all static Pods are known, their mirrors look like nobody's.
        self.sources.known().await;
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        loop {
            let pause = match self.look().await {
                Ok(()) => {
                    backoff.reset();
                    PERIOD
                }
                Err(error) => {
                    tracing::warn!(%error, "a mirror Pod could not be made or removed, will retry");
                    backoff.delay()
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.mirrors.woken.notified() => {}
            }
        }
    }

    async fn look(&self) -> Result<(), Status> {
        let wanted = self.sources.statics();
        let ending = self.workers.all().into_iter().map(|w| w.pod()).filter(|p| spec::is_static(p));
        let ending: Vec<Name> = ending.map(|pod| name(&pod)).collect();
        let mut failed = Ok(());
        for action in plan(&wanted, &ending, &self.mirrors.all()) {
            let done = match &action {
                Action::Create(pod) => self.create(pod).await,
                Action::Delete(mirror) => self.delete(mirror).await,
            };
            failed = done.and(failed);
        }
        failed
    }

    async fn create(&self, pod: &Pod) -> Result<(), Status> {
        // Without its Node nothing is mirrored; the Node's coming wakes this.
        let Some(node) = self.node.registered() else { return Ok(()) };
        let made = self.client.api::<Pod>(spec::namespace(pod)).create(&mirror(pod, &node)).await;
        match made {
            Err(error) if error.is_already_exists() => Ok(()),
            made => made.map(drop),
        }
    }

    async fn delete(&self, mirror: &Pod) -> Result<(), Status> {
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: mirror.metadata.uid.clone(),
                ..Preconditions::default()
            }),
            ..DeleteOptions::default()
        };
        let pods = self.client.api::<Pod>(spec::namespace(mirror));
        match pods.delete(spec::name(mirror), Some(&options)).await {
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            done => done.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pods::mirrors::annotation;

    fn a_static(name: &str, hash: &str) -> Arc<Pod> {
        let annotations = json!({labels::CONFIG_HASH: hash, labels::CONFIG_SOURCE: "file"});
        let meta = json!({"name": name, "namespace": "ns", "uid": hash, "annotations": annotations});
        let value = json!({"metadata": meta, "spec": {"containers": [{"name": "c"}]}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn a_mirror(name: &str, hash: &str, deleted: bool) -> Arc<Pod> {
        let node = Node {
            metadata: ObjectMeta { uid: Some("u".into()), ..Default::default() },
            ..Default::default()
        };
        let mut made = mirror(&a_static(name, hash), &node);
        made.metadata.uid = Some(format!("mirror-{hash}"));
        if deleted {
            made.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        }
        Arc::new(made)
    }

    #[test]
    fn each_static_pod_has_one_mirror() {
        let (web, db) = (a_static("web", "1"), a_static("db", "2"));
        let check = |wanted: &[&Arc<Pod>], ending: &[&str], mirrors: &[&Arc<Pod>], expected: &[Action]| {
            let own = |all: &[&Arc<Pod>]| all.iter().map(|p| (*p).clone()).collect::<Vec<_>>();
            let ending: Vec<Name> = ending.iter().map(|n| ("ns".to_owned(), (*n).to_owned())).collect();
            assert_eq!(plan(&own(wanted), &ending, &own(mirrors)), expected);
        };
        let mirror_of_web = a_mirror("web", "1", false);
        let (create, delete) = (Action::Create, Action::Delete);
        check(&[], &[], &[], &[]);
        check(&[&web, &db], &[], &[], &[create(web.clone()), create(db.clone())]);
        check(&[&web, &db], &["web", "db"], &[&mirror_of_web], &[create(db.clone())]);
        // Deleted by somebody, or of another manifest: it goes, and then comes anew.
        let deleted = a_mirror("web", "1", true);
        check(&[&web], &["web"], &[&deleted], &[delete(deleted.clone())]);
        let older = a_mirror("web", "0", false);
        check(&[&web], &["web"], &[&older], &[delete(older.clone())]);
        // The file is gone: the mirror stays until its containers have ended.
        check(&[], &["web"], &[&mirror_of_web], &[]);
        check(&[], &[], &[&mirror_of_web], &[delete(mirror_of_web.clone())]);
    }

    #[test]
    fn a_mirror_tells_of_its_pod() {
        let mirror = a_mirror("web", "1", false);
        assert!(spec::is_mirror(&mirror) && spec::is_critical(&mirror));
        assert_eq!(annotation(&mirror, labels::CONFIG_MIRROR), Some("1"));
        assert_eq!(annotation(&mirror, labels::CONFIG_SOURCE), Some("file"));
        let owners = mirror.metadata.owner_references.as_ref().unwrap();
        assert_eq!(
            (owners[0].kind.as_str(), owners[0].uid.as_str(), owners[0].controller),
            ("Node", "u", Some(true))
        );
        let mirrors = Mirrors::default();
        mirrors.put(mirror.clone());
        assert_eq!(mirrors.of(&a_static("web", "1")), Some(mirror.clone()));
        assert_eq!(mirrors.of(&a_static("web", "2")), None);
        mirrors.remove(&a_mirror("web", "9", false));
        assert!(mirrors.of(&a_static("web", "1")).is_some(), "another one of the name was meant");
        mirrors.remove(&mirror);
        assert!(mirrors.of(&a_static("web", "1")).is_none());
    }
}
