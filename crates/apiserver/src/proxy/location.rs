//! Where a request goes: pure decisions over the objects it is about.

use api::{Gate, Status};
use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use std::net::SocketAddr;

use super::guard::{KUBELET_PORT, is_global_unicast};
use super::link;

/// How a backend is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// HTTPS to a kubelet, both sides verified.
    Kubelet,
    /// HTTPS to a kubelet whose certificate is not verified, because the caller said so.
    UnverifiedKubelet,
    /// HTTP.
    Plain,
    /// HTTPS to a workload, whose certificate nobody can verify.
    Tls,
}

/// Where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    /// How.
    pub(super) transport: Transport,
    /// Host name or address, without brackets.
    pub(super) host: String,
    /// Port.
    pub(super) port: u16,
    /// Path, not escaped; "" if the request named none.
    pub(super) path: String,
    /// Query as sent, without the `?`.
    pub(super) query: String,
    /// The addresses of the host, all of them checked: nothing else is connected to.
    pub(super) addresses: Vec<SocketAddr>,
}

impl Location {
    /// `host:port`, as an authority.
    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
    /// The authority as it reads where the port is the usual one of its scheme.
    pub(super) fn usual_authority(&self) -> String {
        let usual = if self.transport == Transport::Plain { 80 } else { 443 };
        let whole = self.authority();
        if self.port == usual { whole.trim_end_matches(&format!(":{usual}")).to_owned() } else { whole }
    }
    /// The request target: escaped path and query.
    pub(super) fn target(&self) -> String {
        let mut target = link::escape(self.path.as_bytes());
        if target.is_empty() {
            target.push('/');
        }
        if !self.query.is_empty() {
            target.push('?');
            target.push_str(&self.query);
        }
        target
    }
}

/// The kubelet of a Node, at its first address of the types in their order.
pub(super) fn kubelet(node: &Node, types: &[String]) -> Result<Location, Status> {
    let status = node.status.clone().unwrap_or_default();
    let addresses = status.addresses.unwrap_or_default();
    let host = types
        .iter()
        .find_map(|kind| addresses.iter().find(|a| a.type_ == *kind))
        .map(|a| a.address.clone())
        .ok_or_else(|| {
            let known: Vec<_> = addresses.iter().map(|a| format!("{{{} {}}}", a.type_, a.address)).collect();
            let known = known.join(" ");
            Status::failure(500, "", format!("no preferred addresses found; known addresses: [{known}]"))
        })?;
    let port = status
        .daemon_endpoints
        .and_then(|d| d.kubelet_endpoint)
        .and_then(|e| u16::try_from(e.port).ok())
        .filter(|port| *port > 0)
        .unwrap_or(KUBELET_PORT);
    Ok(to(Transport::Kubelet, host, port))
}

/// Whether a Node's kubelet says that it speaks the WebSocket protocols of commands and of ports itself.
pub(super) fn speaks_web_sockets(node: &Node) -> bool {
    let declared = node.status.as_ref().and_then(|status| status.declared_features.as_deref());
    declared.unwrap_or_default().iter().any(|feature| *feature == Gate::ExtendWebSocketsToKubelet.name())
}

/// The name of the Node that a Pod runs on.
pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).filter(|n| !n.is_empty())
}

/// The container a request is about: the one it names, or the only one.
pub(super) fn container(pod: &Pod, wanted: &str) -> Result<String, Status> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let Some(spec) = &pod.spec else {
        return Err(Status::bad_request(format!("a container name must be specified for pod {name}")));
    };
    let init = spec.init_containers.iter().flatten().map(|c| &c.name);
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|c| &c.name);
    let all: Vec<&String> = init.chain(spec.containers.iter().map(|c| &c.name)).chain(ephemeral).collect();
    if !wanted.is_empty() {
        return if all.iter().any(|c| *c == wanted) {
            Ok(wanted.to_owned())
        } else {
            Err(Status::bad_request(format!("container {wanted} is not valid for pod {name}")))
        };
    }
    match spec.containers.as_slice() {
        [only] => Ok(only.name.clone()),
        [] => Err(Status::bad_request(format!("a container name must be specified for pod {name}"))),
        _ => {
            let all: Vec<&str> = all.iter().map(|c| c.as_str()).collect();
            Err(Status::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                all.join(" ")
            )))
        }
    }
}

/// `name`, `name:port` or `scheme:name:port`, as the name of a proxy request.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) struct Id<'a> {
    /// "", "http" or "https".
    pub(super) scheme: &'a str,
    /// Name of the object.
    pub(super) name: &'a str,
    /// Port, "" for none.
    pub(super) port: &'a str,
}

