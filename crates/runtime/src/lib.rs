//! The built-in container runtime: the container runtime interface (CRI v1) over this machine's own images and
//! containers. It executes nothing but what it was told of: plugins of a Pod network, other OCI runtimes (handlers), and
//! hooks of devices.
//!
//! From the outside to the kernel:
//! - `service`: one function a call of CRI, and the state of sandboxes and containers (`store`);
//! - `translate`: CRI's descriptions as specifications of OCI; pure. `shell` looks at the machine for it;
//! - `streaming`: the server behind the URLs of exec, attach and port-forward;
//! - `network`: the Pod network, a trait that somebody else implements, or plugins of CNI;
//! - the crates `images` and `containers` do the work.
//!
//! The crate knows no Pod but CRI's, and depends on no component: the Pod network of this project is handed to it.

pub mod archives;
mod cdi;
mod handlers;
mod ids;
pub mod network;
mod service;
mod shell;
mod store;
mod streaming;
pub mod translate;

pub use cri::runtime::CgroupDriver;
pub use handlers::{Handler, ParseError};
pub use service::{ARCHIVES, Runtime, Settings, StartError};
