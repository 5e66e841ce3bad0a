//! The complaints of the compiler.

/// A complaint about a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Issue {
    /// Offset in characters.
    pub(super) at: usize,
    pub(super) text: String,
}

/// The greatest number of complaints that are shown.
pub(super) const MOST_SHOWN: usize = 100;

/// A complaint with its line of the source below it.
pub(super) fn show(source: &str, issue: &Issue) -> String {
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
