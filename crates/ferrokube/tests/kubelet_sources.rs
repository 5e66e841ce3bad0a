//! Static Pods of a kubelet in a process of its own, with real containerd.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{Cluster, eventually};

use crate::kubelet_alone::{IMAGE, NODE, flags, kill, on_a_control_plane, start};

/// A manifest whose container says what it was told, and when it ends.
fn manifest(cluster: &Cluster, says: &str) -> String {
    let out = cluster.host().path("out").display().to_string();
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: web
    image: {IMAGE}
    command:
    - sh
    - -c
    - |
      trap 'echo {says} >> /out/ended; exit 0' TERM
      echo {says} >> /out/started
      while :; do sleep 1; done
    volumeMounts: [{{name: out, mountPath: /out}}]
  volumes: [{{name: out, hostPath: {{path: {out}, type: DirectoryOrCreate}}}}]
"
    )
}

fn text(cluster: &Cluster, name: &str) -> String {
    fs::read_to_string(cluster.host().path("out").join(name)).unwrap_or_default()
}

/// Waits until the containers have said this.
fn said(cluster: &Cluster, name: &str, expected: &str) -> Result<()> {
    eventually(&format!("{name} says {expected:?}"), || Ok((text(cluster, name) == expected).then_some(())))
        .with_context(|| format!("{name}: {:?}", text(cluster, name)))
}

fn directory(cluster: &Cluster) -> Result<PathBuf> {
    let dir = cluster.host().path("manifests");
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

fn mirror(cluster: &Cluster) -> Result<Option<Value>> {
    let Ok(pod) = cluster.get("pod", &format!("web-{NODE}")) else { return Ok(None) };
    Ok((pod["status"]["phase"] == "Running").then_some(pod))
}

fn mirrored(cluster: &Cluster) -> Result<()> {
    let dir = directory(cluster)?;
    let mut flags = flags(cluster)?;
    // Changes are heard of: nobody waits for the next look.
    flags.push(format!("--pod-manifest-path={}", dir.display()));
    flags.push("--file-check-frequency=1h".to_owned());
    let kubelet = start(cluster, &flags)?;
    fs::write(dir.join("web.yaml"), manifest(cluster, "one"))?;
    fs::write(dir.join("broken.yaml"), "apiVersion: v1\nkind: Pod\nmetadata: {}\n")?;
    let first = eventually("the static Pod has a mirror", || mirror(cluster))?;
    let (meta, node) = (&first["metadata"], cluster.get("node", NODE)?);
    let hash = &meta["annotations"]["kubernetes.io/config.hash"];
    ensure!(hash.is_string() && meta["annotations"]["kubernetes.io/config.mirror"] == *hash, "{meta}");
    ensure!(meta["annotations"]["kubernetes.io/config.source"] == "file", "{meta}");
    let owner = &meta["ownerReferences"][0];
    ensure!(owner["kind"] == "Node" && owner["uid"] == node["metadata"]["uid"], "{owner}");
    said(cluster, "started", "one\n")?;
    let name = format!("web-{NODE}");
    let log = cluster.kubectl(&["exec", &name, "--", "echo", "there"])?;
    ensure!(log == "there\n", "{log}");

    // A mirror that somebody deletes comes anew; the container runs on.
    cluster.kubectl(&["delete", "pod", &name, "--wait=false"])?;
    let second = eventually("another mirror", || {
        Ok(mirror(cluster)?.filter(|pod| pod["metadata"]["uid"] != first["metadata"]["uid"]))
    })?;
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    ensure!(id(&first) == id(&second) && id(&first).is_string(), "{first} {second}");

    // The next kubelet finds it running.
    kill(kubelet)?;
    let kubelet = start(cluster, &flags)?;
    eventually("the new kubelet answers", || {
        Ok((cluster.kubectl(&["exec", &name, "--", "echo", "there"])? == "there\n").then_some(()))
    })?;
    let third = eventually("the mirror is there", || mirror(cluster))?;
    ensure!(id(&first) == id(&third), "{first} {third}");

    // A changed file is another Pod, which starts once the one before has ended.
    fs::write(dir.join("web.yaml"), manifest(cluster, "two"))?;
    said(cluster, "started", "one\ntwo\n")?;
    said(cluster, "ended", "one\n")?;
    eventually("its mirror", || Ok(mirror(cluster)?.filter(|pod| id(pod) != id(&first))))?;
    fs::remove_file(dir.join("web.yaml"))?;
    said(cluster, "ended", "one\ntwo\n")?;
    eventually("the mirror is gone", || {
        let left = cluster.kubectl(&["get", "pods", "-o", "name"])?;
        Ok(left.is_empty().then_some(()))
    })?;
    let log = cluster.host().log("kubelet");
    ensure!(log.contains("name is needed for the pod"), "{log}");
    kill(kubelet)
}

#[test]
fn static_pods_run_and_are_mirrored() -> Result<()> {
    on_a_control_plane(mirrored)
}

fn without_a_server(cluster: &Cluster) -> Result<()> {
    let dir = directory(cluster)?;
    let mut flags = flags(cluster)?;
    flags.retain(|flag| !flag.starts_with("--kubeconfig"));
    flags.push(format!("--pod-manifest-path={}", dir.display()));
    fs::write(dir.join("web.yaml"), manifest(cluster, "one"))?;
    let kubelet = start(cluster, &flags)?;
    said(cluster, "started", "one\n")?;
    // Its containers outlive it, and the next one finds them.
    kill(kubelet)?;
    let kubelet = start(cluster, &flags)?;
    fs::write(dir.join("web.yaml"), manifest(cluster, "two"))?;
    said(cluster, "ended", "one\n")?;
    said(cluster, "started", "one\ntwo\n")?;
    fs::remove_file(dir.join("web.yaml"))?;
    said(cluster, "ended", "one\ntwo\n")?;
    ensure!(cluster.get("node", NODE).is_err(), "nobody registered a Node");
    kill(kubelet)
}

#[test]
fn a_kubelet_without_an_api_server_runs_static_pods() -> Result<()> {
    on_a_control_plane(without_a_server)
}
