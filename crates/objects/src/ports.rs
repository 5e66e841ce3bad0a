//! Ports of a node that Pods use (upstream's `HostPortInfo`).

use k8s_openapi::api::core::v1::Pod;

use crate::pod;

/// The address that stands for all addresses of a node.
const ALL: &str = "0.0.0.0";

/// A port of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// The address, `0.0.0.0` for all.
    pub ip: String,
    /// The protocol, by default `TCP`.
    pub protocol: String,
    /// The port.
    pub port: i32,
}

impl HostPort {
    /// Whether two Pods of one node cannot have both ports.
    pub fn conflicts(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip == ALL || other.ip == ALL)
    }
}

/// The host ports of a Pod's containers and sidecars.
pub fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let or = |text: &Option<String>, default: &str| {
        text.as_deref().filter(|t| !t.is_empty()).unwrap_or(default).to_owned()
    };
    let ports = pod::running_containers(pod).flat_map(|c| c.ports.iter().flatten());
    ports
        .filter_map(|p| {
            let port = p.host_port.filter(|p| *p > 0)?;
            Some(HostPort { ip: or(&p.host_ip, ALL), protocol: or(&p.protocol, "TCP"), port })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(ports: Value) -> Pod {
        serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "ports": ports}]}})).unwrap()
    }

    fn port(protocol: &str, ip: &str, port: i32) -> Value {
        json!({"containerPort": 1, "hostPort": port, "protocol": protocol, "hostIP": ip})
    }

    /// The cases of upstream's `TestHostPortInfo_Check`.
    #[test]
    fn conflicts() {
        let check = |have: Value, want: Value, conflict: bool| {
            let (have, want) = (&host_ports(&pod(json!([have])))[0], &host_ports(&pod(json!([want])))[0]);
            assert_eq!(have.conflicts(want), conflict, "{have:?} {want:?}");
            assert_eq!(want.conflicts(have), conflict);
        };
        check(port("TCP", "0.0.0.0", 79), port("TCP", "0.0.0.0", 80), false);
        check(port("TCP", "127.0.0.1", 80), port("TCP", "0.0.0.0", 80), true);
        check(port("UDP", "127.0.0.1", 80), port("TCP", "127.0.0.1", 80), false);
        check(port("TCP", "127.0.0.1", 80), port("TCP", "127.0.0.2", 80), false);
        check(port("TCP", "127.0.0.1", 80), port("TCP", "127.0.0.1", 80), true);
        check(port("", "", 80), port("TCP", "10.0.10.10", 80), true);
    }

    #[test]
    fn ports_of_pods() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "containers": [{"name": "c", "ports": [{"containerPort": 1}, {"containerPort": 1, "hostPort": 80}]}],
            "initContainers": [
                {"name": "i", "ports": [{"containerPort": 1, "hostPort": 81}]},
                {"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 1, "hostPort": 82, "protocol": "UDP"}]},
            ]}}))
        .unwrap();
        let found: Vec<_> = host_ports(&pod).into_iter().map(|p| (p.ip, p.protocol, p.port)).collect();
        let want = |protocol: &str, port| ("0.0.0.0".to_owned(), protocol.to_owned(), port);
        assert_eq!(found, [want("TCP", 80), want("UDP", 82)]);
    }
}
