//! Adoption and release of the objects that a controller manages, by its selector.

use std::sync::Arc;

use api::Status;
use client::{Api, FromJson, KubeObject, Patch};
use k8s_openapi::api::apps::v1::{ControllerRevision, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::json;

use super::{batch, controller_of, controller_ref, deleting};
use crate::views::PodView;
use objects::Selector;

/// An object that an owner may manage.
pub(crate) trait Claimed: FromJson + Sync {
    /// The object's name.
    fn name(&self) -> &str;
    /// The object's uid.
    fn uid(&self) -> &str;
    /// The reference to the object's managing controller.
    fn controller(&self) -> Option<&OwnerReference>;
    /// Whether the object's deletion has begun.
    fn is_deleting(&self) -> bool;
    /// Whether a selector selects the object.
    fn is_selected_by(&self, selector: &Selector) -> bool;
}

/// Implements [`Claimed`] for types of objects that are cached whole.
macro_rules! claimed {
    ($($type:ty),*) => {$(
        impl Claimed for $type {
            fn name(&self) -> &str {
                self.metadata.name.as_deref().unwrap_or_default()
            }
            fn uid(&self) -> &str {
                self.metadata.uid.as_deref().unwrap_or_default()
            }
            fn controller(&self) -> Option<&OwnerReference> {
                controller_of(&self.metadata)
            }
            fn is_deleting(&self) -> bool {
                deleting(&self.metadata)
            }
            fn is_selected_by(&self, selector: &Selector) -> bool {
                selector.matches(self.metadata.labels.as_ref())
            }
        }
    )*};
}

claimed!(ControllerRevision, ReplicaSet);

impl Claimed for PodView {
    fn name(&self) -> &str {
        &self.meta.name
    }
    fn uid(&self) -> &str {
        &self.meta.uid
    }
    fn controller(&self) -> Option<&OwnerReference> {
        self.meta.controller()
    }
    fn is_deleting(&self) -> bool {
        self.meta.deleting
    }
    fn is_selected_by(&self, selector: &Selector) -> bool {
        Self::is_selected_by(self, selector)
    }
}

/// The decision about one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The owner manages the object already.
    Own,
    /// The object is an orphan that matches.
    Adopt,
    /// The owner manages the object, which matches no more.
    Release,
    /// Another owner manages the object, or it is an orphan that does not match.
    Ignore,
}

/// Decides about one object of the owner's namespace, which matches or not.
pub(crate) fn decide(owner: &ObjectMeta, matches: bool, object: &impl Claimed) -> Claim {
    match object.controller() {
        Some(r) if Some(&r.uid) != owner.uid.as_ref() => Claim::Ignore,
        Some(_) if matches => Claim::Own,
        Some(_) if deleting(owner) => Claim::Ignore,
        Some(_) => Claim::Release,
        None if deleting(owner) || !matches || object.is_deleting() => Claim::Ignore,
        None => Claim::Adopt,
    }
}

/// Claims Pods as [`claim`] does. An adopted Pod gets a finalizer, of which a released one is free.
pub(crate) async fn claim_holding<O: KubeObject, T: Claimed>(
    owner: &O,
    owners: &Api<O>,
    selector: &Selector,
    objects: Vec<Arc<T>>,
    api: &Api<T>,
    finalizer: &str,
) -> Result<Vec<Arc<T>>, Status> {
    let matches = |object: &T| object.is_selected_by(selector);
    claim_with(owner, owners, matches, objects, api, Some(finalizer)).await
}

/// Adopts and releases as decided, and returns the objects that `owner` manages afterwards. Before the first adoption
/// the server is asked whether the owner is still the same and not being deleted: the cache may be late.
pub(crate) async fn claim<O: KubeObject, T: Claimed>(
    owner: &O,
    owners: &Api<O>,
    selector: &Selector,
    objects: Vec<Arc<T>>,
    api: &Api<T>,
) -> Result<Vec<Arc<T>>, Status> {
    let matches = |object: &T| object.is_selected_by(selector);
    claim_with(owner, owners, matches, objects, api, None).await
}

/// The same for an owner that takes the objects for which `matches` is true.
pub(crate) async fn claim_if<O: KubeObject, T: Claimed>(
    owner: &O,
    owners: &Api<O>,
    matches: impl Fn(&T) -> bool,
    objects: Vec<Arc<T>>,
    api: &Api<T>,
) -> Result<Vec<Arc<T>>, Status> {
    claim_with(owner, owners, matches, objects, api, None).await
}

async fn claim_with<O: KubeObject, T: Claimed>(
    owner: &O,
    owners: &Api<O>,
    matches: impl Fn(&T) -> bool,
    objects: Vec<Arc<T>>,
    api: &Api<T>,
    finalizer: Option<&str>,
) -> Result<Vec<Arc<T>>, Status> {
    let mut owned = Vec::with_capacity(objects.len());
    let (mut adopt, mut release) = (Vec::new(), Vec::new());
    for object in objects {
        match decide(owner.metadata(), matches(&object), &*object) {
            Claim::Own => owned.push(object),
            Claim::Adopt => adopt.push(object),
            Claim::Release => release.push(object),
            Claim::Ignore => {}
        }
    }
    let mut result = Ok(());
    if !adopt.is_empty() {
        may_adopt(owner, owners).await?;
        let reference = controller_ref(owner);
        let adopted = batch::all(adopt.iter().map(|object| {
            let reference = json!({
                "apiVersion": reference.api_version, "kind": reference.kind, "name": reference.name,
                "uid": reference.uid, "controller": true, "blockOwnerDeletion": true,
            });
            patch_owners(api, &**object, reference, ("finalizers", finalizer))
        }));
        for (object, answer) in adopt.iter().zip(adopted.await) {
            match answer {
                Ok(()) => owned.push(object.clone()),
                Err(e) if e.is_not_found() => {}
                Err(e) => result = Err(e),
            }
        }
    }
    let released = release.iter().map(|object| {
        let reference = json!({"$patch": "delete", "uid": owner.metadata().uid});
        patch_owners(api, &**object, reference, ("$deleteFromPrimitiveList/finalizers", finalizer))
    });
    for answer in batch::all(released).await {
        match answer {
            Ok(()) => {}
            // The object is gone, or made anew under the same name, or without its references already.
            Err(e) if e.is_not_found() || e.is("Invalid") => {}
            Err(e) => result = Err(e),
        }
    }
    result.map(|()| owned)
}

