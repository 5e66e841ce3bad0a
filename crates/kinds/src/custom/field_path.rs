//! Paths of fields in definitions: `.spec.a`, `['a key']`. The rules of upstream's `cel.ValidFieldPath`.

use std::fmt::Write;

use api::view::View;

/// The next step of a path: a name, and the rest of the path.
fn step(path: &str, allows_brackets: bool) -> Result<(String, &str), String> {
    const END: &str = "unexpected end of JSON path";
    if let Some(rest) = path.strip_prefix('.') {
        // The token after the point is a name, or a delimiter that nobody has as a name.
        let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
        return match rest.chars().next() {
            None => Err(END.into()),
            Some('\'') => quoted(rest).map(|(name, rest)| (format!("'{name}'"), rest)),
            Some(_) if end == 0 => Ok((rest[..1].to_owned(), &rest[1..])),
            Some(_) => Ok((rest[..end].to_owned(), &rest[end..])),
        };
    }
    let Some(rest) = path.strip_prefix('[') else {
        let end = path.find(['.', '[', ']']).unwrap_or(path.len()).max(1);
        return Err(format!("expected [ or . but got: {}", path.get(..end).unwrap_or(path)));
    };
    if !allows_brackets {
        return Err("array notation is not allowed".into());
    }
    if rest.is_empty() {
        return Err(END.into());
    }
    if !rest.starts_with('\'') {
        let end = rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1);
        return Err(format!("expected single quoted string but got {}", rest.get(..end).unwrap_or(rest)));
    }
    let (name, rest) = quoted(rest)?;
    let name = unescaped(name).ok_or("invalid string literal: invalid syntax")?;
    if rest.is_empty() {
        return Err(END.into());
    }
    let end = rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1);
    match rest.strip_prefix(']') {
        Some(rest) => Ok((name, rest)),
        None => Err(format!("expected ] but got {}", rest.get(..end).unwrap_or(rest))),
    }
}

/// The text in quotes at the start, without them, and what follows.
fn quoted(text: &str) -> Result<(&str, &str), String> {
    let inner = text.get(1..).unwrap_or_default();
    let end = inner
        .char_indices()
        .find(|(i, c)| *c == '\'' && !inner[..*i].ends_with('\\'))
        .map(|(i, _)| i)
        .ok_or("unexpected end of JSON path")?;
    Ok((&inner[..end], &inner[end + 1..]))
}

/// A text without its escapes, which are those of Go.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next()? {
            c @ ('\\' | '\'') => c,
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'x' => code(&mut chars, 2)?,
            'u' => code(&mut chars, 4)?,
            'U' => code(&mut chars, 8)?,
            _ => return None,
        });
    }
    Some(out)
}

/// The character with a number of so many hexadecimal digits.
fn code(chars: &mut std::str::Chars<'_>, digits: usize) -> Option<char> {
    let number = chars
        .by_ref()
        .take(digits)
        .try_fold(0, |n, c| u32::checked_mul(n, 16)?.checked_add(c.to_digit(16)?))?;
    char::from_u32(number)
}

/// A stop on a path.
pub(super) enum Stop<T> {
    /// A property.
    Property(T),
    /// A value of a map.
    Entry(T),
}

/// Follows a path: the path as errors print it, and what stands at its end. `next` says what stands below something under
/// a name; `None` if nothing does.
pub(super) fn follow<T>(
    path: &str,
    allows_brackets: bool,
    root: T,
    next: impl Fn(&T, &str) -> Option<Stop<T>>,
) -> Result<(String, T), String> {
    let (mut rest, mut at) = (path, root);
    let mut out = String::new();
    while !rest.is_empty() {
        let (name, below) = step(rest, allows_brackets)?;
        rest = below;
        // Writing to a String does not fail.
        at = match next(&at, &name).ok_or("does not refer to a valid field")? {
            Stop::Property(id) => {
                let dot = if out.is_empty() { "" } else { "." };
                let _ = write!(out, "{dot}{name}");
                id
            }
            Stop::Entry(id) => {
                let _ = write!(out, "[{name}]");
                id
            }
        };
    }
    Ok((out, at))
}

/// The schema at a path below a `JSONSchemaProps`, with the path as errors print it. An error says what is wrong with
/// the path.
pub(crate) fn valid_path<'a>(
    schema: View<'a>,
    path: &str,
    allows_brackets: bool,
) -> Result<(String, View<'a>), String> {
    follow(path, allows_brackets, schema, |at, name| {
        if at.len("properties") > 0 {
            let property = at.map("properties")?.get(name)?;
            Some(Stop::Property(at.of(property)))
        } else {
            at.opt("additionalProperties").map(Stop::Entry)
        }
    })
}
