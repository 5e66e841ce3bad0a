//! The Service proxy: on a cluster's own node, and in a process of its own.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use api::FeatureGates;
use api::gate::Gate;
use component::Shutdown;
use proxy::file::{self, Fields};
use proxy::{Config, DetectLocal, LocalTraffic};
use tokio::sync::oneshot;

use crate::logging::LoggingConfiguration;
use crate::say::warn;
use crate::seat::Seat;
use crate::{alone, cli, logging, machine};

/// The user that upstream's role `system:node-proxier` is bound to.
pub(crate) const USER: &str = "system:kube-proxy";
/// The table of a proxy that runs alone. Upstream's, `kube-proxy`, is left to upstream's proxy.
const TABLE: &str = "ferrokube-kube-proxy";
/// The port of `/healthz`.
const HEALTHZ_PORT: u16 = 10256;

/// The table of a cluster's own proxy.
pub(crate) fn table(id: &str) -> String {
    format!("ferrokube-{id}-services")
}

/// The configuration of the proxy on a cluster's own node, whose pages listen where the kubelet does.
pub(crate) fn of_node(flags: &cli::Node, listening: IpAddr, seat: &Seat<'_>) -> Result<Config> {
    let pods = seat.pod_ranges().filter_map(|range| range.parse().ok()).collect();
    let mut config = Config {
        detect_local: DetectLocal::By(LocalTraffic::Blocks(pods)),
        healthz: Some(SocketAddr::new(listening, HEALTHZ_PORT)),
        clock: seat.clock,
        ..Config::new(table(&seat.dir.id()))
    };
    let Some(path) = &flags.kube_proxy_config else { return Ok(config) };
    let fields = read(path, "--kube-proxy-config")?;
    if !fields.logging.is_null() || !fields.feature_gates.is_empty() {
        warn(&format!(
            "{}: logging and featureGates have no effect here: the node has one log",
            path.display()
        ));
    }
    let own = config.clone();
    fields.apply(&mut config).with_context(|| unusable("--kube-proxy-config", path))?;
    // The cluster's ranges are known without the file.
    if config.detect_local == DetectLocal::By(LocalTraffic::Unknown) {
        config.detect_local = own.detect_local;
    }
    Ok(config)
}

/// Starts the proxy of a cluster's own node. A reason not to is told; the node goes on without.
pub(crate) fn start(config: Config, seat: &Seat<'_>) {
    let client = (seat.clients)("kube-proxy").of(USER);
    let (node, shutdown) = (seat.name.clone(), seat.shutdown.clone());
    seat.shutdown.spawn(async move {
        if let Err(error) = proxy::run(config, &client, &node, &shutdown).await {
            tracing::error!("Services cannot be reached on this node: {:#}", anyhow::Error::from(error));
        }
    });
}

/// Runs `ferrokube kube-proxy` until a signal stops it; Services stay in force.
pub(crate) async fn run(
    flags: &cli::KubeProxy,
    values: BTreeMap<String, String>,
    warnings: &[String],
) -> Result<()> {
    if flags.cleanup {
        for warning in warnings {
            warn(warning);
        }
        return proxy::remove(TABLE).context("the rules of Services could not be removed");
    }
    let mut told = warnings.to_vec();
    let (mut fields, gates) = if let Some(path) = &flags.config {
        told.extend(
            flags.fields.given().iter().map(|name| format!("--{name} has no effect beside --config")),
        );
        let (fields, warnings) = parse(path, "--config")?;
        told.extend(warnings);
        let gates = fields.feature_gates.iter().map(|(name, on)| format!("{name}={on}")).collect();
        (fields, gates)
    } else {
        if let Some(mode @ ("iptables" | "ipvs")) = flags.fields.proxy_mode.as_deref() {
            told.push(format!("--proxy-mode={mode} is done by nftables"));
        }
        (flags.fields.clone().into_fields(), flags.fields.feature_gates.clone())
    };
    told.extend(log(flags, &mut fields, &gates)?);
    for warning in told {
        warn(&warning);
    }
    let on = FeatureGates::parse(gates.iter().map(String::as_str)).context("invalid feature gates")?;
    let mut config = Config { flags: values, gates: on, ..Config::new(TABLE) };
    fields.apply(&mut config).context("the configuration cannot be used")?;
    let kubeconfig = match &flags.kubeconfig {
        Some(path) => path.clone(),
        None if fields.kubeconfig.is_empty() => {
            bail!(
                "--kubeconfig, or clientConnection.kubeconfig in the file of --config, must say where the API server is"
            )
        }
        None => PathBuf::from(std::mem::take(&mut fields.kubeconfig)),
    };
    let name = flags.hostname_override.clone().or(Some(fields.hostname_override).filter(|n| !n.is_empty()));
    let name = machine::node_name(name.as_deref())?;
    let client = alone::clients(&kubeconfig, "kube-proxy", false)?.of(USER);
    let shutdown = Shutdown::new();
    let (failed, failure) = oneshot::channel();
    let running = shutdown.child();
    shutdown.spawn(async move {
        let stopped = proxy::run(config, &client, &name, &running).await;
        // Nobody waits for it any more once a signal came.
        let _ = failed.send(stopped);
    });
    let working = async {
        match failure.await {
            Ok(Err(error)) => Err(anyhow::Error::from(error).context("the proxy cannot run")),
            _ => Ok(()),
        }
    };
    alone::until_signal(working, &shutdown).await
}

