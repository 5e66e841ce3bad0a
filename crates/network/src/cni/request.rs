//! A runtime's call.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CniError, code};

/// The versions of configurations that are taken, oldest first.
pub(crate) const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// A container's name becomes a part of a file's.
const LONGEST_NAME: usize = 200;
/// The longest name of a link.
const LONGEST_LINK: usize = 15;

/// The thing that the runtime wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// Join a container to the network.
    Add,
    /// Take it out.
    Del,
    /// Tell whether it is as it was made.
    Check,
    /// Remove what belongs to no container that the runtime knows.
    Gc,
    /// Tell whether ADD would work.
    Status,
}

impl Command {
    fn read(text: &str) -> Option<Self> {
        Some(match text {
            "ADD" => Self::Add,
            "DEL" => Self::Del,
            "CHECK" => Self::Check,
            "GC" => Self::Gc,
            "STATUS" => Self::Status,
            _ => return None,
        })
    }
    /// The first version that has it, as a place in [`VERSIONS`].
    fn since(self) -> usize {
        match self {
            Self::Add | Self::Del => 0,
            Self::Check => 2,
            Self::Gc | Self::Status => 4,
        }
    }
    fn is_about_a_container(self) -> bool {
        matches!(self, Self::Add | Self::Del | Self::Check)
    }
}

/// The call as the plugin passes it to the agent: its environment and its input, as they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Call {
    /// `CNI_COMMAND`.
    pub(crate) command: String,
    /// `CNI_CONTAINERID`.
    pub(crate) container: String,
    /// `CNI_NETNS`.
    pub(crate) namespace: String,
    /// `CNI_IFNAME`.
    pub(crate) interface: String,
    /// The configuration.
    pub(crate) config: Value,
}

/// A transport protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Its number in packets.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

/// A port of the node that leads to a port of the container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct HostPort {
    /// The protocol.
    pub(crate) protocol: Protocol,
    /// The node's address; none for all.
    pub(crate) address: Option<IpAddr>,
    /// The node's port.
    pub(crate) port: u16,
    /// The container's port.
    pub(crate) to: u16,
}

/// Limits in bits a second, with bursts in bits; 0 for none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Bandwidth {
    /// To the container.
    #[serde(alias = "IngressRate")]
    pub(crate) ingress_rate: u64,
    /// The burst of it.
    #[serde(alias = "IngressBurst")]
    pub(crate) ingress_burst: u64,
    /// From the container.
    #[serde(alias = "EgressRate")]
    pub(crate) egress_rate: u64,
    /// The burst of it.
    #[serde(alias = "EgressBurst")]
    pub(crate) egress_burst: u64,
}

/// A call that is well-formed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    pub(crate) command: Command,
    /// The configuration's version: one of [`VERSIONS`].
    pub(crate) version: &'static str,
    pub(crate) container: String,
    pub(crate) interface: String,
    /// The container's network namespace; empty if the runtime does not know it any more.
    pub(crate) namespace: PathBuf,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) bandwidth: Bandwidth,
    /// The result of the ADD, or of the plugins before.
    pub(crate) previous: Option<Value>,
    /// The containers, with their interfaces, that the runtime knows; for GC.
    pub(crate) valid: Vec<(String, String)>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    cni_version: String,
    name: String,
    runtime_config: RuntimeConfig,
    prev_result: Option<Value>,
    #[serde(rename = "cni.dev/valid-attachments")]
    valid: Option<Vec<Valid>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RuntimeConfig {
    port_mappings: Vec<PortMapping>,
    bandwidth: Bandwidth,
}

/// CRI-O writes the names as the conventions have them; containerd begins them with a capital, which plugins in Go do
/// not notice.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortMapping {
    #[serde(alias = "HostPort")]
    host_port: i64,
    #[serde(alias = "ContainerPort")]
    container_port: i64,
    #[serde(alias = "Protocol")]
    protocol: String,
    #[serde(default, rename = "hostIP", alias = "HostIP")]
    host_ip: String,
}

#[derive(Deserialize)]
struct Valid {
    #[serde(rename = "containerID")]
    container: String,
    #[serde(rename = "ifname")]
    interface: String,
}

