//! Bytes to trees and back, for the handlers: the codecs of `api` with the server's errors.

use api::codec::{DecodeError, json, proto};
use api::go::quote;
use api::schema::Gvk;
use api::{Object, Schema, Status, Struct, StructId};
use bytes::{BufMut, Bytes, BytesMut};
use compact_str::format_compact;
use kinds::Strategy;

use crate::negotiate::{Format, unsupported};

/// `k8s\0`: what every protobuf body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// Appends a varint.
pub(crate) fn varint(mut v: u64, out: &mut Vec<u8>) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// The length of a varint.
pub(crate) fn varint_len(v: u64) -> usize {
    (64 - (v | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends a length-delimited field.
pub(crate) fn proto_bytes(field: u32, value: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(field << 3 | 2), out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Appends a varint field.
pub(crate) fn proto_varint_field(field: u32, value: u64, out: &mut Vec<u8>) {
    varint(u64::from(field << 3), out);
    varint(value, out);
}

/// The bytes before and after a message of this size in `runtime.Unknown`.
pub(crate) fn envelope_around(api_version: &str, kind: &str, size: usize) -> (Vec<u8>, Vec<u8>) {
    let mut type_meta = Vec::with_capacity(api_version.len() + kind.len() + 4);
    proto_bytes(1, api_version.as_bytes(), &mut type_meta);
    proto_bytes(2, kind.as_bytes(), &mut type_meta);
    let mut open = Vec::with_capacity(type_meta.len() + 16);
    open.extend_from_slice(MAGIC);
    proto_bytes(1, &type_meta, &mut open);
    varint(2 << 3 | 2, &mut open);
    varint(size as u64, &mut open);
    let mut close = Vec::with_capacity(4);
    proto_bytes(3, b"", &mut close);
    proto_bytes(4, b"", &mut close);
    (open, close)
}

/// A message in the envelope `runtime.Unknown`, as protobuf bodies are sent.
pub(crate) fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Bytes {
    let (open, close) = envelope_around(api_version, kind, raw.len());
    let mut out = BytesMut::with_capacity(open.len() + raw.len() + close.len());
    out.put_slice(&open);
    out.put_slice(raw);
    out.put_slice(&close);
    out.freeze()
}

/// The end of the JSON value that starts at `at`; the bytes must be well-formed.
pub(crate) fn value_end(json: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0usize;
    let mut i = at;
    while i < json.len() {
        match json[i] {
            b'"' => {
                i += 1;
                while *json.get(i)? != b'"' {
                    i += if json[i] == b'\\' { 2 } else { 1 };
                }
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => return Some(i),
            _ => {}
        }
        i += 1;
        if depth == 0 && matches!(json[i - 1], b'}' | b']' | b'"') {
            return Some(i);
        }
    }
    None
}

/// How long the text of some JSON may become when it is laid out in lines. Each line is indented, so that a value that
/// is deep and wide would become hundreds of times as long.
///
/// DIFFERENCE: upstream has no limit.
fn room(json: &[u8]) -> usize {
    (json.len() * 16).max(32 << 20)
}

/// JSON indented by two spaces, as `?pretty=true` asks for it, with a newline at the end. It stays on one line where
/// there is no [`room`].
pub(crate) fn pretty(json: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(json.len() * 2);
    let room = room(json);
    let mut depth = 0usize;
    let newline = |out: &mut BytesMut, depth: usize| {
        out.put_u8(b'\n');
        out.put_bytes(b' ', depth * 2);
    };
    let mut i = 0;
    while i < json.len() {
        if out.len() > room {
            return [json, b"\n"].concat().into();
        }
        let b = json[i];
        match b {
            b'"' => {
                let start = i;
                i += 1;
                while i < json.len() && json[i] != b'"' {
                    i += if json[i] == b'\\' { 2 } else { 1 };
                }
                out.put_slice(&json[start..(i + 1).min(json.len())]);
            }
            b'{' | b'[' => {
                out.put_u8(b);
                if json.get(i + 1).is_some_and(|n| matches!(n, b'}' | b']')) {
                    i += 1;
                    out.put_u8(json[i]);
                } else {
                    depth += 1;
                    newline(&mut out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                newline(&mut out, depth);
                out.put_u8(b);
            }
            b',' => {
                out.put_u8(b);
                newline(&mut out, depth);
            }
            b':' => out.put_slice(b": "),
            b' ' | b'\n' | b'\r' | b'\t' => {}
            b => out.put_u8(b),
        }
        i += 1;
    }
    out.put_u8(b'\n');
    out.freeze()
}

/// A body that was decoded.
pub(crate) struct Body {
    /// The object, in the version of the request.
    pub(crate) tree: Struct,
    /// The complaints of strict field validation.
    pub(crate) strict_errors: Vec<String>,
}

/// The first bytes of a body, for an error; upstream's `summarizeData`.
fn summary(body: &[u8]) -> String {
    let cut = &body[..body.len().min(30)];
    let more = if body.len() > 30 { " ..." } else { "" };
    match body.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(cut)),
        Some(_) => cut.iter().map(|b| format_compact!("{b:02x}")).chain([more.into()]).collect(),
    }
}

/// A body in an error.
///
/// DIFFERENCE: upstream shows all of it, which makes an answer of many times its size where each letter is escaped.
fn shown(body: &[u8]) -> String {
    const MOST: usize = 4096;
    let text = String::from_utf8_lossy(&body[..body.len().min(MOST)]);
    if body.len() > MOST { format!("{text}...") } else { text.into_owned() }
}

fn unrecognized(kind: &Gvk, why: &dyn std::fmt::Display, body: &[u8]) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({})",
        kind.kind,
        summary(body)
    ))
}

/// Decodes a body that should be of a kind; its own kind and version must be that, or absent. If it is a
/// resource's, its strategy has a say.
pub(crate) fn decode(
    schema: &Schema,
    kind: &Gvk,
    strategy: Option<&dyn Strategy>,
    format: Format,
    body: &[u8],
) -> Result<Body, Status> {
    let root = schema.kind(kind).ok_or_else(Status::no_such_resource)?;
    if format == Format::Protobuf && schema.st(root).rest.is_some() {
        return Err(unsupported(&[Format::Json, Format::Yaml].map(Format::media_type)));
    }
    let decoded = match format {
        Format::Json => json::decode(schema, root, body),
        Format::Yaml => {
            let node = api::yaml::parse(body).map_err(|e| {
                unrecognized(
                    kind,
                    &format!(
                        "couldn't get version/kind; json parse error: error converting YAML to JSON: {e}"
                    ),
                    body,
                )
            })?;
            json::root_from_any(schema, root, node)
        }
        Format::Protobuf => proto::decode(schema, root, body),
    };
    match decoded {
        Ok(mut d) => {
            check_kind(schema, kind, &d.api_version, &d.kind, body)?;
            if let Some(strategy) = strategy {
                strategy.settle(schema, &mut d.tree).map_err(|e| cannot_handle(kind, &kind.kind, &e))?;
            }
            Ok(Body { tree: d.tree, strict_errors: d.strict })
        }
        Err(e) if e.before_kind() => {
            Err(unrecognized(kind, &format!("couldn't get version/kind; json parse error: {e}"), body))
        }
        Err(e) => {
            // A body of another kind is refused for that, whatever else is wrong with it.
            if format == Format::Json
                && let Ok(node) = json::decode_any(body)
                && let Some(map) = node.as_map()
            {
                let text = |key: &str| match map.get(key) {
                    Some(api::Node::Str(s)) => s.as_str(),
                    _ => "",
                };
                check_kind(schema, kind, text("apiVersion"), text("kind"), body)?;
            }
            Err(cannot_handle(kind, &kind.kind, &e))
        }
    }
}

fn cannot_handle(kind: &Gvk, found: &str, why: &dyn std::fmt::Display) -> Status {
    Status::bad_request(format!(
        "{found} in version {:?} cannot be handled as a {}: {why}",
        kind.version.as_str(),
        kind.kind
    ))
}

/// Refuses a body of another kind or version than the request's.
fn check_kind(
    schema: &Schema,
    kind: &Gvk,
    api_version: &str,
    found: &str,
    body: &[u8],
) -> Result<(), Status> {
    if api_version.matches('/').count() > 1 {
        return Err(unrecognized(kind, &format!("unexpected GroupVersion string: {api_version}"), body));
    }
    // The kind of a custom object is never guessed from the path.
    let is_custom = schema.kind(kind).is_some_and(|root| schema.st(root).rest.is_some());
    if is_custom && found.is_empty() {
        return Err(unrecognized(kind, &format!("Object 'Kind' is missing in '{}'", shown(body)), body));
    }
    if is_custom && found == kind.kind && !is_version_of(kind, api_version) {
        return Err(other_version(kind, api_version));
    }
    if api_version.len() > 1 && api_version.ends_with('/') {
        let name = if found.is_empty() { kind.kind.as_str() } else { found };
        let why = format!("Object 'apiVersion' is missing in '{}'", shown(body));
        return Err(Status::bad_request(format!(
            "{name} in version \"\" cannot be handled as a {}: {why}",
            kind.kind
        )));
    }
    if let Some(why) = unregistered(schema, kind, api_version, found) {
        let found = if found.is_empty() { kind.kind.as_str() } else { found };
        let version = match api_version {
            "" => kind.version.as_str(),
            v => v.rsplit('/').next().unwrap_or_default(),
        };
        return Err(Status::bad_request(format!(
            "{found} in version {} cannot be handled as a {}: {why}",
            quote(version),
            kind.kind
        )));
    }
    if !is_unversioned(api_version) && !is_version_of(kind, api_version) {
        return Err(other_version(kind, api_version));
    }
    Ok(())
}

fn other_version(kind: &Gvk, api_version: &str) -> Status {
    Status::bad_request(format!(
        "the API version in the data ({api_version}) does not match the expected API version ({})",
        kind.api_version()
    ))
}

/// Upstream reads `/` as no version.
fn is_unversioned(api_version: &str) -> bool {
    matches!(api_version, "" | "/")
}

/// Why a body's kind and version are nothing that could be in the place of `kind`; what is absent is
/// that of `kind`.
pub(crate) fn unregistered(schema: &Schema, kind: &Gvk, api_version: &str, found: &str) -> Option<String> {
    let name = if found.is_empty() { kind.kind.as_str() } else { found };
    let own = is_unversioned(api_version);
    if name == kind.kind && (own || is_version_of(kind, api_version)) {
        return None;
    }
    let version = if own { kind.api_version() } else { api_version.into() };
    let (group, v) = version.split_once('/').unwrap_or(("", &version));
    let known = name == kind.kind && schema.kind(&Gvk::new(group, v, name)).is_some();
    (!known).then(|| {
        format!(
            "no kind {} is registered for version {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            quote(name),
            quote(&version)
        )
    })
}

/// Whether an API version as bodies name it is that of a kind.
fn is_version_of(kind: &Gvk, api_version: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    group == kind.group && version == kind.version
}

/// `DeleteOptions` in a body. Any version that has the kind will do.
pub(crate) fn delete_options(schema: &Schema, format: Format, body: &[u8]) -> Result<Struct, Status> {
    const KIND: &str = "DeleteOptions";
    let root = named(schema, "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")?;
    let decoded = match format {
        Format::Json => json::decode(schema, root, body),
        Format::Yaml => {
            let node = api::yaml::parse(body).map_err(|e| Status::bad_request(e.to_string()))?;
            json::root_from_any(schema, root, node)
        }
        Format::Protobuf => proto::decode(schema, root, body),
    };
    let decoded = decoded.map_err(|e| {
        if e.before_kind() {
            Status::bad_request(format!("couldn't get version/kind; json parse error: {e}"))
        } else {
            Status::bad_request(e.to_string())
        }
    })?;
    if decoded.api_version.matches('/').count() > 1 {
        return Err(Status::bad_request(format!("unexpected GroupVersion string: {}", decoded.api_version)));
    }
    if !decoded.kind.is_empty() && decoded.kind != KIND {
        return Err(Status::bad_request(format!(
            "no kind {:?} is registered for version {:?} in scheme \"pkg/apis/meta/internalversion/scheme/register.go:27\"",
            decoded.kind,
            if decoded.api_version.is_empty() { "v1" } else { &decoded.api_version },
        )));
    }
    Ok(decoded.tree)
}

fn named(schema: &Schema, name: &str) -> Result<StructId, Status> {
    schema.named(name).ok_or_else(|| Status::internal(format!("the schema lacks {name}")))
}

/// The tree of a stored object, without its resourceVersion.
pub(crate) fn stored(schema: &Schema, root: StructId, object: &Object) -> Result<Struct, Status> {
    json::decode(schema, root, &object.data.body).map(|d| d.tree).map_err(unreadable)
}

/// Some fields of a stored object.
pub(crate) fn stored_fields(
    schema: &Schema,
    root: StructId,
    object: &Object,
    wanted: &[&str],
) -> Result<Struct, Status> {
    json::decode_fields(schema, root, &object.data.body, wanted).map_err(unreadable)
}

fn unreadable(error: DecodeError) -> Status {
    Status::internal(format!("a stored object cannot be read: {error}"))
}

/// A tree as the store keeps it: its bytes, and the place of the resourceVersion in them.
pub(crate) fn storage_json(schema: &Schema, tree: &Struct) -> Result<(Bytes, u32), Status> {
    let (body, at) = json::encode_object(schema, tree);
    if at == 0 {
        return Err(Status::internal("the object has no metadata"));
    }
    Ok((body, at))
}

/// A tree as JSON, with `type_meta` (or nothing) after the brace.
pub(crate) fn json_with(schema: &Schema, type_meta: &[u8], tree: &Struct) -> Bytes {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(b"{");
    out.extend_from_slice(type_meta);
    let start = out.len();
    json::encode(schema, tree, &mut out);
    // The encoder's own brace goes, and a comma without anything after it.
    out.remove(start);
    if out.len() == start + 1 && out[start - 1] == b',' {
        out.remove(start - 1);
    }
    out.into()
}

/// A tree's protobuf message, without the envelope.
pub(crate) fn message(schema: &Schema, tree: &Struct) -> Bytes {
    proto::encode_message(schema, tree).into()
}

/// The protobuf message of an object that is at hand as JSON.
pub(crate) fn proto_of_json(schema: &Schema, name: &str, body: &[u8]) -> Result<Bytes, Status> {
    let decoded = json::decode(schema, named(schema, name)?, body).map_err(Status::internal)?;
    Ok(message(schema, &decoded.tree))
}

/// The JSON of an answer as YAML, as upstream's conversion writes it.
pub(crate) fn yaml(json: &[u8]) -> Result<Bytes, Status> {
    let node =
        json::decode_answer(json).map_err(|e| Status::internal(format!("the answer is no YAML: {e}")))?;
    let text = api::yaml::emit_within(&node, room(json)).ok_or_else(|| {
        Status::failure(
            406,
            "NotAcceptable",
            "the answer nests too deeply to be written as YAML; ask for JSON",
        )
    })?;
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_values() {
        let json = br#"{"metadata":{"a":"}\"","b":[1,{}]},"spec":{}}"#;
        let end = value_end(json, 12).unwrap();
        assert_eq!(&json[12..end], br#"{"a":"}\"","b":[1,{}]}"#);
        assert_eq!(value_end(b"{\"a\":12,", 5), Some(7));
        assert_eq!(value_end(b"\"open", 0), None);
    }

    #[test]
    fn indentation() {
        let text = pretty(br#"{"a":[1,{"b":"x,y"}],"c":{},"d":[]}"#);
        let expected =
            "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x,y\"\n    }\n  ],\n  \"c\": {},\n  \"d\": []\n}\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn deep_and_wide_values_are_laid_out_within_bounds() {
        let wide = |depth: usize, width: usize| {
            let items = vec!["0"; width].join(",");
            format!("{{\"a\":{}{items}{}}}", "[".repeat(depth), "]".repeat(depth))
        };
        let check = |json: String, fits: bool| {
            let text = pretty(json.as_bytes());
            assert_eq!(memchr::memchr_iter(b'\n', &text).count() > 1, fits, "pretty");
            assert!(text.len() <= room(json.as_bytes()) + 1024);
            assert_eq!(yaml(json.as_bytes()).map_err(|e| e.code).err(), (!fits).then_some(406), "YAML");
        };
        check(wide(200, 100), true);
        check(wide(2, 100_000), true);
        check(wide(200, 100_000), false);
    }
}
