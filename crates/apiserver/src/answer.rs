//! What a handler answers, and its encoding in the form that was asked for.

use std::sync::Arc;

use api::schema::Gvk;
use api::{Object, Status, Struct};
use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::Instant;

use crate::codec;
use crate::handlers::unreadable;
use crate::handlers::watch::WatchSource;
use crate::inner::Inner;
use crate::lanes::in_time;
use crate::negotiate::{Convert, Form, Format, MetaVersion};
use crate::registry::Resource;
use crate::table::{self, TableForm};

/// What a handler answers.
pub(crate) enum Outcome {
    /// A stored object.
    Stored {
        /// HTTP status.
        status: u16,
        /// In the version of this resource.
        resource: Arc<Resource>,
        /// The object.
        object: Arc<Object>,
    },
    /// An object that is not stored like this: of a virtual kind, or the result of a dry run.
    Tree {
        /// HTTP status.
        status: u16,
        /// Its kind, that of the tree.
        kind: Gvk,
        /// The object.
        tree: Struct,
        /// The resource it is of, if it has metadata and columns.
        resource: Option<Arc<Resource>>,
    },
    /// A `Status` that is no error.
    Status(Status),
    /// A list.
    List(List),
    /// A list that is computed.
    Computed {
        /// Of this resource.
        resource: Arc<Resource>,
        /// The items' trees.
        items: Vec<Struct>,
    },
    /// A watch.
    Watch(Box<WatchSource>),
}

/// One consistent state of a selection.
pub(crate) struct List {
    /// Of this resource and version.
    pub resource: Arc<Resource>,
    /// The state's revision.
    pub revision: u64,
    /// `metadata.continue`, "" at the end.
    pub token: String,
    /// `metadata.remainingItemCount`.
    pub remaining: Option<u64>,
    /// The objects.
    pub items: Vec<Arc<Object>>,
    /// When nobody waits for it any more.
    pub deadline: Option<Instant>,
}

impl List {
    /// The objects that are to be encoded, as long as somebody waits for them.
    pub(crate) fn in_time(&self) -> impl Iterator<Item = Result<&Arc<Object>, Status>> {
        self.items.iter().enumerate().map(|(n, item)| {
            // To look at the clock costs as much as a small object.
            if n % 16 == 0 {
                in_time(self.deadline)?;
            }
            Ok(item)
        })
    }
    /// `{"resourceVersion":"5","continue":"…","remainingItemCount":7}`
    fn meta_json(&self) -> String {
        let mut s = format!("{{\"resourceVersion\":\"{}\"", self.revision);
        if !self.token.is_empty() {
            s.push_str(",\"continue\":\"");
            s.push_str(&self.token);
            s.push('"');
        }
        if let Some(n) = self.remaining {
            s.push_str(",\"remainingItemCount\":");
            s.push_str(&n.to_string());
        }
        s.push('}');
        s
    }
    fn meta_proto(&self) -> Vec<u8> {
        let mut out = Vec::new();
        codec::proto_bytes(1, b"", &mut out);
        codec::proto_bytes(2, self.revision.to_string().as_bytes(), &mut out);
        codec::proto_bytes(3, self.token.as_bytes(), &mut out);
        if let Some(n) = self.remaining {
            codec::proto_varint_field(4, n, &mut out);
        }
        out
    }
}

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

/// Encodes an object in the version of its resource: JSON with kind and version, without a newline.
pub(crate) fn object_json(inner: &Inner, resource: &Resource, object: &Object) -> Result<Bytes, Status> {
    if resource.same_version() {
        return Ok(object.json(&resource.type_meta));
    }
    let tree = inner.served_tree(resource, object)?;
    Ok(codec::json_with(inner.schema, &resource.type_meta, &tree))
}

/// The protobuf message of an object, without the envelope; kept in the cache of forms.
pub(crate) fn object_proto(inner: &Inner, resource: &Resource, object: &Object) -> Result<Bytes, Status> {
    inner.forms.get(object, resource.number, || {
        let tree = inner.served_tree(resource, object)?;
        Ok(codec::message(inner.schema, &tree))
    })
}

fn finish_json(json: Bytes, form: Form) -> Result<Bytes, Status> {
    Ok(match form.format {
        Format::Yaml => codec::yaml(&json)?,
        _ if form.pretty => codec::pretty(&json),
        _ => {
            let mut out = BytesMut::from(json);
            out.put_u8(b'\n');
            out.freeze()
        }
    })
}

