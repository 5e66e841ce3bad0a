//! The settings that the rules depend on.

use compact_str::CompactString as Text;
use objects::Cidr;

/// The way in which traffic from Pods of this node is told from other traffic (upstream: `detectLocalMode`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LocalTraffic {
    /// It is not.
    #[default]
    Unknown,
    /// By the source address: the cluster's Pods, or this node's.
    Blocks(Vec<Cidr>),
    /// By the interface by which it comes.
    Interface(Text),
    /// By the beginning of the name of that interface.
    InterfacePrefix(Text),
}

/// The settings of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The bit of the packet's mark that asks for another source address: 0 to 31.
    pub masquerade_bit: u8,
    /// Whether all traffic to cluster addresses gets another source address.
    pub masquerade_all: bool,
    /// How traffic from Pods is known.
    pub local_traffic: LocalTraffic,
    /// The node's addresses at which node ports are open; `None` for all.
    pub node_port_addresses: Option<Vec<Cidr>>,
    /// Whether node ports are open at 127.0.0.1, too. It needs `route_localnet`.
    pub localhost_node_ports: bool,
    /// The ranges of cluster addresses: packets to addresses in them that no Service has are dropped.
    pub service_ranges: Vec<Cidr>,
    /// The node's own addresses, by which a balancer's source ranges tell whether the node may use it.
    pub node_addresses: Vec<std::net::IpAddr>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            masquerade_bit: 14,
            masquerade_all: false,
            local_traffic: LocalTraffic::Unknown,
            node_port_addresses: None,
            localhost_node_ports: false,
            service_ranges: Vec::new(),
            node_addresses: Vec::new(),
        }
    }
}

impl Settings {
    /// The mark that asks for another source address.
    pub(crate) fn mark(&self) -> u32 {
        1 << (self.masquerade_bit & 31)
    }
}
