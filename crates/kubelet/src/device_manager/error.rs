//! Why a container does not get its devices; upstream's texts.

use super::choose::ChooseError;
use super::state::NoEndpoint;
use crate::checkpoint::RecordError;
use crate::grpc::CallError;
use crate::work::Interrupted;

/// A container that does not get its devices.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    /// There are not enough.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// The plugin is not there.
    #[error(transparent)]
    Endpoint(#[from] NoEndpoint),
    /// The plugin was asked what it prefers, and failed.
    #[error("device plugin GetPreferredAllocation rpc failed with err: {0}")]
    Preferred(CallError),
    /// The plugin failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The plugin answered for no container.
    #[error("no containers return in allocation response")]
    NoAnswer,
    /// It is not kept who has which devices.
    #[error("failed to write checkpoint file \"kubelet_internal_checkpoint\": {0}")]
    Record(#[from] RecordError),
    /// The plugin has been gone for so long that its resource is forgotten.
    #[error("endpoint not found in cache for a registered resource: {0}")]
    Forgotten(String),
    /// The container has none that its plugin could be told of.
    #[error("no devices found allocated in local cache for pod {0}, container {1}, resource {2}")]
    NoneFound(String, String, String),
    /// The plugin failed before the start.
    #[error("device plugin PreStartContainer rpc failed with err: {0}")]
    PreStart(String),
    /// The work was cut short.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// The reason and the text for which a Pod is refused.
pub(crate) fn refusal(error: &DeviceError) -> (&'static str, String) {
    ("UnexpectedAdmissionError", format!("Allocate failed due to {error}, which is unexpected"))
}
