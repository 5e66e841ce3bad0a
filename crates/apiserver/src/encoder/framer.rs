//! The frames of a watch's events.

use std::sync::Arc;

use api::{Object, Status};
use bytes::{BufMut, Bytes, BytesMut};
use client::EventKind;

use super::object::{Encoder, PARTIAL, object_json, object_proto, partial_json};
use super::status::encode_status;
use super::table::{self, Bookmark, TableForm};
use crate::catalog::ResourceEntry;
use crate::codec;
use crate::negotiate::{Convert, Form, Format, IncludeObject};
use crate::watch::WatchItem;

/// Frames the items of a watch in the form that was asked for.
pub(crate) struct Framer {
    encoder: Encoder,
    resource: Arc<ResourceEntry>,
    form: Form,
    number: u32,
    headers_sent: bool,
}

impl Framer {
    pub(crate) fn new(encoder: Encoder, resource: &Arc<ResourceEntry>, form: Form) -> Self {
        // Nine bits say how, the others for which resource and version.
        let format = match form.format {
            Format::Json | Format::Yaml => 0,
            Format::Protobuf => 1,
        };
        let convert = match form.convert {
            Convert::None => 0,
            Convert::Partial(v) | Convert::PartialList(v) => 1 + v as u32,
            Convert::Table(v) => 3 + v as u32,
        };
        let include = match form.include {
            IncludeObject::Metadata => 0,
            IncludeObject::Object => 1,
            IncludeObject::None => 2,
        };
        let number = resource.number << 12 | include << 8 | convert << 4 | format << 2;
        Self { encoder, resource: Arc::clone(resource), form, number, headers_sent: false }
    }
    /// The frame of an item; shared with the other watchers of the same form where that is possible.
    pub(crate) fn frame(&mut self, item: WatchItem) -> Bytes {
        match item {
            WatchItem::Event { kind, object, event: Some(event) } => {
                let table = matches!(self.form.convert, Convert::Table(_));
                if table && !self.headers_sent {
                    return self.object_frame(kind, &object);
                }
                let number = self.number | kind_bits(kind);
                event.encoded(number, || self.object_frame_shared(kind, &object))
            }
            WatchItem::Event { kind, object, event: None } => self.object_frame(kind, &object),
            WatchItem::Bookmark { revision, initial_end } => self.bookmark(revision, initial_end),
            WatchItem::Error(status) => self.error(&status),
        }
    }
    fn object_frame(&mut self, kind: EventKind, object: &Object) -> Bytes {
        let bytes = self.encode(kind, object, !self.headers_sent);
        self.headers_sent = true;
        bytes
    }
    fn object_frame_shared(&self, kind: EventKind, object: &Object) -> Bytes {
        self.encode(kind, object, false)
    }
    fn encode(&self, kind: EventKind, object: &Object, headers: bool) -> Bytes {
        let built = match (self.form.convert, self.form.format) {
            (Convert::None, Format::Protobuf) => {
                object_proto(&self.encoder, &self.resource, object).map(|raw| {
                    codec::envelope(&self.resource.kind.api_version(), &self.resource.kind.kind, &raw)
                })
            }
            (Convert::None, _) if self.resource.same_version() => {
                return self.json_direct(kind, object);
            }
            (Convert::None, _) => object_json(&self.encoder.catalog, &self.resource, object),
            (Convert::Partial(v) | Convert::PartialList(v), format) => {
                let json = partial_json(&self.resource, object, v.api_version());
                if format == Format::Protobuf {
                    codec::proto_of_json(self.encoder.catalog.schema(), PARTIAL, &json)
                        .map(|raw| codec::envelope(v.api_version(), "PartialObjectMetadata", &raw))
                } else {
                    Ok(json)
                }
            }
            (Convert::Table(v), _) => {
                let form = TableForm { version: v, include: self.form.include, headers };
                table::of_objects(&self.encoder, &self.resource, std::slice::from_ref(object), form)
            }
        };
        match built {
            Ok(bytes) => self.wrap(event_type(kind), &bytes),
            Err(status) => self.error(&status),
        }
    }
    fn json_direct(&self, kind: EventKind, object: &Object) -> Bytes {
        let mut out = BytesMut::with_capacity(object.data.body.len() + self.resource.stored_meta.len() + 64);
        out.put_slice(b"{\"type\":\"");
        out.put_slice(event_type(kind).as_bytes());
        out.put_slice(b"\",\"object\":");
        object.write_json(&self.resource.stored_meta, &mut out);
        out.put_slice(b"}\n");
        out.freeze()
    }
    fn wrap(&self, event_type: &str, object: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(object.len() + 64);
        if self.form.format == Format::Protobuf {
            let mut raw_extension = Vec::with_capacity(object.len() + 8);
            codec::proto_bytes(1, object, &mut raw_extension);
            let mut message = Vec::with_capacity(raw_extension.len() + 32);
            codec::proto_bytes(1, event_type.as_bytes(), &mut message);
            codec::proto_bytes(2, &raw_extension, &mut message);
            out.put_u32(message.len() as u32);
            out.put_slice(&message);
        } else {
            out.put_slice(b"{\"type\":\"");
            out.put_slice(event_type.as_bytes());
            out.put_slice(b"\",\"object\":");
            out.put_slice(object);
            out.put_slice(b"}\n");
        }
        out.freeze()
    }
    fn error(&self, status: &Status) -> Bytes {
        let form = Form { format: self.form.format, ..Form::JSON };
        let mut bytes = encode_status(status, form);
        if bytes.last() == Some(&b'\n') && form.format != Format::Protobuf {
            bytes.truncate(bytes.len() - 1);
        }
        self.wrap("ERROR", &bytes)
    }
    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let tree = self.encoder.catalog.bookmark(&self.resource, revision, initial_end);
        let kind = &self.resource.kind;
        let bytes = match (self.form.convert, self.form.format) {
            (Convert::None, Format::Protobuf) => codec::envelope(
                &kind.api_version(),
                &kind.kind,
                &codec::message(self.encoder.catalog.schema(), &tree),
            ),
            (Convert::None, _) => {
                codec::json_with(self.encoder.catalog.schema(), &self.resource.type_meta, &tree)
            }
            (Convert::Partial(v) | Convert::PartialList(v), format) => {
                let json = partial_bookmark(revision, initial_end, v.api_version());
                match (format, codec::proto_of_json(self.encoder.catalog.schema(), PARTIAL, &json)) {
                    (Format::Protobuf, Ok(raw)) => {
                        codec::envelope(v.api_version(), "PartialObjectMetadata", &raw)
                    }
                    _ => json,
                }
            }
            (Convert::Table(v), _) => {
                let partial = &partial_bookmark(revision, initial_end, v.api_version());
                let of = Bookmark { revision, tree: &tree, partial, initial_end };
                let headers = !self.headers_sent;
                let form = TableForm { version: v, include: self.form.include, headers };
                let bytes = table::bookmark(&self.encoder, &self.resource, &of, form);
                self.headers_sent = true;
                bytes
            }
        };
        self.wrap("BOOKMARK", &bytes)
    }
}

fn partial_bookmark(revision: u64, initial_end: bool, api_version: &str) -> Bytes {
    let annotation =
        if initial_end { ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}" } else { "" };
    Bytes::from(format!(
        "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{api_version}\",\"metadata\":{{\"resourceVersion\":\"{revision}\"{annotation}}}}}"
    ))
}

fn kind_bits(kind: EventKind) -> u32 {
    match kind {
        EventKind::Added => 0,
        EventKind::Modified => 1,
        EventKind::Deleted => 2,
        EventKind::Bookmark => 3,
    }
}

/// The name of a kind of event on the wire.
pub(crate) fn event_type(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Added => "ADDED",
        EventKind::Modified => "MODIFIED",
        EventKind::Deleted => "DELETED",
        EventKind::Bookmark => "BOOKMARK",
    }
}
