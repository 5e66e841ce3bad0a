//! Carries out what is planned for a StatefulSet's Pods and claims, with the Events about it (upstream's
//! `StatefulPodControl`).

use api::Status;
use client::{Client, EventType, Patch, Recorder, resource_of};
use futures::future::join_all;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use serde_json::json;

use super::claims::Owners;
use super::identity;
use super::plan::{Phase, Step};
use super::set;
use super::snapshot::{Snapshot, references, revision_of};
use crate::common::batch::slow_start;
use crate::common::{deleting, retry};
use crate::views::PodView;

/// The verbs of Events.
const CREATE: &str = "Create";
const UPDATE: &str = "Update";
const DELETE: &str = "Delete";

/// Writes Pods and claims of StatefulSets.
pub(super) struct Control {
    client: Client,
    recorder: Recorder,
}

/// The things that a step is taken with.
struct Work<'a> {
    control: &'a Control,
    snapshot: &'a Snapshot<'a>,
    set: &'a StatefulSet,
}

impl Control {
    /// Makes it with the controller's client and its Events.
    pub(super) fn new(client: Client, recorder: Recorder) -> Self {
        Self { client, recorder }
    }

    /// Takes the steps of phases until one fails. Returns the number of Pods of the current revision that were deleted
    /// for the update, and the error.
    pub(super) async fn execute(&self, s: &Snapshot<'_>, phases: &[Phase]) -> (i32, Result<(), Status>) {
        let work = Work { control: self, snapshot: s, set: s.set };
        let mut replaced = 0;
        for phase in phases {
            if phase.at_once {
                let (_, result) = slow_start(phase.steps.len(), |i| work.take(&phase.steps[i])).await;
                if result.is_err() {
                    return (replaced, result);
                }
                continue;
            }
            for step in &phase.steps {
                if let Err(error) = work.take(step).await {
                    return (replaced, Err(error));
                }
                if let Step::Update(pod) = step {
                    replaced += i32::from(revision_of(pod) == s.current.name);
                }
            }
        }
        (replaced, Ok(()))
    }
}

