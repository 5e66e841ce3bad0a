//! `metadata.managedFields`: who manages which fields, read from an object and written into one.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;

use super::set::FieldSet;
use crate::go::quote;
use crate::schema::{FieldNo, Schema, StructId, Type};
use crate::tree::{Node, Struct, Text};

/// The way in which a manager came to its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// The manager applies the fields (server-side apply).
    Apply,
    /// The manager writes the fields in any other way.
    Update,
}

impl Operation {
    fn text(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// One entry of managedFields.
#[derive(Debug, Clone, PartialEq)]
pub struct Manager {
    /// The manager's name.
    pub name: Text,
    /// The way in which it writes.
    pub operation: Operation,
    /// The version in which it writes; the fields are those of this version.
    pub api_version: Text,
    /// The subresource through which it writes, "" for the object itself.
    pub subresource: Text,
    /// The time at which the manager's fields last changed.
    pub time: Option<Text>,
    /// The manager's fields.
    pub fields: FieldSet,
}

impl Manager {
    /// Whether both stand for the same manager. An applier is the same whatever version it applies.
    pub fn is(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    fn identity(&self) -> (Text, Operation, Text, Option<Text>) {
        let version = (self.operation == Operation::Update).then(|| self.api_version.clone());
        (self.name.clone(), self.operation, self.subresource.clone(), version)
    }

    /// The manager as conflicts name it.
    pub fn shown(&self) -> String {
        let mut out = quote(&self.name);
        if !self.subresource.is_empty() {
            out.push_str(" with subresource ");
            out.push_str(&quote(&self.subresource));
        }
        if self.operation == Operation::Update {
            out.push_str(" using ");
            out.push_str(&self.api_version);
        }
        out
    }
}

/// The places of managedFields in an object, and of the fields in their entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    pub(super) metadata: FieldNo,
    pub(super) annotations: FieldNo,
    managed: FieldNo,
    entry: StructId,
    manager: FieldNo,
    operation: FieldNo,
    api_version: FieldNo,
    time: FieldNo,
    fields_type: FieldNo,
    fields: FieldNo,
    subresource: FieldNo,
}

impl Places {
    /// Finds the places; `None` if the kind has no such metadata.
    pub(super) fn new(schema: &Schema, root: StructId) -> Option<Self> {
        let metadata = schema.st(root).field("metadata")?;
        let Type::Struct(meta) = schema.ty(schema.st(root).at(metadata).ty) else { return None };
        let meta = schema.st(*meta);
        let managed = meta.field("managedFields")?;
        let Type::List { of, .. } = schema.ty(meta.at(managed).ty) else { return None };
        let Type::Struct(entry) = schema.ty(*of) else { return None };
        let st = schema.st(*entry);
        Some(Self {
            metadata,
            annotations: meta.field("annotations")?,
            managed,
            entry: *entry,
            manager: st.field("manager")?,
            operation: st.field("operation")?,
            api_version: st.field("apiVersion")?,
            time: st.field("time")?,
            fields_type: st.field("fieldsType")?,
            fields: st.field("fieldsV1")?,
            subresource: st.field("subresource")?,
        })
    }

    /// The entries as the object holds them.
    pub(super) fn raw<'t>(&self, tree: &'t Struct) -> &'t [Node] {
        tree.st(self.metadata).map_or(&[], |m| m.list(self.managed))
    }

    /// Whether a client asks to forget all managers: one empty entry.
    pub(super) fn is_reset(&self, tree: &Struct) -> bool {
        matches!(self.raw(tree), [Node::Struct(s)] if s.is_empty())
    }

