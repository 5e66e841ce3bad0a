//! The settings of a store, and what a caller gives and gets of plain values.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of [`crate::Images::open`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// The store's directory, made if it is not there. It should be on a file system that overlayfs takes as an upper
    /// layer (ext4, xfs, btrfs, tmpfs; not overlayfs).
    pub root: PathBuf,
    /// Directories with a directory for each registry, as containerd's `config_path` names them
    /// (`HOST_PORT_/hosts.toml`, `_default/hosts.toml`); the first that knows a registry counts.
    pub registries: Vec<PathBuf>,
    /// The platform to choose from an index; this machine's by default.
    pub platform: Platform,
    /// The bounds of a pull and an import.
    pub limits: Limits,
    /// Whether a layer's archive is removed once it is unpacked, as containerd's `discard_unpacked_layers`: less disk,
    /// but the image cannot be exported.
    pub discard_archives: bool,
    /// The `User-Agent` of requests to registries.
    pub user_agent: String,
}

impl Settings {
    /// The defaults, with a store in `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            registries: Vec::new(),
            platform: Platform::host(),
            limits: Limits::default(),
            discard_archives: false,
            user_agent: concat!("ferrokube/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// The bounds of a pull and an import. Bounds that are not for choice: a manifest or index has at most 4 MiB, an
/// image's configuration 8 MiB, an image 128 layers, an index 4 levels.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How many layers of one pull are downloaded at once (containerd's default: 3).
    pub layers_at_once: usize,
    /// How many layers of all pulls are downloaded and unpacked at once.
    pub layers_in_all: usize,
    /// How long a registry may send nothing before its connection is given up and tried again.
    pub silence: Duration,
    /// How often a request is tried before its pull fails.
    pub attempts: u32,
    /// The share of the file system, in percent of bytes and of inodes, that stays free: a layer that would take more
    /// is given up and removed.
    pub reserve_percent: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            layers_at_once: 3,
            layers_in_all: 6,
            silence: Duration::from_secs(30),
            attempts: 6,
            reserve_percent: 2,
        }
    }
}

/// A platform, in Go's words: `linux`, `amd64`, and a variant such as `v8`, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// The operating system.
    pub os: String,
    /// The architecture.
    pub architecture: String,
    /// The architecture's variant; empty if there is none.
    pub variant: String,
}

/// The credentials of one pull, as CRI's `AuthConfig` has them. Empty fields are absent; all empty is anonymous.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// A user's name, with `password`.
    pub username: String,
    /// The user's password.
    pub password: String,
    /// Base64 of `username:password`, used where `username` is empty.
    pub auth: String,
    /// A refresh token, which the registry's token server exchanges for an access token.
    pub identity_token: String,
    /// A bearer token that is sent to the registry as it is.
    pub registry_token: String,
    /// The registry that these are for; they are not sent to another one. Empty: the reference's.
    pub server_address: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Credentials");
        shown.field("username", &self.username).field("server_address", &self.server_address);
        shown.finish_non_exhaustive()
    }
}

/// The disk that a root's writable layer takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The allocated bytes.
    pub bytes: u64,
    /// The inodes.
    pub inodes: u64,
}

/// The disk that the whole store takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUsage {
    /// The store's directory.
    pub path: PathBuf,
    /// Content and layers: all but the writable layers.
    pub images: Usage,
    /// The writable layers of all roots.
    pub roots: Usage,
}
