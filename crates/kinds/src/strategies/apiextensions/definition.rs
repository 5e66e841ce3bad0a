//! The parts of a CustomResourceDefinition besides its schemas.
//!
//! Upstream's rules see the parts that all versions share (schema, subresources, columns) once, above the versions; so
//! do these, and their paths show it.

use std::collections::HashSet;
use std::mem::discriminant;

use api::Node;
use api::field::{Errors, IMMUTABLE, Path};
use api::names::{self, name_subdomain};
use api::view::{Edit, View, same};

use super::schema::{self, Former, Look};
use super::selectable::{self, Place};
use crate::custom::Approval;
use crate::strategies::generic::{self, CLUSTER, STATUS_ALONE, check, check_update};
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategy::Form;
use crate::validation::authorities::no_authorities;
use crate::validation::meta::{object_meta, object_meta_update};

pub(crate) const DEFINITION: Rules = Rules {
    group: "apiextensions.k8s.io",
    resource: "customresourcedefinitions",
    form: Form::Definition,
    takes: Takes::BUT_STATUS,
    unconditional_update: false,
    prepare_create: |c, s| {
        generic::create(c, s);
        store_version(&mut Edit::new(c.schema, s));
    },
    prepare_update: |c, n, o| {
        generic::update(c, n, o);
        store_version(&mut Edit::new(c.schema, n));
    },
    validate: |c, s| check(c, s, definition),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            object_meta_update(e, n.st("metadata"), o.st("metadata"));
            spec(e, n.st("spec"), Some(o));
            immutable(e, n, o);
            names_of(e, &Path::root("status.acceptedNames"), n.st("status").st("acceptedNames"));
            stored_versions(e, n);
            approval(e, n, Some(o));
            preserve_unknown(e, n, Some(o));
        })
    },
    warnings: |c, n, old| {
        let before = old.map(|o| unknown_formats(View::new(c.schema, o))).unwrap_or_default();
        let before: HashSet<&str> = before.into_iter().collect();
        unknown_formats(View::new(c.schema, n))
            .into_iter()
            .filter(|f| !before.contains(f))
            .map(|f| format!("unrecognized format {}", api::go::quote(f)))
            .collect()
    },
    subresources: &[SubresourceRules {
        takes: Takes::BUT_SPEC,
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, o| {
                object_meta_update(e, n.st("metadata"), o.st("metadata"));
                names_of(e, &Path::root("status.acceptedNames"), n.st("status").st("acceptedNames"));
            })
        },
        ..STATUS_ALONE
    }],
    ..CLUSTER
};

fn unknown_formats(v: View<'_>) -> Vec<&str> {
    let mut out = Vec::new();
    for version in v.st("spec").items("versions") {
        schema::unknown_formats(version.st("schema").st("openAPIV3Schema"), &mut out);
    }
    out
}

/// Adds the storage version to the versions in which objects may be stored.
fn store_version(e: &mut Edit<'_>) {
    let v = e.view();
    let Some(name) = v.st("spec").items("versions").find(|v| v.bool("storage")).map(|v| v.str("name")) else {
        return;
    };
    if v.st("status").strs("storedVersions").any(|s| s == name) {
        return;
    }
    let mut all: Vec<Node> = v.st("status").list("storedVersions").to_vec();
    all.push(Node::from(name));
    if let Some(mut status) = e.make("status") {
        status.set("storedVersions", Node::List(all));
    }
}

fn definition(errs: &mut Errors, v: View<'_>) {
    let s = v.st("spec");
    let required = format!("{}.{}", s.st("names").str("plural"), s.str("group"));
    named(errs, v.st("metadata"), &required);
    spec(errs, s, None);
    names_of(errs, &Path::root("status.acceptedNames"), v.st("status").st("acceptedNames"));
    stored_versions(errs, v);
    approval(errs, v, None);
    preserve_unknown(errs, v, None);
}

