//! PersistentVolumeClaims, and their specs inside other kinds.

use api::field::{Errors, IMMUTABLE, Path, Raw};
use api::names::{self, name_subdomain};
use api::quantity::{nano, value};
use api::view::{Edit, View};
use api::{Gate, Node, Text};

use crate::columns;
use crate::strategies::generic::{self, NAMESPACED, check, check_update, keep_status};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::resources::quantity_value;
use crate::strategies::pod::warnings;
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategy::Ctx;
use crate::validation::immutable;
use crate::validation::meta::{SelectorOptions, has_invalid_value, label_selector};
use crate::validation::print::diff_structs;

const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(crate) const CLAIM: Rules = Rules {
    resource: "persistentvolumeclaims",
    columns: columns::core::PERSISTENT_VOLUME_CLAIM,
    takes: Takes::BUT_STATUS,
    prepare_create: |c, s| {
        let mut e = Edit::new(c.schema, s);
        e.remove("status");
        if let Some(mut st) = e.make("status") {
            st.set("phase", "Pending");
        }
        data_sources(c, &mut e, None);
    },
    prepare_update: |c, n, o| {
        keep_status(c, n, o);
        data_sources(c, &mut Edit::new(c.schema, n), Some(View::new(c.schema, o).st("spec")));
    },
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), true, name_subdomain);
            claim_spec(e, &Path::root("spec"), v.st("spec"), ClaimOptions::default());
        })
    },
    validate_update: |c, n, o| check_update(c, n, o, claim_update),
    warnings: |c, n, _| {
        let v = View::new(c.schema, n);
        let mut out = Vec::new();
        if v.st("metadata").map("annotations").is_some_and(|a| a.get(CLASS).is_some()) {
            out.push(format!(
                "metadata.annotations[{CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
            ));
        }
        warnings::claim_storage(&mut out, &Path::root("spec"), v.st("spec"));
        out
    },
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC,
        prepare_update: generic::status_only,
        validate_update: |c, n, o| check_update(c, n, o, status_update),
    }],
    ..NAMESPACED
};

const RESIZE_STATES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

fn status_update(errs: &mut Errors, n: View<'_>, o: View<'_>) {
    core_meta_update(errs, n.st("metadata"), o.st("metadata"));
    let status = n.st("status");
    let basic = |errs: &mut Errors, at: &Path<'_>, q: &str| {
        let value = value(q);
        let negative = value < 0;
        if negative {
            errs.invalid(at, value, "must be a valid resource quantity");
        }
        negative
    };
    let at = Path::root("status.capacity");
    for (k, q) in status.texts("capacity") {
        basic(errs, &at.key(k), q);
    }
    let at = Path::root("status.allocatedResourceStatuses");
    for (k, state) in status.texts("allocatedResourceStatuses") {
        resource_key(errs, &at, k);
        if !RESIZE_STATES.contains(&state) {
            errs.not_supported(&at, k, RESIZE_STATES);
        }
    }
    let at = Path::root("status.allocatedResources");
    for (k, q) in status.texts("allocatedResources") {
        if resource_key(errs, &at, k) && !basic(errs, &at.key(k), q) {
            quantity_value(errs, &at.key(k), "storage", q);
        }
    }
}

/// Checks a resource that a claim names: of Kubernetes' own resources only `storage` is allowed.
fn resource_key(errs: &mut Errors, at: &Path<'_>, name: &str) -> bool {
    let bad = names::qualified_name(name);
    if !bad.is_empty() {
        errs.each(at, name, bad);
        return false;
    }
    let known = !crate::resources::is_native(name) || name == "storage";
    if !known {
        errs.not_supported(at, name, &["storage"]);
    }
    known
}

