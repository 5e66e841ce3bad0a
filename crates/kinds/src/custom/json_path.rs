//! JSONPath as kubectl and definitions use it (`client-go/util/jsonpath`).

use std::cmp::Ordering;

use api::{Map, Node, Text};

/// A step of a path.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// A field of an object; of a list, that of each element.
    Field(Text),
    /// The elements from one index to another, in steps.
    Slice { from: Option<i64>, to: Option<i64>, step: i64, one: bool },
    /// All elements or values.
    All,
    /// The value and everything below it.
    Below,
    /// The elements for which a comparison holds.
    Filter(Box<Filter>),
    /// The results of several paths.
    Union(Vec<Vec<Step>>),
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Operand,
    /// The comparison; `None` asks whether the left one is there.
    right: Option<(Compare, Operand)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(Vec<Step>),
    Value(Node),
}

/// The greatest number of values that a step may find.
const MOST: usize = 10_000;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

impl JsonPath {
    /// Parses a path, such as `.spec.replicas` or `.status.conditions[?(@.type=="Ready")].status`. The error says what
    /// is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { text: text.as_bytes(), at: 0, depth: 0 };
        let steps = parser.steps(true)?;
        if parser.at < parser.text.len() {
            return Err(format!(
                "unrecognized character in action: {:?}",
                text.get(parser.at..).unwrap_or_default()
            ));
        }
        Ok(Self { steps })
    }
    /// The field of the object at which the path begins; `None` if it may be any.
    pub(super) fn first(&self) -> Option<&str> {
        match self.steps.first() {
            Some(Step::Field(name)) => Some(name),
            _ => None,
        }
    }
    /// The values at the path in an object.
    pub fn find<'a>(&self, object: &'a Map) -> Vec<&'a Node> {
        let (first, rest) = match self.steps.split_first() {
            Some((Step::Field(name), rest)) => (object.get(name).into_iter().collect(), rest),
            Some((Step::All, rest)) => (object.iter().map(|(_, v)| v).collect(), rest),
            Some((Step::Below, [Step::Field(name), rest @ ..])) => {
                let mut all = Vec::new();
                object.iter().for_each(|(_, v)| below(v, &mut all));
                let own = object.get(name);
                (own.into_iter().chain(all.into_iter().flat_map(|v| field(v, name))).collect(), rest)
            }
            _ => return Vec::new(),
        };
        walk(first, rest)
    }
}

fn field<'a>(value: &'a Node, name: &str) -> Vec<&'a Node> {
    match value {
        Node::Map(m) => m.get(name).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn below<'a>(value: &'a Node, out: &mut Vec<&'a Node>) {
    if out.len() >= MOST {
        return;
    }
    out.push(value);
    match value {
        Node::Map(m) => m.iter().for_each(|(_, v)| below(v, out)),
        Node::List(l) => l.iter().for_each(|v| below(v, out)),
        _ => {}
    }
}

fn walk<'a>(mut values: Vec<&'a Node>, steps: &[Step]) -> Vec<&'a Node> {
    for step in steps {
        let mut next = Vec::new();
        for value in values {
            if next.len() < MOST {
                one(value, step, &mut next);
            }
        }
        values = next;
    }
    values
}

fn one<'a>(value: &'a Node, step: &Step, out: &mut Vec<&'a Node>) {
    match (step, value) {
        (Step::Field(name), value) => out.extend(field(value, name)),
        (Step::All, Node::Map(m)) => out.extend(m.iter().map(|(_, v)| v)),
        (Step::All, Node::List(l)) => out.extend(l),
        (Step::Below, value) => below(value, out),
        (Step::Slice { from, to, step, one }, Node::List(l)) => {
            let length = i64::try_from(l.len()).unwrap_or(i64::MAX);
            let place = |i: i64| if i < 0 { i + length } else { i };
            let start = place(from.unwrap_or(0));
            let end = if *one { start.saturating_add(1) } else { place(to.unwrap_or(length)) };
            if start < 0 || start >= length || *step <= 0 {
                return;
            }
            let end = end.min(length);
            let mut i = start;
            while i < end {
                out.extend(usize::try_from(i).ok().and_then(|i| l.get(i)));
                i = i.saturating_add(*step);
            }
        }
        (Step::Filter(filter), Node::List(l)) => out.extend(l.iter().filter(|v| filter.holds(v))),
        (Step::Filter(filter), Node::Map(m)) => {
            out.extend(m.iter().map(|(_, v)| v).filter(|v| filter.holds(v)));
        }
        (Step::Union(paths), value) => {
            for path in paths {
                out.extend(walk(vec![value], path));
            }
        }
        _ => {}
    }
}

