//! ClusterIPs and node ports of Services.
//!
//! An address is taken by creating its `IPAddress` object: the store refuses a second one, also
//! from another server or after a restart. Node ports stand in one object that upstream keeps too (`stored_ports`); `repair`
//! makes good what a crash between these and a Service left.

mod cidrs;
mod ports;
mod ranges;
mod repair;
mod service;
mod stored_ports;

use std::net::IpAddr;
use std::sync::Arc;

use api::status::{FieldError, FieldErrorKind};
use api::view::{Edit, View, strings, text_map};
use api::{Gate, NewObject, Status, Struct};
use storage::{Store, Write, WriteError};

pub(crate) use cidrs::DEFAULT as DEFAULT_RANGE;
use ports::{Operation, Port, Refused};
pub(crate) use ranges::Cidr;
use ranges::PortSet;
use service::{
    NONE, Spec, carry, family_of, may_have_node_ports, node_ports, normalize, wants_health_port,
    wants_node_ports,
};
pub(crate) use stored_ports::PLURAL as NODE_PORTS;
use stored_ports::Ports;

use crate::catalog::{ResourceEntry, Stored};
use crate::config::Services;
use crate::objects::Objects;

/// The label of the addresses that were taken here.
const MANAGED_BY: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");

/// The allocators of ClusterIPs and node ports.
pub(crate) struct Allocators {
    /// The ranges of the default ServiceCIDR, which decide about the families; others add addresses to these.
    cidrs: Vec<Cidr>,
    ports: Arc<Ports>,
    objects: Arc<Objects>,
}

/// Addresses and ports taken for a write.
pub(crate) struct Reservation {
    objects: Arc<Objects>,
    ports: Arc<Ports>,
    new_addresses: Vec<String>,
    new_ports: Vec<i64>,
    old_addresses: Vec<String>,
    old_ports: Vec<i64>,
}

impl Reservation {
    /// The write is in: what the Service had before and has no longer is given back.
    pub(crate) async fn keep(mut self) {
        let (addresses, ports) =
            (std::mem::take(&mut self.old_addresses), std::mem::take(&mut self.old_ports));
        self.forget();
        give_back(&self.objects, &self.ports, addresses, ports).await;
    }
    /// The write is not in: what was taken for it is given back. If it is in doubt, what was taken stays so, until
    /// the repair finds it in use or not; the same holds for a request that is abandoned.
    pub(crate) async fn fail(mut self, doubtful: bool) {
        let (addresses, ports) = self.forget();
        if !doubtful {
            give_back(&self.objects, &self.ports, addresses, ports).await;
        }
    }
    fn forget(&mut self) -> (Vec<String>, Vec<i64>) {
        (std::mem::take(&mut self.new_addresses), std::mem::take(&mut self.new_ports))
    }
}

async fn give_back(objects: &Objects, allocated: &Ports, addresses: Vec<String>, ports: Vec<i64>) {
    allocated.release(&ports).await;
    for address in addresses {
        release_address(objects, &address).await;
    }
}

/// The resource of the addresses that are taken.
fn address_resource(objects: &Objects) -> Result<Arc<ResourceEntry>, Status> {
    objects.resource("networking.k8s.io", "ipaddresses").ok_or_else(Status::no_such_resource)
}

async fn release_address(objects: &Objects, address: &str) {
    let Ok(addresses) = address_resource(objects) else { return };
    let Ok(resource) = addresses.stored() else { return };
    while let Some(object) = objects.store.get(resource.id, "", address) {
        let write = Write::Delete {
            resource: resource.id,
            namespace: "".into(),
            name: address.into(),
            expect: object.revision,
        };
        match objects.store.commit(write).await {
            Err(WriteError::Changed(_)) => {}
            Err(error @ (WriteError::Unreadable(_) | WriteError::Engine(_) | WriteError::Closed)) => {
                tracing::warn!(address, %error, "cannot release a ClusterIP");
                return;
            }
            _ => return,
        }
    }
}

fn error(field: &str, value: String, detail: impl Into<String>) -> FieldError {
    FieldError {
        kind: FieldErrorKind::Invalid,
        field: field.into(),
        value: Some(value),
        detail: detail.into(),
    }
}

fn invalid(name: &str, field: &str, value: String, detail: impl Into<String>) -> Status {
    Status::invalid("", "Service", name, &[error(field, value, detail)])
}

