//! What an expression may cost, estimated from types (cel-go's `checker/cost.go`).

use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::{ACCUMULATOR, Call, Expr, Fold, Id, Kind, Literal};
use crate::check::Checked;
use crate::types::Type;

use super::calls::{self, Argument, Sizes};
use super::{LIST_BASE, MAP_BASE, OBJECT, REGEX_FACTOR, Range, STRING_FACTOR};

/// A path from a variable; empty for what no variable leads to.
type Path = Vec<Arc<str>>;

/// The sizes of the keys and values of a list or map that an expression makes.
#[derive(Clone, Copy)]
struct Entry {
    list: bool,
    key: Range,
    value: Range,
}

impl Entry {
    fn union(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        let (a, b) = (a?, b?);
        Some(Self { list: a.list, key: a.key.union(b.key), value: a.value.union(b.value) })
    }
}

/// What is known of a variable of a macro.
struct Local {
    name: Arc<str>,
    path: Path,
    size: Option<Range>,
    entry: Option<Entry>,
}

/// Estimates the cost of an expression. `sizes` knows the greatest size of the value at a path.
pub(crate) fn estimate(checked: &Checked, sizes: &Sizes<'_>) -> Range {
    let mut coster = Coster {
        checked,
        known: sizes,
        paths: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
        local: Vec::new(),
    };
    coster.cost(&checked.tree)
}

struct Coster<'a> {
    checked: &'a Checked,
    known: &'a Sizes<'a>,
    paths: HashMap<Id, Path>,
    sizes: HashMap<Id, Range>,
    entries: HashMap<Id, Entry>,
    local: Vec<Local>,
}

const ONE: Range = Range { min: 1, max: 1 };

