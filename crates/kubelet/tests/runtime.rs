//! A kubelet against a real container runtime, and an API server in memory.
//!
//! Needs root, and the environment: `CONTAINER_RUNTIME_ENDPOINT` (a runtime with pod network) and
//! `BUSYBOX_IMAGE` (an image of busybox which that runtime has).

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::memory::Memory;
use client::Client;
use component::{Clock, Shutdown};
use ferrokube_kubelet::{Config, Kubelet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

struct Node {
    api: Arc<Memory>,
    config: Config,
    kubelet: Arc<Kubelet>,
    shutdown: Shutdown,
    image: String,
    files: Arc<tempfile::TempDir>,
}

impl Node {
    async fn start() -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let mut config = Config::new("node");
        config.root_dir = dir.path().join("kubelet");
        config.pod_logs_dir = dir.path().join("logs");
        config.cgroup_root = format!("/kubelet-test-{}", fastrand::u32(..));
        config.container_runtime_endpoint = std::env::var("CONTAINER_RUNTIME_ENDPOINT").unwrap();
        config.node_ips = vec!["127.0.0.1".parse().unwrap()];
        let api = Memory::new();
        api.create(
            "nodes",
            "",
            json!({"metadata": {"name": "node"}, "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "110"}}}),
        );
        Self::with(api, config, dir).await
    }
    async fn with(api: Arc<Memory>, config: Config, dir: Arc<tempfile::TempDir>) -> Self {
        let shutdown = Shutdown::new();
        let client = Client::new(api.clone(), "kubelet");
        let kubelet = Kubelet::new(config.clone(), client, Clock::system(), shutdown.clone()).await.unwrap();
        let run = kubelet.clone();
        shutdown.spawn(async move { run.run_pods().await });
        let image = std::env::var("BUSYBOX_IMAGE").unwrap();
        Self { api, config, kubelet, shutdown, image, files: dir }
    }
    async fn restart(self) -> Self {
        self.shutdown.finish().await;
        Self::with(self.api, self.config, self.files).await
    }
    fn sh(&self, script: &str) -> Value {
        json!({"name": "c", "image": self.image, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
    }
    async fn delete(&self, name: &str) {
        self.api.delete_pod(name, 1);
        self.api.until(name, "deleted", |p| p.is_none()).await;
    }
    async fn finish(self) {
        let names: Vec<String> =
            self.kubelet.pods.pods().iter().filter_map(|p: &Arc<Pod>| p.metadata.name.clone()).collect();
        for name in names {
            self.api.delete_pod(&name, 0);
        }
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while !self.kubelet.pods.pods().is_empty() {
            assert!(tokio::time::Instant::now() < deadline, "Pods stay");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.shutdown.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a container runtime"]
async fn pods_run_to_their_end() {
    let node = Node::start().await;
    let mut c = node.sh("echo done > /dev/termination-log; exit 3");
    c["resources"] = json!({"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}});
    node.api.pod("fails", json!({"restartPolicy": "Never", "containers": [c]}));
    node.api.pod(
        "succeeds",
        json!({"restartPolicy": "Never", "containers": [node.sh("test -f /shared/made && cat /etc/hosts")
            .as_object().map(|c| { let mut c = c.clone(); c.insert("volumeMounts".into(), json!([{"name": "v", "mountPath": "/shared"}])); c })],
            "initContainers": [{"name": "i", "image": node.image, "command": ["sh", "-c", "touch /shared/made"],
                "volumeMounts": [{"name": "v", "mountPath": "/shared"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}]}),
    );
    let failed = node.api.phase("fails", "Failed").await;
    let state = &failed["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&state["exitCode"], &state["message"], &state["reason"]),
        (&json!(3), &json!("done\n"), &json!("Error"))
    );
    let ok = node.api.phase("succeeds", "Succeeded").await;
    assert_eq!(ok["status"]["initContainerStatuses"][0]["state"]["terminated"]["reason"], "Completed");
    assert_eq!(ok["status"]["qosClass"], "BestEffort");
    let log = node.kubelet.pods.container("default", "succeeds", None, "c").unwrap().log_path;
    assert!(std::fs::read_to_string(log).unwrap().contains("Kubernetes-managed hosts file"));
    node.delete("fails").await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a container runtime"]
async fn containers_outlive_the_kubelet() {
    let node = Node::start().await;
    let mut c = node.sh("trap 'exit 0' TERM; while true; do sleep 0.1; done");
    c["readinessProbe"] = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    c["lifecycle"] = json!({"postStart": {"exec": {"command": ["sh", "-c", "touch /tmp/hooked"]}}});
    node.api.pod("stays", json!({"containers": [c]}));
    let before = node.api.condition("stays", "Ready", "True").await;
    let id = before["status"]["containerStatuses"][0]["containerID"].clone();
    assert!(before["status"]["podIP"].is_string());
    let node = node.restart().await;
    node.api.pod("marker", json!({"restartPolicy": "Never", "containers": [node.sh("true")]}));
    node.api.phase("marker", "Succeeded").await;
    let after = node.api.condition("stays", "Ready", "True").await;
    assert_eq!(after["status"]["containerStatuses"][0]["containerID"], id);
    assert_eq!(after["status"]["containerStatuses"][0]["restartCount"], 0);
    node.delete("stays").await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a container runtime"]
async fn failures_are_told() {
    let node = Node::start().await;
    node.api.pod("crashes", json!({"containers": [node.sh("exit 1")]}));
    let mut missing = node.sh("true");
    missing["image"] = json!("nowhere.invalid/none:1");
    node.api.pod("no-image", json!({"containers": [missing]}));
    let mut wants = node.sh("true");
    wants["env"] = json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "a"}}}]);
    node.api.pod("no-config", json!({"restartPolicy": "Never", "containers": [wants]}));
    let mut sick = node.sh("sleep 1000");
    sick["livenessProbe"] = json!({"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1, "initialDelaySeconds": 1});
    node.api.pod("sick", json!({"terminationGracePeriodSeconds": 0, "containers": [sick]}));
    let waits = |reason: &'static str| {
        move |p: Option<&Value>| {
            p.is_some_and(|p| p["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == reason)
        }
    };
    let p = node.api.until("crashes", "CrashLoopBackOff", waits("CrashLoopBackOff")).await;
    assert_eq!(p["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 1);
    node.api
        .until("no-image", "ErrImagePull", |p| waits("ErrImagePull")(p) || waits("ImagePullBackOff")(p))
        .await;
    let p =
        node.api.until("no-config", "CreateContainerConfigError", waits("CreateContainerConfigError")).await;
    assert_eq!(
        p["status"]["containerStatuses"][0]["state"]["waiting"]["message"],
        "configmap \"later\" not found"
    );
    node.api.create(
        "configmaps",
        "default",
        json!({"metadata": {"name": "later", "namespace": "default"}, "data": {"a": "1"}}),
    );
    node.api.phase("no-config", "Succeeded").await;
    node.api
        .until("sick", "restarted", |p| {
            p.is_some_and(|p| p["status"]["containerStatuses"][0]["restartCount"].as_u64() >= Some(1))
        })
        .await;
    let reasons = node.api.reasons().join("\n");
    for wanted in [
        "\"Killing\" \"Container c failed liveness probe, will be restarted\"",
        "\"BackOff\"",
        "\"Unhealthy\"",
        "\"Pulling\"",
        "\"Started\" \"Container started\"",
    ] {
        assert!(reasons.contains(wanted), "{wanted} in\n{reasons}");
    }
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a container runtime"]
async fn volumes_are_brought_up_to_date() {
    let node = Node::start().await;
    let map =
        |value: &str| json!({"metadata": {"name": "m", "namespace": "default"}, "data": {"key": value}});
    node.api.create("configmaps", "default", map("one"));
    node.api.create(
        "secrets",
        "default",
        json!({"metadata": {"name": "s", "namespace": "default"}, "data": {"p": "c2VjcmV0"}}),
    );
    let mut c = node.sh("cat /all/m /all/token /all/name /sub; until grep -q two /all/m; do sleep 0.1; done");
    c["volumeMounts"] = json!([{"name": "all", "mountPath": "/all"}, {"name": "secret", "mountPath": "/sub", "subPath": "p"},
        {"name": "memory", "mountPath": "/memory"}]);
    node.api.pod(
        "reads",
        json!({"restartPolicy": "Never", "containers": [c], "securityContext": {"fsGroup": 1234}, "volumes": [
            {"name": "all", "projected": {"defaultMode": 420, "sources": [
                {"configMap": {"name": "m", "items": [{"key": "key", "path": "m"}]}},
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}},
            {"name": "secret", "secret": {"secretName": "s", "defaultMode": 256}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]}),
    );
    node.api.phase("reads", "Running").await;
    node.api.create("configmaps", "default", map("two"));
    node.api.phase("reads", "Succeeded").await;
    let log = node.kubelet.pods.container("default", "reads", None, "c").unwrap().log_path;
    let log = std::fs::read_to_string(log).unwrap();
    assert!(
        log.contains("one")
            && log.contains("secret-token")
            && log.contains("reads")
            && log.contains("secret"),
        "{log}"
    );
    let (kept, dir) = (node.files.clone(), node.config.root_dir.join("pods"));
    node.finish().await;
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0);
    drop(kept);
}