/// Checks the metadata, with the name that consists of the plural and the group.
fn named(errs: &mut Errors, meta: View<'_>, required: &str) {
    const WHY: &str = "must be spec.names.plural+\".\"+spec.group";
    let name = meta.str("name");
    let first = errs.len();
    object_meta(errs, meta, false, name_subdomain);
    if name.is_empty() || name == required {
        return;
    }
    let mut one = Errors::new();
    one.invalid(&Path::root("metadata.name"), name, WHY);
    // The error stands after the other errors about the name.
    let first = first.min(errs.0.len());
    let place = errs.0[first..]
        .iter()
        .rposition(|e| matches!(e.field.as_str(), "metadata.name" | "metadata.generateName"))
        .map_or(first, |i| first + i + 1);
    errs.0.splice(place..place, one.0);
}

/// Whether a field is the same in every version.
fn shared(spec: View<'_>, field: &str) -> bool {
    let mut versions = spec.items("versions");
    let Some(first) = versions.next() else { return false };
    versions.all(|v| same(v.get(field), first.get(field)))
}

fn scope_and_group(errs: &mut Errors, at: &Path<'_>, s: View<'_>) {
    let group = s.str("group");
    let bad = names::dns1123_subdomain(group);
    if group.is_empty() {
        errs.required(&at.field("group"), "");
    } else if !bad.is_empty() {
        errs.invalid(&at.field("group"), group, bad.join(","));
    } else if !group.contains('.') {
        errs.invalid(&at.field("group"), group, "should be a domain with at least one dot");
    }
    let scope = s.str("scope");
    if scope.is_empty() {
        errs.required(&at.field("scope"), "");
    } else {
        errs.one_of(&at.field("scope"), scope, &["Cluster", "Namespaced"]);
    }
}

fn has_status(version: View<'_>) -> bool {
    version.st("subresources").has("status")
}

fn spec(errs: &mut Errors, s: View<'_>, old: Option<View<'_>>) {
    let at = Path::root("spec");
    let former = old.map(|o| Former::of(o.st("spec"))).unwrap_or_default();
    scope_and_group(errs, &at, s);
    let versions_at = at.field("versions");
    let versions: Vec<View<'_>> = s.items("versions").collect();
    let keeps_unknown = s.bool("preserveUnknownFields");
    for (i, version) in versions.iter().enumerate() {
        if version.st("schema").has("openAPIV3Schema") {
            continue;
        }
        let at = versions_at.index(i);
        let at = at.field("schema");
        if !former.lacked_schema() {
            errs.required(&at.field("openAPIV3Schema"), "");
        } else if !keeps_unknown && version.bool("served") {
            errs.required(&at.field("openAPIV3Schema"), "because otherwise all fields are pruned");
        }
    }
    let schemas = || versions.iter().filter_map(|v| v.st("schema").opt("openAPIV3Schema"));
    if keeps_unknown && schemas().any(schema::has_default) {
        let why = "must be false in order to use defaults in the schema";
        errs.invalid(&at.field("preserveUnknownFields"), true, why);
    }
    let structural = !keeps_unknown || schemas().any(schema::needs_structure) || !former.was_unstructured();
    let look = |version: View<'_>, has_status: bool| Look {
        has_status,
        structural,
        unchanged: former.had_schema(version),
        former: &former,
    };
    let one = Hoisted::of(s);
    for (i, v) in versions.iter().enumerate() {
        let at = versions_at.index(i);
        let bad = names::dns1035_label(v.str("name"));
        if !bad.is_empty() {
            errs.invalid(&at.field("name"), v.str("name"), bad.join(","));
        }
        deprecation(errs, &at, *v);
        if !one.schema {
            check_schema(errs, &at.field("schema"), *v, look(*v, has_status(*v)));
        }
        if !one.subresources {
            subresources(errs, &at.field("subresources"), *v);
        }
        if !one.columns {
            columns(errs, &at.field("additionalPrinterColumns"), *v);
        }
        if !one.selectable {
            let had = former.had_selectable(*v);
            selectable::check(errs, &at.field("selectableFields"), *v, Place::Version, had);
        }
    }
    let mut seen = HashSet::new();
    if !versions.iter().all(|v| seen.insert(v.str("name"))) {
        errs.invalid(&versions_at, shown(s), "must contain unique version names");
    }
    if versions.iter().filter(|v| v.bool("storage")).count() != 1 {
        errs.invalid(&versions_at, shown(s), "must have exactly one version marked as storage version");
    }
    if let Some(first) = versions.first() {
        let bad = names::dns1035_label(first.str("name"));
        if !first.str("name").is_empty() && !bad.is_empty() {
            errs.invalid(&at.field("version"), first.str("name"), bad.join(","));
        }
    }
    let names_at = at.field("names");
    for f in ["plural", "singular", "kind", "listKind"] {
        if s.st("names").str(f).is_empty() {
            errs.required(&names_at.field(f), "");
        }
    }
    names_of(errs, &names_at, s.st("names"));
    if let Some(first) = versions.first() {
        if one.schema {
            let any_status = versions.iter().any(|v| has_status(*v));
            check_schema(errs, &at.field("validation"), *first, look(*first, any_status));
        }
        if one.subresources {
            subresources(errs, &at.field("subresources"), *first);
        }
        if one.columns {
            columns(errs, &at.field("additionalPrinterColumns"), *first);
        }
        if one.selectable {
            let place = Place::Above { with_schema: one.schema };
            let had = former.had_selectable(*first);
            selectable::check(errs, &at.field("selectableFields"), *first, place, had);
        }
    }
    let strategy = s.st("conversion").str("strategy");
    if keeps_unknown && !matches!(strategy, "" | "None") {
        let why = "must be None if spec.preserveUnknownFields is true";
        errs.invalid(&at.field("conversion").field("strategy"), strategy, why);
    }
    conversion(errs, &at.field("conversion"), s, old);
}

