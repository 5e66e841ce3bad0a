//! NetworkPolicies, Ingresses and their classes, IPAddresses and ServiceCIDRs.

use api::Gate;
use api::Struct;
use api::field::{Errors, IMMUTABLE, Path, Raw};
use api::names::{self, domain_prefixed_path, name_subdomain};
use api::view::View;

use crate::columns;
use crate::strategies::generic::{
    self, CLUSTER, NAMESPACED, STATUS_ALONE, bump_if_written, bump_spec, check, check_update,
    first_generation,
};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::rules::{Rules, SubresourceRules, Takes, going};
use crate::strategies::template::whole;
use crate::strategy::Ctx;
use crate::validation::immutable;
use crate::validation::ip::{self, Kept};
use crate::validation::meta::{SelectorOptions, label_selector};
use crate::validation::print;

pub(super) const NETWORK_POLICY: Rules = Rules {
    group: "networking.k8s.io",
    resource: "networkpolicies",
    columns: columns::network::NETWORK_POLICY,
    prepare_create: first_generation,
    prepare_update: |c, n, o| bump_if_written(c, n, o, "spec"),
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), true, name_subdomain);
            policy_spec(e, v.st("spec"), &PolicyOptions::new(c));
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            let mut options = PolicyOptions::new(c);
            let mut before = Errors::new();
            let selector = o.st("spec").opt("podSelector");
            label_selector(&mut before, &Path::root(""), selector, SelectorOptions::default());
            options.selector.invalid_values = !before.is_empty();
            blocks(o.st("spec"), |_, b| {
                options.old.insert(b.str("cidr"));
                options.old.extend(b.strs("except"));
            });
            policy_spec(e, n.st("spec"), &options);
        })
    },
    warnings: |c, n, _| {
        let mut out = Vec::new();
        blocks(View::new(c.schema, n).st("spec"), |at, b| {
            out.extend(ip::cidr_warnings(&at.field("cidr"), b.str("cidr")));
            let at = at.field("except");
            for (k, cidr) in b.strs("except").enumerate() {
                out.extend(ip::cidr_warnings(&at.index(k), cidr));
            }
        });
        out
    },
    ..NAMESPACED
};

const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

struct PolicyOptions<'a> {
    selector: SelectorOptions,
    strict: bool,
    old: Kept<'a>,
}

impl PolicyOptions<'_> {
    fn new(c: &Ctx<'_>) -> Self {
        Self {
            selector: SelectorOptions::default(),
            strict: c.gates.enabled(Gate::StrictIPCIDRValidation),
            old: Kept::new(),
        }
    }
}

/// Calls `f` with each `ipBlock` of a policy.
fn blocks<'a>(spec: View<'a>, mut f: impl FnMut(&Path<'_>, View<'a>)) {
    let at = Path::root("spec");
    for (direction, peers) in DIRECTIONS {
        let at = at.field(direction);
        for (i, rule) in spec.items(direction).enumerate() {
            let at = at.index(i);
            let at = at.field(peers);
            for (j, peer) in rule.items(peers).enumerate() {
                if let Some(b) = peer.opt("ipBlock") {
                    f(&at.index(j).field("ipBlock"), b);
                }
            }
        }
    }
}

fn policy_spec(errs: &mut Errors, spec: View<'_>, o: &PolicyOptions<'_>) {
    let at = Path::root("spec");
    label_selector(errs, &at.field("podSelector"), spec.opt("podSelector"), o.selector);
    for (direction, peers) in DIRECTIONS {
        let at = at.field(direction);
        for (i, rule) in spec.items(direction).enumerate() {
            let at = at.index(i);
            let ports_at = at.field("ports");
            for (j, port) in rule.items("ports").enumerate() {
                policy_port(errs, &ports_at.index(j), port);
            }
            let peers_at = at.field(peers);
            for (j, peer) in rule.items(peers).enumerate() {
                policy_peer(errs, &peers_at.index(j), peer, o);
            }
        }
    }
    let at = at.field("policyTypes");
    if spec.len("policyTypes") > 2 {
        errs.invalid(&at, spec.get("policyTypes"), "may not specify more than two policyTypes");
        return;
    }
    for (i, t) in spec.strs("policyTypes").enumerate() {
        errs.one_of(&at.index(i), t, &["Ingress", "Egress"]);
    }
}

