//! The pod network of a node: the program is its own CNI plugin, and its agent owns addresses, links and routes.
//!
//! Pods are routed, not bridged. Each has a link of its own to the node, on which there is no network: the node's end
//! has the gateway's address alone, a route to one address leads to the Pod, and both ends know each other's hardware
//! address, so nobody is asked for one. Therefore every packet of a Pod passes the node's routing and packet filter:
//! Services are rewritten between Pods of one node without `br_netfilter`, a Pod that reaches itself through a Service
//! needs no hairpin mode, another Pod's address cannot be taken, and there is no broadcast that each Pod gets.
//!
//! The runtime runs the plugin ([`plugin`]) for each call. The plugin passes the call to the agent's socket and prints
//! the answer; it decides nothing, so two calls never race, and no second process needs the addresses' state. The agent
//! writes an attachment down before it changes anything for it, and removes the record last (`pods`): whenever it dies,
//! the next one finishes what was begun, and the runtime's DEL finds everything.
//!
//! The crate depends on `component`, `client`, `objects` and `netlink`. It knows Nodes and containers, and of Pods the
//! names that it hands to its guard ([`Guard`]); it must never read a Pod or a Service, nor execute anything.

mod agent;
mod attachment;
mod cni;
mod filter;
mod firewall;
mod guard;
mod loopback;
mod nodes;
mod place;
pub mod plugin;
mod pod_link;
mod pods;
mod records;
mod run;
mod steps;
mod sysctl;
pub mod teardown;
#[cfg(test)]
mod testing;

pub use agent::{Agent, Asked};
pub use firewall::that_drops as firewalls;
pub use guard::{Guard, Joined, PodName};
pub use nodes::{Tunnel, WayError};
pub use place::{Installed, Place, PlaceError};
pub use run::{Clients, Options, run};
pub use sysctl::allow_forwarding;
