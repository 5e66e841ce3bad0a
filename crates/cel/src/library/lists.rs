//! Functions of lists, sets, maps and optional values.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::EvalError;
use crate::value::{Text, Value, compare, contains, equal, plain};

use super::{Outcome, operators};

fn failed<'a>(text: impl Into<std::borrow::Cow<'static, str>>) -> Outcome<'a> {
    Some(Err(EvalError::new(text)))
}

/// The items of a list; anything else knows no such function.
fn items<'a>(of: &Value<'a>) -> Option<Result<Vec<Value<'a>>, EvalError>> {
    of.is_list().then(|| of.items())
}

/// Takes the items, or returns what went wrong.
macro_rules! items {
    ($of:expr) => {
        match items($of)? {
            Ok(items) => items,
            Err(e) => return Some(Err(e)),
        }
    };
}

pub(super) fn is_sorted<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [list] = args else { return None };
    let all = items!(list);
    for pair in all.windows(2) {
        match compare(&pair[0], &pair[1]) {
            Ok(Ordering::Greater) => return Some(Ok(Value::Bool(false))),
            Ok(_) => {}
            Err(e) => return Some(Err(e)),
        }
    }
    Some(Ok(Value::Bool(true)))
}

/// The sum of a list, which is `zero` for an empty one.
pub(super) fn sum<'a>(args: &[Value<'a>], zero: Value<'a>) -> Outcome<'a> {
    let [list] = args else { return None };
    let mut all = items!(list).into_iter();
    let Some(mut total) = all.next() else { return Some(Ok(zero)) };
    for item in all {
        match operators::add(&[total, item])? {
            Ok(more) => total = more,
            Err(e) => return Some(Err(e)),
        }
    }
    Some(Ok(total))
}

fn extreme<'a>(args: &[Value<'a>], name: &str, replaces: Ordering) -> Outcome<'a> {
    let [list] = args else { return None };
    let mut all = items!(list).into_iter();
    let Some(mut best) = all.next() else { return failed(format!("{name} called on empty list")) };
    for item in all {
        match compare(&best, &item) {
            Ok(o) if o == replaces => best = item,
            Ok(_) => {}
            Err(e) => return Some(Err(e)),
        }
    }
    Some(Ok(best))
}

pub(super) fn max<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    extreme(args, "max", Ordering::Less)
}
pub(super) fn min<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    extreme(args, "min", Ordering::Greater)
}

fn found<'a>(at: Option<usize>) -> Outcome<'a> {
    Some(Ok(Value::Int(at.map_or(-1, |i| i as i64))))
}

pub(super) fn index_of<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [list, item] = args else { return None };
    found(items!(list).iter().position(|i| equal(i, item).unwrap_or_default()))
}
pub(super) fn last_index_of<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [list, item] = args else { return None };
    found(items!(list).iter().rposition(|i| equal(i, item).unwrap_or_default()))
}

/// Whether a list has every item of another one.
fn covers(list: &Value<'_>, part: &[Value<'_>]) -> Result<bool, EvalError> {
    for item in part {
        if !contains(list, item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn set_contains<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [list, part] = args else { return None };
    let part = items!(part);
    list.is_list().then(|| covers(list, &part).map(Value::Bool))
}

pub(super) fn set_equivalent<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [a, b] = args else { return None };
    let (in_a, in_b) = (items!(a), items!(b));
    Some(match covers(a, &in_b) {
        Ok(true) => covers(b, &in_a).map(Value::Bool),
        other => other.map(Value::Bool),
    })
}

pub(super) fn set_intersects<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [a, b] = args else { return None };
    let in_a = items!(a);
    if !b.is_list() {
        return None;
    }
    Some(Ok(Value::Bool(in_a.iter().any(|item| contains(b, item).unwrap_or_default()))))
}

pub(super) fn slice<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [list, Value::Int(start), Value::Int(end)] = args else { return None };
    let all = items!(list);
    let range = usize::try_from(*start).ok().zip(usize::try_from(*end).ok());
    let Some((from, to)) = range else {
        return failed(format!("cannot slice({start}, {end}), negative indexes not supported"));
    };
    if from > to {
        return failed(format!(
            "cannot slice({start}, {end}), start index must be less than or equal to end index"
        ));
    }
    if all.len() < to {
        return failed(format!("cannot slice({start}, {end}), list is length {}", all.len()));
    }
    Some(Ok(Value::list(all[from..to].to_vec())))
}

/// Takes lists in lists apart, as deep as `depth` says.
fn flat<'a>(all: Vec<Value<'a>>, depth: i64, out: &mut Vec<Value<'a>>) -> Result<(), EvalError> {
    for item in all {
        if depth > 0 && item.is_list() {
            flat(item.items()?, depth - 1, out)?;
        } else {
            out.push(item);
        }
    }
    Ok(())
}

pub(super) fn flatten<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let (list, depth) = match args {
        [list] => (list, 1),
        [list, Value::Int(depth)] => (list, *depth),
        _ => return None,
    };
    let all = items!(list);
    if depth < 0 {
        return failed("level must be non-negative");
    }
    let mut out = Vec::new();
    Some(flat(all, depth, &mut out).map(|()| Value::list(out)))
}

