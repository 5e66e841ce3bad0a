//! Decoding of messages to trees in normal form.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::{SignedDuration, Timestamp};

use super::DecodeError;
use super::wire::{Reader, Wire};
use crate::codec::{json, normal};
use crate::depth::MAX_DEPTH;
use crate::quantity::Quantity;
use crate::schema::{AnyKind, FieldNo, MessageField, MessagePart, Or, Schema, StructId, Type, TypeId};
use crate::tree::{Map, Node, Struct, Text};

pub(super) fn message(schema: &Schema, id: StructId, bytes: &[u8]) -> Result<Struct, DecodeError> {
    let mut tree = Struct::new(id);
    let mut decoder = Decoder { schema, depth: 0, unsettled: false };
    decoder.open()?;
    decoder.message(&mut tree, &schema.st(id).message, bytes)?;
    if decoder.unsettled {
        normal::settle(schema, &mut tree);
    }
    Ok(tree)
}

struct Decoder<'s> {
    schema: &'s Schema,
    /// The depth of the current value in the object's JSON; some messages have no level of their own in JSON.
    depth: usize,
    /// Whether entries of a map came unsorted: such maps are sorted once, at the end.
    unsettled: bool,
}

fn broken(text: String) -> DecodeError {
    DecodeError::Syntax(text)
}

