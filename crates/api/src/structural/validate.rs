//! Validation of values, in the words of the OpenAPI validation that upstream uses.

use std::fmt::Write;

use super::formats::has_format;
use super::{Additional, Bound, ByKey, Checks, Kind, Part, PartId, Structural};
use crate::field::{Errors, Path};
use crate::go::{quote, scalar_json};
use crate::status::{FieldError, FieldErrorKind};
use crate::tree::{Map, Node, Text};

/// The greatest number of errors that are made; an answer shows fewer.
const MOST: usize = 1000;

/// The outcome for a value: its errors, and how many checks there were, by which upstream chooses among alternatives.
#[derive(Default)]
struct Found {
    errors: Vec<FieldError>,
    checks: usize,
}

impl Found {
    fn merge(&mut self, other: Self) {
        self.checks += other.checks;
        let room = MOST.saturating_sub(self.errors.len());
        self.errors.extend(other.errors.into_iter().take(room));
    }
    fn add(&mut self, error: FieldError) {
        if self.errors.len() < MOST {
            self.errors.push(error);
        }
    }
    /// Whether further errors are dropped, so that looking for them is no use.
    fn is_full(&self) -> bool {
        self.errors.len() >= MOST
    }
}

/// The path of a value, as upstream's messages have it.
struct Place {
    path: String,
}

impl Place {
    fn at<T>(&mut self, step: &dyn Fn(&mut String), f: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        step(&mut self.path);
        let out = f(self);
        self.path.truncate(length);
        out
    }
    /// The path in an error: `<nil>` for the whole object.
    fn field(&self) -> String {
        let path = self.path.strip_prefix('.').unwrap_or(&self.path);
        if path.is_empty() { "<nil>".into() } else { path.into() }
    }
    fn error(&self, kind: FieldErrorKind, value: Option<String>, detail: String) -> FieldError {
        FieldError { kind, field: self.field(), value, detail }
    }
    fn invalid(&self, value: &Node, what: &str) -> FieldError {
        let detail = format!("{} in body {what}", self.path);
        self.error(FieldErrorKind::Invalid, Some(printed(value)), detail)
    }
    /// A condition over several schemas; such an error has no path.
    fn condition(&self, what: &str) -> FieldError {
        FieldError {
            kind: FieldErrorKind::Invalid,
            field: "<nil>".into(),
            value: Some("\"\"".into()),
            detail: format!("{} {what}", quote(&self.path)),
        }
    }
}

/// A value as an error prints it.
fn printed(node: &Node) -> String {
    match node {
        Node::Str(s) => quote(s),
        Node::Null => "\"\"".into(),
        n => scalar_json(n),
    }
}

/// A number as Go prints it with `%v`.
fn go_number(f: f64) -> String {
    if f == 0.0 {
        return "0".into();
    }
    let shortest = format!("{f:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{f}")
}

fn type_of(value: &Node) -> &'static str {
    match value {
        Node::Null => "null",
        Node::Bool(_) => "boolean",
        Node::Int(_) => "integer",
        Node::Float(_) => "number",
        Node::Str(_) => "string",
        Node::List(_) => "array",
        Node::Map(_) | Node::Struct(_) | Node::Raw(_) => "object",
    }
}

fn is_whole(f: f64) -> bool {
    f.is_finite() && f.fract() == 0.0
}

fn fits(kind: Kind, value: &Node) -> bool {
    match (kind, value) {
        (Kind::Any, _)
        | (Kind::Object, Node::Map(_))
        | (Kind::Array, Node::List(_))
        | (Kind::String | Kind::IntOrString, Node::Str(_))
        | (Kind::Integer | Kind::Number | Kind::IntOrString, Node::Int(_))
        | (Kind::Number, Node::Float(_))
        | (Kind::Boolean, Node::Bool(_)) => true,
        (Kind::Integer | Kind::IntOrString, Node::Float(f)) => is_whole(*f),
        _ => false,
    }
}

