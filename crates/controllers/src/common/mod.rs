//! What several controllers read the same way.

pub(crate) mod batch;
pub(crate) mod cidr;
pub(crate) mod claim;
pub(crate) mod expectations;
pub(crate) mod pods;
pub(crate) mod selector;
pub(crate) mod share;
pub(crate) mod terms;

use std::future::Future;
use std::time::Duration;

use api::Status;
use client::KubeObject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// The reference that an object's managing controller left in it.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|r| r.controller == Some(true))
}

/// The reference by which `owner` manages what it makes.
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

/// Whether a request failed because the object's namespace is being deleted: whatever is made there fails.
pub(crate) fn namespace_is_terminating(error: &Status) -> bool {
    error.details.as_ref().is_some_and(|d| d.causes.iter().any(|c| c.reason == "NamespaceTerminating"))
}

/// An error that only leads to another attempt.
pub(crate) fn retry(why: impl std::fmt::Display) -> Status {
    Status::internal(why)
}

/// How long a request may take where others would wait for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for the answer to a request, but not for ever.
pub(crate) async fn within<T>(request: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => answer,
        Err(_) => Err(retry("the API server did not answer in time")),
    }
}

/// Whether deletion has begun.
pub(crate) fn deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}
