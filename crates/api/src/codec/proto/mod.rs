//! Protobuf as Kubernetes speaks it: gogo's proto2 messages by the schema's numbers, in the
//! `k8s\0` envelope of `runtime.Unknown` (media type `application/vnd.kubernetes.protobuf`).

mod read;
mod wire;
mod write;

use super::{DecodeError, Decoded};
use crate::schema::{Schema, StructId};
use crate::tree::{Struct, Text};

use wire::{Reader, put_bytes};

/// The first bytes of every protobuf body.
const MAGIC: &[u8] = b"k8s\0";

/// A body in its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `apiVersion`, "" if it has none.
    pub api_version: Text,
    /// `kind`, "" if it has none.
    pub kind: Text,
    /// The object's message.
    pub raw: &'a [u8],
}

/// Opens the envelope.
pub fn open(body: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    let message = body.strip_prefix(MAGIC).ok_or_else(|| {
        DecodeError::Syntax(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".into(),
        )
    })?;
    let mut envelope = Envelope { api_version: Text::default(), kind: Text::default(), raw: &[] };
    let mut r = Reader::new(message);
    while let Some((number, wire)) = r.key()? {
        match number {
            1 => {
                let mut meta = Reader::new(r.bytes(wire)?);
                while let Some((number, wire)) = meta.key()? {
                    match number {
                        1 => envelope.api_version = meta.text(wire)?,
                        2 => envelope.kind = meta.text(wire)?,
                        _ => meta.skip(wire)?,
                    }
                }
            }
            2 => envelope.raw = r.bytes(wire)?,
            _ => r.skip(wire)?,
        }
    }
    Ok(envelope)
}

/// Puts a message into the envelope.
pub fn seal(api_version: &str, kind: &str, raw: &[u8], out: &mut Vec<u8>) {
    out.reserve(raw.len() + api_version.len() + kind.len() + 32);
    out.extend_from_slice(MAGIC);
    let mut meta = Vec::with_capacity(api_version.len() + kind.len() + 4);
    put_bytes(1, api_version.as_bytes(), &mut meta);
    put_bytes(2, kind.as_bytes(), &mut meta);
    put_bytes(1, &meta, out);
    put_bytes(2, raw, out);
    put_bytes(3, &[], out);
    put_bytes(4, &[], out);
}

/// Decodes a body of the root struct `root`.
pub fn decode(schema: &Schema, root: StructId, body: &[u8]) -> Result<Decoded, DecodeError> {
    let envelope = open(body)?;
    let tree = read::message(schema, root, envelope.raw)?;
    Ok(Decoded { api_version: envelope.api_version, kind: envelope.kind, tree, strict: Vec::new() })
}

/// Decodes a message without an envelope.
pub fn decode_message(schema: &Schema, id: StructId, message: &[u8]) -> Result<Struct, DecodeError> {
    read::message(schema, id, message)
}

/// Encodes an object in its envelope.
pub fn encode(schema: &Schema, api_version: &str, kind: &str, tree: &Struct) -> Vec<u8> {
    let raw = encode_message(schema, tree);
    let mut out = Vec::new();
    seal(api_version, kind, &raw, &mut out);
    out
}

/// Encodes a struct as its message.
pub fn encode_message(schema: &Schema, tree: &Struct) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    write::message(schema, tree, &mut out);
    out
}

/// The message of a list: its metadata, then its items' messages.
pub fn encode_list<'a>(
    resource_version: &str,
    continue_token: &str,
    remaining: Option<i64>,
    items: impl Iterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut meta = Vec::new();
    put_bytes(1, &[], &mut meta); // selfLink
    put_bytes(2, resource_version.as_bytes(), &mut meta);
    put_bytes(3, continue_token.as_bytes(), &mut meta);
    if let Some(n) = remaining {
        wire::put_int(4, n, &mut meta);
    }
    let mut out = Vec::new();
    put_bytes(1, &meta, &mut out);
    for item in items {
        put_bytes(2, item, &mut out);
    }
    out
}

/// A watch event as `;stream=watch` frames it: four bytes of length, then a `meta.v1.WatchEvent`
/// whose object is a whole body with its envelope.
pub fn watch_frame(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(object.len() + 8);
    put_bytes(1, object, &mut raw);
    let mut event = Vec::with_capacity(raw.len() + 16);
    put_bytes(1, kind.as_bytes(), &mut event);
    put_bytes(2, &raw, &mut event);
    let mut out = Vec::with_capacity(event.len() + 4);
    out.extend_from_slice(&(event.len() as u32).to_be_bytes());
    out.extend_from_slice(&event);
    out
}

#[cfg(test)]
mod tests;
