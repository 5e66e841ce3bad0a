//! The settings of a zone.

use std::net::IpAddr;

use objects::Cidr;

use crate::name::Name;

/// How names of Pods (`10-0-0-1.NAMESPACE.pod`) are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodMode {
    /// Not at all.
    Disabled,
    /// With the address that the name spells, in every namespace that is there.
    #[default]
    Insecure,
    /// If a Pod of the namespace has the address.
    Verified,
}

/// The settings of a zone.
#[derive(Debug, Clone)]
pub struct ZoneConfig {
    /// The cluster's domain.
    pub domain: Name,
    /// The TTL of records, in seconds.
    pub ttl: u32,
    /// How names of Pods are answered.
    pub pods: PodMode,
    /// The blocks of addresses that are the cluster's own: nobody else is asked for their names.
    pub reverse: Vec<Cidr>,
    /// The addresses at which DNS is reached: the zone's name servers.
    pub nameservers: Vec<IpAddr>,
}
