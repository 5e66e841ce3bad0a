//! Volumes as containers mount them.

use std::collections::HashMap;
use std::path::PathBuf;

/// A volume that containers can mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mounted {
    /// A path of the node.
    Path {
        /// Where.
        path: PathBuf,
        /// Whether containers may only read it.
        read_only: bool,
    },
    /// A device of the node.
    Device {
        /// Where it is.
        path: PathBuf,
        /// Whether containers may only read it.
        read_only: bool,
    },
    /// An image that the runtime mounts.
    Image {
        /// Its reference.
        reference: String,
        /// How it is pulled.
        pull_policy: Option<String>,
    },
}

/// Volumes by name.
pub(crate) type Volumes = HashMap<String, Mounted>;
