//! The addresses of Services of type LoadBalancer, announced on the link by one node at a time.
//!
//! A controller gives Services addresses from a pool; this crate is a node's part. Each node that may hold an address
//! renews a Lease of its own, and each address has a record of its holder, another Lease, which only changes by
//! comparison ([`hold`] is the whole rule, without I/O). The holder answers ARP and neighbour solicitations for the
//! address (`answer`); no link gets it, since the Service proxy rewrites what is sent to it. Nobody answers once this
//! process has ended.
//!
//! The crate depends on `api`, `component`, `client`, `objects` and `netlink`. It must never decide which address a
//! Service gets, nor where its packets go.

mod answer;
mod facts;
pub mod hold;
mod leases;
mod links;
mod run;

pub use leases::NAMESPACE;
pub use run::{ACCOUNT, Config, run};
