//! Lives of objects in a cluster that is disturbed at every write: the end is always the same.
//!
//! A story is told once in peace, and then again for every write of the control plane, disturbed there: the plane ends
//! before the write, or after it and before its answer, and another one begins; or the answer alone is lost. Then it is told
//! where the first change of each object meets another, and where watches are slow and end.

mod accounts;
mod autoscaling;
mod batch;
mod claims;
mod collected;
mod devices;
mod limits;
mod nodes;
mod room;
mod services;
mod storage;
mod tokens;
mod versions;
mod workloads;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{FeatureGates, Status};
use apiserver::served::RuntimeConfig;
use client::KubeObject;
use component::Shutdown;
use ferrokube_simulation::{Cluster, Fault, Fleet, Rule, Shape};
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::common::bare_with;

/// Longer than any back-off.
const LONG: Duration = Duration::from_mins(40);
/// The pace of looking, in simulated time.
const LOOK: Duration = Duration::from_millis(100);
/// More writes than any story has.
const MANY: usize = 400;

/// The disturbance of a story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    /// The plane ends instead of this write.
    EndsBefore(usize),
    /// The plane ends after this write, whose answer does not come.
    EndsAfter(usize),
    /// The answer to this write is lost.
    Lost(usize),
    /// The first change of each object meets another.
    Conflicts,
    /// Watches are slow, and end now and then.
    Slow,
}

impl Trouble {
    fn rules(self) -> Vec<Rule> {
        let rule = |fault: Fault| Rule::new(fault).plane().writes();
        let lost = || Fault::Lose(Status::failure(500, "InternalError", "the connection is lost"));
        let conflict =
            || Fault::Refuse(Status::conflict("", "objects", "it", "it has been changed meanwhile"));
        match self {
            Self::None | Self::Slow => Vec::new(),
            Self::EndsBefore(n) => vec![rule(Fault::Hang).skip(n)],
            Self::EndsAfter(n) => vec![rule(lost()).skip(n).times(1), rule(Fault::Hang).skip(n)],
            Self::Lost(n) => vec![rule(lost()).skip(n).times(1)],
            Self::Conflicts => vec![rule(conflict()).updates().first_of_each()],
        }
    }
    fn ends(self) -> bool {
        matches!(self, Self::EndsBefore(_) | Self::EndsAfter(_))
    }
}

/// The control plane of a story: its controllers, their settings, and the features that are on.
struct Plane<'c> {
    controllers: &'c [&'c str],
    set: &'c dyn Fn(&mut controllers::Config),
    gates: FeatureGates,
}

/// The cluster of a story, with its control plane.
pub(crate) struct Stage<'c> {
    pub(crate) cluster: &'c Cluster,
    /// Its two nodes, `node-0` and `node-1`.
    pub(crate) fleet: Fleet,
    of: &'c Plane<'c>,
    /// The plane that runs.
    plane: Mutex<Shutdown>,
    /// Whether the plane is to end at its first trouble.
    ends: Mutex<bool>,
}

impl Stage<'_> {
    fn start(&self) -> Result<()> {
        let stop = self.cluster.shutdown().child();
        *self.plane.lock() = stop.clone();
        self.cluster.controllers_until(&stop, self.of.controllers, |c| {
            c.gates = self.of.gates;
            (self.of.set)(c);
        })?;
        self.cluster.scheduler_until(&stop);
        Ok(())
    }

    /// Ends the plane if its trouble has come, and starts another.
    fn look(&self) -> Result<()> {
        if !*self.ends.lock() || self.cluster.faults().met() == 0 {
            return Ok(());
        }
        *self.ends.lock() = false;
        self.cluster.faults().clear();
        self.again()
    }

    /// Ends the plane, and starts another.
    pub(crate) fn again(&self) -> Result<()> {
        self.plane.lock().stop();
        self.start()
    }

    /// Waits until something holds.
    pub(crate) async fn until(
        &self,
        what: &str,
        holds: impl AsyncFnMut(&Cluster) -> Result<bool>,
    ) -> Result<()> {
        self.until_every(LOOK, what, holds).await
    }

    /// Waits until something holds, at which it looks at this pace.
    pub(crate) async fn until_every(
        &self,
        pace: Duration,
        what: &str,
        mut holds: impl AsyncFnMut(&Cluster) -> Result<bool>,
    ) -> Result<()> {
        let end = Instant::now() + LONG;
        loop {
            self.look()?;
            if holds(self.cluster).await? {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{what}: not within {LONG:?}");
            sleep(pace).await;
        }
    }

    /// Waits until all objects of the namespace `default` are so.
    pub(crate) async fn all<T: KubeObject>(&self, what: &str, holds: impl Fn(&[T]) -> bool) -> Result<()> {
        let waited = self.until(what, async |cluster| Ok(holds(&cluster.list::<T>("default").await?))).await;
        if waited.is_err() {
            let all = self.cluster.list::<T>("default").await?;
            let last = all.last().map(|o| o.to_json()).transpose()?.unwrap_or_default();
            let n = all.len();
            return waited
                .with_context(|| format!("{n} objects, the last is {}", String::from_utf8_lossy(&last)));
        }
        waited
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.look()?;
            sleep(LOOK).await;
        }
        Ok(())
    }
}