impl Request {
    /// Reads a call; refuses what the specification refuses.
    pub(crate) fn read(call: &Call) -> Result<Self, CniError> {
        let unknown = || CniError::new(code::ENVIRONMENT, format!("unknown CNI_COMMAND: {}", call.command));
        let command = Command::read(&call.command).ok_or_else(unknown)?;
        environment(command, call)?;
        let decoding = |error| CniError::because(code::DECODING, "failed to decode the configuration", error);
        let config = Config::deserialize(&call.config).map_err(decoding)?;
        if !is_name(&config.name) {
            let msg = if config.name.is_empty() { "missing network name:" } else { "invalid network name:" };
            return Err(CniError::new(code::CONFIGURATION, format!("{msg} {}", config.name)));
        }
        let version = version(&config.cni_version)?;
        if version < command.since() {
            let msg = format!("config version does not allow {}", call.command);
            return Err(CniError::new(code::INCOMPATIBLE, msg));
        }
        let ports = config.runtime_config.port_mappings.iter().filter_map(|p| host_port(p).transpose());
        let missing = |what: &str| CniError::new(code::CONFIGURATION, format!("Required {what} missing"));
        if command == Command::Check && config.prev_result.is_none() {
            return Err(missing("prevResult"));
        }
        if command == Command::Gc && config.valid.is_none() {
            return Err(missing("cni.dev/valid-attachments"));
        }
        let valid = config.valid.unwrap_or_default();
        Ok(Self {
            command,
            version: VERSIONS[version],
            container: call.container.clone(),
            interface: call.interface.clone(),
            namespace: call.namespace.clone().into(),
            ports: ports.collect::<Result<_, _>>()?,
            bandwidth: config.runtime_config.bandwidth,
            previous: config.prev_result,
            valid: valid.into_iter().map(|v| (v.container, v.interface)).collect(),
        })
    }
}

/// The place of a version in [`VERSIONS`]; a configuration without one is of the first.
fn version(text: &str) -> Result<usize, CniError> {
    let text = if text.is_empty() { "0.1.0" } else { text };
    VERSIONS.iter().position(|v| *v == text).ok_or_else(|| {
        let details = format!("config is {text:?}, plugin supports {VERSIONS:?}");
        CniError::because(code::INCOMPATIBLE, "incompatible CNI versions", details)
    })
}

fn environment(command: Command, call: &Call) -> Result<(), CniError> {
    if !command.is_about_a_container() {
        return Ok(());
    }
    let refuse = |msg: &str, details: &str| Err(CniError::because(code::ENVIRONMENT, msg, details));
    let mut missing = Vec::new();
    for (name, value, wanted) in [
        ("CNI_CONTAINERID", &call.container, true),
        ("CNI_NETNS", &call.namespace, command != Command::Del),
        ("CNI_IFNAME", &call.interface, true),
    ] {
        if wanted && value.is_empty() {
            missing.push(name);
        }
    }
    if !missing.is_empty() {
        return refuse(&format!("required env variables [{}] missing", missing.join(",")), "");
    }
    if !is_name(&call.container) || call.container.len() > LONGEST_NAME {
        return refuse("invalid characters in containerID", &call.container);
    }
    let interface = call.interface.as_str();
    if interface.len() > LONGEST_LINK {
        return refuse("interface name is too long", "interface name should be less than 16 characters");
    }
    if interface == "." || interface == ".." {
        return refuse("interface name is . or ..", "");
    }
    if interface.chars().any(|c| c == '/' || c == ':' || c.is_whitespace() || c.is_control()) {
        return refuse("interface name contains / or : or whitespace characters", "");
    }
    Ok(())
}

/// Whether a text is a name of a network or container: letters, digits, and `_.-` within.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

