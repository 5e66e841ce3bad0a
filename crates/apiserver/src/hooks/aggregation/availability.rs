//! Whether a Service leads to a server that can answer: upstream's checks before the server is asked
//! (`kube-aggregator/pkg/controllers/status/remote`).

use access::reader::{Reader, read};
use access::webhook::Endpoint;
use api::go::quote;
use serde::Deserialize;

use super::state::Condition;

pub(super) const SERVICES: (&str, &str) = ("", "services");
pub(super) const SLICES: (&str, &str) = ("discovery.k8s.io", "endpointslices");
/// The label of an EndpointSlice that names its Service.
pub(super) const OF_SERVICE: &str = "kubernetes.io/service-name";

#[derive(Deserialize)]
pub(super) struct Service {
    spec: ServiceSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ServiceSpec {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    external_name: String,
    ports: Vec<ServicePort>,
}

#[derive(Deserialize)]
struct ServicePort {
    #[serde(default)]
    name: String,
    port: u16,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Slice {
    endpoints: Option<Vec<SliceEndpoint>>,
    ports: Option<Vec<SlicePort>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SliceEndpoint {
    conditions: Conditions,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SlicePort {
    name: Option<String>,
    port: Option<u16>,
}

impl Service {
    /// The host by which upstream asks it.
    fn host(&self) -> &str {
        if self.spec.kind == "ExternalName" { &self.spec.external_name } else { &self.spec.cluster_ip }
    }
}

/// The host of a URL that leads to the Service, or why nothing behind it can be asked.
pub(super) fn check(to: &Endpoint, service: Option<&Service>, slices: &[Slice]) -> Result<String, Condition> {
    let Endpoint { namespace, name, port } = to;
    let place = format!("service/{name} in {}", quote(namespace));
    let Some(service) = service else {
        return Err(Condition::bad("ServiceNotFound", format!("{place} is not present")));
    };
    if service.spec.kind == "ClusterIP" {
        let Some(found) = service.spec.ports.iter().find(|p| p.port == *port) else {
            let message = format!("{place} is not listening on port {port}");
            return Err(Condition::bad("ServicePortError", message));
        };
        if slices.is_empty() {
            let message = format!("cannot find endpointslices for {place}");
            return Err(Condition::bad("EndpointsNotFound", message));
        }
        if !slices.iter().any(|slice| slice.leads(&found.name)) {
            let message =
                format!("endpointslices for {place} have no addresses with port name {}", quote(&found.name));
            return Err(Condition::bad("MissingEndpoints", message));
        }
    }
    Ok(service.host().to_owned())
}

impl Slice {
    fn leads(&self, port: &str) -> bool {
        let ready = self.endpoints.iter().flatten().any(|e| e.conditions.ready.unwrap_or(true));
        ready && self.ports.iter().flatten().any(|p| p.name.as_deref() == Some(port) && p.port.is_some())
    }
}

/// The same for the objects of now.
pub(super) fn check_now(reader: &dyn Reader, to: &Endpoint) -> Result<String, Condition> {
    let stored = reader.get(SERVICES, &to.namespace, &to.name);
    let service = stored.as_deref().and_then(read::<Service>);
    if stored.is_some() && service.is_none() {
        let place = format!("service/{} in {}", to.name, quote(&to.namespace));
        let message = format!("{place} cannot be checked due to: it cannot be read");
        let (reason, status) = ("ServiceAccessError".into(), "Unknown".into());
        return Err(Condition { status, reason, message });
    }
    let slices = reader.list(SLICES, &to.namespace).into_iter();
    let slices = slices.filter(|object| object.label(OF_SERVICE) == Some(to.name.as_str()));
    let slices: Vec<Slice> = slices.filter_map(|object| read(&object)).collect();
    check(to, service.as_ref(), &slices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn conditions() {
        let check = |service: Value, slices: Value, want: Result<&str, (&str, &str)>| {
            let service: Option<Service> = serde_json::from_value(service).unwrap();
            let slices: Vec<Slice> = serde_json::from_value(slices).unwrap();
            let to = Endpoint { namespace: "ns".into(), name: "api".into(), port: 443 };
            let got = check(&to, service.as_ref(), &slices);
            let want = want.map(str::to_owned).map_err(|(reason, message)| Condition::bad(reason, message));
            assert_eq!(got, want);
        };
        let of = |kind: &str, port: u16| {
            let ports = json!([{"name": "web", "port": 80}, {"name": "https", "port": port}]);
            json!({"spec": {"type": kind, "clusterIP": "10.0.0.1", "externalName": "h.example", "ports": ports}})
        };
        let slice = |ports: Value, ready: Value| json!({"ports": ports, "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": ready}}]});
        let https = json!([{"name": "https", "port": 6443}]);
        let missing = "service/api in \"ns\" is not present";
        check(Value::Null, json!([]), Err(("ServiceNotFound", missing)));
        let port = "service/api in \"ns\" is not listening on port 443";
        check(
            of("ClusterIP", 8443),
            json!([slice(https.clone(), json!(true))]),
            Err(("ServicePortError", port)),
        );
        let nowhere = "cannot find endpointslices for service/api in \"ns\"";
        check(of("ClusterIP", 443), json!([]), Err(("EndpointsNotFound", nowhere)));
        let none = "endpointslices for service/api in \"ns\" have no addresses with port name \"https\"";
        for slices in [
            json!([slice(https.clone(), json!(false))]),
            json!([slice(json!([{"name": "other", "port": 6443}]), json!(true))]),
            json!([slice(json!([{"name": "https"}]), json!(true))]),
            json!([{"ports": https, "endpoints": null}]),
            json!([slice(Value::Null, json!(true))]),
            // The port and the endpoint are in different slices.
            json!([slice(https.clone(), json!(false)), slice(json!([]), json!(true))]),
        ] {
            check(of("ClusterIP", 443), slices, Err(("MissingEndpoints", none)));
        }
        check(of("ClusterIP", 443), json!([slice(https.clone(), json!(true))]), Ok("10.0.0.1"));
        check(of("ClusterIP", 443), json!([slice(https, Value::Null)]), Ok("10.0.0.1"));
        // Only those are looked at further that have nothing but an address of the cluster.
        check(of("NodePort", 1), json!([]), Ok("10.0.0.1"));
        check(of("ExternalName", 1), json!([]), Ok("h.example"));
    }
}
