//! The cluster's DNS: names of Services, their endpoints and Pods by Kubernetes' specification 1.1, and all other names
//! by asking the servers that the machine asks, with a cache.
//!
//! A packet takes one way: [`packet`] reads it, the [`zone`] answers it from the present objects, or the [`cache`] from
//! an earlier answer; else [`forward`] asks another server. [`server`] puts the parts together.
//!
//! The crate depends on `api`, `component`, `client` and `objects`. It must never know who routes packets to it, nor
//! how containers learn of its address.

pub mod cache;
pub mod forward;
pub mod health;
mod limits;
mod listen;
mod metrics;
pub mod name;
pub mod packet;
pub mod resolver;
pub mod server;
pub mod zone;

pub use cache::Limits;
pub use forward::{ResolvConf, StubDomain, Upstreams};
pub use name::Name;
pub use server::{Config, Server, StartError, USER, run};
pub use zone::{Event, PodMode, Zone};