fn shown(list: &[String]) -> String {
    format!("[{}]", list.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(","))
}

impl Allocators {
    /// Of the configured ranges.
    pub(crate) fn new(services: &Services, objects: Arc<Objects>) -> Result<Self, String> {
        let cidrs = services.cidrs.iter().map(|c| Cidr::parse(c)).collect::<Result<Vec<_>, _>>()?;
        if cidrs.is_empty() || cidrs.len() > 2 || cidrs.len() == 2 && cidrs[0].family() == cidrs[1].family() {
            return Err("one CIDR for Services is needed, or one of each IP family".into());
        }
        let ports = Arc::new(Ports::new(services.node_ports.clone(), Arc::clone(&objects))?);
        Ok(Self { cidrs, ports, objects })
    }
    /// The ranges of addresses that were configured.
    pub(crate) fn cidrs(&self) -> &[Cidr] {
        &self.cidrs
    }
    fn reservation(&self) -> Reservation {
        Reservation {
            objects: Arc::clone(&self.objects),
            ports: Arc::clone(&self.ports),
            new_addresses: Vec::new(),
            new_ports: Vec::new(),
            old_addresses: Vec::new(),
            old_ports: Vec::new(),
        }
    }
    /// Gives a new Service what it needs.
    pub(crate) async fn create(
        &self,
        namespace: &str,
        tree: &mut Struct,
        dry_run: bool,
    ) -> Result<Reservation, Status> {
        let mut reservation = self.reservation();
        normalize(self.objects.schema(), tree, None);
        self.families(tree, None)?;
        let taken = async {
            self.addresses(namespace, tree, &Spec::default(), &mut reservation, dry_run).await?;
            self.node_ports(tree, None, &mut reservation, dry_run).await
        };
        match taken.await {
            Ok(()) => Ok(reservation),
            Err(status) => {
                reservation.fail(false).await;
                Err(status)
            }
        }
    }
    /// Gives an updated Service what it needs now; what it needs no longer goes when the write is in.
    pub(crate) async fn update(
        &self,
        namespace: &str,
        tree: &mut Struct,
        old: &Struct,
        dry_run: bool,
    ) -> Result<Reservation, Status> {
        let mut reservation = self.reservation();
        carry(self.objects.schema(), tree, old);
        normalize(self.objects.schema(), tree, Some(old));
        self.families(tree, Some(old))?;
        let schema = self.objects.schema();
        let before = Spec::of(&View::new(schema, old));
        let taken = async {
            self.addresses(namespace, tree, &before, &mut reservation, dry_run).await?;
            self.node_ports(tree, Some(old), &mut reservation, dry_run).await
        };
        if let Err(status) = taken.await {
            reservation.fail(false).await;
            return Err(status);
        }
        let had = node_ports(&View::new(schema, old));
        let view = View::new(schema, tree);
        let (now, has) = (Spec::of(&view), node_ports(&view));
        if before.needs_address() {
            reservation.old_addresses = before
                .cluster_ips
                .iter()
                .filter(|ip| !now.needs_address() || !now.cluster_ips.contains(ip))
                .cloned()
                .collect();
        }
        reservation.old_ports = had.into_iter().filter(|p| !has.contains(p)).collect();
        Ok(reservation)
    }
    /// Gives back what a deleted Service held.
    pub(crate) async fn release(&self, tree: &Struct) {
        let view = View::new(self.objects.schema(), tree);
        self.ports.release(&node_ports(&view)).await;
        let spec = Spec::of(&view);
        if spec.needs_address() {
            for ip in &spec.cluster_ips {
                release_address(&self.objects, ip).await;
            }
        }
    }
    /// Sets the families and their policy, as upstream does before it allocates.
    fn families(&self, tree: &mut Struct, old: Option<&Struct>) -> Result<(), Status> {
        const POLICY: &str = "spec.ipFamilyPolicy";
        let schema = self.objects.schema();
        let before = old.map(|o| Spec::of(&View::new(schema, o)));
        let mut spec = Spec::of(&View::new(schema, tree));
        let name = View::new(schema, tree).st("metadata").str("name").to_owned();
        if spec.external() || before.as_ref().is_some_and(|b| b.same_preferred(&spec)) {
            return Ok(());
        }
        let headless_alone = spec.headless() && !spec.selector;
        if !View::new(schema, tree).st("spec").has("ipFamilyPolicy") {
            spec.policy = match &before {
                Some(b) if !b.policy.is_empty() => b.policy.clone(),
                _ if headless_alone => "RequireDualStack".into(),
                _ => "SingleStack".into(),
            };
            if let Some(mut s) = Edit::new(schema, tree).make("spec") {
                s.set("ipFamilyPolicy", spec.policy.as_str());
            }
        }
        let strict = self.objects.gates.enabled(Gate::StrictIPCIDRValidation);
        let errors = kinds::strategies::service_addresses(schema, tree, old, strict);
        if !errors.is_empty() {
            return Err(Status::invalid("", "Service", &name, &errors));
        }
        let mut errors = Vec::new();
        let mut refuse = |field: &str, value: String, detail: &str| errors.push(error(field, value, detail));
        let policy = format!("{:?}", spec.policy);
        let single = spec.policy == "SingleStack";
        if let Some(b) = &before {
            if single {
                if b.cluster_ips == spec.cluster_ips {
                    spec.cluster_ips.truncate(1);
                }
                if b.families == spec.families {
                    spec.families.truncate(1);
                }
            } else {
                if !spec.cluster_ips.is_empty() && spec.cluster_ips.len() < b.cluster_ips.len() {
                    let why = "must be 'SingleStack' to release the secondary cluster IP";
                    refuse(POLICY, policy.clone(), why);
                }
                if !spec.families.is_empty() && spec.families.len() < b.families.len() {
                    let why = "must be 'SingleStack' to release the secondary IP family";
                    refuse(POLICY, policy.clone(), why);
                }
            }
        }
        if single {
            for (two, what) in
                [(spec.cluster_ips.len() == 2, "cluster IPs"), (spec.families.len() == 2, "IP families")]
            {
                if two {
                    let why = format!(
                        "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                    );
                    refuse(POLICY, policy.clone(), &why);
                }
            }
        }
        let configured = |family: &str| self.cidrs.iter().any(|c| c.family() == family);
        for (i, ip) in spec.cluster_ips.iter().enumerate().take_while(|(_, ip)| *ip != NONE) {
            let family = family_of(ip);
            if i < spec.families.len() {
                continue;
            }
            if configured(family) {
                spec.families.push(family.into());
            } else {
                let why = format!("{family} is not configured on this cluster");
                refuse(&format!("spec.clusterIPs[{i}]"), shown(&spec.cluster_ips), &why);
            }
        }
        if errors.is_empty() && !headless_alone {
            if spec.policy == "RequireDualStack" && self.cidrs.len() < 2 {
                errors.push(error(POLICY, policy, "this cluster is not configured for dual-stack services"));
            }
            for (i, family) in spec.families.iter().enumerate().filter(|(_, f)| !configured(f)) {
                let field = format!("spec.ipFamilies[{i}]");
                errors.push(error(&field, format!("{family:?}"), "not configured on this cluster"));
            }
        }
        if !errors.is_empty() {
            return Err(Status::invalid("", "Service", &name, &errors));
        }
        if spec.families.is_empty() {
            spec.families.push(self.cidrs[0].family().into());
        }
        if !single && spec.families.len() == 1 && (headless_alone || self.cidrs.len() == 2) {
            let other = if spec.families[0] == "IPv4" { "IPv6" } else { "IPv4" };
            spec.families.push(other.into());
        }
        if let Some(mut s) = Edit::new(schema, tree).make("spec") {
            s.set("ipFamilies", strings(spec.families.iter().map(String::as_str)));
            if !spec.cluster_ips.is_empty() {
                s.set("clusterIPs", strings(spec.cluster_ips.iter().map(String::as_str)));
            }
        }
        Ok(())
    }
    async fn addresses(
        &self,
        namespace: &str,
        tree: &mut Struct,
        before: &Spec,
        reservation: &mut Reservation,
        dry_run: bool,
    ) -> Result<(), Status> {
        let schema = self.objects.schema();
        let view = View::new(schema, tree);
        let spec = Spec::of(&view);
        if !spec.needs_address() {
            return Ok(());
        }
        let name = view.st("metadata").str("name").to_owned();
        let mut ips = spec.cluster_ips.clone();
        ips.resize(spec.families.len().max(ips.len()), String::new());
        for (i, family) in spec.families.iter().enumerate() {
            let wanted = ips[i].clone();
            // An address that the Service had can't change: if it does, that is refused later.
            let had = before.cluster_ips.get(i).is_some_and(|ip| !ip.is_empty());
            if had && !before.external() && !wanted.is_empty() {
                continue;
            }
            if !self.cidrs.iter().any(|c| c.family() == family) {
                continue;
            }
            let ranges = self.ready(family);
            let failed = |why: String| {
                invalid(
                    &name,
                    "spec.clusterIPs",
                    shown(&spec.cluster_ips),
                    format!("failed to allocate IP {wanted}: {why}"),
                )
            };
            let owner = (namespace, name.as_str());
            if wanted.is_empty() {
                let ip = self
                    .take_any(&ranges, owner, dry_run)
                    .await?
                    .ok_or_else(|| Status::internal("failed to allocate a serviceIP: range is full"))?;
                ips[i].clone_from(&ip);
                if !dry_run {
                    reservation.new_addresses.push(ip);
                }
                continue;
            }
            let address: IpAddr =
                wanted.parse().map_err(|_| failed(format!("ParseAddr({wanted:?}): unable to parse IP")))?;
            if !ranges.iter().any(|range| range.contains(address)) {
                // A dry run of upstream asks one range alone.
                let near = ranges.iter().find(|r| r.covers(address)).or(ranges.first().filter(|_| dry_run));
                return Err(failed(near.map_or_else(
                    || "the provided network does not match the current range".into(),
                    |range| {
                        let range = range.text();
                        format!(
                            "the provided IP ({address}) is not in the valid range. The range of valid IPs is {range}"
                        )
                    },
                )));
            }
            let canonical = address.to_string();
            if !take(&self.objects, &canonical, family, owner, dry_run).await? {
                return Err(failed("provided IP is already allocated".into()));
            }
            if !dry_run {
                reservation.new_addresses.push(canonical);
            }
        }
        if let Some(mut s) = Edit::new(schema, tree).make("spec") {
            s.set("clusterIP", ips.first().map_or("", String::as_str));
            s.set("clusterIPs", strings(ips.iter().map(String::as_str)));
        }
        Ok(())
    }
    /// Takes the first address of the ranges that is free.
    async fn take_any(
        &self,
        ranges: &[Cidr],
        owner: (&str, &str),
        dry_run: bool,
    ) -> Result<Option<String>, Status> {
        let first = self.cidrs.iter().map(Cidr::first).collect::<Vec<_>>();
        let id = address_resource(&self.objects)?.stored()?.id;
        for range in ranges {
            for address in range.candidates() {
                // The first of the default range is the `kubernetes` Service's.
                let text = address.to_string();
                if first.contains(&address) || self.objects.store.get(id, "", &text).is_some() {
                    continue;
                }
                if take(&self.objects, &text, range.family(), owner, dry_run).await? {
                    return Ok(Some(text));
                }
            }
        }
        Ok(None)
    }
    /// Gives a Service its node ports.
    async fn node_ports(
        &self,
        tree: &mut Struct,
        old: Option<&Struct>,
        reservation: &mut Reservation,
        dry_run: bool,
    ) -> Result<(), Status> {
        let schema = self.objects.schema();
        let wish = Wish::of(&View::new(schema, tree), old.map(|old| View::new(schema, old)).as_ref());
        if !wish.takes() {
            return Ok(());
        }
        let given = if dry_run {
            let mut all = self.ports.current().await?;
            wish.grant(&mut all, true)?
        } else {
            self.ports.change(|all| wish.grant(all, false)).await?
        };
        reservation.new_ports.extend(given.taken);
        let mut edit = Edit::new(schema, tree);
        let Some(mut spec) = edit.make("spec") else { return Ok(()) };
        for (mut port, given) in spec.items("ports").zip(given.ports) {
            if given.node_port != 0 {
                port.set("nodePort", given.node_port);
            }
        }
        if let Some(number) = given.health {
            spec.set("healthCheckNodePort", number);
        }
        Ok(())
    }
}

/// The node ports that a Service asks for.
struct Wish {
    name: String,
    ports: Vec<Port>,
    /// Whether every port is to have one.
    wants: bool,
    /// Whether any may.
    may: bool,
    /// Those it has, unless it is new.
    had: Option<Vec<i64>>,
    /// The port for health checks that it needs and lacks; 0 for any.
    health: Option<i64>,
}

/// The node ports that a Service gets.
struct Given {
    ports: Vec<Port>,
    health: Option<i64>,
    taken: Vec<i64>,
}

impl Wish {
    fn of(view: &View<'_>, old: Option<&View<'_>>) -> Self {
        let spec = view.st("spec");
        // One that is wanted already has its number, which does not change.
        let needs_health = wants_health_port(view) && old.is_none_or(|o| !wants_health_port(o));
        Self {
            name: view.st("metadata").str("name").to_owned(),
            ports: spec
                .items("ports")
                .map(|p| Port { port: p.int("port"), node_port: p.int("nodePort") })
                .collect(),
            wants: wants_node_ports(view),
            may: may_have_node_ports(view),
            had: old.map(node_ports),
            health: needs_health.then(|| spec.int("healthCheckNodePort")),
        }
    }
    /// Whether anything may have to be taken for it.
    fn takes(&self) -> bool {
        let had = |port: &Port| self.had.as_ref().is_some_and(|had| had.contains(&port.node_port));
        let lacks = |port: &Port| if port.node_port == 0 { self.wants } else { !had(port) };
        self.health.is_some() || self.may && self.ports.iter().any(lacks)
    }
    fn grant(&self, all: &mut PortSet, dry_run: bool) -> Result<Given, Status> {
        let mut op = Operation::new(all, dry_run);
        let mut ports = self.ports.clone();
        let assigned = match &self.had {
            _ if !self.may => Ok(()),
            None => ports::assign_new(&mut ports, self.wants, &mut op),
            Some(had) => ports::assign_again(&mut ports, self.wants, had, &mut op),
        };
        assigned.map_err(|refused| match refused {
            Refused::Wanted { index, number, why } => {
                invalid(&self.name, &format!("spec.ports[{index}].nodePort"), number.to_string(), why)
            }
            Refused::Full => Status::internal("failed to allocate a nodePort: range is full"),
        })?;
        let health = match self.health {
            None => None,
            Some(0) => {
                Some(op.take_any().ok_or_else(|| {
                    Status::internal("failed to allocate a HealthCheck port: range is full")
                })?)
            }
            Some(asked) => {
                let refused = |why| invalid(&self.name, "spec.healthCheckNodePort", asked.to_string(), why);
                op.take(asked).map(|()| Some(asked)).map_err(refused)?
            }
        };
        Ok(Given { ports, health, taken: op.taken() })
    }
}

/// Takes an address; whether it was free.
async fn take(
    objects: &Objects,
    address: &str,
    family: &str,
    owner: (&str, &str),
    dry_run: bool,
) -> Result<bool, Status> {
    let addresses = address_resource(objects)?;
    let resource = addresses.stored()?;
    if dry_run {
        return Ok(objects.store.get(resource.id, "", address).is_none());
    }
    let object = ip_address(objects, resource, address, family, owner)?;
    claim(&objects.store, resource, object).await
}

async fn claim(store: &Store, resource: &Stored, object: NewObject) -> Result<bool, Status> {
    match store.commit(Write::Create { resource: resource.id, object, ttl: None }).await {
        Ok(_) => Ok(true),
        Err(WriteError::Exists(_)) => Ok(false),
        Err(e) => Err(Status::internal(format!("failed to allocate a serviceIP: {e}"))),
    }
}

/// The `IPAddress` object of an address, for a Service.
fn ip_address(
    objects: &Objects,
    resource: &Stored,
    address: &str,
    family: &str,
    (namespace, name): (&str, &str),
) -> Result<NewObject, Status> {
    let catalog = objects.catalog();
    let schema = catalog.schema();
    let mut tree = Struct::new(resource.root);
    let uid = uuid::Uuid::new_v4().to_string();
    let labels = [("ipaddress.kubernetes.io/ip-family", family), MANAGED_BY];
    {
        let mut edit = Edit::new(schema, &mut tree);
        if let Some(mut meta) = edit.make("metadata") {
            meta.set("name", address);
            meta.set("uid", uid.as_str());
            meta.set("resourceVersion", "");
            meta.set("creationTimestamp", objects.now());
            meta.set("labels", text_map(labels));
        }
        if let Some(mut spec) = edit.make("spec")
            && let Some(mut parent) = spec.make("parentRef")
        {
            parent.set("resource", "services");
            parent.set("namespace", namespace);
            parent.set("name", name);
        }
    }
    catalog.meta.at_rest(schema, &*resource.strategy, resource.meta_at, tree, 0)
}
