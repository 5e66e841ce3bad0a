//! Nodes.

use std::collections::HashSet;

use api::field::{Errors, Lazy, Path, Raw};
use api::names::{self, name_subdomain};
use api::view::{Edit, View};
use api::{ByValue, Gate, Node, Text};

use crate::columns;
use crate::strategies::generic::{CLUSTER, check, check_update, keep_status};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod;
use crate::strategies::pod::resources::quantity_value;
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategy::Ctx;
use crate::validation::ip;
use crate::validation::print;

pub(crate) const NODE: Rules = Rules {
    resource: "nodes",
    columns: columns::core::NODE,
    path: Some("minions"),
    takes: Takes::BUT_STATUS,
    prepare_create: |c, s| {
        let mut e = Edit::new(c.schema, s);
        if let Some(mut spec) = e.at("spec") {
            spec.remove("configSource");
        }
        if let Some(mut st) = e.at("status") {
            st.remove("config");
            // An update of the status keeps the features.
            if !c.gates.enabled(Gate::NodeDeclaredFeatures) {
                st.remove("declaredFeatures");
            }
        }
    },
    prepare_update: |c, n, o| {
        keep_status(c, n, o);
        if !View::new(c.schema, o).st("spec").has("configSource")
            && let Some(mut spec) = Edit::new(c.schema, n).at("spec")
        {
            spec.remove("configSource");
        }
    },
    validate: |c, s| check(c, s, |e, v| node(e, v, c)),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            node(e, n, c);
            node_update(e, n, o);
        })
    },
    warnings: |c, n, _| {
        let v = View::new(c.schema, n).st("spec");
        let mut out = Vec::new();
        if !v.str("externalID").is_empty() {
            out.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        let at = Path::root("spec.podCIDRs");
        for (i, cidr) in v.strs("podCIDRs").enumerate() {
            out.extend(ip::cidr_warnings(&at.index(i), cidr));
        }
        out
    },
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC,
        prepare_update: |c, n, o| {
            let mut e = Edit::new(c.schema, n);
            e.copy("spec", o);
            if !View::new(c.schema, o).st("status").has("config")
                && let Some(mut s) = e.at("status")
            {
                s.remove("config");
            }
        },
        validate_update: |c, n, o| check_update(c, n, o, node_update),
    }],
    fields: &["spec.unschedulable"],
    field_values: |schema, s, out| {
        let on = View::new(schema, s).st("spec").bool("unschedulable");
        out.push(Text::from(if on { "true" } else { "false" }));
    },
    ..CLUSTER
};

fn node_taints(errs: &mut Errors, n: View<'_>) {
    let list = Path::root("metadata.taints");
    let mut seen: HashSet<(&str, &str)> = HashSet::new();
    for (i, t) in n.st("spec").items("taints").enumerate() {
        let at = list.index(i);
        let (key, value, effect) = (t.str("key"), t.str("value"), t.str("effect"));
        crate::validation::meta::label_name(errs, &at.field("key"), key);
        let bad = names::label_value(value);
        if !bad.is_empty() {
            errs.invalid(&at.field("value"), value, bad.join(";"));
        }
        if effect.is_empty() {
            errs.required(&at.field("effect"), "");
        } else {
            pod::scheduling::taint_effect(errs, &at.field("effect"), effect);
        }
        if seen.contains(&(effect, key)) {
            let shown = || t.raw().map(|s| print::internal(t.schema, s)).unwrap_or_default();
            errs.duplicate_because(&at, Lazy(shown), "taints must be unique by key and effect pair");
            continue;
        }
        seen.insert((effect, key));
    }
}

fn node_resources(errs: &mut Errors, n: View<'_>) {
    let at = Path::root("status");
    for f in ["capacity", "allocatable"] {
        let at = at.field(f);
        for (k, q) in n.st("status").texts(f) {
            let at = if k.is_empty() { at.key(k) } else { at.field(k) };
            quantity_value(errs, &at, k, q);
        }
    }
}

