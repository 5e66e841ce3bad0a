//! Decoding of JSON text to trees, by the schema, in one pass.

use std::borrow::Cow;

use base64::Engine;

use super::super::normal;
use super::super::report::{Report, Step, go_struct};
use super::super::{DecodeError, Decoded};
use super::lexer::{Lexed, Lexer};
use crate::depth::{AROUND, MAX_DEPTH};
use crate::schema::{AnyKind, Field, Or, Schema, StructId, Type, TypeId};
use crate::tree::{Map, Node, Struct, Text};

/// The text of a body. Invalid UTF-8 is replaced, as Go does.
fn text(body: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(body) {
        Ok(t) => Cow::Borrowed(t),
        Err(_) => String::from_utf8_lossy(body),
    }
}

/// Decodes an object of the root struct `root`.
pub fn decode(schema: &Schema, root: StructId, body: &[u8]) -> Result<Decoded, DecodeError> {
    decode_to(schema, root, body, MAX_DEPTH)
}

/// Like [`decode`], with a limit of depth.
pub(crate) fn decode_to(
    schema: &Schema,
    root: StructId,
    body: &[u8],
    depth: usize,
) -> Result<Decoded, DecodeError> {
    let text = text(body);
    let mut d = Decoder { lexer: Lexer::new(&text, depth), report: Report::new(schema), unsettled: false };
    let mut tree = Struct::new(root);
    match d.lexer.peek() {
        b'{' => d.fields(&mut tree)?,
        b'n' => d.lexer.word("null")?,
        _ => {
            let what = d.compound_or_scalar()?;
            d.lexer.end()?;
            return Err(DecodeError::TypeMeta(format!(
                "json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
            )));
        }
    }
    let strict = d.finish(&mut tree)?;
    let st = schema.st(root);
    let mut take = |name: &str| -> Text {
        let no = if st.kind { st.field(name) } else { None };
        match no.and_then(|no| tree.remove(no)) {
            Some(Node::Str(s)) => s,
            _ => Text::default(),
        }
    };
    let (kind, api_version) = (take("kind"), take("apiVersion"));
    Ok(Decoded { api_version, kind, tree, strict })
}

/// Decodes some fields of an object of the root struct `root`; what is in the others is not looked at.
pub fn decode_fields(
    schema: &Schema,
    root: StructId,
    body: &[u8],
    wanted: &[&str],
) -> Result<Struct, DecodeError> {
    let text = text(body);
    let mut d =
        Decoder { lexer: Lexer::new(&text, MAX_DEPTH), report: Report::new(schema), unsettled: false };
    let mut tree = Struct::new(root);
    let st = schema.st(root);
    d.lexer.open()?;
    let mut first = true;
    while let Some(key) = d.lexer.key(first)? {
        first = false;
        let Some(no) = st.field(&key).filter(|_| wanted.contains(&&*key)) else {
            d.lexer.skip()?;
            continue;
        };
        let field = st.at(no);
        d.report.path.push(Step::Field(root, no));
        let value = d.field(field, None)?;
        d.report.path.pop();
        if let Some(value) = value {
            normal::put(&mut tree, no, field, schema.ty(field.ty), value);
        }
    }
    d.finish(&mut tree)?;
    Ok(tree)
}

/// Decodes a value without a schema. Maps are sorted by key; the last of several equal keys counts.
pub fn decode_any(body: &[u8]) -> Result<Node, DecodeError> {
    decode_any_strict(body).map(|(node, _)| node)
}

/// Like [`decode_any`], with the complaints of strict validation about duplicate fields.
pub fn decode_any_strict(body: &[u8]) -> Result<(Node, Vec<String>), DecodeError> {
    decode_within(body, MAX_DEPTH)
}

/// Like [`decode_any`], for a value that stands in another one at this depth.
pub(crate) fn decode_any_at(body: &[u8], depth: usize) -> Result<Node, DecodeError> {
    decode_within(body, MAX_DEPTH.saturating_sub(depth)).map(|(node, _)| node)
}

/// Like [`decode_any`], for an answer that this process made, which may be a list of objects.
pub fn decode_answer(body: &[u8]) -> Result<Node, DecodeError> {
    decode_within(body, MAX_DEPTH + AROUND).map(|(node, _)| node)
}

fn decode_within(body: &[u8], depth: usize) -> Result<(Node, Vec<String>), DecodeError> {
    let text = text(body);
    let schema = Schema::default();
    let mut d = Decoder { lexer: Lexer::new(&text, depth), report: Report::new(&schema), unsettled: false };
    let node = d.any(true)?;
    d.lexer.end()?;
    Ok((node, d.report.finish()?))
}