/// Copies `dataSource` and `dataSourceRef` to each other where one of them is absent.
fn data_sources(c: &Ctx<'_>, e: &mut Edit<'_>, old: Option<View<'_>>) {
    let Some(mut spec) = e.at("spec") else { return };
    let elsewhere = |v: View<'_>| !v.st("dataSourceRef").str("namespace").is_empty();
    let used = |f: &str| old.is_some_and(|o| o.has(f));
    if elsewhere(spec.view())
        && !c.gates.enabled(Gate::CrossNamespaceVolumeDataSource)
        && !used("dataSourceRef")
    {
        spec.remove("dataSourceRef");
    }
    // A reference to another namespace stands alone.
    if elsewhere(spec.view()) {
        return;
    }
    let v = spec.view();
    if let Some(s) = v.opt("dataSource").filter(|_| !v.has("dataSourceRef")) {
        let known = match s.str("apiGroup") {
            "" => s.str("kind") == "PersistentVolumeClaim",
            "snapshot.storage.k8s.io" => s.str("kind") == "VolumeSnapshot",
            _ => false,
        };
        if !known && !used("dataSource") && !used("dataSourceRef") {
            spec.remove("dataSource");
        }
    }
    for (from, to) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
        let v = spec.view();
        let Some(s) = v.opt(from).filter(|_| !v.has(to)) else { continue };
        let fields: Vec<(&str, Text)> = ["apiGroup", "kind", "name"]
            .iter()
            .filter_map(|f| s.opt_str(f).map(|t| (*f, Text::from(t))))
            .collect();
        if let Some(mut t) = spec.make(to) {
            for (f, text) in fields {
                t.set(f, text);
            }
        }
    }
}

fn claim_update(errs: &mut Errors, n: View<'_>, o: View<'_>) {
    core_meta_update(errs, n.st("metadata"), o.st("metadata"));
    core_meta(errs, n.st("metadata"), true, name_subdomain);
    let (ns, os) = (n.st("spec"), o.st("spec"));
    let keep = ClaimOptions {
        selector_values: has_invalid_value(os.opt("selector")),
        api_groups: ["dataSource", "dataSourceRef"].iter().any(|f| os.st(f).opt_str("apiGroup").is_some()),
    };
    claim_spec(errs, &Path::root("spec"), ns, keep);
    let (Some(new), Some(old)) = (ns.raw(), os.raw()) else { return };
    let (mut new, mut old) = (new.clone(), old.clone());
    let schema = n.schema;
    if os.str("volumeName").is_empty() {
        Edit::new(schema, &mut old).put("volumeName", ns.get("volumeName").cloned());
    }
    let note = |v: View<'_>| {
        v.st("metadata").map("annotations").and_then(|a| a.get(CLASS)).map(|t| Text::from(t.as_str()))
    };
    let (nn, on) = (note(n), note(o));
    let class = ns.opt_str("storageClassName");
    let was_unset = !os.has("storageClassName");
    let from_note = on.as_deref().is_some_and(|c| was_unset && class == Some(c))
        && nn.as_deref().is_none_or(|c| Some(c) == on.as_deref());
    if from_note {
        Edit::new(schema, &mut new).remove("storageClassName");
    } else {
        if nn.as_deref().unwrap_or_default() != on.as_deref().unwrap_or_default() {
            let at = Path::root("metadata.annotations");
            errs.invalid(&at.field(CLASS), nn.as_deref().unwrap_or_default(), IMMUTABLE);
        }
        if class.is_some() && was_unset && on.as_deref().is_none_or(|c| Some(c) == class) {
            Edit::new(schema, &mut new).remove("storageClassName");
        }
    }
    let size = |v: View<'_>| v.st("resources").map("requests").and_then(|m| m.get("storage")).cloned();
    if n.st("status").str("phase") == "Bound" {
        let mut e = Edit::new(schema, &mut new);
        if let (Some(mut r), Some(s)) = (e.at("resources"), size(os))
            && let Some(m) = r.get_mut("requests").and_then(Node::as_map_mut)
        {
            m.insert("storage", s);
        }
        e.put("volumeAttributesClassName", os.get("volumeAttributesClassName").cloned());
    }
    if new != old {
        errs.forbidden(
            &Path::root("spec"),
            format!(
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{}",
                diff_structs(schema, &old, &new)
            ),
        );
    }
    let amount = |n: Option<&Node>| n.map_or(0, |q| nano(q.as_str()));
    let (new_size, old_size) = (amount(size(ns).as_ref()), amount(size(os).as_ref()));
    let have = amount(o.st("status").map("capacity").and_then(|m| m.get("storage")));
    if new_size < old_size && new_size <= have {
        errs.forbidden(
            &Path::root("spec.resources.requests.storage"),
            "field can not be less than status.capacity",
        );
    }
    immutable(errs, &Path::root(""), ns, os, "volumeMode");
    let at = Path::root("spec.volumeAttributesClassName");
    let class = ns.opt_str("volumeAttributesClassName");
    if o.st("status").opt_str("currentVolumeAttributesClassName").is_some()
        && class != os.opt_str("volumeAttributesClassName")
    {
        const APPLIED: &str = "is forbidden when status.currentVolumeAttributesClassName is not nil";
        match class {
            None => errs.forbidden(&at, format!("update to nil {APPLIED}")),
            Some("") => errs.forbidden(&at, format!("update to empty string {APPLIED}")),
            Some(_) => {}
        }
    }
}

