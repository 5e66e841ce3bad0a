//! The history of an object's template: a ControllerRevision for each template that it has had (upstream's
//! `pkg/controller/history`).
//!
//! A revision holds a patch that gives its owner the template back: `kubectl rollout undo` sends it as it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Status;
use client::{Api, Client, FromJson, Index, Informer, KubeObject, ToJson};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use objects::Selector;
use serde_json::{Value, json};

use super::claim::claim;
use super::{controller_of, controller_ref, retry, safe_letters};
use crate::host::Host;

/// The label of a revision with its hash.
pub(crate) const HASH: &str = "controller.kubernetes.io/hash";
/// The label by which Pods name their revision.
pub(crate) const POD_REVISION: &str = "controller-revision-hash";
/// The greatest length of the part of a revision's name that is the owner's.
const PREFIX_LIMIT: usize = 223;
/// The greatest number of names that are tried for one revision.
const NAMES: usize = 100;
const STRATEGY: &str = "$patch";

/// Returns the patch that makes an object have a template.
///
/// # Errors
/// The template has no JSON.
pub(crate) fn data_of(template: &PodTemplateSpec) -> Result<Value, Status> {
    let json = template.to_json()?;
    let mut template = Value::from_json(&json)?;
    if let Some(fields) = template.as_object_mut() {
        fields.insert(STRATEGY.to_owned(), "replace".into());
    }
    Ok(json!({"spec": {"template": template}}))
}

/// Returns the template that a revision holds.
///
/// # Errors
/// It holds none.
pub(crate) fn template_of(revision: &ControllerRevision) -> Result<PodTemplateSpec, Status> {
    let name = revision.metadata.name.as_deref().unwrap_or_default();
    let none = || retry(format_args!("ControllerRevision {name} holds no template"));
    let template = revision.data.as_ref().and_then(|d| d.0.get("spec")?.get("template")).ok_or_else(none)?;
    let mut template = template.clone();
    template.as_object_mut().ok_or_else(none)?.remove(STRATEGY);
    PodTemplateSpec::from_json(&template.to_json()?)
}

/// Whether a revision holds this patch.
///
/// Older versions of upstream wrote fields without a value (`"creationTimestamp": null`), which make no difference.
/// DIFFERENCE: so it is for the revisions of DaemonSets too, and upstream's gate
/// `StatefulSetSemanticRevisionComparison` also leaves out of account what has got a default since.
pub(crate) fn holds(revision: &ControllerRevision, data: &Value) -> bool {
    let Some(held) = &revision.data else { return false };
    held.0 == *data
        || template_of(revision).and_then(|template| data_of(&template)).is_ok_and(|clean| clean == *data)
}

/// Returns the JSON of a patch, byte for byte as Go writes it.
fn encode(data: &Value) -> String {
    let mut text = data.to_string();
    // These stand in strings only.
    for (sign, escaped) in [
        ('<', r"\u003c"),
        ('>', r"\u003e"),
        ('&', r"\u0026"),
        ('\u{2028}', r"\u2028"),
        ('\u{2029}', r"\u2029"),
    ] {
        if text.contains(sign) {
            text = text.replace(sign, escaped);
        }
    }
    text
}

/// Returns the hash of a patch; `collisions` counts the names that others had already.
pub(crate) fn hash(data: &Value, collisions: Option<i32>) -> String {
    let collisions = collisions.map(|n| n.to_string()).unwrap_or_default();
    safe_letters(fnv(encode(data).bytes().chain(collisions.bytes())))
}

/// FNV-1 of 32 bits.
fn fnv(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte))
}

/// Returns the name of a revision of an object.
pub(crate) fn name(owner: &str, hash: &str) -> String {
    let mut end = owner.len().min(PREFIX_LIMIT);
    while !owner.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash}", &owner[..end])
}

