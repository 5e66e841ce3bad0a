//! The parts of a container that come with its devices.

use std::collections::BTreeMap;

use cri::runtime as pb;

/// The parts of a container that come with its devices.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Given {
    /// Environment variables, which those of the container's own take the place of.
    pub(crate) envs: Vec<(String, String)>,
    /// Files and directories.
    pub(crate) mounts: Vec<pb::Mount>,
    /// Devices' files.
    pub(crate) devices: Vec<pb::Device>,
    /// Annotations for the runtime.
    pub(crate) annotations: BTreeMap<String, String>,
    /// Names of devices in CDI's specifications.
    pub(crate) cdi_devices: Vec<String>,
}
