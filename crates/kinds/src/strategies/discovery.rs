//! EndpointSlices.

use std::collections::HashSet;

use api::field::{Errors, IMMUTABLE, Path};
use api::names::{self, name_subdomain};
use api::view::{Edit, View, same};
use api::{Gate, Struct, Text};

use crate::columns;
use crate::strategies::core::endpoints::endpoint_ip;
use crate::strategies::generic::{NAMESPACED, check, check_update, first_generation, set_generation};
use crate::strategies::meta::core_meta;
use crate::strategies::rules::Rules;
use crate::strategy::Ctx;
use crate::validation::ip;
use crate::validation::meta::labels;

/// Upstream's limits.
const MAX_TOPOLOGY: usize = 16;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20000;
const MAX_ENDPOINTS: usize = 1000;
const MAX_HINTS: usize = 8;

pub(super) const ENDPOINT_SLICE: Rules = Rules {
    group: "discovery.k8s.io",
    resource: "endpointslices",
    columns: columns::network::ENDPOINT_SLICE,
    prepare_create: |c, s| {
        first_generation(c, s);
        drop_topology(&mut Edit::new(c.schema, s), None);
    },
    prepare_update: |c, n, o| {
        let old = View::new(c.schema, o);
        let mut e = Edit::new(c.schema, n);
        let v = e.view();
        let changed = ["addressType", "endpoints", "ports"].iter().any(|f| !same(v.get(f), old.get(f)))
            || !same(v.st("metadata").get("labels"), old.st("metadata").get("labels"));
        if changed {
            set_generation(&mut e, old.st("metadata").int("generation") + 1);
        }
        drop_topology(&mut e, Some(old));
    },
    counts_gated: true,
    validate: |c, s| check(c, s, |e, v| slice(e, v, None, c)),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            slice(e, n, Some(o), c);
            if n.str("addressType") != o.str("addressType") {
                e.invalid(&Path::root("addressType"), n.str("addressType"), IMMUTABLE);
            }
        })
    },
    warnings,
    ..NAMESPACED
};

const HOST: &str = "kubernetes.io/hostname";

/// Drops the topology except where it was stored. Version 1 has the node's name in a field of its own.
fn drop_topology(e: &mut Edit<'_>, old: Option<View<'_>>) {
    if old.is_some_and(|o| same(o.get("endpoints"), e.view().get("endpoints"))) {
        return;
    }
    let host =
        |v: View<'_>| v.map("deprecatedTopology").and_then(|t| t.get(HOST)).map(|n| Text::from(n.as_str()));
    let known: HashSet<Text> =
        old.map_or_else(HashSet::new, |o| o.items("endpoints").filter_map(host).collect());
    for mut point in e.items("endpoints") {
        if let Some(name) = host(point.view()).filter(|n| known.contains(n))
            && !point.view().has("nodeName")
            && name_subdomain(&name, false).is_empty()
        {
            point.set("nodeName", name);
        }
        point.remove("deprecatedTopology");
    }
}

fn warnings(c: &Ctx<'_>, n: &Struct, old: Option<&Struct>) -> Vec<String> {
    let v = View::new(c.schema, n);
    let mut out = Vec::new();
    if old.is_none() && v.str("addressType") == "FQDN" {
        out.push("spec.addressType: FQDN endpoints are deprecated".into());
    }
    let managed_by = v
        .st("metadata")
        .map("labels")
        .and_then(|l| l.get("endpointslice.kubernetes.io/managed-by"))
        .map(api::Node::as_str);
    if matches!(
        managed_by,
        Some("endpointslice-controller.k8s.io" | "endpointslicemirroring-controller.k8s.io")
    ) {
        return out;
    }
    let at = Path::root("endpoints");
    for (i, point) in v.items("endpoints").enumerate() {
        let at = at.index(i);
        let at = at.field("addresses");
        for (j, a) in point.strs("addresses").enumerate() {
            out.extend(ip::warning(&at.index(j), a));
        }
    }
    out
}

fn slice(errs: &mut Errors, v: View<'_>, old: Option<View<'_>>, c: &Ctx<'_>) {
    core_meta(errs, v.st("metadata"), true, name_subdomain);
    let ty = v.str("addressType");
    if ty.is_empty() {
        errs.required(&Path::root("addressType"), "");
    } else {
        errs.one_of(&Path::root("addressType"), ty, &["FQDN", "IPv4", "IPv6"]);
    }
    ports(errs, v);
    if !old.is_some_and(|o| same(o.get("endpoints"), v.get("endpoints"))) {
        endpoints(errs, v, ty, c.gates.enabled(Gate::StrictIPCIDRValidation));
    }
}