/// Gives the log its settings; a sentence for each feature that has no effect.
fn log(flags: &cli::KubeProxy, fields: &mut Fields, gates: &[String]) -> Result<Vec<String>> {
    let on = FeatureGates::parse(gates.iter().map(String::as_str)).context("invalid feature gates")?;
    let logging = match fields.logging.take() {
        serde_json::Value::Null => LoggingConfiguration::default(),
        value => serde_json::from_value(value).context("logging")?,
    };
    logging::apply(logging, &flags.logging, on)?;
    let without_effect = |gate: &Gate| {
        let of_log = matches!(gate, Gate::LoggingAlphaOptions | Gate::LoggingBetaOptions);
        !of_log && on.enabled(*gate) != gate.default()
    };
    let tell = |gate: Gate| {
        let (name, on) = (gate.name(), on.enabled(gate));
        format!("featureGates.{name}={on} has no effect here: the feature is not switched")
    };
    Ok(Gate::all().filter(without_effect).map(tell).collect())
}

/// Reads upstream's KubeProxyConfiguration, and tells of fields without effect.
fn read(path: &Path, flag: &str) -> Result<Fields> {
    let (fields, warnings) = parse(path, flag)?;
    for warning in warnings {
        warn(&warning);
    }
    Ok(fields)
}

/// Reads upstream's KubeProxyConfiguration; a sentence for each field without effect.
fn parse(path: &Path, flag: &str) -> Result<(Fields, Vec<String>)> {
    let text = std::fs::read_to_string(path).with_context(|| unusable(flag, path))?;
    let (fields, warnings) = file::parse(&text).with_context(|| unusable(flag, path))?;
    Ok((fields, warnings.into_iter().map(|warning| format!("{}: {warning}", path.display())).collect()))
}

fn unusable(flag: &str, path: &Path) -> String {
    format!("{flag} {} cannot be used", path.display())
}

impl cli::ProxyFields {
    /// The names of the flags that were given.
    fn given(&self) -> Vec<&'static str> {
        let flags = [
            (self.proxy_mode.is_some(), "proxy-mode"),
            (!self.feature_gates.is_empty(), "feature-gates"),
            (self.cluster_cidr.is_some(), "cluster-cidr"),
            (self.detect_local_mode.is_some(), "detect-local-mode"),
            (self.pod_bridge_interface.is_some(), "pod-bridge-interface"),
            (self.pod_interface_name_prefix.is_some(), "pod-interface-name-prefix"),
            (!self.nodeport_addresses.is_empty(), "nodeport-addresses"),
            (self.masquerade_all.is_some(), "masquerade-all"),
            (self.iptables_masquerade_bit.is_some(), "iptables-masquerade-bit"),
            (self.iptables_localhost_nodeports.is_some(), "iptables-localhost-nodeports"),
            (self.iptables_sync_period.is_some(), "iptables-sync-period"),
            (self.iptables_min_sync_period.is_some(), "iptables-min-sync-period"),
            (self.healthz_bind_address.is_some(), "healthz-bind-address"),
            (self.metrics_bind_address.is_some(), "metrics-bind-address"),
            (self.bind_address_hard_fail.is_some(), "bind-address-hard-fail"),
            (self.show_hidden_metrics_for_version.is_some(), "show-hidden-metrics-for-version"),
            (self.conntrack_max_per_core.is_some(), "conntrack-max-per-core"),
            (self.conntrack_min.is_some(), "conntrack-min"),
            (self.conntrack_tcp_be_liberal.is_some(), "conntrack-tcp-be-liberal"),
            (self.conntrack_tcp_timeout_close_wait.is_some(), "conntrack-tcp-timeout-close-wait"),
            (self.conntrack_tcp_timeout_established.is_some(), "conntrack-tcp-timeout-established"),
            (self.conntrack_udp_timeout.is_some(), "conntrack-udp-timeout"),
            (self.conntrack_udp_timeout_stream.is_some(), "conntrack-udp-timeout-stream"),
        ];
        flags.into_iter().filter_map(|(given, name)| given.then_some(name)).collect()
    }

    fn into_fields(self) -> Fields {
        let masquerade_all = self.masquerade_all.unwrap_or_default();
        Fields {
            mode: self.proxy_mode.unwrap_or_default(),
            cluster_cidr: self.cluster_cidr.unwrap_or_default(),
            detect_local_mode: self.detect_local_mode.unwrap_or_default(),
            bridge_interface: self.pod_bridge_interface.unwrap_or_default(),
            interface_name_prefix: self.pod_interface_name_prefix.unwrap_or_default(),
            node_port_addresses: self.nodeport_addresses,
            masquerade_all,
            iptables_masquerade_all: masquerade_all,
            masquerade_bit: self.iptables_masquerade_bit,
            iptables_masquerade_bit: self.iptables_masquerade_bit,
            localhost_node_ports: self.iptables_localhost_nodeports,
            sync_period: self.iptables_sync_period,
            min_sync_period: self.iptables_min_sync_period,
            healthz_bind_address: self.healthz_bind_address,
            metrics_bind_address: self.metrics_bind_address,
            bind_address_hard_fail: self.bind_address_hard_fail.unwrap_or_default(),
            show_hidden_metrics_for_version: self.show_hidden_metrics_for_version.unwrap_or_default(),
            conntrack_max_per_core: self.conntrack_max_per_core,
            conntrack_min: self.conntrack_min,
            conntrack_tcp_be_liberal: self.conntrack_tcp_be_liberal.unwrap_or_default(),
            conntrack_tcp_close_wait: self.conntrack_tcp_timeout_close_wait,
            conntrack_tcp_established: self.conntrack_tcp_timeout_established,
            conntrack_udp: self.conntrack_udp_timeout,
            conntrack_udp_stream: self.conntrack_udp_timeout_stream,
            ..Fields::default()
        }
    }
}
