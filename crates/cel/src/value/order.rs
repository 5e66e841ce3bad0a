//! Which values are equal, and which comes first.

use std::cmp::Ordering;

use crate::error::EvalError;

use super::{Opaque, Shape, Value};

/// Whether two values are equal. Numbers of different types are compared by what they are worth.
pub(crate) fn equal(a: &Value<'_>, b: &Value<'_>) -> Result<bool, EvalError> {
    use Value::*;
    match (a, b) {
        (Null, Null) => Ok(true),
        (Null, _) | (_, Null) => Ok(false),
        (Bool(a), Bool(b)) => Ok(a == b),
        (String(a), String(b)) => Ok(**a == **b),
        (Bytes(a), Bytes(b)) => Ok(a == b),
        (Timestamp(a), Timestamp(b)) => Ok(a.nanos == b.nanos),
        (Duration(a), Duration(b)) => Ok(a == b),
        (Type(a), Type(b)) => Ok(a == b),
        (Int(_) | Uint(_) | Double(_), Int(_) | Uint(_) | Double(_)) => {
            Ok(numbers(a, b) == Some(Ordering::Equal))
        }
        (Optional(None), Optional(None)) => Ok(true),
        (Optional(Some(a)), Optional(Some(b))) => equal(a, b),
        (Opaque(a), Opaque(b)) => opaque(a, b).ok_or_else(EvalError::no_overload),
        (Opaque(_), _) => Err(EvalError::no_overload()),
        (Foreign(f), other) => match f.equals(other) {
            Some(result) => result,
            None => structures(a, b),
        },
        (Object(a), Object(b)) => {
            if a.type_name != b.type_name || a.fields.len() != b.fields.len() {
                return Ok(false);
            }
            for (name, value) in &a.fields {
                let Some((_, other)) = b.fields.iter().find(|(n, _)| n == name) else { return Ok(false) };
                if !equal(value, other)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => structures(a, b),
    }
}

/// Whether two lists or two maps are equal.
fn structures(a: &Value<'_>, b: &Value<'_>) -> Result<bool, EvalError> {
    if a.size() != b.size() {
        return Ok(false);
    }
    if a.is_list() && b.is_list() {
        for i in 0..a.size().unwrap_or_default() {
            let (Some(x), Some(y)) = (a.item(i)?, b.item(i)?) else { return Ok(false) };
            if !equal(&x, &y)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    if a.is_map() && b.is_map() {
        for key in a.keys() {
            let (Some(x), Some(y)) = (a.entry(&key)?, b.entry(&key)?) else { return Ok(false) };
            if !equal(&x, &y)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    Ok(false)
}

fn opaque(a: &Opaque, b: &Opaque) -> Option<bool> {
    use Opaque::*;
    Some(match (a, b) {
        (Quantity(a), Quantity(b)) => a == b,
        (Ip(a), Ip(b)) => a == b,
        (Cidr(a), Cidr(b)) => a == b,
        (Url(a), Url(b)) => a.to_string() == b.to_string(),
        (Semver(a), Semver(b)) => a.precedence(b) == Ordering::Equal,
        (Format(a), Format(b)) => a.name == b.name,
        // DIFFERENCE: upstream compares what Go calls the embedded struct and so finds that no two of these are equal.
        (Authorizer(_) | PathCheck(..) | GroupCheck(..) | ResourceCheck(_) | Decision(_), _) => return None,
        _ => return None,
    })
}

/// The order of two numbers; `None` if one is no number at all.
fn numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    let whole = |v: &Value<'_>| match v {
        Value::Int(i) => Some(i128::from(*i)),
        Value::Uint(u) => Some(i128::from(*u)),
        _ => None,
    };
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), b) => mixed(*a, b),
        (a, Value::Double(b)) => mixed(*b, a).map(Ordering::reverse),
        (a, b) => Some(whole(a)?.cmp(&whole(b)?)),
    }
}

/// The order of a float and a whole number, as cel-go has it: beyond the range of the number's type by range, else as
/// floats.
fn mixed(a: f64, b: &Value<'_>) -> Option<Ordering> {
    if a.is_nan() {
        return None;
    }
    let (low, high, b) = match b {
        Value::Int(i) => (i64::MIN as f64, i64::MAX as f64, *i as f64),
        Value::Uint(u) => (0.0, u64::MAX as f64, *u as f64),
        _ => return None,
    };
    if a < low {
        return Some(Ordering::Less);
    }
    if a > high {
        return Some(Ordering::Greater);
    }
    a.partial_cmp(&b)
}

/// The order of two values that have one.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>) -> Result<Ordering, EvalError> {
    use Value::*;
    match (a, b) {
        (Bool(a), Bool(b)) => Ok(a.cmp(b)),
        (String(a), String(b)) => Ok((**a).cmp(&**b)),
        (Bytes(a), Bytes(b)) => Ok(a.cmp(b)),
        (Timestamp(a), Timestamp(b)) => Ok(a.nanos.cmp(&b.nanos)),
        (Duration(a), Duration(b)) => Ok(a.cmp(b)),
        (Int(_) | Uint(_) | Double(_), Int(_) | Uint(_) | Double(_)) => {
            numbers(a, b).ok_or_else(|| EvalError::new("NaN values cannot be ordered"))
        }
        _ => Err(EvalError::no_overload()),
    }
}

/// Whether a list has an item, or a map a key.
pub(crate) fn contains(container: &Value<'_>, of: &Value<'_>) -> Result<bool, EvalError> {
    let typed = matches!(container, Value::Foreign(f) if f.shape() != Shape::List);
    if typed && !matches!(of, Value::String(_)) {
        return Err(EvalError::no_overload());
    }
    if let (Value::Foreign(f), Value::String(key)) = (container, of)
        && let Some(held) = f.holds(key)
    {
        return Ok(held);
    }
    if container.is_map() {
        return Ok(container.entry(of)?.is_some());
    }
    if !container.is_list() {
        return Err(EvalError::no_overload());
    }
    for i in 0..container.size().unwrap_or_default() {
        if let Some(item) = container.item(i)?
            && equal(of, &item).unwrap_or_default()
        {
            return Ok(true);
        }
    }
    Ok(false)
}
