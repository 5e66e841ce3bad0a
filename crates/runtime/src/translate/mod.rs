//! A container as CRI describes it, with its image's configuration, as a specification of OCI; pure. Everything is
//! decided as containerd decides it, since Pods are written for that.
//!
//! The shell around it has looked at the machine: volumes are paths without links, devices have their numbers, and the
//! texts of `/etc/passwd` and of a seccomp profile are read.

mod capabilities;
mod cgroups;
mod devices;
mod error;
mod machine;
mod mounts;
mod namespaces;
mod process;
mod resources;
mod sandbox;
mod seccomp;
mod security;
mod signal;
mod spec;
mod user;

pub(crate) use self::cgroups::path as cgroup_path;
pub use self::devices::Device;
pub(crate) use self::devices::is_access;
pub use self::error::TranslateError;
pub use self::machine::Machine;
pub use self::mounts::{Propagation, Volume};
pub(crate) use self::mounts::{check as check_mount, check_shared, clean};
pub use self::namespaces::{Mappings, Namespaces, Place, mappings};
pub(crate) use self::namespaces::{id_mapping, is_own};
pub(crate) use self::process::set as set_variable;
pub use self::resources::{merged, resources};
pub use self::sandbox::{resolv_conf, sysctls};
pub(crate) use self::seccomp::LONGEST as LONGEST_PROFILE;
pub use self::security::{Seccomp, seccomp_of_container};
pub use self::signal::{of_cri, of_image, to_cri};
pub use self::spec::{Container, Translated, spec};
pub use self::user::{Accounts, User};