/// Holds back the events of these resources now and then, and ends their watches.
async fn slow(cluster: &Cluster, resources: &[&str]) {
    let faults = cluster.faults();
    for round in 0.. {
        for (i, resource) in resources.iter().enumerate() {
            if (round + i) % 5 == 0 {
                faults.end_watches(resource);
            }
            faults.hold_events(resource);
        }
        sleep(Duration::from_secs(3)).await;
        for resource in resources {
            faults.let_events_come(resource);
            sleep(Duration::from_millis(300)).await;
        }
    }
}

/// The resources whose watches may be slow.
const SLOW: &[&str] = &[
    "pods",
    "replicasets",
    "deployments",
    "statefulsets",
    "daemonsets",
    "jobs",
    "cronjobs",
    "controllerrevisions",
    "services",
    "endpoints",
    "endpointslices",
    "namespaces",
    "configmaps",
    "resourceclaims",
    "resourceclaimtemplates",
    "persistentvolumeclaims",
    "persistentvolumes",
    "volumeattachments",
    "resourcequotas",
    "poddisruptionbudgets",
    "replicationcontrollers",
    "secrets",
    "serviceaccounts",
    "certificatesigningrequests",
    "clusterroles",
    "servicecidrs",
    "ipaddresses",
    "clustertrustbundles",
    "csidrivers",
    "devicetaintrules",
    "horizontalpodautoscalers",
    "podcertificaterequests",
    "podgroups",
    "resourcepoolstatusrequests",
    "resourceslices",
    "storageclasses",
    "storageversionmigrations",
    "storageversions",
    "validatingadmissionpolicies",
];

