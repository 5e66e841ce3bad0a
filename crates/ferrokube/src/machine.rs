//! What the wiring must know of this machine.

use std::net::{IpAddr, UdpSocket};

use anyhow::{Result, bail};

/// The node's name: what was asked for, or the host name in lower case.
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

/// The host name, without a domain it may lack.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The address from which this machine would reach others; loopback if it reaches nobody.
pub(crate) fn primary_address() -> IpAddr {
    // Connecting a UDP socket sends nothing: it only asks the routing table.
    let asked = UdpSocket::bind("0.0.0.0:0").and_then(|s| {
        s.connect("198.51.100.1:9")?;
        s.local_addr()
    });
    asked.map_or(IpAddr::from([127, 0, 0, 1]), |a| a.ip())
}

/// The n-th address of a range, e.g. the first of the Services' range for `kubernetes`.
pub(crate) fn nth_address(cidr: &str, n: u32) -> Result<IpAddr> {
    let parsed = cidr
        .split_once('/')
        .and_then(|(ip, bits)| Some((ip.parse::<IpAddr>().ok()?, bits.parse::<u32>().ok()?)));
    match parsed {
        Some((IpAddr::V4(ip), bits)) if bits <= 30 => {
            let base = u32::from(ip) & (u32::MAX << (32 - bits).min(31));
            Ok(IpAddr::from(base.wrapping_add(n).to_be_bytes()))
        }
        Some((IpAddr::V6(ip), bits)) if bits <= 120 => {
            let base = u128::from(ip) & (u128::MAX << (128 - bits).min(127));
            Ok(IpAddr::from(base.wrapping_add(u128::from(n)).to_be_bytes()))
        }
        _ => bail!("{cidr:?} is no range of addresses, such as 10.96.0.0/16"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_ranges() {
        for (cidr, n, expected) in [
            ("10.96.0.0/16", 1, "10.96.0.1"),
            ("10.96.3.7/16", 10, "10.96.0.10"),
            ("fd00::/108", 1, "fd00::1"),
        ] {
            assert_eq!(nth_address(cidr, n).unwrap().to_string(), expected);
        }
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "x/8"] {
            assert!(nth_address(bad, 1).is_err(), "{bad}");
        }
    }
}