fn policy_port(errs: &mut Errors, at: &Path<'_>, port: View<'_>) {
    if let Some(p) = port.opt_str("protocol") {
        errs.one_of(&at.field("protocol"), p, &["TCP", "UDP", "SCTP"]);
    }
    let end = port.opt_int("endPort");
    let (port_at, end_at) = (at.field("port"), at.field("endPort"));
    match port.get("port") {
        None => {
            if let Some(end) = end {
                errs.invalid(&end_at, end, "may not be specified when `port` is not specified");
            }
        }
        Some(api::Node::Str(name)) => {
            if let Some(end) = end {
                errs.invalid(&end_at, end, "may not be specified when `port` is non-numeric");
            }
            errs.each(&port_at, name, names::port_name(name));
        }
        Some(n) => {
            let number = n.as_int().unwrap_or(0);
            for why in names::port_number(number) {
                errs.invalid(&port_at, number, why);
            }
            if let Some(end) = end {
                if end < number {
                    errs.invalid(&end_at, number, "must be greater than or equal to `port`");
                }
                for why in names::port_number(end) {
                    errs.invalid(&end_at, end, why);
                }
            }
        }
    }
}

fn policy_peer(errs: &mut Errors, at: &Path<'_>, peer: View<'_>, o: &PolicyOptions<'_>) {
    let mut others = 0;
    for f in ["podSelector", "namespaceSelector"] {
        if let s @ Some(_) = peer.opt(f) {
            others += 1;
            label_selector(errs, &at.field(f), s, o.selector);
        }
    }
    match peer.opt("ipBlock") {
        Some(b) => {
            ip_block(errs, &at.field("ipBlock"), b, o);
            if others > 0 {
                errs.forbidden(at, "may not specify both ipBlock and another peer");
            }
        }
        None if others == 0 => errs.required(at, "must specify a peer"),
        None => {}
    }
}

fn ip_block(errs: &mut Errors, at: &Path<'_>, b: View<'_>, o: &PolicyOptions<'_>) {
    let cidr = b.str("cidr");
    if cidr.is_empty() {
        errs.required(&at.field("cidr"), "");
        return;
    }
    ip::check_cidr_legacy(errs, &at.field("cidr"), cidr, o.strict, &o.old);
    let Some((_, net, len)) = ip::parse_cidr_sloppy(cidr) else { return };
    let at = at.field("except");
    for (i, except) in b.strs("except").enumerate() {
        let at = at.index(i);
        ip::check_cidr_legacy(errs, &at, except, o.strict, &o.old);
        let Some((_, inner, inner_len)) = ip::parse_cidr_sloppy(except) else { continue };
        if !ip::contains(net, len, inner) || len >= inner_len {
            errs.invalid(&at, except, "must be a strict subset of `cidr`");
        }
    }
}

const CLASS: &str = "kubernetes.io/ingress.class";

pub(super) const INGRESS: Rules = Rules {
    group: "networking.k8s.io",
    resource: "ingresses",
    columns: columns::network::INGRESS,
    path: Some("ingress"),
    takes: Takes::BUT_STATUS,
    prepare_create: generic::create,
    prepare_update: generic::update,
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), true, name_subdomain);
            ingress_spec(e, v.st("spec"), &IngressOptions::new(c, None));
            if let (Some(note), Some(class)) = (class_note(v), v.st("spec").opt_str("ingressClassName"))
                && note != class
            {
                e.invalid(
                    &Path::root("annotations").field(CLASS),
                    note,
                    "must match `ingressClassName` when both are specified",
                );
            }
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            core_meta(e, n.st("metadata"), true, name_subdomain);
            ingress_spec(e, n.st("spec"), &IngressOptions::new(c, Some(o.st("spec"))));
        })
    },
    warnings: |c, n, old| {
        let v = View::new(c.schema, n);
        if old.is_none() && class_note(v).is_some() && !v.st("spec").has("ingressClassName") {
            return vec![format!(
                "annotation {CLASS:?} is deprecated, please use 'spec.ingressClassName' instead"
            )];
        }
        Vec::new()
    },
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC,
        prepare_update: generic::status_only,
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, o| {
                core_meta_update(e, n.st("metadata"), o.st("metadata"));
                load_balancer(e, n, o, c);
            })
        },
    }],
    ..NAMESPACED
};

fn class_note(v: View<'_>) -> Option<&str> {
    v.st("metadata").map("annotations")?.get(CLASS).map(api::Node::as_str)
}

