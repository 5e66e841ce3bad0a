//! Structural schemas: the description of a custom resource's values, and what runs on it: pruning, defaults,
//! validation.
//!
//! The values of a custom resource are values without a schema's types ([`Node::Map`] and the like), as they may be
//! anything until they are validated; a [`Structural`] says what they should be. It is an arena of its own for each
//! version of a definition. [`crate::Schema`] knows the kind's root struct, whose [`crate::schema::Rest`] leads here.
//!
//! The rules are those of upstream's `apiextensions-apiserver/pkg/apiserver/schema` and of the OpenAPI validation that
//! it uses.

mod default;
mod embedded;
mod formats;
mod lists;
mod prune;
mod unchanged;
mod validate;

use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::OnceLock;

use regex::Regex;

use crate::re2;
use crate::tree::{Node, Text};

pub use formats::{is_known_format, is_request_uri};
pub use unchanged::ByKey;

/// A part of a structural schema, by its place in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartId(u32);

/// The type that a value should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// Any type.
    #[default]
    Any,
    /// An object.
    Object,
    /// A list.
    Array,
    /// A string.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A boolean.
    Boolean,
    /// A whole number or a string (`x-kubernetes-int-or-string`).
    IntOrString,
}

impl Kind {
    /// The kind of a type's name in a definition.
    pub fn named(name: &str) -> Self {
        match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => Self::Any,
        }
    }
    /// The type's name, as messages print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::IntOrString => "integer,string",
        }
    }
}

/// The entries of an object that are no properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Additional {
    /// The schema names none.
    #[default]
    None,
    /// They may be anything (`additionalProperties: true`).
    Any,
    /// None may stand there (`additionalProperties: false`, inside conditions only).
    Forbidden,
    /// They follow a schema.
    Part(PartId),
}

/// The way in which a list merges (`x-kubernetes-list-type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ListType {
    /// The list is one value.
    #[default]
    Atomic,
    /// The list is a set.
    Set,
    /// The list is a map by the part's `keys`.
    Map,
}

/// A part of a structural schema.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Part {
    /// The type of the value.
    pub kind: Kind,
    /// Whether `null` is a value.
    pub nullable: bool,
    /// Whether fields that the schema does not name are kept (`x-kubernetes-preserve-unknown-fields`).
    pub keeps_unknown: bool,
    /// Whether the value is an object of the API (`x-kubernetes-embedded-resource`).
    pub embedded: bool,
    /// Whether server-side apply treats the object as one value (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// How the list merges.
    pub list: ListType,
    /// The entries that are no properties.
    pub additional: Additional,
    /// The schema of a list's elements.
    pub items: Option<PartId>,
    /// The properties, sorted by name.
    pub properties: Box<[(Text, PartId)]>,
    /// The facts that few parts have.
    pub rare: Option<Box<Rare>>,
}

/// The facts of a part that few parts have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rare {
    /// The value of an absent field.
    pub default: Option<Node>,
    /// The keys of a list that merges as a map.
    pub keys: Box<[Text]>,
    /// The conditions on the value.
    pub checks: Checks,
    /// The rules in the expression language.
    pub rules: Vec<Rule>,
}

/// A rule in the expression language (`x-kubernetes-validations`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The expression.
    pub rule: Text,
    /// The message of a failure.
    pub message: Text,
    /// The expression that makes the message.
    pub message_expression: Text,
    /// The reason of a failure, `""` for `FieldValueInvalid`.
    pub reason: Text,
    /// The field that a failure is about, relative to the part.
    pub field_path: Text,
    /// Whether `oldSelf` is optional; `None` if nothing is said.
    pub optional_old_self: Option<bool>,
}

