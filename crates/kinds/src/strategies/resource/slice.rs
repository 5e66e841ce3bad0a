//! ResourceSlices.

use std::borrow::Cow;
use std::collections::HashSet;

use api::field::{Errors, IMMUTABLE, Path, Raw};
use api::names::{self, name_subdomain};
use api::quantity::nano;
use api::view::{Edit, View, same};
use api::{Gate, Node, Struct, Text};

use super::{EFFECTS, GROUP, fits, qualified_name, unique};
use crate::columns;
use crate::strategies::generic::{CLUSTER, bump_spec, check, check_update, first_generation};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::scheduling::node_selector;
use crate::strategies::pod::volume_sources::csi_driver_name;
use crate::strategies::rules::{Rules, going};
use crate::strategies::template::whole;
use crate::strategy::Ctx;
use crate::validation::immutable;
use crate::validation::meta::label_name;
use crate::validation::print;

/// Upstream's limits.
const MAX_POOL_NAME: usize = 253;
const MAX_DEVICES: usize = 128;
const MAX_DEVICES_ADVANCED: usize = 64;
const MAX_COUNTER_SETS: usize = 8;
const MAX_COUNTERS: usize = 32;
const MAX_CONSUMPTIONS: usize = 2;
const MAX_ATTRIBUTES: usize = 32;
const MAX_ATTRIBUTE_VALUES: usize = 48;
const MAX_VALUE: usize = 64;
const MAX_TAINTS: usize = 16;
const MAX_CONDITIONS: usize = 4;

pub(crate) const SLICE: Rules = Rules {
    group: GROUP,
    resource: "resourceslices",
    columns: columns::storage::RESOURCE_SLICE,
    going: &[going("v1beta1", 35, "1.38"), going("v1beta2", 36, "1.39")],
    prepare_create: |c, s| {
        first_generation(c, s);
        date_taints(c, s);
        drop_disabled(c, s, None);
    },
    prepare_update: |c, n, o| {
        date_taints(c, n);
        bump_spec(c, n, o);
        drop_disabled(c, n, Some(o));
    },
    counts_gated: true,
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), false, name_subdomain);
            spec(e, v.st("spec"), None);
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            spec(e, n.st("spec"), Some(o.st("spec")));
        })
    },
    warnings: |c, n, _| {
        let driver = View::new(c.schema, n).st("spec").str("driver");
        let text = || {
            format!("spec.driver: driver names should be lowercase; {driver:?} contains uppercase characters")
        };
        if driver.to_lowercase() == driver { Vec::new() } else { vec![text()] }
    },
    fields: &["spec.nodeName", "spec.driver"],
    indexed: &["spec.nodeName"],
    field_values: |schema, s, out| {
        let spec = View::new(schema, s).st("spec");
        out.extend(["nodeName", "driver"].map(|f| Text::from(spec.str(f))));
    },
    ..CLUSTER
};

/// Sets the time of taints that have none.
fn date_taints(c: &Ctx<'_>, s: &mut Struct) {
    let mut e = Edit::new(c.schema, s);
    let Some(mut spec) = e.at("spec") else { return };
    for mut d in spec.items("devices") {
        for mut t in d.items("taints") {
            t.default("timeAdded", c.now);
        }
    }
}

/// Drops fields of a gate that is off.
fn drop_disabled(c: &Ctx<'_>, s: &mut Struct, old: Option<&Struct>) {
    const MAPPINGS: &str = "nodeAllocatableResourceMappings";
    let had =
        |f: &str| old.is_some_and(|o| View::new(c.schema, o).st("spec").items("devices").any(|d| d.has(f)));
    let drop = !c.gates.enabled(Gate::DRANodeAllocatableResources) && !had(MAPPINGS);
    let mut e = Edit::new(c.schema, s);
    let Some(mut spec) = e.at("spec") else { return };
    for mut d in spec.items("devices") {
        if drop {
            d.remove(MAPPINGS);
        }
    }
}

