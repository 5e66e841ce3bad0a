//! Helpers that several controllers share.

pub(crate) mod addresses;
pub(crate) mod batch;
pub(crate) mod claim;
pub(crate) mod conditions;
pub(crate) mod counters;
pub(crate) mod expectations;
pub(crate) mod finalizers;
pub(crate) mod fnv;
pub(crate) mod labelled;
pub(crate) mod latest;
pub(crate) mod owners;
pub(crate) mod pace;
pub(crate) mod pod_control;
pub(crate) mod pod_owners;
pub(crate) mod pods;
pub(crate) mod printed;
pub(crate) mod revisions;
pub(crate) mod safe_letters;
pub(crate) mod selecting;
pub(crate) mod share;
pub(crate) mod terms;

use std::future::Future;
use std::time::Duration;

use api::Status;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
pub(crate) use owners::{controller_of, controller_ref};
pub(crate) use safe_letters::safe_letters;

/// Whether a request failed because the object's namespace is being deleted: no object can be made there.
pub(crate) fn namespace_is_terminating(error: &Status) -> bool {
    error.details.as_ref().is_some_and(|d| d.causes.iter().any(|c| c.reason == "NamespaceTerminating"))
}

/// Makes an error that only leads to another attempt. Events may tell of it, so that its text is the reason alone, as
/// upstream's.
pub(crate) fn retry(why: impl std::fmt::Display) -> Status {
    Status::failure(500, "InternalError", why.to_string())
}

/// The time that a request may take while other work waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for the answer to a request, for a limited time.
pub(crate) async fn within<T>(request: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => answer,
        Err(_) => Err(retry("the API server did not answer in time")),
    }
}

/// Whether the deletion of an object has begun.
pub(crate) fn deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}
