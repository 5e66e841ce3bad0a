//! The nodes of `up --nodes`, with their names, addresses and places; pure.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use objects::Cidr;

use crate::built_in;

/// The most bytes of the path of a socket.
const SOCKET: usize = 107;

/// All nodes of this machine.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// The cluster's name on this machine.
    pub(super) id: String,
    /// The networks in which the nodes and this machine are, one of a family.
    pub(super) networks: Vec<Cidr>,
    pub(super) hosts: Vec<Host>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    /// Its number, from 1.
    pub(super) number: u8,
    /// Its addresses, of the networks in their order.
    pub(super) addresses: Vec<IpAddr>,
    /// Its directory.
    pub(super) dir: PathBuf,
}

/// The directory with those of all nodes.
pub(super) fn directory(data_dir: &Path) -> PathBuf {
    data_dir.join("nodes")
}

/// The bridge that joins the nodes and this machine; the names of the nodes' links begin with it.
pub(super) fn bridge(id: &str) -> String {
    format!("fkn-{id}")
}

impl Plan {
    /// Plans `count` nodes `NAME-1`, `NAME-2` and so on.
    ///
    /// # Errors
    /// The networks have no room for them, or a name is none, or a path too long.
    pub(super) fn new(data_dir: &Path, id: &str, name: &str, count: u8, networks: &[Cidr]) -> Result<Self> {
        match networks {
            [_] => {}
            [a, b] if a.is_v6() != b.is_v6() => {}
            _ => bail!("--nodes-cidr takes one network, or one of each family"),
        }
        let address = |network: &Cidr, number: u32| {
            // The last address of an IPv4 network is everybody's.
            let last = network.last() - u128::from(!network.is_v6());
            let found = network.nth(number).filter(|_| network.first() + u128::from(number) <= last);
            found.with_context(|| {
                format!("{network} has no room for {count} nodes: choose a larger network with --nodes-cidr")
            })
        };
        let mut hosts = Vec::new();
        for number in 1..=count {
            let name = format!("{name}-{number}");
            let wrong = api::names::dns1123_subdomain(&name);
            if !wrong.is_empty() {
                bail!(
                    "{name:?} can't be a node's name: {}; choose another with --node-name",
                    wrong.join("; ")
                );
            }
            let addresses = networks.iter().map(|network| address(network, u32::from(number) + 1));
            let host = Host {
                addresses: addresses.collect::<Result<_>>()?,
                dir: directory(data_dir).join(&name),
                name,
                number,
            };
            let longest = built_in::socket(&host.data());
            if longest.as_os_str().len() > SOCKET {
                bail!(
                    "{} is too long for the path of a socket; choose a shorter --data-dir or --node-name",
                    longest.display()
                );
            }
            hosts.push(host);
        }
        Ok(Self { id: id.to_owned(), networks: networks.to_vec(), hosts })
    }

    /// This machine's addresses in the networks, by which the nodes reach it.
    pub(super) fn gateways(&self) -> Vec<IpAddr> {
        self.networks.iter().filter_map(|network| network.nth(1)).collect()
    }

    /// The bridge's name.
    pub(super) fn bridge(&self) -> String {
        bridge(&self.id)
    }

    /// This machine's end of a node's link.
    pub(super) fn link(&self, host: &Host) -> String {
        format!("{}{:02x}", self.bridge(), host.number)
    }
}

impl Host {
    /// The runtime's socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }
    /// The node's own data directory.
    pub(super) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }
    /// The kubeconfig with which it joins.
    pub(super) fn bootstrap(&self) -> PathBuf {
        self.dir.join("bootstrap.kubeconfig")
    }
    /// Its `resolv.conf`.
    pub(super) fn resolv_conf(&self) -> PathBuf {
        self.dir.join("resolv.conf")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(dir: &str, name: &str, count: u8, networks: &[&str]) -> Result<Plan> {
        let networks: Vec<Cidr> = networks.iter().map(|n| n.parse().unwrap()).collect();
        Plan::new(Path::new(dir), "0a1b2c3d", name, count, &networks)
    }

    #[test]
    fn names_and_addresses() {
        let plan = plan("/var/lib/f", "box", 3, &["10.242.0.0/24", "fd42::/64"]).unwrap();
        let shown: Vec<String> = plan
            .hosts
            .iter()
            .map(|host| {
                let addresses: Vec<String> = host.addresses.iter().map(ToString::to_string).collect();
                format!("{} {} {}", host.name, addresses.join(","), plan.link(host))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "box-1 10.242.0.2,fd42::2 fkn-0a1b2c3d01",
                "box-2 10.242.0.3,fd42::3 fkn-0a1b2c3d02",
                "box-3 10.242.0.4,fd42::4 fkn-0a1b2c3d03"
            ]
        );
        assert_eq!(
            plan.gateways().iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.242.0.1", "fd42::1"]
        );
        assert_eq!(plan.hosts[0].socket(), Path::new("/var/lib/f/nodes/box-1/containerd.sock"));
        assert!(plan.link(&plan.hosts[2]).len() <= 15);
    }

    #[test]
    fn refusals() {
        let check = |dir: &str, name: &str, count: u8, networks: &[&str], expected: &str| {
            let said = plan(dir, name, count, networks).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        };
        check("/d", "n", 2, &["10.0.0.0/30"], "10.0.0.0/30 has no room for 2 nodes");
        plan("/d", "n", 1, &["10.0.0.0/30"]).unwrap();
        check("/d", "n", 1, &["10.0.0.0/24", "10.1.0.0/24"], "one network, or one of each family");
        check("/d", "n", 1, &[], "one network, or one of each family");
        check("/d", "N_", 1, &["10.0.0.0/24"], "can't be a node's name");
        check(&format!("/{}", "d".repeat(90)), "n", 1, &["10.0.0.0/24"], "too long for the path of a socket");
    }
}
