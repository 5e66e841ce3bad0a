//! The kernel does what it is told, in network namespaces of the tests' own.

#![expect(clippy::unwrap_used, reason = "tests")]

mod filter;
mod links;

use std::fs::File;

use ferrokube_netlink::namespace;
use testkit::Host;

/// The network namespace of a host.
fn of(host: &Host) -> File {
    namespace::open(&host.network()).unwrap()
}

/// Does work in the network namespace of a host.
fn within<T: Send>(host: &Host, work: impl FnOnce() -> T + Send) -> T {
    use std::os::fd::AsFd;
    namespace::within(of(host).as_fd(), work).unwrap()
}
