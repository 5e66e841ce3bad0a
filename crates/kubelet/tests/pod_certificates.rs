//! Upstream's `TestFullFlow`: a certificate of a Pod from the first request to the next one, with a signer of the test.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::support::Files;
use crate::support::fake::{self, Fake};
use crate::support::memory::Memory;
use client::{Client, Clients};
use component::{Clock, Shutdown};
use ferrokube_kubelet::{Config, Kubelet};
use jiff::SignedDuration;
use serde_json::{Value, json};

const REQUESTS: &str = "podcertificaterequests";

struct Node {
    api: Arc<Memory>,
    clock: Clock,
    config: Config,
    shutdown: Shutdown,
    kubelet: Arc<Kubelet>,
    _files: Files,
}

impl Node {
    async fn start() -> Self {
        let files = Files::new();
        let mut config = Config::new("node");
        // There are no containers whose cgroups would be in them.
        config.pod_cgroups = false;
        config.root_dir = files.path().join("kubelet");
        config.pod_logs_dir = files.path().join("logs");
        config.container_logs_dir = files.path().join("links");
        config.container_runtime_endpoint = fake::socket(files.path()).to_string_lossy().into_owned();
        config.node_ips = vec!["192.0.2.1".parse().unwrap()];
        config.eviction.thresholds.clear();
        config.pod_certificates = true;
        Fake::default().serve(&fake::socket(files.path()));
        let api = Memory::new();
        let node = json!({"metadata": {"name": "node", "uid": "node-1"},
            "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "110"}}});
        api.create("nodes", "", node);
        let account = json!({"metadata": {"name": "workload", "namespace": "default", "uid": "account-1"}});
        api.create("serviceaccounts", "default", account);
        let (shutdown, client) = (Shutdown::new(), Client::new(api.clone(), "kubelet"));
        let clients = Clients::new(move |_| client.clone());
        let clock = Clock::from("2026-01-01T00:00:00Z".parse().unwrap());
        let kubelet = Kubelet::new(config.clone(), &clients, clock, shutdown.clone()).await.unwrap();
        let run = kubelet.clone();
        shutdown.spawn(async move { run.run_pods().await });
        Self { api, clock, config, shutdown, kubelet, _files: files }
    }

    /// A Pod with a certificate of a key of this type; answers the file.
    fn pod(&self, name: &str, kind: &str) -> PathBuf {
        let source = json!({"podCertificate": {"signerName": "foo.com/signer", "keyType": kind,
            "credentialBundlePath": "creds.pem", "maxExpirationSeconds": 86400,
            "userAnnotations": {"test.domain/foo": "bar"}}});
        self.api.pod(
            name,
            json!({"terminationGracePeriodSeconds": 1, "serviceAccountName": "workload",
                "containers": [{"name": "c", "image": "test.local/i:1", "imagePullPolicy": "IfNotPresent",
                    "volumeMounts": [{"name": "certificate", "mountPath": "/certificate"}]}],
                "volumes": [{"name": "certificate", "projected": {"defaultMode": 420, "sources": [source]}}]}),
        );
        let uid = self.api.get("pods", name).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        self.config.pod_dir(&uid).join("volumes/kubernetes.io~projected/certificate/creds.pem")
    }

    /// The newest request, once there are so many.
    async fn request(&self, count: usize) -> Value {
        eventually(&format!("request {count}"), || self.api.list(REQUESTS).len() == count).await;
        let version = |r: &Value| r["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
        let pending = self.api.list(REQUESTS).into_iter().filter(|r| r["status"].is_null());
        pending.max_by_key(version).unwrap()
    }

    fn answer(&self, mut request: Value, status: Value) {
        let name = request["metadata"]["name"].as_str().unwrap().to_owned();
        request["status"] = status;
        self.api.put((REQUESTS.to_owned(), "default".to_owned(), name), request);
    }

    async fn event(&self, text: &str) {
        eventually(text, || self.api.reasons().iter().any(|r| r.contains(text))).await;
    }
}

async fn eventually(about: &str, test: impl Fn() -> bool) {
    let wait = async {
        while !test() {
            tokio::time::sleep(Duration::from_millis(20)).await; // the pace of asking
        }
    };
    assert!(tokio::time::timeout(Duration::from_mins(1), wait).await.is_ok(), "not yet: {about}");
}

/// The status of a certificate for a day. Nothing here looks into certificates.
fn issued(text: &str, day: u32) -> Value {
    let chain = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    json!({"certificateChain": chain, "notBefore": format!("2026-01-0{day}T00:00:00Z"),
        "beginRefreshAt": format!("2026-01-0{day}T23:30:00Z"),
        "notAfter": format!("2026-01-0{}T00:00:00Z", day + 1),
        "conditions": [{"type": "Issued", "status": "True", "reason": "Issued", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

#[tokio::test]
async fn a_certificate_is_asked_for_and_exchanged() {
    let node = Node::start().await;
    let file = node.pod("workload", "ED25519");
    let request = node.request(1).await;
    let uid = node.api.get("pods", "workload").unwrap()["metadata"]["uid"].clone();
    let mut spec = request["spec"].clone();
    assert!(spec["stubPKCS10Request"].take().as_str().is_some_and(|stub| stub.len() > 100));
    let expected = json!({"signerName": "foo.com/signer", "podName": "workload", "podUID": uid,
        "serviceAccountName": "workload", "serviceAccountUID": "account-1", "nodeName": "node",
        "nodeUID": "node-1", "maxExpirationSeconds": 86400, "stubPKCS10Request": null,
        "unverifiedUserAnnotations": {"test.domain/foo": "bar"}});
    assert_eq!(spec, expected);
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "workload", "uid": uid}]);
    assert_eq!(request["metadata"]["ownerReferences"], owner);
    node.event("FailedMount\" \"MountVolume.SetUp failed for volume \\\"certificate\\\" : credential bundle is not issued yet").await;
    assert!(!file.exists());

    node.answer(request, issued("AAAA", 1));
    node.api.phase("workload", "Running").await;
    let first = std::fs::read_to_string(&file).unwrap();
    assert!(first.starts_with("-----BEGIN PRIVATE KEY-----\n"), "the key comes first");
    assert!(
        first.ends_with("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        "then the chain"
    );

    // Past the time and what may be added to it; whatever happens to a request, its certificate is looked at.
    node.clock.step(SignedDuration::from_mins(23 * 60 + 36));
    let mut old = node.api.list(REQUESTS).remove(0);
    old["metadata"]["labels"] = json!({"touched": "yes"});
    let status = old["status"].clone();
    node.answer(old, status);
    let request = node.request(2).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), first, "until the next one is there");
    node.answer(request, issued("BBBB", 2));
    let read = || std::fs::read_to_string(&file).unwrap();
    eventually("the next certificate is there", || read() != first).await;
    let second = read();
    assert!(second.contains("\nBBBB\n") && !second.contains("AAAA"));
    let key = |text: &str| text.split("-----END").next().unwrap().to_owned();
    assert_ne!(key(&first), key(&second), "another key");

    // A signer that refuses.
    node.pod("refused", "ECDSAP256");
    let request = node.request(3).await;
    let denied = json!({"conditions": [{"type": "Denied", "status": "True", "reason": "NotYou", "message": "no",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    node.answer(request, denied);
    node.event("was denied, reason=\\\"NotYou\\\", message=\\\"no\\\"").await;
    node.event("PodCertificateRequest was permanently denied: reason=\\\"NotYou\\\" message=\\\"no\\\"")
        .await;

    // A type of keys that nobody knows yet.
    let _ = node.pod("ahead", "PQC1");
    node.event("while generating keypair: unknown key type \\\"PQC1\\\"").await;

    for name in ["workload", "refused", "ahead"] {
        node.api.delete_pod(name, 1);
    }
    eventually("nothing is left", || node.kubelet.pods.pods().is_empty()).await;
    node.shutdown.finish().await;
}