impl Work<'_> {
    fn namespace(&self) -> &str {
        self.set.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn say(&self, verb: &str, failed: bool, text: String) {
        let (kind, how) =
            if failed { (EventType::Warning, "Failed") } else { (EventType::Normal, "Successful") };
        self.control.recorder.event(self.set, kind, &format!("{how}{verb}"), text);
    }

    /// Tells what became of a Pod.
    fn say_of_pod(&self, verb: &str, pod: &str, result: &Result<(), Status>) {
        let name = set::name(&self.set.metadata);
        let text = match result {
            Ok(()) => format!("{verb} Pod {pod} in StatefulSet {name} successful"),
            Err(e) => format!("{verb} Pod {pod} in StatefulSet {name} failed error: {e}"),
        };
        self.say(verb, result.is_err(), text);
    }

    async fn take(&self, step: &Step) -> Result<(), Status> {
        match step {
            Step::Create(ordinal, pod) => self.create(*ordinal, pod).await,
            Step::Delete(pod) | Step::Update(pod) => self.delete(pod).await,
            Step::MakeClaims(ordinal, pod) => {
                self.make_claims(*ordinal, pod.name(), pod.uid()).await?;
                let owned = self.own_claims(*ordinal, pod.name(), pod.uid()).await;
                if owned.is_err() {
                    self.say_of_pod(UPDATE, pod.name(), &owned);
                }
                owned
            }
            Step::OwnClaims(ordinal, pod) => self.own_claims(*ordinal, pod.name(), pod.uid()).await,
            Step::Mend(ordinal, pod) => {
                let result = self.mend(*ordinal, pod).await;
                self.say_of_pod(UPDATE, pod.name(), &result);
                result
            }
        }
    }

    async fn create(&self, ordinal: i64, pod: &Pod) -> Result<(), Status> {
        let name = set::name(&pod.metadata);
        let result = async {
            self.make_claims(ordinal, name, "").await?;
            self.control.client.api::<Pod>(self.namespace()).create(pod).await.map(drop)
        }
        .await;
        match &result {
            // The cache does not show it yet.
            Err(e) if e.is_already_exists() => return result,
            Err(_) => {}
            Ok(()) => {
                let owned = self.own_claims(ordinal, name, "").await;
                if owned.is_err() {
                    self.say_of_pod(UPDATE, name, &owned);
                    return owned;
                }
            }
        }
        self.say_of_pod(CREATE, name, &result);
        result
    }

    /// Deletes a Pod, and no other one of its name.
    async fn delete(&self, pod: &PodView) -> Result<(), Status> {
        let only = Preconditions { uid: Some(pod.uid().to_owned()), resource_version: None };
        let options = DeleteOptions { preconditions: Some(only), ..DeleteOptions::default() };
        let result =
            match self.control.client.api::<Pod>(self.namespace()).delete(pod.name(), Some(&options)).await {
                Err(e) if e.is_not_found() => Ok(()),
                result => result,
            };
        self.say_of_pod(DELETE, pod.name(), &result);
        result
    }

    /// Gives a Pod what it lacks of its identity. Its name fits, and its host name cannot change any more.
    async fn mend(&self, ordinal: i64, pod: &PodView) -> Result<(), Status> {
        let mut patch = json!({"metadata": {"uid": pod.uid()}});
        let identified = identity::has_identity(pod);
        if !identified {
            patch["metadata"]["labels"] = json!(identity::labels(pod.name(), ordinal));
        }
        let stored = identity::has_storage(self.set, ordinal, pod);
        if !stored {
            self.make_claims(ordinal, pod.name(), pod.uid()).await?;
            patch["spec"] = json!({"volumes": identity::volumes(self.set, ordinal, &[])});
        }
        self.own_claims(ordinal, pod.name(), pod.uid()).await?;
        if !identified || !stored {
            let pods = self.control.client.resource::<PodView>(resource_of::<Pod>(), self.namespace());
            pods.patch(pod.name(), &Patch::Strategic(patch)).await?;
        }
        Ok(())
    }

    /// Makes the claims of a Pod that there are not yet, with their owners.
    async fn make_claims(&self, ordinal: i64, pod: &str, uid: &str) -> Result<(), Status> {
        let owners = self.snapshot.owners(ordinal, pod, uid);
        let all = identity::claims(self.set, ordinal);
        let each = all.into_iter().map(|claim| self.make_claim(claim, owners));
        let errors: Vec<Status> = join_all(each).await.into_iter().filter_map(Result::err).collect();
        together(errors)
    }

    async fn make_claim(&self, mut claim: PersistentVolumeClaim, owners: Owners<'_>) -> Result<(), Status> {
        let name = set::name(&claim.metadata).to_owned();
        match (self.snapshot.claim)(&name) {
            Some(there) if deleting(&there.metadata) => {
                return Err(retry(format_args!("pvc {name} is being deleted")));
            }
            Some(_) => return Ok(()),
            None => {}
        }
        let refs = owners.correct(references(&claim));
        claim.metadata.owner_references = Some(refs).filter(|refs| !refs.is_empty());
        let result = self.control.client.api::<PersistentVolumeClaim>(self.namespace()).create(&claim).await;
        let set = set::name(&self.set.metadata);
        let pod = owners.pod;
        match result {
            Ok(_) => {
                let text = format!("{CREATE} Claim {name} Pod {pod} in StatefulSet {set} success");
                self.say(CREATE, false, text);
                Ok(())
            }
            Err(e) => {
                if !e.is_already_exists() {
                    let text =
                        format!("{CREATE} Claim {name} for Pod {pod} in StatefulSet {set} failed error: {e}");
                    self.say(CREATE, true, text);
                }
                Err(Status { message: format!("failed to create PVC {name}: {e}"), ..e })
            }
        }
    }

    /// Gives the claims of a Pod the right owners.
    async fn own_claims(&self, ordinal: i64, pod: &str, uid: &str) -> Result<(), Status> {
        let owners = self.snapshot.owners(ordinal, pod, uid);
        for claim in identity::claims(self.set, ordinal) {
            let name = set::name(&claim.metadata);
            // A claim that was just made has its owners.
            let Some(known) = (self.snapshot.claim)(name) else { continue };
            if owners.has_other_controller(references(&known)) {
                let text = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging \
                     controller, the retention policy is ignored for this claim"
                );
                self.control.recorder.event(self.set, EventType::Warning, "ConflictingController", text);
            }
            if owners.are_right(references(&known)) {
                continue;
            }
            self.write_owners((*known).clone(), owners).await.map_err(|e| Status {
                message: format!("could not update claim {name} for delete policy ownerRefs: {e}"),
                ..e
            })?;
        }
        Ok(())
    }

    /// Writes a claim's owners; once more on the newest claim if another write came between.
    async fn write_owners(&self, mut claim: PersistentVolumeClaim, owners: Owners<'_>) -> Result<(), Status> {
        let api = self.control.client.api::<PersistentVolumeClaim>(self.namespace());
        let correct = |claim: &mut PersistentVolumeClaim| {
            claim.metadata.owner_references = Some(owners.correct(references(claim)));
        };
        correct(&mut claim);
        match api.update(&claim).await {
            Err(e) if e.is_conflict() => {
                let mut fresh = api.get(set::name(&claim.metadata)).await?;
                if owners.are_right(references(&fresh)) {
                    return Ok(());
                }
                correct(&mut fresh);
                api.update(&fresh).await.map(drop)
            }
            answer => answer.map(drop),
        }
    }
}

/// Makes one error of several: the first, with the texts of all.
fn together(errors: Vec<Status>) -> Result<(), Status> {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match errors.into_iter().next() {
        None => Ok(()),
        Some(only) if texts.len() == 1 => Err(only),
        Some(first) => Err(Status { message: format!("[{}]", texts.join(", ")), ..first }),
    }
}
