//! Records of sandboxes and containers: what CRI said of them, and how far they have come. The state of a process now
//! is not here but with its shim, which outlives this process.

use cri::runtime as pb;

use super::disk::Record;

/// How far a sandbox has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum SandboxPhase {
    /// It is being made. A process that dies leaves what the next one takes down.
    Starting = 0,
    /// Its namespaces are there, and containers may be made in it.
    Ready = 1,
    /// Its containers have ended and its network is gone, or is going.
    Stopped = 2,
    /// It is being removed.
    Removing = 3,
}

/// A sandbox.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SandboxRecord {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) config: Option<pb::PodSandboxConfig>,
    #[prost(string, tag = "3")]
    pub(crate) handler: String,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub(crate) created_at: i64,
    #[prost(enumeration = "SandboxPhase", tag = "5")]
    pub(crate) phase: i32,
    /// Its addresses, the primary one first.
    #[prost(string, repeated, tag = "6")]
    pub(crate) ips: Vec<String>,
    /// Whether it may have a network that must be taken from it.
    #[prost(bool, tag = "7")]
    pub(crate) attached: bool,
    /// SELinux's categories.
    #[prost(string, tag = "8")]
    pub(crate) categories: String,
}

/// How far a container has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum ContainerPhase {
    /// It is being made. A process that dies leaves what the next one takes down.
    Creating = 0,
    /// It is made.
    Created = 1,
    /// It was told to start.
    Started = 2,
    /// It has ended, or never could start.
    Exited = 3,
    /// It is being removed.
    Removing = 4,
}

/// A container.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerRecord {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) sandbox: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) config: Option<pb::ContainerConfig>,
    /// The image's id.
    #[prost(string, tag = "4")]
    pub(crate) image: String,
    #[prost(enumeration = "ContainerPhase", tag = "5")]
    pub(crate) phase: i32,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "6")]
    pub(crate) created_at: i64,
    #[prost(int64, tag = "7")]
    pub(crate) started_at: i64,
    #[prost(int64, tag = "8")]
    pub(crate) finished_at: i64,
    #[prost(int32, tag = "9")]
    pub(crate) exit_code: i32,
    /// The reason of its end where the exit code does not tell.
    #[prost(string, tag = "10")]
    pub(crate) reason: String,
    #[prost(string, tag = "11")]
    pub(crate) message: String,
    /// Its limits of now.
    #[prost(message, optional, tag = "12")]
    pub(crate) resources: Option<pb::LinuxContainerResources>,
    #[prost(message, optional, tag = "13")]
    pub(crate) user: Option<pb::LinuxContainerUser>,
    /// The signal that stops it.
    #[prost(int32, tag = "14")]
    pub(crate) stop_signal: i32,
    /// The whole path of its log; empty for none.
    #[prost(string, tag = "15")]
    pub(crate) log_path: String,
    /// The keys of the read-only views of images that are its volumes.
    #[prost(string, repeated, tag = "16")]
    pub(crate) views: Vec<String>,
    /// The fault of a container that was made without its process, which its start tells; empty for none.
    #[prost(string, tag = "17")]
    pub(crate) fault: String,
}

impl Record for SandboxRecord {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Record for ContainerRecord {
    fn id(&self) -> &str {
        &self.id
    }
}

impl SandboxRecord {
    /// The name that no two sandboxes have.
    pub(crate) fn name(&self) -> String {
        sandbox_name(&self.metadata())
    }
    pub(crate) fn metadata(&self) -> pb::PodSandboxMetadata {
        self.config.as_ref().and_then(|config| config.metadata.clone()).unwrap_or_default()
    }
    /// Its security settings.
    pub(crate) fn context(&self) -> pb::LinuxSandboxSecurityContext {
        let linux = self.config.as_ref().and_then(|config| config.linux.as_ref());
        linux.and_then(|linux| linux.security_context.clone()).unwrap_or_default()
    }
    /// Its namespaces.
    pub(crate) fn namespaces(&self) -> pb::NamespaceOption {
        self.context().namespace_options.unwrap_or_default()
    }
}

impl ContainerRecord {
    /// The name that no two containers have.
    pub(crate) fn name(&self, of: &pb::PodSandboxMetadata) -> String {
        container_name(&self.metadata(), of)
    }
    pub(crate) fn metadata(&self) -> pb::ContainerMetadata {
        self.config.as_ref().and_then(|config| config.metadata.clone()).unwrap_or_default()
    }
}

/// The name of a sandbox.
pub(crate) fn sandbox_name(of: &pb::PodSandboxMetadata) -> String {
    format!("{}_{}_{}_{}", of.name, of.namespace, of.uid, of.attempt)
}

/// The name of a container.
pub(crate) fn container_name(container: &pb::ContainerMetadata, of: &pb::PodSandboxMetadata) -> String {
    format!("{}_{}_{}_{}_{}", container.name, of.name, of.namespace, of.uid, container.attempt)
}
