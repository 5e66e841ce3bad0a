//! Functions of texts.

use crate::error::EvalError;
use crate::value::{Text, Value, plain};

use super::Outcome;

fn text<'a>(s: impl Into<String>) -> Outcome<'a> {
    Some(Ok(Value::text(s.into())))
}

fn failed<'a>(s: String) -> Outcome<'a> {
    Some(Err(EvalError::new(s)))
}

fn out_of_range<'a>(index: i64) -> Outcome<'a> {
    failed(format!("index out of range: {index}"))
}

fn bool<'a>(args: &[Value<'a>], of: fn(&str, &str) -> bool) -> Outcome<'a> {
    match args {
        [Value::String(a), Value::String(b)] => Some(Ok(Value::Bool(of(a, b)))),
        [Value::String(_), _] => Some(Err(EvalError::no_overload())),
        _ => None,
    }
}

pub(super) fn contains<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    bool(args, |a, b| a.contains(b))
}
pub(super) fn starts_with<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    bool(args, |a, b| a.starts_with(b))
}
pub(super) fn ends_with<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    bool(args, |a, b| a.ends_with(b))
}

pub(super) fn char_at<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s), Value::Int(i)] = args else { return None };
    let length = s.chars().count();
    match usize::try_from(*i) {
        Ok(at) if at < length => text(s.chars().nth(at).map(String::from).unwrap_or_default()),
        Ok(at) if at == length => text(""),
        _ => out_of_range(*i),
    }
}

/// The place of a text in another one, in characters.
fn position(s: &str, part: &str) -> Option<usize> {
    s.find(part).map(|at| s[..at].chars().count())
}

/// The byte at which a character begins.
fn byte(s: &str, chars: usize) -> usize {
    s.char_indices().nth(chars).map_or(s.len(), |(i, _)| i)
}

pub(super) fn index_of<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let (s, part, from) = match args {
        [Value::String(s), Value::String(part)] => (s, part, 0),
        [Value::String(s), Value::String(part), Value::Int(from)] => (s, part, *from),
        _ => return super::lists::index_of(args),
    };
    if part.is_empty() {
        return Some(Ok(Value::Int(from)));
    }
    let Ok(start) = usize::try_from(from) else { return out_of_range(from) };
    let found = position(&s[byte(s, start)..], part).map_or(-1, |at| (at + start) as i64);
    Some(Ok(Value::Int(found)))
}

pub(super) fn last_index_of<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let (s, part, from) = match args {
        [Value::String(s), Value::String(part)] => (s, part, None),
        [Value::String(s), Value::String(part), Value::Int(from)] => (s, part, Some(*from)),
        _ => return super::lists::last_index_of(args),
    };
    let length = s.chars().count();
    if part.is_empty() {
        return Some(Ok(Value::Int(from.unwrap_or(length as i64))));
    }
    if from.is_none() && s.len() < part.len() {
        return Some(Ok(Value::Int(-1)));
    }
    let from = from.unwrap_or(length as i64 - 1);
    let Ok(last) = usize::try_from(from) else { return out_of_range(from) };
    if last >= length {
        return Some(Ok(Value::Int(-1)));
    }
    let end = byte(s, last + part.chars().count());
    let found = s[..end].rfind(&**part).map_or(-1, |at| s[..at].chars().count() as i64);
    Some(Ok(Value::Int(found)))
}

pub(super) fn lower<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return None };
    text(s.to_ascii_lowercase())
}
pub(super) fn upper<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return None };
    text(s.to_ascii_uppercase())
}
/// Go's idea of white space is Unicode's.
pub(super) fn trim<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return None };
    text(s.trim())
}

pub(super) fn replace<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::String(s), Value::String(old), Value::String(new)] => text(s.replace(&**old, new)),
        [Value::String(s), Value::String(old), Value::String(new), Value::Int(n)] => {
            text(usize::try_from(*n).map_or_else(|_| s.replace(&**old, new), |n| s.replacen(&**old, new, n)))
        }
        _ => None,
    }
}

/// Go splits between characters where the separator is empty.
fn parts(s: &str, separator: &str, most: Option<usize>) -> Vec<String> {
    let owned = |s: &str| s.to_owned();
    match (separator, most) {
        (_, Some(0)) => Vec::new(),
        ("", most) => {
            let most = most.unwrap_or(usize::MAX);
            let mut out = Vec::new();
            let mut rest = s;
            while let Some(c) = rest.chars().next() {
                if out.len() + 1 == most {
                    out.push(rest.to_owned());
                    return out;
                }
                out.push(c.to_string());
                rest = &rest[c.len_utf8()..];
            }
            out
        }
        (sep, None) => s.split(sep).map(owned).collect(),
        (sep, Some(n)) => s.splitn(n, sep).map(owned).collect(),
    }
}

pub(super) fn split<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let (s, separator, most) = match args {
        [Value::String(s), Value::String(sep)] => (s, sep, None),
        [Value::String(s), Value::String(sep), Value::Int(n)] => (s, sep, usize::try_from(*n).ok()),
        _ => return None,
    };
    Some(Ok(Value::list(parts(s, separator, most).into_iter().map(Value::text).collect())))
}

pub(super) fn substring<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let (s, start, end) = match args {
        [Value::String(s), Value::Int(start)] => (s, *start, None),
        [Value::String(s), Value::Int(start), Value::Int(end)] => (s, *start, Some(*end)),
        _ => return None,
    };
    let length = s.chars().count() as i64;
    if let Some(end) = end.filter(|end| start > *end) {
        return failed(format!("invalid substring range. start: {start}, end: {end}"));
    }
    let end = end.unwrap_or(length);
    if let Some(bad) = [start, end].into_iter().find(|i| !(0..=length).contains(i)) {
        return out_of_range(bad);
    }
    text(&s[byte(s, start as usize)..byte(s, end as usize)])
}

pub(super) fn join<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let (list, separator) = match args {
        [list] if list.is_list() => (list, Text::Borrowed("")),
        [list, Value::String(separator)] if list.is_list() => (list, separator.clone()),
        _ => return None,
    };
    let items = match list.items() {
        Ok(items) => items,
        Err(e) => return Some(Err(e)),
    };
    let mut out = String::new();
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(&separator);
        }
        let Value::String(s) = item else { return failed(format!("join: invalid input: {}", plain(item))) };
        out.push_str(s);
    }
    text(out)
}

pub(super) fn quote<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return None };
    let mut out = String::from('"');
    for c in s.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    text(out)
}

/// Escapes a key for a JSON pointer.
pub(super) fn escape_key<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return None };
    text(s.replace('~', "~0").replace('/', "~1"))
}
