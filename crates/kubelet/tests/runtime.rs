//! A kubelet against a real container runtime, and an API server in memory.
//!
//! Needs root, and the environment: `CONTAINER_RUNTIME_ENDPOINT` (a runtime with pod network) and
//! `BUSYBOX_IMAGE` (an image of busybox which that runtime has).

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use bytes::Bytes;
use client::{Call, Client, EventKind, ListAnswer, Transport, Verb, WatchEvent};
use component::{Clock, Shutdown};
use ferrokube_kubelet::{Config, Kubelet};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;

type Key = (String, String, String);

/// Objects in memory, with lists and watches as far as a kubelet uses them.
struct Memory {
    state: Mutex<(u64, BTreeMap<Key, Value>)>,
    events: broadcast::Sender<(Key, EventKind, Value)>,
}

fn selected(call: &Call, key: &Key) -> bool {
    let field = call.query.iter().find(|(k, _)| k == "fieldSelector").map(|(_, v)| v.as_str());
    let name = field.and_then(|f| f.strip_prefix("metadata.name="));
    key.0 == call.resource.plural
        && (call.namespace.is_empty() || key.1 == call.namespace)
        && name.is_none_or(|n| key.2 == n)
}

fn merge(into: &mut Value, patch: &Value) {
    let (Some(target), Some(fields)) = (into.as_object_mut(), patch.as_object()) else {
        *into = patch.clone();
        return;
    };
    for (key, value) in fields {
        let by = match key.as_str() {
            "conditions" => "type",
            "podIPs" | "hostIPs" => "ip",
            _ => "",
        };
        if value.is_null() {
            target.remove(key);
        } else if let (false, Some(elements)) = (by.is_empty(), value.as_array()) {
            let list = target.entry(key.clone()).or_insert_with(|| json!([]));
            let Some(list) = list.as_array_mut() else { continue };
            for element in elements {
                let at = list.iter().position(|e| e[by] == element[by]);
                match (at, element["$patch"] == "delete") {
                    (Some(i), true) => drop(list.remove(i)),
                    (Some(i), false) => merge(&mut list[i], element),
                    (None, true) => {}
                    (None, false) => list.push(element.clone()),
                }
            }
        } else if value.is_object() {
            merge(target.entry(key.clone()).or_insert_with(|| json!({})), value);
        } else {
            target.insert(key.clone(), value.clone());
        }
    }
}

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), events: broadcast::channel(4096).0 })
    }
    fn put(&self, key: Key, mut object: Value) -> Value {
        let mut state = self.state.lock();
        state.0 += 1;
        object["metadata"]["resourceVersion"] = json!(state.0.to_string());
        let kind = if state.1.insert(key.clone(), object.clone()).is_some() {
            EventKind::Modified
        } else {
            EventKind::Added
        };
        let _ = self.events.send((key, kind, object.clone()));
        object
    }
    fn remove(&self, key: &Key) -> Option<Value> {
        let mut state = self.state.lock();
        let mut object = state.1.remove(key)?;
        state.0 += 1;
        object["metadata"]["resourceVersion"] = json!(state.0.to_string());
        let _ = self.events.send((key.clone(), EventKind::Deleted, object.clone()));
        Some(object)
    }
    fn get(&self, plural: &str, name: &str) -> Option<Value> {
        let key = (plural.to_owned(), "default".to_owned(), name.to_owned());
        self.state.lock().1.get(&key).cloned()
    }
    fn create(&self, plural: &str, namespace: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.put((plural.to_owned(), namespace.to_owned(), name), object);
    }
    fn pod(&self, name: &str, mut spec: Value) {
        spec["nodeName"] = json!("node");
        self.create(
            "pods",
            "default",
            json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}-{}", fastrand::u32(..)), "generation": 1},
                "spec": spec, "status": {"phase": "Pending"}}),
        );
    }
    /// What the API server does with a DELETE: the kubelet has the last word.
    fn delete_pod(&self, name: &str, grace: i64) {
        let Some(mut pod) = self.get("pods", name) else { return };
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        self.put(("pods".into(), "default".into(), name.into()), pod);
    }
    fn reasons(&self) -> Vec<String> {
        let state = self.state.lock();
        let events = state.1.iter().filter(|(k, _)| k.0 == "events");
        events
            .map(|(_, e)| format!("{} {} {}", e["involvedObject"]["name"], e["reason"], e["message"]))
            .collect()
    }
    async fn until(&self, name: &str, what: &str, test: impl Fn(Option<&Value>) -> bool) -> Value {
        let mut events = self.events.subscribe();
        let wait = async {
            loop {
                let pod = self.get("pods", name);
                if test(pod.as_ref()) {
                    return pod.unwrap_or_default();
                }
                let _ = events.recv().await;
            }
        };
        match tokio::time::timeout(Duration::from_mins(1), wait).await {
            Ok(pod) => pod,
            Err(tokio::time::error::Elapsed { .. }) => panic!(
                "{name}: not {what}\n{:#}\n{}",
                self.get("pods", name).unwrap_or_default()["status"],
                self.reasons().join("\n")
            ),
        }
    }
    async fn phase(&self, name: &str, phase: &str) -> Value {
        self.until(name, phase, |p| p.is_some_and(|p| p["status"]["phase"] == phase)).await
    }
    async fn condition(&self, name: &str, kind: &str, status: &str) -> Value {
        self.until(name, kind, |p| {
            p.and_then(|p| p["status"]["conditions"].as_array())
                .is_some_and(|c| c.iter().any(|c| c["type"] == kind && c["status"] == status))
        })
        .await
    }
}

