//! Network policies on a node: which packets of its Pods pass.
//!
//! The way from objects to packets is [`Enforcer`]: events go in, the contents of a table of the packet filter follow
//! (pure), and the difference to what the kernel has is written in one commit. A change costs work for the selectors,
//! policies and Pods that it concerns, not for all. Rules stay in force when the process ends; the next one reads them
//! and writes the difference.
//!
//! The table sees what the node forwards, after Services are rewritten to endpoints and before sources are masqueraded.
//! The node's own traffic to and from its Pods passes, as the API's description wants it. A packet between two Pods of
//! one node passes a chain for the source's egress and then one for the destination's ingress; each leads isolated
//! Pods, by a map of addresses, to a chain that all Pods with the same policies share, and that leads to one chain a
//! policy. Peers are sets of addresses that all policies with the same selectors share.
//!
//! A connection goes on as it began: a policy that comes later counts for new connections. Answers could not be told
//! from new connections otherwise.
//!
//! A Pod of the node's own pod network is let in by [`Gate::admit`], which returns when the kernel has the Pod's rules,
//! so they hold before its first packet. Its rules stay until [`Gate::release`], even if the Pod is gone from the API.
//!
//! The crate depends on `api`, `component`, `client`, `objects` and `netlink`. It executes nothing, and it must never
//! change a table that is not its own.

mod build;
mod chains;
mod contents;
mod enforcer;
mod gate;
mod judge;
mod kernel;
mod metrics;
mod name;
mod protocol;
mod ranges;
mod run;
mod selections;
mod spec;
mod uses;
mod views;

pub use contents::Changes;
pub use enforcer::{Attached, Enforcer, Event, Owner};
pub use gate::{AdmitError, Gate};
pub use run::{Config, RunError, remove, run};
pub use views::{PodView, PolicyView, SpaceView};

#[cfg(test)]
#[path = "../tests/oracle.rs"]
mod oracle;
#[cfg(test)]
mod tests;