fn load_balancer(errs: &mut Errors, n: View<'_>, o: View<'_>, c: &Ctx<'_>) {
    let old: Kept<'_> = o
        .st("status")
        .st("loadBalancer")
        .items("ingress")
        .map(|i| i.str("ip"))
        .filter(|i| !i.is_empty())
        .collect();
    let at = Path::root("status.loadBalancer.ingress");
    for (i, point) in n.st("status").st("loadBalancer").items("ingress").enumerate() {
        let at = at.index(i);
        let (addr, host) = (point.str("ip"), point.str("hostname"));
        if !addr.is_empty() {
            ip::check_legacy(
                errs,
                &at.field("ip"),
                addr,
                c.gates.enabled(Gate::StrictIPCIDRValidation),
                &old,
            );
        }
        if !host.is_empty() {
            let at = at.field("hostname");
            errs.each(&at, host, names::dns1123_subdomain(host));
            if ip::parse_sloppy(host).is_some() {
                errs.invalid(&at, host, NO_ADDRESS);
            }
        }
    }
}

const NO_ADDRESS: &str = "must be a DNS name, not an IP address";

#[derive(Default)]
struct IngressOptions {
    invalid_secret_name: bool,
    invalid_wildcard_rule: bool,
    relaxed_service_name: bool,
}