impl Structural {
    /// Checks the values of an object. With the object as it was before, errors of unchanged parts do not count.
    ///
    /// `object` holds what stands beside `kind`, `apiVersion` and `metadata`.
    pub fn validate(&self, errs: &mut Errors, object: &Map, old: Option<&Map>) {
        let mut place = Place { path: String::new() };
        let mut found = Found::default();
        self.object(self.root(), object, old, &mut place, &mut found);
        if let Some(checks) = self.part(self.root()).checks().filter(|checks| checks.combines()) {
            // A condition over the whole object sees only what the definition describes.
            let node = Node::Map(object.clone());
            self.conditions(checks, &node, &mut place, &mut found);
        }
        errs.append_list(found.errors);
    }

    /// Checks one value at a path, such as an object's status.
    pub fn validate_at(
        &self,
        errs: &mut Errors,
        at: &Path<'_>,
        id: PartId,
        value: &Node,
        old: Option<&Node>,
    ) {
        let prefix = at.to_string();
        let found = self.value(id, value, old, &mut Place { path: String::new() });
        let moved = |mut e: FieldError| {
            e.field = if e.field == "<nil>" { prefix.clone() } else { format!("{prefix}.{}", e.field) };
            e
        };
        errs.append_list(found.errors.into_iter().map(moved).collect());
    }

    /// Checks the conditions on the metadata of an object, which are on its name.
    pub fn validate_meta(&self, errs: &mut Errors, metadata: &Node) {
        if let Some(id) = self.metadata {
            let found = self.value(id, metadata, None, &mut Place { path: "metadata".into() });
            errs.append_list(found.errors);
        }
    }

    fn value(&self, id: PartId, value: &Node, old: Option<&Node>, place: &mut Place) -> Found {
        let found = self.checked(id, value, old, place);
        if !found.errors.is_empty() && old.is_some_and(|old| self.is_unchanged(id, value, old)) {
            return Found { errors: Vec::new(), checks: found.checks };
        }
        found
    }

    fn checked(&self, id: PartId, value: &Node, old: Option<&Node>, place: &mut Place) -> Found {
        let part = self.part(id);
        let mut found = Found::default();
        self.type_and_format(part, value, place, &mut found);
        if *value == Node::Null {
            if let Some(checks) = part.checks() {
                enumeration(checks, value, place, &mut found);
            }
            return found;
        }
        let checks = part.checks();
        if let Some(checks) = checks {
            self.conditions(checks, value, place, &mut found);
        }
        match value {
            Node::Str(s) => {
                if let Some(checks) = checks {
                    string(checks, s, place, &mut found);
                }
                found.checks += 2;
            }
            Node::Int(_) | Node::Float(_) => {
                number(part, checks, value, place, &mut found);
                found.checks += 2;
            }
            Node::List(list) => {
                self.list(id, list, old, place, &mut found);
                found.checks += 2;
            }
            _ => {}
        }
        if let Some(checks) = checks {
            enumeration(checks, value, place, &mut found);
        }
        if let Node::Map(map) = value {
            self.object(id, map, old.and_then(Node::as_map), place, &mut found);
        }
        found.checks += 2;
        found
    }

    #[allow(clippy::unused_self, reason = "it reads as the other checks do")]
    fn type_and_format(&self, part: &Part, value: &Node, place: &Place, found: &mut Found) {
        if part.kind == Kind::Any {
            return;
        }
        let fails = if *value == Node::Null { !part.nullable } else { !fits(part.kind, value) };
        if !fails {
            found.checks += 2;
            return;
        }
        let format = part.checks().map_or("", |c| c.format_text.as_str());
        let is_number = matches!(part.kind, Kind::Integer | Kind::Number);
        // Upstream leaves a string with a format to the format, unless it should be a number.
        if matches!(value, Node::Str(_) | Node::List(_)) && !format.is_empty() && !is_number {
            return;
        }
        let (wanted, got) = match value {
            Node::Null | Node::Str(_) | Node::List(_) => (part.kind.name(), type_of(value)),
            _ if format.is_empty() => (part.kind.name(), type_of(value)),
            Node::Int(_) => (format, "int64"),
            Node::Float(_) => (format, "float64"),
            _ => (format, ""),
        };
        let detail = format!("{} in body must be of type {wanted}: {}", place.path, quote(got));
        found.add(place.error(FieldErrorKind::TypeInvalid, Some(quote(got)), detail));
    }

