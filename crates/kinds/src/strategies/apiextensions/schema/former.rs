//! The faults that an update of a definition may keep because they stood there before: upstream tightens no rule for
//! definitions that are stored.

use std::collections::HashSet;

use api::view::{View, same};
use cel::Version;

use super::fields::{LIST_TYPE, MAP_TYPE, RULES, TYPES, any, below};
use super::lists;
use super::pruned::has_unknown;
use super::structural::is_structural;

/// The definition as it was before an update; nothing for a new one.
#[derive(Default)]
pub(in crate::strategies::apiextensions) struct Former<'a> {
    spec: Option<View<'a>>,
    rules: HashSet<&'a str>,
    messages: HashSet<&'a str>,
    /// Whether types were used that there are not.
    pub(in crate::strategies::apiextensions) unknown_types: bool,
    /// Whether there were sets of values that merge.
    pub(in crate::strategies::apiextensions) sets_of_merged: bool,
    /// Whether keys of lists could be absent.
    pub(in crate::strategies::apiextensions) loose_keys: bool,
}

/// The schemas of a definition's versions.
fn schemas(spec: View<'_>) -> impl Iterator<Item = View<'_>> {
    spec.items("versions").filter_map(|v| v.st("schema").opt("openAPIV3Schema"))
}

impl<'a> Former<'a> {
    /// The definition whose `spec` was this.
    pub(in crate::strategies::apiextensions) fn of(spec: View<'a>) -> Self {
        let mut former = Self { spec: Some(spec), ..Self::default() };
        for schema in schemas(spec) {
            former.collect(schema);
        }
        let has = |holds: &dyn Fn(View<'_>) -> bool| schemas(spec).any(|s| any(s, holds));
        former.unknown_types = has(&|s| !s.str("type").is_empty() && !TYPES.contains(&s.str("type")));
        former.sets_of_merged = has(&|s| {
            let items = s.st("items");
            s.str(LIST_TYPE) == "set"
                && match items.str("type") {
                    "array" => items.opt_str(LIST_TYPE).is_some_and(|t| t != "atomic"),
                    "object" => items.str(MAP_TYPE) != "atomic",
                    _ => false,
                }
        });
        former.loose_keys = has(&lists::has_loose_keys);
        former
    }

    fn collect(&mut self, s: View<'a>) {
        for rule in s.items(RULES) {
            self.rules.insert(rule.str("rule"));
            self.messages.insert(rule.str("messageExpression"));
        }
        below(s).for_each(|below| self.collect(below));
    }

    /// The version of the environment in which an expression is compiled: the newest for one that is stored, so that a
    /// server of the version before can read what is new.
    pub(super) fn version_of(&self, expression: &str, is_message: bool) -> Version {
        let stored = if is_message { &self.messages } else { &self.rules };
        if stored.contains(expression) { Version::STORED } else { Version::NEW }
    }

    /// Whether a version had this schema. Of a schema that all versions shared, upstream takes it that a new version had
    /// it, too.
    pub(in crate::strategies::apiextensions) fn had_schema(&self, version: View<'_>) -> bool {
        let Some(spec) = self.spec else { return false };
        let first = spec.items("versions").next();
        let is_shared =
            spec.items("versions").all(|v| same(v.get("schema"), first.and_then(|f| f.get("schema"))));
        let mut before = spec.items("versions").filter(|v| is_shared || v.str("name") == version.str("name"));
        before.any(|v| same(v.get("schema"), version.get("schema")))
    }

    /// Whether a version had these selectable fields.
    pub(in crate::strategies::apiextensions) fn had_selectable(&self, version: View<'_>) -> bool {
        self.spec.is_some_and(|spec| {
            spec.items("versions")
                .filter(|v| v.str("name") == version.str("name"))
                .any(|v| same(v.get("selectableFields"), version.get("selectableFields")))
        })
    }

    /// Whether a version had no schema, which then need not come.
    pub(in crate::strategies::apiextensions) fn lacked_schema(&self) -> bool {
        self.spec.is_some_and(|spec| spec.items("versions").any(|v| !v.st("schema").has("openAPIV3Schema")))
    }

    /// Whether a schema was not structural.
    pub(in crate::strategies::apiextensions) fn was_unstructured(&self) -> bool {
        self.spec.is_some_and(|spec| schemas(spec).any(|s| !is_structural(s)))
    }

    /// Whether a default had fields that its schema does not know.
    pub(super) fn had_unpruned_default(&self) -> bool {
        self.spec.is_some_and(|spec| {
            schemas(spec).any(|s| is_structural(s) && has_unknown(&crate::custom::structural(s)))
        })
    }
}

/// How a version's schema is looked at.
#[derive(Clone, Copy)]
pub(in crate::strategies::apiextensions) struct Look<'a> {
    /// Whether the version has the subresource `status`.
    pub(in crate::strategies::apiextensions) has_status: bool,
    /// Whether the schema must be structural.
    pub(in crate::strategies::apiextensions) structural: bool,
    /// Whether the version had the same schema before: expressions that cost too much may stay.
    pub(in crate::strategies::apiextensions) unchanged: bool,
    /// The faults that the definition may keep.
    pub(in crate::strategies::apiextensions) former: &'a Former<'a>,
}
