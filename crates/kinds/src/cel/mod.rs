//! Whether an expression of the Common Expression Language compiles, with the complaints of upstream's compiler:
//! syntax, names, types. Nothing is evaluated here.
//!
//! DIFFERENCE: the complaints after a first syntax error, from which upstream's parser goes on, are not always the same
//! text.

mod check;
mod issue;
mod lex;
mod parse;
mod types;

pub(crate) use parse::RESERVED;
pub(crate) use types::{Env, Type};

use issue::{MOST_SHOWN, show};

/// The type of an expression, or the reason for which it does not compile.
pub(crate) fn compile(env: &Env, source: &str) -> Result<Type, String> {
    let (tokens, mut issues) = lex::tokens(source);
    let tree = parse::parse(&tokens, &mut issues);
    if let (Some(tree), true) = (tree, issues.is_empty()) {
        let ty = check::check(env, &tree, &mut issues);
        if issues.is_empty() {
            return Ok(ty);
        }
    }
    issues.sort_by_key(|i| i.at);
    let shown: Vec<String> = issues.iter().take(MOST_SHOWN).map(|i| show(source, i)).collect();
    Err(shown.join("\n"))
}

#[cfg(test)]
mod tests;
