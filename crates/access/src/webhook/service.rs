//! The backend of a Service to which a webhook's call goes.

use api::go::quote;
use serde::Deserialize;

use crate::reader::{Reader, ResourceName, read};

const SERVICES: ResourceName = ("", "services");
const SLICES: ResourceName = ("discovery.k8s.io", "endpointslices");
/// The label of an EndpointSlice that names its Service.
const OF_SERVICE: &str = "kubernetes.io/service-name";

#[derive(Deserialize)]
struct Service {
    spec: ServiceSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServiceSpec {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default, rename = "clusterIP")]
    cluster_ip: String,
    #[serde(default)]
    external_name: String,
    #[serde(default)]
    ports: Vec<ServicePort>,
    #[serde(default)]
    ip_families: Vec<String>,
}

#[derive(Deserialize)]
struct ServicePort {
    #[serde(default)]
    name: String,
    port: u16,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Slice {
    #[serde(default)]
    address_type: String,
    #[serde(default)]
    ports: Option<Vec<SlicePort>>,
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
}

#[derive(Deserialize)]
struct SlicePort {
    name: Option<String>,
    port: Option<u16>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
}

#[derive(Deserialize, Default)]
struct Conditions {
    ready: Option<bool>,
}

/// Where a Service leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Backend {
    /// An address, or the name that an ExternalName gives.
    pub(super) host: String,
    pub(super) port: u16,
    /// It is an endpoint.
    pub(super) is_endpoint: bool,
}

fn spec(reader: &dyn Reader, namespace: &str, name: &str) -> Result<ServiceSpec, String> {
    let service = reader.get(SERVICES, namespace, name).and_then(|object| read::<Service>(&object));
    Ok(service.ok_or_else(|| format!("service {} not found", quote(name)))?.spec)
}

impl ServiceSpec {
    /// The port of this number; none of a Service that is but a name. The errors are upstream's.
    fn port(&self, name: &str, port: u16) -> Result<Option<&ServicePort>, String> {
        match self.kind.as_str() {
            "ExternalName" => return Ok(None),
            "ClusterIP" if self.cluster_ip == "None" => {
                return Err("cannot route to service with ClusterIP \"None\"".into());
            }
            "ClusterIP" | "NodePort" | "LoadBalancer" => {}
            other => return Err(format!("unsupported service type {}", quote(other))),
        }
        let found = self.ports.iter().find(|p| p.port == port);
        found.map(Some).ok_or_else(|| format!("no service port {port} found for service {}", quote(name)))
    }
}