/// `{"kind":"PartialObjectMetadata",…}` of an object, from its stored bytes.
///
/// Annotations that are fields where upstream makes these forms stand only in the object's own.
pub(crate) fn partial_json(resource: &Resource, object: &Object, api_version: &str) -> Bytes {
    let mut full = BytesMut::new();
    let head = format!("\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{api_version}\",");
    object.write_json(head.as_bytes(), &mut full);
    let metadata_at = 1 + head.len();
    let end = codec::value_end(&full, metadata_at + "\"metadata\":".len()).unwrap_or(full.len() - 1);
    full.truncate(end);
    full.put_u8(b'}');
    match &resource.strategy.facts().field_annotation {
        Some(name) => without_annotation(full.freeze(), name),
        None => full.freeze(),
    }
}

/// An object's text without one annotation; inside strings no such text can stand, since quotes are escaped there.
fn without_annotation(json: Bytes, name: &str) -> Bytes {
    let key = format!("\"{name}\":\"");
    let found = std::str::from_utf8(&json).ok().and_then(|text| text.split_once(&key));
    let Some((before, rest)) = found else { return json };
    let after = rest.split_once('"').map_or("", |(_, after)| after);
    match (before.strip_suffix("\"annotations\":{"), after.strip_prefix('}')) {
        (Some(before), Some(after)) => format!("{before}{}", after.strip_prefix(',').unwrap_or(after)).into(),
        _ => match (before.strip_suffix(','), after.strip_prefix(',')) {
            (Some(before), _) => format!("{before}{after}").into(),
            (None, after_comma) => format!("{before}{}", after_comma.unwrap_or(after)).into(),
        },
    }
}

fn partial_proto(
    inner: &Inner,
    resource: &Resource,
    object: &Object,
    api_version: &str,
) -> Result<Bytes, Status> {
    let json = partial_json(resource, object, api_version);
    codec::proto_of_json(inner.schema, "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata", &json)
}

/// Encodes what a handler answered; a watch is not encoded here.
pub(crate) fn encode(inner: &Inner, outcome: Outcome, form: Form) -> Result<(u16, Encoded), Status> {
    match outcome {
        Outcome::Stored { status, resource, object } => {
            Ok((status, Encoded::Whole(encode_object(inner, &resource, &object, form)?)))
        }
        Outcome::Tree { status, kind, tree, resource } => {
            let bytes = encode_tree(inner, &kind, &tree, resource.as_deref(), form)?;
            Ok((status, Encoded::Whole(bytes)))
        }
        Outcome::Status(status) => Ok((
            if status.code == 0 { 200 } else { status.code },
            Encoded::Whole(encode_status(inner, &status, form)),
        )),
        Outcome::List(list) => Ok((200, encode_list(inner, list, form)?)),
        Outcome::Computed { resource, items } => {
            Ok((200, Encoded::Whole(encode_computed(inner, &resource, &items, form)?)))
        }
        Outcome::Watch(_) => Err(Status::internal("a watch has no single body")),
    }
}

