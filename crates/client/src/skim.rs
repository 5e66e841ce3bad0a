//! A look at an object's JSON before it is decoded: which object it is, and where its `managedFields` stand.
//!
//! Nobody who caches reads `managedFields`, and they nest as deeply as their writers like; so they are cut out, by
//! one pass over the bytes that neither recurses nor allocates. Text that is no JSON is for the decoder to refuse.

use std::borrow::Cow;

use crate::key::Key;

/// An object's JSON without `metadata.managedFields`, and what tells one object from another.
#[derive(Debug, Default)]
pub(crate) struct Skim<'a> {
    /// The JSON to decode.
    pub(crate) json: Cow<'a, [u8]>,
    namespace: &'a [u8],
    name: &'a [u8],
    resource_version: &'a [u8],
}

impl<'a> Skim<'a> {
    /// Looks at an object's JSON.
    pub(crate) fn new(json: &'a [u8]) -> Self {
        let mut skim = Self::default();
        let mut cutter = Cutter { json, copied: 0, out: Vec::new() };
        if skim.object(json, &mut cutter).is_none() {
            // Whatever was found is not to be trusted.
            return Self { json: Cow::Borrowed(json), ..Self::default() };
        }
        skim.json = cutter.finish();
        skim
    }

    /// Which object it is, and its resourceVersion; `None` if it does not say.
    pub(crate) fn identity(&self) -> Option<(Key, String)> {
        let (name, revision) = (text(self.name)?, text(self.resource_version)?);
        let known = !name.is_empty() && !revision.is_empty();
        known.then(|| Some((Key::new(&text(self.namespace)?, &name), revision.into_owned())))?
    }

    fn object(&mut self, json: &'a [u8], cutter: &mut Cutter<'a>) -> Option<()> {
        let mut scan = Scan { json, at: 0 };
        let mut members = scan.members()?;
        while let Some(key) = members.next(&mut scan)? {
            if is(key, "metadata") && scan.peek() == Some(b'{') {
                self.metadata(&mut scan, cutter)?;
            } else {
                scan.value()?;
            }
        }
        Some(())
    }

    fn metadata(&mut self, scan: &mut Scan<'a>, cutter: &mut Cutter<'a>) -> Option<()> {
        // The last of several counts.
        (self.namespace, self.name, self.resource_version) = Default::default();
        let mut members = scan.members()?;
        let inside = scan.at;
        let mut cut = false;
        // Where the members that stay begin and end, as long as they stand together.
        let mut kept: Option<(usize, usize)> = None;
        while let Some(key) = members.next(scan)? {
            let begin = members.begin;
            let value = scan.value()?;
            if is(key, "managedFields") {
                if !std::mem::replace(&mut cut, true) {
                    cutter.copy_to(inside);
                }
                cutter.keep(kept.take());
                continue;
            }
            kept = Some((kept.map_or(begin, |k| k.0), scan.at));
            for (name, place) in [
                ("namespace", &mut self.namespace),
                ("name", &mut self.name),
                ("resourceVersion", &mut self.resource_version),
            ] {
                if is(key, name) {
                    *place = value;
                }
            }
        }
        if cut {
            cutter.keep(kept);
            cutter.copied = scan.at - 1;
        }
        Some(())
    }
}

/// Whether the inside of a key's quotes says this.
fn is(key: &[u8], name: &str) -> bool {
    key == name.as_bytes() || key.contains(&b'\\') && unescaped(key).is_some_and(|k| k == name)
}

/// The text that stands between quotes.
fn unescaped(inside: &[u8]) -> Option<String> {
    let mut quoted = Vec::with_capacity(inside.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(inside);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).ok()
}

/// The text of a value that is a string; "" if there is no value.
fn text(value: &[u8]) -> Option<Cow<'_, str>> {
    match value {
        [] => Some(Cow::Borrowed("")),
        [b'"', inside @ .., b'"'] if inside.contains(&b'\\') => unescaped(inside).map(Cow::Owned),
        [b'"', inside @ .., b'"'] => std::str::from_utf8(inside).ok().map(Cow::Borrowed),
        _ => None,
    }
}

/// Copies what stays, once something goes.
struct Cutter<'a> {
    json: &'a [u8],
    copied: usize,
    out: Vec<u8>,
}

impl<'a> Cutter<'a> {
    /// All up to a place, which is behind the opening brace of metadata.
    fn copy_to(&mut self, to: usize) {
        if self.out.capacity() == 0 {
            self.out.reserve(self.json.len());
        }
        self.out.extend_from_slice(&self.json[self.copied..to]);
        self.copied = to;
    }
    /// Members of metadata that stand together.
    fn keep(&mut self, members: Option<(usize, usize)>) {
        let Some((begin, end)) = members else { return };
        if self.out.last() != Some(&b'{') {
            self.out.push(b',');
        }
        self.out.extend_from_slice(&self.json[begin..end]);
    }
    fn finish(mut self) -> Cow<'a, [u8]> {
        if self.copied == 0 {
            return Cow::Borrowed(self.json);
        }
        self.out.extend_from_slice(&self.json[self.copied..]);
        Cow::Owned(self.out)
    }
}

