//! The four writes of a binding: the volume, its status, the claim, its status. The next one follows from what is there,
//! so a binding goes on wherever it was interrupted.

use k8s_openapi::api::core::v1::{
    PersistentVolume as Volume, PersistentVolumeClaim as Claim, PersistentVolumeClaimStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use objects::volumes::{self, BIND_COMPLETED, BOUND_BY_CONTROLLER};

use super::names::{
    PRE_RESIZE, annotate, annotation, claim_of, name, phase_of_claim, phase_of_volume, unannotate,
    volume_spec,
};
use super::step::{Step, Write};

/// Returns the next step of a binding.
pub(super) fn bind(volume: &Volume, claim: &Claim) -> Step {
    if let Some(bound) = volumes::bound_to(volume, claim) {
        return Step::write(Write::Volume(Box::new(bound)));
    }
    if let Some(write) = volume_phase(volume, "Bound", "") {
        return Step::write(write);
    }
    if let Some(bound) = claim_bound_to(claim, volume) {
        return Step::write(Write::Claim(Box::new(bound)));
    }
    match claim_status(claim, "Bound", Some(volume)) {
        Ok(write) => Step::last(write),
        Err(error) => Step::fail(error),
    }
}

/// Returns a claim with its binding written down; `None` if it says so already.
fn claim_bound_to(claim: &Claim, volume: &Volume) -> Option<Claim> {
    let (named, completed) = (
        volumes::volume_name(claim) == name(&volume.metadata),
        annotation(&claim.metadata, BIND_COMPLETED).is_some(),
    );
    if named && completed {
        return None;
    }
    let mut claim = claim.clone();
    if !named {
        claim.spec.get_or_insert_default().volume_name.clone_from(&volume.metadata.name);
        if annotation(&claim.metadata, BOUND_BY_CONTROLLER).is_none() {
            annotate(&mut claim.metadata, BOUND_BY_CONTROLLER, "yes");
        }
    }
    if !completed {
        annotate(&mut claim.metadata, BIND_COMPLETED, "yes");
    }
    Some(claim)
}

/// Returns the write of a volume's phase, if it differs.
pub(super) fn volume_phase(volume: &Volume, phase: &str, message: &str) -> Option<Write> {
    if phase_of_volume(volume) == phase {
        return None;
    }
    let mut volume = volume.clone();
    let status = volume.status.get_or_insert_default();
    status.phase = Some(phase.to_owned());
    status.message = Some(message.to_owned()).filter(|m| !m.is_empty());
    Some(Write::VolumeStatus(Box::new(volume)))
}

/// Returns the write of a claim's status, if it differs: the phase, and how the volume may be used.
///
/// # Errors
/// The volume has no size.
pub(super) fn claim_status(
    claim: &Claim,
    phase: &str,
    volume: Option<&Volume>,
) -> Result<Option<Write>, String> {
    let old = claim.status.clone().unwrap_or_default();
    let mut new = PersistentVolumeClaimStatus { phase: Some(phase.to_owned()), ..old.clone() };
    if let Some(volume) = volume {
        new.access_modes.clone_from(&volume_spec(volume).access_modes);
        // The size changes only with the binding: later, the file system may be smaller than the volume.
        if phase_of_claim(claim) != phase {
            set_capacity(&mut new, volume)?;
        }
        if phase_of_claim(claim) == "Pending" && phase == "Bound" {
            let class = &volume_spec(volume).volume_attributes_class_name;
            new.current_volume_attributes_class_name.clone_from(class);
        }
    } else {
        new.access_modes = None;
        new.capacity = None;
        new.current_volume_attributes_class_name = None;
    }
    if new == old {
        return Ok(None);
    }
    let claim = Claim { status: Some(new), ..claim.clone() };
    Ok(Some(Write::ClaimStatus(Box::new(claim))))
}

fn set_capacity(status: &mut PersistentVolumeClaimStatus, volume: &Volume) -> Result<(), String> {
    let capacity = volume_spec(volume).capacity.as_ref();
    let Some(size) = capacity.and_then(|c| c.get("storage")) else {
        return Err(format!("PersistentVolume {:?} is without a storage capacity", name(&volume.metadata)));
    };
    if let Some(before) = annotation(&volume.metadata, PRE_RESIZE) {
        let valid = api::quantity::Quantity::parse(before).is_ok();
        let shown = if valid { Quantity(before.to_owned()) } else { size.clone() };
        status.capacity.get_or_insert_default().insert("storage".to_owned(), shown);
        return Ok(());
    }
    let amount = |q: &Quantity| api::quantity::Quantity::parse(&q.0).ok();
    let told = status.capacity.as_ref().and_then(|c| c.get("storage"));
    if told.and_then(amount) != amount(size) || told.is_none() {
        status.capacity = capacity.cloned();
    }
    Ok(())
}

/// Returns the next step towards a volume that no claim has: one that the user meant for a claim is still meant for it.
pub(super) fn unbind(volume: &Volume) -> Step {
    let mut free = volume.clone();
    if unannotate(&mut free.metadata, BOUND_BY_CONTROLLER) {
        free.spec.get_or_insert_default().claim_ref = None;
    } else if let Some(reference) = free.spec.as_mut().and_then(|s| s.claim_ref.as_mut()) {
        reference.uid = None;
    }
    let changed = claim_of(&free) != claim_of(volume);
    if changed {
        Step::write(Write::Volume(Box::new(free)))
    } else {
        Step::last(volume_phase(volume, "Available", ""))
    }
}
