//! How the built-in kinds stand in upstream's etcd: protobuf in the version that upstream stores, JSON where
//! upstream keeps JSON; custom resources are JSON too.

mod cbc;
mod definitions;
pub mod encryption;
mod failed;
mod gcm;
mod kms;
#[cfg(test)]
mod kms_tests;
mod kms_v1;
mod media;
mod probe;
mod recent;
mod reload;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use api::codec::{json, proto};
use api::schema::Gvk;
use api::{FieldNo, NewObject, Node, OwnerRef, Schema, Struct, StructId, Text};
use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::future::BoxFuture;
use kinds::Strategy;
use kinds::defaults::Defaults;
use kinds::strategy::{Form, Storage};
use serde::Deserialize;
use storage::{Codec, CodecError, Placement};

use self::encryption::Encryption;
use self::failed::failed;
pub use self::media::Media;
pub(crate) use self::reload::Reload;
use crate::allocate::NODE_PORTS;
use crate::catalog::conversion::by_strategy;
use crate::catalog::meta::Meta;
use crate::codec;

/// The stamp of an object whose value in etcd is not what we would write: another version, or another form.
const STALE: u32 = 1;

/// A stored resource.
struct Row {
    storage: Storage,
    /// Of the version that the server keeps.
    root: StructId,
    meta_at: FieldNo,
    strategy: Arc<dyn Strategy>,
    /// `"kind":"Pod","apiVersion":"v1",` of the version in etcd.
    type_meta: String,
}

/// The codec of all built-in kinds.
pub struct StoredForms {
    schema: &'static Schema,
    meta: Meta,
    defaults: Defaults,
    rows: HashMap<(Text, Text), Row>,
    /// The form of what upstream keeps in protobuf by default.
    media: Media,
    encryption: ArcSwap<Encryption>,
}

impl StoredForms {
    /// Of the built-in schema; `None` if that lacks what every kind has.
    pub fn builtin() -> Option<Self> {
        let schema = Schema::builtin();
        // No client can ask for the last one.
        let names = api::resources::builtin().iter().map(|r| (r.group, r.resource)).chain([("", NODE_PORTS)]);
        let mut rows: HashMap<(Text, Text), Row> = HashMap::new();
        for (group, plural) in names {
            let strategy = kinds::strategy(group, plural);
            let Some(storage) = strategy.facts().storage.clone() else { continue };
            // Of two groups with the same objects, the rules of that in which they are kept.
            if storage.kind.group == group {
                rows.insert((group.into(), plural.into()), row(schema, storage, strategy)?);
            }
        }
        let defaults = Defaults::new(schema);
        let (media, encryption) = (Media::default(), ArcSwap::default());
        Some(Self { schema, meta: Meta::new(schema)?, defaults, rows, media, encryption })
    }

    /// With values that are encrypted.
    #[must_use]
    pub fn encrypted(self, encryption: Encryption) -> Self {
        Self { encryption: ArcSwap::from_pointee(encryption), ..self }
    }

    /// With another form of values than protobuf, where there is a choice.
    #[must_use]
    pub fn in_media(self, media: Media) -> Self {
        Self { media, ..self }
    }

    /// How values are encrypted.
    pub fn encryption(&self) -> Arc<Encryption> {
        self.encryption.load_full()
    }

    /// Has values be encrypted in another way from now on.
    fn exchange(&self, encryption: Encryption) {
        self.encryption.store(Arc::new(encryption));
    }

    fn row(&self, group: &str, plural: &str) -> Option<&Row> {
        self.rows.get(&(Text::from(group), Text::from(plural)))
    }

