//! The schema of a version of a CustomResourceDefinition: it must be structural, its defaults must fit it, and its rules
//! must compile and be cheap enough. The rules of upstream's
//! `apiextensions-apiserver/pkg/apis/apiextensions/validation`.

mod costs;
mod defaults;
mod fields;
mod former;
mod lists;
mod pruned;
mod structural;
mod supported;

use api::field::{Errors, Path, Raw};
use api::view::View;

use self::costs::Costs;
use self::fields::{PRESERVE, RULES, has_default_or_rule, is_convertible};
pub(super) use self::fields::{has_default, needs_structure, unknown_formats};
pub(super) use self::former::{Former, Look};
pub(crate) use self::structural::{check as structural_faults, is_structural};
use crate::custom::{self, Rules};
use crate::validation::print;

/// Checks a version's schema.
pub(super) fn check(errs: &mut Errors, at: &Path<'_>, s: View<'_>, look: Look<'_>) {
    let before = errs.len();
    if look.has_status {
        root_of_status(errs, at, s);
    }
    if s.bool("nullable") {
        errs.forbidden(&at.field("nullable"), "nullable cannot be true at the root");
    }
    let mut found = Errors::new();
    // Rules are looked at where the schema lets their types be known.
    let mut rules = None;
    let mut asks = false;
    if look.structural && is_convertible(s) {
        structural::check(&mut found, at, s);
        // Most schemas have neither, and need no other form for that.
        if found.is_empty() && has_default_or_rule(s) {
            let structural = custom::structural(s);
            rules = Rules::new(&structural, &|text, is_message| look.former.version_of(text, is_message));
            defaults::check(&mut found, s.schema, at, &structural, rules.as_ref(), look.former);
            asks = found.is_empty();
        }
    }
    errs.append(found);
    let mut walk = supported::Walk::new(look);
    walk.schema(at, s, supported::Place::root(rules.as_ref(), asks));
    let costs = walk.finish(errs);
    // The walk has reported all other parts of which there is no structural form.
    if look.structural && errs.len() == before && !is_convertible(s) {
        errs.invalid(at, "", "OpenAPIV3Schema 'schema' is not supported");
    }
    report_total(errs, at, &costs);
}

/// At the root of a schema, the status may be taken out only if nothing but fields that describe its parts stand there.
fn root_of_status(errs: &mut Errors, at: &Path<'_>, s: View<'_>) {
    /// The fields in upstream's order, with the names of its type.
    const ALLOWED: [(&str, &str); 22] = [
        ("Description", "description"),
        ("Type", "type"),
        ("Format", "format"),
        ("Title", "title"),
        ("Maximum", "maximum"),
        ("ExclusiveMaximum", "exclusiveMaximum"),
        ("Minimum", "minimum"),
        ("ExclusiveMinimum", "exclusiveMinimum"),
        ("MaxLength", "maxLength"),
        ("MinLength", "minLength"),
        ("Pattern", "pattern"),
        ("MaxItems", "maxItems"),
        ("MinItems", "minItems"),
        ("UniqueItems", "uniqueItems"),
        ("MultipleOf", "multipleOf"),
        ("Required", "required"),
        ("Items", "items"),
        ("Properties", "properties"),
        ("ExternalDocs", "externalDocs"),
        ("Example", "example"),
        ("XPreserveUnknownFields", PRESERVE),
        ("XValidations", RULES),
    ];
    /// Fields that stand before `type` in upstream's type.
    const BEFORE: [&str; 3] = ["id", "$schema", "$ref"];
    let Some(raw) = s.raw() else { return };
    let strange = |name: &str| name != "nullable" && !ALLOWED.iter().any(|(_, json)| *json == name);
    let early = s.fields().any(|(name, _)| BEFORE.contains(&name));
    let ty = s.str("type");
    if !early && !ty.is_empty() && ty != "object" {
        let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return errs.invalid(&at.field("type"), ty, why);
    }
    if s.fields().any(|(name, _)| strange(name)) || s.bool("nullable") {
        let names: Vec<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
        let why = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        errs.invalid(at, Raw(print::internal(s.schema, raw)), why);
    }
}

fn report_total(errs: &mut Errors, at: &Path<'_>, costs: &Costs) {
    let Some(why) = costs.over_total() else { return };
    for path in costs.most_expensive() {
        errs.forbidden(
            &Path::root(path),
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
        );
    }
    errs.forbidden(at, why);
}