/// The conditions on a value that its type does not say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Checks {
    /// The format, without the hyphens that upstream passes over; `""` for none that is checked.
    pub format: Text,
    /// The format as it is written.
    pub format_text: Text,
    /// The pattern that a string matches.
    pub pattern: Option<Pattern>,
    /// The least number of characters of a string.
    pub min_length: Option<i64>,
    /// The greatest number of characters of a string.
    pub max_length: Option<i64>,
    /// The least number of elements.
    pub min_items: Option<i64>,
    /// The greatest number of elements.
    pub max_items: Option<i64>,
    /// The least number of entries.
    pub min_properties: Option<i64>,
    /// The greatest number of entries.
    pub max_properties: Option<i64>,
    /// The least number.
    pub minimum: Option<Bound>,
    /// The greatest number.
    pub maximum: Option<Bound>,
    /// A number of which the value is a multiple.
    pub multiple_of: Option<f64>,
    /// Whether no two elements are equal.
    pub unique: bool,
    /// The values that are allowed.
    pub values: Vec<Node>,
    /// The fields that must be there.
    pub required: Vec<Text>,
    /// Conditions that all hold.
    pub all_of: Vec<PartId>,
    /// Conditions of which one holds at least.
    pub any_of: Vec<PartId>,
    /// Conditions of which exactly one holds.
    pub one_of: Vec<PartId>,
    /// A condition that does not hold.
    pub not: Option<PartId>,
}

impl Checks {
    /// Whether there are conditions that are made of schemas.
    fn combines(&self) -> bool {
        !(self.all_of.is_empty() && self.any_of.is_empty() && self.one_of.is_empty() && self.not.is_none())
    }
}

/// A bound of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// The number.
    pub at: f64,
    /// Whether the number itself is beyond the bound.
    pub exclusive: bool,
}

/// A regular expression, compiled when it is first asked.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: Text,
    compiled: OnceLock<Result<Regex, String>>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Pattern {
    /// A pattern of upstream's syntax, RE2's.
    pub fn new(text: &str) -> Self {
        Self { text: text.into(), compiled: OnceLock::new() }
    }
    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
    /// Whether a string has a part that matches; an error for a pattern that is none.
    pub fn matches(&self, s: &str) -> Result<bool, String> {
        let compile = || re2::compile(&self.text);
        self.compiled.get_or_init(compile).as_ref().map(|r| r.is_match(s)).map_err(Clone::clone)
    }
}

/// The facts about a part and all parts below it.
#[derive(Debug, Clone, Copy, Default)]
struct Within {
    /// One of them has a default.
    defaults: bool,
    /// One of them is a list whose elements must differ: a set or a map.
    distinct: bool,
    /// One of them is an object of the API.
    embedded: bool,
}

/// A structural schema.
#[derive(Debug, Clone)]
pub struct Structural {
    parts: Box<[Part]>,
    root: PartId,
    /// The conditions on the object's metadata.
    metadata: Option<PartId>,
    hash: u32,
    /// The things that stand at or below each part.
    within: Box<[Within]>,
}

/// Makes a [`Structural`]: parts are added from the leaves to the root. Parts that say the same are one: most fields of
/// a definition look like others.
#[derive(Debug, Default)]
pub struct Builder {
    parts: Vec<Part>,
    /// The parts by their hashes, whose keys nobody knows: a definition cannot be written so that many are equal.
    known: HashMap<u64, Vec<PartId>>,
    hashes: RandomState,
}

impl Builder {
    /// Adds a part whose own parts were added before.
    pub fn add(&mut self, part: Part) -> PartId {
        let part = sorted(part);
        let alike = self.known.entry(self.hashes.hash_one(&part)).or_default();
        if let Some(id) = alike.iter().find(|id| self.parts[id.0 as usize] == part) {
            return *id;
        }
        let id = next(&self.parts);
        alike.push(id);
        self.parts.push(part);
        id
    }
    /// The schema, with the part of the whole object, and that of its metadata where there are conditions on it.
    pub fn finish(mut self, root: Part, metadata: Option<PartId>) -> Structural {
        // The root is known by its place, so it is no other part.
        let id = next(&self.parts);
        self.parts.push(sorted(root));
        let mut within: Vec<Within> = Vec::with_capacity(self.parts.len());
        let mut forms: Vec<u64> = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let mut of = Within {
                defaults: part.default_value().is_some(),
                distinct: part.list != ListType::Atomic,
                embedded: part.embedded,
            };
            // A part's own parts stand before it.
            for below in part.below().filter_map(|id| within.get(id.0 as usize)) {
                of.defaults |= below.defaults;
                of.distinct |= below.distinct;
                of.embedded |= below.embedded;
            }
            within.push(of);
            forms.push(part.form(&forms));
        }
        // Zero is the mark of what was stored under no schema.
        let hash = (forms.last().copied().unwrap_or_default() as u32).max(1);
        Structural { parts: self.parts.into(), root: id, metadata, hash, within: within.into() }
    }
}

