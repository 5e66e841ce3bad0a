//! The spec of a PersistentVolumeClaim, which pods and StatefulSets hold too.

use crate::access::View;
use crate::strategies::pod::resources::quantity_value;
use crate::validation::meta::{SelectorOptions, label_selector};
use crate::validation::names;
use crate::validation::quantity::nano;
use crate::validation::{Errors, Path, Raw};

pub(crate) const ACCESS_MODES: &[&str] =
    &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// The access modes of a claim or volume, besides their number.
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

/// A claim's spec; `keep_selector` keeps selector values that are no label values.
pub(crate) fn claim_spec(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, keep_selector: bool) {
    if spec.len("accessModes") == 0 {
        errs.required(&at.field("accessModes"), "at least 1 access mode is required");
    }
    label_selector(
        errs,
        &at.field("selector"),
        spec.opt("selector"),
        SelectorOptions { invalid_values: keep_selector },
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
        data_source(errs, &at.field("dataSource"), s);
    }
    if let Some(r) = reference {
        let at = at.field("dataSourceRef");
        data_source(errs, &at, r);
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

fn data_source(errs: &mut Errors, at: &Path<'_>, s: View<'_>) {
    for f in ["name", "kind"] {
        if s.str(f).is_empty() {
            errs.required(&at.field(f), "");
        }
    }
    let (group, kind) = (s.str("apiGroup"), s.str("kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errs.invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
    }
    if !group.is_empty() {
        errs.each(&at.field("apiGroup"), group, names::dns1123_subdomain(group));
    }
}