fn backends(spec: View<'_>) -> impl Iterator<Item = View<'_>> {
    let paths = spec.items("rules").flat_map(|r| r.st("http").items("paths")).map(|p| p.st("backend"));
    spec.opt("defaultBackend").into_iter().chain(paths)
}

impl IngressOptions {
    fn new(c: &Ctx<'_>, old: Option<View<'_>>) -> Self {
        let mut o = Self {
            relaxed_service_name: c.gates.enabled(Gate::RelaxedServiceNameValidation),
            ..Self::default()
        };
        let Some(old) = old else { return o };
        o.invalid_secret_name = old.items("tls").any(|t| {
            let name = t.str("secretName");
            !name.is_empty() && !name_subdomain(name, false).is_empty()
        });
        o.invalid_wildcard_rule = old.items("rules").any(|r| {
            let mut errs = Errors::new();
            http(&mut errs, &Path::root(""), r, &Self::default());
            r.str("host").contains('*') && !errs.is_empty()
        });
        o.relaxed_service_name |= backends(old).filter_map(|b| b.opt("service")).any(|s| {
            let name = s.str("name");
            names::dns1123_label(name).is_empty() && !names::dns1035_label(name).is_empty()
        });
        o
    }
}

fn ingress_spec(errs: &mut Errors, spec: View<'_>, o: &IngressOptions) {
    let at = Path::root("spec");
    if spec.len("rules") == 0 && !spec.has("defaultBackend") {
        errs.invalid(
            &at,
            Raw(print::field(spec, "rules")),
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if let Some(b) = spec.opt("defaultBackend") {
        backend(errs, &at.field("defaultBackend"), b, o);
    }
    let rules_at = at.field("rules");
    for (i, rule) in spec.items("rules").enumerate() {
        let at = rules_at.index(i);
        let host = rule.str("host");
        let wildcard = host.contains('*');
        if !host.is_empty() {
            let at = at.field("host");
            if ip::parse_sloppy(host).is_some() {
                errs.invalid(&at, host, NO_ADDRESS);
            }
            host_name(errs, &at, host);
        }
        if !wildcard || !o.invalid_wildcard_rule {
            http(errs, &at, rule, o);
        }
    }
    let tls_at = at.field("tls");
    for (i, tls) in spec.items("tls").enumerate() {
        let at = tls_at.index(i);
        let hosts_at = at.field("hosts");
        for (j, host) in tls.strs("hosts").enumerate() {
            host_name(errs, &hosts_at.index(j), host);
        }
        let name = tls.str("secretName");
        if !o.invalid_secret_name && !name.is_empty() {
            errs.each(&at.field("secretName"), name, name_subdomain(name, false));
        }
    }
    if let Some(class) = spec.opt_str("ingressClassName") {
        errs.each(&at.field("ingressClassName"), class, name_subdomain(class, false));
    }
}

fn host_name(errs: &mut Errors, at: &Path<'_>, host: &str) {
    let bad = if host.contains('*') {
        names::wildcard_dns1123_subdomain(host)
    } else {
        names::dns1123_subdomain(host)
    };
    errs.each(at, host, bad);
}

fn http(errs: &mut Errors, at: &Path<'_>, rule: View<'_>, o: &IngressOptions) {
    let Some(http) = rule.opt("http") else { return };
    let at = at.field("http");
    let at = at.field("paths");
    if http.len("paths") == 0 {
        errs.required(&at, "");
    }
    for (i, p) in http.items("paths").enumerate() {
        ingress_path(errs, &at.index(i), p, o);
    }
}

fn ingress_path(errs: &mut Errors, at: &Path<'_>, p: View<'_>, o: &IngressOptions) {
    let Some(ty) = p.opt_str("pathType") else {
        errs.required(&at.field("pathType"), "pathType must be specified");
        return;
    };
    let path = p.str("path");
    let path_at = at.field("path");
    let relative = !path.starts_with('/');
    match ty {
        "Exact" | "Prefix" => {
            if relative {
                errs.invalid(&path_at, path, "must be an absolute path");
            }
            for s in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.contains(s) {
                    errs.invalid(&path_at, path, format!("must not contain '{s}'"));
                }
            }
            for s in ["/..", "/."] {
                if path.ends_with(s) {
                    errs.invalid(&path_at, path, format!("cannot end with '{s}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !path.is_empty() && relative {
                errs.invalid(&path_at, path, "must be an absolute path");
            }
        }
        _ => errs.not_supported(&at.field("pathType"), ty, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(errs, &at.field("backend"), p.st("backend"), o);
}

fn backend(errs: &mut Errors, at: &Path<'_>, b: View<'_>, o: &IngressOptions) {
    match (b.opt("resource"), b.opt("service")) {
        (Some(_), Some(_)) => errs.invalid(at, "", "cannot set both resource and service backends"),
        (Some(r), None) => {
            let at = at.field("resource");
            group_kind_name(errs, &at, r);
        }
        (None, Some(s)) => {
            let service_at = at.field("service");
            let name = s.str("name");
            let name_at = service_at.field("name");
            if name.is_empty() {
                errs.required(&name_at, "");
            } else {
                let bad = if o.relaxed_service_name {
                    names::dns1123_label(name)
                } else {
                    names::dns1035_label(name)
                };
                errs.each(&name_at, name, bad);
            }
            let port_at = service_at.field("port");
            let (name, number) = (s.st("port").str("name"), s.st("port").int("number"));
            match (name.is_empty(), number == 0) {
                (false, false) => errs.invalid(at, "", "cannot set both port name & port number"),
                (false, true) => errs.each(&port_at.field("name"), name, names::port_name(name)),
                (true, false) => {
                    for why in names::port_number(number) {
                        errs.invalid(&port_at.field("number"), number, why);
                    }
                }
                (true, true) => errs.required(at, "port name or number is required"),
            }
        }
        (None, None) => errs.invalid(at, "", "resource or service backend is required"),
    }
}

/// Checks `apiGroup`, `kind` and `name` of a reference.
fn group_kind_name(errs: &mut Errors, at: &Path<'_>, r: View<'_>) {
    if let Some(g) = r.opt_str("apiGroup") {
        errs.each(&at.field("apiGroup"), g, names::dns1123_subdomain(g));
    }
    segment(errs, at, r, "kind");
    segment(errs, at, r, "name");
}

/// Checks a field that must be a segment of a path.
fn segment(errs: &mut Errors, at: &Path<'_>, v: View<'_>, field: &str) {
    let value = v.str(field);
    if value.is_empty() {
        errs.required(&at.field(field), "");
    } else {
        errs.each(&at.field(field), value, names::path_segment(value, false));
    }
}

pub(super) const INGRESS_CLASS: Rules = Rules {
    group: "networking.k8s.io",
    resource: "ingressclasses",
    columns: columns::network::INGRESS_CLASS,
    prepare_create: first_generation,
    prepare_update: bump_spec,
    validate: |c, s| check(c, s, ingress_class),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            let (new, old) = (n.st("spec").str("controller"), o.st("spec").str("controller"));
            if new != old {
                e.invalid(&Path::root("spec.controller"), new, IMMUTABLE);
            }
            ingress_class(e, n);
        })
    },
    ..CLUSTER
};

/// The greatest length of a controller's name in bytes.
const MAX_CONTROLLER: usize = 250;

fn ingress_class(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), false, name_subdomain);
    let at = Path::root("spec");
    let spec = v.st("spec");
    let controller = spec.str("controller");
    let controller_at = at.field("controller");
    if controller.len() > MAX_CONTROLLER {
        errs.too_long(&controller_at, MAX_CONTROLLER);
    }
    domain_prefixed_path(errs, &controller_at, controller);
    let Some(p) = spec.opt("parameters") else { return };
    let at = at.field("parameters");
    group_kind_name(errs, &at, p);
    let Some(scope) = p.opt_str("scope") else {
        errs.required(&at.field("scope"), "");
        return;
    };
    let (ns_at, ns) = (at.field("namespace"), p.opt_str("namespace"));
    match (scope, ns) {
        ("Namespace", None) => errs.required(&ns_at, "`parameters.scope` is set to 'Namespace'"),
        ("Namespace", Some(ns)) => errs.each(&ns_at, ns, names::name_label(ns, false)),
        ("Cluster", Some(_)) => errs.forbidden(&ns_at, "`parameters.scope` is set to 'Cluster'"),
        ("Cluster", None) => {}
        _ => errs.not_supported(&at.field("scope"), Raw(api::go::quote(scope)), &["Cluster", "Namespace"]),
    }
}

pub(super) const IP_ADDRESS: Rules = Rules {
    group: "networking.k8s.io",
    resource: "ipaddresses",
    columns: columns::network::IP_ADDRESS,
    going: &[going("v1beta1", 34, "1.37")],
    validate: |c, s| check(c, s, ip_address),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            ip_address(e, n);
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            immutable(e, &Path::root("spec"), n.st("spec"), o.st("spec"), "parentRef");
        })
    },
    ..CLUSTER
};

