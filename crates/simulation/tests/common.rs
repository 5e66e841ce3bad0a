//! Objects and waits that several tests share.

use std::time::Duration;

use anyhow::{Result, bail};
use client::Verb;
use ferrokube_simulation::{Cluster, Fault, Rule};
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
    bare_with(|_| {}).await
}

/// The same with settings of the API server.
pub(crate) async fn bare_with(set: impl FnOnce(&mut apiserver::Config)) -> Result<Cluster> {
    let cluster = Cluster::start_with(set).await?;
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

/// A Pod with an SELinux label of this level, which mounts the claim `c`.
pub(crate) fn labelled(name: &str, level: &str) -> Value {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    let context = json!({"seLinuxOptions": {"level": level}});
    let mut pod = pod(name, json!({"spec": {"securityContext": context, "volumes": volumes}}));
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
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

/// Interrupts a controller at its write number `skip` of a kind: it hangs there, whatever it does next, and another one
/// starts with what the server has. Deletions are not held up, since nodes make some too: the controller ends when it
/// has begun one.
pub(crate) async fn interrupted(
    cluster: &Cluster,
    controller: &str,
    (verb, resource, subresource, skip): (Verb, &str, &str, usize),
    change: impl AsyncFnOnce(&Cluster) -> Result<()>,
) -> Result<()> {
    let stop = cluster.shutdown().child();
    if verb != Verb::Delete {
        let rule = Rule::new(Fault::Hang).verb(verb).resource(resource).subresource(subresource);
        cluster.faults().add(rule.skip(skip));
    }
    cluster.controllers_until(&stop, &[controller], |_| {})?;
    change(cluster).await?;
    let end = Instant::now() + MINUTE;
    while Instant::now() < end {
        let pods = cluster.list::<Pod>("default").await?;
        if verb == Verb::Delete && pods.iter().any(|p| p.metadata.deletion_timestamp.is_some()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // the pace of looking, in simulated time
    }
    stop.stop();
    cluster.faults().clear();
    cluster.controllers(&[controller])?;
    Ok(())
}

/// A signer whose tokens tell whom they are for.
#[derive(Debug)]
pub(crate) struct Signer;

impl controllers::TokenSigner for Signer {
    fn sign(&self, of: controllers::TokenSubject<'_>) -> Result<String, String> {
        Ok(format!("{}/{}/{}/{}", of.namespace, of.account, of.uid, of.secret))
    }
}