/// Faults that a stored claim has and may keep.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClaimOptions {
    /// Values of the selector that are no label values.
    pub selector_values: bool,
    /// Any API group of a data source.
    pub api_groups: bool,
}

pub(crate) const ACCESS_MODES: &[&str] =
    &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Checks the access modes of a claim or volume, but not their number.
pub(crate) fn access_modes(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    let at = at.field("accessModes");
    let (mut single, mut other) = (false, false);
    for m in spec.strs("accessModes") {
        errs.one_of(&at, m, ACCESS_MODES);
        if m == "ReadWriteOncePod" {
            single = true;
        } else if ACCESS_MODES.contains(&m) {
            other = true;
        }
    }
    if single && other {
        errs.forbidden(&at, "may not use ReadWriteOncePod with other access modes");
    }
}

/// Checks a claim's spec.
pub(crate) fn claim_spec(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, keep: ClaimOptions) {
    if spec.len("accessModes") == 0 {
        errs.required(&at.field("accessModes"), "at least 1 access mode is required");
    }
    label_selector(
        errs,
        &at.field("selector"),
        spec.opt("selector"),
        SelectorOptions { invalid_values: keep.selector_values },
    );
    access_modes(errs, at, spec);
    let resources = at.field("resources");
    let storage_at = resources.key("storage");
    match spec.st("resources").map("requests").and_then(|m| m.get("storage")) {
        None => errs.required(&storage_at, ""),
        Some(q) if nano(q.as_str()) <= 0 => {
            errs.invalid(&storage_at, q.as_str(), "must be greater than zero");
        }
        Some(q) => quantity_value(errs, &storage_at, "storage", q.as_str()),
    }
    let class = spec.str("storageClassName");
    if !class.is_empty() {
        errs.each(&at.field("storageClassName"), class, names::name_subdomain(class, false));
    }
    if let Some(m) = spec.opt_str("volumeMode") {
        errs.one_of(&at.field("volumeMode"), m, &["Block", "Filesystem"]);
    }
    let (source, reference) = (spec.opt("dataSource"), spec.opt("dataSourceRef"));
    if let Some(s) = source {
        data_source(errs, &at.field("dataSource"), s, keep);
    }
    if let Some(r) = reference {
        let at = at.field("dataSourceRef");
        data_source(errs, &at, r, keep);
        let ns = r.str("namespace");
        if !ns.is_empty() {
            errs.each(&at.field("namespace"), ns, names::name_label(ns, false));
        }
    }
    if let (Some(s), Some(r)) = (source, reference) {
        // Upstream reports a path as the value, which prints as an empty object.
        let value = || Raw("{}".into());
        if !r.str("namespace").is_empty() {
            errs.invalid(at, value(), "may not be specified when dataSourceRef.namespace is specified");
        } else if ["apiGroup", "kind", "name"].iter().any(|f| s.opt_str(f) != r.opt_str(f)) {
            errs.invalid(at, value(), "must match dataSourceRef");
        }
    }
    let class = spec.str("volumeAttributesClassName");
    if !class.is_empty() {
        errs.each(&at.field("volumeAttributesClassName"), class, names::name_subdomain(class, false));
    }
}

fn data_source(errs: &mut Errors, at: &Path<'_>, s: View<'_>, keep: ClaimOptions) {
    for f in ["name", "kind"] {
        if s.str(f).is_empty() {
            errs.required(&at.field(f), "");
        }
    }
    let (group, kind) = (s.str("apiGroup"), s.str("kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errs.invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
    }
    if !group.is_empty() && !keep.api_groups {
        errs.each(&at.field("apiGroup"), group, names::dns1123_subdomain(group));
    }
}
