//! The properties of this machine that the wiring needs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};

use anyhow::{Result, bail};

/// The node's name: the requested one, or the host name in lower case.
pub(crate) fn node_name(asked: Option<&str>) -> Result<String> {
    let name = match asked {
        Some(name) => name.to_owned(),
        None => hostname().to_lowercase(),
    };
    let wrong = api::names::dns1123_subdomain(&name);
    if !wrong.is_empty() {
        bail!("{name:?} can't be a node's name: {}; choose another with --node-name", wrong.join("; "));
    }
    Ok(name)
}

/// The host name, with its domain if it has one.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The address from which this machine would reach others; loopback if it reaches nobody. Like upstream's kubelet, it
/// takes the IPv4 address if there is one, and the IPv6 address otherwise.
pub(crate) fn primary_address() -> IpAddr {
    primary_of(address_to("0.0.0.0:0", "198.51.100.1:9"), address_to("[::]:0", "[2001:db8::1]:9"))
}

fn primary_of(v4: Option<IpAddr>, v6: Option<IpAddr>) -> IpAddr {
    v4.or(v6).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The local address of the route to another one. Connecting a UDP socket sends nothing: it only asks the routing
/// table. An address that others cannot reach counts as none.
fn address_to(local: &str, remote: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(local).ok()?;
    socket.connect(remote).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    let link_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    (!ip.is_loopback() && !ip.is_unspecified() && !link_local).then_some(ip)
}

/// The node's addresses by `--node-ip`: one, or one of each family, the primary one first; without the flag,
/// [`primary_address`]. `0.0.0.0` and `::` stand for this machine's address of their family, and for the other one's if
/// there is none.
///
/// # Errors
/// Upstream's rules, and its texts where it has one.
pub(crate) fn node_ips(asked: &[IpAddr]) -> Result<Vec<IpAddr>> {
    match asked {
        [] => Ok(vec![primary_address()]),
        [ip] if ip.is_unspecified() => {
            let (v4, v6) =
                (address_to("0.0.0.0:0", "198.51.100.1:9"), address_to("[::]:0", "[2001:db8::1]:9"));
            Ok(vec![if ip.is_ipv6() { primary_of(v6, v4) } else { primary_of(v4, v6) }])
        }
        [ip] => Ok(vec![usable(*ip)?]),
        [a, b] if a.is_ipv6() != b.is_ipv6() => {
            if a.is_unspecified() || b.is_unspecified() {
                bail!("--node-ip: dual-stack node IP cannot include '0.0.0.0' or '::'");
            }
            Ok(vec![usable(*a)?, usable(*b)?])
        }
        _ => bail!("--node-ip: must contain either a single IP or a dual-stack pair of IPs"),
    }
}

/// Checks that an address is this machine's, and that others can reach it.
fn usable(ip: IpAddr) -> Result<IpAddr> {
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if ip.is_loopback() {
        bail!("--node-ip: nodeIP can't be loopback address");
    }
    if ip.is_multicast() {
        bail!("--node-ip: nodeIP can't be a multicast address");
    }
    if link_local {
        bail!("--node-ip: nodeIP can't be a link-local unicast address");
    }
    // Only an address of this machine can be bound.
    if UdpSocket::bind((ip, 0)).is_err() {
        bail!("--node-ip: node IP: {ip} not found in the host's network interfaces");
    }
    Ok(ip)
}

/// The address to listen on for all addresses of this machine: of both families if it has IPv6.
pub(crate) fn anywhere() -> IpAddr {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_addresses() {
        let check = |asked: &[&str], expected: &str| {
            let asked: Vec<IpAddr> = asked.iter().map(|ip| ip.parse().unwrap()).collect();
            assert_eq!(node_ips(&asked).unwrap_err().to_string(), expected);
        };
        check(
            &["10.0.0.1", "10.0.0.2"],
            "--node-ip: must contain either a single IP or a dual-stack pair of IPs",
        );
        check(&["10.0.0.1", "::"], "--node-ip: dual-stack node IP cannot include '0.0.0.0' or '::'");
        check(&["127.0.0.1"], "--node-ip: nodeIP can't be loopback address");
        check(&["::1"], "--node-ip: nodeIP can't be loopback address");
        check(&["fe80::1"], "--node-ip: nodeIP can't be a link-local unicast address");
        check(&["ff02::1"], "--node-ip: nodeIP can't be a multicast address");
        check(&["192.0.2.77"], "--node-ip: node IP: 192.0.2.77 not found in the host's network interfaces");
        let (v4, v6): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        assert_eq!(primary_of(Some(v4), Some(v6)), v4);
        assert_eq!(primary_of(None, Some(v6)), v6);
        assert!(primary_of(None, None).is_loopback());
        assert_eq!(node_ips(&[]).unwrap(), [primary_address()]);
    }
}
