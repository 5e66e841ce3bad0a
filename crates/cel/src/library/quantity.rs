//! Quantities.

use api::quantity::Quantity;

use crate::error::EvalError;
use crate::value::{Opaque, Value};

use super::Outcome;

pub(super) fn quantity<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return None };
    Some(match Quantity::parse(s) {
        Ok(q) => Ok(Value::opaque(Opaque::Quantity(q))),
        Err(e) => Err(EvalError::new(e.to_string())),
    })
}

pub(super) fn is_quantity<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return None };
    Some(Ok(Value::Bool(Quantity::parse(s).is_ok())))
}

fn of<'v>(v: &'v Value<'_>) -> Option<&'v Quantity> {
    match v {
        Value::Opaque(o) => match &**o {
            Opaque::Quantity(q) => Some(q),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn sign<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    Some(Ok(Value::Int(of(args.first()?)?.sign().into())))
}

pub(super) fn as_float<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    Some(Ok(Value::Double(of(args.first()?)?.as_f64())))
}

/// The amount, if it is a whole number that an `i64` holds.
fn whole(q: &Quantity) -> Option<i64> {
    let value = q.value();
    (Quantity::from_value(value) == *q).then_some(value)
}

pub(super) fn is_integer<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    Some(Ok(Value::Bool(whole(of(args.first()?)?).is_some())))
}

pub(super) fn as_integer<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let value = whole(of(args.first()?)?).map(Value::Int);
    Some(value.ok_or_else(|| EvalError::new("cannot convert value to integer")))
}

fn combined<'a>(args: &[Value<'a>], with: fn(&mut Quantity, &Quantity)) -> Outcome<'a> {
    let [a, b] = args else { return None };
    let mut sum = of(a)?.clone();
    match b {
        Value::Int(i) => with(&mut sum, &Quantity::from_value(*i)),
        other => with(&mut sum, of(other)?),
    }
    Some(Ok(Value::opaque(Opaque::Quantity(sum))))
}

pub(super) fn add<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    combined(args, Quantity::add)
}
pub(super) fn sub<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    combined(args, Quantity::sub)
}
