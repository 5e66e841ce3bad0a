//! `KubeProxyConfiguration` v1alpha1, the file of upstream's `--config`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use compact_str::CompactString as Text;
use component::settings::{SettingError, Table};
use objects::Cidr;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::config::{Config, DetectLocal, NodePortAddresses};
use crate::settings::LocalTraffic;

const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
const KIND: &str = "KubeProxyConfiguration";
/// The fields that are not honoured.
const TABLE: &str = include_str!("kube_proxy_configuration.tsv");
/// The objects whose fields are settings of their own.
const GROUPS: [&str; 7] =
    ["clientConnection", "conntrack", "detectLocal", "iptables", "ipvs", "nftables", "winkernel"];

/// The reason for which a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It is no YAML or JSON, or no object.
    #[error("{0}")]
    Malformed(String),
    /// It is of another kind.
    #[error("no kind {kind:?} is registered for version {version:?}; a {KIND} of {API_VERSION} is wanted")]
    Kind {
        /// Its kind.
        kind: String,
        /// Its version.
        version: String,
    },
    /// A field asks for a missing guard or behaviour.
    #[error(transparent)]
    Refused(#[from] SettingError),
    /// A field has a value that it does not take.
    #[error("{field}: {why}")]
    Value {
        /// The field's path.
        field: &'static str,
        /// The reason.
        why: String,
    },
}

/// The fields that are honoured, by their paths.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fields {
    /// `bindAddressHardFail`
    #[serde(rename = "bindAddressHardFail")]
    pub bind_address_hard_fail: bool,
    /// `clientConnection.kubeconfig`: the file of the connection, which the caller opens.
    #[serde(rename = "clientConnection.kubeconfig")]
    pub kubeconfig: String,
    /// `clusterCIDR`
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: String,
    /// `conntrack.maxPerCore`
    #[serde(rename = "conntrack.maxPerCore")]
    pub conntrack_max_per_core: Option<u32>,
    /// `conntrack.min`
    #[serde(rename = "conntrack.min")]
    pub conntrack_min: Option<u32>,
    /// `conntrack.tcpBeLiberal`
    #[serde(rename = "conntrack.tcpBeLiberal")]
    pub conntrack_tcp_be_liberal: bool,
    /// `conntrack.tcpCloseWaitTimeout`
    #[serde(rename = "conntrack.tcpCloseWaitTimeout")]
    pub conntrack_tcp_close_wait: Option<String>,
    /// `conntrack.tcpEstablishedTimeout`
    #[serde(rename = "conntrack.tcpEstablishedTimeout")]
    pub conntrack_tcp_established: Option<String>,
    /// `conntrack.udpTimeout`
    #[serde(rename = "conntrack.udpTimeout")]
    pub conntrack_udp: Option<String>,
    /// `conntrack.udpStreamTimeout`
    #[serde(rename = "conntrack.udpStreamTimeout")]
    pub conntrack_udp_stream: Option<String>,
    /// `detectLocal.bridgeInterface`
    #[serde(rename = "detectLocal.bridgeInterface")]
    pub bridge_interface: String,
    /// `detectLocal.interfaceNamePrefix`
    #[serde(rename = "detectLocal.interfaceNamePrefix")]
    pub interface_name_prefix: String,
    /// `detectLocalMode`
    #[serde(rename = "detectLocalMode")]
    pub detect_local_mode: String,
    /// `featureGates`, which the caller reads.
    #[serde(rename = "featureGates")]
    pub feature_gates: BTreeMap<String, bool>,
    /// `healthzBindAddress`
    #[serde(rename = "healthzBindAddress")]
    pub healthz_bind_address: Option<String>,
    /// `hostnameOverride`: the node's name, which the caller uses.
    #[serde(rename = "hostnameOverride")]
    pub hostname_override: String,
    /// `iptables.localhostNodePorts`
    #[serde(rename = "iptables.localhostNodePorts")]
    pub localhost_node_ports: Option<bool>,
    /// `iptables.masqueradeAll`
    #[serde(rename = "iptables.masqueradeAll")]
    pub iptables_masquerade_all: bool,
    /// `iptables.masqueradeBit`
    #[serde(rename = "iptables.masqueradeBit")]
    pub iptables_masquerade_bit: Option<u8>,
    /// `logging`, which the caller reads; null if it is not there.
    pub logging: Value,
    /// `metricsBindAddress`
    #[serde(rename = "metricsBindAddress")]
    pub metrics_bind_address: Option<String>,
    /// `mode`: `iptables` and `ipvs` are taken for nftables; with `userspace`, an older mode of upstream's, the node
    /// forwards connections itself.
    pub mode: String,
    /// `showHiddenMetricsForVersion`
    #[serde(rename = "showHiddenMetricsForVersion")]
    pub show_hidden_metrics_for_version: String,
    /// `nftables.masqueradeAll`
    #[serde(rename = "nftables.masqueradeAll")]
    pub masquerade_all: bool,
    /// `nftables.masqueradeBit`
    #[serde(rename = "nftables.masqueradeBit")]
    pub masquerade_bit: Option<u8>,
    /// `nftables.minSyncPeriod`
    #[serde(rename = "nftables.minSyncPeriod")]
    pub min_sync_period: Option<String>,
    /// `nftables.syncPeriod`
    #[serde(rename = "nftables.syncPeriod")]
    pub sync_period: Option<String>,
    /// `nodePortAddresses`
    #[serde(rename = "nodePortAddresses")]
    pub node_port_addresses: Vec<String>,
}

