//! The rules of most kinds: check the metadata, reset status on writes of the object and the rest on writes of the
//! status, count generations.

use api::field::Errors;
use api::names::name_subdomain;
use api::status::FieldError;
use api::view::{Edit, View, same, same_as_written};
use api::{Schema, Struct, Text};

use crate::columns;
use crate::convert;
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategy::{Ctx, Deletion, Form};
use crate::validation::meta::{object_meta, object_meta_update};

/// Leaves the tree of a create as it is.
pub(crate) fn keep(_: &Ctx<'_>, _: &mut Struct) {}
/// Leaves the tree of an update as it is.
pub(crate) fn keep_update(_: &Ctx<'_>, _: &mut Struct, _: &Struct) {}

/// Drops the status of a create.
pub(crate) fn drop_status(c: &Ctx<'_>, s: &mut Struct) {
    Edit::new(c.schema, s).remove("status");
}

/// Sets the generation of a create to 1.
pub(crate) fn first_generation(c: &Ctx<'_>, s: &mut Struct) {
    set_generation(&mut Edit::new(c.schema, s), 1);
}

/// Drops the status of a create and sets its generation to 1.
pub(crate) fn create(c: &Ctx<'_>, s: &mut Struct) {
    drop_status(c, s);
    first_generation(c, s);
}

/// Sets `metadata.generation`.
pub(crate) fn set_generation(e: &mut Edit<'_>, generation: i64) {
    if let Some(mut m) = e.make("metadata") {
        if generation == 0 {
            m.remove("generation");
        } else {
            m.set("generation", generation);
        }
    }
}

/// Keeps the stored status in an update.
pub(crate) fn keep_status(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    Edit::new(c.schema, new).copy("status", old);
}

/// Raises the generation if one of the fields changed.
pub(crate) fn bump_if_changed(c: &Ctx<'_>, new: &mut Struct, old: &Struct, fields: &[&str]) {
    let (n, o) = (View::new(c.schema, new), View::new(c.schema, old));
    let changed = fields.iter().any(|f| !same(n.get(f), o.get(f)));
    if changed {
        bump(c, new, old);
    }
}

/// Raises the generation if the field changed, or if an empty list or map was written where there was none.
pub(crate) fn bump_if_written(c: &Ctx<'_>, new: &mut Struct, old: &Struct, field: &str) {
    let (n, o) = (View::new(c.schema, new), View::new(c.schema, old));
    let changed = !same_as_written(n.as_written(field), o.as_written(field));
    if changed {
        bump(c, new, old);
    }
}

fn bump(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    let generation = View::new(c.schema, old).st("metadata").int("generation");
    set_generation(&mut Edit::new(c.schema, new), generation + 1);
}

/// Keeps the stored status in an update and raises the generation if `spec` changed.
pub(crate) fn update(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    keep_status(c, new, old);
    bump_if_changed(c, new, old, &["spec"]);
}

/// Raises the generation if `spec` changed, for a kind without status.
pub(crate) fn bump_spec(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    bump_if_changed(c, new, old, &["spec"]);
}

/// Checks the metadata of a namespaced object.
pub(crate) fn validate_namespaced(c: &Ctx<'_>, s: &Struct) -> Vec<FieldError> {
    let mut errs = Errors::new();
    object_meta(&mut errs, View::new(c.schema, s).st("metadata"), true, name_subdomain);
    errs.0
}

/// Checks the metadata of an object of the cluster.
pub(crate) fn validate_cluster(c: &Ctx<'_>, s: &Struct) -> Vec<FieldError> {
    let mut errs = Errors::new();
    object_meta(&mut errs, View::new(c.schema, s).st("metadata"), false, name_subdomain);
    errs.0
}

/// Checks an update's metadata.
pub(crate) fn validate_update(c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError> {
    let mut errs = Errors::new();
    object_meta_update(
        &mut errs,
        View::new(c.schema, new).st("metadata"),
        View::new(c.schema, old).st("metadata"),
    );
    errs.0
}

/// Gives no warnings.
pub(crate) fn no_warnings(_: &Ctx<'_>, _: &Struct, _: Option<&Struct>) -> Vec<String> {
    Vec::new()
}

/// Gives no values: the kind has no selectable fields.
pub(crate) fn no_fields(_: &Schema, _: &Struct, _: &mut Vec<Text>) {}

/// Restricts an update to the status; metadata other than labels and the like is the server's anyway.
pub(crate) fn status_only(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    let mut e = Edit::new(c.schema, new);
    let names: Vec<Text> = c
        .schema
        .st(old.id)
        .fields
        .iter()
        .map(|f| f.json.clone())
        .filter(|n| n != "metadata" && n != "status")
        .collect();
    for n in names {
        e.copy(&n, old);
    }
}

/// Restricts an update to the status, and keeps the stored labels, annotations, finalizers and owners, too.
pub(crate) fn status_reset_meta(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    status_only(c, new, old);
    let mut e = Edit::new(c.schema, new);
    let o = View::new(c.schema, old).st("metadata");
    if let (Some(mut m), Some(o)) = (e.make("metadata"), o.raw()) {
        for f in ["deletionTimestamp", "generation", "labels", "annotations", "finalizers", "ownerReferences"]
        {
            m.copy(f, o);
        }
    }
}

/// The subresource `status` of a kind whose metadata a status update may change.
pub(crate) const STATUS: SubresourceRules =
    SubresourceRules { name: "status", takes: Takes::BUT_SPEC, prepare_update: status_only, validate_update };
/// The subresource `status` of a kind whose metadata a status update leaves alone.
pub(crate) const STATUS_ALONE: SubresourceRules = SubresourceRules {
    name: "status",
    takes: Takes::BUT_SPEC_AND_METADATA,
    prepare_update: status_reset_meta,
    validate_update,
};

/// The rules of a namespaced kind without its own.
pub(crate) const NAMESPACED: Rules = Rules {
    group: "",
    resource: "",
    prepare_create: keep,
    validate: validate_namespaced,
    canonicalize: keep,
    prepare_update: keep_update,
    validate_update,
    warnings: no_warnings,
    subresources: &[],
    takes: Takes::AllBut(&[]),
    fields: &[],
    indexed: &[],
    field_values: no_fields,
    columns: columns::USUAL,
    create_on_update: false,
    unconditional_update: true,
    counts_gated: false,
    no_effect_yet: None,
    is_namespace: false,
    is_consulted: false,
    deletion: Deletion::USUAL,
    grace: |_, _| None,
    is_held: |_, _| false,
    internal_kind: None,
    path: None,
    form: Form::Protobuf,
    expires: false,
    going: &[],
    scale: None,
    field_annotation: None,
    convert: convert::same_fields,
    settle: |_, _| Ok(()),
};
/// The rules of a kind of the cluster without its own.
pub(crate) const CLUSTER: Rules = Rules { validate: validate_cluster, ..NAMESPACED };

/// The text at a dotted path of structs, "" if absent; a list is entered at its first element.
pub(crate) fn text_at(schema: &Schema, s: &Struct, path: &str) -> Text {
    let mut v = View::new(schema, s);
    let mut rest = path;
    while let Some((head, tail)) = rest.split_once('.') {
        v = v.st(head);
        rest = tail;
    }
    match v.get(rest) {
        Some(api::Node::Str(t)) => t.clone(),
        Some(api::Node::Int(i)) => compact_str::format_compact!("{i}"),
        Some(api::Node::Bool(b)) => Text::from(if *b { "true" } else { "false" }),
        _ => Text::default(),
    }
}

/// Runs checks on a view.
pub(crate) fn check(c: &Ctx<'_>, s: &Struct, f: impl FnOnce(&mut Errors, View<'_>)) -> Vec<FieldError> {
    let mut errs = Errors::new();
    f(&mut errs, View::new(c.schema, s));
    errs.0
}

/// Runs checks on the views of an update.
pub(crate) fn check_update(
    c: &Ctx<'_>,
    new: &Struct,
    old: &Struct,
    f: impl FnOnce(&mut Errors, View<'_>, View<'_>),
) -> Vec<FieldError> {
    let mut errs = Errors::new();
    f(&mut errs, View::new(c.schema, new), View::new(c.schema, old));
    errs.0
}