fn declared_features(errs: &mut Errors, n: View<'_>) {
    let at = Path::root("status.declaredFeatures");
    let part = |s: &str, first: fn(&char) -> bool| {
        s.chars().next().is_some_and(|c| first(&c)) && s.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let mut last = None;
    for (i, f) in n.st("status").strs("declaredFeatures").enumerate() {
        let here = at.index(i);
        match last {
            Some(last) if last == f => errs.duplicate(&here, f),
            Some(last) if last > f => errs.invalid(&here, f, "list must be sorted alphabetically"),
            _ => {}
        }
        last = Some(f);
        let mut parts = f.split('/');
        let good = part(parts.next().unwrap_or_default(), char::is_ascii_uppercase)
            && parts.all(|p| part(p, char::is_ascii_alphabetic));
        let why = if f.len() > MAX_FEATURE {
            format!("must be no more than {MAX_FEATURE} characters")
        } else if !good {
            "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes".to_owned()
        } else {
            continue;
        };
        errs.invalid(&here, f, format!("invalid feature name {}: {why}", api::go::quote(f)));
    }
}

/// The longest name of a declared feature, in bytes.
const MAX_FEATURE: usize = 253;

fn node(errs: &mut Errors, n: View<'_>, c: &Ctx<'_>) {
    core_meta(errs, n.st("metadata"), false, name_subdomain);
    node_taints(errs, n);
    node_resources(errs, n);
    if let Some(capacity) = n.st("status").st("nodeInfo").st("swap").opt_int("capacity") {
        errs.positive(&Path::root("metadata.nodeSwapStatus.capacity"), capacity);
    }
    declared_features(errs, n);
    let at = Path::root("spec.podCIDRs");
    let all: Vec<&str> = n.st("spec").strs("podCIDRs").collect();
    for (i, cidr) in all.iter().enumerate() {
        ip::check_cidr_legacy(
            errs,
            &at.index(i),
            cidr,
            c.gates.enabled(Gate::StrictIPCIDRValidation),
            &ip::Kept::new(),
        );
    }
    if all.len() > 1 {
        let bad = all.iter().enumerate().find(|(_, c)| ip::parse_cidr_sloppy(c).is_none());
        if let Some((i, bad)) = bad {
            errs.internal(
                &at,
                format!(
                    "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{i}]: <nil> (invalid CIDR address: {bad})"
                ),
            );
        }
        let v6 = all.iter().filter(|c| c.contains(':')).count();
        if bad.is_some() || all.len() > 2 || v6 != 1 {
            errs.invalid(
                &at,
                n.st("spec").get("podCIDRs"),
                "may specify no more than one CIDR for each IP family",
            );
        }
    }
}

fn node_update(errs: &mut Errors, n: View<'_>, o: View<'_>) {
    core_meta_update(errs, n.st("metadata"), o.st("metadata"));
    node_resources(errs, n);
    declared_features(errs, n);
    let list = Path::root("status.addresses");
    let mut addresses: HashSet<ByValue<&Node>> = HashSet::new();
    for (i, node) in n.st("status").list("addresses").iter().enumerate() {
        if !addresses.insert(ByValue(node)) {
            let a = n.of(node);
            let shown = a.raw().map(|s| print::internal(a.schema, s)).unwrap_or_default();
            errs.duplicate(&list.index(i), Raw(shown));
        }
    }
    let (ns, os) = (n.st("spec"), o.st("spec"));
    if os.len("podCIDRs") > 0 {
        let changed = if os.len("podCIDRs") == ns.len("podCIDRs") {
            os.strs("podCIDRs").zip(ns.strs("podCIDRs")).filter(|(a, b)| a != b).count()
        } else {
            1
        };
        for _ in 0..changed {
            errs.forbidden(
                &Path::root("spec.podCIDRs"),
                "node updates may not change podCIDR except from \"\" to valid",
            );
        }
    }
    let provider = os.str("providerID");
    if !provider.is_empty() && provider != ns.str("providerID") {
        errs.forbidden(
            &Path::root("spec.providerID"),
            "node updates may not change providerID except from \"\" to valid",
        );
    }
    node_taints(errs, n);
    if ns.str("externalID") != os.str("externalID") {
        errs.forbidden(&Path::root("spec.externalID"), "may not be updated");
    }
}
