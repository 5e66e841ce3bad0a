//! The encoding of what a handler answered.

use std::sync::Arc;

use api::schema::Gvk;
use api::{Object, Status, Struct};
use bytes::{BufMut, Bytes, BytesMut};

use super::object::{
    Encoder, PARTIAL, object_json, object_proto, partial_json, partial_of_tree, partial_proto,
};
use super::status::{encode_status, finish_json};
use super::table::{self, TableForm};
use crate::catalog::{ResourceEntry, unreadable};
use crate::codec;
use crate::negotiate::{Convert, Form, Format, MetaVersion};
use crate::outcome::{List, Outcome};

/// An encoded answer: a piece that is sent as it is, or a list that is written piece by piece.
pub(crate) enum Encoded {
    /// All of it.
    Whole(Bytes),
    /// JSON items written while they are sent.
    Items(ItemWriter),
    /// Pieces in order.
    Pieces(std::vec::IntoIter<Bytes>),
}

/// Writes a JSON list chunk by chunk: nobody holds the whole of it.
pub(crate) struct ItemWriter {
    head: Bytes,
    type_meta: Bytes,
    items: std::vec::IntoIter<Arc<Object>>,
    state: WriterState,
}

#[derive(PartialEq, Eq)]
enum WriterState {
    Head,
    Items,
    Done,
}

/// Bytes of a list that are written at once.
const CHUNK: usize = 256 << 10;

impl ItemWriter {
    /// The next piece.
    pub(crate) fn next_chunk(&mut self) -> Option<Bytes> {
        if self.state == WriterState::Done {
            return None;
        }
        let mut out = BytesMut::with_capacity(CHUNK + (16 << 10));
        let mut first = false;
        if self.state == WriterState::Head {
            out.put_slice(&self.head);
            self.state = WriterState::Items;
            first = true;
        }
        while out.len() < CHUNK {
            let Some(object) = self.items.next() else {
                out.put_slice(b"]}\n");
                self.state = WriterState::Done;
                break;
            };
            if !first {
                out.put_u8(b',');
            }
            first = false;
            object.write_json(&self.type_meta, &mut out);
        }
        Some(out.freeze())
    }
}

/// Encodes what a handler answered; a watch is not encoded here.
pub(crate) fn encode(encoder: &Encoder, outcome: Outcome, form: Form) -> Result<(u16, Encoded), Status> {
    match outcome {
        Outcome::Stored { status, resource, object } => {
            Ok((status, Encoded::Whole(encode_object(encoder, &resource, &object, form)?)))
        }
        Outcome::Tree { status, kind, tree, resource } => {
            let bytes = encode_tree(encoder, &kind, &tree, resource.as_deref(), form)?;
            Ok((status, Encoded::Whole(bytes)))
        }
        Outcome::Status(status) => Ok((
            if status.code == 0 { 200 } else { status.code },
            Encoded::Whole(encode_status(&status, form)),
        )),
        Outcome::List(list) => Ok((200, encode_list(encoder, list, form)?)),
        Outcome::Computed { resource, items } => {
            Ok((200, Encoded::Whole(encode_computed(encoder, &resource, &items, form)?)))
        }
        Outcome::Watch(_) => Err(Status::internal("a watch has no single body")),
    }
}

fn encode_object(
    encoder: &Encoder,
    resource: &ResourceEntry,
    object: &Object,
    form: Form,
) -> Result<Bytes, Status> {
    match (form.convert, form.format) {
        (Convert::None, Format::Protobuf) => {
            let raw = object_proto(encoder, resource, object)?;
            Ok(codec::envelope(&resource.kind.api_version(), &resource.kind.kind, &raw))
        }
        (Convert::None, Format::Json) if !form.pretty && resource.same_version() => {
            let mut out = BytesMut::with_capacity(object.data.body.len() + resource.stored_meta.len() + 32);
            object.write_json(&resource.stored_meta, &mut out);
            out.put_u8(b'\n');
            Ok(out.freeze())
        }
        (Convert::None, _) => finish_json(object_json(&encoder.catalog, resource, object)?, form),
        (Convert::Partial(v), Format::Protobuf) => Ok(codec::envelope(
            v.api_version(),
            "PartialObjectMetadata",
            &partial_proto(encoder, resource, object, v.api_version())?,
        )),
        (Convert::Partial(v), _) => finish_json(partial_json(resource, object, v.api_version()), form),
        (Convert::PartialList(_), _) => Err(not_acceptable(&format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
            go_type(&resource.kind)
        ))),
        (Convert::Table(v), _) => {
            let json =
                table::of_objects(encoder, resource, std::slice::from_ref(object), table_form(v, form))?;
            finish_json(json, form)
        }
    }
}

