//! Label selectors (`k8s.io/apimachinery/pkg/labels`).

use std::fmt;

use super::SelectorError;
use crate::names;
use crate::tree::Text;

/// The relation that a requirement demands of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `=`
    Equals,
    /// `==`
    DoubleEquals,
    /// `!=`
    NotEquals,
    /// `in (…)`
    In,
    /// `notin (…)`
    NotIn,
    /// The key alone.
    Exists,
    /// `!key`
    DoesNotExist,
    /// `>`
    GreaterThan,
    /// `<`
    LessThan,
}

/// One requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: Text,
    /// The relation that the label must have to the values.
    pub operator: Operator,
    /// The values, sorted, without repetition.
    pub values: Vec<Text>,
}

impl Requirement {
    /// Whether a label's value (or absence) satisfies the requirement.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let listed = |v: &str| self.values.iter().any(|x| x == v);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(listed),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let number = |s: &str| s.parse::<i64>().ok();
                let (Some(have), Some(bound)) =
                    (value.and_then(number), self.values.first().and_then(|v| number(v)))
                else {
                    return false;
                };
                if self.operator == Operator::GreaterThan { have > bound } else { have < bound }
            }
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// A label selector. All of its requirements must hold; without requirements it selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    /// The requirements, sorted by key.
    pub requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Closed,
    Comma,
    Not,
    DoubleEquals,
    End,
    Equals,
    Greater,
    Word,
    Less,
    NotEquals,
    Open,
}

fn scan(text: &str) -> Vec<(Token, &str)> {
    let special = |b: u8| b"=!(),><".contains(&b);
    let blank = |b: u8| b" \t\r\n".contains(&b);
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut i = 0;
    while i < bytes.len() {
        let b = bytes[i];
        if blank(b) {
            i += 1;
            continue;
        }
        let start = i;
        let token = if special(b) {
            let two = &bytes[i..(i + 2).min(bytes.len())];
            let (token, len) = match (b, two) {
                (_, b"==") => (Token::DoubleEquals, 2),
                (_, b"!=") => (Token::NotEquals, 2),
                (b'=', _) => (Token::Equals, 1),
                (b'!', _) => (Token::Not, 1),
                (b'(', _) => (Token::Open, 1),
                (b')', _) => (Token::Closed, 1),
                (b',', _) => (Token::Comma, 1),
                (b'>', _) => (Token::Greater, 1),
                _ => (Token::Less, 1),
            };
            i += len;
            token
        } else {
            while i < bytes.len() && !special(bytes[i]) && !blank(bytes[i]) {
                i += 1;
            }
            Token::Word
        };
        out.push((token, &text[start..i]));
    }
    out.push((Token::End, ""));
    out
}

struct Parser<'a> {
    items: Vec<(Token, &'a str)>,
    at: usize,
}

fn fail<T>(text: String) -> Result<T, SelectorError> {
    Err(SelectorError(text))
}

impl<'a> Parser<'a> {
    fn peek(&self) -> (Token, &'a str) {
        self.items.get(self.at).copied().unwrap_or((Token::End, ""))
    }
    fn next(&mut self) -> (Token, &'a str) {
        let item = self.peek();
        self.at += 1;
        item
    }

