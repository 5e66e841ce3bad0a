//! Semantic versions.

use std::cmp::Ordering;
use std::fmt;

use crate::error::EvalError;
use crate::value::{Opaque, Semver, Value};

use super::outcome::Outcome;

fn failed<T>(text: String) -> Result<T, EvalError> {
    Err(EvalError::new(text))
}

fn number(text: &str, which: &str) -> Result<u64, EvalError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return failed(format!("Invalid character(s) found in {which} number {}", api::go::quote(text)));
    }
    if text.len() > 1 && text.starts_with('0') {
        return failed(format!(
            "{} number must not contain leading zeroes {}",
            capital(which),
            api::go::quote(text)
        ));
    }
    text.parse().or_else(|_| {
        failed(format!("strconv.ParseUint: parsing {}: value out of range", api::go::quote(text)))
    })
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_ascii_uppercase() + rest
}

fn parse(text: &str) -> Result<Semver, EvalError> {
    if text.is_empty() {
        return failed("Version string empty".into());
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, rest] = parts[..] else {
        return failed("No Major.Minor.Patch elements found".into());
    };
    let (major, minor) = (number(major, "major")?, number(minor, "minor")?);
    let (rest, build) = rest.split_once('+').map_or((rest, None), |(r, b)| (r, Some(b)));
    let (patch, pre) = rest.split_once('-').map_or((rest, None), |(p, e)| (p, Some(e)));
    let mut out = Semver { major, minor, patch: number(patch, "patch")?, ..Semver::default() };
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    for part in pre.into_iter().flat_map(|p| p.split('.')) {
        if part.is_empty() {
            return failed("Prerelease is empty".into());
        }
        if part.bytes().all(|b| b.is_ascii_digit()) {
            if part.len() > 1 && part.starts_with('0') {
                return failed(format!(
                    "Numeric PreRelease version must not contain leading zeroes {}",
                    api::go::quote(part)
                ));
            }
        } else if !part.bytes().all(word) {
            return failed(format!("Invalid character(s) found in prerelease {}", api::go::quote(part)));
        }
        out.pre.push(part.to_owned());
    }
    for part in build.into_iter().flat_map(|b| b.split('.')) {
        if part.is_empty() {
            return failed("Build meta data is empty".into());
        }
        if !part.bytes().all(word) {
            return failed(format!("Invalid character(s) found in build meta data {}", api::go::quote(part)));
        }
        out.build.push(part.to_owned());
    }
    Ok(out)
}

/// Makes a version of what is nearly one.
fn normalized(text: &str) -> Result<Semver, EvalError> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
    for part in &mut parts {
        if part.len() > 1 {
            let bare = part.trim_start_matches('0');
            let digit = bare.starts_with(|c: char| c.is_ascii_digit());
            *part = if digit { bare.to_owned() } else { format!("0{bare}") };
        }
    }
    if parts.len() < 3 {
        if parts.last().is_some_and(|p| p.contains(['+', '-'])) {
            return failed("short version cannot contain PreRelease/Build meta data".into());
        }
        parts.resize(3, "0".into());
    }
    parse(&parts.join("."))
}

fn read(args: &[Value<'_>]) -> Option<Result<Semver, EvalError>> {
    match args {
        [Value::String(s)] | [Value::String(s), Value::Bool(false)] => Some(parse(s)),
        [Value::String(s), Value::Bool(true)] => Some(normalized(s)),
        _ => None,
    }
}

pub(super) fn semver<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    Some(read(args)?.map(|v| Value::opaque(Opaque::Semver(v))))
}

pub(super) fn is_semver<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    Some(Ok(Value::Bool(read(args)?.is_ok())))
}

pub(super) fn part<'a>(args: &[Value<'a>], of: fn(&Semver) -> u64) -> Outcome<'a> {
    let [Value::Opaque(o)] = args else { return None };
    match &**o {
        Opaque::Semver(v) => Some(Ok(Value::Int(of(v) as i64))),
        _ => None,
    }
}

impl Semver {
    /// Reads a version in its strict form.
    ///
    /// # Errors
    /// In upstream's words, if the text is none.
    pub fn parse(text: &str) -> Result<Self, EvalError> {
        parse(text)
    }
    /// Which version comes first; the part behind `+` does not count.
    pub(crate) fn precedence(&self, other: &Self) -> Ordering {
        let core = |v: &Self| (v.major, v.minor, v.patch);
        let order = core(self).cmp(&core(other));
        // A version comes after those that prepare it.
        order.then_with(|| other.pre.is_empty().cmp(&self.pre.is_empty()).reverse()).then_with(|| {
            for (a, b) in self.pre.iter().zip(&other.pre) {
                let order = match (a.parse::<u64>(), b.parse::<u64>()) {
                    (Ok(a), Ok(b)) => a.cmp(&b),
                    (Ok(_), Err(_)) => Ordering::Less,
                    (Err(_), Ok(_)) => Ordering::Greater,
                    _ => a.cmp(b),
                };
                if order.is_ne() {
                    return order;
                }
            }
            self.pre.len().cmp(&other.pre.len())
        })
    }
}

impl fmt::Display for Semver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        for (mark, parts) in [('-', &self.pre), ('+', &self.build)] {
            if !parts.is_empty() {
                write!(f, "{mark}{}", parts.join("."))?;
            }
        }
        Ok(())
    }
}