fn table_form(version: MetaVersion, form: Form) -> TableForm {
    TableForm { version, include: form.include, headers: true }
}

fn not_acceptable(message: &str) -> Status {
    Status::failure(406, "NotAcceptable", message)
}

fn go_type(kind: &Gvk) -> String {
    let group = kind.group.split('.').next().unwrap_or_default();
    format!("*{}.{}", if group.is_empty() { "core" } else { group }, kind.kind)
}

fn encode_tree(
    encoder: &Encoder,
    kind: &Gvk,
    tree: &Struct,
    resource: Option<&ResourceEntry>,
    form: Form,
) -> Result<Bytes, Status> {
    let type_meta = format!("\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.kind, kind.api_version());
    match (form.convert, form.format) {
        (Convert::Table(v), _) => {
            let json =
                table::of_trees(encoder, resource, kind, std::slice::from_ref(tree), table_form(v, form));
            finish_json(json, form)
        }
        (Convert::Partial(v), format) => {
            let out = partial_of_tree(encoder, tree, v.api_version());
            if format == Format::Protobuf {
                let raw = codec::proto_of_json(encoder.catalog.schema(), PARTIAL, &out)?;
                return Ok(codec::envelope(v.api_version(), "PartialObjectMetadata", &raw));
            }
            finish_json(out, form)
        }
        (Convert::PartialList(_), _) => Err(not_acceptable(&format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
            go_type(kind)
        ))),
        (Convert::None, Format::Protobuf) => Ok(codec::envelope(
            &kind.api_version(),
            &kind.kind,
            &codec::message(encoder.catalog.schema(), tree),
        )),
        (Convert::None, _) => {
            finish_json(codec::json_with(encoder.catalog.schema(), type_meta.as_bytes(), tree), form)
        }
    }
}

fn encode_computed(
    encoder: &Encoder,
    resource: &ResourceEntry,
    trees: &[Struct],
    form: Form,
) -> Result<Bytes, Status> {
    let (list, api_version, items) = match form.convert {
        Convert::Table(v) => {
            let json = table::of_trees(encoder, Some(resource), &resource.kind, trees, table_form(v, form));
            return finish_json(json, form);
        }
        Convert::Partial(_) => return Err(not_one(&resource.kind)),
        Convert::PartialList(v) => {
            let items: Vec<_> = trees.iter().map(|i| partial_of_tree(encoder, i, v.api_version())).collect();
            ("PartialObjectMetadataList".to_owned(), v.api_version().into(), items)
        }
        Convert::None => {
            let items = trees.iter().map(|i| codec::json_with(encoder.catalog.schema(), b"", i)).collect();
            (format!("{}List", resource.kind.kind), resource.kind.api_version(), items)
        }
    };
    if form.format == Format::Protobuf {
        let partial = matches!(form.convert, Convert::PartialList(_));
        let mut raw = Vec::new();
        codec::proto_bytes(1, &[], &mut raw);
        for (json, tree) in items.iter().zip(trees) {
            let item = if partial {
                codec::proto_of_json(encoder.catalog.schema(), PARTIAL, json)?
            } else {
                codec::message(encoder.catalog.schema(), tree)
            };
            codec::proto_bytes(2, &item, &mut raw);
        }
        return Ok(codec::envelope(&api_version, &list, &raw));
    }
    let mut json =
        format!("{{\"kind\":\"{list}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{}},\"items\":[")
            .into_bytes();
    json.extend_from_slice(&items.join(&b','));
    json.extend_from_slice(b"]}");
    finish_json(json.into(), form)
}

fn not_one(kind: &Gvk) -> Status {
    not_acceptable(&format!(
        "you requested PartialObjectMetadata, but the requested object is a list ({}List)",
        go_type(kind)
    ))
}