/// The parts that all versions share.
#[allow(clippy::struct_excessive_bools, reason = "the parts are independent of each other")]
struct Hoisted {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

impl Hoisted {
    fn of(spec: View<'_>) -> Self {
        Self {
            schema: shared(spec, "schema"),
            subresources: shared(spec, "subresources"),
            columns: shared(spec, "additionalPrinterColumns"),
            selectable: shared(spec, "selectableFields"),
        }
    }
}

/// A definition in a group of the community names who approved it, unless it never did.
fn approval(errs: &mut Errors, new: View<'_>, old: Option<View<'_>>) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    fn text(v: View<'_>) -> &str {
        let mut all = v.st("metadata").texts("annotations");
        all.find(|(name, _)| *name == ANNOTATION).map_or("", |(_, text)| text)
    }
    let of = |v: View<'_>| Approval::of(new.st("spec").str("group"), text(v));
    let Some(approval) = of(new) else { return };
    let before = old.and_then(of);
    if before.is_some_and(|b| discriminant(&b) == discriminant(&approval)) {
        return;
    }
    let at = Path::root("metadata.annotations");
    match approval {
        Approval::Missing => errs.required(&at.key(ANNOTATION), approval.to_string()),
        Approval::Invalid(_) => errs.invalid(&at.key(ANNOTATION), text(new), approval.to_string()),
        Approval::Bypassed(_) | Approval::Approved(_) => {}
    }
}

/// The versions as upstream's rules see them: without the parts that they share.
fn shown(s: View<'_>) -> api::field::Raw {
    let Some(raw) = s.raw().filter(|_| s.has("versions") || s.written_empty("versions")) else {
        return api::field::Raw("null".into());
    };
    let mut copy = raw.clone();
    let hoisted: Vec<&str> = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"]
        .into_iter()
        .filter(|f| shared(s, f))
        .collect();
    let mut e = Edit::new(s.schema, &mut copy);
    for mut v in e.items("versions") {
        for f in &hoisted {
            v.remove(f);
        }
    }
    let all: Vec<String> = e
        .view()
        .items("versions")
        .filter_map(|v| v.raw())
        .map(|v| crate::validation::print::internal(s.schema, v))
        .collect();
    api::field::Raw(format!("[{}]", all.join(",")))
}

