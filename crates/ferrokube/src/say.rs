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