impl Coster<'_> {
    fn find(&self, name: &str) -> Option<&Local> {
        self.local.iter().rev().find(|l| &*l.name == name)
    }

    fn path(&self, e: &Expr) -> Path {
        if let Kind::Name(name) = &e.kind
            && let Some(local) = self.find(name)
        {
            return local.path.clone();
        }
        self.paths.get(&e.id).cloned().unwrap_or_default()
    }

    fn path_to(&self, e: &Expr, part: &str) -> Path {
        let mut path = self.path(e);
        path.push(part.into());
        path
    }

    fn known_size(&self, path: &Path, ty: &Type) -> Option<Range> {
        let path: Vec<&str> = path.iter().map(|p| &**p).collect();
        (self.known)(&path, ty)
    }

    fn size(&mut self, e: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&e.id) {
            return Some(*size);
        }
        if let Some(size) = own_size(e) {
            return Some(Range::fixed(size));
        }
        let (path, ty) = (self.path(e), self.checked.type_of(e));
        if let Some(size) = self.known_size(&path, ty) {
            self.sizes.insert(e.id, size);
            return Some(size);
        }
        if ty.is_scalar() {
            return Some(ONE);
        }
        match &e.kind {
            Kind::Name(name) => self.find(name).and_then(|l| l.size),
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, e: &Expr) -> Range {
        self.size(e).unwrap_or(Range::UNKNOWN)
    }

    fn entry(&self, e: &Expr) -> Option<Entry> {
        if let Some(entry) = self.entries.get(&e.id) {
            return Some(*entry);
        }
        match &e.kind {
            Kind::Name(name) => self.find(name).and_then(|l| l.entry),
            _ => None,
        }
    }

    fn set(&mut self, e: &Expr, size: Option<Range>, entry: Option<Entry>) {
        if let Some(size) = size {
            self.sizes.insert(e.id, size);
        }
        if let Some(entry) = entry {
            self.entries.insert(e.id, entry);
        }
    }

    fn cost(&mut self, e: &Expr) -> Range {
        match &e.kind {
            Kind::Missing | Kind::Literal(_) => Range::ZERO,
            Kind::Name(name) => {
                let path = self.find(name).map_or_else(|| vec![name.clone()], |l| l.path.clone());
                self.paths.insert(e.id, path);
                ONE
            }
            Kind::Select { of, test: true, .. } => self.cost(of),
            Kind::Select { of, field, .. } => {
                let cost = self.cost(of);
                let path = self.path_to(of, field);
                self.paths.insert(e.id, path);
                match self.checked.type_of(of) {
                    Type::Map(_) | Type::Object(_) | Type::Var(_) => cost.plus(ONE),
                    _ => cost,
                }
            }
            Kind::Call(call) => self.call(e, call),
            Kind::List(items) => {
                let mut cost = Range::fixed(LIST_BASE);
                let mut size = Range { min: if items.is_empty() { 0 } else { u64::MAX }, max: 0 };
                for (item, _) in items {
                    cost = cost.plus(self.cost(item));
                    size = size.union(self.size_or_unknown(item));
                }
                self.set(e, None, Some(Entry { list: true, key: ONE, value: size }));
                cost
            }
            Kind::Map(entries) => {
                let mut cost = Range::fixed(MAP_BASE);
                let nothing = Range { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
                let (mut key, mut value) = (nothing, nothing);
                for entry in entries {
                    cost = cost.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                self.set(e, None, Some(Entry { list: false, key, value }));
                cost
            }
            Kind::Object { fields, .. } => {
                let mut cost = Range::fixed(OBJECT);
                for field in fields {
                    cost = cost.plus(self.cost(&field.value));
                }
                cost
            }
            Kind::Fold(fold) => self.fold(e, fold),
        }
    }

    fn fold(&mut self, e: &Expr, fold: &Fold) -> Range {
        let mut cost = self.cost(&fold.range).plus(self.cost(&fold.init));
        let accu = Local {
            name: fold.accu.clone(),
            path: self.path(&fold.init),
            size: self.size(&fold.init),
            entry: self.entry(&fold.init),
        };
        self.local.push(accu);
        if binds(fold) {
            cost = cost.plus(self.cost(&fold.result));
            self.local.pop();
            let (size, entry) = (self.size(&fold.result), self.entry(&fold.result));
            self.set(e, size, entry);
            return cost;
        }
        let before = self.local.len();
        let variables = self.variables(fold);
        self.local.extend(variables);
        let step = self.cost(&fold.condition);
        let step = self.cost(&fold.step).plus(step);
        self.local.truncate(before);
        cost = cost.plus(self.cost(&fold.result));
        self.local.pop();
        let count = self.size_or_unknown(&fold.range);
        cost = cost.plus(count.times(step));
        match &fold.init.kind {
            Kind::Literal(_) => {
                let size = self.size(&fold.init);
                self.set(e, size, None);
            }
            Kind::List(_) | Kind::Map(_) => {
                let entry = self.entry(&fold.step);
                self.set(e, Some(count), entry);
            }
            _ => {}
        }
        cost
    }

    /// The variables of a loop: items of a list or keys of a map; or keys and values.
    fn variables(&self, fold: &Fold) -> Vec<Local> {
        let entry = self.entry(&fold.range);
        let list = entry.map_or(matches!(self.checked.type_of(&fold.range), Type::List(_)), |e| e.list);
        let local = |name: &Arc<str>, part: &str, size: Option<Range>| Local {
            name: name.clone(),
            path: self.path_to(&fold.range, part),
            size,
            entry: None,
        };
        let (key, value) = (entry.map(|e| e.key), entry.map(|e| e.value));
        match &fold.var2 {
            Some(var2) => vec![
                local(&fold.var, if list { "@indices" } else { "@keys" }, key),
                local(var2, if list { "@items" } else { "@values" }, value),
            ],
            None if list => vec![local(&fold.var, "@items", value)],
            None => vec![local(&fold.var, "@keys", key)],
        }
    }

    fn call(&mut self, e: &Expr, call: &Call) -> Range {
        if &*call.function == "dyn"
            && let [arg] = &call.args[..]
        {
            let cost = self.cost(arg).plus(ONE);
            let (size, entry) = (self.size(arg), self.entry(arg));
            self.set(e, size, entry);
            return cost;
        }
        let costs: Vec<Range> = call.args.iter().map(|a| self.cost(a)).collect();
        let overloads = self.checked.overloads(e);
        if overloads.is_empty() {
            return Range::ZERO;
        }
        let mut sum = Range::ZERO;
        if let Some(target) = &call.target {
            sum = self.cost(target);
        }
        let mut total = Range { min: u64::MAX, max: 0 };
        let mut result: Option<Range> = None;
        for overload in overloads {
            let (cost, size) = self.overload(e, call, overload.id, &costs);
            total = total.union(cost);
            result = match (result, size) {
                (Some(a), Some(b)) => Some(a.union(b)),
                (a, b) => a.or(b),
            };
            let part = match overload.id {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(part), Some(of)) = (part, call.args.first()) {
                result = self.entry(of).map(|e| e.value);
                let path = self.path_to(of, part);
                self.paths.insert(e.id, path);
            }
            if result.is_none() {
                result = self.size(e);
            }
        }
        self.set(e, result, None);
        sum.plus(total)
    }

    /// An argument as Kubernetes' estimates look at it.
    fn argument<'e>(&mut self, e: &'e Expr) -> Argument<'e> {
        let mut path = self.path(e);
        if path.first().is_some_and(|p| matches!(&**p, ACCUMULATOR | "__result__")) {
            path.clear();
        }
        let ty = self.checked.type_of(e).clone();
        Argument { path, ty, literal: as_literal(e), size: self.size(e) }
    }

    fn overload(&mut self, e: &Expr, call: &Call, id: &str, costs: &[Range]) -> (Range, Option<Range>) {
        let args = costs.iter().fold(Range::ZERO, |sum, c| sum.plus(*c));
        let target = call.target.as_deref().map(|t| self.argument(t));
        let given: Vec<Argument<'_>> = call.args.iter().map(|a| self.argument(a)).collect();
        let own = calls::extension(self.known, id, target.as_ref(), &given)
            .or_else(|| calls::kubernetes(self.known, &call.function, id, target.as_ref(), &given));
        if let Some((cost, size)) = own {
            return (cost.plus(args), size);
        }
        let target_size = target.as_ref().map(|t| t.size.unwrap_or(Range::UNKNOWN));
        let sizes: Vec<Range> = given.iter().map(|a| a.size.unwrap_or(Range::UNKNOWN)).collect();
        match (id, target_size, &sizes[..]) {
            ("logical_or" | "logical_and", _, [_, _]) => {
                (Range { min: costs[0].min, max: costs[0].plus(costs[1]).max }, None)
            }
            ("conditional", _, [_, yes, no]) => {
                let entry = Entry::union(self.entry(&call.args[1]), self.entry(&call.args[2]));
                self.set(e, None, entry);
                (costs[0].plus(costs[1].union(costs[2])), Some(yes.union(*no)))
            }
            ("add_string" | "add_bytes" | "add_list", _, [a, b]) => {
                let entry = Entry::union(self.entry(&call.args[0]), self.entry(&call.args[1]));
                self.set(e, None, entry);
                let size = a.plus(*b);
                let own = if id == "add_list" { ONE } else { size.factor(STRING_FACTOR) };
                (own.plus(args), Some(size))
            }
            (_, target, sizes) => {
                let (cost, size) = standard(id, target, sizes).unwrap_or((ONE, None));
                (cost.plus(args), size)
            }
        }
    }
}

