//! The advice for those who do not have a credential plugin.

use std::fmt::Write;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Upstream's general advice.
pub(super) const HELP: &str = "\n\nIt looks like you are trying to use a client-go credential plugin that is not installed.\n\nTo learn more about this feature, consult the documentation available at:\n      https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins";

/// How often it is given in a window of time.
const TIMES: u32 = 10;
const WINDOW: Duration = Duration::from_hours(1);

/// Says something only so often.
#[derive(Debug, Default)]
pub(super) struct Sometimes(Mutex<Option<(Instant, u32)>>);

impl Sometimes {
    /// Whether it is to be said now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let mut window = self.0.lock();
        let (since, times) =
            window.filter(|(since, _)| now.duration_since(*since) < WINDOW).unwrap_or((now, 0));
        let due = times < TIMES;
        *window = Some((since, times + u32::from(due)));
        due
    }
}

/// A text without the characters that a terminal would obey, as clientcmd's `cleanANSIEscapeCodes` writes it.
pub(super) fn cleaned(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Every space that Go's `unicode.Z` has, but for the space itself, is one of Rust's white space.
        if api::go::is_print(c) || c.is_whitespace() && c != '\u{85}' {
            out.push(c);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "U+{:04X}", u32::from(c));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases (`TestCleanANSIEscapeCodes`).
    #[test]
    fn texts() {
        let check = |text: &str, expected: &str| assert_eq!(cleaned(text), expected);
        check("\x1b[1mbold\x1b[0m", "U+001B[1mboldU+001B[0m");
        check("plain, ünicode\t日\n\u{a0}", "plain, ünicode\t日\n\u{a0}");
        check("a\u{7}b\u{85}", "aU+0007bU+0085");
    }

    #[test]
    fn ten_times_an_hour() {
        let (sometimes, start) = (Sometimes::default(), Instant::now());
        let due = |at: Duration| sometimes.is_due(start + at);
        assert_eq!((0..20).filter(|i| due(Duration::from_secs(*i))).count(), 10);
        assert!(!due(WINDOW.checked_sub(Duration::from_secs(1)).unwrap()));
        assert!(due(WINDOW));
    }
}
