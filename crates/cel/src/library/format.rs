//! `format`: texts with places for values.

use crate::error::EvalError;
use crate::types::Type;
use crate::value::{Value, convert, fixed, plain, scientific};

use super::Outcome;

/// What stands behind a `%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clause {
    String,
    Decimal,
    Fixed(usize),
    Scientific(usize),
    Binary,
    Hex { upper: bool },
    Octal,
}

impl Clause {
    /// The complaint about an argument of a type that does not fit.
    pub(crate) fn complaint(self, given: &str) -> String {
        let rule = match self {
            Self::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific(_) => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        };
        format!("{rule}, was given {given}")
    }
    /// Whether an argument of a type may stand here.
    pub(crate) fn takes(self, ty: &Type) -> bool {
        let whole = matches!(ty, Type::Int | Type::Uint);
        ty.is_dyn()
            || match self {
                Self::String => {
                    whole
                        || matches!(
                            ty,
                            Type::List(_)
                                | Type::Map(_)
                                | Type::Double
                                | Type::Bool
                                | Type::String
                                | Type::Timestamp
                                | Type::Bytes
                                | Type::Duration
                                | Type::Type(_)
                                | Type::Null
                        )
                }
                Self::Decimal | Self::Octal => whole,
                Self::Fixed(_) | Self::Scientific(_) => matches!(ty, Type::Double | Type::String),
                Self::Binary => whole || *ty == Type::Bool,
                Self::Hex { .. } => whole || matches!(ty, Type::String | Type::Bytes),
            }
    }
}

const DEFAULT_PRECISION: usize = 6;
/// The greatest number of digits.
///
/// DIFFERENCE: cel-go takes any number, and so makes texts of any length.
const MOST_DIGITS: usize = 1000;

fn clause(rest: &str) -> Result<(usize, Clause), String> {
    let wrong = |text: String| Err(format!("could not parse formatting clause: {text}"));
    let mut at = 0;
    let mut precision = DEFAULT_PRECISION;
    if let Some(digits) = rest.strip_prefix('.') {
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        if length == digits.len() {
            return wrong("error while parsing precision: could not find end of precision specifier".into());
        }
        let text = &digits[..length];
        match text.parse::<usize>() {
            Ok(n) => precision = n,
            _ => {
                let why = if text.is_empty() { "invalid syntax" } else { "value out of range" };
                return wrong(format!(
                    "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {}: {why}",
                    api::go::quote(text)
                ));
            }
        }
        at = 1 + length;
    }
    let Some(letter) = rest[at..].chars().next() else { return wrong("unexpected end of string".into()) };
    let found = match letter {
        's' => Clause::String,
        'd' => Clause::Decimal,
        'f' => Clause::Fixed(precision),
        'e' => Clause::Scientific(precision),
        'b' => Clause::Binary,
        'x' => Clause::Hex { upper: false },
        'X' => Clause::Hex { upper: true },
        'o' => Clause::Octal,
        other => return wrong(format!("unrecognized formatting clause \"{other}\"")),
    };
    Ok((at + letter.len_utf8(), found))
}

/// Goes through a format, and asks `argument` for the text of each of `count` arguments.
fn walk(
    format: &str,
    count: usize,
    mut argument: impl FnMut(usize, Clause) -> Result<String, String>,
) -> Result<(String, usize), String> {
    let mut out = String::new();
    let mut next = 0;
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(tail) = rest.strip_prefix('%') {
            out.push('%');
            rest = tail;
            continue;
        }
        if next >= count {
            return Err(format!("index {next} out of range"));
        }
        if rest.is_empty() {
            return Err("unexpected end of string".into());
        }
        let (length, clause) = clause(rest)?;
        out.push_str(&argument(next, clause)?);
        rest = &rest[length..];
        next += 1;
    }
    out.push_str(rest);
    Ok((out, next))
}

/// Checks a format that stands in the source: `argument` looks at each. Returns the number of arguments that it takes.
pub(crate) fn check_format(
    format: &str,
    count: usize,
    mut argument: impl FnMut(usize, Clause) -> Result<(), String>,
) -> Result<usize, String> {
    walk(format, count, |i, c| argument(i, c).map(|()| String::new())).map(|(_, used)| used)
}