fn spec(errs: &mut Errors, s: View<'_>, old: Option<View<'_>>) {
    let at = Path::root("spec");
    csi_driver_name(errs, &at.field("driver"), s.str("driver"));
    let pool = s.st("pool");
    let pool_at = at.field("pool");
    pool_name(errs, &pool_at.field("name"), pool.str("name"));
    errs.positive(&pool_at.field("resourceSliceCount"), pool.int("resourceSliceCount"));
    if pool.int("generation") < 0 {
        errs.invalid(
            &pool_at.field("generation"),
            pool.int("generation"),
            "must be greater than or equal to zero",
        );
    }
    if let Some(o) = old {
        let (new, was) = (pool.str("name"), o.st("pool").str("name"));
        if new != was {
            errs.invalid(&pool_at.field("name"), new, IMMUTABLE);
        }
        for f in ["driver", "nodeName"] {
            immutable(errs, &at, s, o, f);
        }
    }
    let mut set = place(errs, &at, s, "must be either unset or set to a non-empty string");
    if let Some(n) = s.opt("nodeSelector")
        && n.len("nodeSelectorTerms") != 1
    {
        let terms_at = at.field("nodeSelector");
        let all: Vec<String> = n.items("nodeSelectorTerms").map(|t| whole(t).0).collect();
        let nothing = n.as_written("nodeSelectorTerms").is_none();
        let shown = if nothing { "null".into() } else { format!("[{}]", all.join(",")) };
        errs.invalid(
            &terms_at.field("nodeSelectorTerms"),
            api::field::Raw(shown),
            "must have exactly one node selector term",
        );
    }
    match s.opt_bool("perDeviceNodeSelection") {
        Some(true) => set.push("`perDeviceNodeSelection`"),
        Some(false) => {
            errs.invalid(&at.field("perDeviceNodeSelection"), false, "must be either unset or set to true");
        }
        None => {}
    }
    exactly_one(
        errs,
        &at,
        &set,
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        ", but multiple fields are set",
    );
    if s.as_written("sharedCounters").is_some() && s.as_written("devices").is_some() {
        errs.invalid(&at, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    devices(errs, &at.field("devices"), s, old);
    let at = at.field("sharedCounters");
    if fits(errs, &at, s.len("sharedCounters"), MAX_COUNTER_SETS) {
        for (i, c) in s.items("sharedCounters").enumerate() {
            counters(errs, &at.index(i), c, "name");
        }
        unique(errs, &at, s.items("sharedCounters").map(|c| c.str("name")));
    }
}

pub(super) fn pool_name(errs: &mut Errors, at: &Path<'_>, name: &str) {
    if name.is_empty() {
        errs.required(at, "");
        return;
    }
    if name.len() > MAX_POOL_NAME {
        errs.too_long(at, MAX_POOL_NAME);
    }
    for part in name.split('/') {
        errs.each(at, part, names::dns1123_subdomain(part));
    }
}

/// Checks the fields that tell the nodes of devices, and returns those that are set.
fn place(errs: &mut Errors, at: &Path<'_>, of: View<'_>, empty: &str) -> Vec<&'static str> {
    let mut set = Vec::new();
    match of.opt_str("nodeName") {
        Some("") => errs.invalid(&at.field("nodeName"), "", empty),
        Some(name) => {
            set.push("`nodeName`");
            errs.each(&at.field("nodeName"), name, name_subdomain(name, false));
        }
        None => {}
    }
    if let Some(n) = of.opt("nodeSelector") {
        set.push("`nodeSelector`");
        node_selector(errs, &at.field("nodeSelector"), n, false);
    }
    match of.opt_bool("allNodes") {
        Some(true) => set.push("`allNodes`"),
        Some(false) => {
            errs.invalid(&at.field("allNodes"), false, "must be either unset or set to true");
        }
        None => {}
    }
    set
}

fn exactly_one(errs: &mut Errors, at: &Path<'_>, set: &[&str], why: &str, more: &str) {
    match set {
        [] => errs.required(at, why),
        [_] => {}
        _ => errs.invalid(at, format!("{{{}}}", set.join(", ")), format!("{why}{more}")),
    }
}

const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

fn devices(errs: &mut Errors, at: &Path<'_>, s: View<'_>, old: Option<View<'_>>) {
    let advanced = s.items("devices").any(|d| {
        d.len("taints") > 0
            || d.len("consumesCounters") > 0
            || d.entries("attributes")
                .any(|(_, a)| LISTS.iter().any(|f| d.of(a).has(f) || d.of(a).written_empty(f)))
    });
    let max = if advanced { MAX_DEVICES_ADVANCED } else { MAX_DEVICES };
    if !fits(errs, at, s.len("devices"), max) {
        return;
    }
    let each = s.bool("perDeviceNodeSelection");
    for (i, d) in s.items("devices").enumerate() {
        let was = old.and_then(|o| o.items("devices").find(|o| o.str("name") == d.str("name")));
        device(errs, &at.index(i), d, was, each);
    }
    unique(errs, at, s.items("devices").map(|d| d.str("name")));
}

fn device(errs: &mut Errors, at: &Path<'_>, d: View<'_>, old: Option<View<'_>>, each: bool) {
    let name = d.str("name");
    errs.each(&at.field("name"), name, names::dns1123_label(name));
    let total = d.len("attributes") + d.len("capacity");
    if total > MAX_ATTRIBUTES {
        errs.invalid(
            at,
            total,
            format!("the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}"),
        );
    }
    let values = |a: View<'_>| LISTS.iter().map(|f| a.len(f)).sum::<usize>().max(1);
    let total: usize = d.entries("attributes").map(|(_, a)| values(d.of(a))).sum();
    if total > MAX_ATTRIBUTE_VALUES {
        let why = format!("the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}");
        errs.invalid(at, total, why);
    }
    let attributes_at = at.field("attributes");
    for (key, a) in d.entries("attributes") {
        qualified_name(errs, &attributes_at, key);
        attribute(errs, &attributes_at.key(&shortened(key)), d.of(a));
    }
    let capacity_at = at.field("capacity");
    for (key, c) in d.entries("capacity") {
        qualified_name(errs, &capacity_at, key);
        let key = &shortened(key);
        if d.bool("allowMultipleAllocations") {
            super::policy::request_policy(errs, &capacity_at.key(key), d.of(c));
        } else if d.of(c).has("requestPolicy") {
            errs.forbidden(
                &capacity_at.key(key).field("requestPolicy"),
                "allowMultipleAllocations must be true",
            );
        }
    }
    if !old.is_some_and(|o| same(o.get("taints"), d.get("taints"))) {
        let at = at.field("taints");
        if fits(errs, &at, d.len("taints"), MAX_TAINTS) {
            for (i, t) in d.items("taints").enumerate() {
                taint(errs, &at.index(i), t);
            }
        }
    }
    let counters_at = at.field("consumesCounters");
    if fits(errs, &counters_at, d.len("consumesCounters"), MAX_CONSUMPTIONS) {
        for (i, c) in d.items("consumesCounters").enumerate() {
            counters(errs, &counters_at.index(i), c, "counterSet");
        }
        unique(errs, &counters_at, d.items("consumesCounters").map(|c| c.str("counterSet")));
    }
    if each {
        let set = place(errs, at, d, "must not be empty");
        exactly_one(
            errs,
            at,
            &set,
            "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
            "",
        );
    } else if ["nodeName", "nodeSelector", "allNodes"].iter().any(|f| d.has(f)) {
        errs.invalid(
            at,
            None,
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
        );
    }
    bindings(errs, at, d);
    mappings(errs, &at.field("nodeAllocatableResourceMappings"), d);
}

/// Checks the amounts of the node's own resources that a device takes.
fn mappings(errs: &mut Errors, at: &Path<'_>, d: View<'_>) {
    for (name, mapping) in d.entries("nodeAllocatableResourceMappings") {
        let at = at.key(name);
        let mapping = d.of(mapping);
        if !crate::resources::is_native(name) {
            let value = api::go::scalar_json(&Node::from(name));
            errs.invalid(&at, Raw(value), "must be a node allocatable resource name");
        }
        let (multiplier, key) = (mapping.opt_str("allocationMultiplier"), mapping.opt_str("capacityKey"));
        if multiplier.is_none() && key.is_none() {
            errs.invalid(&at, "", "at least one of allocationMultiplier or capacityKey must be set");
        }
        if let Some(q) = multiplier.filter(|q| nano(q) <= 0) {
            errs.invalid(&at.field("allocationMultiplier"), q, "must be positive");
        }
        match key {
            Some("") => {
                errs.invalid(&at.field("capacityKey"), "", "capacityKey must not be an empty string");
            }
            Some(key) if d.map("capacity").is_none_or(|c| c.get(key).is_none()) => {
                errs.not_found(&at.field("capacityKey"), Raw(api::go::scalar_json(&Node::from(key))));
            }
            _ => {}
        }
    }
}

/// Whether a text is a version as semver.org describes it.
fn is_semver(text: &str) -> bool {
    let number =
        |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit()) && (s == "0" || !s.starts_with('0'));
    let word = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let (rest, build) = text.split_once('+').map_or((text, None), |(r, b)| (r, Some(b)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(c, p)| (c, Some(p)));
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|p| {
            p.split('.').all(|s| word(s) && (number(s) || !s.bytes().all(|b| b.is_ascii_digit())))
        })
        && build.is_none_or(|b| b.split('.').all(word))
}

