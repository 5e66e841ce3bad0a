//! The parts of OpenAPI that upstream takes, the needs of its extensions, and the costs of rules: upstream's
//! `ValidateCustomResourceDefinitionOpenAPISchema`.

use api::Node;
use api::field::{Errors, Path, Raw};
use api::view::View;

use super::costs::{Costs, over_limit};
use super::fields::{EMBEDDED, JUNCTORS, LIST_TYPE, MAP_TYPE, PRESERVE, RULES, TYPES, is_plain};
use super::former::Look;
use super::lists::{keys, list, needs_type};
use crate::custom::{Outcome, Rules, valid_path};
use crate::validation::print;

/// A walk through a schema. Errors about expressions come after all others.
pub(super) struct Walk<'a> {
    look: Look<'a>,
    errs: Errors,
    expressions: Errors,
    costs: Costs,
}

/// A place in a schema, as the schemas above describe it.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    is_root: bool,
    /// Whether expressions are looked at.
    asks: bool,
    /// The compiled rules here and below.
    rules: Option<&'a Rules>,
    /// How often a value can stand here; `None` if nothing bounds it.
    cardinality: Option<u64>,
    /// Why there may be no default.
    no_defaults: Option<&'a str>,
    /// Whether this describes the type or the metadata of an object of the API.
    in_meta: bool,
    /// The topmost schema whose values cannot be found again in the object's former state.
    uncorrelatable: Option<&'a Path<'a>>,
}

impl<'a> Place<'a> {
    /// The root of a schema.
    pub(super) fn root(rules: Option<&'a Rules>, asks: bool) -> Self {
        Self {
            is_root: true,
            asks,
            rules,
            cardinality: Some(1),
            no_defaults: None,
            in_meta: false,
            uncorrelatable: None,
        }
    }

    /// A schema below `of`, with its rules.
    fn below<'b>(self, of: View<'_>, rules: Option<&'b Rules>) -> Place<'b>
    where
        'a: 'b,
    {
        let entries = match of.str("type") {
            "object" if of.has("additionalProperties") => of.opt_int("maxProperties"),
            "array" => of.opt_int("maxItems"),
            _ => Some(1),
        };
        let entries = entries.map(|n| n.max(0).unsigned_abs());
        let cardinality = self.cardinality.zip(entries).map(|(above, n)| above.saturating_mul(n));
        Place { is_root: false, rules, cardinality, ..self }
    }

    /// A schema that only narrows values: expressions are not looked at.
    fn narrowing(self) -> Self {
        Self { is_root: false, asks: false, rules: None, ..self }
    }
}

impl<'a> Walk<'a> {
    /// A walk that has found nothing yet.
    pub(super) fn new(look: Look<'a>) -> Self {
        Self { look, errs: Errors::new(), expressions: Errors::new(), costs: Costs::default() }
    }

    /// Hands over what was found.
    pub(super) fn finish(self, errs: &mut Errors) -> Costs {
        errs.append(self.errs);
        errs.append(self.expressions);
        self.costs
    }