    fn list(&self, id: PartId, list: &[Node], old: Option<&Node>, place: &mut Place, found: &mut Found) {
        let part = self.part(id);
        if let Some(items) = part.items {
            let before = ByKey::new(part, old);
            for (i, item) in list.iter().enumerate() {
                let step = |path: &mut String| {
                    // Writing to a String does not fail.
                    let _ = write!(path, "[{i}]");
                };
                let old = before.of(item);
                let below = place.at(&step, |place| self.value(items, item, old, place));
                found.merge(below);
                if found.is_full() {
                    return;
                }
            }
        }
        let Some(checks) = part.checks() else { return };
        let size = list.len() as i64;
        if let Some(min) = checks.min_items.filter(|min| size < *min) {
            found.add(place.invalid(&Node::Int(size), &format!("should have at least {min} items")));
        }
        if let Some(max) = checks.max_items.filter(|max| size > *max) {
            found.add(too_many(place, size, max));
        }
        if checks.unique {
            let mut seen = std::collections::HashSet::new();
            if !list.iter().all(|n| seen.insert(scalar_json(n))) {
                let detail = format!("{} in body shouldn't contain duplicates", place.path);
                found.add(place.error(FieldErrorKind::Invalid, Some("\"\"".into()), detail));
            }
        }
    }

    fn object(&self, id: PartId, map: &Map, old: Option<&Map>, place: &mut Place, found: &mut Found) {
        let part = self.part(id);
        let is_root = id == self.root();
        let size = map.len() as i64;
        if let Some(checks) = part.checks() {
            // The root has fields besides those that the definition describes: at least its metadata.
            let size = if is_root { size + 3 } else { size };
            if let Some(min) = checks.min_properties.filter(|min| size < *min) {
                found.add(place.invalid(&Node::Int(size), &format!("should have at least {min} properties")));
            }
            if let Some(max) = checks.max_properties.filter(|max| size > *max) {
                found.add(too_many(place, size, max));
            }
        }
        let mut properties = part.cursor();
        for (name, value) in map.iter() {
            let (below, dot) = match (properties.find(name), part.additional) {
                (Some(below), _) => (below, if place.path.is_empty() { "" } else { "." }),
                (None, Additional::Part(below)) => (below, "."),
                (None, Additional::Forbidden) => {
                    let detail = format!("{}.{name} in body is a forbidden property", place.path);
                    found.add(place.error(FieldErrorKind::Invalid, Some(quote(name)), detail));
                    continue;
                }
                _ => continue,
            };
            let step = |path: &mut String| {
                path.push_str(dot);
                path.push_str(name);
            };
            let old = old.and_then(|o| o.get(name));
            let inner = place.at(&step, |place| self.value(below, value, old, place));
            found.merge(inner);
            if found.is_full() {
                return;
            }
        }
        let Some(checks) = part.checks() else { return };
        for name in &checks.required {
            let there = map.get(name).is_some() || is_root && super::is_meta(name);
            if !there {
                let step = |path: &mut String| {
                    path.push('.');
                    path.push_str(name);
                };
                place.at(&step, |place| {
                    found.add(place.error(FieldErrorKind::Required, None, String::new()));
                });
            }
        }
    }

