//! Claims on a real node: their data outlive the Pods, the process, and nothing but the claim's end.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde_json::Value;
use testkit::{Cluster, Image, Options, Signal, eventually};

fn cluster(name: &str, more: &[&str]) -> Result<Cluster> {
    let mut flags = vec![
        "--eviction-hard".to_owned(),
        "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%".to_owned(),
    ];
    flags.extend(more.iter().map(|f| (*f).to_owned()));
    let images = vec![Image::busybox("test.local/app:1")?];
    Cluster::start(name, Options { images, flags, ..Options::default() })
}

fn until(c: &Cluster, kind: &str, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    eventually(&format!("{kind} {name}: {what}"), || Ok(Some(c.get(kind, name)?).filter(|o| holds(o))))
}

fn phase(c: &Cluster, kind: &str, name: &str, phase: &str) -> Result<Value> {
    until(c, kind, name, phase, |o| o["status"]["phase"] == phase)
}

/// A Pod that runs a command with the claim `c` at `/data`.
fn pod(name: &str, command: &str, more: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  securityContext: {{fsGroup: 1234}}
  containers:
  - name: c
    image: test.local/app:1
    command: [sh, -c, "{command}"]
    volumeMounts: [{{name: data, mountPath: /data{more}}}]
  volumes: [{{name: data, persistentVolumeClaim: {{claimName: c}}}}]
"#
    )
}

const CLAIM: &str = r"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";

/// The directory of a claim's volume on the node.
fn directory(c: &Cluster, claim: &str) -> Result<PathBuf> {
    let claim = c.get("pvc", claim)?;
    let name = claim["spec"]["volumeName"].as_str().unwrap_or_default();
    ensure!(name.starts_with("pvc-"), "{claim}");
    Ok(c.data_dir().join("volumes").join(name))
}

#[test]
fn data_survive_their_pods_and_the_process() -> Result<()> {
    let mut c = cluster("claims", &[])?;
    let class = c.get("storageclass", "local-path")?;
    assert_eq!(class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"], "true");
    c.apply(CLAIM)?;
    until(&c, "pvc", "c", "the default class", |p| p["spec"]["storageClassName"] == "local-path")?;
    let described = eventually("the claim waits for its Pod", || {
        let text = c.kubectl(&["describe", "pvc", "c"])?;
        Ok(text.contains("waiting for first consumer to be created before binding").then_some(text))
    })?;
    assert!(described.contains("Pending"), "{described}");

    c.apply(&pod(
        "writes",
        "echo one > /data/f; mkdir /data/part; echo two > /data/part/g; stat -c %g /data",
        "",
    ))?;
    phase(&c, "pod", "writes", "Succeeded")?;
    assert_eq!(c.kubectl(&["logs", "writes"])?.trim(), "1234", "the volume's group");
    phase(&c, "pvc", "c", "Bound")?;
    let dir = directory(&c, "c")?;
    assert_eq!(fs::read_to_string(dir.join("f"))?, "one\n");
    c.kubectl(&["delete", "pod", "writes"])?;
    assert_eq!(fs::read_to_string(dir.join("f"))?, "one\n", "the Pod's end leaves its data");

    // Killed while a Pod with the claim runs, and again before the next one is there.
    c.apply(&pod("runs", "cat /data/f; while ! test -f /data/end; do sleep 0.1; done", ""))?;
    phase(&c, "pod", "runs", "Running")?;
    c.stop_ferrokube(Signal::KILL)?;
    c.start_ferrokube()?;
    c.wait_ready()?;
    fs::write(dir.join("end"), "")?;
    phase(&c, "pod", "runs", "Succeeded")?;
    c.apply(&pod("reads", "cat /data/g; ! touch /data/h", ", subPath: part, readOnly: true"))?;
    c.stop_ferrokube(Signal::KILL)?;
    c.start_ferrokube()?;
    c.wait_ready()?;
    phase(&c, "pod", "reads", "Succeeded")?;
    let log = c.kubectl(&["logs", "reads"])?;
    assert!(log.lines().any(|line| line == "two") && log.contains("Read-only file system"), "{log}");

    // A claim that is used stays until its Pods are gone; then the volume goes, and its directory before it.
    c.kubectl(&["delete", "pvc", "c", "--wait=false"])?;
    assert!(dir.join("f").exists(), "a Pod still has the claim");
    c.kubectl(&["delete", "pods", "--all"])?;
    eventually("the volume is gone", || {
        let left: Value = serde_json::from_str(&c.kubectl(&["get", "pv", "-o", "json"])?)?;
        Ok(left["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
    })?;
    assert!(!dir.exists(), "the directory goes before the volume");
    eventually("nothing is left of the Pods", || {
        Ok((fs::read_dir(c.data_dir().join("kubelet/pods"))?.count() == 0).then_some(()))
    })
}

const SET: &str = r"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set}
spec:
  serviceName: set
  replicas: 2
  selector: {matchLabels: {app: set}}
  template:
    metadata: {labels: {app: set}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: test.local/app:1
        command: [sh, -c, 'hostname >> /data/names; exec sleep 100000']
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOncePod], resources: {requests: {storage: 1Mi}}}
";

/// A volume that the administrator made, and what Pods have of it.
const STATIC: &str = r"
apiVersion: v1
kind: PersistentVolume
metadata: {name: static}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  storageClassName: by-hand
  hostPath: {path: PATH, type: DirectoryOrCreate}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c}
spec: {accessModes: [ReadWriteMany], storageClassName: by-hand, resources: {requests: {storage: 1Gi}}}
";

const EPHEMERAL: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: scratch}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: test.local/app:1, command: [touch, /data/f], volumeMounts: [{name: v, mountPath: /data}]}
  volumes:
  - name: v
    ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}}