/// The text of an embedded object in a tree, without the white space that no form shows: upstream drops it from JSON
/// and YAML, and a watch is split at line breaks by some clients. The rest stays as it was written.
pub(crate) fn raw(text: &str) -> Node {
    let (mut inside, mut escaped) = (false, false);
    let kept = |c: &char| {
        let keep = inside || !matches!(c, ' ' | '\t' | '\n' | '\r');
        inside ^= *c == '"' && !escaped;
        escaped = inside && *c == '\\' && !escaped;
        keep
    };
    Node::Raw(text.chars().filter(kept).collect())
}

/// The value of an embedded object's text, or the text itself if a value cannot hold it, such as a number without
/// bounds.
pub(crate) fn raw_value(text: &str) -> Node {
    decode_any(text.as_bytes()).unwrap_or_else(|_| Node::Raw(text.into()))
}

struct Decoder<'s, 'a> {
    lexer: Lexer<'a>,
    report: Report<'s, 'a>,
    /// Whether a map came in several parts: such maps are sorted once, at the end.
    unsettled: bool,
}

impl Decoder<'_, '_> {
    /// Brings a root's tree into normal form at the end of the text; the complaints of strict validation.
    fn finish(mut self, tree: &mut Struct) -> Lexed<Vec<String>> {
        self.lexer.end()?;
        let schema = self.report.schema;
        if self.unsettled {
            normal::settle(schema, tree);
        }
        let mut strict = self.report.finish()?;
        normal::prune(schema, tree, &mut strict);
        Ok(strict)
    }

