//! Further behaviour of the API server; named as upstream's.

use std::ops::RangeInclusive;
use std::sync::Arc;

use anyhow::{Result, bail};
use apiserver::config::{Config, LogFiles};
use clap::Args;
use futures::FutureExt;

use super::values::list;

/// Further behaviour of the API server.
#[derive(Debug, Args, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of upstream's")]
pub(crate) struct Behaviour {
    /// Whether containers may be privileged
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    allow_privileged: bool,
    /// Port of the nodes that leads to the kubernetes Service, in the range of --service-node-port-range; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    kubernetes_service_node_port: i64,
    /// Keeper of the endpoints of the kubernetes Service: lease, or none
    #[arg(long, value_name = "TYPE", default_value = "lease")]
    endpoint_reconciler_type: String,
    /// Types of a Node's addresses of which the first that it has leads to its kubelet
    #[arg(
        long,
        value_name = "TYPES",
        value_delimiter = ',',
        default_value = "InternalDNS,InternalIP,ExternalDNS,ExternalIP,Hostname"
    )]
    kubelet_preferred_address_types: Vec<String>,
    /// Bytes a second that go each way at most on a connection of exec, attach, port-forward or a proxy; 0 for any
    #[arg(long, value_name = "BYTES", default_value_t = 0, allow_negative_numbers = true)]
    max_connection_bytes_per_sec: i64,
    /// Whether kube-controller-manager removes the dependents of objects; otherwise no deletion waits for that
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    enable_garbage_collector: bool,
    /// Whether clients never get redirects of aggregated API servers
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    aggregator_reject_forwarding_redirect: bool,
    /// Whether the files of /var/log are served at /logs/
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    enable_logs_handler: bool,
}

/// The port of the nodes for the kubernetes Service, if it is one of the range; in upstream's words.
fn node_port(port: i64, range: &RangeInclusive<u16>) -> Result<u16> {
    let Ok(port) = u16::try_from(port) else {
        bail!(
            "--kubernetes-service-node-port {port} must be between 0 and 65535, inclusive. If 0, the Kubernetes master \
             service will be of type ClusterIP"
        );
    };
    if port > 0 && !range.contains(&port) {
        let (first, last) = (range.start(), range.end());
        bail!("kubernetes service node port range {first}-{last} doesn't contain {port}");
    }
    Ok(port)
}

/// Whether the endpoints of the kubernetes Service are kept, by the name of their keeper.
fn keeps_endpoints(keeper: &str) -> Result<bool> {
    match keeper {
        "" | "lease" => Ok(true),
        "none" => Ok(false),
        other => {
            bail!("Reconciler not implemented: {other}; use lease or none for --endpoint-reconciler-type")
        }
    }
}

impl Behaviour {
    /// Puts the flags into the server's configuration.
    pub(crate) fn configure(&self, config: &mut Config) -> Result<()> {
        config.privileged = self.allow_privileged;
        config.services.kubernetes_node_port =
            node_port(self.kubernetes_service_node_port, &config.services.node_ports)?;
        config.services.kubernetes_endpoints = keeps_endpoints(&self.endpoint_reconciler_type)?;
        config.calls.kubelet_addresses = list(&self.kubelet_preferred_address_types).to_vec();
        // As upstream: less than none is none.
        config.calls.bytes_per_second = u64::try_from(self.max_connection_bytes_per_sec).unwrap_or(0);
        config.calls.reject_redirects = self.aggregator_reject_forwarding_redirect;
        config.storage.garbage_collector = self.enable_garbage_collector;
        let logs = || -> LogFiles {
            Arc::new(|below: String| async move { kubelet::server::log_file(&below).await }.boxed())
        };
        config.logs = self.enable_logs_handler.then(logs);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_keepers() {
        let check = |port: i64, expected: Result<u16, &str>| {
            let got = node_port(port, &(30000..=32767)).map_err(|e| e.to_string());
            assert_eq!(got.as_ref().map_err(String::as_str).copied(), expected);
        };
        check(0, Ok(0));
        check(30443, Ok(30443));
        check(443, Err("kubernetes service node port range 30000-32767 doesn't contain 443"));
        let all = "must be between 0 and 65535, inclusive. If 0, the Kubernetes master service will be of type ClusterIP";
        check(-1, Err(&format!("--kubernetes-service-node-port -1 {all}")));
        check(70000, Err(&format!("--kubernetes-service-node-port 70000 {all}")));
        assert!(keeps_endpoints("lease").unwrap() && !keeps_endpoints("none").unwrap());
        let other = keeps_endpoints("master-count").unwrap_err().to_string();
        assert!(other.starts_with("Reconciler not implemented: master-count"), "{other}");
    }
}