/// Reads a file; the fields, and a sentence for each that has no effect here.
///
/// # Errors
/// If it is not of the kind, or a field is unknown or refused.
pub fn parse(text: &str) -> Result<(Fields, Vec<String>), FileError> {
    let malformed = |why: String| FileError::Malformed(why);
    let tree = api::yaml::parse(text.as_bytes()).map_err(|e| malformed(e.to_string()))?;
    let mut json = Vec::new();
    api::codec::json::encode_any(&tree, &mut json);
    let value = serde_json::from_slice(&json).map_err(|e| malformed(e.to_string()))?;
    let Value::Object(mut all) = value else { return Err(malformed("it is no object".into())) };
    let text = |value: Option<Value>| value.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (text(all.remove("apiVersion")), text(all.remove("kind")));
    if version != API_VERSION || kind != KIND {
        return Err(FileError::Kind { kind, version });
    }
    let table = Table::parse(TABLE).map_err(|line| malformed(format!("line {line} of the table is none")))?;
    let (mut honoured, mut warnings) = (Map::new(), Vec::new());
    sift(&table, "", all, &mut honoured, &mut warnings)?;
    let fields: Fields = serde_json::from_value(Value::Object(honoured))
        .map_err(|e| malformed(format!("strict decoding error: {e}")))?;
    if matches!(fields.mode.as_str(), "iptables" | "ipvs") {
        warnings.push(format!("mode: {:?} is done by nftables", fields.mode));
    }
    Ok((fields, warnings))
}

/// Judges each field of an object at a path; the honoured ones are left in `honoured` by their paths.
fn sift(
    table: &Table,
    at: &str,
    fields: Map<String, Value>,
    honoured: &mut Map<String, Value>,
    warnings: &mut Vec<String>,
) -> Result<(), FileError> {
    for (name, value) in fields {
        let path = if at.is_empty() { name } else { format!("{at}.{name}") };
        let text = match &value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match value {
            Value::Object(below) if GROUPS.contains(&path.as_str()) => {
                sift(table, &path, below, honoured, warnings)?;
            }
            value => match table.judge(&path, &path, &text) {
                Some(verdict) => warnings.extend(verdict?),
                None => drop(honoured.insert(path, value)),
            },
        }
    }
    Ok(())
}

