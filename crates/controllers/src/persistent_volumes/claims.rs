//! The next step about a claim (upstream: `syncClaim`).

use std::sync::Arc;

use api::go::quote;
use client::EventType::{Normal, Warning};
use k8s_openapi::api::core::v1::{PersistentVolume as Volume, PersistentVolumeClaim as Claim};
use k8s_openapi::api::storage::v1::StorageClass;
use objects::volumes::{self, BOUND_BY_CONTROLLER};

use super::binding::{bind, claim_status};
use super::names::{
    self, BETA_PROVISIONER, IN_TREE, Named, PROVISIONER, annotate, annotation, claim_of, key_of,
    phase_of_claim, uid,
};
use super::step::{Step, Told, Write};
use super::{matching, migration};

/// The objects among which claims and volumes find each other.
pub(super) trait World {
    /// Returns a volume.
    fn volume(&self, name: &str) -> Option<Arc<Volume>>;
    /// Returns the volumes that name a claim, and those of its class that name none.
    fn candidates(&self, claim: &Claim) -> Vec<Arc<Volume>>;
    /// Returns a class.
    fn class(&self, name: &str) -> Option<Arc<StorageClass>>;
    /// Returns all classes.
    fn classes(&self) -> Vec<Arc<StorageClass>>;
    /// Returns the names of the Pods that use a claim and have no node yet.
    fn waiting_pods(&self, claim: &Claim) -> Vec<String>;
    /// Whether volumes are provisioned.
    fn provisions(&self) -> bool;
}

/// Returns the next step about a claim.
pub(super) fn plan(claim: &Claim, world: &impl World) -> Step {
    if let Some(migrated) = migration::of_claim(claim) {
        return Step::write(Write::Claim(Box::new(migrated)));
    }
    let completed = !names::is_unbound(claim);
    match (completed, volumes::volume_name(claim)) {
        (false, "") => unnamed(claim, world),
        (false, volume) => prebound(claim, volume, world),
        (true, volume) => completed_one(claim, volume, world),
    }
}

/// Makes a claim Pending.
fn pending(claim: &Claim) -> Step {
    match claim_status(claim, "Pending", None) {
        Ok(write) => Step::last(write),
        Err(error) => Step::fail(error),
    }
}

/// A claim for which any volume will do.
fn unnamed(claim: &Claim, world: &impl World) -> Step {
    let class = match volumes::claim_class(claim) {
        "" => None,
        name => world.class(name),
    };
    let found = volumes::waits_for_consumer(class.as_deref()).and_then(|delayed| {
        let found = matching::find(claim, world.candidates(claim), delayed);
        let found =
            found.map_err(|e| format!("error finding PV for claim {}: {e}", quote(&key_of(claim))))?;
        Ok((delayed, found))
    });
    let delayed = match found {
        Err(error) => return Step::fail(error),
        Ok((_, Some(volume))) => return bind(&volume, claim),
        Ok((delayed, None)) => delayed,
    };
    if !names::has_class(claim) {
        let classes = world.classes();
        if let Some(class) = names::default_class(classes.iter().map(Arc::as_ref)) {
            let mut claim = claim.clone();
            claim.spec.get_or_insert_default().storage_class_name.clone_from(&class.metadata.name);
            return Step { gives_class: true, ..Step::last(Some(Write::Claim(Box::new(claim)))) };
        }
    }
    if delayed && volumes::selected_node(claim).is_none() {
        return pending(claim).telling(waiting(&world.waiting_pods(claim)));
    }
    if volumes::claim_class(claim).is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        return pending(claim).telling(Told::claim(Normal, "FailedBinding", message));
    }
    provision(claim, class.as_deref(), world)
}

/// Says for what a claim waits that is bound with its first Pod.
fn waiting(pods: &[String]) -> Told {
    let scheduled = "WaitForPodScheduled";
    match pods {
        [] => {
            let message = "waiting for first consumer to be created before binding";
            Told::claim(Normal, "WaitForFirstConsumer", message)
        }
        [pod] => Told::claim(Normal, scheduled, format!("waiting for pod {pod} to be scheduled")),
        pods => {
            Told::claim(Normal, scheduled, format!("waiting for pods {} to be scheduled", pods.join(",")))
        }
    }
}

/// Asks the provisioner of a claim's class for a volume.
fn provision(claim: &Claim, class: Option<&StorageClass>, world: &impl World) -> Step {
    if !world.provisions() {
        return Step::nothing();
    }
    let failed = |message: String| Step::tell(Told::claim(Warning, "ProvisioningFailed", message));
    let Some(class) = class else {
        let named = quote(volumes::claim_class(claim));
        return failed(format!("storageclass.storage.k8s.io {named} not found"));
    };
    let provisioner = match migration::driver(&class.provisioner) {
        Some(driver) => driver,
        // None of the volumes' plugins is built in.
        None if class.provisioner.starts_with(IN_TREE) => {
            return failed(format!("no volume plugin matched name: {}", class.provisioner));
        }
        None => &class.provisioner,
    };
    let told = Told::claim(
        Normal,
        "ExternalProvisioning",
        format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
        ),
    );
    if annotation(&claim.metadata, PROVISIONER) == Some(provisioner) {
        return Step::tell(told);
    }
    let mut asking = claim.clone();
    annotate(&mut asking.metadata, BETA_PROVISIONER, provisioner);
    annotate(&mut asking.metadata, PROVISIONER, provisioner);
    migration::mark_claim(&mut asking.metadata);
    Step::last(Some(Write::Claim(Box::new(asking)))).telling(told)
}

/// A claim that names a volume and is not bound yet.
fn prebound(claim: &Claim, named: &str, world: &impl World) -> Step {
    let Some(volume) = world.volume(named) else { return pending(claim) };
    let Some(reference) = claim_of(&volume) else {
        let Some(why) = matching::unsatisfied(&volume, claim) else { return bind(&volume, claim) };
        let message = format!("Cannot bind to requested volume {}: {why}", quote(named));
        return pending(claim).telling(Told::claim(Warning, "VolumeMismatch", message));
    };
    if volumes::is_meant_for(&volume, claim) {
        return bind(&volume, claim);
    }
    let message = format!("volume {} already bound to a different claim.", quote(named));
    let told = Told::claim(Warning, "FailedBinding", message);
    if annotation(&claim.metadata, BOUND_BY_CONTROLLER).is_none() {
        return pending(claim).telling(told);
    }
    let other = Named::of(reference);
    let error = format!(
        "invalid binding of claim {} to volume {}: volume already claimed by {}",
        quote(&key_of(claim)),
        quote(named),
        quote(&format!("{}/{}", other.namespace, other.name))
    );
    Step::fail(error).telling(told)
}

/// A claim that was bound before.
fn completed_one(claim: &Claim, named: &str, world: &impl World) -> Step {
    if named.is_empty() {
        let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
        return lost(claim, "ClaimLost", message);
    }
    let Some(volume) = world.volume(named) else {
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return lost(claim, "ClaimLost", message);
    };
    match claim_of(&volume).map(|r| Named::of(r).uid) {
        Some(other) if other != uid(&claim.metadata) => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            lost(claim, "ClaimMisbound", message)
        }
        _ => bind(&volume, claim),
    }
}

fn lost(claim: &Claim, reason: &'static str, message: &str) -> Step {
    if phase_of_claim(claim) == "Lost" {
        return Step::nothing();
    }
    match claim_status(claim, "Lost", None) {
        Ok(write) => Step::last(write).telling_of_write(Told::claim(Warning, reason, message)),
        Err(error) => Step::fail(error),
    }
}