fn encode_list(encoder: &Encoder, list: List, form: Form) -> Result<Encoded, Status> {
    let kind = &list.resource.kind;
    let head = |kind: &str, api_version: &str| {
        format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{},\"items\":[",
            list.meta_json()
        )
    };
    match (form.convert, form.format) {
        (Convert::None, Format::Protobuf) => {
            let items = list
                .in_time()
                .map(|object| {
                    let encoded = object_proto(encoder, &list.resource, object?);
                    encoded.map_err(|e| unreadable_in(encoder, &list, e))
                })
                .collect::<Result<Vec<_>, _>>()?;
            Ok(proto_list(&list, &format!("{}List", kind.kind), &kind.api_version(), items))
        }
        (Convert::None, format) => {
            let head = Bytes::from(head(&list.resource.list_kind, &kind.api_version()));
            if list.resource.same_version() {
                let mut writer = ItemWriter {
                    head,
                    type_meta: Bytes::new(),
                    items: list.items.into_iter(),
                    state: WriterState::Head,
                };
                if format == Format::Json && !form.pretty {
                    return Ok(Encoded::Items(writer));
                }
                let mut all = BytesMut::new();
                while let Some(chunk) = writer.next_chunk() {
                    all.put_slice(&chunk);
                }
                all.truncate(all.len() - 1);
                return Ok(Encoded::Whole(finish_json(all.freeze(), form)?));
            }
            let mut all = BytesMut::from(&head[..]);
            for (i, object) in list.in_time().enumerate() {
                if i > 0 {
                    all.put_u8(b',');
                }
                let tree = encoder
                    .catalog
                    .served_tree(&list.resource, object?)
                    .map_err(|e| unreadable_in(encoder, &list, e))?;
                all.put_slice(&codec::json_with(encoder.catalog.schema(), b"", &tree));
            }
            all.put_slice(b"]}");
            Ok(Encoded::Whole(finish_json(all.freeze(), form)?))
        }
        (Convert::PartialList(v), Format::Protobuf) => {
            let items = list
                .in_time()
                .map(|o| partial_proto(encoder, &list.resource, o?, v.api_version()))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(proto_list(&list, "PartialObjectMetadataList", v.api_version(), items))
        }
        (Convert::PartialList(v), _) => {
            let mut all = BytesMut::from(head("PartialObjectMetadataList", v.api_version()).as_bytes());
            for (i, object) in list.in_time().enumerate() {
                if i > 0 {
                    all.put_u8(b',');
                }
                all.put_slice(&partial_json(&list.resource, object?, v.api_version()));
            }
            all.put_slice(b"]}");
            Ok(Encoded::Whole(finish_json(all.freeze(), form)?))
        }
        (Convert::Partial(_), _) => Err(not_one(kind)),
        (Convert::Table(v), _) => {
            let json = table::of_list(encoder, &list, &list.meta_json(), table_form(v, form))?;
            Ok(Encoded::Whole(finish_json(json, form)?))
        }
    }
}

fn proto_list(list: &List, kind: &str, api_version: &str, items: Vec<Bytes>) -> Encoded {
    let mut head = Vec::new();
    codec::proto_bytes(1, &list.meta_proto(), &mut head);
    let size: usize =
        head.len() + items.iter().map(|i| 1 + codec::varint_len(i.len() as u64) + i.len()).sum::<usize>();
    let (open, close) = codec::envelope_around(api_version, kind, size);
    let mut out = BytesMut::from(&open[..]);
    out.put_slice(&head);
    let mut pieces = Vec::new();
    for item in items {
        let mut prefix = Vec::with_capacity(6);
        prefix.push(2 << 3 | 2);
        codec::varint(item.len() as u64, &mut prefix);
        out.put_slice(&prefix);
        out.put_slice(&item);
        if out.len() >= CHUNK {
            pieces.push(out.split().freeze());
        }
    }
    out.put_slice(&close);
    pieces.push(out.freeze());
    Encoded::Pieces(pieces.into_iter())
}

/// The error of a list of which an object cannot be read.
fn unreadable_in(encoder: &Encoder, list: &List, first: Status) -> Status {
    if !encoder.catalog.unsafe_deletion {
        return first;
    }
    unreadable::in_list(encoder.catalog.schema(), &list.resource, &list.items, first)
}
