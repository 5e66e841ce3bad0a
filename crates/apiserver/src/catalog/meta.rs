//! Reads and writes `metadata` in trees of any kind.

use std::collections::HashSet;

use api::{ByValue, FieldNo, Map, NewObject, Node, OwnerRef, Schema, Status, Struct, StructId, Text};
use kinds::Strategy;

use crate::codec;

/// Field numbers of `ObjectMeta`, `ListMeta`-free; the same for every kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta {
    object_meta: StructId,
    name: FieldNo,
    generate_name: FieldNo,
    namespace: FieldNo,
    self_link: FieldNo,
    uid: FieldNo,
    resource_version: FieldNo,
    generation: FieldNo,
    created: FieldNo,
    deleted: FieldNo,
    grace: FieldNo,
    labels: FieldNo,
    annotations: FieldNo,
    owners: FieldNo,
    finalizers: FieldNo,
    owner: OwnerFields,
}

#[derive(Debug, Clone, Copy)]
struct OwnerFields {
    api_version: FieldNo,
    kind: FieldNo,
    name: FieldNo,
    uid: FieldNo,
    controller: FieldNo,
    block: FieldNo,
}

impl Meta {
    /// Looks the numbers up; `None` if the schema has no `ObjectMeta`.
    pub(crate) fn new(schema: &Schema) -> Option<Self> {
        let object_meta = schema.named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")?;
        let owner = schema.st(schema.named("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference")?);
        let s = schema.st(object_meta);
        Some(Self {
            object_meta,
            name: s.field("name")?,
            generate_name: s.field("generateName")?,
            namespace: s.field("namespace")?,
            self_link: s.field("selfLink")?,
            uid: s.field("uid")?,
            resource_version: s.field("resourceVersion")?,
            generation: s.field("generation")?,
            created: s.field("creationTimestamp")?,
            deleted: s.field("deletionTimestamp")?,
            grace: s.field("deletionGracePeriodSeconds")?,
            labels: s.field("labels")?,
            annotations: s.field("annotations")?,
            owners: s.field("ownerReferences")?,
            finalizers: s.field("finalizers")?,
            owner: OwnerFields {
                api_version: owner.field("apiVersion")?,
                kind: owner.field("kind")?,
                name: owner.field("name")?,
                uid: owner.field("uid")?,
                controller: owner.field("controller")?,
                block: owner.field("blockOwnerDeletion")?,
            },
        })
    }
}

/// The `metadata` of one tree, to read.
#[derive(Clone, Copy)]
pub(crate) struct MetaRef<'a> {
    f: &'a Meta,
    s: Option<&'a Struct>,
}

/// The `metadata` of one tree, to change.
pub(crate) struct MetaMut<'a> {
    f: &'a Meta,
    s: &'a mut Struct,
}

