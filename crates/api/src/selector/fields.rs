//! Field selectors (`k8s.io/apimachinery/pkg/fields`).

use super::SelectorError;
use crate::tree::Text;

/// One term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The field's label, e.g. `spec.nodeName`.
    pub field: Text,
    /// The value asked for.
    pub value: Text,
    /// Whether the value must differ.
    pub negated: bool,
}

/// A field selector. All of its terms must hold; without terms it selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    /// The terms.
    pub terms: Vec<Term>,
}

/// Splits at commas that no backslash escapes.
fn split(text: &str) -> Vec<&str> {
    let (mut out, mut start, mut escaped) = (Vec::new(), 0, false);
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                out.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

fn unescape(value: &str) -> Result<Text, SelectorError> {
    if !value.contains(['\\', ',', '=']) {
        return Ok(value.into());
    }
    let mut out = Text::default();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => {
                    return Err(SelectorError(format!(
                        "invalid field selector: invalid escape sequence: \\{c}"
                    )));
                }
                None => {
                    return Err(SelectorError("invalid field selector: invalid escape sequence: \\".into()));
                }
            },
            ',' | '=' => {
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {c}"
                )));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

impl Selector {
    /// Reads the text form; empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parts = split(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|p| !p.is_empty()) {
            let found = part.char_indices().find_map(|(i, _)| {
                ["!=", "==", "="].into_iter().find(|op| part[i..].starts_with(op)).map(|op| (i, op))
            });
            let Some((i, op)) = found else {
                return Err(SelectorError(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            let value = unescape(&part[i + op.len()..])?;
            terms.push(Term { field: part[..i].into(), value, negated: op == "!=" });
        }
        Ok(Self { terms })
    }
    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
    /// The value a field must have, if a term says so.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|t| !t.negated && t.field == field).map(|t| t.value.as_str())
    }
    /// Whether fields satisfy every term; `get` gives a field's value, "" for an unset one.
    pub fn matches<'f>(&self, get: impl Fn(&str) -> &'f str) -> bool {
        self.terms.iter().all(|t| (get(&t.field) == t.value) != t.negated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_matches() {
        let check = |text: &str, expected: bool| {
            let s = Selector::parse(text).unwrap();
            let get = |f: &str| match f {
                "a" => "1",
                "b" => "x,y=z",
                _ => "",
            };
            assert_eq!(s.matches(get), expected, "{text}");
        };
        check("", true);
        check("a=1", true);
        check("a==1,c=", true);
        check("a!=1", false);
        check(r"b=x\,y\=z", true);
        for (text, error) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("a=b=c", "invalid field selector: unescaped character in value: ="),
            (r"a=\q", r"invalid field selector: invalid escape sequence: \q"),
        ] {
            assert_eq!(Selector::parse(text).unwrap_err().to_string(), error);
        }
    }
}