fn deprecation(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    let at = at.field("deprecationWarning");
    let Some(text) = v.opt_str("deprecationWarning") else { return };
    if !v.bool("deprecated") {
        errs.invalid(&at, text, "can only be set for deprecated versions");
        return;
    }
    if text.len() > 256 {
        errs.invalid(&at, text, "must be <= 256 characters long");
    }
    if text.is_empty() {
        errs.invalid(&at, text, "must not be an empty string");
    }
    if let Some((i, _)) = text.char_indices().find(|(_, c)| !api::go::is_print(*c)) {
        errs.invalid(
            &at,
            text,
            format!(
                "must only contain printable UTF-8 characters; non-printable character found at index {i}"
            ),
        );
    }
}

fn check_schema(errs: &mut Errors, at: &Path<'_>, version: View<'_>, look: Look<'_>) {
    if let Some(s) = version.st("schema").opt("openAPIV3Schema") {
        schema::check(errs, &at.field("openAPIV3Schema"), s, look);
    }
}

fn simple_path(errs: &mut Errors, at: &Path<'_>, path: &str) -> bool {
    let simple = path.starts_with('.');
    if !simple {
        errs.invalid(at, path, "must be a simple json path starting with .");
    }
    simple
}

fn subresources(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    let Some(scale) = v.st("subresources").opt("scale") else { return };
    let at = at.field("scale");
    for (f, prefix) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let path = scale.str(f);
        let at = at.field(f);
        if path.is_empty() {
            errs.required(&at, "");
        } else if simple_path(errs, &at, path) && !path.starts_with(&format!("{prefix}.")) {
            errs.invalid(&at, path, format!("should be a json path under {prefix}"));
        }
    }
    let path = scale.str("labelSelectorPath");
    let at = at.field("labelSelectorPath");
    if !path.is_empty()
        && simple_path(errs, &at, path)
        && !path.starts_with(".spec.")
        && !path.starts_with(".status.")
    {
        errs.invalid(&at, path, "should be a json path under either .spec or .status");
    }
}

fn columns(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    const TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
    const FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (i, c) in v.items("additionalPrinterColumns").enumerate() {
        let at = at.index(i);
        let (ty, format, path) = (c.str("type"), c.str("format"), c.str("jsonPath"));
        if c.str("name").is_empty() {
            errs.required(&at.field("name"), "");
        }
        let one_of = format!("must be one of {}", TYPES.join(","));
        if ty.is_empty() {
            errs.required(&at.field("type"), one_of);
        } else if !TYPES.contains(&ty) {
            errs.invalid(&at.field("type"), ty, one_of);
        }
        if !format.is_empty() && !FORMATS.contains(&format) {
            errs.invalid(&at.field("format"), format, format!("must be one of {}", FORMATS.join(",")));
        }
        let at = at.field("JSONPath");
        if path.is_empty() {
            errs.required(&at, "");
        } else {
            simple_path(errs, &at, path);
        }
    }
}

fn names_of(errs: &mut Errors, at: &Path<'_>, n: View<'_>) {
    let label = |errs: &mut Errors, at: &Path<'_>, v: &str, mixed: bool| {
        let bad = if mixed { names::dns1035_label(&v.to_lowercase()) } else { names::dns1035_label(v) };
        if !v.is_empty() && !bad.is_empty() {
            let intro = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            errs.invalid(at, v, format!("{intro}{}", bad.join(",")));
        }
    };
    for (f, mixed) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
        label(errs, &at.field(f), n.str(f), mixed);
    }
    let list = |errs: &mut Errors, f: &str| {
        let at = at.field(f);
        for (i, v) in n.strs(f).enumerate() {
            let bad = names::dns1035_label(v);
            if !bad.is_empty() {
                errs.invalid(&at.index(i), v, bad.join(","));
            }
        }
    };
    list(errs, "shortNames");
    if !n.str("kind").is_empty() && n.str("kind") == n.str("listKind") {
        errs.invalid(&at.field("listKind"), n.str("listKind"), "kind and listKind may not be the same");
    }
    list(errs, "categories");
}

