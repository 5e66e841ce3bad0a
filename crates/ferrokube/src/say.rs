//! Lines for the person at the terminal.

use std::time::Instant;

/// Prints one line about the progress.
pub(crate) fn say(line: &str) {
    use std::io::Write;
    // The reader may be gone; that is no reason to stop.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// The time since then, for such a line.
pub(crate) fn took(since: Instant) -> String {
    format!("{:.2} s", since.elapsed().as_secs_f64())
}

/// An error with its causes as one sentence. Some errors say their cause themselves; it is not said again.
pub(crate) fn whole(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if !text.ends_with(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn causes_are_said_once() {
        let check = |error: anyhow::Error, expected: &str| assert_eq!(whole(&error), expected);
        check(anyhow!("c"), "c");
        check(anyhow!("c").context("b").context("a"), "a: b: c");
        check(anyhow!("c").context("b: c").context("a"), "a: b: c");
        check(anyhow!("d: c").context("b: d: c"), "b: d: c");
    }
}