    /// The conditions that are made of schemas.
    fn conditions(&self, checks: &Checks, value: &Node, place: &mut Place, found: &mut Found) {
        found.checks += 1;
        if !checks.any_of.is_empty() {
            let mut best: Option<Found> = None;
            let mut fits = false;
            for id in &checks.any_of {
                let one = self.checked(*id, value, None, place);
                if one.errors.is_empty() {
                    found.checks += one.checks;
                    fits = true;
                    break;
                }
                if best.as_ref().is_none_or(|b| one.checks > b.checks) {
                    best = Some(one);
                }
            }
            if !fits {
                found.add(place.condition("must validate at least one schema (anyOf)"));
                if let Some(best) = best {
                    found.merge(best);
                }
            }
        }
        if !checks.one_of.is_empty() {
            let mut best: Option<Found> = None;
            let mut valid = 0;
            for id in &checks.one_of {
                let one = self.checked(*id, value, None, place);
                if one.errors.is_empty() {
                    valid += 1;
                    best = None;
                } else if valid == 0 && best.as_ref().is_none_or(|b| one.checks > b.checks) {
                    best = Some(one);
                }
            }
            if valid != 1 {
                let why = match valid {
                    0 => "Found none valid".to_owned(),
                    n => format!("Found {n} valid alternatives"),
                };
                found.add(place.condition(&format!("must validate one and only one schema (oneOf). {why}")));
                if let Some(best) = best {
                    found.merge(best);
                }
            }
        }
        if !checks.all_of.is_empty() {
            let mut valid = 0;
            for id in &checks.all_of {
                let one = self.checked(*id, value, None, place);
                valid += usize::from(one.errors.is_empty());
                found.merge(one);
            }
            if valid != checks.all_of.len() {
                let more = if valid == 0 { ". None validated" } else { "" };
                found.add(place.condition(&format!("must validate all the schemas (allOf){more}")));
            }
        }
        if let Some(id) = checks.not
            && self.checked(id, value, None, place).errors.is_empty()
        {
            found.add(place.condition("must not validate the schema (not)"));
        }
    }
}

fn too_many(place: &Place, size: i64, max: i64) -> FieldError {
    let unit = if max == 1 { "item" } else { "items" };
    place.error(FieldErrorKind::TooMany, Some(size.to_string()), format!("must have at most {max} {unit}"))
}

fn enumeration(checks: &Checks, value: &Node, place: &Place, found: &mut Found) {
    // Upstream compares with a whole number what is left of the value as such.
    let same =
        |v: &Node| equal(v, value) || matches!((v, value), (Node::Int(i), Node::Float(f)) if *i == *f as i64);
    if checks.values.is_empty() || checks.values.iter().any(same) {
        return;
    }
    let text = |n: &Node| match n {
        Node::Str(s) => quote(s),
        n => quote(&scalar_json(n)),
    };
    let all: Vec<String> = checks.values.iter().map(text).collect();
    let value = if *value == Node::Null { "null".into() } else { printed(value) };
    found.add(place.error(
        FieldErrorKind::NotSupported,
        Some(value),
        format!("supported values: {}", all.join(", ")),
    ));
}

/// Equality in which a whole number equals the same number with a point.
fn equal(a: &Node, b: &Node) -> bool {
    match (a, b) {
        (Node::Int(i), Node::Float(f)) | (Node::Float(f), Node::Int(i)) => (*i as f64).total_cmp(f).is_eq(),
        _ => a == b,
    }
}

fn string(checks: &Checks, s: &Text, place: &Place, found: &mut Found) {
    let value = Node::Str(s.clone());
    let wrong_format = !checks.format.is_empty() && !has_format(&checks.format, s);
    // Upstream tells the first of these only.
    let length = s.chars().count() as i64;
    if let Some(max) = checks.max_length.filter(|max| length > *max) {
        let unit = if max == 1 { "byte" } else { "bytes" };
        found.add(place.error(FieldErrorKind::TooLong, None, format!("may not be more than {max} {unit}")));
    } else if let Some(min) = checks.min_length.filter(|min| length < *min) {
        found.add(place.invalid(&value, &format!("should be at least {min} chars long")));
    } else if let Some(pattern) = &checks.pattern {
        match pattern.matches(s) {
            Ok(true) => {}
            Ok(false) => found.add(place.invalid(&value, &format!("should match '{}'", pattern.text()))),
            Err(why) => {
                let what = format!("should match '{}', but pattern is invalid: {why}", pattern.text());
                found.add(place.invalid(&value, &what));
            }
        }
    }
    if wrong_format {
        let what = format!("must be of type {}: {}", checks.format_text, quote(s));
        let detail = format!("{} in body {what}", place.path);
        found.add(place.error(FieldErrorKind::TypeInvalid, Some(quote(s)), detail));
    }
}

