//! The packet filter's part: what leaves the cluster has the node's address, ports of the node lead to Pods, and no Pod
//! has another one's address.
//!
//! Rules are written once; what changes are elements of sets. The first writing replaces the whole table in one step,
//! so that a restart leaves no gap and nothing of what was before.

mod rules;
mod sets;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink::conntrack::{Connections, UDP};
use netlink::nft::{Batch, Element, Family, Filter as Kernel, Table, Value};
use objects::Cidr;

use crate::attachment::Attachment;
use crate::cni::Protocol;
use sets::{IPS, Ip, SETS, Set};

/// The ranges that the filter must know beside the attachments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// The Pods' ranges of the whole cluster.
    pub(crate) pods: Vec<Cidr>,
    /// Other ranges where a Pod's own address is understood.
    pub(crate) inside: Vec<Cidr>,
}

type Contents = Vec<BTreeSet<Element<'static>>>;

/// The filter's table.
#[derive(Debug)]
pub(crate) struct Filter {
    table: Table,
    links: String,
    /// The elements of each set and family that the kernel has; none before the first writing, or after a refusal.
    written: Option<Contents>,
}

impl Filter {
    pub(crate) fn new(name: String, links: String) -> Self {
        Self { table: Table { family: Family::Inet, name }, links, written: None }
    }

    /// Writes what is not as it should be.
    pub(crate) fn write<'a>(
        &mut self,
        attachments: impl Iterator<Item = &'a Attachment>,
        ranges: &Ranges,
    ) -> Result<(), netlink::Error> {
        let wanted = contents(attachments, ranges);
        if self.written.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let mut kernel = Kernel::open()?;
        let mut batch = Batch::new(&self.table);
        if let Some(written) = self.written.take() {
            differences(&mut batch, &written, &wanted);
        } else {
            // A table that is not there cannot be removed.
            batch.add_table();
            batch.delete_table();
            batch.add_table();
            rules::add(&mut batch, &self.links);
            differences(&mut batch, &vec![BTreeSet::new(); wanted.len()], &wanted);
        }
        kernel.commit(batch)?;
        self.written = Some(wanted);
        Ok(())
    }

    /// Removes the table; none is no error.
    pub(crate) fn remove(name: String) -> Result<(), netlink::Error> {
        let table = Table { family: Family::Inet, name };
        let mut batch = Batch::new(&table);
        batch.add_table();
        batch.delete_table();
        Kernel::open()?.commit(batch)
    }
}

/// Forgets connections of Pods' UDP ports of the node: they would go on as they began.
pub(crate) fn forget<'a>(all: impl Iterator<Item = &'a Attachment>) -> Result<(), netlink::Error> {
    let udp = all.flat_map(|one| &one.ports).filter(|port| port.protocol == Protocol::Udp);
    let ports: BTreeSet<u16> = udp.map(|port| port.port).collect();
    if ports.is_empty() {
        return Ok(());
    }
    let mut connections = Connections::open()?;
    connections
        .delete_all(|flow| flow.protocol == UDP && ports.contains(&flow.original.destination.port()))
        .map(drop)
}

fn differences(batch: &mut Batch<'_>, written: &Contents, wanted: &Contents) {
    let sets = SETS.iter().flat_map(|set| IPS.map(|ip| (*set, ip)));
    for ((set, ip), (old, new)) in sets.zip(written.iter().zip(wanted)) {
        let (name, kind) = (set.name(ip), set.kind(ip));
        if kind.ranges && old != new {
            // The ends of ranges that touch each other are the same elements: they are written anew, in one step.
            if !old.is_empty() {
                batch.flush_set(&name);
            }
            batch.add_elements(&name, &kind, new);
        } else {
            batch.delete_elements(&name, &kind, old.difference(new));
            batch.add_elements(&name, &kind, new.difference(old));
        }
    }
}

fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// A port filled up to four bytes.
fn port(number: u16) -> [u8; 4] {
    let [high, low] = number.to_be_bytes();
    [high, low, 0, 0]
}

