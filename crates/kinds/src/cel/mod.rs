//! Whether an expression of the Common Expression Language compiles, with the complaints of upstream's compiler:
//! syntax, names, types. Nothing is evaluated here.
//!
//! DIFFERENCE: the complaints after a first syntax error, from which upstream's parser goes on, are not always the same
//! text.

mod check;
mod lex;
mod parse;
mod types;

pub(crate) use parse::RESERVED;
pub(crate) use types::{Env, Type};

/// A complaint about a place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Issue {
    /// Offset in characters.
    at: usize,
    text: String,
}

/// The greatest number of complaints that are shown.
const MOST_SHOWN: usize = 100;

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

/// A complaint with its line of the source below it.
fn show(source: &str, issue: &Issue) -> String {
    let before: String = source.chars().take(issue.at).collect();
    let line = before.matches('\n').count();
    let column = before.chars().rev().take_while(|c| *c != '\n').count();
    match source.split('\n').nth(line) {
        Some(text) if !source.is_empty() => {
            let text = text.replace('\t', " ");
            let dots: String =
                text.chars().take(column).map(|c| if c.is_ascii() { '.' } else { '．' }).collect();
            let mark = if text.chars().nth(column).is_some_and(|c| !c.is_ascii()) { '＾' } else { '^' };
            let padding = ".".repeat(column.saturating_sub(text.chars().count()));
            let number = line + 1;
            format!(
                "ERROR: <input>:{number}:{}: {}\n | {text}\n | {dots}{padding}{mark}",
                column + 1,
                issue.text
            )
        }
        _ => format!("ERROR: <input>:1:0: {}", issue.text),
    }
}

#[cfg(test)]
mod tests;
