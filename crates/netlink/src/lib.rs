//! The kernel's network by netlink: links, addresses, routes, neighbours, the packet filter (nftables), tracked
//! connections, network namespaces.
//!
//! Calls block, mostly for microseconds: the kernel answers a request before the call that sends it returns. A commit
//! of many rules takes longer, so callers have a thread for it. Nothing is executed (`ip`, `nft`, `iptables`), and the
//! crate knows nothing of a cluster. Messages are encoded and decoded by `netlink-bindings`; attributes that it has no
//! words for are written by `attributes`.

mod address;
pub(crate) mod attributes;
pub mod conntrack;
mod link;
pub mod namespace;
mod neighbour;
pub mod nft;
mod packet;
mod route;
mod shape;
mod socket;

pub use address::Address;
pub use link::{Link, LinkChange, Vxlan};
pub use neighbour::Neighbour;
pub use packet::Frames;
pub use route::{LocalRoute, Route, Scope};
pub use shape::Limit;
pub use socket::{Error, Routing};