/// The elements of all sets, in the order of [`SETS`], each for both families; pure.
fn contents<'a>(attachments: impl Iterator<Item = &'a Attachment>, ranges: &Ranges) -> Contents {
    let attachments: Vec<&Attachment> = attachments.collect();
    let mut inside = ranges.inside.clone();
    inside.extend(&ranges.pods);
    // Groups are nobody's address.
    inside.extend(["224.0.0.0/4", "ff00::/8"].iter().filter_map(|range| range.parse::<Cidr>().ok()));
    let mut all = Vec::new();
    for set in SETS {
        for ip in IPS {
            all.push(match set {
                Set::Pods => range_elements(&ranges.pods, ip),
                Set::Inside => range_elements(&inside, ip),
                Set::Ports | Set::OwnPorts => port_elements(&attachments, ip, set == Set::OwnPorts),
                Set::Hairpins => {
                    let with_ports = attachments.iter().filter(|one| !one.ports.is_empty());
                    let own = with_ports.flat_map(|one| &one.addresses).filter(|own| ip.has(own.address));
                    own.map(|own| Element::key(bytes(own.address).repeat(2))).collect()
                }
            });
        }
    }
    all
}

/// The elements of a set of ranges; those that lie in another one are left out.
fn range_elements(ranges: &[Cidr], ip: Ip) -> BTreeSet<Element<'static>> {
    let of_family: Vec<Cidr> = ranges.iter().copied().filter(|range| range.is_v6() == ip.v6).collect();
    let lies_in_another = |range: &Cidr| of_family.iter().any(|o| o != range && o.contains(*range));
    let width = if ip.v6 { 16 } else { 4 };
    let end = |number: u128| number.to_be_bytes()[16 - width..].to_vec();
    of_family
        .iter()
        .filter(|range| !lies_in_another(range))
        .map(|range| Element {
            key: Cow::Owned(end(range.first())),
            last: Some(Cow::Owned(end(range.last()))),
            value: None,
        })
        .collect()
}

/// The elements of a map of ports: those of one address each, or of all.
fn port_elements(attachments: &[&Attachment], ip: Ip, of_one: bool) -> BTreeSet<Element<'static>> {
    let mut elements = std::collections::BTreeMap::new();
    for one in attachments {
        let Some(own) = one.addresses.iter().find(|own| ip.has(own.address)) else { continue };
        for mapping in &one.ports {
            if mapping.address.is_some() != of_one || mapping.address.is_some_and(|a| !ip.has(a)) {
                continue;
            }
            let mut key = mapping.address.map(bytes).unwrap_or_default();
            key.extend([mapping.protocol.number(), 0, 0, 0]);
            key.extend(port(mapping.port));
            let mut value = bytes(own.address);
            value.extend(port(mapping.to));
            // Of two that want one port, the first keeps it: the scheduler lets no such Pods onto a node, but one that
            // ends may be there for a moment.
            elements.entry(key).or_insert(value);
        }
    }
    elements.into_iter().map(|(key, value)| Element::value(key, Value::Bytes(Cow::Owned(value)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::tests::{blocks, example};
    use crate::cni::HostPort;

    #[test]
    fn elements_of_a_node() {
        let mut one = example();
        let mapping = |address, port| HostPort { protocol: Protocol::Tcp, address, port, to: 80 };
        one.ports = vec![mapping(None, 8080), mapping(Some([127, 0, 0, 1].into()), 8081)];
        let rival = Attachment { container: "b".into(), number: 9, ..one.clone() };
        let ranges =
            Ranges { pods: blocks(&["10.244.0.0/16", "10.244.3.0/24", "fd00::/48"]), inside: Vec::new() };
        let found = contents([&one, &rival].into_iter(), &ranges);
        let count: Vec<usize> = found.iter().map(BTreeSet::len).collect();
        assert_eq!(count, [1, 1, 2, 2, 1, 1, 1, 0, 1, 1]);
        let ports = found[4].first().unwrap();
        assert_eq!(*ports.key, [6, 0, 0, 0, 0x1f, 0x90, 0, 0]);
        assert_eq!(ports.value, Some(Value::Bytes(Cow::Borrowed(&[10, 244, 0, 2, 0, 80, 0, 0]))));
        assert_eq!(*found[6].first().unwrap().key, [127, 0, 0, 1, 6, 0, 0, 0, 0x1f, 0x91, 0, 0]);
        assert_eq!(*found[8].first().unwrap().key, [10, 244, 0, 2, 10, 244, 0, 2]);
    }
}