/// Splits the name of a proxy request about a `kind` of object.
pub(super) fn parse_id<'a>(kind: &str, id: &'a str) -> Result<Id<'a>, Status> {
    let parts: Vec<&str> = id.split(':').collect();
    let id = match parts.as_slice() {
        [name] => Id { scheme: "", name, port: "" },
        [name, port] => Id { scheme: "", name, port },
        [scheme, name, port] => Id { scheme, name, port },
        _ => return Err(Status::bad_request(format!("invalid {kind} request {id:?}"))),
    };
    if id.name.is_empty() || !matches!(id.scheme, "" | "http" | "https") {
        return Err(Status::bad_request(format!("invalid {kind} request {:?}", parts.join(":"))));
    }
    Ok(id)
}

/// Where the proxy of a Pod goes.
pub(super) fn pod(pod: &Pod, id: Id<'_>) -> Result<Location, Status> {
    let status = pod.status.clone().unwrap_or_default();
    let ip =
        status.pod_ips.iter().flatten().next().map(|p| p.ip.clone()).or(status.pod_ip).unwrap_or_default();
    if !ip.parse().is_ok_and(is_global_unicast) {
        return Err(not_allowed());
    }
    let port = if id.port.is_empty() {
        let first = pod
            .spec
            .iter()
            .flat_map(|s| &s.containers)
            .find_map(|c| c.ports.iter().flatten().next())
            .and_then(|p| u16::try_from(p.container_port).ok());
        first.unwrap_or(if id.scheme == "https" { 443 } else { 80 })
    } else {
        port_number(id.port)?
    };
    Ok(workload(id.scheme, ip, port))
}

/// The port of a Service that a request means, by its name; a number is looked up.
pub(super) fn service_port(service: &Service, id: Id<'_>) -> Result<String, Status> {
    let Ok(number) = id.port.parse::<i64>() else { return Ok(id.port.to_owned()) };
    service
        .spec
        .iter()
        .flat_map(|s| s.ports.iter().flatten())
        .find(|p| i64::from(p.port) == number)
        .map(|p| p.name.clone().unwrap_or_default())
        .ok_or_else(|| unavailable(format!("no service port {number} found for service {:?}", id.name)))
}

/// A possible backend of a Service: the Pod that it claims to be, and the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Name of the Pod.
    pub(super) pod: String,
    /// Its address, to be compared with the Pod's.
    pub(super) location: Location,
}

/// The backends of a Service's port, in the order in which they are to be tried. `seed` chooses the first.
pub(super) fn endpoints(
    endpoints: &Endpoints,
    port: &str,
    id: Id<'_>,
    namespace: &str,
    seed: usize,
) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = Vec::new();
    for subset in endpoints.subsets.iter().flatten() {
        let number = subset
            .ports
            .iter()
            .flatten()
            .find(|p| p.name.as_deref().unwrap_or_default() == port)
            .and_then(|p| u16::try_from(p.port).ok());
        let Some(number) = number else { continue };
        for address in subset.addresses.iter().flatten() {
            // Only Pods are proxied to: anybody may write any address into Endpoints.
            let Some(target) = &address.target_ref else { continue };
            if target.namespace.as_deref() == Some(namespace) {
                all.push(Candidate {
                    pod: target.name.clone().unwrap_or_default(),
                    location: workload(id.scheme, address.ip.clone(), number),
                });
            }
        }
    }
    if !all.is_empty() {
        let by = seed % all.len();
        all.rotate_left(by);
    }
    all
}

/// Whether a Pod has an address.
pub(super) fn has_ip(pod: &Pod, ip: &str) -> bool {
    pod.status.iter().flat_map(|s| s.pod_ips.iter().flatten()).any(|p| p.ip == ip)
}

/// Where the proxy of a Node goes: its kubelet, or another port of it.
pub(super) fn node(node: &Node, id: Id<'_>, types: &[String]) -> Result<Location, Status> {
    let mut location = kubelet(node, types)?;
    if !id.port.is_empty() && id.port != location.port.to_string() {
        location = workload(id.scheme, location.host, port_number(id.port)?);
    }
    Ok(location)
}

fn workload(scheme: &str, host: String, port: u16) -> Location {
    let transport = if scheme == "https" { Transport::Tls } else { Transport::Plain };
    to(transport, host, port)
}

fn to(transport: Transport, host: String, port: u16) -> Location {
    Location { transport, host, port, path: String::new(), query: String::new(), addresses: Vec::new() }
}