/// A port that is to be opened; none for the node's port 0.
fn host_port(mapping: &PortMapping) -> Result<Option<HostPort>, CniError> {
    let refuse = |what: String| CniError::new(code::CONFIGURATION, what);
    if mapping.host_port == 0 {
        return Ok(None);
    }
    let port = |number: i64, what: &str| {
        u16::try_from(number)
            .ok()
            .filter(|p| *p > 0)
            .ok_or_else(|| refuse(format!("Invalid {what} port: {number}")))
    };
    let protocol = match mapping.protocol.to_ascii_lowercase().as_str() {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        other => return Err(refuse(format!("Invalid protocol: {other:?}"))),
    };
    let address = match mapping.host_ip.as_str() {
        "" => None,
        text => {
            let address: IpAddr =
                text.parse().map_err(|_| refuse(format!("Invalid host address: {text:?}")))?;
            Some(address).filter(|a| !a.is_unspecified())
        }
    };
    let (port, to) = (port(mapping.host_port, "host")?, port(mapping.container_port, "container")?);
    Ok(Some(HostPort { protocol, address, port, to }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(command: &str, config: Value) -> Call {
        Call {
            command: command.into(),
            container: "a1".into(),
            namespace: "/run/netns/x".into(),
            interface: "eth0".into(),
            config,
        }
    }

    #[test]
    fn calls_that_are_refused() {
        let check = |call: Call, number: u32, begin: &str| {
            let error = Request::read(&call).unwrap_err();
            assert_eq!(error.code, number, "{error}");
            assert!(error.to_string().starts_with(begin), "{error}");
        };
        let good = json!({"cniVersion": "1.1.0", "name": "n"});
        check(call("NOPE", good.clone()), 4, "unknown CNI_COMMAND: NOPE");
        let one = Call { container: String::new(), namespace: String::new(), ..call("ADD", good.clone()) };
        check(one, 4, "required env variables [CNI_CONTAINERID,CNI_NETNS] missing");
        check(Call { container: "../x".into(), ..call("ADD", good.clone()) }, 4, "invalid characters");
        check(Call { container: "x".repeat(201), ..call("DEL", good.clone()) }, 4, "invalid characters");
        for (name, why) in [
            ("0123456789abcdef", "interface name is too long"),
            ("..", "interface name is . or .."),
            ("a/b", "interface name contains /"),
            ("a b", "interface name contains /"),
        ] {
            check(Call { interface: name.into(), ..call("ADD", good.clone()) }, 4, why);
        }
        check(call("ADD", json!([1])), 6, "failed to decode the configuration");
        check(call("ADD", json!({"cniVersion": "1.1.0"})), 7, "missing network name:");
        check(call("ADD", json!({"cniVersion": "1.1.0", "name": "a/b"})), 7, "invalid network name:");
        for version in ["", "0.2.0", "1.2.0", "x"] {
            let config = json!({"cniVersion": version, "name": "n"});
            check(call("ADD", config), 1, "incompatible CNI versions; config is");
        }
        let old = json!({"cniVersion": "0.3.1", "name": "n", "prevResult": {}});
        check(call("CHECK", old), 1, "config version does not allow CHECK");
        let old = json!({"cniVersion": "1.0.0", "name": "n"});
        check(call("GC", old.clone()), 1, "config version does not allow GC");
        check(call("STATUS", old), 1, "config version does not allow STATUS");
        check(call("CHECK", good.clone()), 7, "Required prevResult missing");
        check(call("GC", good), 7, "Required cni.dev/valid-attachments missing");
        for (mapping, why) in [
            (json!({"hostPort": 70000, "containerPort": 1, "protocol": "tcp"}), "Invalid host port: 70000"),
            (json!({"hostPort": 1, "containerPort": 0, "protocol": "tcp"}), "Invalid container port: 0"),
            (json!({"hostPort": 1, "containerPort": 1, "protocol": "icmp"}), "Invalid protocol: \"icmp\""),
            (
                json!({"hostPort": 1, "containerPort": 1, "protocol": "tcp", "hostIP": "x"}),
                "Invalid host address: \"x\"",
            ),
        ] {
            let config =
                json!({"cniVersion": "1.1.0", "name": "n", "runtimeConfig": {"portMappings": [mapping]}});
            check(call("ADD", config), 7, why);
        }
    }

    #[test]
    fn a_whole_call() {
        let config = json!({
            "cniVersion": "0.3.0", "name": "n", "type": "t", "unknown": 1,
            "runtimeConfig": {
                "portMappings": [
                    {"hostPort": 8080, "containerPort": 80, "protocol": "TCP", "hostIP": "0.0.0.0"},
                    {"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": "127.0.0.1"},
                    {"hostPort": 0, "containerPort": 80, "protocol": "tcp"},
                ],
                "bandwidth": {"ingressRate": 1000},
            },
        });
        let request = Request::read(&call("ADD", config)).unwrap();
        assert_eq!((request.command, request.version), (Command::Add, "0.3.0"));
        let local = Some([127, 0, 0, 1].into());
        assert_eq!(
            request.ports,
            [
                HostPort { protocol: Protocol::Tcp, address: None, port: 8080, to: 80 },
                HostPort { protocol: Protocol::Udp, address: local, port: 53, to: 53 },
            ]
        );
        assert_eq!(request.bandwidth, Bandwidth { ingress_rate: 1000, ..Bandwidth::default() });
        let of_containerd = json!({"cniVersion": "1.1.0", "name": "n", "runtimeConfig": {
            "portMappings": [{"HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": "127.0.0.1"}],
            "bandwidth": {"IngressRate": 1, "IngressBurst": 2, "EgressRate": 3, "EgressBurst": 4},
        }});
        let request = Request::read(&call("ADD", of_containerd)).unwrap();
        assert_eq!(request.ports, [HostPort { protocol: Protocol::Tcp, address: local, port: 8080, to: 80 }]);
        let rates = Bandwidth { ingress_rate: 1, ingress_burst: 2, egress_rate: 3, egress_burst: 4 };
        assert_eq!(request.bandwidth, rates);
        let config = json!({"cniVersion": "1.1.0", "name": "n",
            "cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}]});
        let gc = Request::read(&Call { command: "GC".into(), config, ..Call::default() }).unwrap();
        assert_eq!(gc.valid, [("a".to_owned(), "eth0".to_owned())]);
        let del =
            Call { namespace: String::new(), ..call("DEL", json!({"cniVersion": "1.0.0", "name": "n"})) };
        assert_eq!(Request::read(&del).unwrap().namespace, PathBuf::new());
    }
}
