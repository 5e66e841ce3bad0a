//! OCI images on this machine: a client of registries, a store of content and unpacked layers, and the roots of
//! containers made of them.
//!
//! [`Images`] is the whole interface. Its parts, from the outside to the disk:
//! - pure: references, `WWW-Authenticate`, `hosts.toml`, platforms, manifests, a tar entry's meaning;
//! - a registry's client, which gives bytes whose digest it has checked;
//! - the store: content by digest, layers, one record an image, one directory a container's root.
//!
//! It knows neither CRI nor Pods, never looks at a container's process, and mounts nothing at a path: a root is a
//! detached mount, which ends with the last who uses it. Of the workspace it depends on `component` alone.

mod archive;
mod digest;
mod error;
mod image;
mod images;
pub mod layer;
pub mod manifest;
mod mount;
mod platform;
mod pull;
pub mod reference;
pub mod registry;
mod root;
mod settings;
mod store;
mod unpack;

pub use digest::{Algorithm, Digest, InvalidDigest};
pub use error::{ArchiveError, OpenError, PullError, StoreError};
pub use image::{Image, Pulled};
pub use images::Images;
pub use reference::{InvalidReference, Reference, Version};
pub use root::{IdMap, MountError, Prepare, Root};
pub use settings::{Credentials, Limits, Platform, Settings, StoreUsage, Usage};
