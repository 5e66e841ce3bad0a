//! The next step about a volume (upstream: `syncVolume`).

use api::go::quote;
use client::EventType::{Normal, Warning};
use client::Key;
use k8s_openapi::api::core::v1::{PersistentVolume as Volume, PersistentVolumeClaim as Claim};
use objects::volumes::volume_name;

use super::binding::{unbind, volume_phase};
use super::names::{
    IN_TREE, MIGRATED_TO, PROVISIONED_BY, annotation, claim_of, name, namespace, phase_of_volume,
    reclaim_policy, volume_spec,
};
use super::step::{Step, Told, Write};
use super::{matching, migration};

/// Returns the next step about a volume. `claim` is the claim that the volume names, with the uid that it names;
/// `None` if that is gone. `users` returns the Pods that use a claim that is gone.
pub(super) fn plan(volume: &Volume, claim: Option<&Claim>, users: &dyn Fn() -> Vec<String>) -> Step {
    if let Some(changed) = migration::of_volume(volume) {
        return Step::write(Write::Volume(Box::new(changed)));
    }
    let bound = claim_of(volume).is_some_and(|r| r.uid.as_deref().is_some_and(|uid| !uid.is_empty()));
    if !bound {
        return Step::last(volume_phase(volume, "Available", ""));
    }
    let Some(claim) = claim else { return released(volume, users) };
    match volume_name(claim) {
        "" => unfinished(volume, claim),
        named if named == name(&volume.metadata) => Step::last(volume_phase(volume, "Bound", "")),
        // The claim is bound to another volume.
        _ if annotation(&volume.metadata, PROVISIONED_BY).is_some() && reclaim_policy(volume) == "Delete" => {
            released(volume, users)
        }
        _ => unbind(volume),
    }
}

/// A volume whose claim does not name it yet.
fn unfinished(volume: &Volume, claim: &Claim) -> Step {
    if matching::modes_differ(claim, volume) {
        // No look at the claim finds this volume.
        let (of_claim, of_volume) = (quote(name(&claim.metadata)), quote(name(&volume.metadata)));
        let about_volume = format!(
            "Cannot bind PersistentVolume to requested PersistentVolumeClaim {of_claim} due to incompatible volumeMode."
        );
        let about_claim = format!(
            "Cannot bind PersistentVolume {of_volume} to requested PersistentVolumeClaim due to incompatible volumeMode."
        );
        return Step::tell(Told::volume(Warning, "VolumeMismatch", about_volume)).telling(Told::claim(
            Warning,
            "VolumeMismatch",
            about_claim,
        ));
    }
    let key = Key::new(namespace(&claim.metadata), name(&claim.metadata));
    Step { look_at: Some(key), ..Step::nothing() }
}

/// A volume whose claim is gone.
fn released(volume: &Volume, users: &dyn Fn() -> Vec<String>) -> Step {
    if !matches!(phase_of_volume(volume), "Released" | "Failed")
        && let Some(write) = volume_phase(volume, "Released", "")
    {
        return Step::write(write);
    }
    reclaim(volume, users)
}

/// Does with a volume that nobody uses any more as its policy says.
///
/// DIFFERENCE: upstream recycles volumes of the kinds hostPath and NFS, and removes directories below `/tmp` of the
/// machine on which the controllers run. Both are deprecated, and here neither has a plugin.
fn reclaim(volume: &Volume, users: &dyn Fn() -> Vec<String>) -> Step {
    if annotation(&volume.metadata, MIGRATED_TO).is_some_and(|driver| !driver.is_empty()) {
        return Step::nothing();
    }
    match reclaim_policy(volume) {
        "Retain" => Step::nothing(),
        "Recycle" => match users().as_slice() {
            [] => {
                let message = "No recycler plugin found for the volume!";
                failed(volume, "VolumeFailedRecycle", message.to_owned())
            }
            pods => {
                let message = format!("Volume is used by pods: {}", pods.join(","));
                Step::tell(Told::volume(Normal, "VolumeFailedRecycle", message))
            }
        },
        "Delete" => match without_deleter(volume) {
            Some(why) => failed(volume, "VolumeFailedDelete", why),
            None => Step::nothing(),
        },
        _ => {
            let message = "Volume has unrecognized PersistentVolumeReclaimPolicy";
            failed(volume, "VolumeUnknownReclaimPolicy", message.to_owned())
        }
    }
}

/// Says why nobody deletes a volume; `None` if a provisioner does.
fn without_deleter(volume: &Volume) -> Option<String> {
    match annotation(&volume.metadata, PROVISIONED_BY).filter(|p| !p.is_empty()) {
        Some(provisioner) if provisioner.starts_with(IN_TREE) => {
            Some(format!("no volume plugin matched name: {provisioner}"))
        }
        Some(_) => None,
        None if volume_spec(volume).csi.is_some() => None,
        None => {
            let named = quote(name(&volume.metadata));
            Some(format!("error getting deleter volume plugin for volume {named}: no volume plugin matched"))
        }
    }
}

fn failed(volume: &Volume, reason: &'static str, message: String) -> Step {
    let write = volume_phase(volume, "Failed", &message);
    Step::last(write).telling_of_write(Told::volume(Warning, reason, message))
}
