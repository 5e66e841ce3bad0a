//! Pods.

pub(crate) mod annotations;
pub(crate) mod containers;
mod env;
pub(crate) mod leniency;
pub(crate) mod options;
mod parts;
pub(crate) mod paths;
pub(crate) mod prepare;
mod references;
pub(crate) mod resources;
pub(crate) mod scheduling;
mod security;
pub(crate) mod spec;
mod status;
mod update;
pub(crate) mod volume_sources;
pub(crate) mod volumes;
pub(crate) mod warnings;

use api::field::{Errors, Path};
use api::names::dns1123_label;
use api::status::FieldError;
use api::view::View;
use api::{Schema, Struct, Text};

use crate::columns;
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategy::{Ctx, Grace};

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

fn validate_create(c: &Ctx<'_>, s: &Struct) -> Vec<FieldError> {
    let mut errs = Errors::new();
    let pod = View::new(c.schema, s);
    let (meta, spec) = (pod.st("metadata"), pod.st("spec"));
    let o = leniency::options(*c, true, None);
    spec::metadata_and_spec(&mut errs, pod, &o);
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
