//! An autoscaler follows real load on real containers, and `kubectl top` shows it.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::{Cluster, Image, Options, within};

const BUSY: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: busy}
spec:
  replicas: 1
  selector: {matchLabels: {app: busy}}
  template:
    metadata: {labels: {app: busy}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: test.local/app:1
        command: [sh, -c, "while :; do :; done"]
        resources: {requests: {cpu: 40m}, limits: {cpu: 80m}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: busy}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: busy}
  minReplicas: 1
  maxReplicas: 3
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
"#;

/// The thousandths of a processor in a line of `kubectl top`.
fn milli(line: &str, column: usize) -> Option<u32> {
    line.split_ascii_whitespace().nth(column)?.strip_suffix('m')?.parse().ok()
}

#[test]
fn a_deployment_under_load_is_scaled() -> Result<()> {
    let flags = vec![
        "--eviction-hard".into(),
        "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%".into(),
    ];
    let images = vec![Image::busybox("test.local/app:1")?];
    let c = Cluster::start("autoscaling", Options { images, flags, ..Options::default() })?;
    c.apply(BUSY)?;
    let minutes = Duration::from_mins(4);
    within(minutes, "three replicas", || {
        let deployment = c.get("deployment", "busy")?;
        Ok((deployment["spec"]["replicas"] == 3 && deployment["status"]["readyReplicas"] == 3).then_some(()))
    })?;
    let events = c.kubectl(&["get", "events", "--field-selector", "involvedObject.name=busy"])?;
    let said = "reason: cpu resource utilization (percentage of request) above target";
    ensure!(events.contains("SuccessfulRescale") && events.contains(said), "{events}");
    within(minutes, "the use of all Pods", || {
        let top = c.kubectl(&["top", "pods", "--containers", "--no-headers"])?;
        let busy = top.lines().filter(|l| milli(l, 2).is_some_and(|m| (20..=200).contains(&m)));
        Ok((busy.count() == 3).then_some(()))
    })?;
    let top = c.kubectl(&["top", "nodes", "--no-headers"])?;
    ensure!(top.lines().count() == 1 && milli(&top, 1).is_some_and(|m| m > 50), "{top}");
    let table = c.kubectl(&["get", "pods.v1beta1.metrics.k8s.io"])?;
    let head: Vec<&str> = table.lines().next().unwrap_or_default().split_ascii_whitespace().collect();
    ensure!(head == ["NAME", "CPU", "MEMORY", "SWAP", "WINDOW"], "{table}");
    // A namespace goes though its metrics cannot be deleted.
    c.kubectl(&["create", "namespace", "short"])?;
    c.kubectl(&["delete", "namespace", "short", "--wait=true", "--timeout=60s"])?;
    Ok(())
}
