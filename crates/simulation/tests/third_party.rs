//! Plugins that are not the scheduler's own, and several profiles in one scheduler.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Error, Result};
use ferrokube_simulation::Cluster;
use k8s_openapi::api::core::v1::{Node, Pod};
use scheduler::cache::{Cache, NodeInfo};
use scheduler::config::read;
use scheduler::framework::plugin::{Plugin, Points};
use scheduler::framework::points::{
    Binding, Cycle, Filter, Later, Permission, Permit, PostBind, PreBind, Reserve, Unbound,
};
use scheduler::framework::state::State;
use scheduler::framework::verdict::Rejection;
use scheduler::framework::waiting::Waiting;
use scheduler::pod::PodInfo;
use scheduler::run::Settings;
use serde_json::{Value, json};

use crate::common::{bare, condition, pod};

const LONG: Duration = Duration::from_mins(6);

/// A plugin at many points: it keeps Pods off a node, panics if it is asked to, and says what it was asked.
struct Third {
    refuses: &'static str,
    said: Mutex<Vec<String>>,
    held: AtomicUsize,
}

/// A note that goes with a Pod.
struct Note(String);

impl Third {
    fn say(&self, point: &str, pod: &PodInfo) {
        if let Ok(mut said) = self.said.lock() {
            said.push(format!("{point} {}", pod.name()));
        }
    }
    fn said(&self) -> Vec<String> {
        self.said.lock().map(|said| said.clone()).unwrap_or_default()
    }
}

impl Filter for Third {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        assert!(cycle.pod.labels.get("panic") != Some("filter"), "a plugin that nobody tested");
        if node.name() == self.refuses {
            return Err(Rejection::new("Third", "node(s) belong to others"));
        }
        Ok(())
    }
}

impl Reserve for Third {
    fn reserve(
        &self,
        pod: &PodInfo,
        _: &Cache,
        node: &NodeInfo,
        carried: &mut State,
    ) -> Result<(), Rejection> {
        self.held.fetch_add(1, Ordering::Relaxed);
        carried.put(Note(format!("{} on {}", pod.name(), node.name())));
        Ok(())
    }
    fn unreserve(&self, pod: &PodInfo, _: &str, _: &mut State) {
        self.held.fetch_sub(1, Ordering::Relaxed);
        self.say("unreserve", pod);
    }
}

impl Permit for Third {
    fn permit(&self, pod: &PodInfo, _: &Cache, _: &str, _: &mut State) -> Result<Permission, Rejection> {
        match pod.labels.get("permit") {
            Some("wait") => Ok(Permission::Wait(Duration::from_secs(30))),
            Some("never") => Err(Rejection::new("Third", "no permit")),
            _ => Ok(Permission::Granted),
        }
    }
}

impl PreBind for Third {
    fn concerns(&self, pod: &PodInfo, _: &str, _: &State) -> bool {
        !pod.labels.is_empty()
    }
    fn pre_bind<'a>(&'a self, binding: &'a Binding<'a>) -> Later<'a, Result<(), Unbound>> {
        Box::pin(async move {
            assert!(binding.pod.labels.get("panic") != Some("bind"), "a plugin that nobody tested");
            let note = binding.carried.get::<Note>().map(|n| n.0.clone()).unwrap_or_default();
            self.say(&format!("prebind ({note})"), binding.pod);
            Ok(())
        })
    }
}

impl PostBind for Third {
    fn post_bind(&self, binding: &Binding<'_>) {
        self.say("postbind", binding.pod);
    }
}

/// A scheduler with the plugin in each of two profiles, but for `filter`, which the second alone has.
fn settings(third: &Arc<Third>, waiting: &Waiting) -> Result<Settings> {
    let third = third.clone();
    let mut plugins = scheduler::plugins::registry().map_err(Error::msg)?;
    let factory = move |_: &_| {
        let points = Points {
            filter: Some(third.clone()),
            reserve: Some(third.clone()),
            permit: Some(third.clone()),
            pre_bind: Some(third.clone()),
            post_bind: Some(third.clone()),
            ..Points::default()
        };
        Ok(Plugin::new("Third", points))
    };
    plugins.add("Third", factory).map_err(Error::msg)?;
    let config = "
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        profiles:
        - schedulerName: default-scheduler
          plugins: {multiPoint: {enabled: [{name: Third}]}, filter: {disabled: [{name: Third}]}}
        - schedulerName: second
          plugins: {multiPoint: {enabled: [{name: Third}], disabled: [{name: DefaultPreemption}, {name: DynamicResources}]}}
        ";
    let config = read::parse(config.as_bytes()).map_err(Error::msg)?;
    Ok(Settings::new(&config, &plugins).map_err(Error::msg)?.with_waiting(waiting.clone()))
}

