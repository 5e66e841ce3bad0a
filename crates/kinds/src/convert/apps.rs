//! Annotations that stand for fields of upstream's internal types.

use api::{Node, Schema, Struct};

use api::view::{Edit, View};

/// The annotation of a DaemonSet that counts the changes of its template.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
/// The annotation of a Deployment with the revision to which `extensions/v1beta1` was asked to roll it back.
pub(crate) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// The template generation of a DaemonSet, 0 if it has none.
pub(crate) fn template_generation(object: View<'_>) -> i64 {
    number(object, TEMPLATE_GENERATION).unwrap_or(0)
}

/// Sets the template generation of a DaemonSet.
pub(crate) fn set_template_generation(e: &mut Edit<'_>, generation: i64) {
    set(e, TEMPLATE_GENERATION, generation);
}

/// The revision to which a Deployment is to be rolled back.
pub(crate) fn rollback_to(object: View<'_>) -> Option<i64> {
    number(object, ROLLBACK_TO)
}

/// Copies the revision to which a Deployment is to be rolled back from another state of it.
pub(crate) fn keep_rollback(e: &mut Edit<'_>, old: View<'_>) {
    match rollback_to(old) {
        Some(revision) => set(e, ROLLBACK_TO, revision),
        None => remove(e, ROLLBACK_TO),
    }
}

/// Takes the annotation from a Deployment that has it but names no revision.
pub(crate) fn tidy_rollback(e: &mut Edit<'_>) {
    if rollback_to(e.view()).is_none() {
        remove(e, ROLLBACK_TO);
    }
}

/// Reads the annotation of a DaemonSet as upstream's conversion does, and writes it as that does. The error is
/// upstream's text.
pub(crate) fn settle_daemon_set(schema: &Schema, object: &mut Struct) -> Result<(), String> {
    let mut e = Edit::new(schema, object);
    let Some(text) = annotation(e.view(), TEMPLATE_GENERATION) else { return Ok(()) };
    let value = text.parse::<i64>().map_err(|why| api::go::no_integer("ParseInt", text, &why))?;
    set(&mut e, TEMPLATE_GENERATION, value);
    Ok(())
}

/// Like [`settle_daemon_set`], for a Deployment.
pub(crate) fn settle_deployment(schema: &Schema, object: &mut Struct) -> Result<(), String> {
    let mut e = Edit::new(schema, object);
    let text = annotation(e.view(), ROLLBACK_TO);
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(()) };
    let value = text.parse::<i64>().map_err(|why| {
        let why = api::go::no_integer("ParseInt", text, &why);
        format!("failed to parse annotation[{ROLLBACK_TO}]={text} as int64: {why}")
    })?;
    set(&mut e, ROLLBACK_TO, value);
    Ok(())
}

fn annotation<'a>(object: View<'a>, name: &str) -> Option<&'a str> {
    Some(object.st("metadata").map("annotations")?.get(name)?.as_str())
}

fn number(object: View<'_>, name: &str) -> Option<i64> {
    annotation(object, name)?.parse().ok()
}

fn set(e: &mut Edit<'_>, name: &str, value: i64) {
    if let Some(mut metadata) = e.make("metadata")
        && let Some(annotations) = metadata.make_map("annotations")
    {
        annotations.insert(name, compact_str::format_compact!("{value}"));
    }
}

fn remove(e: &mut Edit<'_>, name: &str) {
    let Some(mut metadata) = e.at("metadata") else { return };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Node::as_map_mut) else { return };
    annotations.remove(name);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}
