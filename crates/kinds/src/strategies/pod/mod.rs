//! Pods.

pub(crate) mod annotations;
pub(crate) mod containers;
pub(crate) mod options;
pub(crate) mod prepare;
pub(crate) mod resources;
pub(crate) mod scheduling;
mod security;
pub(crate) mod spec;
mod status;
mod update;
pub(crate) mod volumes;
pub(crate) mod warnings;

use api::field::{Errors, Path};
use api::names::{dns1123_label, name_subdomain};
use api::status::FieldError;
use api::view::View;
use api::{Schema, Struct, Text};
use options::Options;

use crate::columns;
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategy::{Ctx, Grace};
use crate::validation::meta::{object_meta, object_meta_update};

/// The lists of containers in the order in which upstream visits them.
pub(crate) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The rules of Pods, for the table of strategies.
pub(super) const POD: Rules = Rules {
    resource: "pods",
    columns: columns::core::POD,
    fields: &[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ],
    indexed: &["spec.nodeName"],
    field_values,
    grace,
    takes: Takes::BUT_STATUS,
    prepare_create: prepare::create,
    prepare_update: prepare::update,
    validate: validate_create,
    validate_update: update::validate,
    warnings,
    subresources: &[
        SubresourceRules {
            name: "status",
            takes: Takes::AllBut(&[
                &["spec"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ]),
            prepare_update: prepare::status,
            validate_update: status::validate,
        },
        SubresourceRules {
            name: "ephemeralcontainers",
            takes: Takes::Only(&[&[Some("spec"), Some("ephemeralContainers")]]),
            prepare_update: prepare::ephemeral_containers,
            validate_update: update::validate_ephemeral_containers,
        },
        SubresourceRules {
            name: "resize",
            takes: Takes::Only(&[
                &[Some("spec"), Some("containers"), None, Some("resources")],
                &[Some("spec"), Some("containers"), None, Some("resizePolicy")],
                &[Some("spec"), Some("initContainers"), None, Some("resources")],
                &[Some("spec"), Some("initContainers"), None, Some("resizePolicy")],
            ]),
            prepare_update: prepare::resize,
            validate_update: update::validate_resize,
        },
    ],
    ..super::generic::NAMESPACED
};

fn field_values(schema: &Schema, s: &Struct, out: &mut Vec<Text>) {
    let v = View::new(schema, s);
    let (spec, status) = (v.st("spec"), v.st("status"));
    let text = |b: bool| Text::from(if b { "true" } else { "false" });
    out.push(spec.str("nodeName").into());
    out.push(spec.str("restartPolicy").into());
    out.push(spec.str("schedulerName").into());
    out.push(spec.str("serviceAccountName").into());
    out.push(text(spec.bool("hostNetwork")));
    out.push(status.str("phase").into());
    let ip: Text = status.items("podIPs").next().map_or("", |i| i.str("ip")).into();
    out.push(ip.clone());
    // Upstream accepts status.podIPs in selectors, but no object has it.
    out.push(Text::default());
    out.push(status.str("nominatedNodeName").into());
}

/// The grace of a deletion. A Pod that is on no node or has ended goes at once.
fn grace(schema: &Schema, s: &Struct) -> Option<Grace> {
    let v = View::new(schema, s);
    let (spec, phase) = (v.st("spec"), v.st("status").str("phase"));
    Some(Grace {
        default: spec.int("terminationGracePeriodSeconds"),
        at_once: spec.str("nodeName").is_empty() || matches!(phase, "Failed" | "Succeeded"),
    })
}

fn old_of<'a>(c: &Ctx<'a>, old: &'a Struct) -> (View<'a>, View<'a>) {
    let o = View::new(c.schema, old);
    (o.st("spec"), o.st("metadata"))
}

/// Checks that finalizers of Kubernetes' own kinds are qualified or known.
pub(crate) fn finalizers(errs: &mut Errors, at: &Path<'_>, meta: View<'_>) {
    let at = at.field("finalizers");
    for (i, f) in meta.strs("finalizers").enumerate() {
        if !f.contains('/') && !matches!(f, "kubernetes" | "orphan" | "foregroundDeletion") {
            errs.invalid(
                &at.index(i),
                f,
                "name is neither a standard finalizer name nor is it fully qualified",
            );
        }
    }
}

/// Checks the metadata of a create of one of Kubernetes' own kinds.
pub(crate) fn core_meta(errs: &mut Errors, meta: View<'_>, namespaced: bool, check: api::names::NameCheck) {
    object_meta(errs, meta, namespaced, check);
    finalizers(errs, &Path::root("metadata"), meta);
}

/// Checks the metadata of an update of one of Kubernetes' own kinds.
pub(crate) fn core_meta_update(errs: &mut Errors, new: View<'_>, old: View<'_>) {
    object_meta_update(errs, new, old);
    finalizers(errs, &Path::root("metadata"), new);
}

/// Checks the metadata and spec of a pod.
fn metadata_and_spec(errs: &mut Errors, pod: View<'_>, o: &Options<'_>) {
    let (meta_at, spec_at) = (Path::root("metadata"), Path::root("spec"));
    let (meta, spec) = (pod.st("metadata"), pod.st("spec"));
    core_meta(errs, meta, true, name_subdomain);
    annotations::check(errs, &meta_at.field("annotations"), meta, spec, o);
    spec::check(errs, &spec_at, spec, Some(meta), o);
    if spec.str("serviceAccountName").is_empty() {
        let volumes = spec_at.field("volumes");
        for (i, v) in spec.items("volumes").enumerate() {
            let at = volumes.index(i);
            let at = at.field("projected.sources");
            for (j, s) in v.st("projected").items("sources").enumerate() {
                if s.has("serviceAccountToken") {
                    let at = at.index(j);
                    errs.forbidden(
                        &at.field("serviceAccountToken"),
                        "must not be specified when serviceAccountName is not set",
                    );
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        let at = spec_at.field(list);
        for (i, c) in spec.items(list).enumerate() {
            containers::image_whitespace(errs, &at.index(i), c);
        }
    }
}

fn validate_create(c: &Ctx<'_>, s: &Struct) -> Vec<FieldError> {
    let mut errs = Errors::new();
    let pod = View::new(c.schema, s);
    let (meta, spec) = (pod.st("metadata"), pod.st("spec"));
    let o = Options::new(*c, true, None);
    metadata_and_spec(&mut errs, pod, &o);
    let at = Path::root("spec");
    if spec.len("ephemeralContainers") > 0 {
        errs.forbidden(&at.field("ephemeralContainers"), "cannot be set on create");
    }
    if !spec.str("nodeName").is_empty() && spec.len("schedulingGates") > 0 {
        errs.forbidden(&at.field("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
    annotations::match_fields(&mut errs, &at, meta, spec);
    errs.0
}

fn warnings(c: &Ctx<'_>, new: &Struct, old: Option<&Struct>) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    let pod = View::new(c.schema, new);
    let mut out = Vec::new();
    let bad = dns1123_label(pod.st("metadata").str("name"));
    if !bad.is_empty() {
        out.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            bad.join(" ")
        ));
    }
    warnings::of_spec(&mut out, &Path::root(""), pod.st("metadata"), pod.st("spec"), false);
    out
}