impl Fields {
    /// Puts the fields over a configuration.
    ///
    /// # Errors
    /// If a field has a value that it does not take.
    pub fn apply(&self, config: &mut Config) -> Result<(), FileError> {
        let bad = |field, why: &dyn ToString| FileError::Value { field, why: why.to_string() };
        if !matches!(self.mode.as_str(), "" | "nftables" | "iptables" | "ipvs" | "userspace") {
            return Err(bad("mode", &format!("unknown mode {:?}", self.mode)));
        }
        config.forward = self.mode == "userspace";
        let iptables = self.mode == "iptables";
        let bit = if iptables { self.iptables_masquerade_bit } else { self.masquerade_bit };
        if let Some(bit) = bit {
            let field = if iptables { "iptables.masqueradeBit" } else { "nftables.masqueradeBit" };
            config.masquerade_bit = Some(bit)
                .filter(|b| *b < 32)
                .ok_or_else(|| bad(field, &"must be within the range [0, 31]"))?;
        }
        config.masquerade_all = if iptables { self.iptables_masquerade_all } else { self.masquerade_all };
        if let Some(open) = self.localhost_node_ports {
            config.localhost_node_ports = open;
        }
        config.bind_address_hard_fail = self.bind_address_hard_fail;
        component::shown::check_hidden_for(&self.show_hidden_metrics_for_version)
            .map_err(|why| bad("showHiddenMetricsForVersion", &why))?;
        config.hidden_metrics_for.clone_from(&self.show_hidden_metrics_for_version);
        for (field, text, to) in [
            ("healthzBindAddress", &self.healthz_bind_address, (&mut config.healthz, 10256)),
            ("metricsBindAddress", &self.metrics_bind_address, (&mut config.metrics, 10249)),
        ] {
            if let Some(text) = text {
                *to.0 = address(text, to.1).map_err(|why| bad(field, &why))?;
            }
        }
        let conntrack = &mut config.conntrack;
        conntrack.max_per_core = self.conntrack_max_per_core.unwrap_or(conntrack.max_per_core);
        conntrack.min = self.conntrack_min.unwrap_or(conntrack.min);
        conntrack.tcp_be_liberal = self.conntrack_tcp_be_liberal;
        for (field, text, to) in [
            (
                "conntrack.tcpEstablishedTimeout",
                &self.conntrack_tcp_established,
                &mut conntrack.tcp_established,
            ),
            ("conntrack.tcpCloseWaitTimeout", &self.conntrack_tcp_close_wait, &mut conntrack.tcp_close_wait),
            ("conntrack.udpTimeout", &self.conntrack_udp, &mut conntrack.udp),
            ("conntrack.udpStreamTimeout", &self.conntrack_udp_stream, &mut conntrack.udp_stream),
            ("nftables.minSyncPeriod", &self.min_sync_period, &mut config.min_sync_period),
            ("nftables.syncPeriod", &self.sync_period, &mut config.sync_period),
        ] {
            if let Some(text) = text {
                let period = api::time::parse_duration(text).and_then(|d| Duration::try_from(d).ok());
                *to = period.ok_or_else(|| bad(field, &format!("invalid duration {text:?}")))?;
            }
        }
        if config.sync_period.is_zero() {
            return Err(bad("nftables.syncPeriod", &"must be greater than 0"));
        }
        config.detect_local = self.detect_local()?;
        config.node_port_addresses = match self.node_port_addresses.as_slice() {
            [] => NodePortAddresses::All,
            [one] if one == "primary" => NodePortAddresses::Primary,
            blocks => NodePortAddresses::Blocks(
                blocks
                    .iter()
                    .map(|text| text.parse())
                    .collect::<Result<_, _>>()
                    .map_err(|e: objects::CidrError| bad("nodePortAddresses", &e))?,
            ),
        };
        Ok(())
    }

    fn detect_local(&self) -> Result<DetectLocal, FileError> {
        let bad = |field, why: String| FileError::Value { field, why };
        let named = |field, name: &str| {
            let fits = !name.is_empty() && name.len() < 16;
            fits.then(|| Text::from(name))
                .ok_or_else(|| bad(field, "the name of an interface is wanted".into()))
        };
        let blocks: Vec<Cidr> = self
            .cluster_cidr
            .split(',')
            .filter(|text| !text.is_empty())
            .map(|text| text.trim().parse())
            .collect::<Result<_, _>>()
            .map_err(|e: objects::CidrError| bad("clusterCIDR", e.to_string()))?;
        Ok(match self.detect_local_mode.as_str() {
            "" | "ClusterCIDR" if blocks.is_empty() => DetectLocal::By(LocalTraffic::Unknown),
            "" | "ClusterCIDR" => DetectLocal::By(LocalTraffic::Blocks(blocks)),
            "NodeCIDR" => DetectLocal::NodeBlocks,
            "BridgeInterface" => DetectLocal::By(LocalTraffic::Interface(named(
                "detectLocal.bridgeInterface",
                &self.bridge_interface,
            )?)),
            "InterfaceNamePrefix" => DetectLocal::By(LocalTraffic::InterfacePrefix(named(
                "detectLocal.interfaceNamePrefix",
                &self.interface_name_prefix,
            )?)),
            other => return Err(bad("detectLocalMode", format!("unknown mode {other:?}"))),
        })
    }
}