fn ports(errs: &mut Errors, v: View<'_>) {
    let at = Path::root("ports");
    if v.len("ports") > MAX_PORTS {
        errs.too_many(&at, v.len("ports"), MAX_PORTS);
        return;
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, p) in v.items("ports").enumerate() {
        let at = at.index(i);
        let name = p.str("name");
        if !name.is_empty() {
            errs.each(&at.field("name"), name, names::dns1123_label(name));
        }
        if seen.contains(&name) {
            errs.duplicate(&at.field("name"), name);
        } else {
            seen.insert(name);
        }
        match p.opt_str("protocol") {
            None => errs.required(&at.field("protocol"), ""),
            Some(p) => errs.one_of(&at.field("protocol"), p, &["SCTP", "TCP", "UDP"]),
        }
        if let Some(p) = p.opt_str("appProtocol") {
            errs.each(&at.field("appProtocol"), p, names::qualified_name(p));
        }
    }
}

fn endpoints(errs: &mut Errors, v: View<'_>, ty: &str, strict: bool) {
    let at = Path::root("endpoints");
    if v.len("endpoints") > MAX_ENDPOINTS {
        errs.too_many(&at, v.len("endpoints"), MAX_ENDPOINTS);
        return;
    }
    for (i, point) in v.items("endpoints").enumerate() {
        let at = at.index(i);
        let addresses_at = at.field("addresses");
        let count = point.len("addresses");
        if count == 0 {
            errs.required(&addresses_at, "must contain at least 1 address");
        } else if count > MAX_ADDRESSES {
            errs.too_many(&addresses_at, count, MAX_ADDRESSES);
        }
        for (j, a) in point.strs("addresses").enumerate() {
            address(errs, &addresses_at, j, a, ty, strict);
        }
        if let Some(name) = point.opt_str("nodeName") {
            errs.each(&at.field("nodeName"), name, name_subdomain(name, false));
        }
        let topology_at = at.field("deprecatedTopology");
        if point.len("deprecatedTopology") > MAX_TOPOLOGY {
            errs.too_many(&topology_at, point.len("deprecatedTopology"), MAX_TOPOLOGY);
        }
        labels(errs, &topology_at, point, "deprecatedTopology");
        if let Some(name) = point.opt_str("hostname") {
            errs.each(&at.field("hostname"), name, names::dns1123_label(name));
        }
        if let Some(h) = point.opt("hints") {
            let at = at.field("hints");
            if hints(errs, &at, h, "forZones", names::label_value) {
                hints(errs, &at, h, "forNodes", |n| name_subdomain(n, false));
            }
        }
    }
}

fn address(errs: &mut Errors, list: &Path<'_>, j: usize, a: &str, ty: &str, strict: bool) {
    let at = list.index(j);
    let before = errs.len();
    let v6 = match ty {
        "IPv4" => {
            ip::check_legacy(errs, &at, a, strict, &ip::Kept::new());
            false
        }
        "IPv6" => {
            ip::check(errs, &at, a);
            true
        }
        "FQDN" => return domain(errs, &at, a),
        _ => return,
    };
    if errs.len() > before {
        return;
    }
    if ip::parse_sloppy(a).is_some_and(|ip| ip.is_ipv6() != v6) {
        errs.invalid(list, a, format!("must be an {ty} address"));
    }
    endpoint_ip(errs, &at, a);
}

/// Checks a fully qualified domain name.
fn domain(errs: &mut Errors, at: &Path<'_>, name: &str) {
    if name.is_empty() {
        errs.required(at, "");
        return;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let bad = names::dns1123_subdomain(name);
    if !bad.is_empty() {
        errs.invalid(at, name, bad.join(","));
        return;
    }
    if !name.contains('.') {
        errs.invalid(at, name, "should be a domain with at least two segments separated by dots");
        return;
    }
    for label in name.split('.') {
        let bad = names::dns1123_label(label);
        if !bad.is_empty() {
            errs.invalid(at, label, bad.join(","));
        }
    }
}

/// Checks hints; returns false if there are too many.
fn hints(errs: &mut Errors, at: &Path<'_>, h: View<'_>, list: &str, check: fn(&str) -> Vec<String>) -> bool {
    let at = at.field(list);
    if h.len(list) > MAX_HINTS {
        errs.too_many(&at, h.len(list), MAX_HINTS);
        return false;
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, hint) in h.items(list).enumerate() {
        let at = at.index(i);
        let at = at.field("name");
        let name = hint.str("name");
        if seen.contains(&name) {
            errs.duplicate(&at, name);
        } else {
            seen.insert(name);
        }
        errs.each(&at, name, check(name));
    }
    true
}
