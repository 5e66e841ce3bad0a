//! The loads.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use futures::stream::{self, TryStreamExt};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::fleet::{self, Fate, Fleet};
use super::plane::Plane;
use super::stream::Stream;
use crate::requests::quantile;
use crate::target::Op;

/// The requests under way at once.
const AT_ONCE: usize = 64;
/// The longest time for any load.
const LIMIT: Duration = Duration::from_mins(15);
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
/// A scheduler that is not there: its Pods cost the control plane's own nothing.
const NOBODY: &str = "nobody";

/// A figure that is wanted on two cores.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
    Any,
}

/// The size of a load: that part of a whole number which is put on.
type Size<'a> = &'a dyn Fn(usize) -> usize;
/// The figure, and the seconds of CPU time of the control plane meanwhile.
type Figure = Result<(f64, f64)>;

/// A load.
pub(super) struct Load {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) wanted: Wanted,
    /// Whether its Pods run, for which a scheduler is needed.
    pub(super) runs: bool,
    /// The controllers that run alone, in a process of their own.
    pub(super) apart: Option<&'static str>,
    pub(super) run: for<'a> fn(&'a Plane, Size<'a>) -> LocalBoxFuture<'a, Figure>,
}

/// All of them.
pub(super) const LOADS: [Load; 7] = [
    Load {
        name: "Deployment of 10,000 made",
        unit: "Pods/s",
        wanted: Wanted::AtLeast(2500.0),
        runs: false,
        apart: None,
        run: |plane, size| made(plane, size).boxed_local(),
    },
    Load {
        name: "Deployment of 10,000 Ready",
        unit: "Pods/s",
        wanted: Wanted::AtLeast(1000.0),
        runs: true,
        apart: None,
        run: |plane, size| ready(plane, size).boxed_local(),
    },
    Load {
        name: "1,000 Deployments of 10 rolled out at once",
        unit: "s",
        wanted: Wanted::Any,
        runs: true,
        apart: None,
        run: |plane, size| rolled_out(plane, size).boxed_local(),
    },
    Load {
        name: "namespace of 10,000 objects deleted",
        unit: "s",
        wanted: Wanted::AtMost(5.0),
        runs: false,
        apart: None,
        run: |plane, size| namespace(plane, size).boxed_local(),
    },
    Load {
        name: "indexed Job of 5,000",
        unit: "completions/s",
        wanted: Wanted::AtLeast(1000.0),
        runs: false,
        apart: None,
        run: |plane, size| job(plane, size).boxed_local(),
    },
    Load {
        name: "1,000 Services of 100 endpoints, one Pod changes, p99",
        unit: "ms",
        wanted: Wanted::AtMost(20.0),
        runs: false,
        apart: None,
        run: |plane, size| services(plane, size).boxed_local(),
    },
    Load {
        name: "lifecycle of 5,000 nodes, the controller's own share",
        unit: "% of a core",
        wanted: Wanted::AtMost(1.0),
        runs: false,
        apart: Some("node-lifecycle-controller"),
        run: |plane, size| lifecycle(plane, size).boxed_local(),
    },
];

/// A measurement: the CPU time counts from here on.
struct Meter<'a> {
    plane: &'a Plane,
    begun: Instant,
    cpu: f64,
}

impl<'a> Meter<'a> {
    fn new(plane: &'a Plane) -> Result<Self> {
        Ok(Self { plane, begun: Instant::now(), cpu: plane.cpu()? })
    }
    fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
    fn cpu(&self) -> Result<f64> {
        Ok(self.plane.cpu()? - self.cpu)
    }
    fn rate(&self, count: usize) -> Figure {
        Ok((count as f64 / self.seconds(), self.cpu()?))
    }
    fn time(&self) -> Figure {
        Ok((self.seconds(), self.cpu()?))
    }
    fn check(&self) -> Result<()> {
        ensure!(self.begun.elapsed() < LIMIT, "it takes more than {LIMIT:?}");
        Ok(())
    }
}

fn template(app: &str, image: &str, scheduler: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {
        "schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": image, "resources": {"requests": {"cpu": "10m"}}}]}})
}

fn deployment(name: &str, replicas: usize, scheduler: &str) -> String {
    json!({"metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": template(name, "i", scheduler)}})
    .to_string()
}

async fn made(plane: &Plane, size: Size<'_>) -> Figure {
    let count = size(10_000);
    plane.at_work().await?;
    let mut pods = Stream::new(plane.connect(1).await?, &format!("{PODS}?watch=true")).await?;
    let meter = Meter::new(plane)?;
    plane.target.call(Op::post(DEPLOYMENTS, deployment("web", count, NOBODY))).await?;
    pods.count(count).await?;
    meter.rate(count)
}