/// A key as paths show it: the middle of a long one left out, counted in bytes.
fn shortened(key: &str) -> Cow<'_, str> {
    const MOST: usize = 63 + 1 + super::MAX_ID;
    if key.len() <= MOST {
        return key.into();
    }
    let rest = MOST - 3;
    let (head, tail) =
        (key.floor_char_boundary(rest.div_ceil(2)), key.ceil_char_boundary(key.len() - rest / 2));
    format!("{}...{}", &key[..head], &key[tail..]).into()
}

fn attribute(errs: &mut Errors, at: &Path<'_>, a: View<'_>) {
    let version = |errs: &mut Errors, at: &Path<'_>, v: &str| {
        if !is_semver(v) {
            errs.invalid(at, v, "must be a string compatible with semver.org spec 2.0.0");
        }
    };
    let short = |errs: &mut Errors, at: &Path<'_>, v: &str| {
        if v.len() > MAX_VALUE {
            errs.too_long(at, MAX_VALUE);
        }
    };
    if let Some(v) = a.opt_str("string") {
        short(errs, &at.field("string"), v);
    }
    if let Some(v) = a.opt_str("version") {
        version(errs, &at.field("version"), v);
        short(errs, &at.field("version"), v);
    }
    for (f, versions) in [("strings", false), ("versions", true)] {
        let at = at.field(f);
        for (i, v) in a.strs(f).enumerate() {
            if versions {
                version(errs, &at.index(i), v);
            }
            short(errs, &at.index(i), v);
        }
    }
    let mut values =
        ["bool", "int", "string", "version"].into_iter().chain(LISTS).filter(|f| a.has(f)).count();
    for f in LISTS.into_iter().filter(|f| a.written_empty(f)) {
        values += 1;
        errs.invalid(&at.field(f), Raw("[]".into()), "must not be empty if specified");
    }
    match values {
        0 => errs.invalid(at, "", "exactly one value must be specified"),
        1 => {}
        _ => errs.invalid(at, whole(a), "exactly one value must be specified"),
    }
}

