//! The functions that take a regular expression.

pub(crate) use api::re2::compile;

use crate::error::EvalError;
use crate::value::{Text, Value};

use super::lists;
use super::outcome::{Function, Outcome};

/// A compiled regular expression.
pub(crate) type Pattern = regex::Regex;

/// The functions that take an expression.
pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "matches" => |args| with(args, "", |p, args| find_with("matches", p, args)),
        "find" => |args| with(args, "Illegal regex: ", |p, args| find_with("find", p, args)),
        _ => |args| with(args, "Illegal regex: ", |p, args| find_with("findAll", p, args)),
    })
}

fn with<'a>(args: &[Value<'a>], label: &str, run: fn(&Pattern, &[Value<'a>]) -> Outcome<'a>) -> Outcome<'a> {
    let Some(Value::String(pattern)) = args.get(1) else { return None };
    match compile(pattern) {
        Ok(pattern) => run(&pattern, args),
        Err(e) => Some(Err(EvalError::new(format!("{label}{e}")))),
    }
}

/// Runs one of the functions with an expression that is compiled.
pub(crate) fn find_with<'a>(name: &str, pattern: &Pattern, args: &[Value<'a>]) -> Outcome<'a> {
    let Some(Value::String(s)) = args.first() else { return None };
    let cut = |from: usize, to: usize| match s {
        Text::Borrowed(s) => Value::String(Text::Borrowed(&s[from..to])),
        Text::Shared(s) => Value::text(&s[from..to]),
    };
    Some(Ok(match name {
        "matches" => Value::Bool(pattern.is_match(s)),
        "find" => pattern.find(s).map_or(Value::text(""), |m| cut(m.start(), m.end())),
        _ => {
            let most = match args.get(2) {
                None => usize::MAX,
                Some(Value::Int(n)) => usize::try_from(*n).unwrap_or(usize::MAX),
                Some(_) => return None,
            };
            let all = pattern.find_iter(s).take(most);
            lists::texts(all.map(|m| m.as_str().to_owned()))
        }
    }))
}