impl Meta {
    /// Of a tree whose root has `metadata` at this number.
    pub(crate) fn of<'a>(&'a self, tree: &'a Struct, at: FieldNo) -> MetaRef<'a> {
        MetaRef { f: self, s: tree.st(at) }
    }
    /// Of a tree, made if absent.
    pub(crate) fn of_mut<'a>(&'a self, tree: &'a mut Struct, at: FieldNo) -> Option<MetaMut<'a>> {
        let id = self.object_meta;
        let node = tree.get_or_insert_with(at, || Node::from(Struct::new(id)));
        if node.as_struct().is_none() {
            *node = Node::from(Struct::new(id));
        }
        Some(MetaMut { f: self, s: node.as_struct_mut()? })
    }
    /// The object that a store keeps for a tree.
    pub(crate) fn at_rest(
        &self,
        schema: &Schema,
        strategy: &dyn Strategy,
        at: FieldNo,
        mut tree: Struct,
        stamp: u32,
    ) -> Result<NewObject, Status> {
        let facts = strategy.facts();
        let mut fields = Vec::new();
        if !facts.fields_by_version {
            strategy.field_values(schema, &tree, &mut fields);
        }
        if let (Some(rest), Some(storage)) = (&schema.st(tree.id).rest, &facts.storage) {
            // Objects of definitions keep the version in which they are stored: only the definition knows the others.
            let values = tree.get_or_insert_with(rest.field, || Map::new().into());
            if let Some(values) = values.as_map_mut() {
                values.insert("apiVersion", storage.kind.api_version());
                values.insert("kind", storage.kind.kind.clone());
            }
        }
        let mut meta =
            self.of_mut(&mut tree, at).ok_or_else(|| Status::internal("the object has no metadata"))?;
        meta.mark_resource_version();
        let (body, rv_at) = codec::storage_json(schema, &tree)?;
        let meta = self.of(&tree, at);
        Ok(NewObject {
            name: meta.name().into(),
            namespace: meta.namespace().into(),
            uid: meta.uid().into(),
            labels: meta.labels(),
            owners: meta.owners(),
            fields: fields.into(),
            deleting: meta.deleting(),
            finalizers: !meta.finalizers().is_empty(),
            stamp,
            body,
            rv_at,
        })
    }
}

impl<'a> MetaRef<'a> {
    fn str(&self, no: FieldNo) -> &'a str {
        self.s.map_or("", |s| s.str(no))
    }
    /// `name`
    pub(crate) fn name(&self) -> &'a str {
        self.str(self.f.name)
    }
    /// `generateName`
    pub(crate) fn generate_name(&self) -> &'a str {
        self.str(self.f.generate_name)
    }
    /// `namespace`
    pub(crate) fn namespace(&self) -> &'a str {
        self.str(self.f.namespace)
    }
    /// `uid`
    pub(crate) fn uid(&self) -> &'a str {
        self.str(self.f.uid)
    }
    /// `resourceVersion`
    pub(crate) fn resource_version(&self) -> &'a str {
        self.str(self.f.resource_version)
    }
    /// `generation`, 0 if absent.
    pub(crate) fn generation(&self) -> i64 {
        self.s.and_then(|s| s.int(self.f.generation)).unwrap_or_default()
    }
    /// `creationTimestamp`
    pub(crate) fn created(&self) -> &'a str {
        self.str(self.f.created)
    }
    /// `deletionTimestamp`, "" if absent.
    pub(crate) fn deleted(&self) -> &'a str {
        self.str(self.f.deleted)
    }
    /// Whether `deletionTimestamp` is set.
    pub(crate) fn deleting(&self) -> bool {
        !self.deleted().is_empty()
    }
    /// `deletionGracePeriodSeconds`
    pub(crate) fn grace(&self) -> Option<i64> {
        self.s.and_then(|s| s.int(self.f.grace))
    }
    /// `labels`, sorted.
    pub(crate) fn labels(&self) -> Box<[(Text, Text)]> {
        let Some(map) = self.s.and_then(|s| s.map(self.f.labels)) else { return Box::default() };
        let mut all: Vec<(Text, Text)> = map.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect();
        all.sort();
        all.into()
    }
    /// `finalizers`
    pub(crate) fn finalizers(&self) -> Vec<&'a str> {
        self.s.map_or(&[][..], |s| s.list(self.f.finalizers)).iter().map(Node::as_str).collect()
    }
    /// `ownerReferences`
    pub(crate) fn owners(&self) -> Box<[OwnerRef]> {
        let o = &self.f.owner;
        self.s
            .map_or(&[][..], |s| s.list(self.f.owners))
            .iter()
            .filter_map(Node::as_struct)
            .map(|r| OwnerRef {
                api_version: r.str(o.api_version).into(),
                kind: r.str(o.kind).into(),
                name: r.str(o.name).into(),
                uid: r.str(o.uid).into(),
                controller: r.bool(o.controller).unwrap_or_default(),
                block_owner_deletion: r.bool(o.block).unwrap_or_default(),
            })
            .collect()
    }
}

