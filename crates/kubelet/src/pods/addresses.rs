//! The addresses of Pods.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::{PodManager, spec};
use crate::config::Config;

/// Knows where Pods are reached.
#[derive(Clone)]
pub(crate) struct Addresses {
    pods: Arc<PodManager>,
    /// The node's primary address.
    node: Option<String>,
}

impl Addresses {
    /// Of the Pods of a node.
    pub(crate) fn new(config: &Config, pods: Arc<PodManager>) -> Self {
        Self { pods, node: config.node_ips.first().map(ToString::to_string) }
    }
    /// The primary address of a Pod, if it has one.
    pub(crate) fn of(&self, pod: &Pod) -> Option<String> {
        if spec::host_network(pod) {
            return self.node.clone();
        }
        let observed = self.pods.observed(spec::namespace(pod), spec::name(pod), Some(spec::uid(pod)))?;
        observed.ips().first().cloned()
    }
}

/// The addresses of a Pod in the order in which everybody is told of them: at most one of each family, that of the node's
/// primary address first. A runtime may report more, and in any order.
pub(crate) fn preferred(reported: &[String], node: Option<&IpAddr>) -> Vec<String> {
    let all: Vec<IpAddr> = reported.iter().filter_map(|ip| ip.parse().ok()).collect();
    let v6_first = node.is_some_and(IpAddr::is_ipv6);
    [v6_first, !v6_first]
        .into_iter()
        .filter_map(|v6| all.iter().find(|ip| ip.is_ipv6() == v6))
        .map(ToString::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's 12 cases of `TestSortPodIPs`, the 11 of `TestGenerateAPIPodStatusPodIPs` among them. DIFFERENCE: an IPv4
    /// address with leading zeros is none; no runtime writes one.
    #[test]
    fn one_of_each_family() {
        let check = |node: &str, reported: &[&str], expected: &[&str]| {
            let reported: Vec<String> = reported.iter().map(|ip| (*ip).to_owned()).collect();
            assert_eq!(preferred(&reported, node.parse().ok().as_ref()), expected, "{node} {reported:?}");
        };
        let (v4, v6) = ("10.0.0.1", "fd01::1234");
        check("", &[v4], &[v4]);
        check("", &[v4, v6], &[v4, v6]);
        check("192.168.1.1", &[v4, v6], &[v4, v6]);
        check("", &[v6, v4], &[v4, v6]);
        check("192.168.1.1", &[v6, v4], &[v4, v6]);
        check("fd00::5678", &[v4, v6], &[v6, v4]);
        check("fd00::5678", &[v6, v4], &[v6, v4]);
        check("fd00::5678", &[v4], &[v4]);
        check("", &[v6], &[v6]);
        check("", &[v4, "10.0.0.2", "10.0.0.3"], &[v4]);
        check("", &[v4, "10.0.0.2", v6, "10.0.0.3", "fd01::5678"], &[v4, v6]);
        check("", &["010.000.000.001", "fd01:0:0:0:0:0:0:1234"], &[v6]);
        check("", &["no address", ""], &[]);
    }
}
