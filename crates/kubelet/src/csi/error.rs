//! Why a volume of a driver is not there; upstream's texts.

use std::error::Error;

use super::calls::CallError;
use crate::work::Interrupted;

/// A step that fails, with the beginning of the Event's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is attached to the node.
    Attach,
    /// The volume is looked for among those that are attached.
    WaitForAttach,
    /// It is staged.
    MountDevice,
    /// It is published.
    SetUp,
    /// A device is staged.
    SetUpDevice,
    /// A device is published.
    MapPodDevice,
    /// It is made larger before a Pod gets it.
    SetUpExpand,
    /// It is made larger while a Pod has it.
    Expand,
}

impl Step {
    fn text(self) -> &'static str {
        match self {
            Self::Attach => "AttachVolume.Attach failed",
            Self::WaitForAttach => "MountVolume.WaitForAttach failed",
            Self::MountDevice => "MountVolume.MountDevice failed",
            Self::SetUp => "MountVolume.SetUp failed",
            Self::SetUpDevice => "MapVolume.SetUpDevice failed",
            Self::MapPodDevice => "MapVolume.MapPodDevice failed",
            Self::SetUpExpand => "MountVolume.Setup failed while expanding volume",
            Self::Expand => "NodeExpandVolume.NodeExpandVolume failed",
        }
    }
}

/// A volume that a Pod does not get.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CsiError {
    /// It was not attached in time.
    #[error(
        "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[{volume}], failed to process volumes=[]: timed out waiting for the condition"
    )]
    Unattached {
        /// The volume's name in the Pod.
        volume: String,
    },
    /// It cannot be had as it is asked for.
    #[error(
        "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process volumes=[{volume}]: {why}"
    )]
    Unprocessed {
        /// The volume's name in the Pod.
        volume: String,
        /// Why.
        why: String,
    },
    /// A step failed.
    #[error("{} for volume {name:?} : {why}", .step.text())]
    Failed {
        /// Which.
        step: Step,
        /// The volume.
        name: String,
        /// Why.
        why: Why,
    },
}

impl CsiError {
    /// The reason of the Event.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Failed { step: Step::Attach, .. } => "FailedAttachVolume",
            Self::Failed { step: Step::SetUpDevice | Step::MapPodDevice, .. } => "FailedMapVolume",
            Self::Failed { step: Step::Expand, .. } => "VolumeResizeFailed",
            _ => "FailedMount",
        }
    }
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
    /// The driver's answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Something else, in a sentence with the names that upstream's sentences have.
    #[error("kubernetes.io/csi: {text}: {source}")]
    At {
        /// Upstream's text.
        text: &'static str,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A sentence of upstream's.
    #[error("{0}")]
    Text(String),
    /// Files.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The work was cut short.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl Why {
    /// With upstream's text before the cause.
    pub(super) fn at(text: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::At { text, source: source.into() }
    }
}
