//! Load on the Pods of a simulation: what nodes say that their Pods use.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use api::Status;
use apiserver::Pages;
use bytes::Bytes;
use client::{Client, ListParams};
use component::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The label by which load finds Pods.
const APP: &str = "app";
/// The seconds of a core that a Pod has used before its first measurement, so that it counts as measured.
const FIRST: f64 = 0.01;
/// The working set of a Pod in bytes.
const MEMORY: u64 = 16 << 20;

/// The load of a cluster. Clones are the same.
#[derive(Clone)]
pub struct Loads(Arc<Inner>);

struct Inner {
    clock: Clock,
    /// The administrator's client, once there is one.
    client: OnceLock<Client>,
    state: Mutex<State>,
}

struct State {
    /// The cores that applications keep busy, by the label of their Pods.
    cores: BTreeMap<String, f64>,
    /// The seconds of a core that each Pod has used, by uid.
    used: HashMap<String, f64>,
    /// Up to when that is.
    at: Instant,
}

impl Loads {
    pub(crate) fn new(clock: Clock) -> Self {
        let state = State { cores: BTreeMap::new(), used: HashMap::new(), at: Instant::now() };
        Self(Arc::new(Inner { clock, client: OnceLock::new(), state: Mutex::new(state) }))
    }

    /// Finds the Pods through this client from now on.
    pub(crate) fn read_through(&self, client: Client) {
        let _ = self.0.client.set(client);
    }

    /// Lets the running Pods with the label `app` of this value keep so many cores busy, all alike.
    ///
    /// # Errors
    /// Where the Pods cannot be read.
    pub async fn set(&self, app: &str, cores: f64) -> Result<(), Status> {
        self.advance().await?;
        self.0.state.lock().cores.insert(app.to_owned(), cores);
        Ok(())
    }

    /// Counts what was used until now; the running Pods.
    async fn advance(&self) -> Result<Vec<Pod>, Status> {
        let Some(client) = self.0.client.get() else { return Ok(Vec::new()) };
        let pods = client.api::<Pod>("").list(&ListParams::default()).await?.items;
        let running = |pod: &Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
        let pods: Vec<Pod> = pods.into_iter().filter(running).collect();
        let mut state = self.0.state.lock();
        let now = Instant::now();
        let passed = now.duration_since(state.at).as_secs_f64();
        state.at = now;
        let mut sharing: HashMap<&str, usize> = HashMap::new();
        for app in pods.iter().filter_map(app_of) {
            *sharing.entry(app).or_default() += 1;
        }
        let State { cores, used, .. } = &mut *state;
        for pod in &pods {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            let seconds = used.entry(uid).or_insert(FIRST);
            if let Some((app, cores)) = app_of(pod).and_then(|app| Some((app, cores.get(app)?))) {
                *seconds += passed * cores / sharing.get(app).copied().unwrap_or(1) as f64;
            }
        }
        Ok(pods)
    }

    /// A node's page, as its kubelet would write it.
    async fn read(&self, node: &str) -> Result<Bytes, Status> {
        let pods = self.advance().await?;
        let state = self.0.state.lock();
        let (mut page, mut total) = (String::new(), FIRST);
        let millis = self.0.clock.now().as_millisecond();
        for pod in
            pods.iter().filter(|pod| pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(node))
        {
            let text = |t: &Option<String>| t.clone().unwrap_or_default();
            let seconds = state.used.get(&text(&pod.metadata.uid)).copied().unwrap_or(FIRST);
            total += seconds;
            let containers = pod.spec.iter().flat_map(|s| &s.containers);
            let share = seconds / containers.clone().count().max(1) as f64;
            for container in containers {
                let labels = format!(
                    "container=\"{}\",namespace=\"{}\",pod=\"{}\"",
                    container.name,
                    text(&pod.metadata.namespace),
                    text(&pod.metadata.name)
                );
                // Writing to a String does not fail.
                let _ = writeln!(page, "container_cpu_usage_seconds_total{{{labels}}} {share} {millis}");
                let _ = writeln!(page, "container_memory_working_set_bytes{{{labels}}} {MEMORY} {millis}");
            }
        }
        let _ = writeln!(page, "node_cpu_usage_seconds_total {total} {millis}");
        let _ = writeln!(page, "node_memory_working_set_bytes {MEMORY} {millis}");
        Ok(page.into())
    }
}

fn app_of(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(APP).map(String::as_str)
}

impl Pages for Loads {
    fn page<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<Bytes, Status>> {
        self.read(node).boxed()
    }
}