impl MetaMut<'_> {
    fn put(&mut self, no: FieldNo, value: &str) {
        if value.is_empty() {
            self.s.remove(no);
        } else {
            self.s.set(no, value);
        }
    }
    /// To read.
    pub(crate) fn read(&self) -> MetaRef<'_> {
        MetaRef { f: self.f, s: Some(self.s) }
    }
    /// Sets `name`.
    pub(crate) fn set_name(&mut self, v: &str) {
        self.put(self.f.name, v);
    }
    /// Sets `namespace`.
    pub(crate) fn set_namespace(&mut self, v: &str) {
        self.put(self.f.namespace, v);
    }
    /// Sets `uid`.
    pub(crate) fn set_uid(&mut self, v: &str) {
        self.put(self.f.uid, v);
    }
    /// Sets `resourceVersion`.
    pub(crate) fn set_resource_version(&mut self, v: &str) {
        self.put(self.f.resource_version, v);
    }
    /// Leaves the place for the store's revision: an empty string that is present.
    pub(crate) fn mark_resource_version(&mut self) {
        self.s.set(self.f.resource_version, "");
    }
    /// Takes that place away again.
    pub(crate) fn unset_resource_version(&mut self) {
        self.s.remove(self.f.resource_version);
    }
    /// Sets `generation`; 0 removes it.
    pub(crate) fn set_generation(&mut self, v: i64) {
        if v == 0 {
            self.s.remove(self.f.generation);
        } else {
            self.s.set(self.f.generation, v);
        }
    }
    /// Sets `creationTimestamp`.
    pub(crate) fn set_created(&mut self, v: &str) {
        self.put(self.f.created, v);
    }
    /// Sets an annotation.
    pub(crate) fn annotate(&mut self, key: &str, value: &str) {
        let node = self.s.get_or_insert_with(self.f.annotations, || Node::from(api::Map::new()));
        if let Some(map) = node.as_map_mut() {
            map.insert(key, value);
        }
    }
    /// Sets `deletionTimestamp`; "" removes it.
    pub(crate) fn set_deleted(&mut self, v: &str) {
        self.put(self.f.deleted, v);
    }
    /// Sets `deletionGracePeriodSeconds`.
    pub(crate) fn set_grace(&mut self, v: Option<i64>) {
        match v {
            Some(v) => self.s.set(self.f.grace, v),
            None => {
                self.s.remove(self.f.grace);
            }
        }
    }
    /// Sets `finalizers`.
    pub(crate) fn set_finalizers(&mut self, v: &[&str]) {
        if v.is_empty() {
            self.s.remove(self.f.finalizers);
        } else {
            self.s.set(self.f.finalizers, v.iter().map(|f| Node::from(*f)).collect::<Vec<_>>());
        }
    }
    /// Drops what only the server may set, before a create.
    pub(crate) fn wipe_system_fields(&mut self) {
        for no in [self.f.created, self.f.uid, self.f.deleted, self.f.grace, self.f.self_link] {
            self.s.remove(no);
        }
    }
    /// Drops owner references that stand twice and returns their uids.
    pub(crate) fn dedup_owners(&mut self) -> Vec<String> {
        let uid = self.f.owner.uid;
        let mut duplicates = Vec::new();
        if let Some(list) = self.s.get_mut(self.f.owners).and_then(Node::as_list_mut) {
            let mut seen = HashSet::with_capacity(list.len());
            let again: Vec<bool> = list.iter().map(|node| !seen.insert(ByValue(node))).collect();
            let mut again = again.into_iter();
            list.retain(|node| {
                let kept = again.next() != Some(true);
                if !kept {
                    duplicates.push(node.as_struct().map_or("", |s| s.str(uid)).to_owned());
                }
                kept
            });
        }
        duplicates
    }
}
