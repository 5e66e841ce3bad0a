//! Volumes as containers mount them.

use std::collections::{BTreeSet, HashMap};
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
        /// Whether its files get the label of each container, where SELinux is on.
        relabel: bool,
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

/// The volumes of a Pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct Volumes {
    /// By their names in the Pod.
    all: HashMap<String, Mounted>,
    /// The groups that the Pod's processes have for them, beside those that the Pod names itself.
    pub(crate) groups: BTreeSet<i64>,
}

impl Volumes {
    /// Takes a volume in.
    pub(crate) fn insert(&mut self, name: &str, volume: Mounted) {
        self.all.insert(name.to_owned(), volume);
    }

    /// That of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&Mounted> {
        self.all.get(name)
    }
}
