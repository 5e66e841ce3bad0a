//! Objects of the tests.

use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::json;

/// The StatefulSet of upstream's tests: named `foo`, with a claim `datadir` for each Pod.
pub(super) fn stateful_set(replicas: i32) -> StatefulSet {
    let labels = json!({"foo": "bar"});
    serde_json::from_value(json!({
        "metadata": {"name": "foo", "namespace": "default", "uid": "test", "generation": 1},
        "spec": {
            "replicas": replicas, "serviceName": "governingsvc", "revisionHistoryLimit": 2,
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{"name": "nginx", "image": "nginx",
                        "volumeMounts": [{"name": "datadir", "mountPath": "/tmp/zookeeper"}, {"name": "home", "mountPath": "/home"}]}],
                    "volumes": [{"name": "home", "hostPath": {"path": "/tmp/home"}}],
                },
            },
            "volumeClaimTemplates": [{"metadata": {"name": "datadir"},
                "spec": {"resources": {"requests": {"storage": "1"}}}}],
        },
    }))
    .unwrap()
}
