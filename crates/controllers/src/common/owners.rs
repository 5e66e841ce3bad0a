//! Owners of objects.

use std::sync::Arc;

use client::{Informer, Key, KubeObject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// Returns the reference to an object's managing controller.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|r| r.controller == Some(true))
}

/// Makes the reference to `owner` for an object that it manages.
pub(crate) fn controller_ref<T: KubeObject>(owner: &T) -> OwnerReference {
    let meta = owner.metadata();
    OwnerReference {
        api_version: T::API_VERSION.to_owned(),
        kind: T::KIND.to_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Returns the object that a reference to a managing controller means, if it is of this type and is cached: of the same
/// uid, not only of the same name. `namespace` is that of the managed object.
pub(crate) fn resolve<T: KubeObject>(
    owners: &Informer<T>,
    namespace: &str,
    controller: Option<&OwnerReference>,
) -> Option<(Key, Arc<T>)> {
    let reference = controller.filter(|r| r.kind == T::KIND)?;
    let key = Key::new(namespace, &reference.name);
    let owner = owners.get_key(&key)?;
    (owner.metadata().uid.as_ref() == Some(&reference.uid)).then_some((key, owner))
}