impl Transport for Memory {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        async move {
            let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
            let mut key =
                (call.resource.plural.to_string(), call.namespace.to_string(), call.name.to_string());
            let missing = || Status::not_found("", &call.resource.plural, &call.name);
            let answer = match (call.verb, call.subresource.as_str()) {
                (Verb::Create, "token") => json!({"metadata": {}, "spec": {"audiences": []},
                    "status": {"token": "secret-token", "expirationTimestamp": "2099-01-01T00:00:00Z"}}),
                (Verb::Create, _) => {
                    body["metadata"]["name"].as_str().unwrap_or_default().clone_into(&mut key.2);
                    self.put(key, body)
                }
                (Verb::Get, _) => self.state.lock().1.get(&key).cloned().ok_or_else(missing)?,
                (Verb::StrategicPatch | Verb::MergePatch, _) => {
                    let mut object = self.state.lock().1.get(&key).cloned().ok_or_else(missing)?;
                    if object["metadata"]["uid"].is_string()
                        && body["metadata"]["uid"].is_string()
                        && object["metadata"]["uid"] != body["metadata"]["uid"]
                    {
                        return Err(Status::conflict("", "pods", &call.name, "uid"));
                    }
                    merge(&mut object, &body);
                    self.put(key, object)
                }
                (Verb::Update, _) => self.put(key, body),
                (Verb::Delete, _) => self.remove(&key).ok_or_else(missing)?,
                _ => return Err(Status::bad_request("not in memory")),
            };
            Ok(Bytes::from(answer.to_string()))
        }
        .boxed()
    }
    fn list(&self, call: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        async move {
            let state = self.state.lock();
            let items = state.1.iter().filter(|(key, _)| selected(&call, key));
            Ok(ListAnswer {
                resource_version: state.0.to_string(),
                continue_token: String::new(),
                items: items.map(|(_, o)| Bytes::from(o.to_string())).collect(),
            })
        }
        .boxed()
    }
    fn watch(
        &self,
        call: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        async move {
            if call.query.iter().any(|(k, _)| k == "sendInitialEvents") {
                return Err(Status::failure(422, "Invalid", "sendInitialEvents is forbidden"));
            }
            let state = self.state.lock();
            let from: u64 = call
                .query
                .iter()
                .find(|(k, _)| k == "resourceVersion")
                .and_then(|(_, v)| v.parse().ok())
                .unwrap_or(0);
            // What changed between the list and this watch; a removal in between is not made up here.
            let missed: Vec<_> = state
                .1
                .iter()
                .filter(|(key, o)| selected(&call, key) && version(o) > from)
                .map(|(_, o)| WatchEvent { kind: EventKind::Modified, object: Bytes::from(o.to_string()) })
                .collect();
            let live = self.events.subscribe();
            let rest = futures::stream::unfold((live, call), |(mut live, call)| async move {
                loop {
                    let (key, kind, object) = live.recv().await.ok()?;
                    if selected(&call, &key) {
                        let event = WatchEvent { kind, object: Bytes::from(object.to_string()) };
                        return Some((event, (live, call)));
                    }
                }
            });
            Ok(futures::stream::iter(missed).chain(rest).map(Ok).boxed())
        }
        .boxed()
    }
    fn raw(&self, _: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        async { Err(Status::no_such_resource()) }.boxed()
    }
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0)
}

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