    /// Looks at a schema and those below it.
    pub(super) fn schema(&mut self, at: &Path<'_>, s: View<'_>, place: Place<'_>) {
        if is_plain(s) {
            return;
        }
        let before = self.errs.len();
        self.unsupported(at, s, place);
        self.entries(at, s, place);
        let narrowing = place.narrowing();
        if let Some(n) = s.opt("not") {
            self.schema(&at.field("not"), n, narrowing);
        }
        for f in JUNCTORS {
            let at = at.field(f);
            for (i, n) in s.items(f).enumerate() {
                self.schema(&at.index(i), n, narrowing);
            }
        }
        if let Some(items) = s.opt("items") {
            let is_map = s.str(LIST_TYPE) == "map";
            let mut below = place.below(s, place.rules.and_then(Rules::items));
            below.uncorrelatable = place.uncorrelatable.or((!is_map).then_some(at));
            self.schema(&at.field("items"), items, below);
        }
        let errs = &mut self.errs;
        if s.opt_bool(PRESERVE) == Some(false) {
            errs.invalid(&at.field(PRESERVE), false, "must be true or undefined");
        }
        needs_type(errs, at, s, MAP_TYPE, "object");
        if let Some(m) = s.opt_str(MAP_TYPE).filter(|m| !matches!(*m, "atomic" | "granular")) {
            errs.not_supported(&at.field(MAP_TYPE), m, &["atomic", "granular"]);
        }
        list(errs, at, s, !self.look.former.sets_of_merged);
        if !self.look.former.loose_keys {
            keys(errs, at, s);
        }
        rules(errs, at, s);
        // Of a schema that is wrong itself, upstream says nothing more.
        if place.asks && self.errs.len() == before {
            self.ask(at, s, place);
        }
    }

    /// Reports the parts of OpenAPI that are not supported.
    fn unsupported(&mut self, at: &Path<'_>, s: View<'_>, place: Place<'_>) {
        let errs = &mut self.errs;
        let ty = s.str("type");
        if !ty.is_empty() && !self.look.former.unknown_types {
            errs.one_of(&at.field("type"), ty, TYPES);
        }
        if let Some(why) = place.no_defaults.filter(|_| s.has("default")) {
            errs.forbidden(&at.field("default"), format!("must not be set {why}"));
        }
        for f in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
            if s.has(f) && (f != "id" || !s.str(f).is_empty()) {
                errs.forbidden(&at.field(f), format!("{f} is not supported"));
            }
        }
        if ty == "null" {
            errs.forbidden(&at.field("type"), "type cannot be set to null, use nullable as an alternative");
        }
        if matches!(s.get("items"), Some(Node::List(l)) if !l.is_empty()) {
            errs.forbidden(&at.field("items"), "items must be a schema object and not an array");
        }
        if place.in_meta && s.bool(EMBEDDED) {
            errs.forbidden(&at.field(EMBEDDED), "must not be used inside of resource meta");
        }
        if s.bool("uniqueItems") {
            errs.forbidden(
                &at.field("uniqueItems"),
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            );
        }
        let more = s.get("additionalProperties");
        if s.len("properties") > 0 && more.is_some_and(|m| m.as_bool() != Some(true)) {
            errs.forbidden(
                &at.field("additionalProperties"),
                "additionalProperties and properties are mutual exclusive",
            );
        }
    }

    /// Looks at the schemas of an object's entries.
    fn entries(&mut self, at: &Path<'_>, s: View<'_>, place: Place<'_>) {
        if let Some(more) = s.opt("additionalProperties") {
            let mut below = place.below(s, place.rules.and_then(Rules::additional));
            if place.in_meta {
                below.no_defaults = Some("inside additionalProperties applying to object metadata");
            }
            self.schema(&at.field("additionalProperties"), more, below);
        }
        let properties_at = at.field("properties");
        let is_unknown = !matches!(s.str(MAP_TYPE), "" | "atomic" | "granular");
        for (name, p) in s.entries("properties") {
            let mut below = place.below(s, place.rules.and_then(|r| r.property(name)));
            below.uncorrelatable = place.uncorrelatable.or(is_unknown.then_some(at));
            let is_meta = matches!(name, "metadata" | "kind" | "apiVersion");
            let mut why = String::new();
            if is_meta && (place.is_root || s.bool(EMBEDDED)) {
                below.in_meta = true;
                if place.is_root {
                    why = format!("in top-level {name}");
                }
            }
            if !why.is_empty() {
                below.no_defaults = Some(&why);
            }
            self.schema(&properties_at.key(name), s.of(p), below);
        }
    }

    /// Reports rules that do not compile or cost too much.
    fn ask(&mut self, at: &Path<'_>, s: View<'_>, place: Place<'_>) {
        let at = at.field(RULES);
        if s.len(RULES) == 0 {
            return;
        }
        let Some(compiled) = place.rules else {
            let why = "internal error: failed to retrieve type information for x-kubernetes-validations";
            self.expressions.internal(&at, why);
            return;
        };
        for (i, (rule, outcome)) in s.items(RULES).zip(compiled.outcomes()).enumerate() {
            let at = at.index(i);
            let times = place.cardinality.unwrap_or_else(|| compiled.cardinality());
            self.outcome(&at, rule, &outcome, times, place.uncorrelatable);
        }
    }

    fn outcome(
        &mut self,
        at: &Path<'_>,
        rule: View<'_>,
        outcome: &Outcome<'_>,
        times: u64,
        uncorrelatable: Option<&Path<'_>>,
    ) {
        let errs = &mut self.expressions;
        let (rule_at, message_at) = (at.field("rule"), at.field("messageExpression"));
        let shown = || Raw(rule.raw().map_or_else(String::new, |r| print::internal(rule.schema, r)));
        match outcome.rule {
            Ok(cost) => {
                let cost = cost.saturating_mul(times);
                if let Some(why) = over_limit("estimated rule cost", cost).filter(|_| !self.look.unchanged) {
                    errs.forbidden(&rule_at, why);
                }
                self.costs.add(cost, || rule_at.to_string());
            }
            Err(why) => errs.invalid(&rule_at, shown(), why),
        }
        match outcome.message {
            Some(Ok(cost)) => {
                let why = over_limit("estimated messageExpression cost", cost);
                if let Some(why) = why.filter(|_| !self.look.unchanged) {
                    errs.forbidden(&message_at, why);
                }
                self.costs.add(cost, || message_at.to_string());
            }
            Some(Err(why)) => errs.invalid(&message_at, shown(), why),
            None => {}
        }
        if outcome.uses_old {
            if let Some(above) = uncorrelatable {
                let why = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {above}"
                );
                errs.invalid(&rule_at, rule.str("rule"), why);
            }
        } else if let Some(optional) = rule.opt_bool("optionalOldSelf") {
            let at = at.field("optionalOldSelf");
            errs.invalid(&at, optional, "may not be set if oldSelf is not used in rule");
        }
    }
}