    fn all(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut out = Vec::new();
        loop {
            match self.peek() {
                (Token::Word | Token::Not, _) => {
                    out.push(
                        self.requirement()
                            .map_err(|e| SelectorError(format!("unable to parse requirement: {e}")))?,
                    );
                    match self.next() {
                        (Token::End, _) => return Ok(out),
                        (Token::Comma, _) => {
                            let (t, literal) = self.peek();
                            if t != Token::Word && t != Token::Not {
                                return fail(format!("found '{literal}', expected: identifier after ','"));
                            }
                        }
                        (_, literal) => {
                            return fail(format!("found '{literal}', expected: ',' or 'end of string'"));
                        }
                    }
                }
                (Token::End, _) => return Ok(out),
                (_, literal) => {
                    return fail(format!("found '{literal}', expected: !, identifier, or 'end of string'"));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let (mut token, mut literal) = self.next();
        let negated = token == Token::Not;
        if negated {
            (token, literal) = self.next();
        }
        if token != Token::Word {
            return fail(format!("found '{literal}', expected: identifier"));
        }
        let key = literal;
        let wrong = names::qualified_name(key);
        if !wrong.is_empty() {
            return fail(format!("<nil>: Invalid value: {key:?}: {}", wrong.join("; ")));
        }
        if negated {
            return Ok(Requirement { key: key.into(), operator: Operator::DoesNotExist, values: Vec::new() });
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(Requirement { key: key.into(), operator: Operator::Exists, values: Vec::new() });
        }
        let operator = match self.next() {
            (Token::Word, "in") => Operator::In,
            (Token::Word, "notin") => Operator::NotIn,
            (Token::Equals, _) => Operator::Equals,
            (Token::DoubleEquals, _) => Operator::DoubleEquals,
            (Token::NotEquals, _) => Operator::NotEquals,
            (Token::Greater, _) => Operator::GreaterThan,
            (Token::Less, _) => Operator::LessThan,
            (_, literal) => {
                return fail(format!("found '{literal}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        };
        let mut values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?.into()],
        };
        values.sort();
        values.dedup();
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) && values[0].parse::<i64>().is_err()
        {
            return fail(format!(
                "values[0]: Invalid value: {:?}: for 'Gt', 'Lt' operators, the value must be an integer",
                values[0].as_str()
            ));
        }
        for (i, v) in values.iter().enumerate() {
            let wrong = names::label_value(v);
            if !wrong.is_empty() {
                return fail(format!(
                    "values[{i}][{key}]: Invalid value: {:?}: {}",
                    v.as_str(),
                    wrong.join("; ")
                ));
            }
        }
        Ok(Requirement { key: key.into(), operator, values })
    }

    fn exact_value(&mut self) -> Result<&'a str, SelectorError> {
        match self.peek() {
            (Token::End | Token::Comma, _) => Ok(""),
            (Token::Word, literal) => {
                self.at += 1;
                Ok(literal)
            }
            (_, literal) => fail(format!("found '{literal}', expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<Text>, SelectorError> {
        let (token, literal) = self.next();
        if token != Token::Open {
            return fail(format!("found '{literal}' expected: '('"));
        }
        let mut out: Vec<Text> = Vec::new();
        match self.peek() {
            (Token::Closed, _) => {
                self.at += 1;
                return Ok(vec![Text::default()]);
            }
            (Token::Word | Token::Comma, _) => {}
            (_, literal) => return fail(format!("found '{literal}', expected: ',', ')' or identifier")),
        }
        loop {
            match self.next() {
                (Token::Word, literal) => {
                    out.push(literal.into());
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Closed, _) => break,
                        (_, literal) => return fail(format!("found '{literal}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if out.is_empty() {
                        out.push(Text::default());
                    }
                    match self.peek().0 {
                        Token::Closed => {
                            out.push(Text::default());
                            break;
                        }
                        Token::Comma => out.push(Text::default()),
                        _ => {}
                    }
                }
                (_, literal) => return fail(format!("found '{literal}', expected: ',', or identifier")),
            }
        }
        self.at += 1; // the closing parenthesis
        Ok(out)
    }
}

impl Selector {
    /// Reads the text form; empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        // Go's scanner takes NUL for the end of the text.
        let text = text.split('\0').next().unwrap_or_default();
        let mut requirements = Parser { items: scan(text), at: 0 }.all()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }
    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
    /// Whether labels satisfy every requirement; `get` gives a label's value.
    pub fn matches<'l>(&self, get: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.requirements.iter().all(|r| r.matches(get(&r.key)))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            r.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selector: &str, labels: &[(&str, &str)], expected: bool) {
        let s = Selector::parse(selector).unwrap();
        let got = s.matches(|k| labels.iter().find(|l| l.0 == k).map(|l| l.1));
        assert_eq!(got, expected, "{selector} on {labels:?}");
    }

    #[test]
    fn matches_as_upstream() {
        let l = &[("x", "y"), ("n", "5")][..];
        check("", l, true);
        check("x=y", l, true);
        check("x==y,n=5", l, true);
        check("x!=y", l, false);
        check("z!=y", l, true);
        check("x in (a, y)", l, true);
        check("x notin (a,b)", l, true);
        check("z notin (a)", l, true);
        check("x", l, true);
        check("!x", l, false);
        check("!z", l, true);
        check("n>4", l, true);
        check("n<4", l, false);
        check("x=", l, false);
        check("in in (in)", &[("in", "in")], true);
        check("x in ()", &[("x", "")], true);
        check("x in (a,,)", &[("x", "")], true);
    }

    #[test]
    fn refuses_with_upstreams_words() {
        for (text, error) in [
            ("x=a||y=b", "unable to parse requirement: values[0][x]: Invalid value: \"a||y\""),
            ("x==a==b", "found '==', expected: ',' or 'end of string'"),
            ("!x=a", "found '=', expected: ',' or 'end of string'"),
            ("x<a", "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators"),
            (",x", "found ',', expected: !, identifier, or 'end of string'"),
            ("x,", "found '', expected: identifier after ','"),
            ("x in a", "unable to parse requirement: found 'a' expected: '('"),
            ("x y", "unable to parse requirement: found 'y', expected: in, notin, =, ==, !=, gt, lt"),
            ("a b=c", "unable to parse requirement: found 'b', expected:"),
            ("-a", "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of"),
        ] {
            let got = Selector::parse(text).unwrap_err().to_string();
            assert!(got.starts_with(error), "{text}: {got}");
        }
    }

    #[test]
    fn writes_itself() {
        for text in ["x=y,z in (a,b)", "!a,b,c!=d", "a>5"] {
            assert_eq!(Selector::parse(text).unwrap().to_string(), text);
        }
    }
}
