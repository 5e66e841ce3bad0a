//! Services. Their addresses and ports are allocated by the API server before these rules run.

use std::collections::HashSet;

use api::field::{Errors, Lazy, Path, Raw};
use api::go::quote;
use api::names::{self, name_1035, name_label};
use api::status::FieldError;
use api::view::{Edit, View};
use api::{Gate, Schema, Struct, Text};

use crate::columns;
use crate::strategies::core::endpoints::endpoint_ip;
use crate::strategies::generic::{self, NAMESPACED, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::containers::port_or_name;
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategy::Ctx;
use crate::validation::ip::{self, Kept};
use crate::validation::meta::labels;
use crate::validation::print;

pub(crate) const SERVICE: Rules = Rules {
    resource: "services",
    columns: columns::core::SERVICE,
    path: Some("services/specs"),
    takes: Takes::BUT_STATUS,
    create_on_update: true,
    prepare_create: generic::drop_status,
    prepare_update: |c, n, o| {
        generic::keep_status(c, n, o);
        let old = View::new(c.schema, o);
        drop_dependent(&mut Edit::new(c.schema, n), old);
    },
    validate: |c, s| {
        check(c, s, |e, v| {
            let name =
                if c.gates.enabled(Gate::RelaxedServiceNameValidation) { name_label } else { name_1035 };
            core_meta(e, v.st("metadata"), true, name);
            service(e, v, None, c);
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            let (ns, os) = (n.st("spec"), o.st("spec"));
            cluster_ips_update(e, ns, os);
            families_update(e, ns, os);
            load_balancer_class(e, ns, Some(os));
            if needs_health_check(ns)
                && needs_health_check(os)
                && ns.int("healthCheckNodePort") != os.int("healthCheckNodePort")
            {
                e.forbidden(&Path::root("spec.healthCheckNodePort"), "field is immutable");
            }
            service(e, n, Some(o), c);
        })
    },
    warnings: |c, n, _| warnings(View::new(c.schema, n)),
    fields: &["spec.clusterIP", "spec.type"],
    field_values: |schema, s, out| {
        let spec = View::new(schema, s).st("spec");
        out.push(Text::from(spec.str("clusterIP")));
        out.push(Text::from(spec.str("type")));
    },
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC,
        prepare_update: |c, n, o| Edit::new(c.schema, n).copy("spec", o),
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, o| {
                core_meta_update(e, n.st("metadata"), o.st("metadata"));
                load_balancer_status(e, n, o, c);
            })
        },
    }],
    ..NAMESPACED
};

fn is_headless(spec: View<'_>) -> bool {
    spec.len("clusterIPs") == 1 && spec.strs("clusterIPs").next() == Some("None")
}

fn needs_health_check(spec: View<'_>) -> bool {
    spec.str("type") == "LoadBalancer" && spec.str("externalTrafficPolicy") == "Local"
}

fn is_accessible(spec: View<'_>) -> bool {
    match spec.str("type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => spec.len("externalIPs") > 0,
        _ => false,
    }
}

fn has_node_ports(spec: View<'_>) -> bool {
    matches!(spec.str("type"), "NodePort" | "LoadBalancer")
}

/// Drops the fields that belong to the stored type and were sent back unchanged, if the type changes.
fn drop_dependent(e: &mut Edit<'_>, old: View<'_>) {
    let os = old.st("spec");
    let Some(mut spec) = e.at("spec") else { return };
    let unchanged = |v: View<'_>, f: &str| api::view::same(v.get(f), os.get(f));
    let ns = spec.view();
    let mut gone: Vec<&str> = Vec::new();
    let external = |v: View<'_>| v.str("type") == "ExternalName";
    if !external(os) && external(ns) {
        if unchanged(ns, "clusterIP") && unchanged(ns, "clusterIPs") {
            gone.extend(["clusterIP", "clusterIPs"]);
        }
        gone.extend(["ipFamilies", "ipFamilyPolicy"].iter().filter(|f| unchanged(ns, f)));
    }
    let mut clear_ports = false;
    if has_node_ports(os) && !has_node_ports(ns) {
        let old_ports: Vec<i64> = os.items("ports").map(|p| p.int("nodePort")).collect();
        clear_ports =
            ns.items("ports").all(|p| p.int("nodePort") == 0 || old_ports.contains(&p.int("nodePort")));
    }
    if needs_health_check(os) && !needs_health_check(ns) && unchanged(ns, "healthCheckNodePort") {
        gone.push("healthCheckNodePort");
    }
    if os.str("type") == "LoadBalancer" && ns.str("type") != "LoadBalancer" {
        gone.extend(
            ["allocateLoadBalancerNodePorts", "loadBalancerClass"].iter().filter(|f| unchanged(ns, f)),
        );
    }
    if is_accessible(os) && !is_accessible(ns) && unchanged(ns, "externalTrafficPolicy") {
        gone.push("externalTrafficPolicy");
    }
    let balanced = ns.str("type") == "LoadBalancer";
    for f in gone {
        spec.remove(f);
    }
    if clear_ports {
        for mut p in spec.items("ports") {
            p.remove("nodePort");
        }
    }
    if !balanced && let Some(mut s) = e.at("status") {
        s.remove("loadBalancer");
    }
}

