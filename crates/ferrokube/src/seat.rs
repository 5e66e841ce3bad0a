//! The surroundings of a node: the cluster that it belongs to, and the ways there. A node of `ferrokube up` has them in
//! its own process, one of `ferrokube agent` over the network; the node itself is the same.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use api::gate::{FeatureGates, Gate};
use client::{Client, Clients};
use component::{Clock, Shutdown};

use crate::built_in::PodNetwork;
use crate::data_dir::DataDir;
use crate::failure::Failure;

/// The parts of a node besides the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeParts {
    /// The pod network.
    pub(crate) network: bool,
    /// The Service proxy.
    pub(crate) proxy: bool,
    /// The DNS server.
    pub(crate) dns: bool,
    /// Network policies, by the pod network.
    pub(crate) policy: bool,
    /// The announcer of load balancers' addresses.
    pub(crate) balancer: bool,
}

impl NodeParts {
    /// Reads the parts' names, separated by commas.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Self { network: false, proxy: false, dns: false, policy: false, balancer: false };
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "network" => parts.network = true,
                "proxy" => parts.proxy = true,
                "dns" => parts.dns = true,
                "policy" => parts.policy = true,
                "balancer" => parts.balancer = true,
                other => {
                    return Err(format!(
                        "{other:?} is no part of a node: there are network, proxy, dns, policy and balancer"
                    ));
                }
            }
        }
        Ok(parts)
    }
    /// The parts' names, separated by commas.
    pub(crate) fn names(self) -> String {
        let all = [
            (self.network, "network"),
            (self.proxy, "proxy"),
            (self.dns, "dns"),
            (self.policy, "policy"),
            (self.balancer, "balancer"),
        ];
        all.iter().filter(|(there, _)| *there).map(|(_, name)| *name).collect::<Vec<_>>().join(",")
    }
}

/// The features of kubelets that are switched for a whole cluster, all of which are off where nobody says otherwise.
const SWITCHED: [Gate; 9] = [
    Gate::CRIListStreaming,
    Gate::CSIVolumeHealth,
    Gate::ChangeContainerStatusOnKubeletRestart,
    Gate::ClusterTrustBundleProjection,
    Gate::PodAndContainerStatsFromCRI,
    Gate::PodCertificateRequest,
    Gate::PodLogsQuerySplitStreams,
    Gate::RuntimeClassInImageCriApi,
    Gate::UserNamespacesHostNetworkSupport,
];

/// The gates of a cluster's kubelets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NodeFeatures(FeatureGates);

impl NodeFeatures {
    fn those(on: impl Fn(Gate) -> bool) -> Self {
        let switched = SWITCHED.into_iter().filter(|gate| on(*gate));
        Self(switched.fold(FeatureGates::default(), |gates, gate| gates.with(gate, true)))
    }

    /// Those of a cluster.
    pub(crate) fn of(gates: FeatureGates) -> Self {
        Self::those(|gate| gates.enabled(gate))
    }

    /// All gates of a kubelet.
    pub(crate) fn gates(self) -> FeatureGates {
        self.0
    }

    /// The names of those that are on, separated by commas.
    pub(crate) fn names(self) -> String {
        let on = SWITCHED.into_iter().filter(|gate| self.0.enabled(*gate));
        on.map(Gate::name).collect::<Vec<_>>().join(",")
    }

    /// Of names, separated by commas. A newer control plane may name some that are not known here.
    pub(crate) fn named(text: &str) -> Self {
        Self::those(|gate| text.split(',').any(|name| name.trim() == gate.name()))
    }
}

/// The name of a node with its addresses, the primary one first.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpAddr>,
}

/// The surroundings of a node.
pub(crate) struct Seat<'a> {
    /// The Node's name.
    pub(crate) name: String,
    /// The node's addresses, the primary one first.
    pub(crate) addresses: Vec<IpAddr>,
    /// The directory in which the node keeps everything.
    pub(crate) dir: &'a DataDir,
    /// Clients by user name, for a part of the node that leaves this name in `managedFields`.
    pub(crate) clients: Arc<dyn Fn(&'static str) -> Clients + Send + Sync>,
    /// The administrator's client, where the control plane is in this process.
    pub(crate) admin: Option<Client>,
    /// The kubeconfig that `down` removes.
    pub(crate) kubeconfig: PathBuf,
    /// The address on which the kubelet listens unless told otherwise.
    pub(crate) bind: IpAddr,
    /// The Pods' ranges, separated by commas.
    pub(crate) cluster_cidr: String,
    /// The Services' ranges, that of their default family first.
    pub(crate) service_cidrs: Vec<String>,
    /// The address of the cluster's DNS, if somebody told it; otherwise it is the tenth of the Services' addresses.
    pub(crate) cluster_dns: Option<IpAddr>,
    /// The TLS of the kubelet's server.
    pub(crate) tls: rustls::ServerConfig,
    /// The node's certificates that are kept good.
    pub(crate) certificates: kubelet::config::Certificates,
    /// The parts that run.
    pub(crate) parts: NodeParts,
    /// The features that are on.
    pub(crate) features: NodeFeatures,
    /// The Pod network of the built-in container runtime; none of another program's.
    pub(crate) pod_network: Option<Arc<PodNetwork>>,
    /// The number of nodes that share this machine.
    pub(crate) nodes_of_machine: u32,
    pub(crate) clock: Clock,
    pub(crate) shutdown: Shutdown,
    pub(crate) failure: Failure,
}

impl Seat<'_> {
    /// The Pods' ranges.
    pub(crate) fn pod_ranges(&self) -> impl Iterator<Item = &str> {
        self.cluster_cidr.split(',').map(str::trim).filter(|range| !range.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_nodes() {
        let check = |gates: &[&str], names: &str| {
            let features = NodeFeatures::of(FeatureGates::parse(gates.iter().copied()).unwrap());
            assert_eq!((features.names().as_str(), NodeFeatures::named(names)), (names, features));
        };
        check(&[], "");
        check(&["PodCertificateRequest=true"], "PodCertificateRequest");
        let trust = ["ClusterTrustBundle=true", "ClusterTrustBundleProjection=true"];
        check(&trust, "ClusterTrustBundleProjection");
        let all = [trust[0], trust[1], "PodCertificateRequest=true"];
        check(&all, "ClusterTrustBundleProjection,PodCertificateRequest");
        check(&["PodLogsQuerySplitStreams=true"], "PodLogsQuerySplitStreams");
        assert_eq!(NodeFeatures::named("OfTomorrow"), NodeFeatures::default());
        for gate in SWITCHED {
            assert!(!gate.default(), "{}", gate.name());
        }
    }

    #[test]
    fn parts_of_a_node() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(NodeParts::parse(text).ok().map(NodeParts::names).as_deref(), expected, "{text}");
        };
        check("", Some(""));
        check("dns, network", Some("network,dns"));
        check("balancer,network,policy,proxy,dns", Some("network,proxy,dns,policy,balancer"));
        check("network,mesh", None);
    }
}
