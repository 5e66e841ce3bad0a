//! The Lease by which the control plane knows that the node is alive.

use std::time::Duration;

use api::Status;
use client::{Api, Backoff, Client};
use component::Clock;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};

/// Where the Leases of nodes are.
const NAMESPACE: &str = "kube-node-lease";
/// How long a node counts as alive after a renewal; upstream's `nodeLeaseDurationSeconds`.
const DURATION: i32 = 40;
/// A quarter of it.
const RENEW: Duration = Duration::from_secs(10);
/// Renewals are spread by this share.
const JITTER: f64 = 0.04;

/// Makes the Lease of a Node and renews it, for ever.
pub(super) async fn keep(client: Client, clock: Clock, node: &str, uid: &str) {
    let leases: Api<Lease> = client.api(NAMESPACE);
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(7));
    let mut last: Option<Lease> = None;
    loop {
        let next = renewed(last.take(), node, uid, clock.now());
        match write(&leases, &next, node).await {
            Ok(lease) => {
                last = Some(lease);
                backoff.reset();
                tokio::time::sleep(RENEW.mul_f64(1.0 + JITTER * fastrand::f64())).await;
            }
            Err(error) => {
                let delay = backoff.delay();
                tracing::debug!(%error, delay_ms = delay.as_millis() as u64, "cannot renew the node's lease");
                tokio::time::sleep(delay).await;
            }
        }
    }
}

/// Writes a Lease; one that another writer changed is read first.
async fn write(leases: &Api<Lease>, next: &Lease, node: &str) -> Result<Lease, Status> {
    if next.metadata.resource_version.is_some() {
        match leases.update(next).await {
            Err(e) if e.is_conflict() || e.is_not_found() => {}
            answer => return answer,
        }
    }
    match leases.get(node).await {
        Ok(mut found) => {
            found.spec = next.spec.clone();
            leases.update(&found).await
        }
        Err(e) if e.is_not_found() => {
            let mut new = next.clone();
            new.metadata.resource_version = None;
            new.metadata.uid = None;
            leases.create(&new).await
        }
        Err(e) => Err(e),
    }
}

/// The Lease to write at `now`, given the one that stands.
fn renewed(last: Option<Lease>, node: &str, uid: &str, now: Timestamp) -> Lease {
    let mut lease = last.unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(node.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    // A Lease goes with its Node.
    lease.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: node.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }]);
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(node.to_owned()),
        lease_duration_seconds: Some(DURATION),
        renew_time: Some(MicroTime(now)),
        ..lease.spec.unwrap_or_default()
    });
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_keep_what_others_wrote() {
        let at = |s: &str| s.parse::<Timestamp>().unwrap();
        let mut first = renewed(None, "n", "u", at("2024-01-01T00:00:00Z"));
        first.metadata.resource_version = Some("5".into());
        first.spec.as_mut().unwrap().lease_transitions = Some(3);
        let second = renewed(Some(first), "n", "u", at("2024-01-01T00:00:10Z"));
        let spec = second.spec.unwrap();
        assert_eq!(second.metadata.resource_version.as_deref(), Some("5"));
        assert_eq!((spec.lease_transitions, spec.lease_duration_seconds), (Some(3), Some(40)));
        assert_eq!(spec.renew_time, Some(MicroTime(at("2024-01-01T00:00:10Z"))));
    }
}