    /// Passes over a value and returns the name of its type.
    fn compound_or_scalar(&mut self) -> Lexed<&'static str> {
        let what = match self.lexer.peek() {
            b'{' => "object",
            b'[' => "array",
            b'"' => "string",
            b't' | b'f' => "bool",
            _ => "number",
        };
        self.lexer.skip()?;
        Ok(what)
    }

    /// Decodes the fields of an object, whose brace is not yet consumed, into a struct.
    fn fields(&mut self, into: &mut Struct) -> Lexed<()> {
        let schema = self.report.schema;
        let st = schema.st(into.id);
        self.lexer.open()?;
        let mut first = true;
        let mut seen: u128 = 0;
        let mut rest = Vec::new();
        while let Some(key) = self.lexer.key(first)? {
            first = false;
            let Some(no) = st.field(&key).filter(|_| !key.is_empty()) else {
                if st.rest.is_some() {
                    let name = Text::from(&*key);
                    self.report.path.push(Step::Key(key));
                    let value = self.any(true)?;
                    self.report.path.pop();
                    rest.push((name, value));
                } else {
                    self.report.unknown(&key);
                    self.lexer.skip()?;
                }
                continue;
            };
            let bit = 1u128.checked_shl(u32::from(no.0)).unwrap_or(0);
            let again = if bit == 0 { into.has(no) } else { seen & bit != 0 };
            seen |= bit;
            let field = st.at(no);
            let before = if again {
                self.report.duplicate(&key);
                into.remove(no)
            } else {
                None
            };
            self.report.path.push(Step::Field(into.id, no));
            let value = self.field(field, before)?;
            self.report.path.pop();
            if let Some(value) = value {
                normal::put(into, no, field, schema.ty(field.ty), value);
            }
        }
        if let Some(part) = &st.rest {
            into.set(part.field, normal::distinct(&mut self.report, rest));
        }
        Ok(())
    }

    /// Decodes a field's value. Like Go, it decodes a duplicate of a struct or map into the value `before`.
    fn field(&mut self, field: &Field, before: Option<Node>) -> Lexed<Option<Node>> {
        if before.is_some() {
            match (self.report.schema.ty(field.ty), self.lexer.peek(), before) {
                (Type::Struct(_), b'{', Some(Node::Struct(mut s))) => {
                    self.fields(&mut s)?;
                    return Ok(Some(Node::Struct(s)));
                }
                (Type::Map { of, .. }, b'{', Some(Node::Map(mut m))) => {
                    for (key, value) in self.map(*of)?.into_entries() {
                        self.unsettled |= !m.append(key, value);
                    }
                    return Ok(Some(Node::Map(m)));
                }
                // `null` leaves a plain scalar as it was.
                (Type::Bool | Type::Int32 | Type::Int64 | Type::Float64 | Type::String, b'n', before)
                    if !field.pointer =>
                {
                    self.lexer.word("null")?;
                    return Ok(before);
                }
                _ => {}
            }
        }
        self.value(field.ty)
    }

    /// Decodes a value; `None` for `null` and for a value that does not fit, which is reported.
    fn value(&mut self, ty: TypeId) -> Lexed<Option<Node>> {
        let schema = self.report.schema;
        let next = self.lexer.peek();
        if matches!(schema.ty(ty), Type::Any(AnyKind::RawExtension)) && next != b'n' {
            return self.lexer.raw().map(|text| Some(raw(text)));
        }
        match next {
            b'"' => match schema.ty(ty) {
                Type::String => Ok(Some(Node::Str(self.lexer.string()?.into()))),
                Type::Any(_) => Ok(Some(Node::Str(self.lexer.string()?.into()))),
                Type::Or { or, .. } => {
                    self.lexer.skip()?;
                    self.not_or(*or);
                    Ok(None)
                }
                _ => {
                    let s = self.lexer.string()?;
                    Ok(normal::from_str(&mut self.report, ty, &s))
                }
            },
            b'{' => match schema.ty(ty) {
                Type::Struct(id) => {
                    let mut s = Box::new(Struct::new(*id));
                    self.fields(&mut s)?;
                    Ok(Some(Node::Struct(s)))
                }
                Type::Map { of, .. } => self.map(*of).map(|m| Some(Node::Map(m))),
                Type::Any(kind) => self.any_of(*kind).map(Some),
                Type::Or { of, .. } => {
                    self.report.lenient += 1;
                    let mut s = Box::new(Struct::new(*of));
                    self.fields(&mut s)?;
                    self.report.lenient -= 1;
                    Ok(Some(Node::Struct(s)))
                }
                _ => self.misplaced(ty, "object"),
            },
            b'[' => match schema.ty(ty) {
                Type::List { of, .. } => self.list(*of).map(|l| Some(Node::List(l))),
                Type::Any(kind) => self.any_of(*kind).map(Some),
                Type::Or { of, or } => self.or_list(*of, *or),
                Type::Bytes => self.byte_list().map(Some),
                _ => self.misplaced(ty, "array"),
            },
            c @ (b't' | b'f') => {
                let value = c == b't';
                self.lexer.word(if value { "true" } else { "false" })?;
                match schema.ty(ty) {
                    Type::Any(_) | Type::Or { or: Or::Bool, .. } => Ok(Some(Node::Bool(value))),
                    Type::Or { .. } => Ok(None),
                    _ => Ok(normal::from_bool(&mut self.report, ty, value)),
                }
            }
            b'n' => {
                self.lexer.word("null")?;
                Ok(None)
            }
            b'-' | b'0'..=b'9' => {
                let text = self.lexer.number()?;
                match schema.ty(ty) {
                    Type::Any(_) => Ok(Some(self.any_number(text))),
                    Type::Or { or, .. } => {
                        self.not_or(*or);
                        Ok(None)
                    }
                    _ => Ok(normal::from_number(&mut self.report, ty, text)),
                }
            }
            _ => Err(self.lexer.no_value()),
        }
    }

    /// Decodes a list of numbers as bytes, as Go does.
    fn byte_list(&mut self) -> Lexed<Node> {
        self.lexer.open()?;
        let mut out = Vec::new();
        let mut first = true;
        while self.lexer.element(first)? {
            first = false;
            match self.lexer.peek() {
                b'-' | b'0'..=b'9' => {
                    let text = self.lexer.number()?;
                    match text.parse::<u8>() {
                        Ok(b) => out.push(b),
                        Err(_) => self.report.mismatch(&format!("number {text}"), "uint8"),
                    }
                }
                b'n' => {
                    self.lexer.word("null")?;
                    out.push(0);
                }
                _ => {
                    let what = self.compound_or_scalar()?;
                    self.report.mismatch(what, "uint8");
                }
            }
        }
        Ok(Node::Str(crate::base64_text::BASE64.encode(out).into()))
    }

    fn misplaced(&mut self, ty: TypeId, what: &str) -> Lexed<Option<Node>> {
        self.lexer.skip()?;
        normal::from_compound(&mut self.report, ty, what);
        Ok(None)
    }

    /// Handles a value that is neither the struct nor its simpler form: two of the three types take it for nothing.
    fn not_or(&mut self, or: Or) {
        if or == Or::Bool {
            self.report.stop_invalid("boolean or JSON schema expected");
        }
    }

    fn or_list(&mut self, of: StructId, or: Or) -> Lexed<Option<Node>> {
        if or == Or::Bool {
            self.lexer.skip()?;
            self.not_or(or);
            return Ok(None);
        }
        self.report.lenient += 1;
        self.lexer.open()?;
        let mut out = Vec::new();
        let mut first = true;
        while self.lexer.element(first)? {
            first = false;
            match (or, self.lexer.peek()) {
                (Or::List, b'{') => {
                    let mut s = Box::new(Struct::new(of));
                    self.fields(&mut s)?;
                    out.push(Node::Struct(s));
                }
                (Or::Strings, b'"') => out.push(Node::Str(self.lexer.string()?.into())),
                (_, b'n') => {
                    self.lexer.word("null")?;
                    out.push(match or {
                        Or::List => Node::Struct(Box::new(Struct::new(of))),
                        _ => Node::Str(Text::default()),
                    });
                }
                _ => {
                    let what = self.compound_or_scalar()?;
                    let wanted = match or {
                        Or::List => go_struct(self.report.schema, of),
                        _ => "string".into(),
                    };
                    self.report.stop_mismatch(what, &wanted);
                }
            }
        }
        self.report.lenient -= 1;
        Ok(if out.is_empty() { None } else { Some(Node::List(out)) })
    }

    fn list(&mut self, of: TypeId) -> Lexed<Vec<Node>> {
        self.lexer.open()?;
        let mut out = Vec::new();
        let mut first = true;
        while self.lexer.element(first)? {
            first = false;
            self.report.path.push(Step::Index(out.len()));
            let value = self.value(of)?;
            self.report.path.pop();
            out.push(value.unwrap_or_else(|| normal::zero(self.report.schema, of)));
        }
        Ok(out)
    }

    fn map(&mut self, of: TypeId) -> Lexed<Map> {
        self.lexer.open()?;
        let mut entries = Vec::new();
        let mut first = true;
        while let Some(key) = self.lexer.key(first)? {
            first = false;
            let name = Text::from(&*key);
            self.report.path.push(Step::Key(key));
            let value = self.value(of)?;
            self.report.path.pop();
            entries.push((name, value.unwrap_or_else(|| normal::zero(self.report.schema, of))));
        }
        Ok(normal::distinct(&mut self.report, entries))
    }

    fn any_of(&mut self, kind: AnyKind) -> Lexed<Node> {
        if kind == AnyKind::Value {
            return self.any(true);
        }
        self.report.lenient += 1;
        let node = self.any(false);
        self.report.lenient -= 1;
        node
    }

    fn any_number(&mut self, text: &str) -> Node {
        if let Ok(i) = text.parse::<i64>() {
            return Node::Int(i);
        }
        match text.parse::<f64>() {
            Ok(f) if f.is_finite() => Node::Float(f),
            _ => {
                self.report.mismatch(&format!("number {text}"), "float64");
                Node::Null
            }
        }
    }

    /// Decodes a value without a schema, its maps sorted by key or in the order of arrival.
    fn any(&mut self, sorted: bool) -> Lexed<Node> {
        match self.lexer.peek() {
            b'"' => Ok(Node::Str(self.lexer.string()?.into())),
            b'{' => {
                self.lexer.open()?;
                let mut entries = Vec::new();
                let mut first = true;
                while let Some(key) = self.lexer.key(first)? {
                    first = false;
                    let name = Text::from(&*key);
                    self.report.path.push(Step::Key(key));
                    let value = self.any(sorted)?;
                    self.report.path.pop();
                    entries.push((name, value));
                }
                Ok(Node::Map(if sorted {
                    normal::distinct(&mut self.report, entries)
                } else {
                    normal::distinct_in_order(entries)
                }))
            }
            b'[' => {
                self.lexer.open()?;
                let mut out = Vec::new();
                let mut first = true;
                while self.lexer.element(first)? {
                    first = false;
                    self.report.path.push(Step::Index(out.len()));
                    out.push(self.any(sorted)?);
                    self.report.path.pop();
                }
                Ok(Node::List(out))
            }
            b't' => self.lexer.word("true").map(|()| Node::Bool(true)),
            b'f' => self.lexer.word("false").map(|()| Node::Bool(false)),
            b'n' => self.lexer.word("null").map(|()| Node::Null),
            b'-' | b'0'..=b'9' => {
                let text = self.lexer.number()?;
                Ok(self.any_number(text))
            }
            _ => Err(self.lexer.no_value()),
        }
    }
}
