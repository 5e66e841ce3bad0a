//! The fields of a Service that decide about its addresses and ports.

use std::collections::{HashMap, HashSet};

use api::view::{Edit, View, strings};
use api::{Schema, Struct};

/// The address of a Service that has none.
pub(super) const NONE: &str = "None";

/// The fields of a Service that decide about its addresses.
#[derive(Debug, Default, Clone)]
pub(super) struct Spec {
    pub(super) kind: String,
    pub(super) cluster_ips: Vec<String>,
    pub(super) families: Vec<String>,
    pub(super) policy: String,
    pub(super) selector: bool,
}

impl Spec {
    pub(super) fn of(view: &View<'_>) -> Self {
        let spec = view.st("spec");
        Self {
            kind: spec.str("type").into(),
            cluster_ips: spec.strs("clusterIPs").map(str::to_owned).collect(),
            families: spec.strs("ipFamilies").map(str::to_owned).collect(),
            policy: spec.str("ipFamilyPolicy").into(),
            selector: spec.map("selector").is_some_and(|m| !m.is_empty()),
        }
    }
    pub(super) fn external(&self) -> bool {
        self.kind == "ExternalName"
    }
    pub(super) fn headless(&self) -> bool {
        self.cluster_ips.first().is_some_and(|ip| ip == NONE)
    }
    /// Whether nothing changed that decides about addresses of a Service that prefers two families.
    pub(super) fn same_preferred(&self, other: &Self) -> bool {
        const PREFER: &str = "PreferDualStack";
        self.kind == other.kind
            && self.policy == PREFER
            && other.policy == PREFER
            && self.cluster_ips == other.cluster_ips
            && self.families == other.families
    }
    pub(super) fn needs_address(&self) -> bool {
        !self.external() && !self.headless()
    }
}

pub(super) fn wants_node_ports(view: &View<'_>) -> bool {
    let spec = view.st("spec");
    match spec.str("type") {
        "NodePort" => true,
        "LoadBalancer" => spec.opt_bool("allocateLoadBalancerNodePorts").unwrap_or(true),
        _ => false,
    }
}

pub(super) fn may_have_node_ports(view: &View<'_>) -> bool {
    matches!(view.st("spec").str("type"), "NodePort" | "LoadBalancer")
}

pub(super) fn wants_health_port(view: &View<'_>) -> bool {
    let spec = view.st("spec");
    spec.str("type") == "LoadBalancer" && spec.str("externalTrafficPolicy") == "Local"
}

pub(super) fn node_ports(view: &View<'_>) -> Vec<i64> {
    let spec = view.st("spec");
    let mut all: Vec<i64> = spec
        .items("ports")
        .map(|p| p.int("nodePort"))
        .chain([spec.int("healthCheckNodePort")])
        .filter(|p| *p != 0)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

pub(super) fn family_of(ip: &str) -> &'static str {
    if ip.contains(':') { "IPv6" } else { "IPv4" }
}

/// `clusterIP` and the first of `clusterIPs` are the same; whoever sets one means both.
pub(super) fn normalize(schema: &Schema, tree: &mut Struct, old: Option<&Struct>) {
    let (one, many) = {
        let spec = View::new(schema, tree).st("spec");
        (spec.str("clusterIP").to_owned(), spec.strs("clusterIPs").map(str::to_owned).collect::<Vec<_>>())
    };
    let mut edit = Edit::new(schema, tree);
    let Some(mut spec) = edit.make("spec") else { return };
    let Some(old) = old else {
        if !one.is_empty() && many.is_empty() {
            spec.set("clusterIPs", strings([one.as_str()]));
        }
        return;
    };
    let before = View::new(schema, old).st("spec");
    let had: Vec<&str> = before.strs("clusterIPs").collect();
    if before.str("clusterIP") != one {
        let unchanged = many.iter().map(String::as_str).eq(had.iter().copied());
        if one.is_empty() && unchanged {
            spec.remove("clusterIPs");
        } else if !one.is_empty() && unchanged {
            spec.set("clusterIPs", strings([one.as_str()]));
        }
    }
}

/// Carries over the addresses and node ports that a client left out of an update.
pub(super) fn carry(schema: &Schema, tree: &mut Struct, old: &Struct) {
    let before = View::new(schema, old);
    let (was, old_spec) = (Spec::of(&before), before.st("spec"));
    let now = Spec::of(&View::new(schema, tree));
    let keep_ports = wants_node_ports(&before) && wants_node_ports(&View::new(schema, tree));
    let keep_health = wants_health_port(&before) && wants_health_port(&View::new(schema, tree));
    let mut edit = Edit::new(schema, tree);
    let Some(mut spec) = edit.make("spec") else { return };
    if !was.external() && !now.external() {
        if spec.view().str("clusterIP").is_empty() {
            spec.put("clusterIP", old_spec.get("clusterIP").cloned());
        }
        if now.cluster_ips.is_empty() {
            spec.put("clusterIPs", old_spec.get("clusterIPs").cloned());
        }
    }
    if keep_ports {
        // By the ports' names, whatever else of them changed.
        let had: HashMap<&str, i64> =
            old_spec.items("ports").map(|p| (p.str("name"), p.int("nodePort"))).collect();
        let used: HashSet<i64> = spec.view().items("ports").map(|p| p.int("nodePort")).collect();
        for mut port in spec.items("ports") {
            let view = port.view();
            // Upstream looks at the last of a name.
            let known = had.get(view.str("name")).copied().unwrap_or_default();
            if view.int("nodePort") == 0 && known != 0 && !used.contains(&known) {
                port.set("nodePort", known);
            }
        }
    }
    if keep_health && spec.view().int("healthCheckNodePort") == 0 {
        spec.put("healthCheckNodePort", old_spec.get("healthCheckNodePort").cloned());
    }
}
