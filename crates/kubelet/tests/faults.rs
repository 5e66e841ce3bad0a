//! A kubelet beside a runtime that hangs, dies, answers late or with errors, and an API server in memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::support::Files;
use crate::support::fake::{self, Fake, Fault};
use crate::support::memory::Memory;
use client::{Client, Clients};
use component::{Clock, Shutdown};
use cri::runtime as pb;
use ferrokube_kubelet::pods::labels::{self, ROOT_ANNOTATION};
use ferrokube_kubelet::{Config, Kubelet};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Calls that make or remove something: none of them may ever be given up.
const CHANGES: [&str; 7] = [
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
];

struct Node {
    api: Arc<Memory>,
    runtime: Fake,
    config: Config,
    kubelet: Arc<Kubelet>,
    shutdown: Shutdown,
    files: Arc<Files>,
}

impl Node {
    async fn start() -> Self {
        Self::with(Fake::default()).await
    }

    async fn with(runtime: Fake) -> Self {
        let (api, config, files) = Self::settings();
        runtime.serve(&fake::socket(files.path()));
        Self::run(api, runtime, config, files).await
    }

    fn settings() -> (Arc<Memory>, Config, Arc<Files>) {
        let files = Arc::new(Files::new());
        let mut config = Config::new("node");
        // There are no containers whose cgroups would be in them.
        config.pod_cgroups = false;
        config.root_dir = files.path().join("kubelet");
        config.pod_logs_dir = files.path().join("logs");
        config.container_logs_dir = files.path().join("links");
        config.container_runtime_endpoint = fake::socket(files.path()).to_string_lossy().into_owned();
        config.node_ips = vec!["192.0.2.1".parse().unwrap()];
        // The disk of the test machine does not matter.
        config.eviction.thresholds.clear();
        let api = Memory::new();
        api.create(
            "nodes",
            "",
            json!({"metadata": {"name": "node", "uid": "node-1"},
                "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "110"}}}),
        );
        (api, config, files)
    }

    async fn run(api: Arc<Memory>, runtime: Fake, config: Config, files: Arc<Files>) -> Self {
        let shutdown = Shutdown::new();
        let client = Client::new(api.clone(), "kubelet");
        let clients = Clients::new(move |_| client.clone());
        let clock = Clock::from("2026-01-01T00:00:00Z".parse().unwrap());
        let kubelet = Kubelet::new(config.clone(), &clients, clock, shutdown.clone()).await.unwrap();
        let run = kubelet.clone();
        shutdown.spawn(async move { run.run_pods().await });
        Self { api, runtime, config, kubelet, shutdown, files }
    }

    /// A Pod of one container; answers its uid.
    fn pod(&self, name: &str) -> String {
        self.api.pod(
            name,
            json!({"terminationGracePeriodSeconds": 5,
                "containers": [{"name": "c", "image": "test.local/i:1", "imagePullPolicy": "IfNotPresent"}]}),
        );
        self.api.get("pods", name).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Deletes a Pod by force: its object is gone at once.
    fn force(&self, name: &str) {
        self.api.remove(&("pods".into(), "default".into(), name.into()));
    }

    /// Waits until nothing is left of any Pod.
    async fn empty(&self, about: &str) {
        eventually(about, || {
            let dirs = [self.config.root_dir.join("pods"), self.config.pod_logs_dir.clone()];
            self.kubelet.pods.pods().is_empty()
                && self.runtime.count() == (0, 0)
                && dirs.iter().all(|d| names(d).is_empty())
        })
        .await;
    }

    fn nothing_given_up(&self, about: &str) {
        let given_up = self.runtime.given_up();
        let changes: Vec<_> = given_up.iter().filter(|c| CHANGES.iter().any(|n| c.starts_with(n))).collect();
        assert!(changes.is_empty(), "{about}: {changes:?}");
    }

    async fn finish(self) {
        self.shutdown.finish().await;
    }
}

fn names(dir: &PathBuf) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

async fn eventually(about: &str, test: impl Fn() -> bool) {
    let wait = async {
        while !test() {
            tokio::time::sleep(Duration::from_millis(20)).await; // the pace of asking
        }
    };
    assert!(tokio::time::timeout(Duration::from_mins(1), wait).await.is_ok(), "not yet: {about}");
}

#[tokio::test]
async fn pods_deleted_at_every_call_of_their_start_leave_nothing() {
    let calls = [
        "ListPodSandbox",
        "ListContainers",
        "Status",
        "RunPodSandbox",
        "PodSandboxStatus",
        "ImageStatus",
        "PullImage",
        "CreateContainer",
        "StartContainer",
        "ContainerStatus",
    ];
    let cases = calls.iter().flat_map(|call| [(call, true), (call, false)]);
    join_all(cases.map(async |(call, force)| {
        let about = format!("{call}, force: {force}");
        let node = Node::start().await;
        node.runtime.without_images();
        if *call == "ContainerStatus" || *call == "PodSandboxStatus" || *call == "Status" {
            node.pod("p");
            let before = if *call == "Status" { "RunPodSandbox" } else { "CreateContainer" };
            node.runtime.called(before).await;
        } else {
            node.runtime.fault(call, Fault::Late);
            node.pod("p");
            node.runtime.called(&format!("{call}/")).await;
        }
        if force {
            node.force("p");
        } else {
            node.api.delete_pod("p", 1);
        }
        // Its worker has heard of it while the call is under way.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        node.runtime.heal(call);
        node.empty(&about).await;
        node.nothing_given_up(&about);
        node.finish().await;
    }))
    .await;
}

/// The configuration's addresses come first, the Node's count more, and nothing is said twice.
#[tokio::test(start_paused = true)]
async fn the_runtime_is_told_which_addresses_pods_have() {
    let (api, mut config, files) = Node::settings();
    config.pod_cidr = "10.1.0.0/24".into();
    let runtime = Fake::default();
    runtime.serve(&fake::socket(files.path()));
    let node = Node::run(api, runtime, config, files).await;
    let told = || -> Vec<String> {
        let calls = node.runtime.calls();
        calls.iter().filter_map(|call| call.strip_prefix("UpdateRuntimeConfig/")).map(str::to_owned).collect()
    };
    assert_eq!(told(), ["10.1.0.0/24"]);
    let get = |cidrs: Value| {
        let mut object = node.api.object("nodes", "", "node").unwrap();
        object["spec"] = json!({ "podCIDRs": cidrs });
        node.api.put(("nodes".into(), String::new(), "node".into()), object);
    };
    node.runtime.fault("UpdateRuntimeConfig", Fault::Fails(2));
    get(json!(["10.2.0.0/24", "fd00::/64"]));
    eventually("the Node's addresses", || told().len() == 4).await;
    assert_eq!(told()[1..], ["10.2.0.0/24,fd00::/64"; 3], "a call that fails is made again");
    get(json!(["10.2.0.0/24", "fd00::/64"]));
    get(json!([]));
    get(json!(["10.3.0.0/24"]));
    eventually("other addresses", || told().len() == 5).await;
    assert_eq!(told()[4], "10.3.0.0/24");
    node.finish().await;
}

#[tokio::test]
async fn an_error_of_any_call_is_got_over() {
    let calls = [
        "ListPodSandbox",
        "ListContainers",
        "RunPodSandbox",
        "PodSandboxStatus",
        "ImageStatus",
        "CreateContainer",
        "StartContainer",
        "ContainerStatus",
        "StopContainer",
        "StopPodSandbox",
        "RemoveContainer",
        "RemovePodSandbox",
    ];
    join_all(calls.iter().map(async |call| {
        let node = Node::start().await;
        node.runtime.fault(call, Fault::Fails(2));
        node.pod("p");
        node.api.phase("p", "Running").await;
        node.api.delete_pod("p", 1);
        node.empty(call).await;
        node.nothing_given_up(call);
        node.finish().await;
    }))
    .await;
}

#[tokio::test]
async fn a_call_that_hangs_holds_up_its_pod_alone() {
    let node = Node::start().await;
    let uid = node.pod("first");
    for call in ["ListPodSandbox", "ListContainers", "RunPodSandbox"] {
        node.runtime.fault(&format!("{call}/{uid}"), Fault::Late);
    }
    node.runtime.called("List").await;
    node.pod("second");
    node.api.phase("second", "Running").await;
    node.force("second");
    eventually("the second is gone", || node.kubelet.pods.pods().len() == 1).await;
    node.finish().await;
}

#[tokio::test]
async fn a_pull_that_is_given_up_leaves_no_trace() {
    let node = Node::start().await;
    node.runtime.without_images();
    node.runtime.fault("PullImage", Fault::Late);
    node.pod("first");
    node.runtime.called("PullImage").await;
    let pulling = node.config.root_dir.join("image_manager/pulling");
    assert_eq!(names(&pulling).len(), 1);
    node.force("first");
    // Otherwise an image that comes by another way would count as one that was pulled for somebody.
    eventually("the intent to pull is gone", || names(&pulling).is_empty()).await;
    node.runtime.heal("PullImage");
    node.empty("a pull that was given up").await;
    node.finish().await;
}

#[tokio::test]
async fn shutdown_waits_for_what_is_being_made() {
    let node = Node::start().await;
    node.runtime.fault("RunPodSandbox", Fault::Late);
    node.pod("p");
    node.runtime.called("RunPodSandbox").await;
    let (runtime, shutdown) = (node.runtime.clone(), node.shutdown.clone());
    let finished = tokio::spawn(async move { shutdown.finish().await });
    tokio::task::yield_now().await;
    runtime.heal("RunPodSandbox");
    finished.await.unwrap();
    node.nothing_given_up("shutdown");
    assert_eq!(node.runtime.count(), (1, 0), "the sandbox is there for the next kubelet");
    // The next one takes it up.
    let next = Node::run(node.api, node.runtime, node.config, node.files).await;
    next.api.phase("p", "Running").await;
    assert_eq!(next.runtime.count(), (1, 1));
    next.finish().await;
}

#[tokio::test]
async fn shutdown_does_not_wait_for_ever() {
    let node = Node::start().await;
    node.runtime.fault("RunPodSandbox", Fault::Late);
    node.pod("p");
    node.runtime.called("RunPodSandbox").await;
    tokio::time::pause();
    let began = Instant::now();
    node.shutdown.finish().await;
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_runtime_that_died_is_used_again() {
    let runtime = Fake::default();
    let (api, config, files) = Node::settings();
    let socket = fake::socket(files.path());
    let server = runtime.serve_elsewhere(&socket);
    let node = Node::run(api, runtime, config, files).await;
    node.pod("before");
    node.api.phase("before", "Running").await;
    node.runtime.fault("StopContainer", Fault::Late);
    node.api.delete_pod("before", 5);
    node.runtime.called("StopContainer").await;
    server.shutdown_background();
    node.runtime.heal("StopContainer");
    node.pod("after");
    let server = node.runtime.serve_elsewhere(&socket);
    node.api.phase("after", "Running").await;
    node.force("before");
    node.force("after");
    node.empty("both").await;
    node.finish().await;
    server.shutdown_background();
}

fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// A Pod's sandbox and container as a kubelet with that root directory left them.
fn left_by(root: &str, uid: &str) -> (pb::PodSandbox, Vec<pb::Container>) {
    let labels = map(&[
        (labels::POD_UID, uid),
        (labels::POD_NAME, "left"),
        (labels::POD_NAMESPACE, "default"),
        (labels::CONTAINER_NAME, "c"),
    ]);
    let sandbox = pb::PodSandbox {
        id: format!("sandbox-{uid}"),
        metadata: Some(pb::PodSandboxMetadata {
            name: "left".into(),
            uid: uid.into(),
            namespace: "default".into(),
            attempt: 0,
        }),
        labels: labels.clone(),
        annotations: map(&[(ROOT_ANNOTATION, root)]),
        ..pb::PodSandbox::default()
    };
    let container = pb::Container {
        id: format!("container-{uid}"),
        pod_sandbox_id: sandbox.id.clone(),
        metadata: Some(pb::ContainerMetadata { name: "c".into(), attempt: 0 }),
        state: pb::ContainerState::ContainerRunning.into(),
        created_at: 1,
        labels,
        annotations: map(&[
            (labels::PRE_STOP_HANDLER, r#"{"exec":{"command":["say","goodbye"]}}"#),
            (labels::POD_TERMINATION_GRACE_PERIOD, "77"),
        ]),
        ..pb::Container::default()
    };
    (sandbox, vec![container])
}

#[tokio::test]
async fn what_no_pod_owns_goes_as_it_wanted_to_and_only_what_is_ones_own() {
    let runtime = Fake::default();
    let (theirs, their_containers) = left_by("/somewhere/else", "theirs");
    runtime.plant(theirs, their_containers);
    // The runtime does not answer at first: that must not be the only look.
    runtime.fault("ListPodSandbox", Fault::Fails(3));
    let node = Node::with(runtime).await;
    let root = node.config.root_dir.to_string_lossy().into_owned();
    let (mine, containers) = left_by(&root, "mine");
    node.runtime.plant(mine, containers);
    std::fs::create_dir_all(node.config.root_dir.join("pods/mine/volumes")).unwrap();
    std::fs::create_dir_all(node.config.root_dir.join("pods/long-gone/volumes")).unwrap();
    std::fs::create_dir_all(node.config.pod_logs_dir.join("default_x_long-gone/c")).unwrap();
    eventually("only theirs is left", || node.runtime.count() == (1, 1)).await;
    let calls = node.runtime.calls();
    let at = |call: &str| calls.iter().position(|c| c == call);
    let (hook, stop) = (at("ExecSync/container-mine/say goodbye"), at("StopContainer/container-mine/77"));
    assert!(hook.is_some() && hook < stop, "{calls:?}");
    assert!(!calls.iter().any(|c| c.contains("-theirs") && !c.contains("Status")), "{calls:?}");
    let dirs = [node.config.root_dir.join("pods"), node.config.pod_logs_dir.clone()];
    eventually("directories are gone", || dirs.iter().all(|d| names(d).is_empty())).await;
    node.finish().await;
}

#[tokio::test]
async fn a_set_up_that_fails_is_told_before_the_end() {
    let (api, mut config, files) = Node::settings();
    std::fs::write(files.path().join("file"), "").unwrap();
    config.pod_logs_dir = files.path().join("file/logs");
    let client = Client::new(api.clone(), "kubelet");
    let clients = Clients::new(move |_| client.clone());
    let clock = Clock::from("2026-01-01T00:00:00Z".parse().unwrap());
    let shutdown = Shutdown::new();
    let started = Kubelet::run(config.clone(), &clients, clock, shutdown.clone()).await;
    let path = config.pod_logs_dir.display().to_string();
    assert_eq!(started.unwrap_err().to_string(), format!("cannot make the directory {path}"));
    let told = format!(
        "\"node\" \"KubeletSetupFailed\" {}",
        json!(format!("error creating pod logs root directory \"{path}\": mkdir {path}: not a directory"))
    );
    assert_eq!(api.reasons(), [told]);
    shutdown.finish().await;
}

/// The Node's condition of a type.
fn condition(api: &Memory, kind: &str) -> Value {
    let node = api.object("nodes", "", "node").unwrap_or_default();
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|c| c["type"] == kind).unwrap_or_default()
}

/// Waits on tokio's clock, which is paused.
async fn passes(about: &str, limit: Duration, test: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !test() {
        assert!(began.elapsed() < limit, "not yet: {about}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    began.elapsed()
}

#[tokio::test]
async fn a_runtime_that_hangs_makes_the_node_not_ready() {
    let node = Node::start().await;
    node.kubelet.report_node();
    node.pod("p");
    node.api.phase("p", "Running").await;
    eventually("ready", || condition(&node.api, "Ready")["status"] == "True").await;
    let since = condition(&node.api, "Ready")["lastTransitionTime"].clone();
    let lease = || node.api.object("leases", "kube-node-lease", "node").unwrap_or_default()["spec"].clone();
    eventually("a lease", || lease()["renewTime"].is_string()).await;
    let renewed = lease()["renewTime"].clone();
    let calls = node.runtime.calls().len();
    node.runtime.fault("*", Fault::Late);
    eventually("a call hangs", || node.runtime.calls().len() > calls).await;
    tokio::time::pause();
    let ready = || condition(&node.api, "Ready");
    let down = passes("not ready", Duration::from_secs(50), || ready()["status"] == "False").await;
    assert!(down >= Duration::from_secs(20), "{down:?}");
    assert_eq!(
        (&ready()["reason"], &ready()["message"]),
        (&json!("KubeletNotReady"), &json!("container runtime is down"))
    );
    assert_ne!(ready()["lastTransitionTime"], since);
    passes("nobody sees containers", Duration::from_mins(5), || {
        let message = ready()["message"].as_str().unwrap_or_default().to_owned();
        message.starts_with("[container runtime is down, PLEG is not healthy: pleg was last seen active 3m")
            && message.ends_with("s ago; threshold is 3m0s]")
    })
    .await;
    assert_ne!(lease()["renewTime"], renewed, "the lease is renewed all the time");
    tokio::time::resume();
    node.runtime.heal("*");
    eventually("ready again", || ready()["status"] == "True").await;
    // Calls came to their time limits here, but reads only.
    node.nothing_given_up("a runtime that hung");
    node.finish().await;
}

#[tokio::test]
async fn the_node_is_put_right_whoever_wrote_it() {
    let node = Node::start().await;
    node.kubelet.report_node();
    eventually("ready", || condition(&node.api, "Ready")["status"] == "True").await;
    let key = ("nodes".to_owned(), String::new(), "node".to_owned());
    // As the control plane does with a node that was not heard of for long.
    let mut object = node.api.object("nodes", "", "node").unwrap();
    for c in object["status"]["conditions"].as_array_mut().unwrap() {
        c["status"] = json!("Unknown");
        c["reason"] = json!("NodeStatusUnknown");
        c["lastTransitionTime"] = json!("2025-01-01T00:00:00Z");
    }
    object["status"]["capacity"]["example.com/dongle"] = json!("4");
    object["status"]["capacity"]["pods"] = json!("1");
    object["status"]["nodeInfo"]["kubeletVersion"] = json!("v0");
    node.api.put(key.clone(), object);
    tokio::time::pause();
    let status = || node.api.object("nodes", "", "node").unwrap_or_default()["status"].clone();
    let took =
        passes("ready again", Duration::from_secs(15), || condition(&node.api, "Ready")["status"] == "True")
            .await;
    assert!(took <= Duration::from_secs(11), "{took:?}");
    let now = status();
    assert_ne!(condition(&node.api, "Ready")["lastTransitionTime"], "2025-01-01T00:00:00Z");
    assert_eq!(condition(&node.api, "MemoryPressure")["status"], "False");
    assert_eq!(
        (&now["capacity"]["pods"], &now["capacity"]["example.com/dongle"]),
        (&json!("110"), &json!("4"))
    );
    assert_eq!(now["allocatable"]["example.com/dongle"], "4");
    assert_eq!(now["nodeInfo"]["kubeletVersion"], component::version::KUBERNETES);
    // With nothing to put right, there is one write in minutes.
    let revision = || {
        let node = node.api.object("nodes", "", "node").unwrap_or_default();
        node["metadata"]["resourceVersion"].clone()
    };
    let before = revision();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(revision(), before);
    passes("a heartbeat", Duration::from_mins(9), || revision() != before).await;
    node.finish().await;
}

#[tokio::test]
async fn the_runtimes_version_is_that_of_now() {
    let node = Node::start().await;
    node.kubelet.report_node();
    let version = || {
        let node = node.api.object("nodes", "", "node").unwrap_or_default();
        node["status"]["nodeInfo"]["containerRuntimeVersion"].clone()
    };
    eventually("a version", || version() == "fake://1.2.3").await;
    node.runtime.upgrade("v2.0.0");
    tokio::time::pause();
    passes("another version", Duration::from_secs(20), || version() == "fake://2.0.0").await;
    node.finish().await;
}

#[tokio::test]
async fn the_lease_has_the_uid_of_the_node_that_is_there() {
    let node = Node::start().await;
    node.kubelet.report_node();
    let owner = || {
        let lease = node.api.object("leases", "kube-node-lease", "node").unwrap_or_default();
        lease["metadata"]["ownerReferences"][0]["uid"].clone()
    };
    eventually("a lease", || owner() == "node-1").await;
    let key = ("nodes".to_owned(), String::new(), "node".to_owned());
    node.api.remove(&key);
    node.api.create("nodes", "", json!({"metadata": {"name": "node", "uid": "node-2"}}));
    // The collector removes it with the Node that owned it, once.
    node.api.remove(&("leases".into(), "kube-node-lease".into(), "node".into()));
    tokio::time::pause();
    passes("a new lease", Duration::from_secs(30), || owner() == "node-2").await;
    passes("the new node has a status", Duration::from_secs(30), || {
        condition(&node.api, "Ready")["status"] == "True"
    })
    .await;
    node.finish().await;
}
