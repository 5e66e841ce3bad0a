//! ServiceCIDRs: each is ready as soon as it exists, and goes only when every address of a Service is left with a
//! range.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::events::{EventType, Recorder};
use client::{Change, Client, Informer, Key, Patch};
use component::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use serde_json::{Value, json};

use crate::common::finalizers;
use crate::common::terms::Terms;
use crate::host::{Controller, Host, Next, Wiring};
use objects::Cidr;

const NAME: &str = "service-cidr-controller";
/// The finalizer that holds a deleted ServiceCIDR.
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// The label of the addresses that the API server gave out.
const MANAGED_BY: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");
/// The time for which a ServiceCIDR that may go stays, until every API server has stopped giving out addresses from it.
const GRACE: SignedDuration = SignedDuration::from_secs(10);

/// The next step for a ServiceCIDR.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    /// The range may go, but not yet.
    Later(SignedDuration),
    Release,
    /// Writes this into the range's status, and with `hold` holds it if it is not held yet.
    Say {
        hold: bool,
        status: &'static str,
        reason: &'static str,
        message: &'static str,
    },
}

fn name(cidr: &ServiceCIDR) -> &str {
    cidr.metadata.name.as_deref().unwrap_or_default()
}

fn blocks(cidr: &ServiceCIDR) -> impl Iterator<Item = Cidr> {
    cidr.spec.iter().flat_map(|s| s.cidrs.iter().flatten()).filter_map(|c| c.parse().ok())
}

fn address(ip: &IPAddress) -> Option<Cidr> {
    let labels = ip.metadata.labels.as_ref()?;
    labels.get(MANAGED_BY.0).filter(|by| *by == MANAGED_BY.1)?;
    ip.metadata.name.as_deref()?.parse::<IpAddr>().ok().map(Cidr::from)
}

/// Whether another range contains the whole block.
fn in_another<'a>(block: Cidr, own: &str, mut all: impl Iterator<Item = &'a ServiceCIDR>) -> bool {
    all.any(|other| name(other) != own && blocks(other).any(|b| b.contains(block)))
}

/// Whether a range may go: other ranges hold each of its blocks, or each address in use.
fn may_go(cidr: &ServiceCIDR, all: &[&ServiceCIDR], addresses: &[Cidr]) -> bool {
    let own = name(cidr);
    if blocks(cidr).all(|block| in_another(block, own, all.iter().copied())) {
        return true;
    }
    let mut orphans = addresses.iter().filter(|a| blocks(cidr).any(|block| block.contains(**a)));
    orphans.all(|address| in_another(*address, own, all.iter().copied()))
}

fn plan(cidr: &ServiceCIDR, all: &[&ServiceCIDR], addresses: &[Cidr], now: Timestamp) -> Step {
    let held = finalizers::has(&cidr.metadata, FINALIZER);
    let say = |hold: bool, status: &'static str, reason: &'static str, message: &'static str| {
        let mut conditions = cidr.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let said = conditions
            .any(|c| c.type_ == "Ready" && c.status == status && c.reason == reason && c.message == message);
        if said && !hold { Step::Nothing } else { Step::Say { hold, status, reason, message } }
    };
    let Some(deleted) = cidr.metadata.deletion_timestamp.as_ref() else {
        return say(!held, "True", "", "Kubernetes Service CIDR is ready");
    };
    if !may_go(cidr, all, addresses) {
        let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
        return say(false, "False", "Terminating", message);
    }
    if !held {
        return Step::Nothing;
    }
    let left = GRACE - now.duration_since(deleted.0);
    if left.is_positive() { Step::Later(left) } else { Step::Release }
}

/// The controller of ServiceCIDRs.
pub(crate) struct ServiceCidrs {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    cidrs: Informer<ServiceCIDR>,
    addresses: Informer<IPAddress>,
    deletions: Terms<Key>,
}