fn number(part: &Part, checks: Option<&Checks>, value: &Node, place: &Place, found: &mut Found) {
    let format = checks.map_or("", |c| c.format_text.as_str());
    in_range(part, format, value, place, found);
    let Some(checks) = checks else { return };
    let f = match value {
        Node::Int(i) => *i as f64,
        Node::Float(f) => *f,
        _ => return,
    };
    if let Some(factor) = checks.multiple_of {
        let fits = match value {
            Node::Int(i) if factor >= 1.0 => i.checked_rem(factor as i64).is_some_and(|r| r == 0),
            _ if factor < 1.0 => is_whole(1.0 / factor * f),
            _ => is_whole(f / factor),
        };
        if !fits {
            let shown = if let Node::Int(_) = value { go_number(factor.trunc()) } else { go_number(factor) };
            found.add(place.invalid(value, &format!("should be a multiple of {shown}")));
        }
    }
    // Whole numbers are compared as such.
    let beyond = |bound: Bound, sign: i8| {
        let order = match value {
            Node::Int(i) => i.cmp(&(bound.at as i64)),
            _ => f.partial_cmp(&bound.at).unwrap_or(std::cmp::Ordering::Equal),
        };
        if sign > 0 {
            order.is_gt() || bound.exclusive && order.is_eq()
        } else {
            order.is_lt() || bound.exclusive && order.is_eq()
        }
    };
    let shown = |bound: Bound| match value {
        Node::Int(_) => (bound.at as i64).to_string(),
        _ => go_number(bound.at),
    };
    if let Some(min) = checks.minimum.filter(|b| beyond(*b, -1)) {
        let or = if min.exclusive { "greater than" } else { "greater than or equal to" };
        found.add(place.invalid(value, &format!("should be {or} {}", shown(min))));
    }
    if let Some(max) = checks.maximum.filter(|b| beyond(*b, 1)) {
        let or = if max.exclusive { "less than" } else { "less than or equal to" };
        found.add(place.invalid(value, &format!("should be {or} {}", shown(max))));
    }
}

/// A number must be in the range of its format.
fn in_range(part: &Part, format: &str, value: &Node, place: &Place, found: &mut Found) {
    let range = match format {
        "int32" => f64::from(i32::MIN)..=f64::from(i32::MAX),
        "uint32" => 0.0..=f64::from(u32::MAX),
        "uint64" => 0.0..=f64::MAX,
        _ => f64::MIN..=f64::MAX,
    };
    let (name, fits) = match (part.kind, value) {
        (Kind::Integer, Node::Int(i)) => ("integer", range.contains(&(*i as f64))),
        (Kind::Integer, Node::Float(f)) => {
            ("integer", is_whole(*f) && f.abs() < i64::MAX as f64 && range.contains(f))
        }
        (Kind::Number, Node::Float(f)) => {
            ("number", !matches!(format, "float" | "float32") || f.abs() <= f64::from(f32::MAX))
        }
        _ => return,
    };
    if fits {
        return;
    }
    let format = match format {
        "" => "(default format)".to_owned(),
        f => format!("with format {f}"),
    };
    let detail = format!("Checked value must be of type {name} {format} in {}", place.path);
    found.add(FieldError {
        kind: FieldErrorKind::Invalid,
        field: "<nil>".into(),
        value: Some("\"\"".into()),
        detail,
    });
}
