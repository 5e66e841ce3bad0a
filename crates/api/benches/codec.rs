//! Time to decode and encode a typical Pod: `cargo bench -p ferrokube-api`.

#![allow(clippy::unwrap_used, reason = "a benchmark stops where it can't go on")]

use std::hint::black_box;
use std::time::Instant;

use ferrokube_api::codec::json;
use ferrokube_api::schema::{Gvk, Schema};

fn main() {
    let schema = Schema::builtin();
    let root = schema.kind(&Gvk::new("", "v1", "Pod")).unwrap();
    let body = pod();
    let decoded = json::decode(schema, root, &body).unwrap();
    assert!(decoded.strict.is_empty(), "{:?}", decoded.strict);
    println!("a Pod of {} bytes", body.len());
    time("decode", || json::decode(schema, root, black_box(&body)));
    time("encode", || json::encode_object(schema, black_box(&decoded.tree)));
    time("decode without a schema", || json::decode_any(black_box(&body)));
    time("clone", || black_box(&decoded.tree).clone());
    let start = Instant::now();
    black_box(Schema::parse(include_str!("../schema/v1.36.schema")).unwrap());
    println!("{:28}{:10.2} µs", "read the schema", start.elapsed().as_secs_f64() * 1e6);
}

fn time<T>(what: &str, mut run: impl FnMut() -> T) {
    for _ in 0..1000 {
        black_box(run());
    }
    let rounds = 20_000;
    let start = Instant::now();
    for _ in 0..rounds {
        black_box(run());
    }
    println!("{what:28}{:10.2} µs", start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds));
}

/// A Pod of a Deployment as its controller creates it and the kubelet reports it: about 3 KB.
fn pod() -> Vec<u8> {
    let container = r#"{"name":"web","image":"web:1.2.3","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}},{"name":"MODE","value":"production"}],"resources":{"limits":{"cpu":"500m","memory":"128Mi"},"requests":{"cpu":"100m","memory":"64Mi"}},"volumeMounts":[{"name":"config","readOnly":true,"mountPath":"/etc/web"},{"name":"kube-api-access-abcde","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"readinessProbe":{"httpGet":{"path":"/ready","port":8080,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}"#;
    let conditions: Vec<String> = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|t| format!(r#"{{"type":"{t}","observedGeneration":1,"status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-02T03:04:05Z"}}"#))
        .collect();
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"web-5d9c7b8f6d-x2x7k","generateName":"web-5d9c7b8f6d-","namespace":"default","uid":"0b5c1c3a-6f0e-4b0e-8f0a-0f5a0b0c0d0e","resourceVersion":"12345","generation":1,"creationTimestamp":"2026-01-02T03:04:05Z","labels":{{"app":"web","pod-template-hash":"5d9c7b8f6d"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d9c7b8f6d","uid":"1b5c1c3a-6f0e-4b0e-8f0a-0f5a0b0c0d0e","controller":true,"blockOwnerDeletion":true}}]}},"spec":{{"volumes":[{{"name":"config","configMap":{{"name":"web","defaultMode":420}}}},{{"name":"kube-api-access-abcde","projected":{{"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"name":"kube-root-ca.crt","items":[{{"key":"ca.crt","path":"ca.crt"}}]}}}}],"defaultMode":420}}}}],"containers":[{container}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default","nodeName":"node-1","securityContext":{{}},"schedulerName":"default-scheduler","tolerations":[{{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}},"status":{{"phase":"Running","conditions":[{}],"hostIP":"10.0.0.1","podIP":"10.244.0.7","startTime":"2026-01-02T03:04:05Z","qosClass":"Burstable"}}}}"#,
        conditions.join(",")
    )
    .into_bytes()
}