async fn may_adopt<O: KubeObject>(owner: &O, owners: &Api<O>) -> Result<(), Status> {
    let meta = owner.metadata();
    let name = meta.name.as_deref().unwrap_or_default();
    let fresh = owners.get(name).await?;
    let fresh = fresh.metadata();
    if fresh.uid != meta.uid {
        return Err(super::retry(format_args!("{} {name} was replaced by another of its name", O::KIND)));
    }
    if deleting(fresh) {
        return Err(super::retry(format_args!("{} {name} is being deleted", O::KIND)));
    }
    Ok(())
}

async fn patch_owners<T: Claimed>(
    api: &Api<T>,
    object: &T,
    reference: serde_json::Value,
    finalizers: (&str, Option<&str>),
) -> Result<(), Status> {
    // The uid makes the server refuse if the name belongs to another object by now.
    let mut patch = json!({"metadata": {"uid": object.uid(), "ownerReferences": [reference]}});
    if let (change, Some(finalizer)) = finalizers {
        patch["metadata"][change] = json!([finalizer]);
    }
    api.patch(object.name(), &Patch::Strategic(patch)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tests::view;

    #[test]
    fn decisions() {
        let meta = |value: serde_json::Value| -> ObjectMeta { serde_json::from_value(value).unwrap() };
        let selector = Selector::exactly(&[("a".to_owned(), "b".to_owned())].into());
        let check = |owner_deleting: bool,
                     controller: Option<&str>,
                     matches: bool,
                     gone: bool,
                     want: Claim| {
            let mut owner = meta(json!({"uid": "me"}));
            let time = "2026-01-01T00:00:00Z";
            if owner_deleting {
                owner = meta(json!({"uid": "me", "deletionTimestamp": time}));
            }
            let mut object = json!({"labels": {"a": if matches { "b" } else { "x" }}});
            if let Some(uid) = controller {
                object["ownerReferences"] =
                    json!([{"apiVersion": "v1", "kind": "K", "name": "n", "uid": uid, "controller": true}]);
            }
            if gone {
                object["deletionTimestamp"] = json!(time);
            }
            let said = format!("{owner_deleting} {object}");
            let object = json!({"metadata": object});
            let pod = view(&object);
            assert_eq!(decide(&owner, pod.is_selected_by(&selector), &pod), want, "{said}");
            let set: ReplicaSet = serde_json::from_value(object).unwrap();
            assert_eq!(decide(&owner, set.is_selected_by(&selector), &set), want, "{said}");
        };
        check(false, Some("me"), true, false, Claim::Own);
        check(false, Some("me"), false, false, Claim::Release);
        check(true, Some("me"), false, false, Claim::Ignore);
        check(true, Some("me"), true, false, Claim::Own);
        check(false, Some("other"), true, false, Claim::Ignore);
        check(false, None, true, false, Claim::Adopt);
        check(false, None, false, false, Claim::Ignore);
        check(false, None, true, true, Claim::Ignore);
        check(true, None, true, false, Claim::Ignore);
    }

    /// Upstream's cases of `TestGetPodsForStatefulSetAdopt`, `TestGetPodsForStatefulSetRelease`,
    /// `TestGetReplicaSetsForDeploymentAdoptRelease`, `TestAdoptOrphanRevisions`, `TestControlledHistories`,
    /// `TestDoNotPatchPodWithOtherControlRef` and `TestDoNotAdoptOrCreateIfBeingDeleted`: the controller of an object,
    /// whether it is selected, whether the owner goes, and what becomes of it.
    #[test]
    fn owners_of_objects() {
        let check = |controller: Option<&str>, selected: bool, goes: bool, want: Claim| {
            let time = goes.then_some("2026-01-01T00:00:00Z");
            let owner: ObjectMeta =
                serde_json::from_value(json!({"name": "foo", "uid": "own", "deletionTimestamp": time}))
                    .unwrap();
            let labels = if selected { json!({"foo": "bar"}) } else { json!(null) };
            let reference = controller.map(|uid| {
                json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "foo", "uid": uid, "controller": true}])
            });
            let object = json!({"metadata": {"name": "foo-1", "labels": labels, "ownerReferences": reference},
                "revision": 1});
            let selector = Selector::exactly(&[("foo".to_owned(), "bar".to_owned())].into());
            let pod = view(&object);
            assert_eq!(decide(&owner, pod.is_selected_by(&selector), &pod), want, "{object}");
            let set: ReplicaSet = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(decide(&owner, Claimed::is_selected_by(&set, &selector), &set), want, "{object}");
            let revision: ControllerRevision = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(
                decide(&owner, Claimed::is_selected_by(&revision, &selector), &revision),
                want,
                "{object}"
            );
        };
        check(Some("own"), true, false, Claim::Own);
        check(None, true, false, Claim::Adopt);
        check(None, false, false, Claim::Ignore);
        check(Some("own"), false, false, Claim::Release);
        check(Some("another"), true, false, Claim::Ignore);
        check(None, true, true, Claim::Ignore);
        check(Some("own"), true, true, Claim::Own);
    }
}
