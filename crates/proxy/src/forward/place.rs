//! The addresses and ports of Services.

use std::net::IpAddr;

/// The protocols that are forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

/// An address and port of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) address: IpAddr,
    pub(super) protocol: Protocol,
    pub(super) port: u16,
}
