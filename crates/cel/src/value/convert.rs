//! Conversions between types.

use crate::error::EvalError;
use crate::types::Type;

use super::number::shortest;
use super::{MAX_UNIX, MIN_UNIX, Text, Time, Value, duration_text, parse_duration};

/// The value as one of a type.
pub(crate) fn convert<'a>(v: &Value<'a>, to: &Type) -> Result<Value<'a>, EvalError> {
    let converted = match to {
        Type::Bool => bool(v),
        Type::Int => return int(v).unwrap_or_else(|| Err(refused(v, to))),
        Type::Uint => return uint(v).unwrap_or_else(|| Err(refused(v, to))),
        Type::Double => double(v),
        Type::String => return string(v).unwrap_or_else(|| Err(refused(v, to))),
        Type::Bytes => match v {
            Value::String(s) => Some(Value::Bytes(s.as_bytes().into())),
            Value::Bytes(_) => Some(v.clone()),
            _ => None,
        },
        Type::Timestamp => return timestamp(v).unwrap_or_else(|| Err(refused(v, to))),
        Type::Duration => match v {
            Value::Duration(_) => Some(v.clone()),
            Value::String(s) => parse_duration(s).map(Value::Duration),
            _ => None,
        },
        _ => None,
    };
    converted.ok_or_else(|| refused(v, to))
}

fn refused(v: &Value<'_>, to: &Type) -> EvalError {
    EvalError::new(format!("type conversion error from '{}' to '{}'", v.type_name(), to.runtime_name()))
}

fn bool<'a>(v: &Value<'a>) -> Option<Value<'a>> {
    match v {
        Value::Bool(_) => Some(v.clone()),
        Value::String(s) => api::go::parse_bool(s).map(Value::Bool),
        _ => None,
    }
}

type Converted<'a> = Option<Result<Value<'a>, EvalError>>;

fn int<'a>(v: &Value<'a>) -> Converted<'a> {
    let overflow = || EvalError::new("integer overflow");
    Some(match v {
        Value::Int(_) => Ok(v.clone()),
        Value::Uint(u) => i64::try_from(*u).map(Value::Int).map_err(|_| overflow()),
        Value::Double(d) if *d > i64::MIN as f64 && *d < i64::MAX as f64 => Ok(Value::Int(*d as i64)),
        Value::Double(_) => Err(overflow()),
        Value::String(s) => Ok(Value::Int(decimal(s)?.parse().ok()?)),
        Value::Timestamp(t) => Ok(Value::Int(t.unix())),
        Value::Duration(d) => Ok(Value::Int(*d)),
        _ => return None,
    })
}

fn uint<'a>(v: &Value<'a>) -> Converted<'a> {
    let overflow = || EvalError::new("unsigned integer overflow");
    Some(match v {
        Value::Uint(_) => Ok(v.clone()),
        Value::Int(i) => u64::try_from(*i).map(Value::Uint).map_err(|_| overflow()),
        Value::Double(d) if *d >= 0.0 && *d < u64::MAX as f64 => Ok(Value::Uint(*d as u64)),
        Value::Double(_) => Err(overflow()),
        Value::String(s) if !s.starts_with('+') => Ok(Value::Uint(s.parse().ok()?)),
        _ => return None,
    })
}

/// A text that Go reads as a whole number, too.
fn decimal(s: &str) -> Option<&str> {
    let digits = s.strip_prefix(['+', '-']).unwrap_or(s);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(s)
}

fn double<'a>(v: &Value<'a>) -> Option<Value<'a>> {
    Some(Value::Double(match v {
        Value::Double(d) => *d,
        Value::Int(i) => *i as f64,
        Value::Uint(u) => *u as f64,
        Value::String(s) => parse_float(s)?,
        _ => return None,
    }))
}

/// Reads a float as Go does, numbers of the base 16 aside.
fn parse_float(s: &str) -> Option<f64> {
    let bare = s.strip_prefix(['+', '-']).unwrap_or(s);
    let special = ["inf", "infinity", "nan"].iter().any(|n| bare.eq_ignore_ascii_case(n));
    if special && s.len() != bare.len() && bare.eq_ignore_ascii_case("nan") {
        return None;
    }
    let f: f64 = s.parse().ok()?;
    (special || f.is_finite()).then_some(f)
}

fn string<'a>(v: &Value<'a>) -> Converted<'a> {
    Some(Ok(match v {
        Value::String(_) => v.clone(),
        Value::Bool(b) => Value::text(b.to_string()),
        Value::Int(i) => Value::text(i.to_string()),
        Value::Uint(u) => Value::text(u.to_string()),
        Value::Double(d) => Value::text(shortest(*d)),
        Value::Null => Value::String(Text::Borrowed("null")),
        Value::Bytes(b) => match std::str::from_utf8(b) {
            Ok(s) => Value::text(s),
            Err(_) => {
                return Some(Err(EvalError::new("invalid UTF-8 in bytes, cannot convert to string")));
            }
        },
        Value::Timestamp(t) => Value::text(t.format()),
        Value::Duration(d) => Value::text(duration_text(*d)),
        Value::Type(name) => Value::String(Text::Shared(name.clone())),
        Value::Opaque(o) => match &**o {
            super::Opaque::Ip(ip) => Value::text(ip.to_string()),
            super::Opaque::Cidr(c) => Value::text(format!("{}/{}", c.address, c.bits)),
            _ => return None,
        },
        _ => return None,
    }))
}

fn timestamp<'a>(v: &Value<'a>) -> Converted<'a> {
    match v {
        Value::Timestamp(_) => Some(Ok(v.clone())),
        Value::Int(i) if !(MIN_UNIX..=MAX_UNIX).contains(i) => {
            Some(Err(EvalError::new("timestamp overflow")))
        }
        Value::Int(i) => Some(Time::from_unix(*i).map(Value::Timestamp)),
        Value::String(s) => Time::parse(s).map(|t| t.map(Value::Timestamp)),
        _ => None,
    }
}
