//! Nodes' Leases and the records of addresses, as objects.

use std::time::Duration;

use api::Status;
use client::{Api, Cached, Client};
use component::Clock;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, MicroTime, ObjectMeta, Preconditions};
use tokio::time::timeout;

use crate::hold::{Action, Entry, Name, Outcome};

/// The namespace of all Leases of load balancers.
pub const NAMESPACE: &str = "ferrokube-balancer";
/// The annotation of a node's Lease with the networks of its links.
const NETWORKS: &str = "ferrokube.io/networks";
/// The beginnings of the Leases' names.
const OF_NODE: &str = "node.";
const OF_ADDRESS: &str = "address.";
/// The time after which nobody knows whether a request was carried out: shorter than a session lasts.
const PATIENCE: Duration = Duration::from_millis(700);

/// The text of a Lease's name.
fn text(name: &Name) -> String {
    match name {
        Name::Node(node) => format!("{OF_NODE}{node}"),
        // Names have no colons, and do not begin or end with a dash.
        Name::Address(std::net::IpAddr::V6(address)) => {
            let groups = address.segments().map(|group| format!("{group:x}"));
            format!("{OF_ADDRESS}{}", groups.join("-"))
        }
        Name::Address(address) => format!("{OF_ADDRESS}{address}"),
    }
}

/// Reads a Lease's name; `None` for one that is none of ours.
pub(crate) fn name_of(lease: &Lease) -> Option<Name> {
    let name = lease.name();
    if let Some(node) = name.strip_prefix(OF_NODE) {
        return Some(Name::Node(node.to_owned()));
    }
    let address = name.strip_prefix(OF_ADDRESS)?;
    address.replace('-', ":").parse().ok().map(Name::Address)
}

/// Reads the content of a Lease.
pub(crate) fn entry(lease: &Lease) -> Entry {
    let networks = lease.metadata.annotations.as_ref().and_then(|a| a.get(NETWORKS));
    Entry {
        version: version(lease),
        holder: lease.spec.as_ref().and_then(|s| s.holder_identity.clone()).unwrap_or_default(),
        networks: networks
            .into_iter()
            .flat_map(|all| all.split(','))
            .filter_map(|n| n.parse().ok())
            .collect(),
    }
}

fn version(lease: &Lease) -> u64 {
    lease.resource_version().parse().unwrap_or(0)
}

/// Carries an action out.
pub(crate) async fn carry_out(client: &Client, clock: Clock, lease: Duration, action: &Action) -> Outcome {
    let api = client.api::<Lease>(NAMESPACE);
    match timeout(PATIENCE, request(&api, clock, lease, action)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(status)) if status.is_not_found() => Outcome::Gone,
        Ok(Err(status)) if status.is_conflict() || status.is_already_exists() => Outcome::Conflict,
        Ok(Err(status)) => {
            tracing::debug!(%status, ?action, "a Lease of load balancers");
            Outcome::Unknown
        }
        Err(_) => Outcome::Unknown,
    }
}

async fn request(
    api: &Api<Lease>,
    clock: Clock,
    lease: Duration,
    action: &Action,
) -> Result<Outcome, Status> {
    match action {
        Action::Look { node } => match api.get(&text(&Name::Node(node.clone()))).await {
            Ok(found) => Ok(Outcome::Looked(Some(entry(&found)))),
            Err(status) if status.is_not_found() => Ok(Outcome::Looked(None)),
            Err(status) => Err(status),
        },
        Action::Delete { name, version } => {
            let preconditions = Preconditions { resource_version: Some(version.to_string()), uid: None };
            let options = DeleteOptions { preconditions: Some(preconditions), ..DeleteOptions::default() };
            api.delete(&text(name), Some(&options)).await.map(|()| Outcome::Gone)
        }
        Action::Write { name, version, holder, networks } => {
            let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
            let annotations =
                (!networks.is_empty()).then(|| [(NETWORKS.to_owned(), networks.join(","))].into());
            let of_node = matches!(name, Name::Node(_));
            let object = Lease {
                metadata: ObjectMeta {
                    name: Some(text(name)),
                    namespace: Some(NAMESPACE.to_owned()),
                    resource_version: version.map(|v| v.to_string()),
                    annotations,
                    ..ObjectMeta::default()
                },
                spec: Some(LeaseSpec {
                    holder_identity: Some(holder.clone()),
                    lease_duration_seconds: of_node
                        .then(|| i32::try_from(lease.as_secs()).unwrap_or(i32::MAX)),
                    renew_time: Some(MicroTime(clock.now())),
                    ..LeaseSpec::default()
                }),
            };
            let written = match version {
                Some(_) => api.update(&object).await?,
                None => api.create(&object).await?,
            };
            Ok(Outcome::Written(crate::leases::version(&written)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let check = |name: Name, expected: &str| {
            assert_eq!(text(&name), expected);
            let lease = Lease {
                metadata: ObjectMeta { name: Some(expected.to_owned()), ..ObjectMeta::default() },
                ..Lease::default()
            };
            assert_eq!(name_of(&lease), Some(name));
        };
        check(Name::Node("a.b".to_owned()), "node.a.b");
        check(Name::Address("192.0.2.1".parse().unwrap()), "address.192.0.2.1");
        check(Name::Address("2001:db8::1".parse().unwrap()), "address.2001-db8-0-0-0-0-0-1");
        check(Name::Node("address.192.0.2.1".to_owned()), "node.address.192.0.2.1");
        for other in ["x", "address.x"] {
            let metadata = ObjectMeta { name: Some(other.to_owned()), ..ObjectMeta::default() };
            assert_eq!(name_of(&Lease { metadata, ..Lease::default() }), None);
        }
    }
}
