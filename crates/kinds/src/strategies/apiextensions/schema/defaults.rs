//! Defaults must fit the schema that they stand in. Upstream's `structural/defaulting.ValidateDefaults`.

use api::field::{Errors, Path};
use api::status::FieldError;
use api::structural::{PartId, Structural};
use api::{Map, Node, Schema, Struct};
use cel::Budget;

use super::former::Former;
use super::pruned::is_unpruned;
use crate::custom::{Rules, Run, embedded_meta};

/// Reports the defaults of a schema that do not fit it.
pub(super) fn check(
    errs: &mut Errors,
    objects: &Schema,
    at: &Path<'_>,
    schema: &Structural,
    rules: Option<&Rules>,
    former: &Former<'_>,
) {
    let mut walk = Walk { errs, objects, schema, former, budget: Budget::default() };
    walk.part(at, schema.root(), rules, None);
}

struct Walk<'a> {
    errs: &'a mut Errors,
    objects: &'a Schema,
    schema: &'a Structural,
    former: &'a Former<'a>,
    budget: Budget,
}

/// A place in the type or the metadata of an object of the API.
#[derive(Clone, Copy)]
struct InMeta<'a> {
    /// The part that is the object.
    object: PartId,
    /// The steps from the object: `None` is an element of a list.
    step: Option<&'a str>,
    above: Option<&'a InMeta<'a>>,
}

impl InMeta<'_> {
    /// An object that has this value here, and nothing else.
    fn around(&self, value: Node) -> Node {
        let value = match self.step {
            Some(name) => Node::Map(Map::from_entries(vec![(name.into(), value)])),
            None => Node::List(vec![value]),
        };
        match self.above {
            Some(above) => above.around(value),
            None => value,
        }
    }
}

impl Walk<'_> {
    /// Looks at a part and at those below it, but not at the values of maps.
    fn part(&mut self, at: &Path<'_>, id: PartId, rules: Option<&Rules>, meta: Option<&InMeta<'_>>) {
        let schema = self.schema;
        let part = schema.part(id);
        let meta = meta.filter(|_| !part.embedded);
        if let Some(value) = part.default_value() {
            self.default(&at.field("default"), id, value, rules, meta);
        }
        if self.budget.exhausted() {
            return;
        }
        if let Some(items) = part.items {
            let inner = meta.map(|m| InMeta { object: m.object, step: None, above: Some(m) });
            self.part(&at.field("items"), items, rules.and_then(Rules::items), inner.as_ref());
        }
        let properties_at = at.field("properties");
        for (name, property) in &part.properties {
            let is_meta = part.embedded && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
            let inner = match meta {
                Some(m) => Some(InMeta { object: m.object, step: Some(name), above: Some(m) }),
                None if is_meta => Some(InMeta { object: id, step: Some(name), above: None }),
                None => None,
            };
            let rules = rules.and_then(|r| r.property(name));
            self.part(&properties_at.key(name), *property, rules, inner.as_ref());
            if self.budget.exhausted() {
                return;
            }
        }
    }

    fn default(
        &mut self,
        at: &Path<'_>,
        id: PartId,
        value: &Node,
        rules: Option<&Rules>,
        meta: Option<&InMeta<'_>>,
    ) {
        let before = self.errs.len();
        if let Some(meta) = meta {
            self.in_metadata(at, value, meta);
        } else {
            if is_unpruned(self.schema, id) && !self.former.had_unpruned_default() {
                self.errs.invalid(at, Some(value), "must not have unknown fields");
            }
            let mut found = Errors::new();
            self.embedded(&mut found, at, id, value);
            if !found.is_empty() {
                return self.errs.append(found);
            }
        }
        if meta.is_some() && self.errs.len() > before {
            return;
        }
        let known = self.errs.len();
        self.schema.validate_at(self.errs, at, id, value, None);
        let Some(rules) = rules.filter(|_| self.errs.len() == known) else { return };
        // A default may come in with an object, or be what an object had: rules are asked for both.
        let unchanged = self.ask(rules, at, value, Some(value));
        let mut fresh = self.budget;
        if self.errs.len() == known {
            fresh = self.ask(rules, at, value, None);
        }
        self.budget = if fresh.exhausted() || fresh.left() < unchanged.left() { fresh } else { unchanged };
    }

    /// Asks rules about a default; returns the rest of the budget.
    fn ask(&mut self, rules: &Rules, at: &Path<'_>, value: &Node, old: Option<&Node>) -> Budget {
        let silent = |_: String| {};
        let mut run = Run::new(self.schema, self.errs, &silent, self.budget);
        rules.validate_at(&mut run, at, value, old);
        run.budget
    }

    /// Checks an object that has nothing but its type and this default.
    fn in_metadata(&mut self, at: &Path<'_>, value: &Node, meta: &InMeta<'_>) {
        let mut object = meta.around(value.clone());
        if let Node::Map(map) = &mut object {
            for (name, text) in [("apiVersion", "validation/v1"), ("kind", "Validation")] {
                if map.get(name).is_none() {
                    map.insert(name, text);
                }
            }
        }
        let mut found = Errors::new();
        self.embedded(&mut found, &Path::root("<nil>"), meta.object, &object);
        if !found.is_empty() {
            let text = |e: &FieldError| e.to_string().trim_start_matches("<nil>.").to_owned();
            let texts: Vec<String> = found.0.iter().map(text).collect();
            let why = match texts.as_slice() {
                [one] => one.clone(),
                many => format!("[{}]", many.join(", ")),
            };
            self.errs.invalid(at, Some(value), format!("must result in valid metadata: {why}"));
        }
    }

    /// Checks the embedded objects in a value: the first field of a wrong type, or else all else that is wrong.
    fn embedded(&self, errs: &mut Errors, at: &Path<'_>, id: PartId, value: &Node) {
        let mut types = Errors::new();
        self.schema.check_embedded_at(self.objects, &mut types, at, id, value, None);
        if !types.is_empty() {
            types.0.truncate(1);
            return errs.append(types);
        }
        let check = |errs: &mut Errors, at: &Path<'_>, meta: &Struct| {
            embedded_meta(self.objects, errs, at, meta);
        };
        self.schema.check_embedded_at(self.objects, errs, at, id, value, Some(&check));
    }
}