/// Checks the name of an IPAddress, which is the address.
fn address_name(name: &str, _: bool) -> Vec<String> {
    let mut errs = Errors::new();
    ip::check(&mut errs, &Path::root(""), name);
    errs.0.into_iter().map(|e| e.detail).collect()
}

fn ip_address(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), false, address_name);
    let at = Path::root("spec.parentRef");
    let Some(p) = v.st("spec").opt("parentRef") else {
        errs.required(&at, "");
        return;
    };
    let group = p.str("group");
    if !group.is_empty() {
        errs.each(&at.field("group"), group, names::dns1123_subdomain(group));
    }
    segment(errs, &at, p, "resource");
    segment(errs, &at, p, "name");
    let ns = p.str("namespace");
    if !ns.is_empty() {
        errs.each(&at.field("namespace"), ns, names::path_segment(ns, false));
    }
}

pub(super) const SERVICE_CIDR: Rules = Rules {
    group: "networking.k8s.io",
    resource: "servicecidrs",
    columns: columns::network::SERVICE_CIDR,
    going: &[going("v1beta1", 34, "1.37")],
    takes: Takes::BUT_STATUS,
    prepare_create: |c, s: &mut Struct| {
        if c.gates.enabled(Gate::ServiceCIDRStatusFieldWiping) {
            generic::drop_status(c, s);
        }
    },
    prepare_update: |c, n, o| {
        if c.gates.enabled(Gate::ServiceCIDRStatusFieldWiping) {
            generic::keep_status(c, n, o);
        }
    },
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), false, name_subdomain);
            cidrs(e, v.st("spec"));
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            cidrs_update(e, n.st("spec"), o.st("spec"));
        })
    },
    subresources: &[STATUS_ALONE],
    ..CLUSTER
};

fn cidrs(errs: &mut Errors, spec: View<'_>) {
    let at = Path::root("spec.cidrs");
    let all: Vec<&str> = spec.strs("cidrs").collect();
    if all.is_empty() {
        errs.required(&at, "at least one CIDR required");
        return;
    }
    if all.len() > 2 {
        errs.invalid(&at, whole(spec), "may only hold up to 2 values");
        return;
    }
    for (i, cidr) in all.iter().enumerate() {
        ip::check_cidr(errs, &at.index(i), cidr);
    }
    let family = |c: &str| ip::parse_cidr_sloppy(c).map(|(ip, ..)| ip.is_ipv6());
    if let [a, b] = all[..]
        && family(a) == family(b)
        && family(a).is_some()
    {
        errs.invalid(
            &at,
            spec.get("cidrs"),
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        );
    }
}

/// Checks an update of the networks: a second family may be added; nothing else changes.
fn cidrs_update(errs: &mut Errors, n: View<'_>, o: View<'_>) {
    let at = Path::root("spec.cidrs");
    let (new, old): (Vec<&str>, Vec<&str>) = (n.strs("cidrs").collect(), o.strs("cidrs").collect());
    if new.len() == old.len() || new.len() == 2 && old.len() == 1 {
        for (i, (new, old)) in new.iter().zip(&old).enumerate() {
            if new != old {
                errs.invalid(&at.index(i), *new, IMMUTABLE);
            }
        }
        if new.len() > old.len() {
            cidrs(errs, n);
        }
    } else {
        errs.invalid(&at, Raw(print::field(n, "cidrs")), IMMUTABLE);
    }
}
