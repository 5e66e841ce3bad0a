//! Pods that take too much of the node, and a node that runs short, with real containerd and real file systems.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{Cluster, Host, eventually};

use crate::kubelet_alone::{
    IMAGE, NODE, control_plane, end, flags, kill, node_is_ready, on_a_control_plane, start,
};

/// Writes the settings anew with other thresholds.
fn with_thresholds(cluster: &Cluster, more: &str) -> Result<()> {
    let path = cluster.host().path("kubelet.yaml");
    let text = std::fs::read_to_string(&path)?;
    let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with("evictionHard")).collect();
    std::fs::write(path, format!("{}\n{more}", kept.join("\n")))?;
    Ok(())
}

/// A Pod on the node that runs a command, with a volume at `/scratch`.
fn pod(name: &str, volume: &str, resources: &str, command: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: {NODE}
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: {IMAGE}
    resources: {resources}
    command: [sh, -c, \"{command}; exec sleep 1000000\"]
    volumeMounts: [{{name: scratch, mountPath: /scratch}}]
  volumes: [{{name: scratch, emptyDir: {volume}}}]
"
    )
}

/// The status of a Pod that has failed.
fn failed(cluster: &Cluster, name: &str) -> Result<Value> {
    eventually(&format!("{name} has failed"), || {
        let status = cluster.get("pod", name)?["status"].clone();
        Ok((status["phase"] == "Failed").then_some(status))
    })
}

fn runs(cluster: &Cluster, name: &str) -> Result<Option<()>> {
    Ok((cluster.get("pod", name)?["status"]["phase"] == "Running").then_some(()))
}

fn above_limits(cluster: &Cluster) -> Result<()> {
    let flags = flags(cluster)?;
    let kubelet = start(cluster, &flags)?;
    eventually("the node is Ready", || node_is_ready(cluster))?;
    let write = "dd if=/dev/zero of=/scratch/file bs=1M count=8";
    cluster.apply(&pod("within", "{sizeLimit: 16Mi}", "{}", write))?;
    cluster.apply(&pod("above", "{sizeLimit: 4Mi}", "{}", write))?;
    let container = "{limits: {ephemeral-storage: 4Mi}}";
    cluster.apply(&pod("container", "{}", container, "dd if=/dev/zero of=/file bs=1M count=8"))?;
    let status = failed(cluster, "above")?;
    let message = "Usage of EmptyDir volume \"scratch\" exceeds the limit \"4Mi\". ";
    ensure!(status["reason"] == "Evicted" && status["message"] == message, "{status}");
    let status = failed(cluster, "container")?;
    let message = "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ";
    ensure!(status["reason"] == "Evicted" && status["message"] == message, "{status}");
    eventually("the Event", || {
        let field = "--field-selector=reason=Evicted,involvedObject.name=above";
        let events = cluster.kubectl(&["get", "events", field, "-o", "jsonpath={.items[0].message}"])?;
        Ok(events.contains("exceeds the limit").then_some(()))
    })?;
    eventually("the other one runs on", || runs(cluster, "within"))?;
    kill(kubelet)
}

#[test]
fn pods_above_their_limits_of_storage_are_evicted() -> Result<()> {
    on_a_control_plane(above_limits)
}

/// A small file system at a path of a host, which has mounts of its own, until it is dropped.
struct Small<'a>(&'a Host, String);

impl<'a> Small<'a> {
    fn mount(host: &'a Host, at: &Path) -> Result<Self> {
        std::fs::create_dir_all(at)?;
        let at = at.to_str().context("a path that is no text")?.to_owned();
        host.run("mount", &["-t", "tmpfs", "-o", "size=64m", "small", &at])?;
        Ok(Self(host, at))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = self.0.run("umount", &["-l", &self.1]);
    }
}

fn pressure(cluster: &Cluster) -> Result<Option<Value>> {
    let node = cluster.get("node", NODE)?;
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    Ok(conditions.into_iter().find(|c| c["type"] == "DiskPressure"))
}

fn fills(cluster: &Cluster) -> Result<()> {
    let flags = flags(cluster)?;
    with_thresholds(
        cluster,
        "evictionHard: {nodefs.available: 32Mi}\nevictionPressureTransitionPeriod: 15s\n\
         volumeStatsAggPeriod: 2s\n",
    )?;
    let kubelet = start(cluster, &flags)?;
    eventually("the node is Ready", || node_is_ready(cluster))?;
    cluster.apply(&pod("modest", "{}", "{}", "dd if=/dev/zero of=/scratch/file bs=1M count=2"))?;
    eventually("the modest one runs", || runs(cluster, "modest"))?;
    cluster.apply(&pod("greedy", "{}", "{}", "dd if=/dev/zero of=/scratch/file bs=1M count=40"))?;
    let status = failed(cluster, "greedy")?;
    let message = status["message"].as_str().unwrap_or_default();
    let begins = "The node was low on resource: ephemeral-storage. Threshold quantity: 32Mi, available: ";
    ensure!(status["reason"] == "Evicted" && message.starts_with(begins), "{status}");
    let conditions = status["conditions"].as_array().context("no conditions")?;
    let disrupted = conditions.iter().find(|c| c["type"] == "DisruptionTarget").context("no condition")?;
    ensure!(disrupted["reason"] == "TerminationByKubelet" && disrupted["status"] == "True", "{disrupted}");
    // While the node is short, nobody is taken.
    let held =
        eventually("the node tells of it", || Ok(pressure(cluster)?.filter(|c| c["status"] == "True")))?;
    ensure!(held["reason"] == "KubeletHasDiskPressure", "{held}");
    cluster.apply(&pod("late", "{}", "{}", "true"))?;
    let late = failed(cluster, "late")?;
    let message = "Pod was rejected: The node had condition: [DiskPressure]. ";
    ensure!(late["reason"] == "Evicted" && late["message"] == message, "{late}");
    eventually("the pressure has gone", || Ok(pressure(cluster)?.filter(|c| c["status"] == "False")))?;
    cluster.apply(&pod("later", "{}", "{}", "true"))?;
    eventually("the next one runs", || runs(cluster, "later"))?;
    ensure!(runs(cluster, "modest")?.is_some(), "the modest one runs on");
    let events = cluster.kubectl(&["get", "events", "-A", "-o", "jsonpath={.items[*].reason}"])?;
    for reason in ["EvictionThresholdMet", "Evicted", "NodeHasDiskPressure", "NodeHasNoDiskPressure"] {
        ensure!(events.contains(reason), "no {reason} in {events}");
    }
    kill(kubelet)
}

#[test]
fn a_disk_that_fills_costs_the_greediest_pod() -> Result<()> {
    let cluster = control_plane()?;
    let root = cluster.host().path("kubelet");
    let small = Small::mount(cluster.host(), &root)?;
    let result = fills(&cluster);
    drop(small);
    let result = result.with_context(|| format!("{}\n{}", cluster.host().log("kubelet"), cluster.report()));
    result.and(end(cluster))
}