fn service(errs: &mut Errors, v: View<'_>, old: Option<View<'_>>, c: &Ctx<'_>) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    const MODE: &str = "service.kubernetes.io/topology-mode";
    let strict = c.gates.enabled(Gate::StrictIPCIDRValidation);
    let notes = v.st("metadata").map("annotations");
    let note = |k: &str| notes.and_then(|n| n.get(k)).map(api::Node::as_str);
    if let (Some(hints), Some(mode)) = (note(HINTS), note(MODE))
        && hints != mode
    {
        let at = Path::root("metadata.annotations");
        errs.invalid(&at.key(MODE), mode, format!("must match annotations[{HINTS}] when both are specified"));
    }
    let at = Path::root("spec");
    let spec = v.st("spec");
    let ty = spec.str("type");
    let ports = at.field("ports");
    if spec.len("ports") == 0 && !is_headless(spec) && ty != "ExternalName" {
        errs.required(&ports, "");
    }
    match ty {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let at = at.field("clusterIPs");
            errs.invalid(&at.index(0), "None", format!("may not be set to 'None' for {ty} services"));
        }
        "ExternalName" => {
            const NOT: &str = "may not be set for ExternalName services";
            for f in ["clusterIPs", "ipFamilies"] {
                if spec.len(f) > 0 {
                    errs.forbidden(&at.field(f), NOT);
                }
            }
            if spec.has("ipFamilyPolicy") {
                errs.forbidden(&at.field("ipFamilyPolicy"), NOT);
            }
            let name = spec.str("externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                errs.required(&at.field("externalName"), "");
            } else {
                errs.each(&at.field("externalName"), name, names::dns1123_subdomain(name));
            }
        }
        _ => {}
    }
    service_ports(errs, &ports, spec);
    labels(errs, &at.field("selector"), spec, "selector");
    affinity(errs, &at, spec);
    cluster_ips(errs, &at, spec, old.map(|o| o.st("spec")), strict);
    let kept: Kept<'_> = old.map(|o| o.st("spec").strs("externalIPs").collect()).unwrap_or_default();
    let ips = at.field("externalIPs");
    for (i, ip) in spec.strs("externalIPs").enumerate() {
        let before = errs.len();
        ip::check_legacy(errs, &ips.index(i), ip, strict, &kept);
        if errs.len() == before {
            endpoint_ip(errs, &ips.index(i), ip);
        }
    }
    if ty.is_empty() {
        errs.required(&at.field("type"), "");
    } else {
        errs.one_of(&at.field("type"), ty, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    }
    port_numbers(errs, &ports, spec);
    source_ranges(errs, &at, v, old, strict);
    let allocate = spec.has("allocateLoadBalancerNodePorts");
    if allocate && ty != "LoadBalancer" {
        errs.forbidden(
            &at.field("allocateLoadBalancerNodePorts"),
            "may only be used when `type` is 'LoadBalancer'",
        );
    }
    if !allocate && ty == "LoadBalancer" {
        errs.required(&Path::root("allocateLoadBalancerNodePorts"), "");
    }
    load_balancer_class(errs, spec, None);
    traffic(errs, &at, spec);
}

