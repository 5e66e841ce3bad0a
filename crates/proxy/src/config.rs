//! The configuration of a running proxy.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use api::FeatureGates;
use api::time::format_duration;
use component::{Clock, Registry};
use jiff::SignedDuration;
use objects::Cidr;
use serde_json::{Value, json};

use crate::limits::Conntrack;
use crate::settings::{LocalTraffic, Settings};

/// How traffic of Pods is told from other traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetectLocal {
    /// As the table is told.
    By(LocalTraffic),
    /// By the Pod addresses of this node (`NodeCIDR`).
    NodeBlocks,
}

/// The node's addresses at which node ports are open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// All.
    #[default]
    All,
    /// The Node's own addresses, the first of each family.
    Primary,
    /// Those in blocks.
    Blocks(Vec<Cidr>),
}

/// The configuration of a proxy. A caller of several clusters on one machine gives each another `table` and other
/// addresses.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name of the proxy's table, of the family `inet`.
    pub table: String,
    /// Whether the node forwards connections itself, even if the kernel has a packet filter.
    pub forward: bool,
    /// Upstream's `masqueradeBit`.
    pub masquerade_bit: u8,
    /// Upstream's `masqueradeAll`.
    pub masquerade_all: bool,
    /// Upstream's `detectLocalMode` with what belongs to it.
    pub detect_local: DetectLocal,
    /// Upstream's `nodePortAddresses`.
    pub node_port_addresses: NodePortAddresses,
    /// Upstream's `localhostNodePorts`: node ports at 127.0.0.1, too.
    pub localhost_node_ports: bool,
    /// Limits and times of tracked connections.
    pub conntrack: Conntrack,
    /// The least time between two commits; upstream's `minSyncPeriod`.
    pub min_sync_period: Duration,
    /// How often the table is looked at; upstream's `syncPeriod`.
    pub sync_period: Duration,
    /// The address of `/healthz` and `/livez`.
    pub healthz: Option<SocketAddr>,
    /// The address of `/metrics`, `/proxyMode` and `/configz`.
    pub metrics: Option<SocketAddr>,
    /// Whether it is an error if an address is in use; otherwise it is tried again.
    pub bind_address_hard_fail: bool,
    /// The release whose hidden metrics are shown, which are none here; upstream's `showHiddenMetricsForVersion`.
    pub hidden_metrics_for: String,
    /// The flags with their values, for `/flagz`.
    pub flags: BTreeMap<String, String>,
    /// The features that are on: `ComponentStatusz` and `ComponentFlagz` count here.
    pub gates: FeatureGates,
    /// The clock.
    pub clock: Clock,
    /// Those whose metrics are told at `/metrics`, too.
    pub registry: Registry,
}

impl Config {
    /// Upstream's defaults, with a table of this name.
    pub fn new(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            forward: false,
            masquerade_bit: 14,
            masquerade_all: false,
            detect_local: DetectLocal::By(LocalTraffic::Unknown),
            node_port_addresses: NodePortAddresses::All,
            localhost_node_ports: true,
            conntrack: Conntrack::default(),
            min_sync_period: Duration::ZERO,
            sync_period: Duration::from_secs(30),
            healthz: Some(([0, 0, 0, 0], 10256).into()),
            metrics: Some(([127, 0, 0, 1], 10249).into()),
            bind_address_hard_fail: false,
            hidden_metrics_for: String::new(),
            flags: BTreeMap::new(),
            gates: FeatureGates::default(),
            clock: Clock::system(),
            registry: Registry::default(),
        }
    }

    /// The configuration as `/configz` shows it: a `KubeProxyConfiguration`.
    pub(crate) fn shown(&self, mode: &str) -> Value {
        let text = |blocks: &[Cidr]| blocks.iter().map(ToString::to_string).collect::<Vec<_>>();
        let time = |time: Duration| SignedDuration::try_from(time).map(format_duration).unwrap_or_default();
        let address = |address: Option<SocketAddr>| address.map(|a| a.to_string()).unwrap_or_default();
        let (detect, blocks, bridge, prefix) = match &self.detect_local {
            DetectLocal::NodeBlocks => ("NodeCIDR", Vec::new(), "", ""),
            DetectLocal::By(LocalTraffic::Unknown) => ("ClusterCIDR", Vec::new(), "", ""),
            DetectLocal::By(LocalTraffic::Blocks(blocks)) => ("ClusterCIDR", text(blocks), "", ""),
            DetectLocal::By(LocalTraffic::Interface(name)) => ("BridgeInterface", Vec::new(), &**name, ""),
            DetectLocal::By(LocalTraffic::InterfacePrefix(name)) => {
                ("InterfaceNamePrefix", Vec::new(), "", &**name)
            }
        };
        let node_ports = match &self.node_port_addresses {
            NodePortAddresses::All => Vec::new(),
            NodePortAddresses::Primary => vec!["primary".to_owned()],
            NodePortAddresses::Blocks(blocks) => text(blocks),
        };
        let conntrack = &self.conntrack;
        json!({
            "bindAddressHardFail": self.bind_address_hard_fail,
            "clusterCIDR": blocks.join(","),
            "conntrack": {
                "maxPerCore": conntrack.max_per_core,
                "min": conntrack.min,
                "tcpBeLiberal": conntrack.tcp_be_liberal,
                "tcpCloseWaitTimeout": time(conntrack.tcp_close_wait),
                "tcpEstablishedTimeout": time(conntrack.tcp_established),
                "udpStreamTimeout": time(conntrack.udp_stream),
                "udpTimeout": time(conntrack.udp),
            },
            "detectLocal": {"bridgeInterface": bridge, "interfaceNamePrefix": prefix},
            "detectLocalMode": detect,
            "healthzBindAddress": address(self.healthz),
            "iptables": {"localhostNodePorts": self.localhost_node_ports},
            "metricsBindAddress": address(self.metrics),
            "showHiddenMetricsForVersion": self.hidden_metrics_for,
            "mode": mode,
            "nftables": {
                "masqueradeAll": self.masquerade_all,
                "masqueradeBit": self.masquerade_bit,
                "minSyncPeriod": time(self.min_sync_period),
                "syncPeriod": time(self.sync_period),
            },
            "nodePortAddresses": node_ports,
        })
    }

    /// The settings that do not depend on the Node.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            masquerade_bit: self.masquerade_bit,
            masquerade_all: self.masquerade_all,
            local_traffic: match &self.detect_local {
                DetectLocal::By(by) => by.clone(),
                DetectLocal::NodeBlocks => LocalTraffic::Unknown,
            },
            node_port_addresses: match &self.node_port_addresses {
                NodePortAddresses::All => None,
                // Nothing is open before the Node is known.
                NodePortAddresses::Primary => Some(Vec::new()),
                NodePortAddresses::Blocks(blocks) => Some(blocks.clone()),
            },
            localhost_node_ports: self.localhost_node_ports,
            ..Settings::default()
        }
    }
}
