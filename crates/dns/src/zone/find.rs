//! The meaning of a name within the cluster's zone.

use std::net::IpAddr;

use super::config::PodMode;
use super::index::{Entry, Index};
use super::views::{Port, Reach, ServiceView, SliceView};
use crate::name::QName;

/// The thing that a name stands for.
pub(crate) enum Found<'a> {
    /// There is no such name, nor one below it.
    Missing,
    /// There is such a name, or one below it, but it has no records.
    Nothing,
    /// The zone itself.
    Apex,
    /// `dns-version`.
    Version,
    /// `ns.dns`.
    Nameserver,
    /// A Pod's address.
    Pod(IpAddr),
    /// A Service with an external name.
    External(&'a crate::name::Name),
    /// A Service with addresses of its own.
    Cluster(&'a ServiceView, &'a [IpAddr], PortFilter),
    /// Endpoints of a Service.
    Endpoints(&'a Entry, Filter),
}

/// The ports that a name asks for: all, or those of a name and a protocol.
#[derive(Clone, Default)]
pub(crate) struct PortFilter(Option<Named>);

/// The name of a port, and its protocol.
type Named = (Box<[u8]>, Box<[u8]>);

impl PortFilter {
    pub(crate) fn takes(&self, port: &Port) -> bool {
        self.0.as_ref().is_none_or(|(name, protocol)| {
            port.name.as_bytes().eq_ignore_ascii_case(name) && port.protocol.as_bytes() == &**protocol
        })
    }
    /// Whether all ports are asked for.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_none()
    }
}

/// The endpoints that a name asks for.
#[derive(Clone, Default)]
pub(crate) struct Filter {
    pub(crate) ports: PortFilter,
    /// One endpoint's name: a hostname, or a dashed address.
    host: Option<(Box<[u8]>, Option<IpAddr>)>,
}

impl Filter {
    /// Whether an endpoint of a slice is asked for.
    pub(crate) fn takes(&self, slice: &SliceView, at: usize) -> bool {
        let Some((name, address)) = &self.host else { return true };
        match slice.hostname(at) {
            Some(hostname) => hostname.as_bytes() == &**name,
            None => address.is_some() && *address == slice.addresses.get(at),
        }
    }
    /// How many ports of a slice are asked for; endpoints without ports count as if they had one, as in CoreDNS.
    pub(crate) fn ports_of(&self, slice: &SliceView) -> usize {
        match slice.ports.len() {
            0 => usize::from(self.ports.is_all()),
            _ => slice.ports.iter().filter(|p| self.ports.takes(p)).count(),
        }
    }
    /// Whether any endpoint of an entry is asked for.
    fn any(&self, entry: &Entry) -> bool {
        entry
            .slices
            .iter()
            .any(|s| self.ports_of(s) > 0 && (0..s.addresses.len()).any(|at| self.takes(s, at)))
    }
}

/// The address that a label spells with dashes.
pub(crate) fn dashed(label: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(label).ok()?;
    let dashes = text.bytes().filter(|b| *b == b'-').count();
    if dashes == 3 && !text.contains("--") {
        return text.replace('-', ".").parse().ok();
    }
    text.replace('-', ":").parse().ok()
}

/// A label without the underscore before it.
fn plain(label: &[u8]) -> Box<[u8]> {
    label.strip_prefix(b"_").unwrap_or(label).into()
}

impl Index {
    /// Finds the thing that a name stands for, of which `before` labels stand before the zone.
    pub(crate) fn find(&self, name: &QName, before: usize, pods: PodMode) -> Found<'_> {
        let Some(last) = before.checked_sub(1) else { return Found::Apex };
        match (name.label(last), before) {
            (b"dns-version", 1) => Found::Version,
            // DIFFERENCE: upstream says NXDOMAIN to a name of which it has one below.
            (b"dns" | b"svc" | b"pod", 1) => Found::Nothing,
            (b"dns", 2) if name.label(0) == b"ns" => Found::Nameserver,
            (b"svc" | b"pod", _) if !self.has_namespace(name.range(before - 2, last)) => Found::Missing,
            (b"svc" | b"pod", 2) => Found::Nothing,
            (b"pod", 3) => self.find_pod(name, pods),
            (b"svc", 3..=5) => self.find_service(name, before),
            _ => Found::Missing,
        }
    }

    fn find_pod(&self, name: &QName, pods: PodMode) -> Found<'_> {
        let namespace = std::str::from_utf8(name.label(1)).unwrap_or_default();
        match (dashed(name.label(0)), pods) {
            (Some(address), PodMode::Insecure) => Found::Pod(address),
            (Some(address), PodMode::Verified) if self.has_pod(address, namespace) => Found::Pod(address),
            _ => Found::Missing,
        }
    }

    fn find_service(&self, name: &QName, before: usize) -> Found<'_> {
        let Some(entry) = self.entry(name.range(before - 3, before - 1)) else { return Found::Missing };
        let Some(service) = entry.service.as_deref() else { return Found::Missing };
        let mut filter = Filter::default();
        match before {
            3 => {}
            4 => {
                let label = name.label(0);
                filter.host = Some((label.into(), dashed(label)));
            }
            _ => filter.ports = PortFilter(Some((plain(name.label(0)), plain(name.label(1))))),
        }
        match &service.reach {
            Reach::External(target) if before == 3 => Found::External(target),
            Reach::External(_) => Found::Missing,
            Reach::Nothing if before == 3 => Found::Nothing,
            Reach::Cluster(addresses) if before != 4 => {
                let any = filter.ports.is_all() || service.ports.iter().any(|p| filter.ports.takes(p));
                if any { Found::Cluster(service, addresses, filter.ports) } else { Found::Missing }
            }
            _ if filter.any(entry) => Found::Endpoints(entry, filter),
            // DIFFERENCE: upstream says NXDOMAIN to `_tcp` before a Service, although names stand below it.
            _ if before == 4 && has_protocol(entry, service, name.label(0)) => Found::Nothing,
            _ => Found::Missing,
        }
    }
}

/// Whether a Service has named ports of a protocol, as `_tcp` names it.
fn has_protocol(entry: &Entry, service: &ServiceView, label: &[u8]) -> bool {
    let Some(protocol) = label.strip_prefix(b"_") else { return false };
    let named = |port: &Port| !port.name.is_empty() && port.protocol.as_bytes() == protocol;
    match service.reach {
        Reach::Cluster(_) => service.ports.iter().any(named),
        Reach::Headless => entry.slices.iter().any(|s| !s.addresses.is_empty() && s.ports.iter().any(named)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_dashes() {
        let check = |label: &str, want: Option<&str>| {
            assert_eq!(dashed(label.as_bytes()).map(|a| a.to_string()).as_deref(), want, "{label}");
        };
        check("10-0-0-1", Some("10.0.0.1"));
        check("10-0-0-256", None);
        check("fd00--1", Some("fd00::1"));
        check("fd00-0-0-0-0-0-0-1", Some("fd00::1"));
        check("1-2--0", Some("1:2::"));
        check("--0", Some("::"));
        check("web", None);
        check("", None);
    }
}