pub(super) fn format<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(format), list] = args else { return None };
    if !list.is_list() {
        return None;
    }
    let items = match list.items() {
        Ok(items) => items,
        Err(e) => return Some(Err(e)),
    };
    let made = walk(format, items.len(), |i, clause| {
        if matches!(clause, Clause::Fixed(n) | Clause::Scientific(n) if n > MOST_DIGITS) {
            return Err(format!("could not parse formatting clause: precision above {MOST_DIGITS}"));
        }
        shown(clause, &items[i]).map_err(|e| format!("error during formatting: {e}"))
    });
    Some(made.map(|(text, _)| Value::text(text)).map_err(EvalError::new))
}

fn shown(clause: Clause, v: &Value<'_>) -> Result<String, String> {
    let refused = || clause.complaint(&v.type_name());
    Ok(match (clause, v) {
        (Clause::String, v) => string(v)?,
        (Clause::Decimal, Value::Int(i)) => i.to_string(),
        (Clause::Decimal, Value::Uint(u)) => u.to_string(),
        (Clause::Fixed(p), v) => fixed(float(v).ok_or_else(refused)?, p),
        (Clause::Scientific(p), v) => scientific(float(v).ok_or_else(refused)?, p),
        (Clause::Binary, Value::Bool(b)) => u8::from(*b).to_string(),
        (Clause::Binary, Value::Uint(u)) => format!("{u:b}"),
        (Clause::Binary, Value::Int(i)) => format!("{}{:b}", minus(*i), i.unsigned_abs()),
        (Clause::Octal, Value::Uint(u)) => format!("{u:o}"),
        (Clause::Octal, Value::Int(i)) => format!("{}{:o}", minus(*i), i.unsigned_abs()),
        (Clause::Hex { upper }, v) => {
            let text = match v {
                Value::Int(i) => format!("{}{:x}", minus(*i), i.unsigned_abs()),
                Value::Uint(u) => format!("{u:x}"),
                Value::String(s) => hex(s.as_bytes()),
                Value::Bytes(b) => hex(b),
                _ => return Err(refused()),
            };
            if upper { text.to_uppercase() } else { text }
        }
        _ => return Err(refused()),
    })
}

fn minus(i: i64) -> &'static str {
    if i < 0 { "-" } else { "" }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn float(v: &Value<'_>) -> Option<f64> {
    match v {
        Value::Double(d) => Some(*d),
        Value::String(s) => match &**s {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// A value as `%s` shows it.
fn string(v: &Value<'_>) -> Result<String, String> {
    match v {
        Value::Null => Ok("null".into()),
        v if v.is_list() => {
            let items = v.items().map_err(|e| e.to_string())?;
            let items: Result<Vec<String>, String> = items.iter().map(member).collect();
            Ok(format!("[{}]", items?.join(", ")))
        }
        v if v.is_map() => map(v),
        Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::Bool(_)
        | Value::String(_)
        | Value::Timestamp(_)
        | Value::Bytes(_)
        | Value::Duration(_)
        | Value::Type(_) => convert(v, &Type::String).map(|s| plain(&s)).map_err(|e| e.to_string()),
        _ => Err(Clause::String.complaint(&v.type_name())),
    }
}

fn map(v: &Value<'_>) -> Result<String, String> {
    let mut entries = Vec::new();
    for key in v.keys() {
        if !matches!(key, Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)) {
            return Err(format!("no formatting function for map key of type {}", key.type_name()));
        }
        let value = v.entry(&key).map_err(|e| e.to_string())?.unwrap_or(Value::Null);
        entries.push((member(&key)?, member(&value)?));
    }
    entries.sort();
    let entries: Vec<String> = entries.iter().map(|(k, v)| format!("{k}:{v}")).collect();
    Ok(format!("{{{}}}", entries.join(", ")))
}

/// A value inside a list or a map.
fn member(v: &Value<'_>) -> Result<String, String> {
    Ok(match v {
        Value::Timestamp(_) => format!("timestamp({})", api::go::quote(&string(v)?)),
        Value::Duration(_) => format!("duration({})", api::go::quote(&string(v)?)),
        Value::String(s) => api::go::quote(s),
        Value::Bytes(_) => format!("b{}", api::go::quote(&string(v)?)),
        Value::Double(d) if d.is_finite() => format!("{d:.6}"),
        Value::Double(d) if d.is_nan() => "\"NaN\"".into(),
        Value::Double(d) => format!("\"{}Inf\"", if *d > 0.0 { '+' } else { '-' }),
        Value::Optional(_) | Value::Opaque(_) | Value::Object(_) => {
            return Err(format!("no formatting function for {}", v.type_name()));
        }
        v => string(v)?,
    })
}
