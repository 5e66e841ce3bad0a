//! The records of the things that names stand for.

use std::collections::HashSet;
use std::net::IpAddr;

use super::authority;
use super::config::ZoneConfig;
use super::find::{Filter, Found, PortFilter};
use super::index::{Entry, Index};
use super::views::{Port, Reach, ServiceView, SliceView};
use crate::name::{QName, push_label};
use crate::packet::{Owner, Section, Writer, kind, pointer, reachable};

/// The version of the specification.
const VERSION: &[u8] = b"1.1.0";
/// The TTL of the version's record; that of the specification's example, and CoreDNS'.
const VERSION_TTL: u32 = 28_800;
/// The fewest bytes that a record takes.
const SMALLEST: usize = 16;

/// The records of one name.
pub(super) struct Records<'a, 'w, 'q> {
    pub(super) config: &'a ZoneConfig,
    pub(super) index: &'a Index,
    pub(super) writer: &'w mut Writer<'q>,
    /// The place of the name in the message.
    pub(super) owner: Owner<'static>,
    /// The name.
    pub(super) name: &'a QName,
    /// How many of its labels stand before the zone.
    pub(super) below: usize,
    /// The place of the zone's name in the message.
    pub(super) zone_at: usize,
}

/// A port of an endpoint, for an SRV record.
struct Target<'a> {
    slice: &'a SliceView,
    at: usize,
    port: u16,
}

