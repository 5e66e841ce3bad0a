//! The paths that code names, in `use` or where they are used.

use crate::tokens::{Kind, Token};

/// A path (`crate::a::B`; `*` may be last) and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
    /// The name under which it is re-exported, the last one or another: `pub use a::B as C`.
    pub(crate) exported: Option<String>,
}

/// Every path of two segments or more, and every one that `use` names.
pub(crate) fn paths(code: &[&Token]) -> Vec<Named> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let is_use = code[at].text == "use" && code[at].kind == Kind::Word;
        let starts = code[at].kind == Kind::Word && (at == 0 || code[at - 1].text != "::");
        if is_use {
            let exported = at > 0 && (code[at - 1].text == "pub" || code[at - 1].text == ")");
            at += 1;
            at += usize::from(code.get(at).is_some_and(|t| t.text == "::"));
            tree(code, &mut at, &mut Vec::new(), exported, &mut out);
        } else if starts && code.get(at + 1).is_some_and(|t| t.text == "::") {
            let line = code[at].line;
            let mut path = vec![code[at].text.clone()];
            at += 1;
            while code.get(at).is_some_and(|t| t.text == "::")
                && let Some(next) = code.get(at + 1).filter(|t| t.kind == Kind::Word)
            {
                path.push(next.text.clone());
                at += 2;
            }
            if path.len() > 1 {
                out.push(Named { path, line, exported: None });
            }
        } else {
            at += 1;
        }
    }
    out
}

/// Reads one branch of a `use`; `at` is left behind it.
fn tree(code: &[&Token], at: &mut usize, before: &mut Vec<String>, exported: bool, out: &mut Vec<Named>) {
    let depth = before.len();
    while let Some(token) = code.get(*at) {
        match token.text.as_str() {
            "{" => {
                *at += 1;
                while code.get(*at).is_some_and(|t| t.text != "}") {
                    tree(code, at, before, exported, out);
                    *at += usize::from(code.get(*at).is_some_and(|t| t.text == ","));
                }
                *at += 1;
                before.truncate(depth);
                return;
            }
            "::" => *at += 1,
            "*" => {
                before.push("*".to_owned());
                *at += 1;
            }
            _ if token.kind == Kind::Word && token.text != "as" => {
                before.push(token.text.clone());
                *at += 1;
            }
            _ => break,
        }
    }
    let mut name = before.last().cloned().unwrap_or_default();
    let line = code.get(at.saturating_sub(1)).map_or(0, |t| t.line);
    if code.get(*at).is_some_and(|t| t.text == "as") {
        name = code.get(*at + 1).map(|t| t.text.clone()).unwrap_or_default();
        *at += 2;
    }
    if before.len() == depth {
        // The token is none that this reads: the caller must not see it again.
        *at += usize::from(code.get(*at).is_some_and(|t| !matches!(t.text.as_str(), "," | "}")));
        return;
    }
    let mut path = before.clone();
    if path.last().is_some_and(|p| p == "self") && path.len() > 1 {
        path.pop();
        name = path.last().cloned().unwrap_or_default();
    }
    out.push(Named { path, line, exported: exported.then_some(name) });
    before.truncate(depth);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::read;

    #[test]
    fn forms() {
        let check = |text: &str, expected: &[&str]| {
            let tokens = read(text).0;
            let found: Vec<String> = paths(&tokens.iter().collect::<Vec<_>>())
                .iter()
                .map(|n| {
                    n.path.join("::") + &n.exported.as_ref().map(|e| format!(" as {e}")).unwrap_or_default()
                })
                .collect();
            assert_eq!(found, expected, "{text}");
        };
        check("use a::b; c", &["a::b"]);
        check("use a::{b, c::{self, D}, e::*};", &["a::b", "a::c", "a::c::D", "a::e::*"]);
        check("pub use a::b as c; pub(crate) use d::{e as f, g,};", &["a::b as c", "d::e as f", "d::g as g"]);
        check("fn f() -> a::B<c::D> { e::<F>::g() }", &["a::B", "c::D"]);
        check("use ::std::fs; use x;", &["std::fs", "x"]);
        check("use {", &[]);
        check("use a::{b; c", &["a::b", "a::c"]);
    }
}