struct Run {
    cluster: Cluster,
    third: Arc<Third>,
    waiting: Waiting,
}

impl Run {
    async fn start(refuses: &'static str) -> Result<Self> {
        let cluster = bare().await?;
        let room = json!({"cpu": "4", "pods": "9"});
        let status = json!({"allocatable": room, "capacity": room});
        cluster.put::<Node>(&json!({"metadata": {"name": "n"}, "status": status})).await?;
        let third = Arc::new(Third { refuses, said: Mutex::default(), held: AtomicUsize::new(0) });
        let waiting = Waiting::default();
        cluster.scheduler_with(settings(&third, &waiting)?);
        Ok(Self { cluster, third, waiting })
    }
    async fn put(&self, name: &str, labels: Value, scheduler: &str) -> Result<()> {
        let tolerations = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
        let spec = json!({"tolerations": tolerations, "schedulerName": scheduler});
        self.cluster
            .put::<Pod>(&pod(name, json!({"metadata": {"labels": labels}, "spec": spec})))
            .await
            .map(drop)
    }
    async fn bound(&self, name: &str) -> Result<Duration> {
        let has = |p: &Pod| p.spec.as_ref().is_some_and(|s| s.node_name.is_some());
        self.until(name, has).await
    }
    /// Waits for the reason and a part of the message of `PodScheduled`.
    async fn says(&self, name: &str, reason: &str, part: &str) -> Result<Duration> {
        let says = |p: &Pod| {
            condition(p, "PodScheduled").is_some_and(|c| {
                c.reason.as_deref() == Some(reason) && c.message.as_deref().is_some_and(|m| m.contains(part))
            })
        };
        self.until(name, says).await
    }
    async fn until(&self, name: &str, wanted: impl Fn(&Pod) -> bool) -> Result<Duration> {
        let named = |p: &&Pod| p.metadata.name.as_deref() == Some(name);
        self.cluster.until::<Pod>(LONG, "default", |all| all.iter().find(named).is_some_and(&wanted)).await
    }
}

#[tokio::test(start_paused = true)]
async fn each_profile_has_its_own_plugins() -> Result<()> {
    let run = Run::start("n").await?;
    run.put("first", json!({}), "default-scheduler").await?;
    run.put("second", json!({}), "second").await?;
    run.put("foreign", json!({}), "somebody-elses").await?;
    run.bound("first").await?;
    // Without plugins that look for a way out, nothing is said of one.
    run.says("second", "Unschedulable", "0/1 nodes are available: 1 node(s) belong to others.").await?;
    let foreign = run.cluster.get::<Pod>("default", "foreign").await?;
    assert!(foreign.is_some_and(|p| condition(&p, "PodScheduled").is_none()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_panics_costs_one_pod_its_turn() -> Result<()> {
    let run = Run::start("").await?;
    run.put("odd", json!({"panic": "filter"}), "second").await?;
    run.says("odd", "SchedulerError", "the scheduling cycle panicked: a plugin that nobody tested").await?;
    run.put("odder", json!({"panic": "bind"}), "second").await?;
    run.says("odder", "SchedulerError", "the scheduling cycle panicked: a plugin that nobody tested").await?;
    run.put("plain", json!({}), "second").await?;
    run.bound("plain").await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn pods_wait_for_a_permit() -> Result<()> {
    let run = Run::start("").await?;
    run.put("waits", json!({"permit": "wait"}), "second").await?;
    run.cluster.until::<Pod>(LONG, "default", |_| !run.waiting.uids().is_empty()).await?;
    for uid in run.waiting.uids() {
        run.waiting.allow(&uid, "Third");
    }
    run.bound("waits").await?;
    assert_eq!(run.third.said(), ["prebind (waits on n) waits", "postbind waits"]);
    assert_eq!(run.third.held.load(Ordering::Relaxed), 1);

    run.put("refused", json!({"permit": "never"}), "second").await?;
    run.says("refused", "Unschedulable", "0/1 nodes are available: 1 no permit.").await?;
    assert_eq!(run.third.held.load(Ordering::Relaxed), 1, "all that was held is given back");

    run.put("late", json!({"permit": "wait"}), "second").await?;
    let why = "1 rejected due to timeout after waiting 30s at plugin Third.";
    let waited = run.says("late", "Unschedulable", why).await?;
    assert!(waited >= Duration::from_secs(30), "{waited:?}");
    Ok(())
}