#[derive(Deserialize)]
struct Event<T> {
    object: T,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Numbers {
    ready_replicas: usize,
    replicas: usize,
    updated_replicas: usize,
    available_replicas: usize,
    succeeded: usize,
    observed_generation: i64,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    generation: i64,
}

#[derive(Deserialize)]
struct Workload {
    metadata: Named,
    #[serde(default)]
    status: Numbers,
}

/// Makes hollow nodes for so many Pods.
async fn hollow(plane: &Plane, pods: usize) -> Result<Fleet> {
    const EACH: usize = 200;
    fleet::nodes(&plane.target, pods / EACH + 2, EACH).await?;
    let mut fleet = Fleet::start(plane, Fate::Run).await?;
    fleet.renew(plane, pods / EACH + 2).await?;
    Ok(fleet)
}

async fn ready(plane: &Plane, size: Size<'_>) -> Figure {
    let count = size(10_000);
    plane.at_work().await?;
    let _fleet = hollow(plane, count).await?;
    let mut sets = Stream::new(plane.connect(1).await?, &format!("{DEPLOYMENTS}?watch=true")).await?;
    let meter = Meter::new(plane)?;
    plane.target.call(Op::post(DEPLOYMENTS, deployment("web", count, "default-scheduler"))).await?;
    while sets.next::<Event<Workload>>().await?.object.status.ready_replicas < count {
        meter.check()?;
    }
    meter.rate(count)
}

/// Waits until so many workloads are as somebody wants them.
async fn until(
    events: &mut Stream,
    count: usize,
    meter: &Meter<'_>,
    wanted: impl Fn(&Workload) -> bool,
) -> Result<()> {
    let mut done = HashSet::new();
    while done.len() < count {
        let workload = events.next::<Event<Workload>>().await?.object;
        if wanted(&workload) {
            done.insert(workload.metadata.name);
        }
        meter.check()?;
    }
    Ok(())
}

async fn rolled_out(plane: &Plane, size: Size<'_>) -> Figure {
    const EACH: usize = 10;
    let count = size(1000);
    plane.at_work().await?;
    let _fleet = hollow(plane, 2 * count * EACH).await?;
    let mut events = Stream::new(plane.connect(1).await?, &format!("{DEPLOYMENTS}?watch=true")).await?;
    let meter = Meter::new(plane)?;
    let all = |op: fn(usize) -> Op| {
        let target = &plane.target;
        stream::iter((0..count).map(op).map(Ok::<_, anyhow::Error>))
            .try_for_each_concurrent(AT_ONCE, move |op| async move { target.call(op).await.map(drop) })
    };
    let make = |i: usize| Op::post(DEPLOYMENTS, deployment(&format!("web-{i}"), EACH, "default-scheduler"));
    all(make).await?;
    until(&mut events, count, &meter, |w| w.status.available_replicas == EACH).await?;
    let meter = Meter::new(plane)?;
    let change = |i: usize| {
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}});
        Op::with(Method::PATCH, format!("{DEPLOYMENTS}/web-{i}"), STRATEGIC_PATCH, patch.to_string())
    };
    all(change).await?;
    until(&mut events, count, &meter, |w| {
        let Numbers { replicas, updated_replicas, available_replicas, observed_generation, .. } = w.status;
        w.metadata.generation >= 2
            && observed_generation == w.metadata.generation
            && [replicas, updated_replicas, available_replicas] == [EACH; 3]
    })
    .await?;
    meter.time()
}

async fn namespace(plane: &Plane, size: Size<'_>) -> Figure {
    const NAME: &str = "/api/v1/namespaces/load";
    let count = size(10_000);
    plane.at_work().await?;
    plane
        .target
        .call(Op::post("/api/v1/namespaces", json!({"metadata": {"name": "load"}}).to_string()))
        .await?;
    let target = &plane.target;
    let make = |i: usize| {
        let map = json!({"metadata": {"name": format!("m-{i}")}, "data": {"k": "v".repeat(200)}});
        Op::post(format!("{NAME}/configmaps"), map.to_string())
    };
    stream::iter((0..count).map(make).map(Ok::<_, anyhow::Error>))
        .try_for_each_concurrent(AT_ONCE, |op| async move { target.call(op).await.map(drop) })
        .await?;
    let meter = Meter::new(plane)?;
    target.call(Op::with(Method::DELETE, NAME, "", "")).await?;
    while target.call(Op::get(NAME)).await.is_ok() {
        meter.check()?;
        tokio::time::sleep(Duration::from_millis(10)).await; // the pace of asking
    }
    meter.time()
}

async fn job(plane: &Plane, size: Size<'_>) -> Figure {
    let count = size(5000);
    const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
    plane.at_work().await?;
    let _fleet = Fleet::start(plane, Fate::Succeed).await?;
    let mut events = Stream::new(plane.connect(1).await?, &format!("{JOBS}?watch=true")).await?;
    let mut template = template("job", "i", NOBODY);
    template["spec"]["restartPolicy"] = "Never".into();
    let job = json!({"metadata": {"name": "job"}, "spec": {
        "completionMode": "Indexed", "completions": count, "parallelism": count, "template": template}});
    let meter = Meter::new(plane)?;
    plane.target.call(Op::post(JOBS, job.to_string())).await?;
    until(&mut events, 1, &meter, |w| w.status.succeeded == count).await?;
    meter.rate(count)
}

