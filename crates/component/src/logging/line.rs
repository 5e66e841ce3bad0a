//! The form of a line: klog's text, and the JSON of upstream's component-base.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use super::levels::verbosity;

/// The forms of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// klog's: `W0102 15:04:05.678901 1234 lease.rs:39] "message" err="why" key="value"`. The time is UTC (DIFFERENCE:
    /// klog has the time of the machine's zone).
    Text,
    /// An object: `ts` (milliseconds), `caller`, `msg`, `v` except of errors, the other values, and `err`.
    Json,
}

/// A value of a line.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Text(String),
    /// A number or a truth, as both forms write it.
    Plain(String),
}

/// A line before it has a form.
#[derive(Debug, Clone)]
pub(super) struct Line<'a> {
    level: Level,
    file: Option<&'a str>,
    number: u32,
    message: String,
    values: Vec<(&'a str, Value)>,
    error: Option<String>,
}

impl Visit for Line<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.value(field.name(), Value::Text(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.value(field.name(), Value::Plain(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.value(field.name(), Value::Plain(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.value(field.name(), Value::Plain(value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no other numbers.
        let value =
            if value.is_finite() { Value::Plain(value.to_string()) } else { Value::Text(value.to_string()) };
        self.value(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.value(field.name(), Value::Text(format!("{value:?}")));
    }
}

impl<'a> Line<'a> {
    /// The line of an event.
    pub(super) fn of(event: &Event<'a>) -> Self {
        let metadata = event.metadata();
        let mut line = Self {
            level: *metadata.level(),
            file: metadata.file(),
            number: metadata.line().unwrap_or_default(),
            message: String::new(),
            values: Vec::new(),
            error: None,
        };
        event.record(&mut line);
        line
    }

    /// A line that comes from no place in the program.
    pub(super) fn told(level: Level, message: &str) -> Self {
        Self { level, file: None, number: 0, message: message.to_owned(), values: Vec::new(), error: None }
    }

    fn value(&mut self, name: &'static str, value: Value) {
        match (name, value) {
            ("message", Value::Text(text)) => self.message = text,
            ("error", Value::Text(text)) if self.error.is_none() => self.error = Some(text),
            (name, value) => self.values.push((name, value)),
        }
    }

    /// Whether the line goes where errors go; upstream's forms differ in warnings.
    pub(super) fn is_error(&self, format: Format) -> bool {
        match format {
            Format::Text => self.level <= Level::WARN,
            Format::Json => self.level == Level::ERROR,
        }
    }

    /// The line with its end.
    pub(super) fn render(&self, format: Format, now: jiff::Timestamp) -> String {
        let mut out = String::with_capacity(160);
        // Writing to a string cannot fail.
        let _ = match format {
            Format::Text => self.text(&mut out, now),
            Format::Json => self.json(&mut out, now),
        };
        out
    }

    fn text(&self, out: &mut String, now: jiff::Timestamp) -> fmt::Result {
        let letter = match self.level {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let time = jiff::tz::Offset::UTC.to_datetime(now);
        let micros = time.subsec_nanosecond() / 1000;
        let (month, day, hour) = (time.month(), time.day(), time.hour());
        let (minute, second, process) = (time.minute(), time.second(), std::process::id());
        write!(
            out,
            "{letter}{month:02}{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06} {process:>7} "
        )?;
        let file = self.file.and_then(|path| path.rsplit('/').next()).unwrap_or("???");
        write!(out, "{file}:{}] ", self.number)?;
        quote(out, &self.message)?;
        if let Some(error) = &self.error {
            text_value(out, "err", error)?;
        }
        for (name, value) in &self.values {
            match value {
                Value::Text(text) => text_value(out, name, text)?,
                Value::Plain(text) => write!(out, " {name}={text}")?,
            }
        }
        out.write_char('\n')
    }

    fn json(&self, out: &mut String, now: jiff::Timestamp) -> fmt::Result {
        let nanos = now.as_nanosecond();
        write!(out, "{{\"ts\":{},\"caller\":", nanos as f64 / 1e6)?;
        match self.file {
            Some(path) => json_text(out, &format!("{}:{}", caller(path), self.number))?,
            None => out.write_str("\"undefined\"")?,
        }
        out.write_str(",\"msg\":")?;
        json_text(out, &self.message)?;
        if self.level != Level::ERROR {
            write!(out, ",\"v\":{}", verbosity(self.level))?;
        }
        for (name, value) in &self.values {
            out.write_char(',')?;
            json_text(out, name)?;
            out.write_char(':')?;
            match value {
                Value::Text(text) => json_text(out, text)?,
                Value::Plain(text) => out.write_str(text)?,
            }
        }
        if let Some(error) = &self.error {
            out.write_str(",\"err\":")?;
            json_text(out, error)?;
        }
        out.write_str("}\n")
    }
}

/// The end of a file's path, as zap tells it: a directory and the file.
fn caller(path: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').filter(|part| *part != "src").collect();
    parts.drain(..parts.len().saturating_sub(2));
    parts.join("/")
}

/// A key and a text in klog's form: several lines are indented.
fn text_value(out: &mut String, name: &str, text: &str) -> fmt::Result {
    write!(out, " {name}=")?;
    if !text.contains('\n') {
        return quote(out, text);
    }
    out.write_char('<')?;
    for line in text.split('\n') {
        write!(out, "\n\t{line}")?;
    }
    out.write_str("\n >")
}

/// A text as Go's `%q` writes it.
fn quote(out: &mut String, text: &str) -> fmt::Result {
    quoted(out, text, |out, c| match u32::from(c) {
        code @ (..0x20 | 0x7f) => write!(out, "\\x{code:02x}"),
        code if c.is_control() => write!(out, "\\u{code:04x}"),
        _ => out.write_char(c),
    })
}

/// A text in JSON.
fn json_text(out: &mut String, text: &str) -> fmt::Result {
    quoted(out, text, |out, c| match u32::from(c) {
        code @ ..0x20 => write!(out, "\\u{code:04x}"),
        _ => out.write_char(c),
    })
}

/// A text in quotes. The escapes are those that both forms have; `other` writes all other characters.
fn quoted(out: &mut String, text: &str, other: impl Fn(&mut String, char) -> fmt::Result) -> fmt::Result {
    out.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(out, "\\{c}")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            c => other(out, c)?,
        }
    }
    out.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(level: Level, message: &str, values: &[(&'static str, Value)]) -> Line<'static> {
        let mut line =
            Line { file: Some("crates/json/src/json_test.rs"), number: 7, ..Line::told(level, message) };
        for (name, value) in values {
            line.value(name, value.clone());
        }
        line
    }

    fn check(
        format: Format,
        (level, message): (Level, &str),
        values: &[(&'static str, Value)],
        expected: &str,
    ) {
        let now = jiff::Timestamp::from_nanosecond(1_764_281_045_678_901_234).unwrap();
        let expected = expected.replace("PID", &format!("{:>7}", std::process::id()));
        assert_eq!(line(level, message, values).render(format, now), format!("{expected}\n"), "{message}");
    }

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    fn plain(text: &str) -> Value {
        Value::Plain(text.to_owned())
    }

    /// Upstream's cases (`json_test.go`), with the time and the place of this test.
    #[test]
    fn json_in_upstreams_form() {
        let json = |line, values: &[_], expected: &str| {
            let head = "{\"ts\":1764281045678.9014,\"caller\":\"json/json_test.rs:7\",";
            check(Format::Json, line, values, &format!("{head}{expected}"));
        };
        let some = [("ns", text("default")), ("podnum", plain("2"))];
        json((Level::WARN, "test"), &some, "\"msg\":\"test\",\"v\":0,\"ns\":\"default\",\"podnum\":2}");
        json((Level::INFO, "test"), &[], "\"msg\":\"test\",\"v\":2}");
        json((Level::DEBUG, "test"), &[], "\"msg\":\"test\",\"v\":4}");
        json((Level::TRACE, "test"), &[], "\"msg\":\"test\",\"v\":5}");
        let twice = [("akey", text("avalue")), ("akey", text("anothervalue"))];
        json(
            (Level::WARN, "test for duplicate keys"),
            &twice,
            "\"msg\":\"test for duplicate keys\",\"v\":0,\"akey\":\"avalue\",\"akey\":\"anothervalue\"}",
        );
        json(
            (Level::ERROR, "wrong namespace"),
            &[("error", text("invalid namespace:default")), ("ns", text("default")), ("podnum", plain("2"))],
            "\"msg\":\"wrong namespace\",\"ns\":\"default\",\"podnum\":2,\"err\":\"invalid namespace:default\"}",
        );
        json((Level::ERROR, "a\"\\\n\r\t\u{1}☺"), &[], "\"msg\":\"a\\\"\\\\\\n\\r\\t\\u0001☺\"}");
        json((Level::ERROR, "x"), &[("on", plain("true"))], "\"msg\":\"x\",\"on\":true}");
    }

    #[test]
    fn text_in_klogs_form() {
        let klog = |line, values: &[_], expected: &str| check(Format::Text, line, values, expected);
        let at = |letter: &str| format!("{letter}1127 22:04:05.678901 PID json_test.rs:7] ");
        klog((Level::INFO, "test"), &[], &format!("{}\"test\"", at("I")));
        klog((Level::DEBUG, "a\"b\tc\u{1}"), &[], &format!("{}\"a\\\"b\\tc\\x01\"", at("I")));
        let values = [("n", plain("2")), ("error", text("why: \"x\"")), ("pod", text("ns/p"))];
        klog(
            (Level::WARN, "test"),
            &values,
            &format!("{}\"test\" err=\"why: \\\"x\\\"\" n=2 pod=\"ns/p\"", at("W")),
        );
        let lines = [("error", text("one\ntwo"))];
        klog((Level::ERROR, "test"), &lines, &format!("{}\"test\" err=<\n\tone\n\ttwo\n >", at("E")));
    }

    #[test]
    fn callers_are_a_directory_and_a_file() {
        let check = |path, expected: &str| assert_eq!(caller(path), expected);
        check("crates/kubelet/src/node/lease.rs", "node/lease.rs");
        check("crates/kubelet/src/kubelet.rs", "kubelet/kubelet.rs");
        check("lib.rs", "lib.rs");
    }

    #[test]
    fn every_json_line_is_one_line() {
        for c in (0..=0x2028).filter_map(char::from_u32) {
            let message = format!("{c}x");
            let line = line(Level::ERROR, &message, &[("k", text(&message))])
                .render(Format::Json, jiff::Timestamp::UNIX_EPOCH);
            assert_eq!(line.matches(|c| c < ' ').count(), 1, "{c:?}");
            let line = Line::told(Level::ERROR, &message).render(Format::Text, jiff::Timestamp::UNIX_EPOCH);
            assert_eq!(line.matches(|c: char| c.is_ascii_control()).count(), 1, "{c:?}");
        }
    }
}
