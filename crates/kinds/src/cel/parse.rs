//! The parser: it makes a tree of tokens.

use super::issue::Issue;
use super::lex::{Kind, Token};
use super::types::Type;

/// The greatest number of expressions that may stand in one another, so that a thread's stack holds them. cel-go takes
/// 250.
const MAX_DEPTH: usize = 100;

/// An expression and the place that complaints name: that of its operator, or of its first character.
#[derive(Debug, Clone)]
pub(super) struct Expr {
    pub(super) at: usize,
    pub(super) node: Node,
    /// The number of expressions that stand in one another below this one.
    depth: usize,
}

impl Expr {
    fn new(at: usize, node: Node) -> Self {
        let deepest = |all: &[Expr]| all.iter().map(|e| e.depth).max().unwrap_or(0);
        let below = match &node {
            Node::Name(_) | Node::Literal(_) | Node::Message(_) => 0,
            Node::Field { of, .. } => of.depth,
            Node::Call { on, args, .. } => deepest(args).max(on.as_ref().map_or(0, |e| e.depth)),
            Node::List(items) => items.iter().map(|i| i.0.depth).max().unwrap_or(0),
            Node::Map(entries) => entries.iter().map(|e| e.0.depth.max(e.1.depth)).max().unwrap_or(0),
        };
        Self { at, node, depth: below + 1 }
    }
}

/// The form of an expression.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Name(String),
    Literal(Type),
    /// A field; if it is `optional`, its absence is no error.
    Field {
        of: Box<Expr>,
        name: String,
        optional: bool,
    },
    /// A function, an operator, or a macro.
    Call {
        name: String,
        on: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    /// The elements, and whether each is optional.
    List(Vec<(Expr, bool)>),
    Map(Vec<(Expr, Expr, bool)>),
    /// A message of a named type.
    Message(String),
}

/// Reserved words, which are no identifiers, besides `true`, `false`, `null` and `in`, which have a meaning.
pub(crate) const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];
const OPERAND: &str = "expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// Parses an expression; without a tree an issue tells the reason.
pub(super) fn parse(tokens: &[Token], issues: &mut Vec<Issue>) -> Option<Expr> {
    let mut p = Parser { tokens, at: 0, depth: 0, issues };
    let tree = p.expression()?;
    if p.token().kind != Kind::End {
        let t = p.token();
        let text = match t.kind {
            Kind::Sign => format!("Syntax error: extraneous input '{}' expecting <EOF>", t.text),
            _ => format!("Syntax error: mismatched input '{}' expecting <EOF>", t.text),
        };
        p.fail(text);
        return None;
    }
    Some(tree)
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    issues: &'a mut Vec<Issue>,
}

impl<'a> Parser<'a> {
    fn token(&self) -> &'a Token {
        // The last token is the end, which the parser never passes.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }
    fn is(&self, sign: &str) -> bool {
        self.token().kind == Kind::Sign && self.token().text == sign
    }
    /// Passes over a sign and returns its place.
    fn take(&mut self, sign: &str) -> Option<usize> {
        let at = self.token().at;
        self.is(sign).then(|| {
            self.at += 1;
            at
        })
    }
    fn fail(&mut self, text: String) {
        let at = self.token().at;
        self.issues.push(Issue { at, text });
    }
    fn expect(&mut self, sign: &str) -> Option<usize> {
        let taken = self.take(sign);
        if taken.is_none() {
            let found = &self.token().text;
            self.fail(format!("Syntax error: mismatched input '{found}' expecting '{sign}'"));
        }
        taken
    }

