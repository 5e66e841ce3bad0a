//! Lines for the person at the terminal.

/// Prints one line about the progress.
pub(crate) fn say(line: &str) {
    use std::io::Write;
    // The reader may be gone; that is no reason to stop.
    let _ = writeln!(std::io::stdout(), "{line}");
}
