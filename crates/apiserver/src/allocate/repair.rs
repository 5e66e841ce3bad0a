//! The work of upstream's repair controllers: every Service has the node ports and addresses that it names, and those
//! that no Service has are free again.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use access::reader::Reader;
use api::view::View;
use api::{Object, Status, Struct};
use client::events::{EventType, Recorder};
use component::Shutdown;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use storage::{Write, WriteError};
use tokio::time::Instant;

use super::ranges::{PortSet, TAKEN};
use super::service::{Spec, family_of};
use super::{Allocators, MANAGED_BY, address_resource, claim, ip_address};

/// How often everything is looked through; upstream's `repairLoopInterval`.
const INTERVAL: Duration = Duration::from_mins(3);
/// In how many rounds a port that no Service has must be found before it is free again.
const ROUNDS: u8 = 3;
/// How old an address must be that no Service has: the Service may be about to be made.
const GRACE: SignedDuration = SignedDuration::from_secs(60);
/// How often a round is begun anew that others got between.
const TRIES: u32 = 10;
/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(2);

/// A finding about an object.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    /// The object's place in the list of those that were looked at.
    at: usize,
    reason: &'static str,
    message: String,
}

/// The node ports that a Service has: one of several protocols once, and one that it has twice twice.
fn ports_of(view: &View<'_>) -> Vec<i64> {
    let spec = view.st("spec");
    let mut ports = Vec::new();
    let mut seen: HashMap<i64, Vec<&str>> = HashMap::new();
    let mut add = |port: i64, protocol| {
        let protocols = seen.entry(port).or_default();
        if protocols.is_empty() || protocols.contains(&protocol) {
            ports.push(port);
        }
        protocols.push(protocol);
    };
    for port in spec.items("ports").filter(|p| p.int("nodePort") != 0) {
        add(port.int("nodePort"), port.str("protocol"));
    }
    if spec.int("healthCheckNodePort") != 0 {
        add(spec.int("healthCheckNodePort"), "TCP");
    }
    ports
}

/// The ports that should be taken: those of the Services, and for some rounds (`leaks`) all others that were taken.
fn plan(
    range: &RangeInclusive<u16>,
    stored: Option<PortSet>,
    services: &[Vec<i64>],
    leaks: &mut HashMap<u16, u8>,
) -> (PortSet, Vec<Finding>) {
    let mut rebuilt = PortSet::new(range);
    let mut left = stored.unwrap_or_else(|| PortSet::new(range));
    let mut findings = Vec::new();
    for (at, ports) in services.iter().enumerate() {
        for &port in ports {
            let mut find = |reason, message| findings.push(Finding { at, reason, message });
            match rebuilt.take(port) {
                Ok(()) => {
                    if left.has(port) {
                        left.release(port);
                    } else {
                        find("PortNotAllocated", format!("Port {port} is not allocated; repairing"));
                    }
                    leaks.retain(|leak, _| i64::from(*leak) != port);
                }
                Err(why) if why == TAKEN => find(
                    "PortAlreadyAllocated",
                    format!("Port {port} was assigned to multiple services; please recreate service"),
                ),
                Err(_) => find(
                    "PortOutOfRange",
                    format!(
                        "Port {port} is not within the port range {}; please recreate service",
                        rebuilt.range()
                    ),
                ),
            }
        }
    }
    let mut still = HashMap::new();
    for port in left.taken() {
        let rounds = leaks.get(&port).copied().unwrap_or(ROUNDS - 1);
        if rounds == 0 {
            tracing::info!(port, "the node port appears to have leaked: cleaning up");
            continue;
        }
        still.insert(port, rounds - 1);
        // One outside of the range that is now configured is not kept.
        let _ = rebuilt.take(i64::from(port));
    }
    *leaks = still;
    (rebuilt, findings)
}

/// The memory of one repair for the next.
struct Rounds {
    leaks: HashMap<u16, u8>,
    /// When the ports are next looked through: rounds that follow each other at once would take what a Service is
    /// about to be made with for a leak.
    ports_at: Instant,
}

/// An object with its tree.
type Decoded = (Arc<Object>, Struct);

impl Allocators {
    pub(super) fn decoded(&self, group: &'static str, plural: &'static str) -> Vec<Decoded> {
        let tree = |object: Arc<Object>| {
            let tree = self.objects.tree(group, plural, &object);
            // An object that cannot be decoded has nothing to say about its ports.
            tree.ok().map(|tree| (object, tree))
        };
        self.objects.list((group, plural), "").into_iter().filter_map(tree).collect()
    }

    /// Repairs everything once, and then again and again until shutdown. Returns after the first time.
    pub(crate) async fn keep_repaired(self: &Arc<Self>, recorders: [Recorder; 2], shutdown: &Shutdown) {
        let mut rounds = Rounds { leaks: HashMap::new(), ports_at: Instant::now() };
        let mut pause = self.repair(&recorders, &mut rounds).await;
        let (allocators, stop) = (Arc::clone(self), shutdown.clone());
        shutdown.spawn(async move {
            while stop.run(tokio::time::sleep(pause)).await.is_some() {
                match stop.run(allocators.repair(&recorders, &mut rounds)).await {
                    Some(next) => pause = next,
                    None => return,
                }
            }
        });
    }

