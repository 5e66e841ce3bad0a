//! Objects and waits that several tests share.

use std::time::Duration;

use anyhow::{Result, bail};
use ferrokube_simulation::Cluster;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use serde_json::{Value, json};
use tokio::time::Instant;

pub(crate) const MINUTE: Duration = Duration::from_mins(1);

/// A cluster with these controllers alone, in which Pods can be made.
pub(crate) async fn started(controllers: &[&str]) -> Result<Cluster> {
    let cluster = bare().await?;
    cluster.controllers(controllers)?;
    Ok(cluster)
}

/// A cluster without controllers, in which Pods can be made.
pub(crate) async fn bare() -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    cluster
        .create::<ServiceAccount>(&json!({"metadata": {"name": "default", "namespace": "default"}}))
        .await?;
    Ok(cluster)
}

/// Puts the members of one JSON object into another, however deep they are.
pub(crate) fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// A Pod of the namespace `default`.
pub(crate) fn pod(name: &str, more: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    merge(&mut pod, &more);
    pod
}

/// A condition of a Pod.
pub(crate) fn condition<'a>(
    pod: &'a Pod,
    kind: &str,
) -> Option<&'a k8s_openapi::api::core::v1::PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == kind)
}

/// Waits, in simulated time, until something holds.
pub(crate) async fn eventually(
    what: &str,
    limit: Duration,
    mut holds: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + limit;
    while !holds().await? {
        if Instant::now() > end {
            bail!("{what}: not within {limit:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // the pace of asking, in simulated time
    }
    Ok(())
}

/// Waits until an Event gives this reason.
pub(crate) async fn said(cluster: &Cluster, reason: &str) -> Result<()> {
    eventually(reason, MINUTE, async || Ok(cluster.reasons().await?.iter().any(|r| r == reason))).await
}