fn service_ports(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    let several = spec.len("ports") > 1;
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, p) in spec.items("ports").enumerate() {
        let at = at.index(i);
        let name = p.str("name");
        if name.is_empty() {
            if several {
                errs.required(&at.field("name"), "");
            }
        } else {
            errs.each(&at.field("name"), name, names::dns1123_label(name));
            if seen.contains(&name) {
                errs.duplicate(&at.field("name"), name);
            } else {
                seen.insert(name);
            }
        }
        let number = p.int("port");
        for msg in names::port_number(number) {
            errs.invalid(&at.field("port"), number, msg);
        }
        let protocol = p.str("protocol");
        if protocol.is_empty() {
            errs.required(&at.field("protocol"), "");
        } else {
            errs.one_of(&at.field("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        }
        port_or_name(errs, &at.field("targetPort"), p.get("targetPort"));
        if let Some(a) = p.opt_str("appProtocol") {
            errs.each(&at.field("appProtocol"), a, names::qualified_name(a));
        }
    }
}

fn affinity(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    let affinity = spec.str("sessionAffinity");
    let config_at = at.field("sessionAffinityConfig");
    if affinity.is_empty() {
        errs.required(&at.field("sessionAffinity"), "");
    } else {
        errs.one_of(&at.field("sessionAffinity"), affinity, &["ClientIP", "None"]);
    }
    let config = spec.opt("sessionAffinityConfig");
    if affinity == "ClientIP" {
        const WHEN: &str = "when session affinity type is ClientIP";
        let ip_at = config_at.field("clientIP");
        let timeout_at = ip_at.field("timeoutSeconds");
        match config.map(|c| c.opt("clientIP")) {
            None => errs.required(&config_at, WHEN),
            Some(None) => errs.required(&ip_at, WHEN),
            Some(Some(ip)) => match ip.opt_int("timeoutSeconds") {
                None => errs.required(&timeout_at, WHEN),
                Some(t) if !(1..=86400).contains(&t) => {
                    errs.invalid(&timeout_at, t, "must be greater than 0 and less than 86400");
                }
                Some(_) => {}
            },
        }
    } else if affinity == "None" && config.is_some() {
        errs.forbidden(&config_at, "must not be set when session affinity is None");
    }
}

/// Checks a Service's addresses and families; also run before any addresses are allocated.
pub fn service_addresses(
    schema: &Schema,
    new: &Struct,
    old: Option<&Struct>,
    strict: bool,
) -> Vec<FieldError> {
    let mut errs = Errors::new();
    let spec = |s| View::new(schema, s).st("spec");
    cluster_ips(&mut errs, &Path::root("spec"), spec(new), old.map(spec), strict);
    errs.0
}

fn cluster_ips(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, old: Option<View<'_>>, strict: bool) {
    if spec.str("type") == "ExternalName" {
        return;
    }
    let ips_at = at.field("clusterIPs");
    let single = spec.str("clusterIP");
    let all: Vec<&str> = spec.strs("clusterIPs").collect();
    let shown = || spec.get("clusterIPs");
    if single.is_empty() {
        if !all.is_empty() {
            errs.invalid(&ips_at, shown(), "must be empty when `clusterIP` is not specified");
        }
    } else if all.is_empty() {
        errs.required(&ips_at, "");
    } else if all[0] != single {
        errs.invalid(&ips_at, shown(), "first value must match `clusterIP`");
    }
    let families_at = at.field("ipFamilies");
    let families: Vec<&str> = spec.strs("ipFamilies").collect();
    let mut seen = HashSet::new();
    for (i, f) in families.iter().enumerate() {
        errs.one_of(&families_at.index(i), f, &["IPv4", "IPv6"]);
        if !seen.insert(*f) {
            errs.duplicate(&families_at.index(i), *f);
        }
    }
    if let Some(p) = spec.opt_str("ipFamilyPolicy") {
        errs.one_of(&at.field("ipFamilyPolicy"), p, &["PreferDualStack", "RequireDualStack", "SingleStack"]);
    }
    let kept: Kept<'_> = old.map(|o| o.strs("clusterIPs").collect()).unwrap_or_default();
    let mut bad = false;
    for (i, ip) in all.iter().enumerate() {
        if i == 0 && *ip == "None" {
            if all.len() > 1 {
                bad = true;
                errs.invalid(&ips_at, shown(), "'None' must be the first and only value");
            }
            continue;
        }
        let before = errs.len();
        ip::check_legacy(errs, &ips_at.index(i), ip, strict, &kept);
        bad |= errs.len() > before;
    }
    if all.len() > 2 {
        errs.invalid(&ips_at, shown(), "may only hold up to 2 values");
    }
    if bad {
        return;
    }
    let v6 = |ip: &str| ip.contains(':');
    if all.len() > 1 && all.iter().all(|i| v6(i) == v6(all[0])) {
        errs.invalid(&ips_at, shown(), "may specify no more than one IP for each IP family");
    }
    if !is_headless(spec) {
        for (i, (ip, family)) in all.iter().zip(&families).enumerate() {
            if (*family == "IPv4" && v6(ip)) || (*family == "IPv6" && !v6(ip)) {
                errs.invalid(
                    &ips_at.index(i),
                    *ip,
                    format!("expected an {family} value as indicated by `ipFamilies[{i}]`"),
                );
            }
        }
    }
}

fn cluster_ips_update(errs: &mut Errors, new: View<'_>, old: View<'_>) {
    const ONCE: &str = "may not change once set";
    if new.str("type") == "ExternalName"
        || old.str("type") == "ExternalName"
        || is_headless(new) && is_headless(old)
    {
        return;
    }
    let at = Path::root("spec.clusterIPs");
    let (n, o): (Vec<&str>, Vec<&str>) = (new.strs("clusterIPs").collect(), old.strs("clusterIPs").collect());
    let shown = || Lazy(|| print::field(new, "clusterIPs"));
    if o.len() == n.len() {
        for (i, (a, b)) in o.iter().zip(&n).enumerate() {
            if a != b {
                errs.invalid(&at.index(i), shown(), ONCE);
            }
        }
        return;
    }
    if o.len() > n.len() && n.is_empty() {
        errs.invalid(&at.index(0), shown(), "primary clusterIP can not be unset");
    }
    if let (Some(a), Some(b)) = (o.first(), n.first())
        && a != b
    {
        errs.invalid(&at.index(0), shown(), ONCE);
    }
    if o.len() > n.len() && n.len() == 1 && new.opt_str("ipFamilyPolicy") != Some("SingleStack") {
        errs.invalid(
            &Path::root("spec.ipFamilyPolicy"),
            new.get("ipFamilyPolicy"),
            "must be set to 'SingleStack' when releasing the secondary clusterIP",
        );
    }
}

fn families_update(errs: &mut Errors, new: View<'_>, old: View<'_>) {
    const ONCE: &str = "may not change once set";
    if new.str("type") == "ExternalName"
        || old.str("type") == "ExternalName"
        || is_headless(new)
        || is_headless(old)
    {
        return;
    }
    let at = Path::root("spec.ipFamilies");
    let at = at.index(0);
    let (n, o): (Vec<&str>, Vec<&str>) = (new.strs("ipFamilies").collect(), old.strs("ipFamilies").collect());
    if o.len() == n.len() {
        for (a, b) in o.iter().zip(&n) {
            if a != b {
                errs.invalid(&at, Lazy(|| print::field(new, "ipFamilies")), ONCE);
            }
        }
        return;
    }
    if o.len() > n.len() && new.len("clusterIPs") == 0 {
        errs.invalid(&at, Raw(print::field(new, "ipFamilies")), "primary ipFamily can not be unset");
    }
    if let (Some(a), Some(b)) = (o.first(), n.first())
        && a != b
    {
        errs.invalid(&at, Raw(print::field(new, "clusterIPs")), ONCE);
    }
    if o.len() > n.len() && n.len() == 1 && new.opt_str("ipFamilyPolicy") != Some("SingleStack") {
        errs.invalid(
            &Path::root("spec.ipFamilyPolicy"),
            new.get("ipFamilyPolicy"),
            "must be set to 'SingleStack' when releasing the secondary ipFamily",
        );
    }
}

fn port_numbers(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    let ports: Vec<View<'_>> = spec.items("ports").collect();
    if spec.str("type") == "ClusterIP" {
        for (i, p) in ports.iter().enumerate() {
            if p.int("nodePort") != 0 {
                let at = at.index(i);
                errs.forbidden(&at.field("nodePort"), "may not be used when `type` is 'ClusterIP'");
            }
        }
    }
    let mut seen = HashSet::new();
    let mut earlier =
        |p: &View<'_>, f: &'static str| !seen.insert((f, p.int(f), p.str("protocol").to_owned()));
    for (i, p) in ports.iter().enumerate() {
        if p.int("nodePort") != 0 && earlier(p, "nodePort") {
            let at = at.index(i);
            errs.duplicate(&at.field("nodePort"), p.int("nodePort"));
        }
    }
    for (i, p) in ports.iter().enumerate() {
        if earlier(p, "port") {
            let mut protocol = String::new();
            api::go::json_string(p.str("protocol"), &mut protocol);
            errs.duplicate(
                &at.index(i),
                Raw(format!(
                    r#"{{"Name":"","Protocol":{protocol},"AppProtocol":null,"Port":{},"TargetPort":0,"NodePort":0}}"#,
                    p.int("port")
                )),
            );
        }
    }
}

fn source_ranges(errs: &mut Errors, at: &Path<'_>, v: View<'_>, old: Option<View<'_>>, strict: bool) {
    const KEY: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let spec = v.st("spec");
    let balanced = spec.str("type") == "LoadBalancer";
    let note = |v: View<'_>| {
        v.st("metadata").map("annotations").and_then(|a| a.get(KEY)).map(|n| Text::from(n.as_str()))
    };
    if spec.len("loadBalancerSourceRanges") > 0 {
        let at = at.field("LoadBalancerSourceRanges");
        if !balanced {
            errs.forbidden(&at, ONLY);
        }
        let kept: Kept<'_> = old
            .map(|o| o.st("spec").strs("loadBalancerSourceRanges").map(str::trim).collect())
            .unwrap_or_default();
        for (i, r) in spec.strs("loadBalancerSourceRanges").enumerate() {
            ip::check_cidr_legacy(errs, &at.index(i), r.trim(), strict, &kept);
        }
    } else if let Some(text) = note(v) {
        let at = Path::root("metadata.annotations");
        let at = at.key(KEY);
        if !balanced {
            errs.forbidden(&at, ONLY);
        }
        if old.is_none_or(|o| note(o).as_ref() != Some(&text)) && !text.trim().is_empty() {
            for r in text.trim().split(',') {
                ip::check_cidr_legacy(errs, &at, r.trim(), strict, &Kept::new());
            }
        }
    }
}

fn load_balancer_class(errs: &mut Errors, spec: View<'_>, old: Option<View<'_>>) {
    let at = Path::root("spec.loadBalancerClass");
    let balanced = |s: View<'_>| s.str("type") == "LoadBalancer";
    let class = spec.opt_str("loadBalancerClass");
    if old.is_some_and(|o| balanced(o) && balanced(spec) && o.opt_str("loadBalancerClass") != class) {
        errs.invalid(&at, spec.get("loadBalancerClass"), "may not change once set");
    }
    match class {
        Some(c) if balanced(spec) => errs.each(&at, c, names::qualified_name(c)),
        Some(_) => errs.forbidden(&at, "may only be used when `type` is 'LoadBalancer'"),
        None => {}
    }
}

fn traffic(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    let external = spec.str("externalTrafficPolicy");
    let external_at = at.field("externalTrafficPolicy");
    if is_accessible(spec) {
        if external.is_empty() {
            errs.required(&external_at, "");
        } else {
            errs.one_of(&external_at, external, &["Cluster", "Local"]);
        }
    } else if !external.is_empty() {
        errs.invalid(&external_at, external, "may only be set for externally-accessible services");
    }
    let port = spec.int("healthCheckNodePort");
    let port_at = at.field("healthCheckNodePort");
    if needs_health_check(spec) {
        if port == 0 {
            errs.required(&port_at, "");
        } else {
            for msg in names::port_number(port) {
                errs.invalid(&port_at, port, msg);
            }
        }
    } else if port != 0 {
        errs.invalid(
            &port_at,
            port,
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        );
    }
    let internal_at = at.field("internalTrafficPolicy");
    match spec.opt_str("internalTrafficPolicy") {
        None => {
            if matches!(spec.str("type"), "NodePort" | "LoadBalancer" | "ClusterIP") {
                errs.required(&internal_at, "");
            }
        }
        Some(p) => errs.one_of(&internal_at, p, &["Cluster", "Local"]),
    }
    if let Some(d) = spec.opt_str("trafficDistribution") {
        errs.one_of_plain(
            &at.field("trafficDistribution"),
            d,
            &["PreferClose", "PreferSameZone", "PreferSameNode"],
        );
    }
}

fn load_balancer_status(errs: &mut Errors, n: View<'_>, o: View<'_>, c: &Ctx<'_>) {
    let at = Path::root("status.loadBalancer.ingress");
    let new = n.st("status").st("loadBalancer");
    if n.st("spec").str("type") != "LoadBalancer" && new.len("ingress") > 0 {
        errs.forbidden(&at, "may only be used when `spec.type` is 'LoadBalancer'");
        return;
    }
    let old = o.st("status").st("loadBalancer");
    let kept: Kept<'_> = old.items("ingress").map(|i| i.str("ip")).filter(|i| !i.is_empty()).collect();
    for (i, x) in new.items("ingress").enumerate() {
        let at = at.index(i);
        let (addr, host) = (x.str("ip"), x.str("hostname"));
        if !addr.is_empty() {
            ip::check_legacy(
                errs,
                &at.field("ip"),
                addr,
                c.gates.enabled(Gate::StrictIPCIDRValidation),
                &kept,
            );
        }
        match x.opt_str("ipMode") {
            None => {
                if !addr.is_empty() {
                    errs.required(&at.field("ipMode"), "must be specified when `ip` is set");
                }
            }
            Some(_) if addr.is_empty() => {
                errs.forbidden(&at.field("ipMode"), "may not be specified when `ip` is not set");
            }
            Some(m) => errs.one_of(&at.field("ipMode"), m, &["Proxy", "VIP"]),
        }
        if !host.is_empty() {
            errs.each(&at.field("hostname"), host, names::dns1123_subdomain(host));
            if ip::parse_sloppy(host).is_some() {
                errs.invalid(&at.field("hostname"), host, "must be a DNS name, not an IP address");
            }
        }
    }
}

fn warnings(v: View<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let spec = v.st("spec");
    let at = Path::root("spec");
    if v.st("metadata")
        .map("annotations")
        .is_some_and(|a| a.get("service.kubernetes.io/topology-aware-hints").is_some())
    {
        out.push("annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead".into());
    }
    let headless = spec.str("type") == "ClusterIP" && spec.str("clusterIP") == "None";
    if !spec.str("clusterIP").is_empty() && spec.str("clusterIP") != "None" {
        let at = at.field("clusterIPs");
        for (i, ip) in spec.strs("clusterIPs").enumerate() {
            out.extend(ip::warning(&at.index(i), ip));
        }
    }
    if headless {
        if !spec.str("loadBalancerIP").is_empty() {
            out.push("spec.loadBalancerIP is ignored for headless services".into());
        }
        if spec.len("externalIPs") > 0 {
            out.push("spec.externalIPs is ignored for headless services".into());
        }
        if spec.str("sessionAffinity") != "None" {
            out.push("spec.SessionAffinity is ignored for headless services".into());
        }
    }
    let ips = at.field("externalIPs");
    for (i, ip) in spec.strs("externalIPs").enumerate() {
        out.extend(ip::warning(&ips.index(i), ip));
    }
    let external = spec.str("type") == "ExternalName";
    if spec.len("externalIPs") > 0 && !headless && !external {
        out.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".into());
    }
    let lb = spec.str("loadBalancerIP");
    if !lb.is_empty() {
        out.extend(ip::warning(&at.field("loadBalancerIP"), lb));
    }
    let ranges = at.field("loadBalancerSourceRanges");
    for (i, r) in spec.strs("loadBalancerSourceRanges").enumerate() {
        out.extend(ip::cidr_warnings(&ranges.index(i), r));
    }
    if external && spec.len("externalIPs") > 0 {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".into());
    }
    if !external && !spec.str("externalName").is_empty() {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".into());
    }
    if spec.str("trafficDistribution") == "PreferClose" {
        out.push(format!(
            "spec.trafficDistribution: {} is deprecated; use {}",
            quote("PreferClose"),
            quote("PreferSameZone")
        ));
    }
    out
}
