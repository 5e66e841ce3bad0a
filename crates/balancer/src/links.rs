//! The links on which this node may announce addresses.

use std::net::IpAddr;

use netlink::{Address, Error, Link, Routing};
use objects::Cidr;

/// A link with a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) link: u32,
    pub(crate) hardware: [u8; 6],
    pub(crate) network: Cidr,
}

/// Reads the links that are up and have networks.
pub(crate) fn read() -> Result<Vec<Place>, Error> {
    let mut routing = Routing::open()?;
    let links = routing.links()?;
    Ok(places(&links, &routing.addresses()?))
}

fn places(links: &[Link], addresses: &[Address]) -> Vec<Place> {
    let mut all = Vec::new();
    for address in addresses {
        let link = links.iter().find(|link| link.index == address.link && link.up && link.kind != "vxlan");
        let Some(hardware) = link.and_then(|link| <[u8; 6]>::try_from(&link.address[..]).ok()) else {
            continue;
        };
        let is_own = match address.address {
            IpAddr::V4(a) => a.is_loopback() || address.prefix == 32,
            IpAddr::V6(a) => a.is_loopback() || a.is_unicast_link_local() || address.prefix == 128,
        };
        let network: Option<Cidr> = format!("{}/{}", address.address, address.prefix).parse().ok();
        if let (Some(network), false) = (network, is_own) {
            let place = Place { link: address.link, hardware, network };
            if !all.contains(&place) {
                all.push(place);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_with_networks() {
        let check = |kind: &str, up: bool, hardware: &[u8], address: &str, expected: Option<&str>| {
            let link = Link {
                index: 7,
                name: "eth0".to_owned(),
                kind: kind.to_owned(),
                up,
                mtu: 1500,
                address: hardware.to_vec(),
                master: None,
                below: None,
                alias: String::new(),
                group: 0,
            };
            let (ip, prefix) = address.split_once('/').unwrap();
            let address = Address { link: 7, address: ip.parse().unwrap(), prefix: prefix.parse().unwrap() };
            let found = places(&[link], &[address, address]);
            let networks: Vec<String> = found.iter().map(|place| place.network.to_string()).collect();
            assert_eq!(networks, expected.into_iter().map(str::to_owned).collect::<Vec<_>>(), "{address:?}");
        };
        let mac = [2, 0, 0, 0, 0, 1];
        check("", true, &mac, "192.0.2.7/24", Some("192.0.2.0/24"));
        check("bridge", true, &mac, "2001:db8::7/64", Some("2001:db8::/64"));
        check("", false, &mac, "192.0.2.7/24", None);
        check("", true, &[], "192.0.2.7/24", None);
        check("vxlan", true, &mac, "192.0.2.7/24", None);
        check("veth", true, &mac, "192.0.2.7/32", None);
        check("", true, &mac, "fe80::1/64", None);
        check("", true, &mac, "127.0.0.1/8", None);
    }
}