fn conversion(errs: &mut Errors, at: &Path<'_>, s: View<'_>, old: Option<View<'_>>) {
    const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
    let Some(c) = s.opt("conversion") else { return };
    let strategy = c.str("strategy");
    if strategy.is_empty() {
        errs.required(&at.field("strategy"), "");
    } else {
        errs.one_of(&at.field("strategy"), strategy, &["None", "Webhook"]);
    }
    let client_at = at.field("webhookClientConfig");
    let versions_at = at.field("conversionReviewVersions");
    let hook = c.st("webhook");
    if strategy != "Webhook" {
        if hook.has("clientConfig") {
            errs.forbidden(&client_at, "should not be set when strategy is not set to Webhook");
        }
        if hook.len("conversionReviewVersions") > 0 {
            errs.forbidden(&versions_at, "should not be set when strategy is not set to Webhook");
        }
        return;
    }
    match hook.opt("clientConfig") {
        None => errs.required(&client_at, "required when strategy is set to Webhook"),
        Some(client) => {
            crate::strategies::admissionregistration::client_config(errs, &client_at, client);
            ca_bundle(errs, &client_at.field("caBundle"), client, old);
        }
    }
    let all: Vec<&str> = hook.strs("conversionReviewVersions").collect();
    if all.is_empty() {
        errs.required(&versions_at, "");
        return;
    }
    let mut seen = HashSet::new();
    for (i, v) in all.iter().enumerate() {
        if seen.insert(*v) {
            errs.each(&versions_at.index(i), v, names::dns1035_label(v));
        } else {
            errs.invalid(&versions_at.index(i), *v, "duplicate version");
        }
    }
    let known = |h: View<'_>| h.strs("conversionReviewVersions").any(|v| VERSIONS.contains(&v));
    let kept = old.is_some_and(|o| {
        let h = o.st("spec").st("conversion").st("webhook");
        h.len("conversionReviewVersions") > 0 && !known(h)
    });
    if !kept && !known(hook) {
        errs.invalid(
            &versions_at,
            hook.get("conversionReviewVersions"),
            format!("must include at least one of {}", VERSIONS.join(", ")),
        );
    }
}

fn is_established(v: View<'_>) -> bool {
    let mut conditions = v.st("status").items("conditions");
    conditions.any(|c| c.str("type") == "Established" && c.str("status") == "True")
}

/// Authorities that nobody can read are kept out of a definition that is served, unless they stood there before.
fn ca_bundle(errs: &mut Errors, at: &Path<'_>, client: View<'_>, old: Option<View<'_>>) {
    let Some(old) = old.filter(|old| is_established(*old)) else { return };
    let before = old.st("spec").st("conversion").st("webhook").st("clientConfig");
    let wrong = |v: View<'_>| no_authorities(v.str("caBundle"));
    if before.has("caBundle") && wrong(before).is_some() {
        return;
    }
    if client.has("caBundle")
        && let Some(why) = wrong(client)
    {
        errs.invalid(at, client.get("caBundle"), format!("unable to load root certificates: {why}"));
    }
}

