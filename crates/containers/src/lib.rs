//! Linux containers: sandboxes (the namespaces of a Pod, held by one tiny shim), containers in them, their processes,
//! logs, terminals, cgroups and exit codes.
//!
//! The crate knows neither CRI nor Kubernetes; a container is described by the OCI runtime specification. It uses
//! `component` and `systemd` alone, executes nothing but its own shim and programs that a description names (hooks, another OCI
//! runtime), and makes no decision in the shim: a container's set-up is a plan, worked out purely from the
//! specification, whose steps the shim carries out.
//!
//! # Interface
//!
//! ```text
//! Sandboxes::open(Settings { state, cgroups }, &Shutdown) -> Result<Sandboxes>
//!   async start(SandboxSpec) -> Result<Sandbox>          the shim runs, namespaces are there, /proc/PID/ns/net too
//!   async adopt(&str) -> Result<Sandbox>                 after a restart; async adopt_all() -> Vec<(String, Result<Sandbox>)>
//!   list() -> Vec<Sandbox>, get(&str) -> Option<Sandbox>, events() -> broadcast::Receiver<Event>
//!   async remove(&str)                                   adopted or not: containers, cgroups and records go, too
//! Sandbox (cheap to clone)
//!   id(), spec() -> &SandboxSpec, created_at(), alive() -> bool, shim_pid(), netns() -> PathBuf, open_netns() -> Result<OwnedFd>
//!   async create(ContainerSpec) -> Result<Container>, containers(), container(&str), stats()
//!   async delete(&str) (a container that has ended or was never started)
//!   async stop() (kills its containers, ends the shim; records stay)
//! Container (cheap to clone)
//!   id(), labels(), pid(), state() -> State, created_at(), started_at(), log_path(), spec() -> &Spec
//!   async start(), async kill(signal), async wait() -> Exit, async update(&LinuxResources), stats()
//!   async exec(ExecSpec) -> Result<Exec>, async attach(stdin: bool) -> Result<Attached>, async resize(w, h), async reopen_log()
//! Exec { stdin, stdout, stderr: Option<Stream> }  with a terminal stdin and stdout are both its master
//!   async wait() -> Exit, control() -> ExecControl: pid(), resize(w, h), kill(signal), async wait()
//! Attached { stdin, stdout, stderr: Option<Stream> }  with a terminal: stdin and stdout
//! Stream: AsyncRead + AsyncWrite
//! ```

mod cgroups;
mod clean;
mod container;
mod core;
mod error;
mod exec;
mod hooks;
mod inside;
mod kept_namespaces;
mod make;
mod oci;
mod oom;
mod plan;
mod programs;
mod raw;
mod records;
mod sandbox;
mod sandboxes;
mod seccomp;
mod shim;
mod sources;
mod spec;
mod stream;
mod under_way;
mod users;

pub use cgroups::Cgroups;
pub use container::{Attached, Container};
pub use error::{Error, Result};
pub use exec::{Exec, ExecControl};
pub use oci::OciFeatures;
pub use sandbox::Sandbox;
pub use sandboxes::{Sandboxes, Settings};
pub use spec::*;
pub use stream::Stream;
