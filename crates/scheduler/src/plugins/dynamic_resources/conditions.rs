//! Devices that have to be attached before a Pod is bound.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::inventory::allocation;

fn results(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    allocation(claim).into_iter().flat_map(|a| &a.devices).flat_map(|d| d.results.iter().flatten())
}

/// The devices of a claim for which something has to be waited.
pub(super) fn waited_for(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    results(claim).filter(|r| r.binding_conditions.as_ref().is_some_and(|c| !c.is_empty()))
}

/// The drivers of a claim's devices.
pub(super) fn drivers(claim: &ResourceClaim) -> impl Iterator<Item = &str> {
    results(claim).map(|r| r.driver.as_str())
}

/// The conditions of a device; `None` if its driver says nothing.
fn conditions<'c>(claim: &'c ResourceClaim, of: &DeviceRequestAllocationResult) -> Option<&'c [Condition]> {
    let mut devices = claim.status.iter().flat_map(|s| s.devices.iter().flatten());
    let device = devices.find(|d| d.device == of.device && d.driver == of.driver && d.pool == of.pool)?;
    Some(device.conditions.as_deref().unwrap_or_default())
}

/// Whether all devices of a claim are attached.
///
/// # Errors
/// In upstream's words, if one will not be.
pub(super) fn ready(claim: &ResourceClaim) -> Result<bool, String> {
    if allocation(claim).is_none() {
        return Ok(false);
    }
    for device in waited_for(claim) {
        let Some(said) = conditions(claim, device) else { return Ok(false) };
        let is_true = |kind: &String| said.iter().find(|c| c.type_ == *kind && c.status == "True");
        if let Some(failed) = device.binding_failure_conditions.iter().flatten().find_map(is_true) {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            return Err(format!(
                "device binding failed: claim={name}, reason={}, message={}",
                failed.reason,
                api::go::quote(&failed.message)
            ));
        }
        if !device.binding_conditions.iter().flatten().all(|kind| is_true(kind).is_some()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// When a claim was allocated whose devices are waited for.
pub(super) fn waits_since(claim: &ResourceClaim) -> Option<Timestamp> {
    let since = allocation(claim)?.allocation_timestamp.as_ref()?.0;
    results(claim).any(|r| r.binding_conditions.is_some()).then_some(since)
}

/// Whether the devices of a claim are waited for too long.
pub(super) fn timed_out(claim: &ResourceClaim, timeout: Duration, now: Timestamp) -> bool {
    waits_since(claim).is_some_and(|since| since.checked_add(timeout).is_ok_and(|until| until < now))
}