    /// The value of an object, not encrypted.
    fn plain(&self, group: &str, plural: &str, object: &NewObject) -> Result<Vec<u8>, CodecError> {
        let Some(row) = self.row(group, plural) else { return custom::encode(object) };
        let mut tree = json::decode(self.schema, row.root, &object.body).map_err(failed)?.tree;
        if let Some(mut meta) = self.meta.of_mut(&mut tree, row.meta_at) {
            meta.unset_resource_version();
        }
        let Storage { kind, etcd, form, .. } = &row.storage;
        tree = by_strategy(&*row.strategy, self.schema, tree, kind, etcd).map_err(failed)?;
        let in_json = || codec::json_with(self.schema, row.type_meta.as_bytes(), &tree);
        match form {
            Form::Definition => definitions::from_v1(&codec::json_with(self.schema, b"", &tree)),
            Form::Protobuf if self.media == Media::Yaml => {
                codec::yaml(&in_json()).map(Into::into).map_err(|s| failed(s.message))
            }
            Form::Protobuf if self.media == Media::Protobuf => {
                Ok(proto::encode(self.schema, &etcd.api_version(), &etcd.kind, &tree))
            }
            Form::Json | Form::Protobuf => {
                let mut value = in_json().to_vec();
                value.push(b'\n');
                Ok(value)
            }
        }
    }

    /// A tree of a kind as the store keeps it.
    fn object(&self, row: &Row, tree: Struct, stamp: u32) -> Result<NewObject, CodecError> {
        let object = self.meta.at_rest(self.schema, &*row.strategy, row.meta_at, tree, stamp);
        object.map_err(|s| failed(s.message))
    }
}

fn row(schema: &Schema, storage: Storage, strategy: Arc<dyn Strategy>) -> Option<Row> {
    let root = schema.kind(&storage.kind)?;
    let etcd = &storage.etcd;
    Some(Row {
        root,
        meta_at: schema.st(root).field("metadata")?,
        strategy,
        type_meta: format!("\"kind\":\"{}\",\"apiVersion\":\"{}\",", etcd.kind, etcd.api_version()),
        storage,
    })
}

impl Codec for StoredForms {
    fn placements(&self) -> Vec<Placement> {
        let place = |((group, plural), row): (&(Text, Text), &Row)| Placement {
            group: group.clone(),
            plural: plural.clone(),
            path: row.storage.path.to_string(),
        };
        self.rows.iter().map(place).collect()
    }

    fn encode(&self, group: &str, plural: &str, key: &[u8], object: &NewObject) -> Result<Bytes, CodecError> {
        let value = self.plain(group, plural, object)?;
        self.encryption.load().seal((group, plural), key, value).map(Bytes::from)
    }

    fn prepare<'a>(
        &'a self,
        group: &str,
        plural: &str,
        value: &'a [u8],
    ) -> Option<BoxFuture<'a, Result<(), CodecError>>> {
        self.encryption.load().prepare(group, plural, value)
    }

    fn prepare_write(&self, group: &str, plural: &str) -> Option<BoxFuture<'_, Result<(), CodecError>>> {
        self.encryption.load().prepare_write(group, plural)
    }

    fn decode(&self, group: &str, plural: &str, key: &[u8], value: &[u8]) -> Result<NewObject, CodecError> {
        let opened = self.encryption.load().open((group, plural), key, value);
        let (mut value, stale) = opened.map_err(|e| CodecError { sealed: true, ..e })?;
        let stale = if stale { STALE } else { 0 };
        let Some(row) = self.row(group, plural) else {
            return custom::decode(&value).map(|object| NewObject { stamp: stale, ..object });
        };
        let media = Media::of(&value);
        if media == Media::Yaml {
            let unreadable = || failed("it is neither protobuf nor JSON of Kubernetes");
            let parsed = api::yaml::parse(&value).map_err(|_| unreadable())?;
            if !matches!(parsed, Node::Map(_)) {
                return Err(unreadable());
            }
            let mut json = Vec::new();
            json::encode_any(&parsed, &mut json);
            value = Cow::Owned(json);
        }
        let in_json = media != Media::Protobuf;
        let (api_version, kind) = if in_json {
            let meta: TypeMeta = serde_json::from_slice(&value).map_err(failed)?;
            if row.storage.form == Form::Definition && meta.api_version == definitions::API_VERSION {
                value = Cow::Owned(definitions::to_v1(&value)?);
                (row.storage.kind.api_version(), meta.kind)
            } else {
                (meta.api_version, meta.kind)
            }
        } else {
            let envelope =
                proto::open(&value).map_err(|_| failed("it is neither protobuf nor JSON of Kubernetes"))?;
            (envelope.api_version, envelope.kind)
        };
        let found = gvk(&api_version, &kind);
        let root = self.schema.kind(&found).ok_or_else(|| {
            failed(format!(
                "{api_version} {kind} is not known to this version: write it anew in another version first"
            ))
        })?;
        let mut tree = if in_json {
            json::decode(self.schema, root, &value).map_err(failed)?.tree
        } else {
            proto::decode(self.schema, root, &value).map_err(failed)?.tree
        };
        let Storage { kind, etcd, form, .. } = &row.storage;
        tree = by_strategy(&*row.strategy, self.schema, tree, &found, kind).map_err(failed)?;
        // The stored object may be older than a default.
        self.defaults.apply(self.schema, &mut tree);
        let wanted = if *form == Form::Protobuf { self.media } else { Media::Json };
        let ours = found == *etcd && media == wanted;
        self.object(row, tree, if ours { stale } else { STALE })
    }
}