";

#[test]
fn sets_static_volumes_and_ephemeral_ones() -> Result<()> {
    let c = cluster("volumes", &[])?;
    c.apply(SET)?;
    until(&c, "statefulset", "set", "two Pods", |s| s["status"]["readyReplicas"] == 2)?;
    c.kubectl(&["delete", "pod", "set-0"])?;
    eventually("the Pod comes back to its data", || {
        let names = c.kubectl(&["exec", "set-0", "--", "cat", "/data/names"])?;
        Ok((names == "set-0\nset-0\n").then_some(()))
    })?;
    assert_eq!(c.kubectl(&["exec", "set-1", "--", "cat", "/data/names"])?, "set-1\n");

    let path = c.host().path("by-hand");
    c.apply(&STATIC.replace("PATH", &path.display().to_string()))?;
    phase(&c, "pvc", "c", "Bound")?;
    c.apply(&pod("writes", "echo one > /data/f", ""))?;
    phase(&c, "pod", "writes", "Succeeded")?;
    assert_eq!(fs::read_to_string(path.join("f"))?, "one\n");
    c.kubectl(&["delete", "pod/writes", "pvc/c"])?;
    phase(&c, "pv", "static", "Released")?;
    assert!(path.join("f").exists(), "the volume is kept");

    c.apply(EPHEMERAL)?;
    phase(&c, "pod", "scratch", "Succeeded")?;
    let dir = directory(&c, "scratch-v")?;
    assert!(dir.join("f").exists());
    c.kubectl(&["delete", "pod", "scratch"])?;
    eventually("the volume goes with its Pod", || Ok((!dir.exists()).then_some(())))?;

    // A Pod whose claim is not there says so.
    c.apply(&pod("waits", "true", "").replace("claimName: c", "claimName: none"))?;
    let message = "persistentvolumeclaim \"none\" not found";
    until(&c, "pod", "waits", message, |p| {
        p["status"]["conditions"][0]["message"].as_str().is_some_and(|m| m.contains(message))
    })?;
    Ok(())
}

#[test]
fn a_cluster_without_the_provisioner_has_no_class() -> Result<()> {
    let c = cluster("no-local", &["--disable-local-path"])?;
    c.apply(CLAIM)?;
    let message = "no persistent volumes available for this claim and no storage class is set";
    eventually("the claim says what it lacks", || {
        Ok(c.kubectl(&["describe", "pvc", "c"])?.contains(message).then_some(()))
    })?;
    assert_eq!(c.kubectl(&["get", "storageclass", "-o", "name"])?, "");
    Ok(())
}