fn taint(errs: &mut Errors, at: &Path<'_>, t: View<'_>) {
    let (value, effect) = (t.str("value"), t.str("effect"));
    label_name(errs, &at.field("key"), t.str("key"));
    if !value.is_empty() {
        errs.each(&at.field("value"), value, names::label_value(value));
    }
    if effect.is_empty() {
        errs.required(&at.field("effect"), "");
    } else {
        errs.one_of(&at.field("effect"), effect, EFFECTS);
    }
}

/// Checks the counters of a set; `name` is the field with the set's name.
fn counters(errs: &mut Errors, at: &Path<'_>, c: View<'_>, name: &str) {
    let set = c.str(name);
    if set.is_empty() {
        errs.required(&at.field(name), "");
    } else {
        errs.each(&at.field(name), set, names::dns1123_label(set));
    }
    let at = at.field("counters");
    if c.len("counters") == 0 {
        errs.required(&at, "");
    } else if fits(errs, &at, c.len("counters"), MAX_COUNTERS) {
        for (key, _) in c.entries("counters") {
            errs.each(&at, key, names::dns1123_label(key));
        }
    }
}

pub(super) fn bindings(errs: &mut Errors, at: &Path<'_>, d: View<'_>) {
    const OK: &str = "bindingConditions";
    const FAILED: &str = "bindingFailureConditions";
    let (ok_at, failed_at) = (at.field(OK), at.field(FAILED));
    for (f, at) in [(OK, &ok_at), (FAILED, &failed_at)] {
        if fits(errs, at, d.len(f), MAX_CONDITIONS) {
            for (i, c) in d.strs(f).enumerate() {
                label_name(errs, &at.index(i), c);
            }
        }
    }
    unique(errs, &ok_at, d.strs(OK));
    let mut seen: HashSet<&str> = HashSet::new();
    let ok: HashSet<&str> = d.strs(OK).collect();
    for (i, c) in d.strs(FAILED).enumerate() {
        if seen.contains(&c) {
            errs.duplicate(&failed_at.index(i), c);
        } else {
            seen.insert(c);
        }
        if ok.contains(c) {
            errs.invalid(
                &failed_at.index(i),
                c,
                "bindingFailureConditions must not overlap with bindingConditions",
            );
        }
    }
    match (d.len(OK), d.len(FAILED)) {
        (0, 1..) => {
            errs.invalid(
                &ok_at,
                Raw(print::field(d, OK)),
                "bindingConditions are required to use bindingFailureConditions",
            );
        }
        (1.., 0) => errs.invalid(
            &failed_at,
            Raw(print::field(d, FAILED)),
            "bindingFailureConditions are required to use bindingConditions",
        ),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::is_semver;

    #[test]
    fn versions() {
        for (text, expected) in [
            ("1.2.3", true),
            ("0.0.0-alpha.1+build.5", true),
            ("1.0.0--1", true),
            ("1.0", false),
            ("01.0.0", false),
            ("1.0.0-01", false),
            ("1.0.0-", false),
            ("v1.0.0", false),
            ("", false),
        ] {
            assert_eq!(is_semver(text), expected, "{text:?}");
        }
    }
}
