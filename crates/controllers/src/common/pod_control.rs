//! The Pods that a controller makes and deletes, with the Events about them.

use std::collections::BTreeMap;

use api::Status;
use client::{Api, Client, EventType, KubeObject, Recorder};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{controller_ref, namespace_is_terminating, retry};

/// The greatest length of a Pod's name.
const NAME_LIMIT: usize = 253;

/// The result of a Pod's deletion.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// The deletion has begun.
    Begun,
    /// The Pod was gone already.
    Gone,
}

/// Makes and deletes Pods for a controller (upstream's `RealPodControl`).
pub(crate) struct PodControl {
    client: Client,
    recorder: Recorder,
}

impl PodControl {
    /// Makes it with the controller's client and its Events.
    pub(crate) fn new(client: Client, recorder: Recorder) -> Self {
        Self { client, recorder }
    }

    fn api(&self, owner: &ObjectMeta) -> Api<Pod> {
        self.client.api(owner.namespace.as_deref().unwrap_or_default())
    }

    /// Makes a Pod for its owner; `false` if that has no use, since the namespace is being deleted.
    pub(crate) async fn create<T: KubeObject>(&self, owner: &T, pod: &Pod) -> Result<bool, Status> {
        match self.api(owner.metadata()).create(pod).await {
            Ok(made) => {
                let text = format!("Created pod: {}", made.metadata.name.unwrap_or_default());
                self.recorder.event(owner, EventType::Normal, "SuccessfulCreate", text);
                Ok(true)
            }
            Err(e) if namespace_is_terminating(&e) => Ok(false),
            Err(e) => {
                let text = format!("Error creating: {e}");
                self.recorder.event(owner, EventType::Warning, "FailedCreate", text);
                Err(e)
            }
        }
    }

    /// Deletes a Pod of its owner, by the Pod's name.
    pub(crate) async fn delete<T: KubeObject>(&self, owner: &T, name: &str) -> Result<Deletion, Status> {
        match self.api(owner.metadata()).delete(name, None).await {
            Ok(()) => {
                let text = format!("Deleted pod: {name}");
                self.recorder.event(owner, EventType::Normal, "SuccessfulDelete", text);
                Ok(Deletion::Begun)
            }
            Err(e) if e.is_not_found() => Ok(Deletion::Gone),
            Err(e) => {
                let text = format!("Error deleting: {e}");
                self.recorder.event(owner, EventType::Warning, "FailedDelete", text);
                Err(Status { message: format!("unable to delete pods: {e}"), ..e })
            }
        }
    }
}

/// Makes the Pod of an owner's template, with a name that begins with the owner's.
///
/// # Errors
/// The template has no labels, by which the owner could find the Pod.
pub(crate) fn from_template<T: KubeObject>(
    owner: &T,
    template: Option<&PodTemplateSpec>,
) -> Result<Pod, Status> {
    let labels = |t: &PodTemplateSpec| t.metadata.as_ref().and_then(|m| m.labels.clone());
    let found = template.and_then(|t| Some((t, labels(t).filter(|l: &BTreeMap<_, _>| !l.is_empty())?)));
    let Some((template, labels)) = found else { return Err(retry("unable to create pods, no labels")) };
    let from = template.metadata.clone().unwrap_or_default();
    let name = owner.metadata().name.as_deref().unwrap_or_default();
    let dash = if name.len() < NAME_LIMIT { "-" } else { "" };
    Ok(Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}{dash}")),
            namespace: owner.metadata().namespace.clone(),
            labels: Some(labels),
            annotations: from.annotations,
            finalizers: from.finalizers,
            owner_references: Some(vec![controller_ref(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use serde_json::{Value, json};

    use super::*;
    use crate::fake::{Cluster, Fault};

    fn set(name: &str) -> ReplicaSet {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns", "uid": "u"}})).unwrap()
    }

    fn template(value: Value) -> PodTemplateSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn pods_of_templates() {
        let labelled = template(
            json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["f"]}, "spec": {"containers": []}}),
        );
        let pod = from_template(&set("rs"), Some(&labelled)).unwrap();
        assert_eq!(pod.metadata.generate_name.as_deref(), Some("rs-"));
        assert_eq!(pod.metadata.owner_references.as_ref().unwrap()[0].uid, "u");
        assert_eq!(pod.metadata.finalizers.as_deref(), Some(&["f".to_owned()][..]));
        let long = "n".repeat(NAME_LIMIT);
        assert_eq!(from_template(&set(&long), Some(&labelled)).unwrap().metadata.generate_name, Some(long));
        for bare in [None, Some(template(json!({}))), Some(template(json!({"metadata": {"labels": {}}})))] {
            let error = from_template(&set("rs"), bare.as_ref()).unwrap_err();
            assert_eq!(error.message, retry("unable to create pods, no labels").message);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_tell_of_each() {
        let cluster = Cluster::new();
        let recorder = Recorder::start(cluster.client.clone(), "c", "", cluster.clock, &cluster.shutdown);
        let (control, owner) = (PodControl::new(cluster.client.clone(), recorder), set("rs"));
        let pod =
            from_template(&owner, Some(&template(json!({"metadata": {"labels": {"a": "b"}}})))).unwrap();
        // Events of one moment would have the same name.
        let moment = || tokio::time::advance(std::time::Duration::from_millis(1));
        assert_eq!(control.create(&owner, &pod).await, Ok(true));
        moment().await;
        let made = cluster.fake.list::<Pod>().remove(0);
        assert_eq!(control.delete(&owner, made.metadata.name.as_deref().unwrap()).await, Ok(Deletion::Begun));
        assert_eq!(control.delete(&owner, made.metadata.name.as_deref().unwrap()).await, Ok(Deletion::Gone));
        moment().await;
        cluster.fake.fail(|call| {
            (call.resource.plural == "pods")
                .then(|| Fault::Refuse(Status::failure(403, "Forbidden", "quota")))
        });
        assert_eq!(control.create(&owner, &pod).await.unwrap_err().message, "quota");
        moment().await;
        assert_eq!(
            control.delete(&owner, made.metadata.name.as_deref().unwrap()).await.unwrap_err().message,
            "unable to delete pods: quota"
        );
        let want = ["FailedCreate", "FailedDelete", "SuccessfulCreate", "SuccessfulDelete"];
        crate::fake::eventually("four events", || {
            let mut reasons = cluster.fake.reasons();
            reasons.sort();
            reasons == want
        })
        .await;
    }
}