fn immutable(errs: &mut Errors, n: View<'_>, o: View<'_>) {
    let established = is_established(o);
    let (ns, os) = (n.st("spec"), o.st("spec"));
    let mut fixed = |at: &Path<'_>, new: View<'_>, old: View<'_>, f: &str| {
        if new.str(f) != old.str(f) {
            errs.invalid(&at.field(f), new.str(f), IMMUTABLE);
        }
    };
    let at = Path::root("spec");
    let names_at = at.field("names");
    if established {
        fixed(&at, ns, os, "scope");
        fixed(&names_at, ns.st("names"), os.st("names"), "kind");
    }
    fixed(&at, ns, os, "group");
    fixed(&names_at, ns.st("names"), os.st("names"), "plural");
}

fn stored_versions(errs: &mut Errors, v: View<'_>) {
    let at = Path::root("status.storedVersions");
    let stored: Vec<&str> = v.st("status").strs("storedVersions").collect();
    let shown = || v.st("status").get("storedVersions");
    if stored.is_empty() {
        errs.invalid(&at, shown(), "must have at least one stored version");
        return;
    }
    let names: HashSet<&str> = v.st("spec").items("versions").map(|v| v.str("name")).collect();
    let known: HashSet<&str> = stored.iter().copied().collect();
    let versions = v.st("spec").items("versions");
    for version in versions.filter(|v| v.bool("storage") && !known.contains(v.str("name"))) {
        errs.invalid(&at, shown(), format!("must have the storage version {}", version.str("name")));
    }
    for (i, name) in stored.iter().enumerate() {
        if !names.contains(name) {
            errs.invalid(
                &at.index(i),
                *name,
                format!(
                    "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
                ),
            );
        }
    }
}

fn preserve_unknown(errs: &mut Errors, n: View<'_>, old: Option<View<'_>>) {
    const FIELD: &str = "preserveUnknownFields";
    if n.st("spec").bool(FIELD) && !old.is_some_and(|o| o.st("spec").bool(FIELD)) {
        errs.invalid(
            &Path::root("spec").field(FIELD),
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        );
    }
}

#[cfg(test)]
mod tests {
    use api::codec::json;
    use api::schema::{Gvk, Schema};

    use super::*;

    #[test]
    fn definitions() {
        let schema = Schema::builtin();
        let gvk = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let root = schema.kind(&gvk).unwrap();
        let check = |versions: &str, expected: &[&str]| {
            let body = format!(
                r#"{{"spec":{{"group":"a.test","scope":"Cluster","names":{{"plural":"bs","singular":"b","kind":"B",
                "listKind":"BList"}},"versions":[{versions}]}}}}"#
            );
            let node = json::decode_any(body.as_bytes()).unwrap();
            let tree = json::root_from_any(schema, root, node).unwrap().tree;
            let mut errs = Errors::new();
            spec(&mut errs, View::new(schema, &tree).st("spec"), None);
            let found: Vec<String> = errs.0.iter().map(|e| format!("{}: {}", e.field, e.detail)).collect();
            assert_eq!(found, expected, "{versions}");
        };
        let version = |name: &str, storage: bool, schema: &str| {
            format!(
                r#"{{"name":"{name}","served":true,"storage":{storage},"schema":{{"openAPIV3Schema":{schema}}}}}"#
            )
        };
        check(&version("v1", true, r#"{"type":"object"}"#), &[]);
        check(
            &version("v1", false, r#"{"type":"object"}"#),
            &["spec.versions: must have exactly one version marked as storage version"],
        );
        check(
            r#"{"name":"v1","served":true,"storage":true}"#,
            &["spec.versions[0].schema.openAPIV3Schema: "],
        );
        check(
            &version("v1", true, r#"{"type":"object","properties":{"a":{},"b":{"type":"array"}}}"#),
            &[
                "spec.validation.openAPIV3Schema.properties[a].type: must not be empty for specified object fields",
                "spec.validation.openAPIV3Schema.properties[b].items: must be specified",
            ],
        );
        let (one, two) =
            (version("v1", true, r#"{"type":"object"}"#), version("v2", false, r#"{"type":"string"}"#));
        check(
            &format!("{one},{two}"),
            &["spec.versions[1].schema.openAPIV3Schema.type: must be object at the root"],
        );
    }
}