    /// Repairs everything; after what time to do it again.
    async fn repair(&self, [ports, addresses]: &[Recorder; 2], rounds: &mut Rounds) -> Duration {
        let repaired = async {
            let now = Instant::now();
            if now >= rounds.ports_at {
                self.repair_ports(ports, &mut rounds.leaks).await?;
                rounds.ports_at = now + INTERVAL;
            }
            self.repair_addresses(addresses).await
        };
        match repaired.await {
            Ok(()) => INTERVAL,
            Err(error) => {
                tracing::warn!(%error, "cannot repair the allocation of node ports and ClusterIPs");
                RETRY.mul_f64(1.0 + fastrand::f64())
            }
        }
    }

    async fn repair_ports(&self, recorder: &Recorder, leaks: &mut HashMap<u16, u8>) -> Result<(), Status> {
        for attempt in 1..=TRIES {
            self.ports.fresh().await?;
            // First the ports: a Service whose ports were taken after this is not looked for.
            let object = self.ports.stored();
            let set = object.as_ref().and_then(|object| self.ports.read(object).ok());
            let services = self.decoded("", "services");
            let lists: Vec<_> =
                services.iter().map(|(_, tree)| ports_of(&View::new(self.objects.schema(), tree))).collect();
            let mut leaks_now = leaks.clone();
            // Where there was nothing yet, nothing is missing.
            let known = set.is_some();
            let (rebuilt, findings) = plan(self.ports.range(), set, &lists, &mut leaks_now);
            if self.ports.replace(object.as_deref(), &rebuilt).await? {
                *leaks = leaks_now;
                let told = findings.into_iter().filter(|f| known || f.reason != "PortNotAllocated");
                for Finding { at, reason, message } in told {
                    if let Some((object, _)) = services.get(at) {
                        recorder.event_about(about(object, "Service"), EventType::Warning, reason, message);
                    }
                }
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10).mul_f64(f64::from(attempt) * fastrand::f64())).await;
        }
        Err(Status::internal("the port allocations change too often to be repaired now"))
    }

    async fn repair_addresses(&self, recorder: &Recorder) -> Result<(), Status> {
        let schema = self.objects.schema();
        let addresses = address_resource(&self.objects)?;
        let resource = addresses.stored()?;
        let warn = |about, reason, message| recorder.event_about(about, EventType::Warning, reason, message);
        let names = |object: &Object, ip: &str| {
            let spec = self.objects.tree("", "services", object).map(|t| Spec::of(&View::new(schema, &t)));
            spec.is_ok_and(|spec| spec.needs_address() && spec.cluster_ips.iter().any(|has| has == ip))
        };
        let ranges = self.all();
        for (service, tree) in self.decoded("", "services") {
            let spec = Spec::of(&View::new(schema, &tree));
            let owner = (service.data.namespace.as_str(), service.data.name.as_str());
            for ip in spec.cluster_ips.iter().filter(|_| spec.needs_address()) {
                let warn = |reason, message| warn(about(&service, "Service"), reason, message);
                let family = family_of(ip);
                let Ok(address) = ip.parse() else {
                    let message = format!("Cluster IP {ip} is not a valid IP; please recreate Service");
                    warn("ClusterIPNotValid", message);
                    continue;
                };
                if !ranges.iter().any(|range| range.contains(address)) {
                    let message = format!(
                        "Cluster IP [{family}]: {ip} is not within any configured Service CIDR; please recreate service"
                    );
                    warn("ClusterIPOutOfRange", message);
                    continue;
                }
                let make = || ip_address(&self.objects, resource, ip, family, owner);
                let Some(taken) = self.objects.store.get(resource.id, "", ip) else {
                    if !self.objects.get(("", "services"), owner.0, owner.1).is_some_and(|s| names(&s, ip)) {
                        continue;
                    }
                    let message = format!("Cluster IP [{family}]: {ip} is not allocated; repairing");
                    warn("ClusterIPNotAllocated", message);
                    claim(&self.objects.store, resource, make()?).await?;
                    continue;
                };
                let parent = self.parent(&taken);
                if parent.as_ref().is_some_and(|p| (p.0.as_str(), p.1.as_str()) == owner) {
                    continue;
                }
                let other = parent.and_then(|p| self.objects.get(("", "services"), &p.0, &p.1));
                if other.is_some_and(|other| names(&other, ip)) {
                    let message = format!(
                        "Cluster IP [{family}]:{ip} was assigned to multiple services; please recreate service"
                    );
                    warn("ClusterIPAlreadyAllocated", message);
                    continue;
                }
                let message = format!(
                    "the ClusterIP [{family}]: {ip} for Service {}/{} has a wrong reference; repairing",
                    owner.0, owner.1
                );
                warn("ClusterIPNotAllocated", message);
                if self.remove(&taken).await? {
                    claim(&self.objects.store, resource, make()?).await?;
                }
            }
        }
        let now = self.objects.clock.now();
        for (address, tree) in self.decoded("networking.k8s.io", "ipaddresses") {
            let ours = address.data.labels.iter().any(|(k, v)| (k.as_str(), v.as_str()) == MANAGED_BY);
            let name = &address.data.name;
            let created =
                View::new(schema, &tree).st("metadata").str("creationTimestamp").parse::<Timestamp>();
            let young = created.is_ok_and(|at| now.duration_since(at) <= GRACE);
            let parent = self.parent(&address);
            let service = parent.as_ref().and_then(|p| self.objects.get(("", "services"), &p.0, &p.1));
            if !ours || young || service.is_some_and(|service| names(&service, name)) {
                continue;
            }
            let message = match &parent {
                Some((namespace, service)) => format!(
                    "IPAddress: {name} for Service {namespace}/{service} appears to have leaked: cleaning up"
                ),
                None => format!(
                    "IPAddress {name} appears to have been modified, not referencing a Service: cleaning up"
                ),
            };
            warn(about(&address, "IPAddress"), "IPAddressNotAllocated", message);
            self.remove(&address).await?;
        }
        Ok(())
    }

    /// Namespace and name of the Service that an address is of.
    fn parent(&self, address: &Object) -> Option<(String, String)> {
        let tree = self.objects.tree("networking.k8s.io", "ipaddresses", address).ok()?;
        let parent = View::new(self.objects.schema(), &tree).st("spec").st("parentRef");
        let of_service = parent.str("group").is_empty() && parent.str("resource") == "services";
        of_service.then(|| (parent.str("namespace").to_owned(), parent.str("name").to_owned()))
    }

    /// Removes an address if it is still as it was read; whether it was.
    async fn remove(&self, address: &Object) -> Result<bool, Status> {
        let write = Write::Delete {
            resource: address_resource(&self.objects)?.stored()?.id,
            namespace: "".into(),
            name: address.data.name.clone(),
            expect: address.revision,
        };
        match self.objects.store.commit(write).await {
            Ok(_) => Ok(true),
            Err(WriteError::Changed(_) | WriteError::NotFound) => Ok(false),
            Err(error) => Err(Status::internal(error)),
        }
    }
}

