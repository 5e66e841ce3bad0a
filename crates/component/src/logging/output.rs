//! Where lines go: stderr, or errors to stderr and everything else to stdout.

use std::io::Write;

use parking_lot::Mutex;

use super::line::{Format, Line};

/// As much as is held back at most; upstream's limit.
const MOST: usize = 2 << 30;

/// Where lines go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Routing {
    /// Whether errors go to stderr and everything else to stdout; all go to stderr otherwise.
    pub split: bool,
    /// How many bytes for stdout are held back, if the streams are split.
    pub buffer: usize,
}

/// A stream that is written whole lines.
type Stream = Box<dyn Write + Send>;

/// The streams of a log.
pub(super) struct Output {
    format: Format,
    errors: Mutex<Stream>,
    /// Where everything but errors goes, if that is another stream.
    others: Option<Mutex<Held>>,
}

impl Output {
    /// The streams of the process.
    pub(super) fn new(format: Format, routing: Routing) -> Self {
        Self::with(format, routing, (Box::new(std::io::stdout()), Box::new(std::io::stderr())))
    }

    fn with(format: Format, routing: Routing, (stdout, stderr): (Stream, Stream)) -> Self {
        let held = || Mutex::new(Held { to: stdout, lines: Vec::new(), most: routing.buffer.min(MOST) });
        Self { format, errors: Mutex::new(stderr), others: routing.split.then(held) }
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Writes a line. A reader that is gone is no reason to stop, and there is nobody to tell.
    pub(super) fn write(&self, line: &Line<'_>, now: jiff::Timestamp) {
        let text = line.render(self.format, now);
        match &self.others {
            Some(others) if !line.is_error(self.format) => others.lock().write(text.as_bytes()),
            _ => drop(self.errors.lock().write_all(text.as_bytes())),
        }
    }

    /// Writes what is held back.
    pub(super) fn flush(&self) {
        if let Some(others) = &self.others {
            others.lock().flush();
        }
    }
}

/// A stream that holds lines back until there are enough of them; a line is never written in parts.
struct Held {
    to: Stream,
    lines: Vec<u8>,
    most: usize,
}

impl Held {
    fn write(&mut self, line: &[u8]) {
        if self.lines.len().saturating_add(line.len()) > self.most {
            self.flush();
        }
        if line.len() > self.most {
            let _ = self.to.write_all(line);
            let _ = self.to.flush();
        } else {
            self.lines.extend_from_slice(line);
        }
    }

    fn flush(&mut self) {
        let _ = self.to.write_all(&self.lines);
        let _ = self.to.flush();
        self.lines.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing::Level;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        fn lines(&self) -> Vec<char> {
            let text = String::from_utf8(self.0.lock().clone()).unwrap();
            text.lines().filter_map(|line| line.split("\"msg\":\"").nth(1)?.chars().next()).collect()
        }
    }

    const ALL: [(Level, &str); 4] =
        [(Level::ERROR, "error"), (Level::WARN, "warning"), (Level::INFO, "info"), (Level::DEBUG, "debug")];

    fn check(routing: Routing, expected: (&str, &str), flushed: &str) {
        let (stdout, stderr) = (Written::default(), Written::default());
        let streams: (Stream, Stream) = (Box::new(stdout.clone()), Box::new(stderr.clone()));
        let output = Output::with(Format::Json, routing, streams);
        for (level, message) in ALL {
            output.write(&Line::told(level, message), jiff::Timestamp::UNIX_EPOCH);
        }
        let got = |written: &Written| written.lines().into_iter().collect::<String>();
        assert_eq!((got(&stdout).as_str(), got(&stderr).as_str()), expected, "{routing:?}");
        output.flush();
        assert_eq!(got(&stdout), flushed, "{routing:?}");
    }

    #[test]
    fn errors_go_elsewhere_and_the_rest_may_wait() {
        let routing = |split, buffer| Routing { split, buffer };
        check(routing(false, 0), ("", "ewid"), "");
        check(routing(false, 1000), ("", "ewid"), "");
        check(routing(true, 0), ("wid", "e"), "wid");
        check(routing(true, 1 << 40), ("", "e"), "wid");
        // Room for two lines, not for three.
        let two =
            Line::told(Level::WARN, "warning").render(Format::Json, jiff::Timestamp::UNIX_EPOCH).len() * 2;
        check(routing(true, two), ("wi", "e"), "wid");
        // Room for one of them, but for the longest.
        check(routing(true, two / 2 - 1), ("wi", "e"), "wid");
        check(routing(true, 5), ("wid", "e"), "wid");
    }

    #[test]
    fn warnings_of_text_are_errors() {
        for (level, expected) in [(Level::ERROR, true), (Level::WARN, true), (Level::INFO, false)] {
            assert_eq!(Line::told(level, "").is_error(Format::Text), expected);
            assert_eq!(Line::told(level, "").is_error(Format::Json), level == Level::ERROR);
        }
    }
}
