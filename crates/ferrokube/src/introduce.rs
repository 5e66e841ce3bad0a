//! Makes the objects that the cluster's own parts need.

use api::Status;
use client::{Client, KubeObject};
use serde_json::Value;

/// Creates an object; one that is there is left as it is, since an administrator may have changed it.
pub(crate) async fn create<T: KubeObject>(
    admin: &Client,
    namespace: &str,
    object: Value,
) -> Result<(), Status> {
    let object = T::from_json(object.to_string().as_bytes())?;
    match admin.api::<T>(namespace).create(&object).await {
        Err(status) if !status.is_already_exists() => Err(status),
        _ => Ok(()),
    }
}