/// Makes the revision of an owner's template, with this number, and this hash below a label. It has the owner's
/// annotations, among them the cause of the change that `kubectl rollout history` shows.
pub(crate) fn new<T: KubeObject>(
    owner: &T,
    template: &PodTemplateSpec,
    data: Value,
    number: i64,
    (label, hash): (&str, String),
) -> ControllerRevision {
    let meta = owner.metadata();
    let mut labels: BTreeMap<_, _> =
        template.metadata.as_ref().and_then(|m| m.labels.clone()).unwrap_or_default();
    let name = name(meta.name.as_deref().unwrap_or_default(), &hash);
    labels.insert(label.to_owned(), hash);
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: meta.namespace.clone(),
            labels: Some(labels),
            annotations: meta.annotations.clone(),
            owner_references: Some(vec![controller_ref(owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision: number,
    }
}

/// Sorts revisions by number, age and name.
pub(crate) fn sort(all: &mut [Arc<ControllerRevision>]) {
    let key = |r: &Arc<ControllerRevision>| {
        let meta = &r.metadata;
        (r.revision, meta.creation_timestamp.as_ref().map(|t| t.0), meta.name.clone())
    };
    all.sort_by_cached_key(key);
}

/// Returns the oldest of an object's revisions, which are sorted, beyond those that are in use and `limit` others.
pub(crate) fn surplus(
    all: &[Arc<ControllerRevision>],
    limit: usize,
    used: impl Fn(&str) -> bool,
) -> Vec<Arc<ControllerRevision>> {
    let name = |r: &Arc<ControllerRevision>| r.metadata.name.clone().unwrap_or_default();
    let mut idle: Vec<_> = all.iter().filter(|r| !used(&name(r))).cloned().collect();
    idle.truncate(idle.len().saturating_sub(limit));
    idle
}

/// The revision of an object's present template.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Present {
    /// The newest one is it.
    Newest(Arc<ControllerRevision>),
    /// An older one is it, and becomes the newest by this number.
    Again(Arc<ControllerRevision>, i64),
    /// There is none yet: it gets this number.
    New(i64),
}

/// Finds the revision that holds a patch among an object's revisions, which are sorted.
pub(crate) fn find(all: &[Arc<ControllerRevision>], data: &Value) -> Present {
    let next = all.last().map_or(1, |newest| newest.revision.saturating_add(1));
    let Some(found) = all.iter().rposition(|r| holds(r, data)) else { return Present::New(next) };
    let revision = all[found].clone();
    if found + 1 == all.len() { Present::Newest(revision) } else { Present::Again(revision, next) }
}

/// The ControllerRevisions as a controller reads and writes them.
pub(crate) struct Revisions {
    client: Client,
    all: Informer<ControllerRevision>,
    by_owner: Index<ControllerRevision>,
}

impl Revisions {
    /// Those of a controller's host.
    pub(crate) fn of<K>(host: &Host<K>) -> Self
    where
        K: Clone + Eq + std::hash::Hash + std::fmt::Display + Send + Sync + 'static,
    {
        let all = host.informer::<ControllerRevision>();
        let by_owner = all.index("owner", |revision| {
            let meta = &revision.metadata;
            let owner = controller_of(meta).map(|r| r.uid.as_str().into());
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            vec![owner.unwrap_or_else(|| orphans(namespace).into())]
        });
        Self { client: host.client(), all, by_owner }
    }

    /// The informer of all.
    pub(crate) fn informer(&self) -> &Informer<ControllerRevision> {
        &self.all
    }

    fn api(&self, owner: &ObjectMeta) -> Api<ControllerRevision> {
        self.client.api(owner.namespace.as_deref().unwrap_or_default())
    }

    /// Returns those that an object has or may adopt.
    fn candidates(&self, owner: &ObjectMeta) -> Vec<Arc<ControllerRevision>> {
        let mut all = self.by_owner.get(owner.uid.as_deref().unwrap_or_default());
        all.extend(self.by_owner.get(&orphans(owner.namespace.as_deref().unwrap_or_default())));
        all
    }

    /// Adopts the orphans that an owner selects, and returns all of its revisions, sorted. With `release`, those that
    /// it does not select any more become orphans; without, they are left alone.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn claim<T: KubeObject>(
        &self,
        owner: &T,
        selector: &Selector,
        release: bool,
    ) -> Result<Vec<Arc<ControllerRevision>>, Status> {
        let meta = owner.metadata();
        let mut all = self.candidates(meta);
        all.retain(|r| release || selector.matches(r.metadata.labels.as_ref()));
        let owners = self.client.api::<T>(meta.namespace.as_deref().unwrap_or_default());
        let mut all = claim(owner, &owners, selector, all, &self.api(meta)).await?;
        sort(&mut all);
        Ok(all)
    }

    /// Makes a revision under a name that nobody has; if there is one already that holds the same, returns that.
    /// `collisions` counts the names that others have, as its hash does.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn create(
        &self,
        owner: &ObjectMeta,
        revision: &ControllerRevision,
        collisions: &mut i32,
    ) -> Result<ControllerRevision, Status> {
        let api = self.api(owner);
        let data = revision.data.clone().unwrap_or_default().0;
        for _ in 0..NAMES {
            let mut wanted = revision.clone();
            let hash = hash(&data, Some(*collisions));
            wanted.metadata.name = Some(name(owner.name.as_deref().unwrap_or_default(), &hash));
            match api.create(&wanted).await {
                Err(e) if e.is_already_exists() => {}
                answer => return answer,
            }
            let there = api.get(wanted.metadata.name.as_deref().unwrap_or_default()).await?;
            if there.data.as_ref().is_some_and(|d| d.0 == data) {
                return Ok(there);
            }
            *collisions = collisions.saturating_add(1);
        }
        Err(retry("too many revisions have names that another one needs"))
    }

    /// Gives a revision another number.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn renumber(
        &self,
        revision: &ControllerRevision,
        number: i64,
    ) -> Result<ControllerRevision, Status> {
        self.write(revision, |r| r.revision = number).await
    }

    /// Changes a revision; once more on the newest one if another write came between.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn write(
        &self,
        revision: &ControllerRevision,
        change: impl Fn(&mut ControllerRevision),
    ) -> Result<ControllerRevision, Status> {
        let api = self.api(&revision.metadata);
        let mut changed = revision.clone();
        change(&mut changed);
        match api.update(&changed).await {
            Err(e) if e.is_conflict() => {
                let mut fresh = api.get(revision.metadata.name.as_deref().unwrap_or_default()).await?;
                change(&mut fresh);
                api.update(&fresh).await
            }
            answer => answer,
        }
    }

    /// Finds the revision of a name in an owner's namespace at the server.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn get(&self, owner: &ObjectMeta, name: &str) -> Result<ControllerRevision, Status> {
        self.api(owner).get(name).await
    }

    /// Makes a revision under the name that it has.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn create_as_it_is(
        &self,
        revision: &ControllerRevision,
    ) -> Result<ControllerRevision, Status> {
        self.api(&revision.metadata).create(revision).await
    }

    /// Deletes revisions; one that is gone already is no error.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn delete(&self, all: &[Arc<ControllerRevision>]) -> Result<(), Status> {
        for revision in all {
            let meta = &revision.metadata;
            match self.api(meta).delete(meta.name.as_deref().unwrap_or_default(), None).await {
                Err(e) if !e.is_not_found() => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The value under which a namespace's orphans stand beside the uids of owners.
fn orphans(namespace: &str) -> String {
    format!("orphan/{namespace}")
}

#[cfg(test)]
#[path = "revisions_tests.rs"]
mod tests;