fn about(object: &Object, kind: &str) -> ObjectReference {
    let (namespace, api_version) = match kind {
        "Service" => (Some(object.data.namespace.to_string()), "v1"),
        _ => (None, "networking.k8s.io/v1"),
    };
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        namespace,
        name: Some(object.data.name.to_string()),
        uid: Some(object.data.uid.to_string()),
        resource_version: Some(object.revision.to_string()),
        field_path: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases (`TestRepairWithExisting`, `TestRepairLeak`).
    #[test]
    fn ports_are_repaired() {
        let range = 100..=200;
        let mut stored = PortSet::new(&range);
        for port in [111, 122, 133, 144] {
            stored.take(port).unwrap();
        }
        let services =
            [vec![111], vec![122, 122], vec![201], vec![111], vec![155], vec![], vec![-1], vec![70_000]];
        let mut leaks = HashMap::from([(111, 1)]);
        let (rebuilt, findings) = plan(&range, Some(stored), &services, &mut leaks);
        assert_eq!(rebuilt.taken().collect::<Vec<_>>(), [111, 122, 133, 144, 155]);
        assert_eq!(leaks, HashMap::from([(133, 1), (144, 1)]));
        let found: Vec<_> = findings.iter().map(|f| (f.at, f.reason, f.message.as_str())).collect();
        let twice =
            |port: u16| format!("Port {port} was assigned to multiple services; please recreate service");
        let outside =
            |port: i64| format!("Port {port} is not within the port range 100-200; please recreate service");
        assert_eq!(
            found,
            [
                (1, "PortAlreadyAllocated", &*twice(122)),
                (2, "PortOutOfRange", &*outside(201)),
                (3, "PortAlreadyAllocated", &*twice(111)),
                (4, "PortNotAllocated", "Port 155 is not allocated; repairing"),
                (6, "PortOutOfRange", &*outside(-1)),
                (7, "PortOutOfRange", &*outside(70_000)),
            ]
        );
    }

    #[test]
    fn a_leak_ends_after_some_rounds() {
        let range = 100..=200;
        let mut set = PortSet::new(&range);
        set.take(111).unwrap();
        let mut leaks = HashMap::new();
        for round in 1..=3 {
            let (rebuilt, _) = plan(&range, Some(set.clone()), &[], &mut leaks);
            assert_eq!(rebuilt.has(111), round < 3, "round {round}");
            set = rebuilt;
        }
        // One that is used meanwhile is none.
        set.take(122).unwrap();
        for services in [&[][..], &[vec![122]], &[], &[]] {
            set = plan(&range, Some(set.clone()), services, &mut leaks).0;
            assert!(set.has(122));
        }
    }
}
