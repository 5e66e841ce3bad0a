//! Lines of a container's output, as the log of CRI has them: time, stream, `F` or `P`, text.
//!
//! Pure: what is written comes as parts, which refer to the buffer that was read into.

/// The most bytes of a line's text; a longer one is written in parts, as containerd and CRI-O do.
pub(crate) const LINE: usize = 16 * 1024;
/// The most lines that are written at once.
pub(crate) const LINES: usize = 32;
/// The longest head of a line: `2006-01-02T15:04:05.000000000Z stdout F `.
pub(crate) const HEAD: usize = 40;

/// A head, and how much of the buffer belongs to its line.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    pub(crate) head: [u8; HEAD],
    pub(crate) head_len: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Line {
    pub(crate) const NONE: Self = Self { head: [0; HEAD], head_len: 0, start: 0, end: 0 };
}

/// Cuts lines from a buffer: how many, and how many bytes they used. At the end (`last`) the rest is a part of a line that
/// never came to its end, as containerd has it: readers of the log add no newline that the container did not write. The
/// return before a newline, which terminals write, is no part of the text; containerd's logs have none either.
pub(crate) fn cut(
    buffer: &[u8],
    last: bool,
    error: bool,
    now: (i64, i64),
    lines: &mut [Line; LINES],
) -> (usize, usize) {
    let (mut count, mut used) = (0, 0);
    while count < LINES && used < buffer.len() {
        let rest = &buffer[used..];
        let window = &rest[..rest.len().min(LINE + 2)];
        let end = window.iter().position(|b| *b == b'\n');
        let text = |at: usize| at - usize::from(window[..at].ends_with(b"\r"));
        let (len, skip, whole) = match end {
            Some(at) if text(at) <= LINE => (text(at), at + 1, true),
            _ if rest.len() >= LINE => (LINE, LINE, false),
            _ if last => (rest.len(), rest.len(), false),
            _ => break,
        };
        let line = &mut lines[count];
        line.head_len = head(&mut line.head, now, error, whole);
        line.start = used;
        line.end = used + len;
        used += skip;
        count += 1;
    }
    (count, used)
}

/// Writes a line's head, and says how long it is.
pub(crate) fn head(out: &mut [u8; HEAD], (seconds, nanos): (i64, i64), error: bool, whole: bool) -> usize {
    let days = seconds.div_euclid(86_400);
    let in_day = seconds.rem_euclid(86_400);
    // Days to a date: eras of 400 years, which begin in March (Howard Hinnant's algorithm).
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let mut at = 0;
    let mut put = |out: &mut [u8; HEAD], value: i64, width: usize, after: u8| {
        let mut value = value;
        for i in (0..width).rev() {
            out[at + i] = b'0' + value.rem_euclid(10) as u8;
            value = value.div_euclid(10);
        }
        out[at + width] = after;
        at += width + 1;
    };
    put(out, year, 4, b'-');
    put(out, month, 2, b'-');
    put(out, day, 2, b'T');
    put(out, in_day / 3600, 2, b':');
    put(out, in_day / 60 % 60, 2, b':');
    put(out, in_day % 60, 2, b'.');
    put(out, nanos, 9, b'Z');
    let stream: &[u8; 8] = if error { b" stderr " } else { b" stdout " };
    out[at..at + 8].copy_from_slice(stream);
    out[at + 8] = if whole { b'F' } else { b'P' };
    out[at + 9] = b' ';
    at + 10
}
