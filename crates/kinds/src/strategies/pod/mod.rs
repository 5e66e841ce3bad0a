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

use api::Struct;
use api::field::{Errors, Path};
use api::names::{dns1123_label, name_subdomain};
use api::status::FieldError;
use api::view::View;
use options::Options;

use crate::strategy::{Ctx, Strategy, Subresource};
use crate::validation::meta::{object_meta, object_meta_update};

/// The lists of containers in the order in which upstream visits them.
pub(crate) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The rules of Pods, for the table of strategies.
pub(super) const POD: Strategy = Strategy {
    resource: "pods",
    prepare_create: prepare::create,
    prepare_update: prepare::update,
    validate: validate_create,
    validate_update: update::validate,
    warnings,
    subresources: &[
        Subresource { name: "status", prepare_update: prepare::status, validate_update: status::validate },
        Subresource {
            name: "ephemeralcontainers",
            prepare_update: prepare::ephemeral_containers,
            validate_update: update::validate_ephemeral_containers,
        },
        Subresource {
            name: "resize",
            prepare_update: prepare::resize,
            validate_update: update::validate_resize,
        },
    ],
    ..super::generic::NAMESPACED
};

fn old_of<'a>(c: &Ctx<'a>, old: &'a Struct) -> (View<'a>, View<'a>) {
    let o = View::new(c.schema, old);
    (o.st("spec"), o.st("metadata"))
}

/// Finalizers of Kubernetes' own kinds must be qualified or known.
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

/// Metadata of a create of one of Kubernetes' own kinds.
pub(crate) fn core_meta(errs: &mut Errors, meta: View<'_>, namespaced: bool, check: api::names::NameCheck) {
    object_meta(errs, meta, namespaced, check);
    finalizers(errs, &Path::root("metadata"), meta);
}

/// Metadata of an update of one of Kubernetes' own kinds.
pub(crate) fn core_meta_update(errs: &mut Errors, new: View<'_>, old: View<'_>) {
    object_meta_update(errs, new, old);
    finalizers(errs, &Path::root("metadata"), new);
}

/// Metadata and spec of a pod.
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