/// A part whose properties are sorted by name.
fn sorted(mut part: Part) -> Part {
    part.properties.sort_by(|a, b| a.0.cmp(&b.0));
    part
}

/// The place of the next part.
fn next(parts: &[Part]) -> PartId {
    PartId(u32::try_from(parts.len()).unwrap_or(u32::MAX))
}

impl Part {
    /// The schemas of the values below a value: its properties, its other entries, its elements.
    fn below(&self) -> impl Iterator<Item = PartId> {
        let additional = if let Additional::Part(id) = self.additional { Some(id) } else { None };
        self.properties.iter().map(|p| p.1).chain(additional).chain(self.items)
    }
    /// The schema of a property.
    pub fn property(&self, name: &str) -> Option<PartId> {
        self.properties.binary_search_by(|p| p.0.as_str().cmp(name)).ok().map(|i| self.properties[i].1)
    }
    /// The value of an absent field.
    pub fn default_value(&self) -> Option<&Node> {
        self.rare.as_ref()?.default.as_ref()
    }
    /// The conditions on the value.
    pub fn checks(&self) -> Option<&Checks> {
        self.rare.as_ref().map(|r| &r.checks)
    }
    /// The keys of a list that merges as a map.
    pub fn keys(&self) -> &[Text] {
        self.rare.as_ref().map_or(&[], |r| &r.keys)
    }
    /// The rules in the expression language.
    pub fn rules(&self) -> &[Rule] {
        self.rare.as_ref().map_or(&[], |r| &r.rules)
    }
    /// The properties, to be found one after the other.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { properties: &self.properties, at: 0 }
    }
    /// A hash of what decides in which form a value is stored: which fields are kept, and defaults. `forms` are the
    /// hashes of the parts before this one.
    fn form(&self, forms: &[u64]) -> u64 {
        let of = |id: PartId| forms.get(id.0 as usize).copied().unwrap_or_default();
        let additional = match self.additional {
            Additional::None => (0, 0),
            Additional::Any => (1, 0),
            Additional::Forbidden => (2, 0),
            Additional::Part(id) => (3, of(id)),
        };
        let mut hash = DefaultHasher::new();
        (self.nullable, self.keeps_unknown, self.embedded, additional, self.items.map(of)).hash(&mut hash);
        for (name, id) in &self.properties {
            (name, of(*id)).hash(&mut hash);
        }
        if let Some(default) = self.default_value() {
            hash_value(default, &mut hash);
        }
        hash.finish()
    }
}

/// Finds the properties of a part one after the other. Names that come in the order of the alphabet, as those of values
/// do, cost one comparison each if most properties are there.
#[derive(Debug, Clone)]
pub struct Cursor<'p> {
    properties: &'p [(Text, PartId)],
    at: usize,
}

impl Cursor<'_> {
    /// The schema of a property.
    pub fn find(&mut self, name: &str) -> Option<PartId> {
        let is_next = self.properties.get(self.at).is_some_and(|(next, _)| next == name);
        let found = if is_next {
            Ok(self.at)
        } else {
            self.properties.binary_search_by(|(known, _)| known.as_str().cmp(name))
        };
        match found {
            Ok(at) => {
                self.at = at + 1;
                self.properties.get(at).map(|(_, id)| *id)
            }
            Err(at) => {
                self.at = at;
                None
            }
        }
    }
}

