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

/// Whether a Service may have an address of a block: none has the first one, nor the last one of IPv4.
fn gives(block: Cidr, address: Cidr) -> bool {
    let at = address.first();
    block.contains(address) && at != block.first() && (block.is_v6() || at != block.last())
}

/// Whether a Service may have an address of a range.
fn holds(cidr: &ServiceCIDR, address: Cidr) -> bool {
    blocks(cidr).any(|block| gives(block, address))
}

/// Whether two ranges have addresses in common.
fn overlap(one: &ServiceCIDR, other: &ServiceCIDR) -> bool {
    blocks(one).any(|block| blocks(other).any(|b| b.overlaps(block)))
}

/// Whether a range may go: other ranges hold each of its blocks, or each address in use.
fn may_go(cidr: &ServiceCIDR, all: &[&ServiceCIDR], addresses: &[Cidr]) -> bool {
    let others = || all.iter().filter(|other| name(other) != name(cidr));
    if blocks(cidr).all(|block| others().any(|other| blocks(other).any(|b| b.contains(block)))) {
        return true;
    }
    let mut used = addresses.iter().filter(|address| holds(cidr, **address));
    used.all(|address| others().any(|other| holds(other, *address)))
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
            for other in lister.list().iter().filter(|other| overlap(other, changed)) {
                queue.add(Key::new("", name(other)));
            }
        });
        let (queue, lister) = (wiring.queue(), self.cidrs.clone());
        self.addresses.handle(move |change| {
            if matches!(change, Change::Updated { .. }) {
                return;
            }
            let Some(address) = address(change.object()) else { return };
            for cidr in lister.list().iter().filter(|cidr| holds(cidr, address)) {
                queue.add(Key::new("", name(cidr)));
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

    fn addresses(all: &[&str]) -> Vec<Cidr> {
        all.iter().map(|a| Cidr::from(a.parse::<IpAddr>().unwrap())).collect()
    }

    /// The range of upstream's tests, under this name.
    fn usual(name: &str, meta: Value) -> ServiceCIDR {
        cidr(name, &["192.168.0.0/24", "2001:db2::/64"], meta)
    }

    #[test]
    fn what_may_go() {
        let check = |own: &[&str], others: &[&[&str]], used: &[&str], expected: bool| {
            let one = cidr("one", own, json!({}));
            let others = others.iter().enumerate().map(|(i, b)| cidr(&format!("o{i}"), b, json!({})));
            let others = others.collect::<Vec<_>>();
            let all = others.iter().chain([&one]).collect::<Vec<_>>();
            assert_eq!(may_go(&one, &all, &addresses(used)), expected, "{own:?} {used:?}");
        };
        check(&["10.0.0.0/24"], &[], &["10.1.0.23"], true);
        check(&["10.0.0.0/16"], &[&["10.0.0.0/24"]], &["10.0.0.23"], true);
        check(&["10.0.0.0/16"], &[&["10.0.0.0/24"]], &["10.0.0.23", "10.0.1.1"], false);
        check(&["10.0.0.0/16", "2001:db8::/64"], &[&["10.0.0.0/16"]], &["2001:db8::10"], false);
        check(&["10.0.0.0/16", "2001:db8::/64"], &[&["2001:db8::/64"], &["10.0.0.0/8"]], &["10.0.0.1"], true);
        // The other range's last address is none that it gives.
        check(&["10.0.0.0/16"], &[&["10.0.0.0/24"]], &["10.0.0.255"], false);
    }

    /// Upstream's 11 cases of `TestController_canDeleteCIDR`: another range, an address in use, and whether the first may go.
    #[test]
    fn upstreams_deletions() {
        let check = |known: bool, other: Option<&str>, used: Option<&str>, expected: bool| {
            let one = usual("kubernetes", json!({}));
            let other = other.map(|block| cidr("overlapping", &[block, "2001:db2::/64"], json!({})));
            let all: Vec<_> = known.then_some(&one).into_iter().chain(&other).collect();
            let used: Vec<&str> = used.into_iter().collect();
            assert_eq!(may_go(&one, &all, &addresses(&used)), expected, "{other:?} {used:?}");
        };
        check(false, None, None, true);
        check(true, None, None, true);
        check(true, None, Some("192.168.0.24"), false);
        check(true, None, Some("192.168.1.24"), true);
        check(true, None, Some("192.168.0.0"), true);
        check(true, None, Some("192.168.0.255"), true);
        check(true, None, Some("2001:0db2::ffff:ffff:ffff:ffff"), false);
        check(true, Some("192.168.0.0/24"), Some("192.168.0.23"), true);
        check(true, Some("192.168.0.0/26"), Some("192.168.0.23"), true);
        check(true, Some("192.168.0.0/28"), Some("192.168.0.23"), false);
        check(true, Some("192.168.0.0/16"), Some("192.168.0.23"), true);
    }

    /// Upstream's 7 cases of `TestController_ipToCidrs` and 4 of `TestController_cidrToCidrs`: the ranges that are looked at
    /// when an address, or the range `kubernetes`, comes or goes.
    #[test]
    fn ranges_that_a_change_is_about() {
        let of = |names: &[&str]| -> Vec<ServiceCIDR> {
            let blocks = |name: &str| -> &[&str] {
                match name {
                    "kubernetes" | "same" => &["192.168.0.0/24", "2001:db2::/64"],
                    "equal" => &["192.168.0.0/24", "2001:db2::/96"],
                    "part" => &["192.168.0.0/26", "2001:db2::/96"],
                    "unrelated" => &["10.0.0.0/24"],
                    _ => &["10.0.0.0/16"],
                }
            };
            let others = ["unrelated", "unrelated2"].iter().filter(|_| !names.is_empty());
            names.iter().chain(others).map(|name| cidr(name, blocks(name), json!({}))).collect()
        };
        let names = |all: Vec<&ServiceCIDR>| all.iter().map(|c| name(c).to_owned()).collect::<Vec<_>>();
        let check = |known: &[&str], address: &str, expected: &[&str]| {
            let (all, address) = (of(known), addresses(&[address])[0]);
            let got = names(all.iter().filter(|c| holds(c, address)).collect());
            assert_eq!(got, expected, "{known:?} {address}");
        };
        let three = ["kubernetes", "same", "part"];
        check(&[], "192.168.0.23", &[]);
        check(&["kubernetes"], "192.168.0.23", &["kubernetes"]);
        check(&["kubernetes", "equal"], "192.168.0.23", &["kubernetes", "equal"]);
        check(&three, "192.168.0.23", &three);
        check(&three, "192.168.0.0", &[]);
        check(&three, "192.168.0.63", &["kubernetes", "same"]);
        check(&three, "2001:db2::", &[]);
        check(&three, "2001:0db2::ffff:ffff:ffff:ffff", &["kubernetes", "same"]);
        let check = |known: &[&str]| {
            let all = of(known);
            let changed = usual("kubernetes", json!({}));
            assert_eq!(names(all.iter().filter(|c| overlap(c, &changed)).collect()), known);
        };
        check(&[]);
        check(&["kubernetes"]);
        check(&["kubernetes", "equal"]);
        check(&three);
    }

    fn ready(hold: bool) -> Step {
        Step::Say { hold, status: "True", reason: "", message: "Kubernetes Service CIDR is ready" }
    }

    fn used() -> Step {
        let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
        Step::Say { hold: false, status: "False", reason: "Terminating", message }
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:20Z".parse().unwrap()
    }

    fn deleted(at: &str) -> Value {
        json!({"finalizers": [FINALIZER], "deletionTimestamp": at})
    }

    /// Upstream's 13 cases of `TestControllerSync`, but for that without a range: the range, another one, an address in use.
    #[test]
    fn upstreams_steps() {
        let check = |meta: Value, other: Option<[&str; 2]>, address: Option<&str>, expected: Step| {
            let one = usual("one", meta);
            let other = other.map(|blocks| cidr("overlapping", &blocks, json!({})));
            let all: Vec<_> = [&one].into_iter().chain(&other).collect();
            let in_use: Vec<&str> = address.into_iter().collect();
            assert_eq!(
                plan(&one, &all, &addresses(&in_use), now()),
                expected,
                "{one:?} {other:?} {address:?}"
            );
        };
        let long = || deleted("2026-01-01T00:00:09Z");
        let (v4, v6) = (Some("192.168.0.1"), Some("2001:db2::1"));
        // The default range is one like others.
        check(json!({}), None, None, ready(true));
        check(long(), None, None, Step::Release);
        let soon = Step::Later(SignedDuration::from_secs(10));
        check(deleted("2026-01-01T00:00:20Z"), None, None, soon);
        check(long(), None, v4, used());
        check(long(), Some(["192.168.0.0/24", "2001:db2::/64"]), v4, Step::Release);
        check(long(), Some(["192.168.0.0/16", "2001:db2::/64"]), v4, Step::Release);
        check(long(), Some(["192.168.255.0/26", "2001:db2::/64"]), v4, used());
        check(long(), None, v6, used());
        check(long(), Some(["192.168.0.0/24", "2001:db2::/64"]), v6, Step::Release);
        check(long(), Some(["192.168.0.0/16", "2001:db2::/48"]), v6, Step::Release);
        check(long(), Some(["192.168.255.0/26", "2001:db2:a:b::/64"]), v6, used());
    }

    #[test]
    fn steps() {
        let check = |meta: Value, used: &[&str], expected: Step| {
            let one = cidr("one", &["10.0.0.0/24"], meta);
            assert_eq!(plan(&one, &[&one], &addresses(used), now()), expected);
        };
        check(json!({"finalizers": [FINALIZER]}), &["10.0.0.1"], ready(false));
        check(deleted("2026-01-01T00:00:13Z"), &[], Step::Later(SignedDuration::from_secs(3)));
        check(deleted("2026-01-01T00:00:00Z"), &["10.0.0.1"], used());
        check(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), &[], Step::Nothing);
    }
}