/// The host and the port of a Service's own address, or of the name that it stands for (upstream: `ResolveCluster`).
pub(super) fn authority(
    reader: &dyn Reader,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<String, String> {
    let spec = spec(reader, namespace, name)?;
    let host = if spec.port(name, port)?.is_some() { spec.cluster_ip } else { spec.external_name };
    Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

/// Finds the backend of a Service's port: a ready endpoint, straight from its EndpointSlices, so that a call needs no
/// proxy on this machine. The errors are upstream's, and so are the types of Services that are refused.
pub(super) fn resolve(
    reader: &dyn Reader,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<Backend, String> {
    let spec = spec(reader, namespace, name)?;
    let Some(found) = spec.port(name, port)? else {
        return Ok(Backend { host: spec.external_name, port, is_endpoint: false });
    };
    let slices = reader.list(SLICES, namespace).into_iter();
    let slices = slices.filter(|object| object.label(OF_SERVICE) == Some(name));
    let mut slices: Vec<Slice> = slices.filter_map(|object| read(&object)).collect();
    fastrand::shuffle(&mut slices);
    // The addresses of the first family go before others.
    slices.sort_by_key(|slice| spec.ip_families.first() != Some(&slice.address_type));
    for slice in &slices {
        let of_port =
            slice.ports.iter().flatten().find(|p| p.name.as_deref().unwrap_or_default() == found.name);
        let Some(port) = of_port.and_then(|p| p.port) else { continue };
        let ready: Vec<&str> = slice
            .endpoints
            .iter()
            .flatten()
            .filter(|e| e.conditions.ready.unwrap_or(true))
            .filter_map(|e| e.addresses.first().map(String::as_str))
            .collect();
        if !ready.is_empty() {
            let host = ready[fastrand::usize(..ready.len())].to_owned();
            return Ok(Backend { host, port, is_endpoint: true });
        }
    }
    Err(format!("no endpoints available for service {}", quote(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fake;
    use serde_json::{Value, json};

    fn reader(service: Value, slices: &[Value]) -> Fake {
        let objects = Fake::default();
        objects.put(SERVICES, json!({"metadata": {"namespace": "ns", "name": "hook"}, "spec": service}));
        for (i, slice) in slices.iter().enumerate() {
            let mut slice = slice.clone();
            let labels = json!({OF_SERVICE: "hook"});
            slice["metadata"] = json!({"namespace": "ns", "name": format!("hook-{i}"), "labels": labels});
            objects.put(SLICES, slice);
        }
        objects
    }

    #[test]
    fn backends() {
        let check = |service: Value, slices: &[Value], port: u16, expected: Result<(&str, u16), &str>| {
            let found = resolve(&reader(service, slices), "ns", "hook", port);
            let found = found.map(|b| (b.host, b.port));
            let found = found.as_ref().map(|(host, port)| (host.as_str(), *port)).map_err(String::as_str);
            assert_eq!(found, expected);
        };
        let of = |kind: &str| {
            json!({"type": kind, "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "ports": [
                {"name": "https", "port": 443}, {"name": "other", "port": 8443},
            ]})
        };
        let slice = |family: &str, ports: Value, endpoints: Value| json!({"addressType": family, "ports": ports, "endpoints": endpoints});
        let up = |ip: &str| json!({"addresses": [ip], "conditions": {"ready": true}});
        let down = |ip: &str| json!({"addresses": [ip], "conditions": {"ready": false}});
        let ports = json!([{"name": "https", "port": 6443}, {"name": "other", "port": 9}]);
        let one = [slice("IPv4", ports.clone(), json!([down("10.1.0.1"), up("10.1.0.2")]))];
        for kind in ["ClusterIP", "NodePort", "LoadBalancer"] {
            check(of(kind), &one, 443, Ok(("10.1.0.2", 6443)));
        }
        check(of("ClusterIP"), &one, 8443, Ok(("10.1.0.2", 9)));
        check(of("ClusterIP"), &one, 1, Err("no service port 1 found for service \"hook\""));
        let none = [slice("IPv4", ports.clone(), json!([down("10.1.0.1")]))];
        check(of("ClusterIP"), &none, 443, Err("no endpoints available for service \"hook\""));
        check(of("ClusterIP"), &[], 443, Err("no endpoints available for service \"hook\""));
        let both = [
            slice("IPv6", ports.clone(), json!([up("fd00::1")])),
            slice("IPv4", ports.clone(), json!([{"addresses": ["10.1.0.3"]}])),
        ];
        check(of("ClusterIP"), &both, 443, Ok(("10.1.0.3", 6443)));
        let other = json!({"type": "ExternalName", "externalName": "h.example"});
        check(other, &[], 443, Ok(("h.example", 443)));
        let headless = json!({"type": "ClusterIP", "clusterIP": "None", "ports": [{"port": 443}]});
        check(headless, &one, 443, Err("cannot route to service with ClusterIP \"None\""));
        let address = |service: Value, port: u16| authority(&reader(service, &[]), "ns", "hook", port);
        assert_eq!(address(of("NodePort"), 8443).as_deref(), Ok("10.0.0.1:8443"));
        let named = json!({"type": "ExternalName", "externalName": "h.example"});
        assert_eq!(address(named, 443).as_deref(), Ok("h.example:443"));
        let six = json!({"type": "ClusterIP", "clusterIP": "fd00::1", "ports": [{"port": 443}]});
        assert_eq!(address(six, 443).as_deref(), Ok("[fd00::1]:443"));
        assert!(address(of("ClusterIP"), 1).is_err());
        let missing = resolve(&Fake::default(), "ns", "hook", 443).unwrap_err();
        assert_eq!(missing, "service \"hook\" not found");
    }
}