/// An address with a port, or an address alone; "" for none.
fn address(text: &str, port: u16) -> Result<Option<SocketAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    // Go's listeners take a port alone.
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Ok(Some((IpAddr::from(Ipv4Addr::UNSPECIFIED), port).into()));
    }
    let with_port = text.parse::<SocketAddr>().ok();
    let alone = || text.parse::<IpAddr>().ok().map(|ip| (ip, port).into());
    with_port.or_else(alone).map(Some).ok_or_else(|| format!("{text:?} is no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fields: &str, expected: Result<(&str, &[&str]), &str>) {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}");
        let mut config = Config::new("t");
        let got = parse(&text).and_then(|(fields, warnings)| {
            fields.apply(&mut config)?;
            let shown = format!(
                "{:?} {:?} {:?} {:?} {} {} forward: {}",
                config.detect_local,
                config.node_port_addresses,
                config.healthz.map(|a| a.to_string()),
                config.metrics.map(|a| a.to_string()),
                config.masquerade_bit,
                config.localhost_node_ports,
                config.forward,
            );
            Ok((shown, warnings))
        });
        match (got, expected) {
            (Ok((shown, warnings)), Ok((wanted, warned))) => {
                assert!(shown.contains(wanted), "{fields}: {shown}");
                assert_eq!(warnings, warned, "{fields}");
            }
            (Err(error), Err(wanted)) => assert_eq!(error.to_string(), wanted, "{fields}"),
            (got, _) => panic!("{fields}: {got:?}"),
        }
    }

    #[test]
    fn fields_are_honoured_warned_of_or_refused() {
        check("mode: nftables", Ok(("By(Unknown) All", &[])));
        check(
            "mode: iptables\niptables: {masqueradeBit: 7, localhostNodePorts: false}",
            Ok(("7 false", &["mode: \"iptables\" is done by nftables"])),
        );
        check("mode: userspace", Ok(("forward: true", &[])));
        check("clusterCIDR: 10.0.0.0/8,fd00::/8", Ok(("Blocks", &[])));
        check("detectLocalMode: NodeCIDR\nnodePortAddresses: [primary]", Ok(("NodeBlocks Primary", &[])));
        check(
            "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}",
            Ok(("Interface(\"cni0\")", &[])),
        );
        check("metricsBindAddress: ''\nhealthzBindAddress: ':1'", Ok(("Some(\"0.0.0.0:1\") None", &[])));
        check("healthzBindAddress: '::1'", Ok(("[::1]:10256", &[])));
        check(
            "oomScoreAdj: -999",
            Ok(("", &["oomScoreAdj has no effect here: the process may do other work as well"])),
        );
        check("mode: kernelspace", Err("mode: unknown mode \"kernelspace\""));
        check(
            "nftables: {masqueradeBit: 32}",
            Err("nftables.masqueradeBit: must be within the range [0, 31]"),
        );
        check("nftables: {syncPeriod: 0s}", Err("nftables.syncPeriod: must be greater than 0"));
        check(
            "detectLocalMode: BridgeInterface",
            Err("detectLocal.bridgeInterface: the name of an interface is wanted"),
        );
        check("conntrack: {maxPerCore: 1, min: 0, udpTimeout: 5s, tcpBeLiberal: true}", Ok(("", &[])));
        check(
            "conntrack: {min: -1}",
            Err("strict decoding error: invalid value: integer `-1`, expected u32"),
        );
        check("conntrack: {udpTimeout: x}", Err("conntrack.udpTimeout: invalid duration \"x\""));
        check("nodePortAddresses: [x]", Err("nodePortAddresses: invalid CIDR address: x"));
        check(
            "enableProfiling: true",
            Ok(("", &["enableProfiling has no effect here: there are no profiles"])),
        );
        check(
            "featureGates: {A: maybe}",
            Err("strict decoding error: invalid type: string \"maybe\", expected a boolean"),
        );
    }

    #[test]
    fn gates_and_the_log_are_left_to_the_caller() {
        let text = format!(
            "apiVersion: {API_VERSION}\nkind: {KIND}\nfeatureGates: {{A: true}}\nlogging: {{verbosity: 2}}"
        );
        let (fields, warnings) = parse(&text).unwrap();
        assert_eq!(fields.feature_gates, BTreeMap::from([("A".to_owned(), true)]));
        assert_eq!(fields.logging, serde_json::json!({ "verbosity": 2 }));
        assert!(warnings.is_empty());
    }

    #[test]
    fn other_kinds_are_refused() {
        assert!(matches!(parse("kind: Pod"), Err(FileError::Kind { .. })));
        assert!(matches!(parse("[1]"), Err(FileError::Malformed(_))));
    }
}
