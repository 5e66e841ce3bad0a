//! Values as texts.

use super::{Opaque, Text, Value, duration_text, number};

/// A value as an expression would write it; the entries of a map are in the order of their texts.
pub fn literal(v: &Value<'_>) -> String {
    match v {
        Value::Null => "null".into(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Uint(u) => format!("{u}u"),
        Value::Double(d) => double(*d),
        Value::String(s) => api::go::quote(s),
        Value::Bytes(b) => {
            let octets: String = b.iter().map(|b| format!("\\{b:03o}")).collect();
            format!("b\"{octets}\"")
        }
        Value::Timestamp(t) => format!("timestamp(\"{}\")", super::Time { offset: 0, ..*t }.format()),
        Value::Duration(d) => format!("duration(\"{}\")", duration_text(*d)),
        Value::Type(name) => name.to_string(),
        Value::Optional(None) => "optional.none()".into(),
        Value::Optional(Some(v)) => format!("optional.of({})", literal(v)),
        Value::Object(o) => {
            let fields: Vec<String> = o.fields.iter().map(|(n, v)| format!("{n}: {}", literal(v))).collect();
            format!("{}{{{}}}", o.type_name, fields.join(", "))
        }
        Value::Opaque(o) => opaque(o),
        v if v.is_list() => {
            let items = v.items().unwrap_or_default();
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("[{}]", items.join(", "))
        }
        v => {
            let mut entries: Vec<String> = v
                .keys()
                .iter()
                .map(|k| {
                    let value = v.entry(k).ok().flatten().unwrap_or(Value::Null);
                    format!("{}: {}", literal(k), literal(&value))
                })
                .collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

fn double(d: f64) -> String {
    if d.is_nan() {
        return "double(\"NaN\")".into();
    }
    if d.is_infinite() {
        return format!("double(\"{}Infinity\")", if d < 0.0 { "-" } else { "" });
    }
    let text = number::plain(d);
    if text.contains('.') { text } else { format!("{text}.0") }
}

fn opaque(o: &Opaque) -> String {
    match o {
        Opaque::Quantity(q) => format!("quantity({q})"),
        Opaque::Ip(ip) => format!("ip({ip})"),
        Opaque::Cidr(c) => format!("cidr({}/{})", c.address, c.bits),
        Opaque::Url(u) => format!("url({u})"),
        Opaque::Semver(v) => format!("semver({v})"),
        Opaque::Format(f) => format!("format({})", f.name),
        other => other.type_name().into(),
    }
}

/// A value as it stands in an error's text.
pub(crate) fn plain(v: &Value<'_>) -> String {
    match v {
        Value::String(Text::Borrowed(s)) => (*s).to_owned(),
        Value::String(Text::Shared(s)) => s.to_string(),
        Value::Uint(u) => u.to_string(),
        Value::Double(d) => number::shortest(*d),
        other => literal(other),
    }
}
