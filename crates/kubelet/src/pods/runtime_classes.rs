//! RuntimeClasses of Pods: the handler of the container runtime that each names.

use api::Status;
use client::Client;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;

use super::spec;

/// Why a Pod's handler is not known; upstream's texts.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum RuntimeClassError {
    #[error("RuntimeClass {0:?} not found")]
    Absent(String),
    #[error("Failed to get RuntimeClass {name}: {error}")]
    Unknown { name: String, error: Box<Status> },
}

/// The RuntimeClasses of the API.
#[derive(Clone)]
pub(crate) struct RuntimeClasses(Client);

impl RuntimeClasses {
    /// Asks with a client.
    pub(crate) fn new(client: Client) -> Self {
        Self(client)
    }

    /// The handler that a Pod's class names; "" for a Pod without a class.
    pub(crate) async fn handler(&self, pod: &Pod) -> Result<String, RuntimeClassError> {
        let Some(name) = spec::spec(pod).runtime_class_name.as_deref().filter(|n| !n.is_empty()) else {
            return Ok(String::new());
        };
        match self.0.api::<RuntimeClass>("").get(name).await {
            Ok(class) => Ok(class.handler),
            Err(error) if error.is_not_found() => Err(RuntimeClassError::Absent(name.to_owned())),
            Err(error) => Err(RuntimeClassError::Unknown { name: name.to_owned(), error: Box::new(error) }),
        }
    }
}
