//! The growth of a claim whose volume is a directory of the node: there is nothing to be done, and the claim is told so
//! (upstream: `NodeExpand` of `pkg/volume/local`).

use client::Client;
use component::{Clock, Turns};
use k8s_openapi::api::core::v1::Pod;

use super::growth::{Growth, Sizes};
use crate::recorder::PodRecorder;

/// The directories of the node that are volumes of claims.
pub(super) struct Directories {
    client: Client,
    recorder: PodRecorder,
    clock: Clock,
    /// The node's name.
    node: String,
    /// By the names of PersistentVolumes.
    sizes: Sizes<String>,
    /// One Pod at a time looks at a volume.
    turns: Turns<String>,
}

impl Directories {
    /// None yet.
    pub(super) fn new(client: Client, recorder: PodRecorder, clock: Clock, node: &str) -> Self {
        let (sizes, turns) = (Sizes::default(), Turns::default());
        Self { client, recorder, clock, node: node.to_owned(), sizes, turns }
    }

    /// Looks whether the volume of a Pod's claim is to grow, and says that it has.
    ///
    /// # Errors
    /// The claim cannot be told.
    pub(super) async fn look(&self, pod: &Pod, volume: &str, claim: &(String, String)) -> Result<(), String> {
        let _turn = self.turns.take(volume.to_owned()).await;
        let growth = Growth {
            client: &self.client,
            recorder: &self.recorder,
            clock: self.clock,
            node: &self.node,
            pod,
            volume,
            claim,
        };
        let Some(due) = growth.due(None).await else { return Ok(()) };
        if !due.is_now(self.sizes.of(volume.to_owned(), due.has)) {
            return Ok(());
        }
        growth.begin(&due).await?;
        self.sizes.grown(volume.to_owned(), due.capacity);
        growth.end(&due).await
    }

    /// Forgets a volume that no Pod of this node has.
    pub(super) fn forget(&self, volume: &str) {
        self.sizes.forget(volume);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::Status;
    use client::Recorder;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{self, Answers};

    /// A claim and its volume of 2Gi; patches of the claim are kept.
    struct Server {
        status: Value,
        patches: Mutex<Vec<Value>>,
    }

    impl Answers for Server {
        fn answer(&self, call: &client::Call) -> Result<Value, Status> {
            if !call.body.is_empty() {
                self.patches.lock().push(serde_json::from_slice(&call.body).unwrap());
            }
            match &*call.name {
                "c" => Ok(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "metadata": {"name": "c", "namespace": "n", "resourceVersion": "7"},
                    "spec": {"accessModes": ["ReadWriteOnce"]}, "status": self.status})),
                "pv" => Ok(json!({"apiVersion": "v1", "kind": "PersistentVolume",
                    "metadata": {"name": "pv"}, "spec": {"capacity": {"storage": "2Gi"}}})),
                _ => Err(testing::not_found()),
            }
        }
    }

    #[tokio::test]
    async fn a_claim_is_told_that_its_directory_has_grown() {
        let check = async |status: Value, expected: &[(&str, &str)]| {
            let server = Arc::new(Server { status: status.clone(), patches: Mutex::default() });
            let (recorder, mut events) = Recorder::channel("kubelet", Clock::system());
            let of = Directories::new(testing::client(&server), PodRecorder(recorder), Clock::system(), "n");
            let pod =
                serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}}));
            let (pod, claim) = (pod.unwrap(), ("n".to_owned(), "c".to_owned()));
            of.look(&pod, "pv", &claim).await.unwrap();
            let told = server.patches.lock().clone();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let got: Vec<(String, String)> = told
                .iter()
                .map(|p| {
                    let status = &p["status"];
                    let state = &status["allocatedResourceStatuses"]["storage"];
                    (text(state), text(&status["capacity"]["storage"]))
                })
                .collect();
            let want: Vec<(String, String)> =
                expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            assert_eq!(got, want, "{status}");
            let mut events = std::iter::from_fn(|| events.try_recv().ok());
            let first = events.next().map(|event| event.message.unwrap_or_default());
            let message = "MountVolume.NodeExpandVolume succeeded for volume \"pv\" n";
            assert_eq!(first.as_deref(), (!expected.is_empty()).then_some(message));
        };
        let has = |room: &str| json!({"capacity": {"storage": room}});
        // The capacity of the PersistentVolume was set by hand.
        check(has("1Gi"), &[("", "2147483648")]).await;
        check(has("2Gi"), &[]).await;
        let mut pending = has("1Gi");
        pending["allocatedResources"] = json!({"storage": "2Gi"});
        check(pending.clone(), &[]).await;
        pending["allocatedResourceStatuses"] = json!({"storage": "NodeResizePending"});
        check(pending, &[("NodeResizeInProgress", ""), ("", "2Gi")]).await;
    }
}