impl Records<'_, '_, '_> {
    /// Writes the records of a type; whether the answer has any, written or not.
    pub(super) fn write(&mut self, found: Found<'_>, wanted: u16) -> bool {
        match (found, wanted) {
            (Found::Version, kind::TXT) => {
                self.record(kind::TXT, VERSION_TTL, |data| {
                    data.push(VERSION.len() as u8);
                    data.extend(VERSION);
                });
                true
            }
            (Found::Apex, kind::SOA) => {
                authority::start(
                    self.config,
                    self.index.serial,
                    self.writer,
                    (self.zone_at, Section::Answer),
                );
                true
            }
            (Found::Apex, kind::NS) => self.nameservers(),
            (Found::Nameserver, kind::A | kind::AAAA) => {
                self.addresses(self.config.nameservers.iter().copied(), wanted)
            }
            (Found::Pod(address), kind::A | kind::AAAA) => self.addresses([address].into_iter(), wanted),
            (Found::Cluster(_, addresses, _), kind::A | kind::AAAA) => {
                self.addresses(addresses.iter().copied(), wanted)
            }
            (Found::Cluster(service, addresses, ports), kind::SRV) => {
                self.cluster_ports(service, addresses, &ports)
            }
            (Found::Endpoints(entry, filter), kind::A | kind::AAAA) => self.endpoints(entry, &filter, wanted),
            (Found::Endpoints(entry, filter), kind::SRV) => self.endpoint_ports(entry, &filter),
            _ => false,
        }
    }

    fn record(&mut self, kind: u16, ttl: u32, data: impl FnOnce(&mut Vec<u8>)) -> Option<usize> {
        self.writer.record(Section::Answer, self.owner, kind, ttl, data)
    }

    /// Writes those of some addresses that are of a family, in any order.
    fn addresses(&mut self, addresses: impl Iterator<Item = IpAddr>, wanted: u16) -> bool {
        let mut addresses: Vec<IpAddr> = addresses.filter(|a| family(*a) == wanted).collect();
        fastrand::shuffle(&mut addresses);
        for address in &addresses {
            let ttl = self.config.ttl;
            self.record(wanted, ttl, |data| put_address(data, *address));
        }
        !addresses.is_empty()
    }

    /// Writes the addresses of endpoints that are of a family: as many as have room, from any place on, in any order.
    fn endpoints(&mut self, entry: &Entry, filter: &Filter, wanted: u16) -> bool {
        let slices: Vec<&SliceView> =
            entry.slices.iter().map(|s| &**s).filter(|s| filter.ports_of(s) > 0).collect();
        let total: usize = slices.iter().map(|s| s.addresses.len()).sum();
        let all = slices.iter().flat_map(|s| (0..s.addresses.len()).map(move |at| (*s, at)));
        let ours = all.cycle().skip(fastrand::usize(..total.max(1))).take(total);
        let ours = ours.filter(|(slice, at)| filter.takes(slice, *at));
        let ours = ours.filter_map(|(slice, at)| slice.addresses.get(at)).filter(|a| family(*a) == wanted);
        // One more than has room, so that the answer shows that it is cut.
        let room = self.writer.room() / SMALLEST + 1;
        let mut seen = HashSet::new();
        self.addresses(ours.filter(|a| seen.insert(*a)).take(room), wanted)
    }

    /// Writes SRV records of a Service's own ports, and its addresses.
    fn cluster_ports(&mut self, service: &ServiceView, addresses: &[IpAddr], ports: &PortFilter) -> bool {
        let ports: Vec<&Port> = service.ports.iter().filter(|p| ports.takes(p)).collect();
        let weight = weight(ports.len() * addresses.len());
        let target = self.target(None);
        let (mut seen, mut place) = (HashSet::new(), None);
        for number in ports.iter().filter_map(|p| p.number) {
            if seen.insert(number) {
                let at = self.service_record(weight, number, &target);
                place = place.or(at);
            }
        }
        for address in addresses {
            self.additional(place, &target, *address);
        }
        !seen.is_empty()
    }

    /// Writes SRV records of endpoints, and their addresses.
    fn endpoint_ports(&mut self, entry: &Entry, filter: &Filter) -> bool {
        let mut count = 0;
        let mut targets = Vec::new();
        for slice in &entry.slices {
            let ports = filter.ports_of(slice);
            for at in (0..slice.addresses.len()).filter(|at| ports > 0 && filter.takes(slice, *at)) {
                count += ports;
                let wanted = slice.ports.iter().filter(|p| filter.ports.takes(p)).filter_map(|p| p.number);
                targets.extend(wanted.map(|port| Target { slice, at, port }));
            }
        }
        fastrand::shuffle(&mut targets);
        let weight = weight(count);
        let (mut seen, mut addresses) = (HashSet::new(), Vec::new());
        for Target { slice, at, port } in &targets {
            if self.writer.is_full() {
                break;
            }
            let Some(address) = slice.addresses.get(*at) else { continue };
            let host = slice.hostname(*at).map_or_else(|| hostname(address), str::to_owned);
            let name = self.target(Some(&host));
            let place = if seen.insert((name.clone(), *port)) {
                self.service_record(weight, *port, &name)
            } else {
                None
            };
            addresses.push((place, name, address));
        }
        let mut added = HashSet::new();
        for (place, name, address) in addresses {
            if added.insert((name.clone(), address)) {
                self.additional(place, &name, address);
            }
        }
        !targets.is_empty()
    }

    /// The name of this Service, or of one of its endpoints; the zone stands there as it was asked for.
    fn target(&self, host: Option<&str>) -> Vec<u8> {
        let mut name = Vec::new();
        // A hostname that is no label cannot be asked for either.
        host.map(|h| push_label(&mut name, h.as_bytes()));
        name.extend(self.name.range(self.below - 3, self.below));
        name.extend(&self.name.asked()[self.name.start(self.below)..]);
        name
    }

    /// Writes an SRV record; the place of the target's name. (Such a name may not be compressed.)
    fn service_record(&mut self, weight: u16, port: u16, target: &[u8]) -> Option<usize> {
        let at = self.record(kind::SRV, self.config.ttl, |data| {
            data.extend([0, 0]);
            data.extend(weight.to_be_bytes());
            data.extend(port.to_be_bytes());
            data.extend(target);
        })?;
        Some(at + 6)
    }

    /// Writes the address of an SRV record's target.
    fn additional(&mut self, place: Option<usize>, name: &[u8], address: IpAddr) {
        let owner = place.filter(|at| reachable(*at)).map_or(Owner::Wire(name), Owner::At);
        self.writer.record(Section::Additional, owner, family(address), self.config.ttl, |data| {
            put_address(data, address);
        });
    }

    /// Writes the zone's name servers, and their addresses: Services, if these have the addresses.
    fn nameservers(&mut self) -> bool {
        let (mut seen, mut all) = (HashSet::new(), Vec::new());
        for address in &self.config.nameservers {
            let service = self.index.having(*address).filter_map(|e| e.service.as_deref());
            let mut own = service.filter(|s| matches!(&s.reach, Reach::Cluster(a) if a.contains(address)));
            let mut name = Vec::new();
            let labels = own.next().map(|s| [s.id.name.as_str(), s.id.namespace.as_str(), "svc"]);
            for label in labels.unwrap_or(["ns", "dns", ""]) {
                // The third label of a name server that is no Service is none.
                let _ = push_label(&mut name, label.as_bytes());
            }
            all.push((name, *address));
        }
        let (ttl, zone) = (self.config.ttl, pointer(self.zone_at));
        let mut places = Vec::new();
        for (name, address) in &all {
            let at = if seen.insert(name) {
                self.record(kind::NS, ttl, |data| {
                    data.extend(name);
                    data.extend(zone);
                })
            } else {
                places.iter().find(|(n, _, _)| *n == name).and_then(|(_, _, at)| *at)
            };
            places.push((name, *address, at));
        }
        for (name, address, at) in places {
            let whole = [name, &self.name.asked()[self.name.start(self.below)..]].concat();
            self.additional(at, &whole, address);
        }
        !all.is_empty()
    }
}

/// The type of an address' records.
fn family(address: IpAddr) -> u16 {
    if address.is_ipv4() { kind::A } else { kind::AAAA }
}

fn put_address(data: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(a) => data.extend(a.octets()),
        IpAddr::V6(a) => data.extend(a.octets()),
    }
}

/// The weight of each of so many records; CoreDNS' rule.
fn weight(count: usize) -> u16 {
    (100 / count.clamp(1, 100)) as u16
}

/// The label of an endpoint that has no hostname: its address with dashes, as CoreDNS writes it.
pub(super) fn hostname(address: IpAddr) -> String {
    let mut label = address.to_string().replace(['.', ':'], "-");
    if label.ends_with('-') {
        label.push('0');
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_addresses() {
        for (address, want) in
            [("10.0.0.1", "10-0-0-1"), ("5678:abcd::1", "5678-abcd--1"), ("fd00::", "fd00--0")]
        {
            assert_eq!(hostname(address.parse().unwrap()), want);
        }
    }

    #[test]
    fn weights() {
        let all: Vec<u16> = [0, 1, 2, 6, 100, 1000].into_iter().map(weight).collect();
        assert_eq!(all, [100, 100, 50, 16, 1, 1]);
    }
}