impl Filter {
    fn holds(&self, value: &Node) -> bool {
        let left = self.left.value(value);
        let Some((compare, right)) = &self.right else { return left.is_some() };
        let (Some(left), Some(right)) = (left, right.value(value)) else { return false };
        let order = match (left, right) {
            (Node::Str(a), Node::Str(b)) => Some(a.cmp(b)),
            (Node::Bool(a), Node::Bool(b)) => Some(a.cmp(b)),
            (a, b) => match (number(a), number(b)) {
                (Some(a), Some(b)) => a.partial_cmp(&b),
                _ => None,
            },
        };
        let Some(order) = order else { return false };
        match compare {
            Compare::Equal => order == Ordering::Equal,
            Compare::Unequal => order != Ordering::Equal,
            Compare::Less => order == Ordering::Less,
            Compare::LessOrEqual => order != Ordering::Greater,
            Compare::Greater => order == Ordering::Greater,
            Compare::GreaterOrEqual => order != Ordering::Less,
        }
    }
}

fn number(node: &Node) -> Option<f64> {
    match node {
        Node::Int(i) => Some(*i as f64),
        Node::Float(f) => Some(*f),
        _ => None,
    }
}

impl Operand {
    fn value<'a>(&'a self, at: &'a Node) -> Option<&'a Node> {
        match self {
            Self::Path(steps) => walk(vec![at], steps).first().copied(),
            Self::Value(node) => Some(node),
        }
    }
}

/// Filters within filters may stand so deep.
const DEPTH: usize = 16;

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
    fn takes(&mut self, wanted: &str) -> bool {
        // An escape at the end of the text leads beyond it.
        let found = self.text.get(self.at..).is_some_and(|rest| rest.starts_with(wanted.as_bytes()));
        if found {
            self.at += wanted.len();
        }
        found
    }
    fn spaces(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }
    /// The steps up to something that is none.
    fn steps(&mut self, is_whole: bool) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        if !self.takes("$") && !is_whole {
            self.takes("@");
        }
        loop {
            match self.peek() {
                Some(b'.') if self.takes("..") => {
                    steps.push(Step::Below);
                    if self.peek() != Some(b'[') && self.peek().is_some() {
                        steps.push(self.field()?);
                    }
                }
                Some(b'.') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'[') | None => {}
                        _ => steps.push(self.field()?),
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    steps.push(self.brackets()?);
                }
                Some(b) if steps.is_empty() && is_whole && (b.is_ascii_alphanumeric() || b == b'_') => {
                    steps.push(self.field()?);
                }
                _ => return Ok(steps),
            }
        }
    }
    fn field(&mut self) -> Result<Step, String> {
        let mut name = Vec::new();
        while let Some(b) = self.peek() {
            match b {
                b'\\' => {
                    self.at += 1;
                    name.extend(self.peek());
                }
                b'.' | b'[' | b' ' | b'(' | b')' | b']' | b'=' | b'!' | b'<' | b'>' | b'{' | b'}' | b',' => {
                    break;
                }
                b => name.push(b),
            }
            self.at += 1;
        }
        if name.is_empty() {
            return Err("a field has no name".into());
        }
        if name == b"*" {
            return Ok(Step::All);
        }
        Ok(Step::Field(String::from_utf8_lossy(&name).into()))
    }
    /// The step between brackets, of which the first is taken.
    fn brackets(&mut self) -> Result<Step, String> {
        self.spaces();
        if self.takes("?(") {
            self.depth += 1;
            if self.depth > DEPTH {
                return Err("filters stand too deep in one another".into());
            }
            let filter = self.filter()?;
            self.depth -= 1;
            self.spaces();
            if !self.takes(")") {
                return Err("unterminated filter".into());
            }
            self.spaces();
            if !self.takes("]") {
                return Err("unterminated array".into());
            }
            return Ok(Step::Filter(Box::new(filter)));
        }
        let start = self.at;
        let mut quote = None;
        while let Some(b) = self.peek() {
            match (quote, b) {
                (None, b'\'' | b'"') => quote = Some(b),
                (Some(q), b) if b == q => quote = None,
                (Some(_), b'\\') => self.at += 1,
                (None, b']') => break,
                _ => {}
            }
            self.at += 1;
        }
        let end = self.at.min(self.text.len());
        let inner = String::from_utf8_lossy(&self.text[start..end]).into_owned();
        if !self.takes("]") {
            return Err("unterminated array".into());
        }
        let parts = split(&inner);
        if let [only] = parts.as_slice() {
            return element(only.trim());
        }
        let paths = parts.iter().map(|p| element(p.trim()).map(|s| vec![s]));
        Ok(Step::Union(paths.collect::<Result<_, _>>()?))
    }
    fn filter(&mut self) -> Result<Filter, String> {
        let left = self.operand()?;
        self.spaces();
        let operators = [
            ("==", Compare::Equal),
            ("!=", Compare::Unequal),
            ("<=", Compare::LessOrEqual),
            (">=", Compare::GreaterOrEqual),
            ("<", Compare::Less),
            (">", Compare::Greater),
        ];
        let found = operators.iter().find(|(text, _)| self.takes(text)).map(|o| o.1);
        let Some(compare) = found else { return Ok(Filter { left, right: None }) };
        let right = self.operand()?;
        Ok(Filter { left, right: Some((compare, right)) })
    }
    fn operand(&mut self) -> Result<Operand, String> {
        self.spaces();
        match self.peek() {
            Some(b'@' | b'$') => Ok(Operand::Path(self.steps(false)?)),
            Some(quote @ (b'"' | b'\'')) => {
                self.at += 1;
                let mut out = Vec::new();
                loop {
                    match self.peek() {
                        None => return Err("unterminated quoted string".into()),
                        Some(b) if b == quote => break,
                        Some(b'\\') => {
                            self.at += 1;
                            out.extend(self.peek());
                        }
                        Some(b) => out.push(b),
                    }
                    self.at += 1;
                }
                self.at += 1;
                Ok(Operand::Value(Node::Str(String::from_utf8_lossy(&out).into())))
            }
            _ => {
                let start = self.at;
                while self.peek().is_some_and(|b| b.is_ascii_alphanumeric() || b"+-._".contains(&b)) {
                    self.at += 1;
                }
                let text = String::from_utf8_lossy(&self.text[start..self.at]).into_owned();
                let value = match text.as_str() {
                    "true" => Node::Bool(true),
                    "false" => Node::Bool(false),
                    t => match (t.parse::<i64>(), t.parse::<f64>()) {
                        (Ok(i), _) => Node::Int(i),
                        (_, Ok(f)) => Node::Float(f),
                        _ => return Err(format!("unrecognized operand {t:?}")),
                    },
                };
                Ok(Operand::Value(value))
            }
        }
    }
}