fn rules(errs: &mut Errors, at: &Path<'_>, s: View<'_>) {
    const REASONS: &[&str] =
        &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let breaks = |t: &str| t.contains(['\n', '\r']);
    let blank = |t: &str| !t.is_empty() && t.trim().is_empty();
    let at = at.field(RULES);
    for (i, r) in s.items(RULES).enumerate() {
        let at = at.index(i);
        let (rule, message) = (r.str("rule").trim(), r.str("message"));
        let message_at = at.field("message");
        if rule.is_empty() {
            errs.required(&at.field("rule"), "rule is not specified");
        } else if blank(message) {
            errs.invalid(&message_at, message, "must be non-empty if specified");
        } else if breaks(message.trim()) {
            errs.invalid(&message_at, message, "must not contain line breaks");
        } else if breaks(rule) && message.is_empty() {
            errs.required(&message_at, "message must be specified if rule contains line breaks");
        }
        if blank(r.str("messageExpression")) {
            errs.required(&at.field("messageExpression"), "messageExpression must be non-empty if specified");
        }
        if let Some(reason) = r.opt_str("reason") {
            errs.one_of(&at.field("reason"), reason, REASONS);
        }
        let path = r.str("fieldPath");
        if blank(path) {
            errs.invalid(&at.field("fieldPath"), path, "must be non-empty if specified");
        }
        if breaks(path) {
            errs.invalid(&at.field("fieldPath"), path, "must not contain line breaks");
        }
        if !path.is_empty() && valid_path(s, path, true).is_err() {
            errs.invalid(&at.field("fieldPath"), path, "must be a valid path");
        }
    }
}
