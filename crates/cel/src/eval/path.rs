//! Steps into values: fields, keys, items.

use crate::error::EvalError;
use crate::value::{Value, plain};

/// What is at a key; absence is an error.
pub(super) fn qualify<'a>(of: &Value<'a>, key: &Value<'a>) -> Result<Value<'a>, EvalError> {
    if let Some(found) = qualify_if_present(of, key)? {
        return Ok(found);
    }
    match of {
        // A field of an object that an expression makes is `null` unless it was set.
        Value::Object(_) => Ok(Value::Null),
        of if of.is_list() => Err(EvalError::new(format!("index out of bounds: {}", plain(key)))),
        _ => Err(EvalError::new(format!("no such key: {}", plain(key)))),
    }
}

/// What is at a key, if it is there.
pub(super) fn qualify_if_present<'a>(
    of: &Value<'a>,
    key: &Value<'a>,
) -> Result<Option<Value<'a>>, EvalError> {
    if of.is_list() {
        return match index(key)? {
            Some(i) => of.item(i),
            None => Ok(None),
        };
    }
    if matches!(of, Value::Foreign(_)) && !matches!(key, Value::String(_)) {
        return Err(EvalError::no_overload());
    }
    of.entry(key)
}

/// A key as the place of an item; `None` for a place before the first one.
fn index(key: &Value<'_>) -> Result<Option<usize>, EvalError> {
    let unusable = || EvalError::new(format!("unsupported index value {} in list", plain(key)));
    let i = match key {
        Value::Int(i) => *i,
        Value::Uint(u) => i64::try_from(*u).map_err(|_| unusable())?,
        Value::Double(d) if d.fract() == 0.0 && d.abs() < 9e18 => *d as i64,
        Value::Double(_) => return Err(unusable()),
        other => {
            let name = other.type_name();
            return Err(EvalError::new(format!("unsupported index type '{name}' in list")));
        }
    };
    Ok(usize::try_from(i).ok())
}
