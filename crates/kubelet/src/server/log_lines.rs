//! The log format of the CRI: `2016-10-06T00:17:09.669794202Z stdout P log content`, a line each; pure.

use bytes::BytesMut;
use jiff::Timestamp;

/// Which of a container's output is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Both streams.
    All,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The wishes of a reader of logs.
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// Which streams.
    pub(super) wanted: Wanted,
    /// Whether lines begin with their time.
    pub(super) timestamps: bool,
    /// Nothing older.
    pub(super) since: Option<Timestamp>,
    /// Only the last lines.
    pub(super) tail: Option<u64>,
    /// No more bytes than this.
    pub(super) limit: Option<u64>,
    /// Whether to wait for what is written later.
    pub(super) follow: bool,
}

/// One line of a log file.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    time: &'a str,
    stdout: bool,
    /// With the line's end, unless it is a part of a longer one.
    content: &'a [u8],
}

fn parse(raw: &[u8]) -> Option<Line<'_>> {
    let mut fields = raw.splitn(4, |b| *b == b' ');
    let time = std::str::from_utf8(fields.next()?).ok()?;
    let stdout = match fields.next()? {
        b"stdout" => true,
        b"stderr" => false,
        _ => return None,
    };
    let tags = fields.next()?;
    let mut content = fields.next()?;
    if tags.split(|b| *b == b':').next() == Some(b"P") {
        content = content.strip_suffix(b"\n").unwrap_or(content);
    }
    Some(Line { time, stdout, content })
}

/// Go's `RFC3339NanoFixed` of a time in Go's `RFC3339Nano`: nine digits after the point.
fn fixed_nanos(time: &str) -> String {
    let zone = time.rfind(['Z', '+', '-']).filter(|at| *at >= 19).unwrap_or(time.len());
    let (clock, zone) = time.split_at(zone);
    let (seconds, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    format!("{seconds}.{fraction:0<9}{zone}")
}

/// Turns the lines of a file into what its reader wants.
pub(super) struct Formatter {
    options: Options,
    line_start: bool,
    left: u64,
    lines_left: Option<u64>,
}

impl Formatter {
    pub(super) fn new(options: Options) -> Self {
        let lines_left = options.tail.filter(|_| !options.follow);
        Self { line_start: true, left: options.limit.unwrap_or(u64::MAX), lines_left, options }
    }
    /// Whether nothing more is wanted.
    pub(super) fn done(&self) -> bool {
        self.left == 0 || self.lines_left == Some(0)
    }
    /// Appends what is wanted of a line of the file, given with its end. A malformed line is left out.
    pub(super) fn line(&mut self, raw: &[u8], out: &mut BytesMut) {
        if self.done() {
            return;
        }
        let Some(line) = parse(raw) else { return };
        let old = || {
            self.options
                .since
                .is_some_and(|since| line.time.parse::<Timestamp>().is_ok_and(|time| time < since))
        };
        let wanted = match self.options.wanted {
            Wanted::All => true,
            Wanted::Stdout => line.stdout,
            Wanted::Stderr => !line.stdout,
        };
        if wanted && !old() {
            if self.options.timestamps && self.line_start {
                self.put(fixed_nanos(line.time).as_bytes(), out);
                self.put(b" ", out);
            }
            self.put(line.content, out);
        }
        if let Some(left) = &mut self.lines_left {
            *left -= 1;
        }
        self.line_start = line.content.last().is_none_or(|b| *b == b'\n');
    }

    fn put(&mut self, bytes: &[u8], out: &mut BytesMut) {
        let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        out.extend_from_slice(&bytes[..take]);
        self.left -= take as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2016-10-20T18:39:20.57606443Z stdout P the first \n\
                       2016-10-20T18:39:20.57606444Z stdout F line\n\
                       garbage\n\
                       2016-10-20T18:39:21Z stderr F the second line\n\
                       2016-10-20T18:39:22.1+02:00 stdout F:x third\n\
                       2016-10-20T18:39:23Z stdout F \n";

    fn options() -> Options {
        Options {
            wanted: Wanted::All,
            timestamps: false,
            since: None,
            tail: None,
            limit: None,
            follow: false,
        }
    }

    fn format(options: Options) -> String {
        let mut formatter = Formatter::new(options);
        let mut out = BytesMut::new();
        for line in LOG.split_inclusive('\n') {
            formatter.line(line.as_bytes(), &mut out);
        }
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn formats() {
        let check = |options: Options, expected: &str| assert_eq!(format(options), expected);
        check(options(), "the first line\nthe second line\nthird\n\n");
        check(Options { wanted: Wanted::Stderr, ..options() }, "the second line\n");
        check(Options { limit: Some(12), ..options() }, "the first li");
        check(
            Options { since: Some("2016-10-20T18:39:21Z".parse().unwrap()), ..options() },
            "the second line\n\n",
        );
        check(
            Options { timestamps: true, wanted: Wanted::Stdout, ..options() },
            "2016-10-20T18:39:20.576064430Z the first line\n\
             2016-10-20T18:39:22.100000000+02:00 third\n\
             2016-10-20T18:39:23.000000000Z \n",
        );
        check(Options { tail: Some(2), ..options() }, "the first line\n");
        check(Options { tail: Some(0), ..options() }, "");
    }

    #[test]
    fn malformed_lines() {
        for raw in ["", "\n", "x", "t stdout", "t other F x", "t stdout F"] {
            assert_eq!(parse(raw.as_bytes()), None, "{raw:?}");
        }
        assert_eq!(fixed_nanos("x"), "x.000000000");
    }
}