fn gvk(api_version: &str, kind: &str) -> Gvk {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    Gvk::new(group, version, kind)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeMeta {
    #[serde(default)]
    api_version: Text,
    #[serde(default)]
    kind: Text,
}

/// Objects of kinds that no built-in schema describes. They keep their kind and version, which only their
/// definition knows how to convert.
mod custom {
    use super::*;

    pub(super) fn decode(value: &[u8]) -> Result<NewObject, CodecError> {
        let Node::Map(mut object) = json::decode_any(value).map_err(failed)? else {
            return Err(failed("it is not an object"));
        };
        let parsed: Object = serde_json::from_slice(value).map_err(failed)?;
        let Some(Node::Map(meta)) = object.get_mut("metadata") else {
            return Err(failed("it has no metadata"));
        };
        meta.insert("resourceVersion", "");
        let mut body = Vec::with_capacity(value.len() + 24);
        json::encode_any(&Node::Map(object), &mut body);
        let rv_at = place(&body).ok_or_else(|| failed("it has no metadata"))?;
        let mut labels: Vec<_> = parsed.metadata.labels.into_iter().collect();
        labels.sort();
        let owner = |o: Owner| OwnerRef {
            api_version: o.api_version,
            kind: o.kind,
            name: o.name,
            uid: o.uid,
            controller: o.controller,
            block_owner_deletion: o.block_owner_deletion,
        };
        Ok(NewObject {
            name: parsed.metadata.name,
            namespace: parsed.metadata.namespace,
            uid: parsed.metadata.uid,
            labels: labels.into(),
            owners: parsed.metadata.owner_references.into_iter().map(owner).collect(),
            fields: Box::default(),
            deleting: parsed.metadata.deletion_timestamp.is_some(),
            finalizers: !parsed.metadata.finalizers.is_empty(),
            stamp: 0,
            body: body.into(),
            rv_at,
        })
    }

    pub(super) fn encode(object: &NewObject) -> Result<Vec<u8>, CodecError> {
        let Node::Map(mut tree) = json::decode_any(&object.body).map_err(failed)? else {
            return Err(failed("it is not an object"));
        };
        if let Some(Node::Map(meta)) = tree.get_mut("metadata") {
            meta.remove("resourceVersion");
        }
        let mut out = Vec::with_capacity(object.body.len());
        json::encode_any(&Node::Map(tree), &mut out);
        out.push(b'\n');
        Ok(out)
    }

    /// Where the digits of `metadata.resourceVersion` belong: after the mark, inside the object's own metadata.
    fn place(body: &[u8]) -> Option<u32> {
        let metadata = member(body, 0, "metadata")?;
        let at = member(body, metadata, "resourceVersion")?;
        u32::try_from(at + 1).ok()
    }

    /// Where the value of a member begins, in an object that begins at `at`.
    fn member(json: &[u8], at: usize, name: &str) -> Option<usize> {
        let mut i = at + 1;
        while *json.get(i)? == b'"' {
            let key_end = codec::value_end(json, i)?;
            let value = key_end + 1;
            if json.get(i + 1..key_end - 1)? == name.as_bytes() {
                return Some(value);
            }
            i = codec::value_end(json, value)?;
            if json.get(i) == Some(&b',') {
                i += 1;
            }
        }
        None
    }

    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    struct Metadata {
        name: Text,
        namespace: Text,
        uid: Text,
        labels: HashMap<Text, Text>,
        owner_references: Vec<Owner>,
        deletion_timestamp: Option<String>,
        finalizers: Vec<String>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    struct Owner {
        api_version: Text,
        kind: Text,
        name: Text,
        uid: Text,
        controller: bool,
        block_owner_deletion: bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms() -> StoredForms {
        StoredForms::builtin().unwrap()
    }

    #[test]
    fn paths_are_upstreams() {
        let placements = forms().placements();
        let check = |group: &str, plural: &str, path: &str| {
            let found = placements.iter().find(|p| p.group == group && p.plural == plural);
            assert_eq!(found.map(|p| p.path.as_str()), Some(path), "{group} {plural}");
        };
        check("", "pods", "pods");
        check("", "events", "events");
        check("", "nodes", "minions");
        check("", "services", "services/specs");
        check("", "endpoints", "services/endpoints");
        check("", "replicationcontrollers", "controllers");
        check("networking.k8s.io", "ingresses", "ingress");
        check("", "servicenodeportallocations", "ranges");
        check("apps", "deployments", "deployments");
        check("rbac.authorization.k8s.io", "clusterroles", "clusterroles");
        check("apiregistration.k8s.io", "apiservices", "apiregistration.k8s.io/apiservices");
        check(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "apiextensions.k8s.io/customresourcedefinitions",
        );
        let mut paths: Vec<_> = placements.iter().map(|p| &p.path).collect();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), placements.len(), "every resource has its own");
    }

    #[test]
    fn there_and_back() {
        let forms = forms();
        let check = |group: &str, plural: &str, body: &str, begins: &[u8]| {
            let row = forms.row(group, plural).unwrap();
            let tree = json::decode(forms.schema, row.root, body.as_bytes()).unwrap().tree;
            let object = forms.object(row, tree, 0).unwrap();
            let value = forms.encode(group, plural, b"k", &object).unwrap();
            assert!(value.starts_with(begins), "{value:?}");
            let back = forms.decode(group, plural, b"k", &value).unwrap();
            assert_eq!(back.body, object.body);
            assert_eq!((back.stamp, back.rv_at, &*back.name), (0, object.rv_at, "x"));
            assert_eq!(forms.encode(group, plural, b"k", &back).unwrap(), value, "deterministic");
        };
        check(
            "",
            "configmaps",
            r#"{"metadata":{"name":"x","namespace":"n","resourceVersion":"","uid":"u","creationTimestamp":"2026-01-01T00:00:00Z"},"data":{"a":"1","b":"2"}}"#,
            b"k8s\0\n\x0f\n\x02v1\x12\tConfigMap",
        );
        check(
            "apiregistration.k8s.io",
            "apiservices",
            r#"{"metadata":{"name":"x","resourceVersion":"","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"groupPriorityMinimum":1,"versionPriority":1},"status":{}}"#,
            br#"{"kind":"APIService","apiVersion":"apiregistration.k8s.io/v1","metadata":{"name":"x","#,
        );
    }

    #[test]
    fn values_in_another_form() {
        let body = r#"{"metadata":{"name":"x","namespace":"n","resourceVersion":"","uid":"u"},"data":{"a":"1\n2","b":"yes"}}"#;
        let check = |media: Media, begins: &[u8]| {
            let forms = forms().in_media(media);
            let row = forms.row("", "configmaps").unwrap();
            let tree = json::decode(forms.schema, row.root, body.as_bytes()).unwrap().tree;
            let object = forms.object(row, tree, 0).unwrap();
            let value = forms.encode("", "configmaps", b"k", &object).unwrap();
            assert!(value.starts_with(begins), "{value:?}");
            for reader in [Media::Protobuf, Media::Json, Media::Yaml] {
                let back =
                    super::tests::forms().in_media(reader).decode("", "configmaps", b"k", &value).unwrap();
                assert_eq!(back.body, object.body);
                let stamp = if reader == media { 0 } else { STALE };
                assert_eq!(back.stamp, stamp, "{media:?} read where {reader:?} is written");
            }
        };
        check(Media::Protobuf, b"k8s\0");
        check(Media::Json, br#"{"kind":"ConfigMap","apiVersion":"v1","#);
        check(Media::Yaml, b"apiVersion: v1\n");
        assert_eq!(Media::named("application/json"), Some(Media::Json));
        assert_eq!(Media::named("application/cbor"), None);
    }

    /// Upstream keeps these in the beta version, and this server in the one that is served.
    #[test]
    fn what_etcd_has_in_another_version_gets_the_defaults_of_the_one_that_is_kept() {
        let forms = forms();
        let (group, plural) = ("admissionregistration.k8s.io", "mutatingadmissionpolicies");
        let row = forms.row(group, plural).unwrap();
        let body = br#"{"metadata":{"name":"x","resourceVersion":""},"spec":{"reinvocationPolicy":"Never"}}"#;
        let tree = json::decode(forms.schema, row.root, body).unwrap().tree;
        let object = forms.object(row, tree, 0).unwrap();
        let value = forms.encode(group, plural, b"k", &object).unwrap();
        let begins = b"k8s\0\n?\n$admissionregistration.k8s.io/v1beta1\x12\x17MutatingAdmissionPolicy";
        assert!(value.starts_with(begins), "{value:?}");
        let back = forms.decode(group, plural, b"k", &value).unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&back.body).unwrap();
        assert_eq!(shown["spec"]["failurePolicy"], "Fail");
        assert_eq!(back.stamp, 0);
    }

    /// The value of kube-apiserver at `/registry/ranges/servicenodeports` when the ports 30000 and 30025 are taken.
    #[test]
    fn node_ports_in_use() {
        let mut value = Vec::new();
        let meta = b"\n\x00\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00";
        let mut raw = vec![b'\n', meta.len() as u8];
        raw.extend_from_slice(meta);
        raw.extend_from_slice(b"\x12\x0b30000-32767\x1a\x04\x02\0\0\x01");
        value.extend_from_slice(b"k8s\0\n\x15\n\x02v1\x12\x0fRangeAllocation\x12");
        value.push(raw.len() as u8);
        value.extend_from_slice(&raw);
        value.extend_from_slice(b"\x1a\0\"\0");
        let forms = forms();
        let object = forms.decode("", NODE_PORTS, b"k", &value).unwrap();
        let text = String::from_utf8(object.body.to_vec()).unwrap();
        assert!(text.contains(r#""range":"30000-32767","data":"AgAAAQ==""#), "{text}");
        assert_eq!(forms.encode("", NODE_PORTS, b"k", &object).unwrap(), value);
    }

    #[test]
    fn custom_resources_keep_their_version() {
        let value = br#"{"apiVersion":"example.com/v1beta1","kind":"Widget","metadata":{"labels":{"b":"2","a":"1"},"name":"w","namespace":"n","uid":"u","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"q","controller":true}]},"spec":{"resourceVersion":"7"}}
"#;
        let forms = forms();
        let object = forms.decode("example.com", "widgets", b"k", value).unwrap();
        assert_eq!((&*object.name, &*object.namespace, &*object.uid), ("w", "n", "u"));
        assert_eq!(object.labels[0], ("a".into(), "1".into()));
        assert!(object.owners[0].controller);
        let shown = api::Object { data: object.clone(), revision: 42 }.json(b"");
        let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
        assert_eq!(shown["metadata"]["resourceVersion"], "42");
        assert_eq!(shown["spec"]["resourceVersion"], "7");
        assert_eq!(shown["apiVersion"], "example.com/v1beta1");
        let back = forms.encode("example.com", "widgets", b"k", &object).unwrap();
        let (a, b): (serde_json::Value, serde_json::Value) =
            (serde_json::from_slice(&back).unwrap(), serde_json::from_slice(value).unwrap());
        assert_eq!(a, b);
    }

    #[test]
    fn bad_values() {
        let forms = forms();
        let check = |value: &[u8], expected: &str| {
            let error = forms.decode("", "pods", b"k", value).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(b"", "neither protobuf nor JSON");
        check(b"garbage", "neither protobuf nor JSON");
        check(br#"{"apiVersion":"v7","kind":"Pod"}"#, "v7 Pod is not known");
        check(b"k8s\0\xff\xff", "neither");
        check(b"k8s:enc:aescbc:v1:key1:\x00\xff", "it is encrypted (k8s:enc:aescbc:v1:key1)");
        check(b"k8s:enc:", "it is encrypted");
    }
}