impl Hash for Part {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { kind, nullable, keeps_unknown, embedded, atomic, list, additional, items, .. } = self;
        (kind, nullable, keeps_unknown, embedded, atomic, list, additional, items).hash(state);
        self.properties.hash(state);
        if let Some(rare) = &self.rare {
            rare.hash(state);
        }
    }
}

impl Hash for Rare {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Some(default) = &self.default {
            hash_value(default, state);
        }
        (&self.keys, &self.rules).hash(state);
        self.checks.hash(state);
    }
}

impl Hash for Checks {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let bits = |bound: &Option<Bound>| bound.map(|b| (b.at.to_bits(), b.exclusive));
        (&self.format_text, self.pattern.as_ref().map(Pattern::text)).hash(state);
        (self.min_length, self.max_length, self.min_items, self.max_items).hash(state);
        (self.min_properties, self.max_properties, bits(&self.minimum), bits(&self.maximum)).hash(state);
        (self.multiple_of.map(f64::to_bits), self.unique, &self.required).hash(state);
        for value in &self.values {
            hash_value(value, state);
        }
        (&self.all_of, &self.any_of, &self.one_of, self.not).hash(state);
    }
}

impl Structural {
    /// The part of the whole object.
    pub fn root(&self) -> PartId {
        self.root
    }
    /// The part with the conditions on the object's metadata, which are on its name.
    pub fn metadata(&self) -> Option<PartId> {
        self.metadata
    }
    /// The same schema, by which no field is dropped.
    #[must_use]
    pub fn keeping_unknown(mut self) -> Self {
        self.parts.iter_mut().for_each(|p| p.keeps_unknown = true);
        self
    }
    /// A part.
    pub fn part(&self, id: PartId) -> &Part {
        &self.parts[id.0 as usize]
    }
    /// A hash of what decides in which form objects are stored; never 0.
    pub fn hash(&self) -> u32 {
        self.hash
    }
    /// The things that stand at a part or below it.
    fn within(&self, id: PartId) -> Within {
        self.within[id.0 as usize]
    }
    /// Whether a part has rules in the expression language.
    pub fn has_rules(&self) -> bool {
        self.parts.iter().any(|p| !p.rules().is_empty())
    }
    /// The number of parts.
    pub fn len(&self) -> usize {
        self.parts.len()
    }
    /// Whether there is no part; there always is one.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// Hashes a value without a schema's types.
fn hash_value(value: &Node, hash: &mut impl Hasher) {
    match value {
        Node::Null => 0_u8.hash(hash),
        Node::Bool(b) => (1_u8, b).hash(hash),
        Node::Int(i) => (2_u8, i).hash(hash),
        Node::Float(f) => (3_u8, f.to_bits()).hash(hash),
        Node::Str(s) | Node::Raw(s) => (4_u8, s).hash(hash),
        Node::List(list) => {
            (5_u8, list.len()).hash(hash);
            for v in list {
                hash_value(v, hash);
            }
        }
        Node::Map(map) => {
            (6_u8, map.len()).hash(hash);
            for (name, v) in map.iter() {
                name.hash(hash);
                hash_value(v, hash);
            }
        }
        // Values without a schema's types hold none.
        Node::Struct(_) => 7_u8.hash(hash),
    }
}

/// Whether a value is `null` where the schema allows none.
fn is_forbidden_null(value: &Node, part: &Part) -> bool {
    *value == Node::Null && !part.nullable
}

/// The fields of every object of the API that no schema needs to name.
fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(properties: Vec<(&str, PartId)>) -> Part {
        let properties = properties.into_iter().map(|(name, id)| (name.into(), id)).collect();
        Part { kind: Kind::Object, properties, ..Part::default() }
    }

