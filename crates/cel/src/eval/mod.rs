//! Evaluation.

mod path;

use std::sync::Arc;

use crate::access::{Decision, Question};
use crate::ast::operator as op;
use crate::cost;
use crate::error::EvalError;
use crate::library;
use crate::plan::{Attribute, Base, CallNode, FoldNode, Key, Node, Plan, Qualifier, Run};
use crate::value::{Made, MapValue, Text, Value, contains, plain};

use path::{qualify, qualify_if_present};

/// Gives an evaluation the values of variables, and the authorizer's answers.
pub trait Activation<'a> {
    /// The value of a variable of the environment.
    fn variable(&self, name: &str) -> Option<Result<Value<'a>, EvalError>>;
    /// The authorizer's answer to a question; `None` if it has not been asked, which ends the evaluation with
    /// [`EvalError::Pending`].
    fn decision(&self, question: &Question) -> Option<Decision> {
        let _ = question;
        None
    }
}

/// Variables by their names.
#[derive(Clone, Default)]
pub struct Variables<'a>(Vec<(&'a str, Value<'a>)>);

impl<'a> Variables<'a> {
    /// Adds a variable.
    pub fn with(mut self, name: &'a str, value: Value<'a>) -> Self {
        self.0.push((name, value));
        self
    }
}

impl<'a> Activation<'a> for Variables<'a> {
    fn variable(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, v)| Ok(v.clone()))
    }
}

/// The most items that a list may have that is made of two: more than an evaluation could look at.
///
/// DIFFERENCE: cel-go joins lists without a copy, and so a short expression may stand for a list of any length.
const MOST_ITEMS: usize = 1 << 20;
/// The greatest length of a text that is made, in bytes.
///
/// DIFFERENCE: in cel-go an expression may make texts of any length by replacing nothing with a text.
const LONGEST_TEXT: usize = 1 << 25;

/// A variable of a macro: what gives it its first value, and its value.
type Slot<'e, 'a> = (Option<&'e Node>, Option<Evaluated<'a>>);

type Evaluated<'a> = Result<Value<'a>, EvalError>;

/// Evaluates a plan; also tells the cost up to the end, whatever the end was.
pub(crate) fn evaluate<'e, 'a>(
    plan: &'e Plan,
    activation: &'e dyn Activation<'a>,
    limit: u64,
) -> (Evaluated<'a>, u64) {
    let slots = (0..plan.places).map(|_| (None, None)).collect();
    let mut run = Evaluator { activation, slots, cost: 0, limit };
    let value = run.node(&plan.root);
    (value, run.cost)
}

struct Evaluator<'e, 'a> {
    activation: &'e dyn Activation<'a>,
    /// The variables of macros. An accumulator has no value until somebody asks for it.
    slots: Vec<Slot<'e, 'a>>,
    cost: u64,
    limit: u64,
}

