//! ServiceCIDRs: each is ready as soon as it is there, and goes only when no address of a Service would be left
//! without a range.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::events::{EventType, Recorder};
use client::{Change, Client, Factory, Key, Patch, Queue};
use component::{Clock, Shutdown};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use serde_json::{Value, json};

use crate::common::cidr::Cidr;
use crate::common::terms::Terms;

const NAME: &str = "service-cidr-controller";
/// What holds one that is deleted.
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// The label of the addresses that the API server gave.
const MANAGED_BY: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");
/// How long one that may go stays: until every API server has heard that nothing more is given from it.
const GRACE: SignedDuration = SignedDuration::from_secs(10);

/// What is to be done about one.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    /// It may go, but not yet.
    Later(SignedDuration),
    Release,
    /// Holds it, if it is not held yet, and says this in its status.
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

/// Whether all that lies in a block lies in one of the others too.
fn in_another<'a>(block: Cidr, own: &str, mut all: impl Iterator<Item = &'a ServiceCIDR>) -> bool {
    all.any(|other| name(other) != own && blocks(other).any(|b| b.contains(block)))
}

/// Whether nothing is lost with a range: another holds each of its blocks, or each address in use.
fn may_go(cidr: &ServiceCIDR, all: &[&ServiceCIDR], addresses: &[Cidr]) -> bool {
    let own = name(cidr);
    if blocks(cidr).all(|block| in_another(block, own, all.iter().copied())) {
        return true;
    }
    let mut orphans = addresses.iter().filter(|a| blocks(cidr).any(|block| block.contains(**a)));
    orphans.all(|address| in_another(*address, own, all.iter().copied()))
}

fn plan(cidr: &ServiceCIDR, all: &[&ServiceCIDR], addresses: &[Cidr], now: Timestamp) -> Step {
    let held = cidr.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER);
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

/// Starts it.
pub(crate) fn start(client: Client, clock: Clock, factory: &Factory, shutdown: &Shutdown) {
    let (cidrs, addresses) = (factory.informer::<ServiceCIDR>(), factory.informer::<IPAddress>());
    // What it applies is owned by its name.
    let client = Client::new(Arc::clone(client.transport()), NAME);
    let recorder = Recorder::start(client.clone(), NAME, "", clock, shutdown);
    let queue = Queue::<Key>::default();
    // What comes or goes may decide whether another that overlaps may go.
    let (enqueue, lister) = (queue.clone(), cidrs.clone());
    cidrs.handle(move |change| {
        let changed = change.object();
        enqueue.add(Key::new("", name(changed)));
        for other in lister.list() {
            let overlaps = |block: Cidr| blocks(&other).any(|b| b.contains(block) || block.contains(b));
            if blocks(changed).any(overlaps) {
                enqueue.add(Key::new("", name(&other)));
            }
        }
    });
    let (enqueue, lister) = (queue.clone(), cidrs.clone());
    addresses.handle(move |change| {
        if matches!(change, Change::Updated { .. }) {
            return;
        }
        let Some(address) = address(change.object()) else { return };
        for cidr in lister.list() {
            if blocks(&cidr).any(|block| block.contains(address)) {
                enqueue.add(Key::new("", name(&cidr)));
            }
        }
    });
    crate::when_synced(factory, shutdown, move |shutdown| {
        let again = queue.clone();
        let deletions = Arc::new(Terms::<Key>::default());
        queue.work(NAME, 1, shutdown, move |key| {
            let known = cidrs.get_key(&key);
            if known.is_none() {
                deletions.forget(&key);
            }
            let step = known.map(|cidr| {
                let all = cidrs.list();
                let all = all.iter().map(|c| &**c).collect::<Vec<_>>();
                let deleted = cidr.metadata.deletion_timestamp.is_some();
                let used = if deleted { addresses.list() } else { Vec::new() };
                let used = used.iter().filter_map(|ip| address(ip)).collect::<Vec<_>>();
                // The grace runs on whoever sets the clock.
                let now = cidr.metadata.deletion_timestamp.as_ref().and_then(|deleted| {
                    let passed = deletions.passed(key.clone(), deleted.0, clock);
                    deleted.0.checked_add(SignedDuration::try_from(passed).ok()?).ok()
                });
                let step = plan(&cidr, &all, &used, now.unwrap_or_else(|| clock.now()));
                (cidr, step)
            });
            let (client, again, recorder) = (client.clone(), again.clone(), recorder.clone());
            async move {
                let Some((cidr, step)) = step else { return Ok(()) };
                match step {
                    Step::Later(left) => {
                        again.add_after(key, Duration::try_from(left).unwrap_or_default());
                        Ok(())
                    }
                    step => take(&client, &cidr, step, clock, &recorder).await,
                }
            }
        });
    });
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
                "lastTransitionTime": clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
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
