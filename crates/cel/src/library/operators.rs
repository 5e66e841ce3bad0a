//! Operators.

use std::cmp::Ordering;

use crate::error::EvalError;
use crate::value::{Time, Value, compare, contains, equal};

use super::Outcome;

/// The failure of an operator whose first operand knows nothing of it.
fn unknown<'a>(operator: &str) -> Outcome<'a> {
    Some(Err(EvalError::new(format!("no such overload: {operator}"))))
}

fn refused<'a>() -> Outcome<'a> {
    Some(Err(EvalError::no_overload()))
}

fn int<'a>(of: Option<i64>) -> Outcome<'a> {
    Some(of.map(Value::Int).ok_or_else(|| EvalError::new("integer overflow")))
}

fn uint<'a>(of: Option<u64>) -> Outcome<'a> {
    Some(of.map(Value::Uint).ok_or_else(|| EvalError::new("unsigned integer overflow")))
}

fn duration<'a>(of: Option<i64>) -> Outcome<'a> {
    Some(of.map(Value::Duration).ok_or_else(|| EvalError::new("duration overflow")))
}

fn later<'a>(t: Time, by: i128) -> Outcome<'a> {
    Some(Time::new(t.nanos + by, t.offset).map(Value::Timestamp))
}

pub(super) fn add<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    use Value::{Bytes, Double, Duration, Foreign, Int, List, String, Timestamp, Uint};
    let [a, b] = args else { return None };
    match (a, b) {
        (Int(a), Int(b)) => int(a.checked_add(*b)),
        (Uint(a), Uint(b)) => uint(a.checked_add(*b)),
        (Double(a), Double(b)) => Some(Ok(Double(a + b))),
        (String(a), String(b)) => Some(Ok(Value::text([&**a, &**b].concat()))),
        (Bytes(a), Bytes(b)) => Some(Ok(Bytes([&**a, &**b].concat().into()))),
        (Duration(a), Duration(b)) => duration(a.checked_add(*b)),
        (Timestamp(t), Duration(d)) | (Duration(d), Timestamp(t)) => later(*t, i128::from(*d)),
        (Foreign(f), b) if a.is_list() && b.is_list() => match f.add(b) {
            Some(sum) => Some(sum),
            None => concat(a, b),
        },
        (List(_), b) if b.is_list() => concat(a, b),
        (Int(_) | Uint(_) | Double(_) | String(_) | Bytes(_) | Duration(_) | Timestamp(_) | List(_), _) => {
            refused()
        }
        (a, _) if a.is_list() => refused(),
        _ => unknown("_+_"),
    }
}

fn concat<'a>(a: &Value<'a>, b: &Value<'a>) -> Outcome<'a> {
    let mut items = match a.items() {
        Ok(items) => items,
        Err(e) => return Some(Err(e)),
    };
    Some(b.items().map(|more| {
        items.extend(more);
        Value::list(items)
    }))
}

pub(super) fn subtract<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    use Value::{Double, Duration, Int, Timestamp, Uint};
    let [a, b] = args else { return None };
    match (a, b) {
        (Int(a), Int(b)) => int(a.checked_sub(*b)),
        (Uint(a), Uint(b)) => uint(a.checked_sub(*b)),
        (Double(a), Double(b)) => Some(Ok(Double(a - b))),
        (Duration(a), Duration(b)) => duration(a.checked_sub(*b)),
        (Timestamp(t), Duration(d)) => later(*t, -i128::from(*d)),
        (Timestamp(a), Timestamp(b)) => duration(i64::try_from(a.nanos - b.nanos).ok()),
        (Int(_) | Uint(_) | Double(_) | Duration(_) | Timestamp(_), _) => refused(),
        _ => unknown("_-_"),
    }
}

pub(super) fn multiply<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    use Value::{Double, Int, Uint};
    let [a, b] = args else { return None };
    match (a, b) {
        (Int(a), Int(b)) => int(a.checked_mul(*b)),
        (Uint(a), Uint(b)) => uint(a.checked_mul(*b)),
        (Double(a), Double(b)) => Some(Ok(Double(a * b))),
        (Int(_) | Uint(_) | Double(_), _) => refused(),
        _ => unknown("_*_"),
    }
}

pub(super) fn divide<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    use Value::{Double, Int, Uint};
    let [a, b] = args else { return None };
    match (a, b) {
        (Int(_), Int(0)) | (Uint(_), Uint(0)) => Some(Err(EvalError::new("division by zero"))),
        (Int(a), Int(b)) => int(a.checked_div(*b)),
        (Uint(a), Uint(b)) => uint(a.checked_div(*b)),
        (Double(a), Double(b)) => Some(Ok(Double(a / b))),
        (Int(_) | Uint(_) | Double(_), _) => refused(),
        _ => unknown("_/_"),
    }
}

pub(super) fn modulo<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    use Value::{Int, Uint};
    let [a, b] = args else { return None };
    match (a, b) {
        (Int(_), Int(0)) | (Uint(_), Uint(0)) => Some(Err(EvalError::new("modulus by zero"))),
        (Int(a), Int(b)) => int(a.checked_rem(*b)),
        (Uint(a), Uint(b)) => uint(a.checked_rem(*b)),
        (Int(_) | Uint(_), _) => refused(),
        _ => unknown("_%_"),
    }
}

pub(super) fn negate<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Int(i)] => int(i.checked_neg()),
        [Value::Double(d)] => Some(Ok(Value::Double(-d))),
        [Value::Duration(d)] => duration(d.checked_neg()),
        [Value::Bool(_)] => refused(),
        _ => unknown("-_"),
    }
}

pub(super) fn not<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Bool(b)] => Some(Ok(Value::Bool(!b))),
        _ => refused(),
    }
}

fn ordered<'a>(operator: &str, args: &[Value<'a>], holds: fn(Ordering) -> bool) -> Outcome<'a> {
    use Value::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let [a, b] = args else { return None };
    match a {
        Bool(_) | Bytes(_) | Double(_) | Duration(_) | Int(_) | String(_) | Timestamp(_) | Uint(_) => {
            Some(compare(a, b).map(|o| Bool(holds(o))))
        }
        _ => unknown(operator),
    }
}

pub(super) fn less<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    ordered("_<_", args, Ordering::is_lt)
}
pub(super) fn less_equals<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    ordered("_<=_", args, Ordering::is_le)
}
pub(super) fn greater<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    ordered("_>_", args, Ordering::is_gt)
}
pub(super) fn greater_equals<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    ordered("_>=_", args, Ordering::is_ge)
}

pub(super) fn equals<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [a, b] = args else { return None };
    Some(equal(a, b).map(Value::Bool))
}

/// An error of a comparison means that the values differ.
pub(super) fn differs<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [a, b] = args else { return None };
    match equal(a, b) {
        Err(e) if e.ends() => Some(Err(e)),
        other => Some(Ok(Value::Bool(!other.unwrap_or_default()))),
    }
}

pub(super) fn within<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [of, container] = args else { return None };
    Some(contains(container, of).map(Value::Bool))
}

pub(super) fn size<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [of] = args else { return None };
    match of {
        Value::Opaque(_) => unknown("size"),
        of => match of.size() {
            Some(n) => Some(Ok(Value::Int(n as i64))),
            None => unknown("size"),
        },
    }
}

pub(super) fn type_of<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [of] = args else { return None };
    Some(Ok(Value::Type(of.type_name())))
}
