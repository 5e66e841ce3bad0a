//! Why a volume is not there; upstream's texts.

use super::fc::FcError;
use super::format::{FormatError, ResizeError};
use super::iscsi::IscsiError;
use crate::work::Interrupted;
use plugins::flex::CallError;

/// A step that fails, with the beginning of the Event's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The parts that are needed are looked for.
    Begin,
    /// The volume is attached to the node by the kubelet itself.
    Attach,
    /// The device is looked for.
    WaitForAttach,
    /// It is mounted for the node.
    MountDevice,
    /// It is mounted for a Pod.
    SetUp,
    /// A device is looked for that stays one.
    MapWaitForAttach,
    /// It is given to a Pod.
    MapPodDevice,
    /// It is made larger before a Pod gets it.
    SetUpExpand,
    /// It is made larger while a Pod has it.
    Expand,
}

impl Step {
    fn text(self) -> &'static str {
        match self {
            Self::Begin => "MountVolume.NewMounter initialization failed",
            Self::Attach => "AttachVolume.Attach failed",
            Self::WaitForAttach => "MountVolume.WaitForAttach failed",
            Self::MountDevice => "MountVolume.MountDevice failed",
            Self::SetUp => "MountVolume.SetUp failed",
            Self::MapWaitForAttach => "MapVolume.WaitForAttach failed",
            Self::SetUpExpand => "MountVolume.Setup failed while expanding volume",
            Self::Expand => "NodeExpandVolume.NodeExpandVolume failed",
            Self::MapPodDevice => "MapVolume.MapPodDevice failed",
        }
    }
}

/// A volume that a Pod does not get.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    /// It was not attached in time.
    #[error(
        "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[{volume}], failed to process volumes=[]: timed out waiting for the condition{hint}"
    )]
    Unattached {
        /// The volume's name in the Pod.
        volume: String,
        /// A remedy.
        hint: String,
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

impl DiskError {
    /// The reason of the Event.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Failed { step: Step::Attach, .. } => "FailedAttachVolume",
            Self::Failed { step: Step::Expand, .. } => "VolumeResizeFailed",
            Self::Failed { step: Step::MapWaitForAttach | Step::MapPodDevice, .. } => "FailedMapVolume",
            _ => "FailedMount",
        }
    }
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Iscsi(Box<IscsiError>),
    #[error(transparent)]
    Fc(Box<FcError>),
    #[error(transparent)]
    Format(Box<FormatError>),
    #[error(transparent)]
    Resize(Box<ResizeError>),
    #[error(transparent)]
    Call(Box<CallError>),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A sentence.
    #[error("{0}")]
    Text(String),
}

impl From<IscsiError> for Why {
    fn from(error: IscsiError) -> Self {
        Self::Iscsi(Box::new(error))
    }
}

impl From<FormatError> for Why {
    fn from(error: FormatError) -> Self {
        Self::Format(Box::new(error))
    }
}

impl From<ResizeError> for Why {
    fn from(error: ResizeError) -> Self {
        Self::Resize(Box::new(error))
    }
}

impl From<FcError> for Why {
    fn from(error: FcError) -> Self {
        Self::Fc(Box::new(error))
    }
}

impl From<CallError> for Why {
    fn from(error: CallError) -> Self {
        Self::Call(Box::new(error))
    }
}
