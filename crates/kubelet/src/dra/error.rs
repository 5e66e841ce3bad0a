//! Why a Pod's devices are not there for it, or are not given back; upstream's texts.

use crate::checkpoint::RecordError;
use crate::grpc::CallError;
use crate::work::Interrupted;

/// A Pod's claims that are not prepared, or not given back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DraError {
    /// They are not prepared.
    #[error("prepare dynamic resources: {0}")]
    Prepare(#[source] Why),
    /// They are not given back.
    #[error("unprepare dynamic resources: {0}")]
    Unprepare(#[source] Why),
}

/// The reason.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
    /// A claim is not known yet, or is another Pod's.
    #[error("{0}")]
    Claim(String),
    /// A claim cannot be read.
    #[error("fetch ResourceClaim {0}: {1}")]
    Fetch(String, Box<api::Status>),
    /// A claim is not the Pod's to use: the Pod's name and uid, and the claim's.
    #[error("pod {pod} ({pod_uid}) is not allowed to use ResourceClaim {claim} ({claim_uid})")]
    NotAllowed {
        /// The Pod.
        pod: String,
        /// Its uid.
        pod_uid: String,
        /// The claim.
        claim: String,
        /// Its uid.
        claim_uid: String,
    },
    /// A claim has no devices.
    #[error("ResourceClaim {0}: not allocated")]
    NotAllocated(String),
    /// Another claim of the name has not been given back.
    #[error(
        "old ResourceClaim with same name {0} and different UID {1} still exists (previous pod force-deleted?!)"
    )]
    Old(String, String),
    /// A driver is not there.
    #[error(transparent)]
    Driver(#[from] NoDriver),
    /// A driver fails altogether.
    #[error("{0}: {1}")]
    Call(&'static str, CallError),
    /// A driver answers for a claim that it was not asked for.
    #[error("{0} returned result for unknown claim UID {1}")]
    Unknown(&'static str, String),
    /// A driver fails for one claim.
    #[error("{0} failed for ResourceClaim {1}: {2}")]
    Failed(&'static str, String, String),
    /// A driver left claims out.
    #[error("{0} skipped {1} ResourceClaims")]
    Skipped(&'static str, usize),
    /// The cache does not know a claim.
    #[error("internal error: unable to get claim info for ResourceClaim {0} in namespace {1}")]
    Missing(String, String),
    /// The cache cannot be written.
    #[error("checkpoint ResourceClaim cache: {0}")]
    Record(#[from] RecordError),
    /// The work was cut short.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// A driver that is not registered; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoDriver {
    /// It has no name.
    #[error("DRA driver name is empty")]
    Empty,
    /// None of that name is there.
    #[error("DRA driver {0} is not registered")]
    Unknown(String),
}