/// The 400 for an address to which nobody gets through the server.
pub(super) fn not_allowed() -> Status {
    Status::bad_request("address not allowed")
}

fn port_number(port: &str) -> Result<u16, Status> {
    port.parse().map_err(|_| {
        unavailable(format!("error trying to reach service: dial tcp: lookup tcp/{port}: unknown port"))
    })
}

/// 503 with a text.
pub(super) fn unavailable(message: impl Into<String>) -> Status {
    Status::failure(503, "ServiceUnavailable", message)
}

/// The part of a path after the `proxy` subresource: cleaned, with a leading slash, and a trailing one if
/// the request has one; "" if there is nothing.
pub(super) fn rest_path(path: &str, namespaced: bool) -> Result<String, Status> {
    // /api/v1/namespaces/{ns}/{resource}/{name}/proxy/… or /api/v1/{resource}/{name}/proxy/…
    let skip = if namespaced { 7 } else { 5 };
    let mut rest = path.trim_start_matches('/');
    for _ in 0..skip {
        match rest.split_once('/') {
            Some((_, tail)) => rest = tail,
            None => return Ok(String::new()),
        }
    }
    let decoded = access::unescape(rest, false)
        .ok_or_else(|| Status::bad_request(format!("invalid URL escape in {path:?}")))?;
    let mut parts: Vec<&str> = Vec::new();
    for part in decoded.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut clean = format!("/{}", parts.join("/"));
    if decoded.ends_with('/') && !clean.ends_with('/') {
        clean.push('/');
    }
    Ok(clean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn a_pod(value: &Value) -> Pod {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn containers() {
        let check = |containers: &[&str], init: &[&str], wanted: &str, expected: Result<&str, &str>| {
            let list = |names: &[&str]| names.iter().map(|n| json!({ "name": n })).collect::<Vec<_>>();
            let pod = a_pod(&json!({
                "metadata": {"name": "test"},
                "spec": {"containers": list(containers), "initContainers": list(init)},
            }));
            let got = container(&pod, wanted).map_err(|s| s.message);
            assert_eq!(got.as_deref().map_err(String::as_str), expected);
        };
        check(&[], &[], "", Err("a container name must be specified for pod test"));
        check(&["c1"], &[], "", Ok("c1"));
        check(
            &["c1", "c2"],
            &["initc1"],
            "",
            Err("a container name must be specified for pod test, choose one of: [initc1 c1 c2]"),
        );
        check(&["c1", "c2"], &[], "c2", Ok("c2"));
        check(&["c1"], &["i"], "i", Ok("i"));
        check(&["c1"], &[], "unknown", Err("container unknown is not valid for pod test"));
    }

    #[test]
    fn ids() {
        let check = |id: &str, expected: Option<(&str, &str, &str)>| {
            let got = parse_id("pod", id).ok().map(|i| (i.scheme, i.name, i.port));
            assert_eq!(got, expected, "{id}");
        };
        check("aaa", Some(("", "aaa", "")));
        check("aaa:80", Some(("", "aaa", "80")));
        check("https:aaa:80", Some(("https", "aaa", "80")));
        check(":aaa:80", Some(("", "aaa", "80")));
        check("ftp:aaa:80", None);
        check(":80", None);
        check("a:b:c:d", None);
        check("", None);
    }

    #[test]
    fn pods() {
        let check = |ip: &str, ports: Value, id: &str, expected: Result<&str, &str>| {
            let pod_object = a_pod(&json!({
                "metadata": {"name": "foo"},
                "spec": {"containers": [{"name": "ctr", "ports": ports}]},
                "status": {"podIPs": [{"ip": ip}]},
            }));
            let got = pod(&pod_object, parse_id("pod", id).unwrap());
            let got = got.map(|l| format!("{:?} {}", l.transport, l.authority())).map_err(|s| s.message);
            assert_eq!(got.as_deref().map_err(String::as_str), expected);
        };
        check("1.2.3.4", json!([]), "foo", Ok("Plain 1.2.3.4:80"));
        check("1.2.3.4", json!([{"containerPort": 9376}]), "foo", Ok("Plain 1.2.3.4:9376"));
        check("1.2.3.4", json!([{"containerPort": 9376}]), "https:foo:12345", Ok("Tls 1.2.3.4:12345"));
        check("fd00::1", json!([]), "foo:1", Ok("Plain [fd00::1]:1"));
        check("127.0.0.1", json!([]), "foo", Err("address not allowed"));
        check("::ffff:127.0.0.1", json!([]), "foo", Err("address not allowed"));
        check("localhost", json!([]), "foo", Err("address not allowed"));
        check("", json!([]), "foo", Err("address not allowed"));
    }

    #[test]
    fn paths() {
        let check = |path: &str, namespaced: bool, expected: &str| {
            assert_eq!(rest_path(path, namespaced).unwrap(), expected, "{path}");
        };
        check("/api/v1/namespaces/n/pods/p/proxy", true, "");
        check("/api/v1/namespaces/n/pods/p/proxy/", true, "/");
        check("/api/v1/namespaces/n/pods/p/proxy/a/b", true, "/a/b");
        check("/api/v1/namespaces/n/pods/p/proxy/a//b/../c/", true, "/a/c/");
        check("/api/v1/namespaces/n/pods/p/proxy/../../x", true, "/x");
        check("/api/v1/nodes/n/proxy/logs/", false, "/logs/");
        check("/api/v1/namespaces/n/pods/p/proxy/a%20b", true, "/a b");
        assert!(rest_path("/api/v1/nodes/n/proxy/%zz", false).is_err());
        assert_eq!(link::escape("/a b?c#d%/é".as_bytes()), "/a%20b%3Fc%23d%25/%C3%A9");
    }

    #[test]
    fn service_backends() {
        let object: Endpoints = serde_json::from_value(json!({"subsets": [
            {"ports": [{"name": "p", "port": 8080}], "addresses": [
                {"ip": "10.0.0.1", "targetRef": {"kind": "Pod", "namespace": "n", "name": "a"}},
                {"ip": "10.0.0.2"},
                {"ip": "10.0.0.3", "targetRef": {"kind": "Pod", "namespace": "other", "name": "c"}}]},
            {"ports": [{"name": "q", "port": 1}], "addresses": [
                {"ip": "10.0.0.4", "targetRef": {"kind": "Pod", "namespace": "n", "name": "d"}}]}]}))
        .unwrap();
        let id = parse_id("service", "http:s:p").unwrap();
        let got = endpoints(&object, "p", id, "n", 7);
        assert_eq!(got.iter().map(|c| c.location.authority()).collect::<Vec<_>>(), ["10.0.0.1:8080"]);
        assert!(endpoints(&object, "x", id, "n", 0).is_empty());
        let service: Service =
            serde_json::from_value(json!({"spec": {"ports": [{"name": "p", "port": 80}]}})).unwrap();
        assert_eq!(service_port(&service, parse_id("service", "s:80").unwrap()).unwrap(), "p");
        assert_eq!(
            service_port(&service, parse_id("service", "s:81").unwrap()).unwrap_err().message,
            "no service port 81 found for service \"s\""
        );
    }

    /// Upstream's 5 cases of `TestCheckNodeSupportsWebsockets`.
    #[test]
    fn kubelets_that_speak_web_sockets() {
        let check = |features: Value, expected: bool| {
            let node: Node =
                serde_json::from_value(json!({"status": {"declaredFeatures": features}})).unwrap();
            assert_eq!(speaks_web_sockets(&node), expected, "{features}");
        };
        check(json!(["ExtendWebSocketsToKubelet"]), true);
        check(json!(["InPlacePodVerticalScaling", "ExtendWebSocketsToKubelet"]), true);
        check(json!(["SomeOtherFeature"]), false);
        check(json!([]), false);
        check(json!(null), false);
    }

    #[test]
    fn kubelets() {
        let check = |types: &[&str], status: Value, expected: Result<&str, &str>| {
            let node: Node = serde_json::from_value(json!({ "status": status })).unwrap();
            let types: Vec<String> = types.iter().map(|t| (*t).to_owned()).collect();
            let got = kubelet(&node, &types).map(|l| l.authority()).map_err(|e| e.message);
            assert_eq!(got.as_deref().map_err(String::as_str), expected);
        };
        let usual = ["InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP", "Hostname"];
        check(&usual, json!({}), Err("no preferred addresses found; known addresses: []"));
        let both = json!({"addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.1.1.1"}]});
        check(&usual, both.clone(), Ok("10.1.1.1:10250"));
        check(&["ExternalIP", "Hostname", "InternalIP"], both.clone(), Ok("n:10250"));
        let none = "no preferred addresses found; known addresses: [{Hostname n} {InternalIP 10.1.1.1}]";
        check(&["ExternalIP"], both, Err(none));
        check(
            &usual,
            json!({"addresses": [{"type": "Hostname", "address": "n"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": 7}}}),
            Ok("n:7"),
        );
    }
}
