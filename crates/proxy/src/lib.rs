//! Services on a node: packets to their addresses go to endpoints.
//!
//! The way from objects to packets is [`Proxier`]: events go in, a plan for each changed Service follows (pure), and the
//! difference to the kernel's table is written in one commit. A change costs work for the Services that it concerns,
//! not for all. Rules stay in force when the process ends; the next one reads them and writes the difference.
//!
//! The crate depends on `api`, `component`, `client`, `serving`, `objects` and `netlink`. It executes nothing, and it
//! must never change a table that is not its own.

mod chain;
mod config;
mod conntrack;
mod contents;
pub mod file;
mod health;
mod kernel;
mod layout;
mod limits;
mod metrics;
mod plan;
mod proxier;
mod run;
mod service;
mod settings;

pub use config::{Config, DetectLocal, NodePortAddresses};
pub use contents::Changes;
pub use limits::Conntrack;
pub use proxier::{Event, Place, Proxier};
pub use run::{RunError, remove, run};
pub use service::{HEADLESS, OTHER_PROXY};
pub use settings::{LocalTraffic, Settings};
