//! `metrics.k8s.io` on a server whose nodes do not answer: what is served, and to whom.

use serde_json::json;

use crate::api::{pod, server};

const GROUP: &str = "/apis/metrics.k8s.io/v1beta1";

#[test]
fn resource_metrics_are_served() {
    let s = server();
    let list = s.get(GROUP).send().unwrap().expect(200).unwrap().json().unwrap();
    let resources: Vec<_> = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["name"].as_str().unwrap(), r["kind"].as_str().unwrap(), r["verbs"].clone()))
        .collect();
    let verbs = json!(["get", "list"]);
    assert_eq!(resources, [("nodes", "NodeMetrics", verbs.clone()), ("pods", "PodMetrics", verbs)]);
    let nodes = s.get(&format!("{GROUP}/nodes")).send().unwrap().expect(200).unwrap().json().unwrap();
    assert_eq!((&nodes["kind"], &nodes["items"]), (&json!("NodeMetricsList"), &json!([])));
    let unknown = s.get(&format!("{GROUP}/nodes/n")).send().unwrap().expect(404).unwrap().json().unwrap();
    assert_eq!(unknown["message"], "nodes \"n\" not found");
    // A Pod that does not run has no metrics.
    s.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))
        .unwrap();
    s.create("/api/v1/namespaces/default/pods", &pod("p")).unwrap();
    let pods = format!("{GROUP}/namespaces/default/pods");
    let silent = s.get(&format!("{pods}/p")).send().unwrap().expect(404).unwrap().json().unwrap();
    assert_eq!(silent["message"], "pods.metrics.k8s.io \"default/p\" not found");
    let chosen = s.get(&format!("{pods}?labelSelector=app%3Dp&fieldSelector=metadata.name%3Dp"));
    assert_eq!(chosen.send().unwrap().expect(200).unwrap().json().unwrap()["items"], json!([]));
    s.get(&format!("{pods}?watch=true")).send().unwrap().expect(405).unwrap();
    s.create(&pods, &json!({"metadata": {"name": "p"}})).unwrap_err();
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregated-metrics-reader";
    let role = s.get(role).send().unwrap().expect(200).unwrap().json().unwrap();
    for to in ["view", "edit", "admin"] {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{to}");
        assert_eq!(role["metadata"]["labels"][label.as_str()], "true", "{role}");
    }
}
