//! Hosts that reach each other: on one link, or each behind a router.

use std::net::Ipv4Addr;

use anyhow::Result;

use crate::host::Host;

/// Hosts with links between them. Each has one link, `eth0`, and a default route by it.
pub struct Hosts {
    hosts: Vec<Host>,
    /// The host in their middle: a switch or a router, which is the way out for all.
    middle: Host,
    routed: bool,
}

impl Hosts {
    /// Hosts on one link.
    pub fn on_one_link(names: &[&str]) -> Result<Self> {
        let middle = Host::new("switch")?;
        middle.run("ip", &["link", "add", "br0", "type", "bridge"])?;
        middle.run("ip", &["link", "set", "br0", "up"])?;
        let gateway = format!("{}/24", Self::gateway_of(false, 0));
        middle.run("ip", &["address", "add", &gateway, "dev", "br0"])?;
        Self::joined(names, middle, false)
    }

    /// Hosts with a link of their own each to a router.
    pub fn routed(names: &[&str]) -> Result<Self> {
        let middle = Host::new("router")?;
        middle.run("sysctl", &["-qw", "net.ipv4.ip_forward=1"])?;
        Self::joined(names, middle, true)
    }

    fn joined(names: &[&str], middle: Host, routed: bool) -> Result<Self> {
        let mut all = Self { hosts: Vec::new(), middle, routed };
        for (number, name) in names.iter().enumerate() {
            let host = Host::new(name)?;
            let link = format!("to{number}");
            all.middle.link_to(&link, &host)?;
            let gateway = Self::gateway_of(routed, number);
            if routed {
                all.middle.run("ip", &["address", "add", &format!("{gateway}/24"), "dev", &link])?;
            } else {
                all.middle.run("ip", &["link", "set", &link, "master", "br0"])?;
            }
            all.middle.run("ip", &["link", "set", &link, "up"])?;
            let address = format!("{}/24", all.address(number));
            host.run("ip", &["address", "add", &address, "dev", "eth0"])?;
            host.run("ip", &["link", "set", "eth0", "up"])?;
            host.run("ip", &["route", "add", "default", "via", &gateway.to_string()])?;
            all.hosts.push(host);
        }
        Ok(all)
    }

    /// The address of a host, by its number from 0.
    pub fn address(&self, number: usize) -> Ipv4Addr {
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        if self.routed {
            Ipv4Addr::new(198, 18, number, 10)
        } else {
            Ipv4Addr::new(192, 0, 2, number.saturating_add(10))
        }
    }

    /// The way out of a host.
    fn gateway_of(routed: bool, number: usize) -> Ipv4Addr {
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        if routed { Ipv4Addr::new(198, 18, number, 1) } else { Ipv4Addr::new(192, 0, 2, 1) }
    }

    /// The host in the middle: the switch or the router.
    pub fn middle(&self) -> &Host {
        &self.middle
    }

    /// Takes the hosts, in the order of their names; the middle stays.
    pub fn take(&mut self) -> Vec<Host> {
        std::mem::take(&mut self.hosts)
    }
}
