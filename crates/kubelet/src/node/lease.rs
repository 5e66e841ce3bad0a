//! The Lease by which the control plane knows that the node is alive.

use std::time::Duration;

use api::Status;
use client::{Api, Backoff, Client};
use component::Clock;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use tokio::time::timeout;

/// Where the Leases of nodes are.
const NAMESPACE: &str = "kube-node-lease";
/// The part of a Lease's time after which it is renewed.
const RENEWALS: u32 = 4;
/// Renewals are spread by this share.
const JITTER: f64 = 0.04;

/// How often a renewal is tried before the Lease is read anew; upstream's.
const RETRIES: usize = 5;

/// Makes the Lease of a Node and renews it, for ever.
pub(super) async fn keep(client: Client, clock: Clock, node: &str, duration: Duration) {
    let renew = duration / RENEWALS;
    let mut keeper =
        Keeper { leases: client.api(NAMESPACE), nodes: client.api(""), clock, node, duration, last: None };
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(7));
    loop {
        let renewed = timeout(renew, keeper.renew()).await;
        match renewed.unwrap_or_else(|_| Err(Status::failure(504, "Timeout", "context deadline exceeded"))) {
            Ok(()) => {
                backoff.reset();
                tokio::time::sleep(renew.mul_f64(1.0 + JITTER * fastrand::f64())).await;
            }
            Err(error) => {
                let delay = backoff.delay();
                tracing::debug!(%error, delay_ms = delay.as_millis() as u64, "cannot renew the node's lease");
                tokio::time::sleep(delay).await;
            }
        }
    }
}

struct Keeper<'a> {
    leases: Api<Lease>,
    nodes: Api<Node>,
    clock: Clock,
    node: &'a str,
    duration: Duration,
    /// The Lease as it was written last.
    last: Option<Lease>,
}

impl Keeper<'_> {
    /// Renews the Lease that was written last; one that another changed or removed is read or made anew.
    async fn renew(&mut self) -> Result<(), Status> {
        if let Some(last) = self.last.take() {
            match self.update(last).await {
                Err(e) if e.is_conflict() || e.is_not_found() => {}
                answer => return answer,
            }
        }
        let mut conflict = None;
        for _ in 0..RETRIES {
            match self.leases.get(self.node).await {
                Ok(found) => match self.update(found).await {
                    Err(e) if e.is_conflict() => conflict = Some(e),
                    answer => return answer,
                },
                Err(e) if e.is_not_found() => {
                    // A Lease goes with its Node: without its owner none is made.
                    let owner = self.owner().await?;
                    let mut new = renewed(None, self.node, self.duration, self.clock.now());
                    new.metadata.owner_references = Some(vec![owner]);
                    self.last = Some(self.leases.create(&new).await?);
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        conflict.map_or(Ok(()), Err)
    }

    async fn update(&mut self, base: Lease) -> Result<(), Status> {
        let owned = base.metadata.owner_references.as_ref().is_some_and(|o| !o.is_empty());
        let mut next = renewed(Some(base.clone()), self.node, self.duration, self.clock.now());
        if !owned && let Ok(owner) = self.owner().await {
            next.metadata.owner_references = Some(vec![owner]);
        }
        let written = self.leases.update(&next).await;
        // After an error the same Lease is tried again.
        self.last = Some(written.as_ref().map_or(base, Clone::clone));
        written.map(drop)
    }

    /// The Node as owner, by the uid that it has now: it may have been made anew.
    async fn owner(&self) -> Result<OwnerReference, Status> {
        let node = self.nodes.get(self.node).await?;
        Ok(OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: self.node.to_owned(),
            uid: node.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        })
    }
}

/// The Lease to write at `now`, given the one that stands.
fn renewed(last: Option<Lease>, node: &str, duration: Duration, now: Timestamp) -> Lease {
    let mut lease = last.unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(node.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(node.to_owned()),
        lease_duration_seconds: Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)),
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
        let mut first = renewed(None, "n", Duration::from_secs(40), at("2024-01-01T00:00:00Z"));
        first.metadata.resource_version = Some("5".into());
        first.spec.as_mut().unwrap().lease_transitions = Some(3);
        let second = renewed(Some(first), "n", Duration::from_secs(40), at("2024-01-01T00:00:10Z"));
        let spec = second.spec.unwrap();
        assert_eq!(second.metadata.resource_version.as_deref(), Some("5"));
        assert_eq!((spec.lease_transitions, spec.lease_duration_seconds), (Some(3), Some(40)));
        assert_eq!(spec.renew_time, Some(MicroTime(at("2024-01-01T00:00:10Z"))));
    }
}
