//! Formats that have a name.

use api::names as rules;

use crate::value::{NamedFormat, Opaque, Value};

use super::{Function, Outcome, lists, url};

macro_rules! entry {
    ($function:literal, $name:literal, $size:expr, $check:expr) => {
        NamedFormat { function: $function, name: $name, regex_size: $size, check: $check }
    };
}

static FORMATS: &[NamedFormat] = &[
    entry!("dns1123Label", "DNS1123Label", 30, |s| rules::name_label(s, false)),
    entry!("dns1123Subdomain", "DNS1123Subdomain", 60, |s| rules::name_subdomain(s, false)),
    entry!("dns1035Label", "DNS1035Label", 30, |s| rules::name_1035(s, false)),
    entry!("qualifiedName", "QualifiedName", 60, rules::qualified_name),
    entry!("dns1123LabelPrefix", "DNS1123LabelPrefix", 30, |s| rules::name_label(s, true)),
    entry!("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", 60, |s| rules::name_subdomain(s, true)),
    entry!("dns1035LabelPrefix", "DNS1035LabelPrefix", 30, |s| rules::name_1035(s, true)),
    entry!("labelValue", "LabelValue", 40, rules::label_value),
    entry!("uri", "URI", 1103, |s| url::request_uri(s).err().into_iter().collect()),
    entry!("uuid", "uuid", 70, |s| complaint(uuid(s), "does not match the UUID format")),
    entry!("byte", "byte", 84, |s| complaint(base64(s), "invalid base64")),
    entry!("date", "date", 71, |s| complaint(date(s), "invalid date")),
    entry!("datetime", "datetime", 71, |s| complaint(date_time(s), "invalid datetime")),
];

fn complaint(holds: bool, text: &str) -> Vec<String> {
    if holds { Vec::new() } else { vec![text.to_owned()] }
}

fn uuid(s: &str) -> bool {
    let bare: Vec<&str> = s.split('-').collect();
    let lengths: Vec<usize> = bare.iter().map(|p| p.len()).collect();
    let shape = lengths == [8, 4, 4, 4, 12] || s.len() == 32 && bare.len() == 1;
    shape && bare.iter().all(|p| p.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn base64(s: &str) -> bool {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(s).is_ok()
}

fn date(s: &str) -> bool {
    s.len() == 10 && s.parse::<jiff::civil::Date>().is_ok()
}

fn date_time(s: &str) -> bool {
    let s = s.to_lowercase();
    let Some((day, rest)) = s.split_once('t').filter(|(d, _)| date(d)) else { return false };
    let clock = rest.split('t').next().unwrap_or_default();
    let Some((clock, tail)) = clock.split_at_checked(8) else { return false };
    let parts: Vec<&str> = clock.split(':').collect();
    let below = |p: &str, most: u8| p.len() == 2 && p.parse::<u8>().is_ok_and(|n| n <= most);
    let [h, m, second] = parts[..] else { return false };
    let fraction = tail.get(1..).map_or(0, |t| t.bytes().take_while(u8::is_ascii_digit).count());
    let zone = if fraction > 0 { &tail[1 + fraction..] } else { tail };
    let offset = |z: &str| {
        z.len() == 6
            && z.starts_with(['+', '-'])
            && z.as_bytes()[3] == b':'
            && z[1..].bytes().enumerate().all(|(i, b)| i == 2 || b.is_ascii_digit())
    };
    !day.is_empty() && below(h, 23) && below(m, 59) && below(second, 59) && (zone == "z" || offset(zone))
}

fn by_function(name: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|f| f.function == name)
}

fn value<'a>(of: &'static NamedFormat) -> Value<'a> {
    Value::opaque(Opaque::Format(of))
}

/// The function without arguments that gives a format.
pub(super) fn constant(name: &str) -> Option<Function> {
    macro_rules! constants {
        ($($name:literal)*) => {
            match name.strip_prefix("format.")? {
                $($name => Some(|_| Some(Ok(value(by_function($name)?)))),)*
                _ => None,
            }
        };
    }
    constants!(
        "dns1123Label" "dns1123Subdomain" "dns1035Label" "qualifiedName" "dns1123LabelPrefix"
        "dns1123SubdomainPrefix" "dns1035LabelPrefix" "labelValue" "uri" "uuid" "byte" "date" "datetime"
    )
}

pub(super) fn named<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(name)] = args else { return None };
    Some(Ok(by_function(name).map_or(Value::Optional(None), |f| Value::some(value(f)))))
}

pub(super) fn validate<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Opaque(of), Value::String(s)] = args else { return None };
    let Opaque::Format(format) = &**of else { return None };
    let complaints = (format.check)(s);
    Some(Ok(if complaints.is_empty() {
        Value::Optional(None)
    } else {
        Value::some(lists::texts(complaints))
    }))
}