pub(super) fn sort<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [list] = args else { return None };
    sort_by(&[list.clone(), list.clone()])
}

pub(super) fn sort_by<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [list, keys] = args else { return None };
    let (all, keys) = (items!(list), items!(keys));
    if all.len() != keys.len() {
        return failed(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            all.len(),
            keys.len()
        ));
    }
    let Some(first) = keys.first() else { return Some(Ok(list.clone())) };
    if compare(first, first).is_err() && !matches!(first, Value::Double(_)) {
        return failed("list elements must be comparable");
    }
    if keys.len() > 1 && keys.iter().any(|k| k.type_name() != first.type_name()) {
        return failed("list elements must have the same type");
    }
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.into_iter().zip(all).collect();
    pairs.sort_by(|(a, _), (b, _)| compare(a, b).unwrap_or(Ordering::Equal));
    Some(Ok(Value::list(pairs.into_iter().map(|(_, v)| v).collect())))
}

/// The longest list that `lists.range` makes: each number costs one, so no evaluation can take more.
const LONGEST_RANGE: i64 = 10_000_000;

pub(super) fn range<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Int(n)] = args else { return None };
    if *n > LONGEST_RANGE {
        return Some(Err(EvalError::CostLimit));
    }
    Some(Ok(Value::list((0..*n).map(Value::Int).collect())))
}

pub(super) fn reverse<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [list] = args else { return None };
    let mut all = items!(list);
    all.reverse();
    Some(Ok(Value::list(all)))
}

pub(super) fn distinct<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [list] = args else { return None };
    let mut out: Vec<Value<'a>> = Vec::new();
    for item in items!(list) {
        if !out.iter().any(|o| equal(&item, o).unwrap_or_default()) {
            out.push(item);
        }
    }
    Some(Ok(Value::list(out)))
}

fn end<'a>(args: &[Value<'a>], last: bool) -> Outcome<'a> {
    let [list] = args else { return None };
    if !list.is_list() {
        return None;
    }
    let length = list.size().unwrap_or_default();
    let at = if last { length.saturating_sub(1) } else { 0 };
    Some(list.item(at).map(|i| Value::Optional(i.map(Arc::new))))
}
pub(super) fn first<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    end(args, false)
}
pub(super) fn last<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    end(args, true)
}

pub(super) fn unwrap<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [list] = args else { return None };
    let mut out = Vec::new();
    for item in items!(list) {
        match item {
            Value::Optional(Some(v)) => out.push((*v).clone()),
            Value::Optional(None) => {}
            other => return failed(format!("value {} is not optional", plain(&other))),
        }
    }
    Some(Ok(Value::list(out)))
}

pub(super) fn optional_of<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [of] = args else { return None };
    Some(Ok(Value::some(of.clone())))
}

pub(super) fn optional_none<'a>(_: &[Value<'a>]) -> Outcome<'a> {
    Some(Ok(Value::Optional(None)))
}

pub(super) fn optional_non_zero<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [of] = args else { return None };
    let zero = match of {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Int(i) => *i == 0,
        Value::Uint(u) => *u == 0,
        Value::Double(d) => *d == 0.0,
        Value::String(s) => s.is_empty(),
        Value::Bytes(b) => b.is_empty(),
        Value::Duration(d) => *d == 0,
        Value::Timestamp(t) => t.unix() == crate::value::MIN_UNIX && t.nanos % 1_000_000_000 == 0,
        Value::Object(o) => o.fields.is_empty(),
        Value::List(_) | Value::Map(_) | Value::Foreign(_) => of.size() == Some(0),
        Value::Type(_) | Value::Optional(_) | Value::Opaque(_) => false,
    };
    Some(Ok(if zero { Value::Optional(None) } else { Value::some(of.clone()) }))
}

pub(super) fn optional_value<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Optional(Some(v))] => Some(Ok((**v).clone())),
        [Value::Optional(None)] => failed("optional.none() dereference"),
        _ => None,
    }
}

pub(super) fn optional_has_value<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Optional(v)] = args else { return None };
    Some(Ok(Value::Bool(v.is_some())))
}

/// Adds entries to a map; none may be there already.
pub(super) fn map_insert<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let (map, entries) = match args {
        [Value::Map(map), key, value] => (map, vec![(key.clone(), value.clone())]),
        [Value::Map(map), more] if more.is_map() => {
            let mut entries = Vec::new();
            for key in more.keys() {
                match more.entry(&key) {
                    Ok(value) => entries.push((key, value.unwrap_or(Value::Null))),
                    Err(e) => return Some(Err(e)),
                }
            }
            (map, entries)
        }
        _ => return None,
    };
    let mut map = (**map).clone();
    for (key, value) in entries {
        if map.get(&key).is_some() {
            return failed(format!("insert failed: key {} already exists", plain(&key)));
        }
        if let Err(e) = map.insert(key, value) {
            return Some(Err(e));
        }
    }
    Some(Ok(Value::Map(Arc::new(map))))
}

/// A list of texts.
pub(super) fn texts<'a>(of: impl IntoIterator<Item = String>) -> Value<'a> {
    Value::list(of.into_iter().map(|s| Value::String(Text::from(s))).collect())
}
