//! The reasons for which no specification can be made.

use std::path::PathBuf;

use oci_spec::OciSpecError;

/// A configuration from which no container can be made.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// Neither the configuration nor the image names a command.
    #[error("no command specified")]
    NoCommand,
    /// A group without a user.
    #[error("user group {0} is specified without user")]
    GroupWithoutUser(i64),
    /// An id that the kernel has not.
    #[error("{0} is no id of a user or group")]
    Id(i64),
    /// A user that the image does not know.
    #[error("no user {0:?} in the image's /etc/passwd")]
    NoUser(String),
    /// A group that the image does not know.
    #[error("no group {0:?} in the image's /etc/group")]
    NoGroup(String),
    /// A capability that nobody knows.
    #[error("unknown capability {0:?}")]
    Capability(String),
    /// A privileged container in a Pod that is not.
    #[error("no privileged container allowed in sandbox")]
    Privileged,
    /// A volume that is read-only with everything below it, but not read-only itself.
    #[error("recursive read-only mount conflicts with RW mount (hostPath={0:?})")]
    RecursiveWritable(String),
    /// A volume that is read-only with everything below it, and takes mounts of the host.
    #[error("recursive read-only mount needs private propagation (hostPath={0:?})")]
    RecursivePropagation(String),
    /// The mount of a volume that is to be propagated is not shared.
    #[error("path {path:?} is mounted on {at:?} but it is not a shared{} mount", if *.slave { " or slave" } else { "" })]
    NotShared {
        /// The volume.
        path: PathBuf,
        /// The mount point that it lies on.
        at: PathBuf,
        /// Whether a slave would do.
        slave: bool,
    },
    /// A path that is not absolute.
    #[error("{what} {path:?} is not an absolute path")]
    Relative {
        /// The role of the path.
        what: &'static str,
        /// The path.
        path: String,
    },
    /// A namespace mode that has no meaning there.
    #[error("{mode} is no mode of the {namespace} namespace")]
    Namespace {
        /// The namespace.
        namespace: &'static str,
        /// The mode.
        mode: String,
    },
    /// Mappings of a user namespace that make no sense.
    #[error("user namespace configuration: {0}")]
    UserNamespace(&'static str),
    /// A container's user namespace is not the Pod's.
    #[error("user namespace config for sandbox is different from container")]
    OtherUserNamespace,
    /// Sysctls that the Pod's namespaces do not hold.
    #[error("sysctl {0:?} is not allowed: {1}")]
    Sysctl(String, &'static str),
    /// Huge pages on a machine without their controller.
    #[error("huge pages limits are specified but hugetlb cgroup controller is missing")]
    Hugepages,
    /// Values of cgroup v2 on a machine with v1.
    #[error("unified resources are specified but the machine has cgroup v1")]
    Unified,
    /// A parent of cgroups that is systemd's.
    #[error("cgroup parent {0:?} is a slice of systemd, but this runtime's cgroup driver is cgroupfs")]
    Slice(String),
    /// A place of a cgroup whose parent is no slice of systemd's; runc's words, which people look for.
    #[error(
        "expected cgroupsPath to be of format \"slice:prefix:name\" for systemd cgroups, got {0:?} instead: this runtime's cgroup driver is systemd"
    )]
    NoSlice(PathBuf),
    /// A slice with a name that systemd does not take.
    #[error(transparent)]
    InvalidSlice(#[from] systemd::InvalidSlice),
    /// A profile that the file's content is not.
    #[error("seccomp profile {path:?} cannot be used")]
    Seccomp {
        /// The profile's file.
        path: String,
        /// The fault.
        #[source]
        source: std::io::Error,
    },
    /// A security profile that this machine cannot honour.
    #[error("{0}")]
    Profile(String),
    /// A device that is not there.
    #[error("device {path:?} cannot be used")]
    Device {
        /// The path on the host.
        path: String,
        /// The fault.
        #[source]
        source: std::io::Error,
    },
    /// A device of another program's description that is not there.
    #[error("CDI device injection failed: {0}")]
    Cdi(String),
    /// A part of the specification that has no valid form.
    #[error("a part of the specification cannot be made")]
    Spec(#[from] OciSpecError),
}
