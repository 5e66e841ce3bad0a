//! Lines for the person at the terminal.

use std::time::Instant;

use component::logging::Format;

/// Prints one line about the progress.
pub(crate) fn say(line: &str) {
    use std::io::Write;
    // A reader of JSON reads nothing else.
    if component::logging::format() == Format::Json {
        return component::logging::tell(line);
    }
    // The reader may be gone; that is no reason to stop.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints that all is up, and tells it the service manager that started this process, if one did: units of `Type=notify`
/// wait for it, as they do for upstream's kubelet and API server.
pub(crate) fn say_ready(line: &str) {
    say(line);
    tell_ready();
}

/// Tells the service manager that all is up.
pub(crate) fn tell_ready() {
    use systemd::notify::{READY, notify};
    if let Err(error) = notify(READY) {
        tracing::warn!(%error, "cannot tell the service manager that the service is ready");
    }
}

/// Tells of a setting without effect, or of something that goes wrong before there is a log.
pub(crate) fn warn(line: &str) {
    match component::logging::format() {
        Format::Text => eprintln!("ferrokube: {line}"),
        Format::Json => component::logging::tell(line),
    }
}

/// Tells why the process ends.
pub(crate) fn fail(error: &anyhow::Error) {
    match component::logging::format() {
        Format::Text => eprintln!("ferrokube: {}", whole(error)),
        Format::Json => tracing::error!(error = whole(error), "command failed"),
    }
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