    /// Reads the entries.
    pub(super) fn read(&self, tree: &Struct) -> Result<Vec<Manager>, String> {
        let raw = self.raw(tree);
        let mut out: Vec<Manager> = Vec::with_capacity(raw.len() + 1);
        let mut places: HashMap<_, usize> = HashMap::with_capacity(raw.len());
        for (i, node) in raw.iter().enumerate() {
            let empty = Struct::new(self.entry);
            let s = node.as_struct().unwrap_or(&empty);
            let operation = match s.str(self.operation) {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".into()),
            };
            let api_version = s.str(self.api_version);
            if api_version.is_empty() {
                return Err("apiVersion must not be empty".into());
            }
            match s.str(self.fields_type) {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {i}")),
                other => {
                    return Err(format!("invalid fieldsType {} in managed fields entry {i}", quote(other)));
                }
            }
            let fields = match s.get(self.fields) {
                Some(node) => FieldSet::from_node(node).map_err(|e| format!("error decoding set: {e}"))?,
                None => FieldSet::default(),
            };
            let manager = Manager {
                name: s.str(self.manager).into(),
                operation,
                api_version: api_version.into(),
                subresource: s.str(self.subresource).into(),
                time: s.get(self.time).map(|t| t.as_str().into()),
                fields,
            };
            // Of two entries of the same manager the later one counts.
            match places.entry(manager.identity()) {
                Place::Occupied(at) => out[*at.get()] = manager,
                Place::Vacant(at) => {
                    at.insert(out.len());
                    out.push(manager);
                }
            }
        }
        Ok(out)
    }

    /// Takes the entries out.
    pub(super) fn clear(&self, tree: &mut Struct) -> Option<Node> {
        tree.st_mut(self.metadata)?.remove(self.managed)
    }

    /// Takes the entries out of metadata.
    pub(super) fn clear_in(&self, metadata: &mut Struct) {
        metadata.remove(self.managed);
    }

    /// Puts entries in as they are.
    pub(super) fn put(&self, schema: &Schema, tree: &mut Struct, entries: Vec<Node>) {
        if entries.is_empty() {
            self.clear(tree);
            return;
        }
        let Type::Struct(meta) = schema.ty(schema.st(tree.id).at(self.metadata).ty) else { return };
        let node = tree.get_or_insert_with(self.metadata, || Node::from(Struct::new(*meta)));
        if let Some(meta) = node.as_struct_mut() {
            meta.set(self.managed, entries);
        }
    }

    /// Writes the entries in upstream's order: appliers first, then by time and name.
    pub(super) fn write(&self, schema: &Schema, tree: &mut Struct, mut managers: Vec<Manager>) {
        managers.sort_by(|a, b| {
            (a.operation, &a.time, &a.name, &a.api_version, &a.subresource).cmp(&(
                b.operation,
                &b.time,
                &b.name,
                &b.api_version,
                &b.subresource,
            ))
        });
        let entries = managers
            .into_iter()
            .map(|m| {
                let mut s = Struct::new(self.entry);
                if !m.name.is_empty() {
                    s.set(self.manager, m.name);
                }
                s.set(self.operation, m.operation.text());
                s.set(self.api_version, m.api_version);
                if let Some(time) = m.time {
                    s.set(self.time, time);
                }
                s.set(self.fields_type, "FieldsV1");
                s.set(self.fields, m.fields.to_node());
                if !m.subresource.is_empty() {
                    s.set(self.subresource, m.subresource);
                }
                Node::from(s)
            })
            .collect();
        self.put(schema, tree, entries);
    }

    /// Whether both objects have the same entries but for their times, and some times differ.
    pub(super) fn only_times_differ(&self, old: &Struct, new: &Struct) -> bool {
        let (a, b) = (self.raw(old), self.raw(new));
        let same = |a: &Node, b: &Node| match (a, b) {
            (Node::Struct(a), Node::Struct(b)) => {
                let rest = |s: &Struct| {
                    s.iter()
                        .filter(|(no, _)| *no != self.time)
                        .map(|(no, v)| (no, v.clone()))
                        .collect::<Vec<_>>()
                };
                rest(a) == rest(b)
            }
            _ => false,
        };
        a.len() == b.len() && !a.is_empty() && a != b && a.iter().zip(b).all(|(a, b)| same(a, b))
    }
}

/// Checks entries that a client or a webhook set; the text is upstream's.
pub fn validate_entries(schema: &Schema, tree: &Struct) -> Result<(), String> {
    match Places::new(schema, tree.id) {
        Some(places) => places.read(tree).map(|_| ()),
        None => Ok(()),
    }
}
