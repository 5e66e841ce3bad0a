//! Sentences of comments that begin with a noun clause.
//!
//! `What a watcher has read.` makes a reader guess; `The events that a watcher has read.` names its subject.

use crate::{Comment, Finding, Rule, Workspace};

/// The directories and files that still have such sentences.
const LIST: &str = "tools/tidy/words.txt";

/// The words with which no sentence begins, unless it is a question.
const OPENINGS: [&[&str]; 7] =
    [&["What"], &["Of", "which"], &["Of", "what"], &["Whoever"], &["Who"], &["Whose"], &["Whom"]];

pub(crate) const RULE: Rule = Rule {
    name: "words",
    promise: "A sentence of a comment names its subject: none begins with `What`, `Who` or the like, but for \
              questions and the places that tools/tidy/words.txt lists.",
    check,
    broken: &[
        ("crates/a/Cargo.toml", ""),
        (
            "crates/a/src/lib.rs",
            "//! The parts.\n/// Whoever asks is told. Who asks?\nfn f() {} // What is left. The rest. Whose\n// \
             part it is.\nconst S: &str = \"// What\";\n/// The rest: Of which\n/// nothing is known.\n",
        ),
        ("crates/b/src/lib.rs", "/// The thing. What it is.\n"),
        ("crates/b/src/c.rs", "/// What\n"),
        ("crates/d/src/lib.rs", "/// The thing.\n"),
        ("tools/e/src/main.rs", "/*\n * Whom to ask.\n */\n"),
        (LIST, "# for now\ncrates/b\ncrates/d/src/lib.rs\n"),
    ],
    found: &[
        "crates/a/src/lib.rs:2: a sentence begins with `Whoever`: name its subject",
        "crates/a/src/lib.rs:3: a sentence begins with `What`: name its subject",
        "crates/a/src/lib.rs:3: a sentence begins with `Whose`: name its subject",
        "crates/a/src/lib.rs:6: a sentence begins with `Of which`: name its subject",
        "tools/e/src/main.rs:2: a sentence begins with `Whom`: name its subject",
        "tools/tidy/words.txt:3: no sentence there begins so any more: take it off the list",
    ],
};

fn check(workspace: &Workspace) -> Vec<Finding> {
    let lines = workspace.text(LIST).unwrap_or_default().lines().map(str::trim);
    let mut listed: Vec<(usize, &str, bool)> = lines
        .enumerate()
        .filter(|(_, place)| !place.is_empty() && !place.starts_with('#'))
        .map(|(i, place)| (i + 1, place, false))
        .collect();
    let mut out = Vec::new();
    for file in workspace.all_files() {
        let place = listed.iter_mut().find(|(_, place, _)| is_within(&file.path, place));
        let found: Vec<(usize, String)> =
            sentences(&file.comments).iter().filter_map(|s| opening(s)).collect();
        if let Some((.., used)) = place {
            *used |= !found.is_empty();
            continue;
        }
        out.extend(found.into_iter().map(|(line, words)| Finding {
            path: file.path.clone(),
            line,
            what: format!("a sentence begins with `{words}`: name its subject"),
        }));
    }
    out.extend(listed.iter().filter(|(.., used)| !used).map(|(line, ..)| Finding {
        path: LIST.to_owned(),
        line: *line,
        what: "no sentence there begins so any more: take it off the list".to_owned(),
    }));
    out
}

fn is_within(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The words of a sentence, with their lines.
type Sentence<'c> = Vec<(usize, &'c str)>;

/// The sentences of comments. Examples of code are left out.
fn sentences(comments: &[Comment]) -> Vec<Sentence<'_>> {
    let mut out = Vec::new();
    let mut sentence = Sentence::new();
    let mut example = false;
    let mut last: Option<&Comment> = None;
    for comment in comments {
        let goes_on = last.is_some_and(|last| {
            (last.mark, last.line + 1) == (comment.mark, comment.line) && last.column == comment.column
        });
        last = Some(comment);
        let text = comment.text.as_str();
        example &= goes_on;
        if !goes_on || text.is_empty() || is_item(text) {
            out.push(std::mem::take(&mut sentence));
        }
        if text.starts_with("```") {
            example = !example;
        } else if !example {
            for word in text.split_whitespace() {
                sentence.push((comment.line, word));
                if bare(word).ends_with(['.', '!', '?', ':']) {
                    out.push(std::mem::take(&mut sentence));
                }
            }
        }
        if text.starts_with('#') {
            out.push(std::mem::take(&mut sentence));
        }
    }
    out.push(sentence);
    out
}

/// Whether a line begins an item of a list, or is a heading.
fn is_item(text: &str) -> bool {
    ["- ", "* ", "#"].iter().any(|mark| text.starts_with(mark))
}

/// A word without the marks of quotes and emphasis behind it.
fn bare(word: &str) -> &str {
    word.trim_end_matches([')', ']', '"', '\'', '*', '_', '`'])
}

/// The opening of a sentence that is one of [`OPENINGS`], with its line; `None` for a question.
fn opening(sentence: &Sentence<'_>) -> Option<(usize, String)> {
    if sentence.last().is_some_and(|(_, word)| bare(word).ends_with('?')) {
        return None;
    }
    // A word in backticks is code.
    let plain = |word: &'_ str| -> String {
        word.trim_matches(|c: char| !c.is_alphanumeric() && c != '`').to_owned()
    };
    let words: Vec<(usize, String)> =
        sentence.iter().map(|(line, word)| (*line, plain(word))).filter(|(_, w)| !w.is_empty()).collect();
    let (line, _) = words.first()?;
    let found = OPENINGS
        .iter()
        .find(|o| o.len() <= words.len() && o.iter().zip(&words).all(|(wanted, (_, word))| wanted == word))?;
    Some((*line, found.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::read;

    #[test]
    fn sentences_that_begin_so() {
        let check = |text: &str, expected: &[(usize, &str)]| {
            let (_, comments) = read(text);
            let found: Vec<_> = sentences(&comments).iter().filter_map(|s| opening(s)).collect();
            let found: Vec<_> = found.iter().map(|(line, words)| (*line, words.as_str())).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("/// What", &[(1, "What")]);
        check("/// The whole. What is left.", &[(1, "What")]);
        check("/// The whole (so far). \"Who\" asks.", &[(1, "Who")]);
        check("// What is it?", &[]);
        check("// What is it? What it is.", &[(1, "What")]);
        check("// What\n// is it?", &[]);
        check("// The thing, and\n// What it is.", &[]);
        check("// The thing\n\n// What it is.", &[(3, "What")]);
        check("// The thing\n    // What it is.", &[(2, "What")]);
        check("fn f() {} // the thing\n// What it is.", &[(2, "What")]);
        check("//! The things\n//!\n//! - What it is\n//! - Whom it has", &[(3, "What"), (4, "Whom")]);
        check("/// # Errors\n/// Whose", &[(2, "Whose")]);
        check("/// The thing.\n/// ```\n/// What\n/// ```\n/// Who", &[(5, "Who")]);
        check("/// ```\n/// What\n\n/// What", &[(4, "What")]);
        check("/// `What` it is. Of\n/// which", &[(1, "Of which")]);
        check("/// Of the thing. Whatever. What's", &[]);
        check("let s = \"// What\";", &[]);
    }
}
