//! The ports of a Service, as this node's packets meet them (upstream: `pkg/proxy/serviceport.go`).

use std::net::IpAddr;

use client::Key;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use objects::Cidr;
use objects::backends::{Family, Policies, PortName};

/// The label by which a Service belongs to another proxy.
pub const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// The label of headless Services and of their slices.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// The time for which a client is remembered if a Service does not say one.
const AFFINITY_SECONDS: u32 = 10_800;

/// The numbers of protocols.
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// The number of a protocol.
pub(crate) fn protocol_number(name: &str) -> Option<u8> {
    match name {
        "" | "TCP" => Some(TCP),
        "UDP" => Some(UDP),
        "SCTP" => Some(132),
        _ => None,
    }
}

/// A port of a Service in one family of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) family: Family,
    pub(crate) name: PortName,
    pub(crate) protocol: u8,
    pub(crate) cluster: IpAddr,
    pub(crate) port: u16,
    /// 0 for none.
    pub(crate) node_port: u16,
    pub(crate) external: Vec<IpAddr>,
    pub(crate) balancers: Vec<IpAddr>,
    /// The clients of the balancers' addresses; empty for all.
    pub(crate) sources: Vec<Cidr>,
    pub(crate) policies: Policies,
    /// The seconds for which a client stays with its endpoint.
    pub(crate) affinity: Option<u32>,
}

/// A Service, as far as this node serves it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) ports: Vec<Port>,
    /// The port of the health check for load balancers.
    pub(crate) health_port: Option<u16>,
}

/// The key of a Service.
pub(crate) fn key_of(service: &Service) -> Key {
    let of = &service.metadata;
    Key::new(of.namespace.as_deref().unwrap_or_default(), of.name.as_deref().unwrap_or_default())
}

/// Reads a Service; one that is none of this proxy's has no ports.
pub(crate) fn read(service: &Service) -> Served {
    let Some(spec) = &service.spec else { return Served::default() };
    let labels = service.metadata.labels.as_ref();
    let labelled = |name: &str| labels.is_some_and(|labels| labels.contains_key(name));
    let cluster_ip = spec.cluster_ip.as_deref().unwrap_or_default();
    if matches!(cluster_ip, "" | "None")
        || spec.type_.as_deref() == Some("ExternalName")
        || labelled(OTHER_PROXY)
        || labelled(HEADLESS)
    {
        return Served::default();
    }
    let mut ports = Vec::new();
    for address in cluster_addresses(service) {
        for port in spec.ports.iter().flatten() {
            ports.extend(read_port(service, port, address));
        }
    }
    let external_local = external_local(service);
    let health = spec.health_check_node_port.and_then(|port| u16::try_from(port).ok());
    let balanced = spec.type_.as_deref() == Some("LoadBalancer");
    Served { ports, health_port: health.filter(|port| *port > 0 && balanced && external_local) }
}

/// The cluster addresses, one of each family at most.
fn cluster_addresses(service: &Service) -> Vec<IpAddr> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let all = spec.cluster_ips.iter().flatten();
    let mut found: Vec<IpAddr> = Vec::new();
    // An object of an old server has the single field alone.
    for text in all.chain(&spec.cluster_ip) {
        if let Ok(address) = text.parse::<IpAddr>()
            && found.iter().all(|known| known.is_ipv4() != address.is_ipv4())
        {
            found.push(address);
        }
    }
    found
}

fn external_local(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    let outside = match spec.type_.as_deref().unwrap_or("ClusterIP") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => spec.external_ips.as_ref().is_some_and(|all| !all.is_empty()),
        _ => false,
    };
    outside && spec.external_traffic_policy.as_deref() == Some("Local")
}

fn read_port(service: &Service, port: &ServicePort, cluster: IpAddr) -> Option<Port> {
    let spec = service.spec.as_ref()?;
    let family = Family::of(cluster);
    let number = |of: i32| u16::try_from(of).ok();
    let protocol_name = port.protocol.as_deref().unwrap_or("TCP");
    let addresses = |texts: &mut dyn Iterator<Item = &str>| {
        let mut all: Vec<IpAddr> =
            texts.filter_map(|t| t.parse().ok()).filter(|a| Family::of(*a) == family).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let external = addresses(&mut spec.external_ips.iter().flatten().map(String::as_str));
    let ingress = service.status.as_ref().and_then(|s| s.load_balancer.as_ref()?.ingress.as_ref());
    // An address of a balancer that proxies by itself is not this node's.
    let vips = ingress.into_iter().flatten().filter(|i| i.ip_mode.as_deref().unwrap_or("VIP") == "VIP");
    let balancers = addresses(&mut vips.filter_map(|i| i.ip.as_deref()));
    let mut sources: Vec<Cidr> = spec
        .load_balancer_source_ranges
        .iter()
        .flatten()
        .filter_map(|text| text.trim().parse().ok())
        .filter(|block: &Cidr| block.is_v6() == (family == Family::V6))
        .collect();
    if sources.iter().any(|block| block.prefix() == 0) {
        sources.clear();
    }
    let node_port = port.node_port.and_then(number).unwrap_or(0);
    let affinity = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
        let config = spec.session_affinity_config.as_ref().and_then(|c| c.client_ip.as_ref());
        let seconds = config.and_then(|c| c.timeout_seconds).and_then(|s| u32::try_from(s).ok());
        seconds.filter(|s| *s > 0).unwrap_or(AFFINITY_SECONDS)
    });
    Some(Port {
        family,
        name: PortName {
            name: port.name.as_deref().unwrap_or_default().into(),
            protocol: protocol_name.into(),
        },
        protocol: protocol_number(protocol_name)?,
        cluster,
        port: number(port.port).filter(|n| *n > 0)?,
        node_port,
        policies: Policies {
            internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            external_local: external_local(service),
            external: node_port != 0 || !external.is_empty() || !balancers.is_empty(),
        },
        external,
        balancers,
        sources,
        affinity,
    })
}
