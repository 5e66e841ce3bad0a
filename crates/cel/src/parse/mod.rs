//! The parser: it makes a tree of a text, in which macros are expanded.

mod build;
mod grammar;
mod lex;
mod literal;
mod macros;

pub(crate) use build::Positions;
pub(crate) use macros::MacroSet;

use crate::ast::Expr;
use crate::issue::Issues;

/// The greatest length of an expression, in characters.
const LONGEST: usize = 100_000;
/// The greatest number of expressions that may stand in one another, after macros are expanded.
///
/// DIFFERENCE: cel-go bounds the nesting before that, by 250, and a macro may add four expressions; here a thread's
/// stack has to hold what is left.
const DEEPEST: usize = 500;

/// A parsed expression and the places of its parts.
pub(crate) struct Parsed {
    pub(crate) tree: Expr,
    pub(crate) positions: Positions,
}

/// Words that are no identifiers.
pub const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Parses an expression.
pub(crate) fn parse(source: &str, macros: &MacroSet, optionals: bool) -> Result<Parsed, Issues> {
    let mut issues = Issues::new(source);
    let length = source.chars().count();
    if length > LONGEST {
        let text = format!("expression code point size exceeds limit: size: {length}, limit {LONGEST}");
        issues.push(None, text);
        return Err(issues);
    }
    let tokens = lex::tokens(source, &mut issues);
    let parsed = grammar::parse(&tokens, macros, optionals, &mut issues);
    match parsed {
        Some(parsed) if issues.is_empty() => {
            if parsed.tree.depth() > DEEPEST {
                issues.push(None, "max recursion depth exceeded".into());
                return Err(issues);
            }
            Ok(parsed)
        }
        _ => Err(issues),
    }
}