/// The functions of the language.
fn standard(id: &str, target: Option<Range>, args: &[Range]) -> Option<(Range, Option<Range>)> {
    Some(match (id, target, args) {
        ("string_format", Some(target), _) => (target.factor(STRING_FACTOR), None),
        ("string_to_bytes", _, [s]) => {
            let size = Range { min: s.min, max: s.max.wrapping_mul(4) };
            (s.factor(STRING_FACTOR), Some(size))
        }
        ("bytes_to_string", _, [s]) => (s.factor(STRING_FACTOR), Some(Range { min: s.min / 4, max: s.max })),
        ("strings_quote", _, [s]) => {
            let size = Range { min: s.min.wrapping_add(2), max: s.max.wrapping_mul(2).wrapping_add(2) };
            (s.factor(STRING_FACTOR), Some(size))
        }
        ("starts_with_string" | "ends_with_string", _, [s]) => (s.factor(STRING_FACTOR), None),
        ("in_list", _, [_, list]) => (list.factor(1.0), None),
        ("matches_string", Some(s), [pattern]) => {
            (s.plus(ONE).factor(STRING_FACTOR).times(pattern.factor(REGEX_FACTOR)), None)
        }
        ("contains_string", Some(s), [part]) => {
            (s.factor(STRING_FACTOR).times(part.factor(STRING_FACTOR)), None)
        }
        (
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals",
            _,
            [a, b],
        ) => {
            let max = a.max.min(b.max);
            (Range { min: u64::from(max > 0), max }.factor(STRING_FACTOR), None)
        }
        _ => return None,
    })
}

/// Whether a loop only gives a value a name.
fn binds(fold: &Fold) -> bool {
    let empty = matches!(&fold.range.kind, Kind::List(items) if items.is_empty());
    let never = matches!(&fold.condition.kind, Kind::Literal(Literal::Bool(false)));
    empty && never && &*fold.accu != "__result__"
}

fn as_literal(e: &Expr) -> Option<&Literal> {
    match &e.kind {
        Kind::Literal(l) => Some(l),
        _ => None,
    }
}

/// The size that stands in the expression itself.
fn own_size(e: &Expr) -> Option<u64> {
    Some(match &e.kind {
        Kind::Literal(Literal::String(s)) => s.chars().count() as u64,
        Kind::Literal(Literal::Bytes(b)) => b.len() as u64,
        Kind::Literal(_) => 1,
        Kind::List(items) => items.len() as u64,
        Kind::Map(entries) => entries.len() as u64,
        _ => return None,
    })
}