fn encode_object(inner: &Inner, resource: &Resource, object: &Object, form: Form) -> Result<Bytes, Status> {
    match (form.convert, form.format) {
        (Convert::None, Format::Protobuf) => {
            let raw = object_proto(inner, resource, object)?;
            Ok(codec::envelope(&resource.kind.api_version(), &resource.kind.kind, &raw))
        }
        (Convert::None, Format::Json) if !form.pretty && resource.same_version() => {
            let mut out = BytesMut::with_capacity(object.data.body.len() + resource.type_meta.len() + 32);
            object.write_json(&resource.type_meta, &mut out);
            out.put_u8(b'\n');
            Ok(out.freeze())
        }
        (Convert::None, _) => finish_json(object_json(inner, resource, object)?, form),
        (Convert::Partial(v), Format::Protobuf) => Ok(codec::envelope(
            v.api_version(),
            "PartialObjectMetadata",
            &partial_proto(inner, resource, object, v.api_version())?,
        )),
        (Convert::Partial(v), _) => finish_json(partial_json(resource, object, v.api_version()), form),
        (Convert::PartialList(_), _) => Err(not_acceptable(&format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
            go_type(&resource.kind)
        ))),
        (Convert::Table(v), _) => {
            let json = table::of_objects(inner, resource, std::slice::from_ref(object), table_form(v, form))?;
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
    inner: &Inner,
    kind: &Gvk,
    tree: &Struct,
    resource: Option<&Resource>,
    form: Form,
) -> Result<Bytes, Status> {
    let type_meta = format!("\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.kind, kind.api_version());
    match (form.convert, form.format) {
        (Convert::Table(v), _) => {
            let json =
                table::of_trees(inner, resource, kind, std::slice::from_ref(tree), table_form(v, form));
            finish_json(json, form)
        }
        (Convert::Partial(v), format) => {
            let out = partial_of_tree(inner, tree, v.api_version());
            if format == Format::Protobuf {
                let raw = codec::proto_of_json(inner.schema, PARTIAL, &out)?;
                return Ok(codec::envelope(v.api_version(), "PartialObjectMetadata", &raw));
            }
            finish_json(out, form)
        }
        (Convert::PartialList(_), _) => Err(not_acceptable(&format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
            go_type(kind)
        ))),
        (Convert::None, Format::Protobuf) => {
            Ok(codec::envelope(&kind.api_version(), &kind.kind, &codec::message(inner.schema, tree)))
        }
        (Convert::None, _) => finish_json(codec::json_with(inner.schema, type_meta.as_bytes(), tree), form),
    }
}

const PARTIAL: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata";

/// `{"kind":"PartialObjectMetadata",…}` of a tree.
pub(crate) fn partial_of_tree(inner: &Inner, tree: &Struct, api_version: &str) -> Bytes {
    let full = codec::json_with(inner.schema, b"", tree);
    let begin = b"{\"metadata\":";
    // What is no object of the API has none.
    let full = if full.starts_with(begin) { full } else { Bytes::from_static(b"{\"metadata\":null}") };
    let end = codec::value_end(&full, begin.len()).unwrap_or(full.len() - 1);
    let mut out = BytesMut::new();
    out.put_slice(
        format!("{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{api_version}\",").as_bytes(),
    );
    out.put_slice(&full[1..end]);
    out.put_u8(b'}');
    out.freeze()
}

fn encode_computed(
    inner: &Inner,
    resource: &Resource,
    trees: &[Struct],
    form: Form,
) -> Result<Bytes, Status> {
    let (list, api_version, items) = match form.convert {
        Convert::Table(v) => {
            let json = table::of_trees(inner, Some(resource), &resource.kind, trees, table_form(v, form));
            return finish_json(json, form);
        }
        Convert::Partial(_) => return Err(not_one(&resource.kind)),
        Convert::PartialList(v) => {
            let items: Vec<_> = trees.iter().map(|i| partial_of_tree(inner, i, v.api_version())).collect();
            ("PartialObjectMetadataList".to_owned(), v.api_version().into(), items)
        }
        Convert::None => {
            let items = trees.iter().map(|i| codec::json_with(inner.schema, b"", i)).collect();
            (format!("{}List", resource.kind.kind), resource.kind.api_version(), items)
        }
    };
    if form.format == Format::Protobuf {
        let partial = matches!(form.convert, Convert::PartialList(_));
        let mut raw = Vec::new();
        codec::proto_bytes(1, &[], &mut raw);
        for (json, tree) in items.iter().zip(trees) {
            let item = if partial {
                codec::proto_of_json(inner.schema, PARTIAL, json)?
            } else {
                codec::message(inner.schema, tree)
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

/// A `Status` in a form; conversions do not apply to it.
pub(crate) fn encode_status(inner: &Inner, status: &Status, form: Form) -> Bytes {
    let json = Bytes::from(status.to_json());
    if form.format == Format::Protobuf
        && let Ok(raw) =
            codec::proto_of_json(inner.schema, "io.k8s.apimachinery.pkg.apis.meta.v1.Status", &json)
    {
        return codec::envelope("v1", "Status", &raw);
    }
    // No Status nests deeply enough to be no YAML.
    finish_json(json.clone(), form).unwrap_or(json)
}

fn encode_list(inner: &Inner, list: List, form: Form) -> Result<Encoded, Status> {
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
                    let encoded = object_proto(inner, &list.resource, object?);
                    encoded.map_err(|e| unreadable::in_list(inner, &list, e))
                })
                .collect::<Result<Vec<_>, _>>()?;
            Ok(proto_list(&list, &format!("{}List", kind.kind), &kind.api_version(), items))
        }
        (Convert::None, format) => {
            let head = Bytes::from(head(&format!("{}List", kind.kind), &kind.api_version()));
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
                let tree = inner
                    .served_tree(&list.resource, object?)
                    .map_err(|e| unreadable::in_list(inner, &list, e))?;
                all.put_slice(&codec::json_with(inner.schema, b"", &tree));
            }
            all.put_slice(b"]}");
            Ok(Encoded::Whole(finish_json(all.freeze(), form)?))
        }
        (Convert::PartialList(v), Format::Protobuf) => {
            let items = list
                .in_time()
                .map(|o| partial_proto(inner, &list.resource, o?, v.api_version()))
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
            let json = table::of_list(inner, &list, &list.meta_json(), table_form(v, form))?;
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
