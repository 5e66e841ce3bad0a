//! Which addresses the server connects to for others.
//!
//! A writer of a Node's or a Pod's status says where the server connects: not to itself, and not to what only this
//! machine may reach. A name is resolved once, every address that it has is checked, and only those are connected to.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The port of a kubelet where nothing says another.
pub(super) const KUBELET_PORT: u16 = 10250;

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Logs and streams of a Pod, at paths of a kubelet that the server makes.
    Kubelet,
    /// A request of somebody else, at any path.
    Proxy,
}

/// Where the server itself is.
#[derive(Debug, Clone)]
pub struct Own {
    /// The port on which it listens, at any address of this machine.
    port: u16,
    /// Further addresses that lead to it.
    addresses: Vec<SocketAddr>,
    /// The port of the kubelet on this machine, which may have nothing but loopback.
    kubelet: Arc<AtomicU16>,
}

impl Own {
    /// A server that listens on `port` of this machine, and to which `addresses` lead too.
    pub fn new(port: u16, addresses: Vec<SocketAddr>) -> Self {
        Self { port, addresses, kubelet: Arc::new(AtomicU16::new(KUBELET_PORT)) }
    }

    /// Says on which port the kubelet of this machine listens.
    pub fn set_kubelet(&self, port: u16) {
        self.kubelet.store(port, Ordering::Relaxed);
    }

    /// Whether the server may connect to an address.
    ///
    /// `DIFFERENCE`: upstream looks only at the addresses of proxies, and not at those of logs and streams; and it
    /// lets its own address be one.
    pub(super) fn allows(&self, purpose: Purpose, address: SocketAddr) -> bool {
        let (ip, port) = (plain(address.ip()), address.port());
        if self.addresses.contains(&SocketAddr::new(ip, port)) {
            return false;
        }
        is_global_unicast(ip)
            || purpose == Purpose::Kubelet
                && ip.is_loopback()
                && port == self.kubelet.load(Ordering::Relaxed)
                && port != self.port
    }

    /// Whether the server may connect to the backend of a Service to ask a webhook: by the rules of proxies, since the
    /// addresses of endpoints are written by others than those who write webhooks.
    pub fn allows_webhook(&self, address: SocketAddr) -> bool {
        self.allows(Purpose::Proxy, address)
    }

    /// Whether a connection leads back to the server: between two addresses that are one, both are this machine's.
    pub(super) fn reached(&self, local: SocketAddr, peer: SocketAddr) -> bool {
        peer.port() == self.port && plain(local.ip()) == plain(peer.ip())
    }
}

/// An address as the network takes it: of IPv6 that only wraps IPv4, the latter.
fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        // `::1` and `::` are addresses of their own.
        IpAddr::V6(v6) if v6.segments()[..6] == [0; 6] && u128::from(v6) > 1 => {
            v6.to_ipv4().map_or(ip, IpAddr::V4)
        }
        IpAddr::V6(_) => ip.to_canonical(),
    }
}

/// Go's `IP.IsGlobalUnicast`, and without `0.0.0.0/8`, of which the kernel takes the first for this machine.
pub(super) fn is_global_unicast(ip: IpAddr) -> bool {
    match plain(ip) {
        IpAddr::V4(ip) => {
            !(ip.octets()[0] == 0
                || ip.is_loopback()
                || ip.is_multicast()
                || ip.is_link_local()
                || ip.is_broadcast())
        }
        IpAddr::V6(ip) => {
            !(ip == Ipv6Addr::UNSPECIFIED
                || ip.is_loopback()
                || ip.is_multicast()
                || ip.is_unicast_link_local())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses() {
        let check = |ip: &str, expected: bool| {
            assert_eq!(is_global_unicast(ip.parse().unwrap()), expected, "{ip}");
        };
        for ip in
            ["10.0.0.1", "192.168.1.1", "203.0.113.1", "100.64.0.1", "240.0.0.1", "fd00::1", "2001:db8::1"]
        {
            check(ip, true);
        }
        check("::ffff:10.0.0.1", true);
        for ip in [
            "127.0.0.1",
            "127.1.2.3",
            "0.0.0.0",
            "0.0.0.1",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
        ] {
            check(ip, false);
            check(&format!("::ffff:{ip}"), false);
            check(&format!("::{ip}"), false);
        }
        for ip in ["::", "::1", "fe80::1", "ff02::1", "ff05::1"] {
            check(ip, false);
        }
    }

    #[test]
    fn the_server_itself_and_its_machine() {
        let own = Own::new(6443, vec![at("10.0.0.1:6443"), at("10.96.0.1:443")]);
        own.set_kubelet(10251);
        let check = |purpose: Purpose, address: &str, expected: bool| {
            assert_eq!(own.allows(purpose, at(address)), expected, "{purpose:?} {address}");
        };
        for purpose in [Purpose::Kubelet, Purpose::Proxy] {
            check(purpose, "10.0.0.2:10250", true);
            check(purpose, "10.0.0.1:10250", true);
            check(purpose, "10.0.0.1:6443", false);
            check(purpose, "[::ffff:10.0.0.1]:6443", false);
            check(purpose, "10.96.0.1:443", false);
            check(purpose, "127.0.0.1:6443", false);
            check(purpose, "127.0.0.1:10250", false);
            check(purpose, "[::1]:2379", false);
            check(purpose, "169.254.169.254:80", false);
        }
        check(Purpose::Kubelet, "127.0.0.1:10251", true);
        check(Purpose::Kubelet, "[::1]:10251", true);
        check(Purpose::Kubelet, "0.0.0.0:10251", false);
        check(Purpose::Proxy, "127.0.0.1:10251", false);
        own.set_kubelet(6443);
        check(Purpose::Kubelet, "127.0.0.1:6443", false);
        let check = |local: &str, peer: &str, expected: bool| {
            assert_eq!(own.reached(at(local), at(peer)), expected, "{local} {peer}");
        };
        check("192.168.7.7:40000", "192.168.7.7:6443", true);
        check("[::ffff:192.168.7.7]:40000", "192.168.7.7:6443", true);
        check("192.168.7.7:40000", "192.168.7.7:80", false);
        check("192.168.7.7:40000", "192.168.7.8:6443", false);
    }
}