struct Scan<'a> {
    json: &'a [u8],
    at: usize,
}

/// The members of an object that is being scanned.
struct Members {
    first: bool,
    /// Where the current one begins.
    begin: usize,
}

impl Members {
    /// The inside of the next key's quotes, with the scan at its value; the inner `None` at the object's end.
    #[allow(clippy::option_option, reason = "no JSON, and the end of the object")]
    fn next<'a>(&mut self, scan: &mut Scan<'a>) -> Option<Option<&'a [u8]>> {
        if scan.peek()? == b'}' {
            scan.at += 1;
            return Some(None);
        }
        if !std::mem::take(&mut self.first) {
            scan.byte(b',')?;
            scan.peek()?;
        }
        self.begin = scan.at;
        let key = scan.string()?;
        scan.byte(b':')?;
        scan.peek()?;
        Some(Some(key))
    }
}

impl<'a> Scan<'a> {
    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(b) = self.json.get(self.at) {
            if !matches!(b, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(*b);
            }
            self.at += 1;
        }
        None
    }

    fn byte(&mut self, wanted: u8) -> Option<()> {
        let found = self.peek()? == wanted;
        self.at += 1;
        found.then_some(())
    }

    /// Begins an object.
    fn members(&mut self) -> Option<Members> {
        self.byte(b'{')?;
        Some(Members { first: true, begin: self.at })
    }

    /// The inside of a string's quotes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.byte(b'"')?;
        let begin = self.at;
        loop {
            match self.json.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        self.json.get(begin..self.at - 1)
    }

    /// Passes over a value.
    fn value(&mut self) -> Option<&'a [u8]> {
        self.peek()?;
        let begin = self.at;
        let mut depth = 0usize;
        loop {
            match self.json.get(self.at)? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b' ' | b'\n' | b'\t' | b'\r' | b',' | b':' if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                _ => {
                    // A number or a word ends where something else begins.
                    let rest = &self.json[self.at..];
                    let end = rest.iter().position(|b| {
                        matches!(
                            b,
                            b',' | b':' | b'}' | b']' | b'{' | b'[' | b'"' | b' ' | b'\n' | b'\t' | b'\r'
                        )
                    });
                    let len = end.unwrap_or(rest.len());
                    if len == 0 {
                        return None;
                    }
                    self.at += len;
                }
            }
            if depth == 0 {
                return self.json.get(begin..self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn cuts() {
        let check = |text: &str, expected: &str| {
            let skim = Skim::new(text.as_bytes());
            assert_eq!(std::str::from_utf8(&skim.json).unwrap(), expected);
        };
        for same in [
            r#"{"metadata":{"name":"a"},"managedFields":[1]}"#,
            r#"{"spec":{"metadata":{"managedFields":[1]}}}"#,
            r#"{"metadata":null}"#,
            r#"{"metadata":"managedFields"}"#,
            r#"{"metadata":{"name":"\"managedFields\":[1],"}}"#,
            "{}",
            "",
            "{",
            r#"{"metadata":{"managedFields":[1]"#,
            r#"{"metadata":{"managedFields":"x"#,
            r#"{"metadata":{"managedFields":"x\"#,
            r#"{"metadata":{"managedFields":]}}"#,
            r#"{"metadata":{"managedFields"}}"#,
            "[1]",
        ] {
            check(same, same);
        }
        check(r#"{"metadata":{"managedFields":[{"a":{}}]}}"#, r#"{"metadata":{}}"#);
        check(
            r#"{"metadata":{"name":"a","managedFields":[],"uid":"u"}}"#,
            r#"{"metadata":{"name":"a","uid":"u"}}"#,
        );
        check(
            "{ \"kind\" : \"A\" ,\n\"metadata\" : { \"managedFields\" : [ \"]\\\"\" ] , \"name\" : \"a\" , \"managedFields\" : 1 } , \"x\" : [ ] }",
            "{ \"kind\" : \"A\" ,\n\"metadata\" : {\"name\" : \"a\"} , \"x\" : [ ] }",
        );
        check(
            r#"{"metadata":{"managed\u0046ields":[],"a":1,"b":2,"managedFields":{},"c":3}}"#,
            r#"{"metadata":{"a":1,"b":2,"c":3}}"#,
        );
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        check(
            &format!(r#"{{"metadata":{{"managedFields":{deep},"name":"a"}}}}"#),
            r#"{"metadata":{"name":"a"}}"#,
        );
    }

    #[test]
    fn identities() {
        let check = |text: &str, expected: Option<(&str, &str, &str)>| {
            let found = Skim::new(text.as_bytes()).identity();
            assert_eq!(found, expected.map(|(ns, name, rv)| (Key::new(ns, name), rv.to_owned())), "{text}");
        };
        check(
            r#"{"metadata":{"managedFields":[{"name":"x"}],"name":"a","namespace":"n","resourceVersion":"7"}}"#,
            Some(("n", "a", "7")),
        );
        check(
            r#"{"metadata":{"n\u0061me":"\u0061b","resourceVersion":"7"},"spec":7}"#,
            Some(("", "ab", "7")),
        );
        check(r#"{"metadata":{"name":"a"}}"#, None);
        check(r#"{"metadata":{"name":7,"resourceVersion":"7"}}"#, None);
        check(r#"{"metadata":{"name":"a","resourceVersion":"7"}"#, None);
        check(r#"{"metadata":{"name":"a","resourceVersion":"7"},"metadata":{}}"#, None);
        check("null", None);
    }

    /// Some value, with keys and strings that look like what is cut.
    fn value(random: &mut fastrand::Rng, depth: u32) -> Value {
        let word = |random: &mut fastrand::Rng| {
            let words = [
                "metadata",
                "managedFields",
                "name",
                "\"managedFields\":[",
                "}\\",
                "{",
                "\u{1}ä",
                "",
                "resourceVersion",
            ];
            words[random.usize(..words.len())].to_owned()
        };
        match random.u32(..if depth == 0 { 5 } else { 9 }) {
            0 => Value::Null,
            1 => json!(random.bool()),
            2 => json!(random.i64(-1000..1000)),
            3 => json!(f64::from(random.i16(..)) / 8.0),
            4 => Value::String(word(random)),
            5 | 6 => (0..random.usize(..4)).map(|_| value(random, depth - 1)).collect(),
            _ => {
                let members = (0..random.usize(..5)).map(|_| (word(random), value(random, depth - 1)));
                Value::Object(members.collect())
            }
        }
    }

    /// A text of a value: with white space, escapes that nobody needs, and keys that stand twice.
    fn write(value: &Value, random: &mut fastrand::Rng, out: &mut String) {
        let space = |random: &mut fastrand::Rng, out: &mut String| {
            for _ in 0..random.usize(..6).saturating_sub(3) {
                out.push([' ', '\n', '\t', '\r'][random.usize(..4)]);
            }
        };
        let string = |text: &str, random: &mut fastrand::Rng, out: &mut String| {
            let quoted = Value::from(text).to_string();
            match text.chars().next() {
                Some(first @ 'a'..='z') if random.u32(..4) == 0 => {
                    let _ = write!(out, "\"\\u{:04x}{}", first as u32, &quoted[2..]);
                }
                _ => *out += &quoted,
            }
        };
        space(random, out);
        match value {
            Value::String(text) => string(text, random, out),
            Value::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    write(item, random, out);
                }
                out.push(']');
            }
            Value::Object(members) => {
                out.push('{');
                let mut first = true;
                for (key, value) in members {
                    // The last one counts.
                    let twice = random.u32(..8) == 0;
                    for value in twice.then_some(&Value::Bool(true)).into_iter().chain([value]) {
                        if !std::mem::take(&mut first) {
                            out.push(',');
                        }
                        space(random, out);
                        string(key, random, out);
                        space(random, out);
                        out.push(':');
                        write(value, random, out);
                    }
                }
                space(random, out);
                out.push('}');
            }
            other => *out += &other.to_string(),
        }
        space(random, out);
    }

    #[test]
    fn any_json_is_the_same_without_managed_fields() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut object = json!({ "metadata": value(&mut random, 4), "x": value(&mut random, 3) });
            let mut text = String::new();
            write(&object, &mut random, &mut text);
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
            let skim = Skim::new(text.as_bytes());
            let read: Value = serde_json::from_slice(&skim.json).unwrap_or_else(|e| panic!("{e}: {text}"));
            assert_eq!(read, object, "{text}");
            let said = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
            if let Some((key, revision)) = skim.identity() {
                assert_eq!(
                    (key.name.as_str(), revision),
                    (&*said("name"), said("resourceVersion")),
                    "{text}"
                );
            } else {
                assert!(
                    said("name").is_empty()
                        || said("resourceVersion").is_empty()
                        || !object["metadata"]["namespace"].is_string(),
                    "{text}"
                );
            }
            // No prefix of it breaks anything, nor is anything made of it that is JSON.
            let cut = &text.as_bytes()[..random.usize(..text.len())];
            let _ = Skim::new(cut);
        }
    }
}