/// The parts between the commas that stand in no quotes.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), c) if c == q => quote = None,
            (None, ',') => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts
}

/// One element between brackets.
fn element(text: &str) -> Result<Step, String> {
    let quoted = |q: char| text.strip_prefix(q).and_then(|t| t.strip_suffix(q));
    if text == "*" {
        return Ok(Step::All);
    }
    if let Some(name) = quoted('\'').or_else(|| quoted('"')) {
        return Ok(Step::Field(name.replace('\\', "").into()));
    }
    let number = |t: &str| -> Result<Option<i64>, String> {
        if t.is_empty() {
            return Ok(None);
        }
        t.parse().map(Some).map_err(|_| format!("invalid array index {text}"))
    };
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    match parts[..] {
        [index] => match number(index)? {
            Some(i) => Ok(Step::Slice { from: Some(i), to: None, step: 1, one: true }),
            None => Ok(Step::All),
        },
        [from, to] => Ok(Step::Slice { from: number(from)?, to: number(to)?, step: 1, one: false }),
        [from, to, step] => {
            let step = number(step)?.unwrap_or(1);
            Ok(Step::Slice { from: number(from)?, to: number(to)?, step, one: false })
        }
        _ => Err(format!("invalid array index {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let object = api::codec::json::decode_any(
            br#"{"a":{"b":[{"t":"x","v":1},{"t":"y","v":2}],"c.d":"e","f":{"g":true}},"n":3}"#,
        )
        .unwrap();
        let Node::Map(object) = object else { panic!("an object") };
        let check = |path: &str, expected: &str| {
            let found = JsonPath::parse(path).map(|p| {
                let all: Vec<String> = p.find(&object).into_iter().map(api::go::scalar_json).collect();
                all.join(" ")
            });
            assert_eq!(found.as_deref().unwrap_or("error"), expected, "{path}");
        };
        // An escape, or a number, at the end of what there is.
        check(r".a['\", "error");
        check(r#".a["\"#, "error");
        check(r".a[?(@.b\", "error");
        check(".a.b[9223372036854775807]", "");
        check(".a.b[-9223372036854775808]", "");
        check(".a.b[0:9223372036854775807:9223372036854775807].v", "1");
        check(".n", "3");
        check("n", "3");
        check("$.n", "3");
        check(".a.b[0].v", "1");
        check(".a.b[-1].v", "2");
        check(".a.b[*].v", "1 2");
        check(".a.b[0:1].t", "\"x\"");
        check(".a.b[0,1].t", "\"x\" \"y\"");
        check(".a.b[?(@.t==\"y\")].v", "2");
        check(".a.b[?(@.t=='y')].v", "2");
        check(".a.b[?(@.v>1)].t", "\"y\"");
        check(".a.b[?(@.z)].t", "");
        check(".a['c.d']", "\"e\"");
        check(".a.c\\.d", "\"e\"");
        check("..g", "true");
        check(".a.*.g", "true");
        check(".none.x", "");
        check(".a.b[9]", "");
        check(".a[", "error");
        check(".a.b[x]", "error");
        check(".a.b[?(@.t==\"y]", "error");
    }
}
