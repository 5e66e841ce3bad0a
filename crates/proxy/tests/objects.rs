//! Objects of the tests.

use std::sync::Arc;

use proxy::Event;
use serde_json::{Value, json};

/// A Service `NAME` with one TCP and one UDP port, 80, and what `spec` adds.
pub(crate) fn service(name: &str, cluster: &str, spec: Value) -> Event {
    let mut object = json!({
        "metadata": {"namespace": "ns", "name": name},
        "spec": {
            "type": "ClusterIP", "clusterIP": cluster, "clusterIPs": [cluster],
            "ports": [
                {"name": "t", "port": 80, "protocol": "TCP"},
                {"name": "u", "port": 80, "protocol": "UDP"},
            ],
        },
    });
    merge(&mut object, &json!({ "spec": spec }));
    from(object)
}

/// Puts the fields of one value over those of another.
pub(crate) fn merge(to: &mut Value, from: &Value) {
    match (to, from) {
        (Value::Object(to), Value::Object(from)) => {
            for (name, value) in from {
                merge(to.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (to, from) => *to = from.clone(),
    }
}

/// A Service of any form.
pub(crate) fn from(object: Value) -> Event {
    Event::Service(Arc::new(serde_json::from_value(object).unwrap()))
}

/// A Service with all ways from outside: node port 30080, external address, balancer's address.
pub(crate) fn open(name: &str, cluster: &str, spec: Value) -> Event {
    let mut object = json!({
        "metadata": {"namespace": "ns", "name": name},
        "spec": {
            "type": "LoadBalancer", "clusterIP": cluster, "clusterIPs": [cluster],
            "externalIPs": ["198.51.100.7"], "healthCheckNodePort": 32000,
            "ports": [
                {"name": "t", "port": 80, "protocol": "TCP", "nodePort": 30080},
                {"name": "u", "port": 80, "protocol": "UDP", "nodePort": 30080},
            ],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.8"}, {"ip": "198.51.100.9", "ipMode": "Proxy"}]}},
    });
    merge(&mut object, &json!({ "spec": spec }));
    from(object)
}

/// A slice of a Service, from words `ADDRESS[@NODE][!]…`; `!` is for one that is to go and serves.
pub(crate) fn slice(service: &str, endpoints: &[&str]) -> Event {
    let endpoint = |text: &&str| {
        let going = text.ends_with('!');
        let text = text.trim_end_matches('!');
        let (address, node) = text.split_once('@').unwrap_or((text, "me"));
        json!({
            "addresses": [address], "nodeName": node,
            "conditions": {"ready": !going, "serving": true, "terminating": going},
        })
    };
    let kind = if endpoints.iter().any(|e| e.contains(':')) { "IPv6" } else { "IPv4" };
    let object = json!({
        "metadata": {
            "namespace": "ns", "name": format!("{service}-1"),
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": kind,
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [
            {"name": "t", "port": 8080, "protocol": "TCP"},
            {"name": "u", "port": 8080, "protocol": "UDP"},
        ],
    });
    Event::Slice(Arc::new(serde_json::from_value(object).unwrap()))
}
