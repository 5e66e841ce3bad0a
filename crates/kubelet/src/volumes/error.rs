//! The reasons for which a volume is not there.

use std::fmt;
use std::io;

use super::claimed::ClaimError;
use super::disks::DiskError;
use super::memory::PagesError;
use super::nested::OutsideError;
use super::nfs::NfsError;
use super::payload::PayloadError;
use crate::csi::CsiError;
use crate::work::Interrupted;

/// A volume that could not be made, and why; upstream's text of the Event.
#[derive(Debug, thiserror::Error)]
pub(crate) struct VolumeError {
    /// Name of the volume.
    pub(crate) volume: String,
    /// Why it could not be made.
    pub(crate) error: MountError,
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            MountError::Claim(error) => error.fmt(f),
            MountError::Csi(error) => error.fmt(f),
            MountError::Disk(error) => error.fmt(f),
            error => write!(f, "MountVolume.SetUp failed for volume {:?} : {error}", self.volume),
        }
    }
}

impl VolumeError {
    /// The reason of the Event.
    pub(crate) fn reason(&self) -> &'static str {
        match &self.error {
            MountError::Claim(error) => error.reason(),
            MountError::Csi(error) => error.reason(),
            MountError::Disk(error) => error.reason(),
            _ => "FailedMount",
        }
    }
}

/// Why a volume could not be made; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Data(#[from] std::ffi::NulError),
    #[error(transparent)]
    Files(#[from] PayloadError),
    #[error("timed out waiting for the condition")]
    TimedOut,
    #[error("no volume plugin matched")]
    NoPlugin,
    #[error("unknown storage medium {0:?}")]
    Medium(String),
    #[error(transparent)]
    Pages(#[from] PagesError),
    #[error(transparent)]
    Outside(#[from] OutsideError),
    #[error("hostPath type check failed: {path} is not {expected}")]
    HostPath { path: String, expected: &'static str },
    #[error("{0} is an invalid volume type")]
    HostPathType(String),
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Csi(#[from] CsiError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("{0}")]
    Source(String),
    #[error(transparent)]
    Nfs(#[from] NfsError),
}

impl From<Interrupted> for MountError {
    fn from(error: Interrupted) -> Self {
        Self::Io(error.into())
    }
}