/// Tells a story; its end, and whether its trouble has come.
async fn told(
    plane: &Plane<'_>,
    trouble: Trouble,
    story: &impl AsyncFn(&Stage<'_>) -> Result<Value>,
) -> Result<(Value, bool)> {
    // Objects of features that are off by default are in versions that are not served by default.
    let served: &[&str] = if plane.gates == FeatureGates::default() { &[] } else { &["api/all=true"] };
    let served = RuntimeConfig::parse(served.iter().copied())?;
    let cluster = bare_with(|c| (c.gates, c.runtime_config) = (plane.gates, served)).await?;
    trouble.rules().into_iter().for_each(|rule| cluster.faults().add(rule));
    let stage = Stage {
        cluster: &cluster,
        fleet: Fleet::start(&cluster, "node", 2, &Shape::default()),
        of: plane,
        plane: Mutex::new(cluster.shutdown().child()),
        ends: Mutex::new(trouble.ends()),
    };
    stage.start()?;
    let tell = async {
        let ready = |n: &Node| n.spec.as_ref().is_none_or(|s| s.taints.iter().flatten().next().is_none());
        stage
            .until("the nodes are ready", async |cluster| {
                let nodes = cluster.list::<Node>("").await?;
                Ok(nodes.len() == 2 && nodes.iter().all(ready))
            })
            .await?;
        story(&stage).await
    };
    let end = if trouble == Trouble::Slow {
        tokio::select! {
            end = tell => end,
            () = slow(&cluster, SLOW) => unreachable!("it goes on"),
        }
    } else {
        tell.await
    };
    let end = end.with_context(|| format!("{trouble:?}"))?;
    let met = cluster.faults().met() > 0;
    cluster.stop().await;
    Ok((end, met))
}

/// Tells a story in peace and with every trouble. `controllers` are those that it needs besides those of nodes.
pub(crate) async fn disturbed(
    controllers: &[&str],
    story: impl AsyncFn(&Stage<'_>) -> Result<Value>,
) -> Result<()> {
    disturbed_with(controllers, &|_| {}, story).await
}

/// The same with settings of the controllers.
pub(crate) async fn disturbed_with(
    controllers: &[&str],
    set: &dyn Fn(&mut controllers::Config),
    story: impl AsyncFn(&Stage<'_>) -> Result<Value>,
) -> Result<()> {
    disturbed_where(&[], controllers, set, story).await
}

/// The same where these features are set, as `--feature-gates` sets them.
pub(crate) async fn disturbed_where(
    features: &[&str],
    controllers: &[&str],
    set: &dyn Fn(&mut controllers::Config),
    story: impl AsyncFn(&Stage<'_>) -> Result<Value>,
) -> Result<()> {
    let gates = FeatureGates::parse(features.iter().copied())?;
    let controllers: Vec<&str> = controllers.iter().chain(&["node-lifecycle-controller"]).copied().collect();
    let plane = Plane { controllers: &controllers, set, gates };
    let (calm, _) = told(&plane, Trouble::None, &story).await?;
    for trouble in [Trouble::Conflicts, Trouble::Slow] {
        let (end, _) = told(&plane, trouble, &story).await?;
        ensure!(end == calm, "{trouble:?}: {end:#} instead of {calm:#}");
    }
    for at in [Trouble::EndsBefore, Trouble::EndsAfter, Trouble::Lost] {
        for n in 0.. {
            ensure!(n < MANY, "the story has too many writes");
            let (end, met) = told(&plane, at(n), &story).await?;
            ensure!(end == calm, "{:?}: {end:#} instead of {calm:#}", at(n));
            if !met {
                break;
            }
        }
    }
    Ok(())
}

/// The fields that differ from one telling to the next.
const VOLATILE: &[&str] = &[
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "lastTransitionTime",
    "lastUpdateTime",
    "lastProbeTime",
    "startTime",
    "startedAt",
    "finishedAt",
    "completionTime",
    "lastScheduleTime",
    "lastSuccessfulTime",
    "nodeName",
    "hostIP",
    "hostIPs",
    "selfLink",
    "batch.kubernetes.io/controller-uid",
    "controller-uid",
    // A volume of the account's token has a name of its own in each Pod.
    "volumes",
    "volumeMounts",
    "nodeSelector",
];

fn without_volatile(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !VOLATILE.contains(&key.as_str()));
            fields.values_mut().for_each(without_volatile);
        }
        Value::Array(all) => all.iter_mut().for_each(without_volatile),
        _ => {}
    }
}

/// The objects of the namespace `default`, but for the fields that differ from one telling to the next, and with the
/// prefixes of names that were generated.
pub(crate) async fn state<T: KubeObject>(cluster: &Cluster) -> Result<Value> {
    let mut all = Vec::new();
    for object in cluster.list::<T>("default").await? {
        let mut value: Value = serde_json::from_slice(&object.to_json()?)?;
        without_volatile(&mut value);
        if let Some(prefix) = value["metadata"]["generateName"].as_str().map(str::to_owned) {
            value["metadata"]["name"] = prefix.into();
        }
        all.push(value);
    }
    all.sort_by_key(Value::to_string);
    Ok(Value::Array(all))
}

/// Every controller has a part in a story.
#[test]
fn no_controller_is_left_out() {
    const STORIES: [&str; 15] = [
        include_str!("accounts.rs"),
        include_str!("autoscaling.rs"),
        include_str!("batch.rs"),
        include_str!("claims.rs"),
        include_str!("collected.rs"),
        include_str!("devices.rs"),
        include_str!("limits.rs"),
        include_str!("mod.rs"),
        include_str!("nodes.rs"),
        include_str!("room.rs"),
        include_str!("services.rs"),
        include_str!("storage.rs"),
        include_str!("tokens.rs"),
        include_str!("versions.rs"),
        include_str!("workloads.rs"),
    ];
    let told = |name: &str| {
        let quoted = format!("\"{name}\"");
        STORIES.iter().any(|story| story.contains(&quoted))
    };
    let missing: Vec<&str> = controllers::known().iter().map(|c| c.name).filter(|name| !told(name)).collect();
    assert!(missing.is_empty(), "without a story: {missing:?}");
}