impl<'e, 'a> Evaluator<'e, 'a> {
    fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(EvalError::CostLimit) } else { Ok(()) }
    }

    fn node(&mut self, node: &'e Node) -> Evaluated<'a> {
        match node {
            Node::Const(v) => Ok(v.clone()),
            Node::Attribute(a) => self.attribute(a),
            Node::And(terms) => self.logical(terms, false),
            Node::Or(terms) => self.logical(terms, true),
            Node::NotFalse(of) => {
                let value = self.node(of);
                self.charge(1)?;
                match value {
                    Err(e) if e.ends() => Err(e),
                    Ok(Value::Bool(b)) => Ok(Value::Bool(b)),
                    _ => Ok(Value::Bool(true)),
                }
            }
            Node::Member { of, list } => {
                let of = self.node(of)?;
                contains(list, &of).map(Value::Bool)
            }
            Node::Call(call) => self.call(call),
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::Object { name, fields } => self.object(name, fields),
            Node::Fold(fold) => self.fold(fold),
            Node::OptionalOr { of, value } => match self.node(&of[0])? {
                Value::Optional(Some(v)) => Ok(if *value { (*v).clone() } else { Value::Optional(Some(v)) }),
                Value::Optional(None) => self.node(&of[1]),
                other => Ok(other),
            },
        }
    }

    /// `&&` and `||`: one operand may decide, whatever became of the other.
    fn logical(&mut self, terms: &'e [Node; 2], decides: bool) -> Evaluated<'a> {
        let mut failed = None;
        for term in terms {
            match self.node(term) {
                Ok(Value::Bool(b)) if b == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or(Some(EvalError::no_overload())),
                Err(e) if e.ends() => return Err(e),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decides)), Err)
    }

    fn attribute(&mut self, a: &'e Attribute) -> Evaluated<'a> {
        let value = self.resolve(a);
        // A choice costs what its parts cost, and a test what the way to it costs.
        if !matches!(a.base, Base::Conditional { .. }) && !a.test {
            self.charge(1)?;
        }
        value
    }

    fn resolve(&mut self, a: &'e Attribute) -> Evaluated<'a> {
        let base = match &a.base {
            Base::Local(place) => self.local(*place)?,
            Base::Variable(name) => match self.activation.variable(name) {
                Some(value) => value?,
                None => return Err(EvalError::new(format!("no such attribute(s): {name}"))),
            },
            Base::Operand(node) => self.node(node)?,
            Base::Conditional { condition, yes, no } => {
                return match self.node(condition)? {
                    Value::Bool(true) => self.resolve(yes),
                    Value::Bool(false) => self.resolve(no),
                    _ => Err(EvalError::no_overload()),
                };
            }
        };
        self.follow(base, &a.qualifiers)
    }

    fn local(&mut self, place: usize) -> Evaluated<'a> {
        self.begin(place)?;
        match self.slots.get(place) {
            Some((_, Some(value))) => value.clone(),
            _ => Err(EvalError::new("no such attribute(s)")),
        }
    }

    /// Gives an accumulator its first value.
    fn begin(&mut self, place: usize) -> Result<(), EvalError> {
        let Some((Some(init), None)) = self.slots.get(place) else { return Ok(()) };
        let value = self.node(init);
        if let Err(e) = &value
            && e.ends()
        {
            return value.map(drop);
        }
        self.set(place, value);
        Ok(())
    }

    /// Goes through a value. Behind an optional step all is optional.
    fn follow(&mut self, base: Value<'a>, way: &'e [Arc<Qualifier>]) -> Evaluated<'a> {
        let mut optional = false;
        let mut value = base;
        if let Value::Optional(inner) = &value {
            let Some(inner) = inner else {
                let test = way.last().is_some_and(|q| q.test);
                return Ok(if test { Value::Bool(false) } else { value });
            };
            value = (**inner).clone();
            optional = true;
        }
        for q in way {
            optional |= q.optional;
            let key = match &q.key {
                Key::Const(v) => Ok(v.clone()),
                Key::Of(a) => self.resolve(a),
            };
            if q.test {
                let found = key.and_then(|key| qualify_if_present(&value, &key));
                self.charge(1)?;
                return found.map(|v| Value::Bool(v.is_some()));
            }
            if optional {
                match key.and_then(|key| qualify_if_present(&value, &key))? {
                    Some(v) => {
                        self.charge(1)?;
                        value = v;
                    }
                    None if way.last().is_some_and(|q| q.test) => return Ok(Value::Bool(false)),
                    None => return Ok(Value::Optional(None)),
                }
            } else {
                let found = key.and_then(|key| qualify(&value, &key));
                self.charge(1)?;
                value = found?;
            }
        }
        Ok(if optional { Value::some(value) } else { value })
    }

    fn call(&mut self, call: &'e CallNode) -> Evaluated<'a> {
        if let Some(done) = self.append(call) {
            return done;
        }
        let mut args = Vec::with_capacity(call.args.len());
        let mut failed = None;
        for arg in &call.args {
            match self.node(arg) {
                Ok(v) => args.push(v),
                Err(e) if e.ends() || call.eager => return Err(e),
                // The size of a failure is one, as that of `null`.
                Err(e) => {
                    failed = failed.or(Some(e));
                    args.push(Value::Null);
                }
            }
        }
        let late = cost::needs_result(call.function, call.overload);
        if !late || failed.is_some() {
            self.charge(cost::call(call.function, call.overload, &args, None))?;
        }
        if let Some(e) = failed {
            return Err(e);
        }
        let result = self.run(call, &args);
        if matches!(&result, Err(e) if e.ends()) {
            return result;
        }
        if late {
            self.charge(cost::call(call.function, call.overload, &args, result.as_ref().ok()))?;
        }
        match &result {
            Ok(Value::String(s)) if s.len() > LONGEST_TEXT => Err(EvalError::CostLimit),
            _ => result,
        }
    }

    fn run(&mut self, call: &CallNode, args: &[Value<'a>]) -> Evaluated<'a> {
        let unknown = || library::call(call.function, |_| None, args);
        match &call.run {
            Run::Function(f) => {
                if too_great(call.function, args) {
                    if let ("lists.range", [Value::Int(n)]) = (call.function, args) {
                        self.charge(n.unsigned_abs().saturating_add(1 + cost::LIST_BASE))?;
                    }
                    return Err(EvalError::CostLimit);
                }
                library::call(call.function, *f, args)
            }
            Run::Pattern(p) => library::find_with(call.function, p, args).unwrap_or_else(unknown),
            Run::Check => {
                let Some(question) = library::ask(args) else { return unknown() };
                match self.activation.decision(&question) {
                    Some(answer) => Ok(library::decision(answer)),
                    None => Err(EvalError::Pending(Box::new(question))),
                }
            }
        }
    }

    /// Adds to the list or map that a macro gathers, in place: a copy for every item would cost more than is counted.
    fn append(&mut self, call: &'e CallNode) -> Option<Evaluated<'a>> {
        let inserts = call.function == "cel.@mapInsert";
        if call.function != op::ADD && !inserts {
            return None;
        }
        let (first, rest) = call.args.split_first()?;
        let Node::Attribute(a) = first else { return None };
        let (Base::Local(place), true) = (&a.base, a.qualifiers.is_empty()) else { return None };
        let place = *place;
        if let Err(e) = self.begin(place) {
            return Some(Err(e));
        }
        let fits = match self.slots.get(place) {
            Some((Some(_), Some(Ok(Value::List(_))))) => !inserts,
            Some((Some(_), Some(Ok(Value::Map(_))))) => inserts,
            _ => false,
        };
        if !fits {
            return None;
        }
        Some(self.append_to(place, rest))
    }

    fn append_to(&mut self, place: usize, rest: &'e [Node]) -> Evaluated<'a> {
        self.charge(1)?;
        let mut args = Vec::with_capacity(rest.len());
        for arg in rest {
            match self.node(arg) {
                Ok(v) => args.push(v),
                Err(e) => {
                    // A call of two arguments costs something also where one fails.
                    if rest.len() < 2 && !e.ends() {
                        self.charge(1)?;
                    }
                    return Err(e);
                }
            }
        }
        self.charge(1)?;
        let taken = self.slots.get_mut(place).and_then(|s| s.1.take());
        let Some(Ok(mut accu)) = taken else { return Err(EvalError::no_overload()) };
        let done = match (&mut accu, &args[..]) {
            (Value::List(list), [more]) if more.is_list() => {
                let more = more.items()?;
                if list.len() + more.len() > MOST_ITEMS {
                    return Err(EvalError::CostLimit);
                }
                Arc::make_mut(list).extend(more);
                Ok(())
            }
            (Value::Map(map), [key, value]) => insert(map, key.clone(), value.clone()),
            (Value::Map(map), [more]) if more.is_map() => more.keys().into_iter().try_for_each(|key| {
                let value = more.entry(&key)?.unwrap_or(Value::Null);
                insert(map, key, value)
            }),
            _ => Err(EvalError::no_overload()),
        };
        done.map(|()| accu)
    }

    fn list(&mut self, items: &'e [(Node, bool)]) -> Evaluated<'a> {
        let made = self.items(items);
        self.charge_made(&made, cost::LIST_BASE)?;
        made
    }

    /// What is made costs also where it fails.
    fn charge_made(&mut self, made: &Evaluated<'a>, cost: u64) -> Result<(), EvalError> {
        match made {
            Err(e) if e.ends() => Ok(()),
            _ => self.charge(cost),
        }
    }

    fn items(&mut self, items: &'e [(Node, bool)]) -> Evaluated<'a> {
        let mut out = Vec::with_capacity(items.len());
        for (item, optional) in items {
            let value = self.node(item)?;
            match value {
                Value::Optional(None) if *optional => {}
                Value::Optional(Some(v)) if *optional => out.push((*v).clone()),
                other if *optional => {
                    return Err(EvalError::new(format!(
                        "cannot initialize optional list element from non-optional value {}",
                        plain(&other)
                    )));
                }
                other => out.push(other),
            }
        }
        Ok(Value::list(out))
    }

    fn map(&mut self, entries: &'e [(Node, Node, bool)]) -> Evaluated<'a> {
        let made = self.entries(entries);
        self.charge_made(&made, cost::MAP_BASE)?;
        made
    }

    fn entries(&mut self, entries: &'e [(Node, Node, bool)]) -> Evaluated<'a> {
        let mut map = MapValue::default();
        for (key, value, optional) in entries {
            let (key, value) = (self.node(key)?, self.node(value)?);
            match given(&key, value, *optional)? {
                Some(value) => map.insert(key, value)?,
                None => map.remove(&key),
            }
        }
        Ok(Value::Map(Arc::new(map)))
    }

    fn object(&mut self, name: &Arc<str>, fields: &'e [(Arc<str>, Node, bool)]) -> Evaluated<'a> {
        let made = self.fields(name, fields);
        self.charge_made(&made, cost::OBJECT)?;
        made
    }

    fn fields(&mut self, name: &Arc<str>, fields: &'e [(Arc<str>, Node, bool)]) -> Evaluated<'a> {
        let mut out: Vec<(Arc<str>, Value<'a>)> = Vec::with_capacity(fields.len());
        for (field, value, optional) in fields {
            let value = self.node(value)?;
            let key = Value::String(Text::Shared(field.clone()));
            out.retain(|(n, _)| n != field);
            if let Some(value) = given(&key, value, *optional)? {
                out.push((field.clone(), value));
            }
        }
        Ok(Value::Object(Arc::new(Made { type_name: name.clone(), fields: out })))
    }

    fn fold(&mut self, fold: &'e FoldNode) -> Evaluated<'a> {
        let range = self.node(&fold.range)?;
        self.clear(fold.place);
        if let Some(slot) = self.slots.get_mut(fold.place) {
            slot.0 = Some(&fold.init);
        }
        if !range.is_list() && !range.is_map() {
            let of = go_name(&range);
            return Err(EvalError::new(if fold.two {
                format!("unsupported comprehension range type: {of}")
            } else {
                format!("got '{of}', expected iterable type")
            }));
        }
        let keys = if range.is_map() { Some(range.keys()) } else { None };
        let count = keys.as_ref().map_or(range.size().unwrap_or_default(), Vec::len);
        for i in 0..count {
            let (first, second) = match &keys {
                Some(keys) if fold.two => (Ok(keys[i].clone()), Some(range.entry(&keys[i]))),
                Some(keys) => (Ok(keys[i].clone()), None),
                None if fold.two => (Ok(Value::Int(i as i64)), Some(range.item(i))),
                None => (range.item(i).map(|v| v.unwrap_or(Value::Null)), None),
            };
            self.set(fold.place + 1, first);
            if let Some(second) = second {
                self.set(fold.place + 2, second.map(|v| v.unwrap_or(Value::Null)));
            }
            match self.node(&fold.condition) {
                Ok(Value::Bool(false)) => break,
                Err(e) if e.ends() => return Err(e),
                _ => {}
            }
            let next = self.node(&fold.step);
            if let Err(e) = &next
                && e.ends()
            {
                return next;
            }
            self.set(fold.place, next);
        }
        let result = self.node(&fold.result);
        self.clear(fold.place);
        result
    }

    fn clear(&mut self, place: usize) {
        for slot in self.slots.iter_mut().skip(place).take(3) {
            *slot = (None, None);
        }
    }

    fn set(&mut self, place: usize, value: Evaluated<'a>) {
        if let Some(slot) = self.slots.get_mut(place) {
            slot.1 = Some(value);
        }
    }
}

/// The name of a value's type in Go, which upstream's text has.
fn go_name(v: &Value<'_>) -> String {
    let name = match v {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::String(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Timestamp(_) => "types.Timestamp",
        Value::Duration(_) => "types.Duration",
        Value::Type(_) => "*types.Type",
        Value::Optional(_) => "*types.Optional",
        other => return other.type_name().to_string(),
    };
    name.into()
}

/// The value of an entry or field; none for an optional one that is absent.
fn given<'a>(key: &Value<'a>, value: Value<'a>, optional: bool) -> Result<Option<Value<'a>>, EvalError> {
    match value {
        value if !optional => Ok(Some(value)),
        Value::Optional(v) => Ok(v.map(|v| (*v).clone())),
        other => Err(EvalError::new(format!(
            "cannot initialize optional entry '{}' from non-optional value {}",
            plain(key),
            plain(&other)
        ))),
    }
}

fn insert<'a>(map: &mut Arc<MapValue<'a>>, key: Value<'a>, value: Value<'a>) -> Result<(), EvalError> {
    if map.get(&key).is_some() {
        return Err(EvalError::new(format!("insert failed: key {} already exists", plain(&key))));
    }
    Arc::make_mut(map).insert(key, value)
}

/// Whether the result of a call would be greater than anything that costs allow.
fn too_great(function: &str, args: &[Value<'_>]) -> bool {
    let length = |v: &Value<'_>| match v {
        Value::String(s) => s.len(),
        Value::Bytes(b) => b.len(),
        _ => 0,
    };
    match (function, args) {
        (op::ADD, [a, b]) if a.is_list() => {
            a.size().unwrap_or_default() + b.size().unwrap_or_default() > MOST_ITEMS
        }
        (op::ADD, [a, b]) => length(a) + length(b) > LONGEST_TEXT,
        ("lists.range", [Value::Int(n)]) => usize::try_from(*n).is_ok_and(|n| n > MOST_ITEMS),
        ("replace", [Value::String(s), old, new, ..]) => {
            let most = s.len() / length(old).max(1) + 1;
            most.saturating_mul(length(new)) > LONGEST_TEXT
                && s.matches(&*text(old)).count().saturating_mul(length(new)) > LONGEST_TEXT
        }
        ("join", [list, ..]) => {
            let separator = args.get(1).map_or(0, length);
            let items = list.items().unwrap_or_default();
            items.iter().fold(0usize, |sum, i| sum.saturating_add(length(i) + separator)) > LONGEST_TEXT
        }
        ("flatten", [list, depth @ ..]) => {
            let depth = if let [Value::Int(n)] = depth { *n } else { 1 };
            flattened(list, depth, MOST_ITEMS).is_none()
        }
        _ => false,
    }
}

fn text(v: &Value<'_>) -> String {
    if let Value::String(s) = v { s.to_string() } else { String::new() }
}

/// The number of items left of `most` when a list is flat; `None` if there are more.
fn flattened(list: &Value<'_>, depth: i64, most: usize) -> Option<usize> {
    let mut left = most;
    for item in list.items().unwrap_or_default() {
        left = if depth > 0 && item.is_list() {
            flattened(&item, depth - 1, left)?.checked_sub(1)?
        } else {
            left.checked_sub(1)?
        };
    }
    Some(left)
}
