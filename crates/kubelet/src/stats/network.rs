//! Network interfaces.

use cri::runtime as pb;

/// An interface's bytes and errors, received and sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) rx: u64,
    pub(crate) rx_errors: u64,
    pub(crate) tx: u64,
    pub(crate) tx_errors: u64,
}

impl From<pb::NetworkInterfaceUsage> for Interface {
    fn from(i: pb::NetworkInterfaceUsage) -> Self {
        let value = |v: Option<pb::UInt64Value>| v.map(|v| v.value).unwrap_or_default();
        Self {
            name: i.name,
            rx: value(i.rx_bytes),
            rx_errors: value(i.rx_errors),
            tx: value(i.tx_bytes),
            tx_errors: value(i.tx_errors),
        }
    }
}

/// The interfaces of `/proc/net/dev` that are neither the loopback nor made for Pods, upstream's default one first.
pub(super) fn interfaces(dev: &str) -> Vec<Interface> {
    let found = dev.lines().skip(2).filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let name = name.trim();
        if name == "lo" || ["veth", "fk-", "cni", "docker"].iter().any(|p| name.starts_with(p)) {
            return None;
        }
        let n: Vec<u64> = rest.split_ascii_whitespace().filter_map(|f| f.parse().ok()).collect();
        Some(Interface {
            name: name.to_owned(),
            rx: *n.first()?,
            rx_errors: *n.get(2)?,
            tx: *n.get(8)?,
            tx_errors: *n.get(10)?,
        })
    });
    let mut found: Vec<Interface> = found.collect();
    found.sort_by_key(|i| i.name != "eth0");
    found
}