    fn expression(&mut self) -> Option<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.fail(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
            return None;
        }
        let condition = self.binary(0)?;
        let tree = match self.take("?") {
            None => condition,
            Some(at) => {
                let yes = self.binary(0)?;
                self.expect(":")?;
                let no = self.expression()?;
                call(at, "_?_:_", vec![condition, yes, no])
            }
        };
        self.depth -= 1;
        Some(tree)
    }

    /// Refuses an expression that is too deep.
    fn bounded(&mut self, e: Expr) -> Option<Expr> {
        if e.depth > MAX_DEPTH {
            self.fail(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
            return None;
        }
        Some(e)
    }

    /// The operator at the current place, and its rank.
    fn operator(&self) -> Option<(&'static str, usize)> {
        const RANKS: &[&[&str]] =
            &[&["||"], &["&&"], &["<=", "<", ">=", ">", "==", "!=", "in"], &["+", "-"], &["*", "/", "%"]];
        let t = self.token();
        let usable = t.kind == Kind::Sign || t.kind == Kind::Word && t.text == "in";
        RANKS
            .iter()
            .enumerate()
            .filter(|_| usable)
            .find_map(|(rank, signs)| signs.iter().find(|s| **s == t.text).map(|sign| (*sign, rank)))
    }

    /// Parses operators of one rank and above, which bind to the left. `&&` and `||` take any number of operands.
    fn binary(&mut self, least: usize) -> Option<Expr> {
        let mut left = self.unary()?;
        while let Some((sign, rank)) = self.operator().filter(|(_, rank)| *rank >= least) {
            let at = self.token().at;
            let mut args = vec![left];
            loop {
                self.at += 1;
                args.push(self.binary(rank + 1)?);
                if rank > 1 || !self.is(sign) {
                    break;
                }
            }
            let name = if sign == "in" { "@in".to_owned() } else { format!("_{sign}_") };
            left = self.bounded(call(at, &name, args))?;
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Expr> {
        for (sign, name) in [("!", "!_"), ("-", "-_")] {
            let mut signs = Vec::new();
            while let Some(at) = self.take(sign) {
                signs.push(at);
            }
            if signs.is_empty() {
                continue;
            }
            let of = self.member()?;
            let literal = matches!(of.node, Node::Literal(Type::Int | Type::Double));
            if name == "-_" && literal {
                signs.pop();
            }
            // An even number of these signs cancels out.
            return Some(match signs.first() {
                Some(at) if signs.len() % 2 == 1 => call(*at, name, vec![of]),
                _ => of,
            });
        }
        self.member()
    }

    fn member(&mut self) -> Option<Expr> {
        let mut of = self.primary()?;
        loop {
            if let Some(at) = self.take(".") {
                let optional = self.take("?").is_some();
                let name = self.identifier()?;
                if !optional && let Some(open) = self.take("(") {
                    let args = self.list(")")?;
                    of = Expr::new(open, Node::Call { name, on: Some(Box::new(of)), args });
                } else {
                    of = Expr::new(at, Node::Field { of: Box::new(of), name, optional });
                }
            } else if let Some(at) = self.take("[") {
                let optional = self.take("?").is_some();
                let index = self.expression()?;
                self.expect("]")?;
                of = call(at, if optional { "_[?_]" } else { "_[_]" }, vec![of, index]);
            } else {
                return Some(of);
            }
            of = self.bounded(of)?;
        }
    }

    /// Parses a name after a point; most words of the language are names there.
    fn identifier(&mut self) -> Option<String> {
        let t = self.token();
        if t.kind == Kind::Word && !matches!(t.text.as_str(), "true" | "false" | "null" | "in") {
            self.at += 1;
            return Some(t.text.clone());
        }
        self.fail(format!("Syntax error: no viable alternative at input '.{}'", t.text));
        None
    }

    fn primary(&mut self) -> Option<Expr> {
        let t = self.token();
        let at = t.at;
        let literal = |p: &mut Self, ty: Type| {
            p.at += 1;
            Some(Expr::new(at, Node::Literal(ty)))
        };
        match t.kind {
            Kind::Int if int(&t.text).is_none() => {
                self.fail("invalid int literal".into());
                None
            }
            Kind::Int => literal(self, Type::Int),
            Kind::Uint if uint(&t.text).is_none() => {
                self.fail("invalid uint literal".into());
                None
            }
            Kind::Uint => literal(self, Type::Uint),
            Kind::Float => literal(self, Type::Double),
            Kind::Text => literal(self, Type::String),
            Kind::Bytes => literal(self, Type::Bytes),
            Kind::Word => match t.text.as_str() {
                "true" | "false" => literal(self, Type::Bool),
                "null" => literal(self, Type::Null),
                "in" => self.unexpected(),
                word if RESERVED.contains(&word) => {
                    self.fail(format!("reserved identifier: {word}"));
                    None
                }
                _ => self.name(String::new()),
            },
            Kind::Sign => match t.text.as_str() {
                "(" => {
                    self.at += 1;
                    let inner = self.expression()?;
                    self.expect(")")?;
                    Some(inner)
                }
                "[" => {
                    self.at += 1;
                    let mut items = Vec::new();
                    while !self.is("]") {
                        let optional = self.take("?").is_some();
                        items.push((self.expression()?, optional));
                        if self.take(",").is_none() {
                            break;
                        }
                    }
                    self.expect("]")?;
                    Some(Expr::new(at, Node::List(items)))
                }
                "{" => {
                    self.at += 1;
                    let mut entries = Vec::new();
                    while !self.is("}") {
                        let optional = self.take("?").is_some();
                        let key = self.expression()?;
                        self.expect(":")?;
                        entries.push((key, self.expression()?, optional));
                        if self.take(",").is_none() {
                            break;
                        }
                    }
                    self.expect("}")?;
                    Some(Expr::new(at, Node::Map(entries)))
                }
                "." => {
                    self.at += 1;
                    self.name(".".into())
                }
                _ => self.unexpected(),
            },
            Kind::End => self.unexpected(),
        }
    }

    /// Reports a token that stands in the place of an operand, and parses the rest, so that its errors are reported
    /// too.
    fn unexpected(&mut self) -> Option<Expr> {
        let t = self.token();
        let next = self.tokens.get(self.at + 1);
        let begins = |t: &Token| t.kind != Kind::End && (t.kind != Kind::Sign || "[{(.-!".contains(&t.text));
        if next.is_some_and(begins) {
            self.fail(format!("Syntax error: extraneous input '{}' {OPERAND}", t.text));
            return None;
        }
        self.fail(format!("Syntax error: mismatched input '{}' {OPERAND}", t.text));
        if t.kind != Kind::End && next.is_some_and(|n| n.kind == Kind::End) {
            self.at += 1;
            let end = self.token().text.clone();
            self.fail(format!("Syntax error: mismatched input '{end}' {OPERAND}"));
        }
        None
    }

    /// Parses a name, a call of a function, or a message.
    fn name(&mut self, dot: String) -> Option<Expr> {
        let t = self.token();
        if t.kind != Kind::Word {
            return self.unexpected();
        }
        self.at += 1;
        let name = dot + &t.text;
        if let Some(open) = self.take("(") {
            let args = self.list(")")?;
            return Some(Expr::new(open, Node::Call { name, on: None, args }));
        }
        let back = self.at;
        let mut whole = name.clone();
        while self.take(".").is_some() && self.token().kind == Kind::Word {
            whole = format!("{whole}.{}", self.token().text);
            self.at += 1;
        }
        if let Some(at) = self.take("{") {
            while !self.is("}") {
                self.take("?");
                self.identifier()?;
                self.expect(":")?;
                self.expression()?;
                if self.take(",").is_none() {
                    break;
                }
            }
            self.expect("}")?;
            return Some(Expr::new(at, Node::Message(whole)));
        }
        self.at = back;
        Some(Expr::new(t.at, Node::Name(name)))
    }

    /// Parses expressions between commas up to a bracket, which is passed over.
    fn list(&mut self, end: &str) -> Option<Vec<Expr>> {
        let mut out = Vec::new();
        if self.take(end).is_some() {
            return Some(out);
        }
        loop {
            out.push(self.expression()?);
            if self.take(",").is_none() {
                break;
            }
        }
        self.expect(end)?;
        Some(out)
    }
}

fn call(at: usize, name: &str, args: Vec<Expr>) -> Expr {
    Expr::new(at, Node::Call { name: name.into(), on: None, args })
}

fn uint(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['u', 'U']);
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// Reads an integer, also the one number whose negative alone is in range.
fn int(text: &str) -> Option<u64> {
    uint(text).filter(|u| *u <= 1 << 63)
}
