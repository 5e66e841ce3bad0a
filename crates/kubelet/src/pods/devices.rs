//! Devices that Pods claim. No driver of devices can register with this node yet, so a Pod whose claims have devices
//! of one waits, as with upstream's kubelet until the driver comes.

use client::Client;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use objects::claims;

use super::spec;

/// The reason of the event.
pub(crate) const REASON: &str = "FailedPrepareDynamicResources";

/// The reason for which a Pod's devices are not there for it, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    /// A name of a claim is not known yet.
    #[error("prepare dynamic resources: {0}")]
    Name(String),
    /// A claim could not be read.
    #[error("prepare dynamic resources: fetch ResourceClaim {0}: {1}")]
    Fetch(String, Box<api::Status>),
    /// A claim is not this Pod's to use.
    #[error("prepare dynamic resources: pod {0} ({1}) is not allowed to use ResourceClaim {2}")]
    NotAllowed(String, String, String),
    /// A driver is not there.
    #[error("prepare dynamic resources: DRA driver {0} is not registered")]
    NoDriver(String),
}

/// Looks after Pods' claims.
pub(crate) struct Devices {
    client: Client,
}

impl Devices {
    /// Reads claims with the node's identity.
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Sees that a Pod may start as far as its claims go.
    ///
    /// # Errors
    /// With the first claim that has devices, or cannot be read.
    pub(crate) async fn prepare(&self, pod: &Pod) -> Result<(), DeviceError> {
        for name in names(pod)? {
            let all = self.client.api::<ResourceClaim>(spec::namespace(pod));
            let claim = all.get(&name).await.map_err(|e| DeviceError::Fetch(name.clone(), Box::new(e)))?;
            look(pod, &name, &claim)?;
        }
        Ok(())
    }
}

/// The names of a Pod's claims, those of its extended resources last.
fn names(pod: &Pod) -> Result<Vec<String>, DeviceError> {
    let mut all = Vec::new();
    for place in claims::places(pod) {
        if let Some((name, _)) = claims::name(pod, place).map_err(DeviceError::Name)? {
            all.push(name.to_owned());
        }
    }
    let extended = pod.status.as_ref().and_then(|s| s.extended_resource_claim_status.as_ref());
    all.extend(extended.map(|e| e.resource_claim_name.clone()));
    Ok(all)
}

fn look(pod: &Pod, name: &str, claim: &ResourceClaim) -> Result<(), DeviceError> {
    if !claims::is_reserved_for(claim, spec::uid(pod)) {
        let (pod, uid) = (spec::name(pod).to_owned(), spec::uid(pod).to_owned());
        return Err(DeviceError::NotAllowed(pod, uid, name.to_owned()));
    }
    let allocation = claim.status.as_ref().and_then(|s| s.allocation.as_ref());
    let devices = allocation.and_then(|a| a.devices.as_ref()).and_then(|d| d.results.as_deref());
    match devices.unwrap_or_default().first() {
        Some(device) => Err(DeviceError::NoDriver(device.driver.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn pods_with_devices_wait() {
        let pod = |spec: Value, status: Value| -> Pod {
            let metadata = json!({"name": "p", "namespace": "n", "uid": "u"});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
        };
        let claimed = json!({"containers": [], "resourceClaims": [{"name": "a", "resourceClaimName": "c"}]});
        let made =
            json!({"containers": [], "resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}]});
        let check = |pod: &Pod, want: &[&str]| {
            assert_eq!(names(pod).unwrap(), want);
        };
        check(&pod(json!({"containers": []}), json!({})), &[]);
        check(&pod(claimed.clone(), json!({})), &["c"]);
        let named = json!({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "g"}]});
        check(&pod(made.clone(), named), &["g"]);
        assert!(names(&pod(made, json!({}))).is_err(), "its claim is not made yet");

        let claim = |status: Value| -> ResourceClaim {
            serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {}, "status": status})).unwrap()
        };
        let (mine, reserved) =
            (pod(claimed, json!({})), json!([{"resource": "pods", "name": "p", "uid": "u"}]));
        let device = json!({"request": "r", "driver": "d.example.com", "pool": "l", "device": "x"});
        let look = |status: Value| look(&mine, "c", &claim(status)).map_err(|e| e.to_string());
        assert_eq!(
            look(json!({})).unwrap_err(),
            "prepare dynamic resources: pod p (u) is not allowed to use ResourceClaim c"
        );
        assert_eq!(look(json!({"reservedFor": reserved, "allocation": {}})), Ok(()));
        assert_eq!(
            look(json!({"reservedFor": reserved, "allocation": {"devices": {"results": [device]}}}))
                .unwrap_err(),
            "prepare dynamic resources: DRA driver d.example.com is not registered"
        );
    }
}
