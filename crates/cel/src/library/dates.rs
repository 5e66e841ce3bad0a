//! Parts of times.

use crate::value::{Fields, Value};

use super::Outcome;

/// A part of a timestamp, perhaps in a zone.
pub(super) fn part<'a>(args: &[Value<'a>], of: fn(&Fields) -> i64) -> Outcome<'a> {
    let fields = match args {
        [Value::Timestamp(t)] => t.fields(None),
        [Value::Timestamp(t), Value::String(zone)] => t.fields(Some(zone)),
        _ => return None,
    };
    Some(fields.map(|f| Value::Int(of(&f))))
}

/// A part of a timestamp, or a whole duration in a unit.
pub(super) fn clock<'a>(args: &[Value<'a>], of: fn(&Fields) -> i64, unit: i64) -> Outcome<'a> {
    match args {
        [Value::Duration(d)] => Some(Ok(Value::Int(d / unit))),
        args => part(args, of),
    }
}