    fn string(max_length: Option<i64>, default: Option<&str>) -> Part {
        let checks = Checks { max_length, ..Checks::default() };
        let rare = Rare { checks, default: default.map(Node::from), ..Rare::default() };
        Part { kind: Kind::String, rare: Some(Box::new(rare)), ..Part::default() }
    }

    #[test]
    fn parts_that_say_the_same_are_one() {
        let mut builder = Builder::default();
        let one = builder.add(string(Some(3), None));
        assert_eq!(builder.add(string(Some(3), None)), one);
        for other in [string(Some(4), None), string(None, None), string(Some(3), Some("a")), Part::default()]
        {
            assert_ne!(builder.add(other), one);
        }
        let whole = builder.add(object(vec![("b", one), ("a", one)]));
        assert_eq!(builder.add(object(vec![("a", one), ("b", one)])), whole, "in any order");
        assert_ne!(builder.add(object(vec![("a", one), ("c", one)])), whole);
        // The root is told by its place from a part that says the same, such as one of the metadata.
        let empty = builder.add(object(Vec::new()));
        let schema = builder.finish(object(Vec::new()), Some(empty));
        assert_ne!(schema.metadata(), Some(schema.root()));
    }

    #[test]
    fn properties_are_found_in_any_order() {
        let mut builder = Builder::default();
        let ids: Vec<PartId> = (0..4).map(|i| builder.add(string(Some(i), None))).collect();
        let part = object(["a", "c", "e", "g"].into_iter().zip(ids).collect());
        let check = |asked: &[&str]| {
            let mut cursor = part.cursor();
            for name in asked {
                assert_eq!(cursor.find(name), part.property(name), "{name} of {asked:?}");
            }
        };
        check(&["a", "c", "e", "g"]);
        check(&["a", "b", "c", "f", "g", "h"]);
        check(&["g", "e", "c", "a"]);
        check(&["e", "e", "", "a", "g", "zz", "c"]);
        check(&[]);
    }

    #[test]
    fn the_hash_is_that_of_the_stored_form() {
        let hash = |first: Part, name: &str, again: bool| {
            let mut builder = Builder::default();
            if again {
                // A part that nothing refers to.
                builder.add(string(Some(99), None));
            }
            let id = builder.add(first);
            builder.finish(object(vec![(name, id)]), None).hash()
        };
        let one = hash(string(Some(3), None), "a", false);
        assert_eq!(hash(string(Some(4), None), "a", false), one, "conditions change no form");
        assert_eq!(hash(string(Some(3), None), "a", true), one, "nor does the place of a part");
        assert_ne!(hash(string(Some(3), None), "b", false), one);
        assert_ne!(hash(string(Some(3), Some("x")), "a", false), one);
        assert_ne!(
            hash(object(Vec::new()), "a", false),
            hash(Part { nullable: true, ..object(Vec::new()) }, "a", false)
        );
    }

    #[test]
    fn what_is_within_is_known_above() {
        let mut builder = Builder::default();
        let set = builder.add(Part { kind: Kind::Array, list: ListType::Set, ..Part::default() });
        let plain = builder.add(string(None, None));
        let inner = builder.add(object(vec![("set", set)]));
        let default = builder.add(string(None, Some("x")));
        let list = builder.add(Part { kind: Kind::Array, items: Some(default), ..Part::default() });
        let embedded = builder.add(Part { embedded: true, ..object(Vec::new()) });
        let map = builder.add(Part { additional: Additional::Part(embedded), ..object(Vec::new()) });
        let root = object(vec![("inner", inner), ("list", list), ("map", map), ("plain", plain)]);
        let schema = builder.finish(root, None);
        let check = |id: PartId, expected: (bool, bool, bool)| {
            let within = schema.within(id);
            assert_eq!((within.defaults, within.distinct, within.embedded), expected, "{id:?}");
        };
        check(plain, (false, false, false));
        check(inner, (false, true, false));
        check(list, (true, false, false));
        check(map, (false, false, true));
        check(schema.root(), (true, true, true));
        assert!(schema.has_embedded());
    }
}