impl Decoder<'_> {
    /// Begins an object or a list, one level deeper; the caller lowers `depth` at its end.
    fn open(&mut self) -> Result<(), DecodeError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(broken("proto: exceeded max depth".into())) } else { Ok(()) }
    }

    /// Decodes the fields of a struct that was opened.
    fn message(
        &mut self,
        tree: &mut Struct,
        fields: &[MessageField],
        bytes: &[u8],
    ) -> Result<(), DecodeError> {
        let mut r = Reader::new(bytes);
        while let Some((number, wire)) = r.key()? {
            let Ok(i) = fields.binary_search_by_key(&number, |f| f.number) else {
                r.skip(wire)?;
                continue;
            };
            match &fields[i].what {
                MessagePart::Embedded(inner) => self.message(tree, inner, r.bytes(wire)?)?,
                MessagePart::Field(no) => self.field(tree, *no, &mut r, wire)?,
            }
        }
        let st = self.schema.st(tree.id);
        if self.depth == 1 || !fields.is_empty() {
            tree.retain(|no, v| {
                let f = st.at(no);
                normal::keeps(f, self.schema.ty(f.ty), v)
            });
        }
        Ok(())
    }

    fn struct_of(&mut self, id: StructId, bytes: &[u8]) -> Result<Node, DecodeError> {
        let schema = self.schema;
        let mut tree = Struct::new(id);
        self.open()?;
        self.message(&mut tree, &schema.st(id).message, bytes)?;
        self.depth -= 1;
        Ok(Node::Struct(Box::new(tree)))
    }

    fn field(
        &mut self,
        tree: &mut Struct,
        no: FieldNo,
        r: &mut Reader<'_>,
        wire: Wire,
    ) -> Result<(), DecodeError> {
        let ty = self.schema.st(tree.id).at(no).ty;
        match self.schema.ty(ty) {
            Type::List { of, .. } => {
                let of = *of;
                self.open()?;
                let mut found = Vec::new();
                let scalar = matches!(self.schema.ty(of), Type::Bool | Type::Int32 | Type::Int64);
                if self.schema.is_wrapped(ty) {
                    let mut inner = Reader::new(r.bytes(wire)?);
                    while let Some((number, wire)) = inner.key()? {
                        if number == 1 {
                            found.extend(self.value(of, &mut inner, wire)?);
                        } else {
                            inner.skip(wire)?;
                        }
                    }
                } else if scalar && wire == Wire::Bytes {
                    let mut packed = Reader::new(r.bytes(wire)?);
                    while !packed.is_empty() {
                        found.extend(self.value(of, &mut packed, Wire::Varint)?);
                    }
                } else {
                    found.extend(self.value(of, r, wire)?);
                }
                self.depth -= 1;
                if let Node::List(list) = tree.get_or_insert_with(no, || Node::List(Vec::new())) {
                    list.append(&mut found);
                }
            }
            Type::Map { of, .. } => {
                let of = *of;
                self.open()?;
                let mut entry = Reader::new(r.bytes(wire)?);
                let (mut key, mut value) = (Text::default(), None);
                while let Some((number, wire)) = entry.key()? {
                    match number {
                        1 => key = entry.text(wire)?,
                        2 => value = self.value(of, &mut entry, wire)?,
                        _ => entry.skip(wire)?,
                    }
                }
                self.depth -= 1;
                let value = value.unwrap_or_else(|| self.empty(of));
                if let Node::Map(map) = tree.get_or_insert_with(no, || Node::Map(Map::new())) {
                    self.unsettled |= !map.append(key, value);
                }
            }
            Type::Struct(_) => {
                let Type::Struct(id) = *self.schema.ty(ty) else { return Ok(()) };
                let bytes = r.bytes(wire)?;
                // A message that comes twice is merged.
                if let Some(Node::Struct(s)) = tree.get_mut(no) {
                    let schema = self.schema;
                    self.open()?;
                    self.message(s, &schema.st(id).message, bytes)?;
                    self.depth -= 1;
                    return Ok(());
                }
                let node = self.struct_of(id, bytes)?;
                let plain = !self.schema.st(tree.id).at(no).pointer;
                if !(plain && node.is_zero()) {
                    tree.set(no, node);
                }
            }
            _ => match self.value(ty, r, wire)? {
                Some(v) => tree.set(no, v),
                None => {
                    tree.remove(no);
                }
            },
        }
        Ok(())
    }

    /// The value of a map's entry that holds none.
    fn empty(&self, ty: TypeId) -> Node {
        match self.schema.ty(ty) {
            Type::Struct(id) => Struct::new(*id).into(),
            Type::List { .. } => Node::List(Vec::new()),
            Type::Bool => Node::Bool(false),
            Type::Int32 | Type::Int64 => Node::Int(0),
            Type::Quantity => "0".into(),
            Type::Time | Type::MicroTime | Type::Any(_) => Node::Null,
            _ => "".into(),
        }
    }

    /// Decodes one value; `None` for a zero time or an empty value without a schema.
    fn value(&mut self, ty: TypeId, r: &mut Reader<'_>, wire: Wire) -> Result<Option<Node>, DecodeError> {
        Ok(Some(match self.schema.ty(ty) {
            Type::Bool => Node::Bool(r.int(wire)? != 0),
            Type::Int32 => Node::Int(i64::from(r.int(wire)? as i32)),
            Type::Int64 => Node::Int(r.int(wire)?),
            Type::Float64 => Node::Float(r.float(wire)?),
            Type::String => Node::Str(r.text(wire)?),
            Type::Bytes => Node::Str(BASE64_STANDARD.encode(r.bytes(wire)?).into()),
            Type::Quantity => {
                let mut text = Text::default();
                let mut inner = Reader::new(r.bytes(wire)?);
                while let Some((number, wire)) = inner.key()? {
                    if number == 1 { text = inner.text(wire)? } else { inner.skip(wire)? }
                }
                let q = Quantity::parse(&text).map_err(|e| broken(e.to_string()))?;
                Node::Str(compact_str::format_compact!("{q}"))
            }
            Type::IntOrString => {
                let (mut kind, mut int, mut text) = (0, 0, Text::default());
                let mut inner = Reader::new(r.bytes(wire)?);
                while let Some((number, wire)) = inner.key()? {
                    match number {
                        1 => kind = inner.int(wire)?,
                        2 => int = i64::from(inner.int(wire)? as i32),
                        3 => text = inner.text(wire)?,
                        _ => inner.skip(wire)?,
                    }
                }
                if kind == 1 { Node::Str(text) } else { Node::Int(int) }
            }
            Type::Time => return Ok(Self::time(r.bytes(wire)?)?.map(|t| crate::time::format(t).into())),
            Type::MicroTime => {
                return Ok(Self::time(r.bytes(wire)?)?.map(|t| crate::time::format_micro(t).into()));
            }
            Type::Duration => {
                let mut nanos = 0;
                let mut inner = Reader::new(r.bytes(wire)?);
                while let Some((number, wire)) = inner.key()? {
                    if number == 1 { nanos = inner.int(wire)? } else { inner.skip(wire)? }
                }
                crate::time::format_duration(SignedDuration::from_nanos(nanos)).into()
            }
            Type::Any(_) => return self.any(ty, r.bytes(wire)?),
            Type::Or { of, or } => {
                let (of, or) = (*of, *or);
                return self.either(of, or, r.bytes(wire)?);
            }
            Type::Struct(id) => {
                let id = *id;
                self.struct_of(id, r.bytes(wire)?)?
            }
            Type::List { of, .. } => {
                let of = *of;
                self.open()?;
                let mut list = Vec::new();
                let mut inner = Reader::new(r.bytes(wire)?);
                while let Some((number, wire)) = inner.key()? {
                    if number == 1 {
                        list.extend(self.value(of, &mut inner, wire)?);
                    } else {
                        inner.skip(wire)?;
                    }
                }
                self.depth -= 1;
                Node::List(list)
            }
            Type::Map { .. } => {
                r.skip(wire)?;
                return Ok(None);
            }
        }))
    }

    fn time(bytes: &[u8]) -> Result<Option<Timestamp>, DecodeError> {
        let (mut seconds, mut nanos) = (0, 0);
        let mut inner = Reader::new(bytes);
        while let Some((number, wire)) = inner.key()? {
            match number {
                1 => seconds = inner.int(wire)?,
                2 => nanos = inner.int(wire)?,
                _ => inner.skip(wire)?,
            }
        }
        if seconds == 0 && nanos == 0 {
            return Ok(None);
        }
        Timestamp::new(seconds, nanos as i32).map(Some).map_err(|_| broken("proto: time out of range".into()))
    }

    fn any(&mut self, ty: TypeId, bytes: &[u8]) -> Result<Option<Node>, DecodeError> {
        let mut raw: &[u8] = &[];
        let mut inner = Reader::new(bytes);
        while let Some((number, wire)) = inner.key()? {
            if number == 1 { raw = inner.bytes(wire)? } else { inner.skip(wire)? }
        }
        if raw.is_empty() {
            return Ok(None);
        }
        // A RawExtension holds JSON, or a body with an envelope of its own: clients send both.
        if matches!(self.schema.ty(ty), Type::Any(AnyKind::RawExtension)) && raw.starts_with(super::MAGIC) {
            let envelope = super::open(raw)?;
            let (group, version) =
                envelope.api_version.split_once('/').unwrap_or(("", &envelope.api_version));
            let gvk = crate::schema::Gvk::new(group, version, &envelope.kind);
            let id = self.schema.kind(&gvk).ok_or_else(|| {
                broken(format!(
                    "no kind {:?} is registered for version {:?}",
                    gvk.kind.as_str(),
                    envelope.api_version.as_str()
                ))
            })?;
            let Node::Struct(tree) = self.struct_of(id, envelope.raw)? else { return Ok(None) };
            let mut entries = vec![
                ("kind".into(), Node::Str(envelope.kind.clone())),
                ("apiVersion".into(), Node::Str(envelope.api_version.clone())),
            ];
            if let Node::Map(m) = json::to_any(self.schema, &tree) {
                entries.extend(m.into_entries());
            }
            let mut text = Vec::new();
            json::encode_any(&Node::Map(Map::from_entries(entries)), &mut text);
            return Ok(Some(json::raw(&String::from_utf8_lossy(&text))));
        }
        let value = json::decode_any_at(raw, self.depth)?;
        Ok(Some(match (self.schema.ty(ty), std::str::from_utf8(raw)) {
            (Type::Any(AnyKind::RawExtension), Ok(text)) => json::raw(text),
            _ => value,
        }))
    }

    fn either(&mut self, of: StructId, or: Or, bytes: &[u8]) -> Result<Option<Node>, DecodeError> {
        let (mut allows, mut schema, mut list) = (false, None, Vec::new());
        let mut inner = Reader::new(bytes);
        while let Some((number, wire)) = inner.key()? {
            match (or, number) {
                (Or::Bool, 1) => allows = inner.int(wire)? != 0,
                (Or::Bool, 2) | (_, 1) => schema = Some(self.struct_of(of, inner.bytes(wire)?)?),
                (Or::List, 2) => {
                    self.open()?;
                    list.push(self.struct_of(of, inner.bytes(wire)?)?);
                    self.depth -= 1;
                }
                (Or::Strings, 2) => list.push(Node::Str(inner.text(wire)?)),
                _ => inner.skip(wire)?,
            }
        }
        Ok(match (schema, or) {
            (Some(s), _) => Some(s),
            (None, Or::Bool) => Some(Node::Bool(allows)),
            (None, _) => Some(Node::List(list)),
        })
    }
}