/// Makes a Pod that is ready, at an address of its own, and belongs to a Service.
async fn endpoint(plane: &Plane, service: usize, number: usize, at: usize) -> Result<()> {
    let name = format!("p-{service}-{number}");
    let spec = json!({"nodeName": NODE, "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "i"}]});
    let labels = json!({ "app": format!("s-{service}") });
    let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
    plane.target.call(Op::post(PODS, pod.to_string())).await?;
    let ip = format!("10.{}.{}.{}", 64 + (at >> 16), (at >> 8) & 255, at & 255);
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions});
    change_status(plane, &name, &json!({ "status": status })).await
}

async fn change_status(plane: &Plane, pod: &str, patch: &Value) -> Result<()> {
    let path = format!("{PODS}/{pod}/status");
    plane.target.call(Op::with(Method::PATCH, path, STRATEGIC_PATCH, patch.to_string())).await.map(drop)
}

async fn services(plane: &Plane, size: Size<'_>) -> Figure {
    plane.at_work().await?;
    plane.target.call(Op::post("/api/v1/nodes", json!({"metadata": {"name": NODE}}).to_string())).await?;
    tokio::select! {
        figure = changes(plane, size) => figure,
        ended = heartbeats(plane) => ended.map(|never| match never {}),
    }
}

/// The node of the Pods: those of a node that is not there are no endpoints.
const NODE: &str = "elsewhere";

/// Says that the node is alive, as its kubelet would.
async fn heartbeats(plane: &Plane) -> Result<Infallible> {
    loop {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let ready =
            json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now});
        let patch = json!({"status": {"conditions": [ready]}});
        let path = format!("/api/v1/nodes/{NODE}/status");
        plane.target.call(Op::with(Method::PATCH, path, STRATEGIC_PATCH, patch.to_string())).await?;
        tokio::time::sleep(Duration::from_secs(10)).await; // the pace of kubelets
    }
}

async fn changes(plane: &Plane, size: Size<'_>) -> Figure {
    const EACH: usize = 100;
    const CHANGES: usize = 300;
    let count = size(1000);
    let pods = (0..count * EACH).map(|i| Ok::<_, anyhow::Error>((i / EACH, i % EACH, i + 1)));
    stream::iter(pods)
        .try_for_each_concurrent(AT_ONCE, |(service, number, at)| endpoint(plane, service, number, at))
        .await?;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?watch=true";
    let mut events = Stream::new(plane.connect(1).await?, slices).await?;
    let target = &plane.target;
    let make = |i: usize| {
        let spec =
            json!({"selector": {"app": format!("s-{i}")}, "ports": [{"port": 80}], "clusterIP": "None"});
        Op::post(
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": format!("s-{i}")}, "spec": spec}).to_string(),
        )
    };
    stream::iter((0..count).map(make).map(Ok::<_, anyhow::Error>))
        .try_for_each_concurrent(AT_ONCE, |op| async move { target.call(op).await.map(drop) })
        .await?;
    let whole = |slice: &Slice| slice.endpoints.as_ref().is_some_and(|all| all.len() == EACH);
    let mut done = HashSet::new();
    while done.len() < count {
        let slice = events.next::<Event<Slice>>().await?.object;
        if whole(&slice) {
            done.insert(slice.metadata.labels.service);
        }
    }
    let (meter, mut times) = (Meter::new(plane)?, Vec::with_capacity(CHANGES));
    for turn in 0..CHANGES {
        // Each Pod changes once at most.
        let (service, number) = (turn % count, turn / count % EACH);
        let conditions = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        let (begun, wanted) = (Instant::now(), format!("s-{service}"));
        change_status(plane, &format!("p-{service}-{number}"), &conditions).await?;
        while events.next::<Event<Slice>>().await?.object.metadata.labels.service != wanted {
            meter.check()?;
        }
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok((quantile(&times, 0.99), meter.cpu()?))
}

#[derive(Deserialize)]
struct Slice {
    metadata: SliceMeta,
    /// `null` if there are none.
    endpoints: Option<Vec<serde::de::IgnoredAny>>,
}

#[derive(Deserialize)]
struct SliceMeta {
    labels: SliceLabels,
}

#[derive(Deserialize)]
struct SliceLabels {
    #[serde(rename = "kubernetes.io/service-name")]
    service: String,
}

async fn lifecycle(plane: &Plane, size: Size<'_>) -> Figure {
    /// The time for which it is measured, after as long a time to settle.
    const REST: Duration = Duration::from_secs(30);
    let count = size(5000);
    fleet::nodes(&plane.target, count, 110).await?;
    let mut fleet = Fleet::start(plane, Fate::Run).await?;
    fleet.renew(plane, count).await?;
    tokio::time::sleep(REST).await;
    let (meter, before) = (Meter::new(plane)?, plane.controllers_cpu()?);
    tokio::time::sleep(REST).await;
    let own = plane.controllers_cpu()? - before;
    Ok((own / meter.seconds() * 100.0, meter.cpu()?))
}
