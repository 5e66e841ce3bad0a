//! A node under load: Pods come and go without a trace, and the node is killed at random moments without a loss.
//!
//! `FERROKUBE_POD_SECONDS` is the time for which Pods come and go, `FERROKUBE_PODS` their number at once.
//! `FERROKUBE_NODE_KILLS` is the number of kills, `FERROKUBE_NODE_KILL_SEED` the beginning of their moments.

mod churn;
mod holdings;
mod kills;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use client::{Api, Client, Config, Remote};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::{Value, json};
use testkit::{Cluster, Image, Options};

const IMAGE: &str = "test.local/app:1";
/// A time far longer than anything takes on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_mins(3);
/// The pace of asking.
const PACE: Duration = Duration::from_millis(20);

/// A node whose machine's disk does not matter.
fn node(name: &str) -> Result<Cluster> {
    let flags = ["--eviction-hard", "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%"];
    let flags = flags.map(str::to_owned).into();
    Cluster::start(name, Options { images: vec![Image::busybox(IMAGE)?], flags, ..Options::default() })
}

/// A client of a cluster, to be made and used within its host's network.
fn client(kubeconfig: &Path) -> Result<Client> {
    let remote = Remote::new(Config::from_kubeconfig(kubeconfig, None)?)?;
    Ok(Client::new(Arc::new(remote), "test"))
}

/// A Pod of one container that runs a script, with further fields of the Pod's and of the container's.
fn pod(name: &str, script: &str, of_pod: &Value, of_container: &Value) -> Result<Pod> {
    let mut container = json!({"name": "c", "image": IMAGE, "command": ["sh", "-c", script]});
    let mut spec = json!({"terminationGracePeriodSeconds": 1});
    for (to, from) in [(&mut container, of_container), (&mut spec, of_pod)] {
        for (key, value) in from.as_object().into_iter().flatten() {
            to[key] = value.clone();
        }
    }
    spec["containers"] = json!([container]);
    Ok(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?)
}

/// The status of a Pod's container, once it has one.
fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// Options of a deletion with this grace.
fn with_grace(seconds: i64) -> DeleteOptions {
    DeleteOptions { grace_period_seconds: Some(seconds), ..DeleteOptions::default() }
}

/// Asks until the answer is true; an error is one of a server that is away, until the time is up.
async fn until(what: &str, mut ask: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let since = Instant::now();
    loop {
        let error = match ask().await {
            Ok(true) => return Ok(()),
            Ok(false) => String::new(),
            Err(error) => format!(": {error:#}"),
        };
        ensure!(since.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}{error}");
        tokio::time::sleep(PACE).await;
    }
}

/// Waits until the namespace has its account, without which no Pod is taken.
async fn account(client: &Client) -> Result<()> {
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = client.api("default");
    until("the account", async || Ok(accounts.get("default").await.map(|_| true)?)).await
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