impl Controller for ServiceCidrs {
    const NAME: &'static str = "service-cidr-controller";
    const ACCOUNT: &'static str = "service-cidrs-controller";
    const QUEUE: &'static str = "ipaddresses";
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        Self {
            // The fields that the controller applies are owned under this name.
            client: Client::new(Arc::clone(host.client().transport()), NAME),
            clock: host.clock(),
            recorder: host.recorder(NAME),
            cidrs: host.informer(),
            addresses: host.informer(),
            deletions: Terms::default(),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        // An overlapping range that comes or goes may decide whether another range may go.
        let (queue, lister) = (wiring.queue(), self.cidrs.clone());
        self.cidrs.handle(move |change| {
            let changed = change.object();
            queue.add(Key::new("", name(changed)));
            for other in lister.list() {
                let overlaps = |block: Cidr| blocks(&other).any(|b| b.overlaps(block));
                if blocks(changed).any(overlaps) {
                    queue.add(Key::new("", name(&other)));
                }
            }
        });
        let (queue, lister) = (wiring.queue(), self.cidrs.clone());
        self.addresses.handle(move |change| {
            if matches!(change, Change::Updated { .. }) {
                return;
            }
            let Some(address) = address(change.object()) else { return };
            for cidr in lister.list() {
                if blocks(&cidr).any(|block| block.contains(address)) {
                    queue.add(Key::new("", name(&cidr)));
                }
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(cidr) = self.cidrs.get_key(&key) else {
            self.deletions.forget(&key);
            return Ok(Next::Done);
        };
        let all = self.cidrs.list();
        let all = all.iter().map(|c| &**c).collect::<Vec<_>>();
        let deleted = cidr.metadata.deletion_timestamp.as_ref().map(|t| t.0);
        let used = if deleted.is_some() { self.addresses.list() } else { Vec::new() };
        let used = used.iter().filter_map(|ip| address(ip)).collect::<Vec<_>>();
        // The grace runs on if the clock is set.
        let now = deleted.and_then(|deleted| {
            let passed = self.deletions.passed(key, deleted, self.clock);
            deleted.checked_add(SignedDuration::try_from(passed).ok()?).ok()
        });
        match plan(&cidr, &all, &used, now.unwrap_or_else(|| self.clock.now())) {
            Step::Later(left) => Ok(Next::After(Duration::try_from(left).unwrap_or_default())),
            step => take(&self.client, &cidr, step, self.clock, &self.recorder).await.map(|()| Next::Done),
        }
    }
}

async fn take(
    client: &Client,
    cidr: &ServiceCIDR,
    step: Step,
    clock: Clock,
    recorder: &Recorder,
) -> Result<(), Status> {
    let api = client.api::<ServiceCIDR>("");
    let own = name(cidr);
    let finalizers = async |patch: Value| match api.patch(own, &Patch::Strategic(patch)).await {
        Ok(_) => Ok(()),
        Err(e) if e.is_not_found() => Ok(()),
        Err(e) => Err(e),
    };
    match step {
        Step::Nothing | Step::Later(_) => Ok(()),
        Step::Release => {
            finalizers(json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}})).await
        }
        Step::Say { hold, status, reason, message } => {
            if hold {
                finalizers(json!({"metadata": {"finalizers": [FINALIZER]}})).await?;
            }
            let condition = json!({
                "type": "Ready",
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": objects::time::text(clock.now()),
            });
            let said = json!({
                "apiVersion": "networking.k8s.io/v1",
                "kind": "ServiceCIDR",
                "metadata": {"name": own},
                "status": {"conditions": [condition]},
            });
            let patch = Patch::Apply { object: said, force: true };
            match api.patch_status(own, &patch).await {
                Ok(_) => Ok(()),
                Err(e) if e.is_not_found() => Ok(()),
                Err(e) => {
                    let message = "The ServiceCIDR Status can not be set to Ready=True";
                    recorder.event(cidr, EventType::Warning, "KubernetesServiceCIDRError", message);
                    Err(e)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(name: &str, blocks: &[&str], meta: Value) -> ServiceCIDR {
        let mut object = json!({"metadata": meta, "spec": {"cidrs": blocks}});
        object["metadata"]["name"] = name.into();
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_may_go() {
        let check = |own: &[&str], others: &[&[&str]], addresses: &[&str], expected: bool| {
            let one = cidr("one", own, json!({}));
            let others = others.iter().enumerate().map(|(i, b)| cidr(&format!("o{i}"), b, json!({})));
            let others = others.collect::<Vec<_>>();
            let all = others.iter().chain([&one]).collect::<Vec<_>>();
            let addresses =
                addresses.iter().map(|a| Cidr::from(a.parse::<IpAddr>().unwrap())).collect::<Vec<_>>();
            assert_eq!(may_go(&one, &all, &addresses), expected, "{own:?} {addresses:?}");
        };
        check(&["10.0.0.0/24"], &[], &[], true);
        check(&["10.0.0.0/24"], &[], &["10.0.0.23"], false);
        check(&["10.0.0.0/24"], &[], &["10.1.0.23"], true);
        check(&["10.0.0.0/24"], &[&["10.0.0.0/24"]], &["10.0.0.23"], true);
        check(&["10.0.0.0/24"], &[&["10.0.0.0/16"]], &["10.0.0.23"], true);
        check(&["10.0.0.0/16"], &[&["10.0.0.0/24"]], &["10.0.0.23"], true);
        check(&["10.0.0.0/16"], &[&["10.0.0.0/24"]], &["10.0.0.23", "10.0.1.1"], false);
        check(&["10.0.0.0/16", "2001:db8::/64"], &[&["10.0.0.0/16"]], &["2001:db8::10"], false);
        check(&["10.0.0.0/16", "2001:db8::/64"], &[&["2001:db8::/64"], &["10.0.0.0/8"]], &["10.0.0.1"], true);
    }

    #[test]
    fn steps() {
        let now = "2026-01-01T00:00:20Z".parse::<Timestamp>().unwrap();
        let check = |meta: Value, used: &[&str], expected: Step| {
            let one = cidr("one", &["10.0.0.0/24"], meta);
            let used = used.iter().map(|a| Cidr::from(a.parse::<IpAddr>().unwrap())).collect::<Vec<_>>();
            assert_eq!(plan(&one, &[&one], &used, now), expected);
        };
        let ready = |hold| Step::Say {
            hold,
            status: "True",
            reason: "",
            message: "Kubernetes Service CIDR is ready",
        };
        check(json!({}), &[], ready(true));
        check(json!({"finalizers": [FINALIZER]}), &["10.0.0.1"], ready(false));
        let deleted = |at: &str| json!({"finalizers": [FINALIZER], "deletionTimestamp": at});
        check(deleted("2026-01-01T00:00:00Z"), &[], Step::Release);
        check(deleted("2026-01-01T00:00:13Z"), &[], Step::Later(SignedDuration::from_secs(3)));
        let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
        let held = Step::Say { hold: false, status: "False", reason: "Terminating", message };
        check(deleted("2026-01-01T00:00:00Z"), &["10.0.0.1"], held);
        check(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), &[], Step::Nothing);
    }
}
