//! Objects of definitions in the version that is asked for.
//!
//! An object of a definition is stored with its kind and version and a stamp of the schema under which that was done.
//! Where the stamp is an entry's own, its bytes are answered as they are. Otherwise the object is decoded by its own
//! version, gets the defaults of now, and is converted once: many at once, since a webhook may be asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::schema::Gvk;
use api::{Node, Object, Status, Struct, Text};
use serde::Deserialize;
use tokio::time::Instant;

use super::conversion::Conversion;
use super::custom_version::CustomVersion;
use super::resource::ResourceEntry;
use super::{Breath, Catalog};
use crate::codec;

/// The kind and version that a stored object of a definition names.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeMeta {
    #[serde(default)]
    api_version: String,
}

/// The version in which an object of a definition is stored.
fn stored_version(object: &Object) -> Result<Text, Status> {
    let meta: TypeMeta = serde_json::from_slice(&object.data.body)
        .map_err(|e| Status::internal(format!("a stored object cannot be read: {e}")))?;
    Ok(meta.api_version.rsplit('/').next().unwrap_or_default().into())
}

impl ResourceEntry {
    /// Whether an object's bytes are those of this version.
    pub(crate) fn is_current(&self, object: &Object) -> bool {
        self.custom.as_ref().is_none_or(|custom| object.data.stamp == custom.stamp)
    }
}

impl Catalog {
    /// The objects as they are in the version of a resource: itself for each that is stored so. `kind` names the
    /// objects in errors.
    pub(crate) async fn current_objects(
        &self,
        resource: &ResourceEntry,
        objects: &[Arc<Object>],
        kind: &str,
        deadline: Option<Instant>,
    ) -> Result<Vec<Arc<Object>>, Status> {
        self.brought(resource, objects, kind, deadline, true).await
    }

    /// Brings objects into the version of a resource. Where `may_be_kept`, one that was converted lately is taken.
    async fn brought(
        &self,
        resource: &ResourceEntry,
        objects: &[Arc<Object>],
        kind: &str,
        deadline: Option<Instant>,
        may_be_kept: bool,
    ) -> Result<Vec<Arc<Object>>, Status> {
        let mut out = objects.to_vec();
        // The others, by the version in which they are.
        let mut stale: BTreeMap<Text, (Vec<usize>, Vec<Struct>)> = BTreeMap::new();
        let mut breath = Breath::new(deadline);
        for (n, object) in objects.iter().enumerate() {
            if resource.is_current(object) {
                continue;
            }
            if may_be_kept && let Some(made) = self.converted.get(resource, object) {
                out[n] = made;
            } else {
                breath.after(object.data.body.len()).await?;
                let version = stored_version(object)?;
                let tree = self.custom_tree(resource, &version, object)?;
                let of_version = stale.entry(version).or_default();
                of_version.0.push(n);
                of_version.1.push(tree);
            }
        }
        for (version, (places, trees)) in stale {
            let from = Gvk { version, ..resource.kind.clone() };
            let conversion =
                Conversion { schema: self.schema(), resource, from: &from, to: &resource.kind, deadline };
            let trees = conversion.all(trees, kind).get().await?;
            let (mut from, mut made) = (Vec::with_capacity(places.len()), Vec::with_capacity(places.len()));
            for (place, tree) in places.into_iter().zip(trees) {
                breath.after(objects[place].data.body.len()).await?;
                out[place] = Arc::new(self.custom_object(resource, tree, objects[place].revision)?);
                from.push(Arc::clone(&objects[place]));
                made.push(Arc::clone(&out[place]));
            }
            self.converted.keep(resource, &from, &made);
        }
        Ok(out)
    }

    /// An object in the version of a resource.
    pub(crate) async fn current_object(
        &self,
        resource: &ResourceEntry,
        object: &Arc<Object>,
        deadline: Option<Instant>,
    ) -> Result<Arc<Object>, Status> {
        if resource.is_current(object) {
            return Ok(Arc::clone(object));
        }
        let kind = &resource.kind.kind;
        // As upstream, a read of one object asks anew: the webhook may answer otherwise by now.
        let object = std::slice::from_ref(object);
        let mut all = self.brought(resource, object, kind, deadline, false).await?;
        all.pop().ok_or_else(Status::no_such_resource)
    }

    /// The tree of an object of a definition in its own version, with the defaults of now.
    fn custom_tree(
        &self,
        resource: &ResourceEntry,
        version: &str,
        object: &Object,
    ) -> Result<Struct, Status> {
        let from = Gvk { version: version.into(), ..resource.kind.clone() };
        let root = self.schema().kind(&from).ok_or_else(|| {
            Status::internal(format!(
                "request to convert CR from an invalid group/version: {}",
                from.api_version()
            ))
        })?;
        let mut tree = codec::stored(self.schema(), root, object)?;
        if let Some(rest) = &self.schema().st(root).rest
            && let Some(values) = tree.get_mut(rest.field).and_then(Node::as_map_mut)
        {
            rest.values.drop_nulls(values);
            rest.values.apply_defaults(values);
        }
        if let Some(at) = resource.meta_at
            && let Some(mut meta) = self.meta.of_mut(&mut tree, at)
        {
            meta.set_resource_version(&object.revision.to_string());
        }
        Ok(tree)
    }

    /// The object of a tree in the version of a resource.
    fn custom_object(&self, resource: &ResourceEntry, tree: Struct, revision: u64) -> Result<Object, Status> {
        let (custom, stored) = (custom_of(resource)?, resource.stored()?);
        let data =
            self.meta.at_rest(self.schema(), &*resource.strategy, stored.meta_at, tree, custom.stamp)?;
        Ok(Object { data, revision })
    }

    /// The object that the store keeps for a tree in the version of a resource.
    pub(crate) async fn custom_at_rest(
        &self,
        resource: &ResourceEntry,
        tree: Struct,
        deadline: Option<Instant>,
    ) -> Result<api::NewObject, Status> {
        let custom = custom_of(resource)?;
        let conversion = Conversion {
            schema: self.schema(),
            resource,
            from: &resource.kind,
            to: &custom.storage,
            deadline,
        };
        let tree = conversion.one(tree).get().await?;
        let at = resource.stored()?.meta_at;
        self.meta.at_rest(self.schema(), &*custom.storage_strategy, at, tree, custom.storage_stamp)
    }
}

fn custom_of(resource: &ResourceEntry) -> Result<&CustomVersion, Status> {
    resource.custom.as_deref().ok_or_else(Status::no_such_resource)
}
