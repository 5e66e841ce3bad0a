//! Directories of a node where other programs expect them: the kubelet's, which drivers' manifests name, and those of Pods'
//! logs, where collectors look.

use anyhow::{Result, ensure};
use testkit::{Cluster, Image, Options, Signal, binary, eventually};

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: writes}
spec:
  containers:
  - name: c
    image: test.local/app:1
    command: [sh, -c, "echo hello > /v/file; exec sleep 100000"]
    readinessProbe: {exec: {command: [test, -s, /v/file]}, periodSeconds: 1}
    volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, emptyDir: {}}]
"#;

#[test]
fn the_kubelet_keeps_its_files_where_it_is_told() -> Result<()> {
    let place = tempfile::tempdir()?;
    let root = place.path().join("kubelet");
    let flags = vec![format!("--root-dir={}", root.display())];
    let images = vec![Image::busybox("test.local/app:1")?];
    let c = Cluster::start("root-dir", Options { images, flags, ..Options::default() })?;
    c.apply(POD)?;
    c.kubectl(&["wait", "--for=condition=Ready", "pod/writes", "--timeout=60s"])?;
    let uid = c.kubectl(&["get", "pod", "writes", "-o", "jsonpath={.metadata.uid}"])?;
    let file = root.join(format!("pods/{uid}/volumes/kubernetes.io~empty-dir/v/file"));
    assert_eq!(std::fs::read_to_string(file)?, "hello\n");
    assert!(root.join("device-plugins/kubelet.sock").exists());
    assert!(!c.data_dir().join("kubelet").exists());
    // The cluster is removed with it.
    drop(c);
    assert!(!root.exists());
    Ok(())
}

/// A Pod that writes a line, and a collector of logs as its manifests have it.
const LOGS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: speaks}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: test.local/app:1, command: [sh, -c, "echo heard; exec sleep 100000"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: collects}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: test.local/app:1
    command: [sleep, "100000"]
    volumeMounts: [{name: logs, mountPath: /var/log, readOnly: true}]
  volumes: [{name: logs, hostPath: {path: /var/log}}]
"#;

/// Logs of another kubelet's Pod, with a link to one that is being rotated.
const STRANGERS: &str = "mkdir -p /var/log/pods/ns_stranger_uid/c && echo kept > /var/log/pods/ns_stranger_uid/c/0.log && \
     ln -s /var/log/pods/ns_stranger_uid/c/1.log /var/log/containers/stranger_ns_c-0123456.log";

#[test]
fn collectors_find_the_logs_of_pods_and_down_leaves_those_of_others() -> Result<()> {
    let host = testkit::Host::new("collected")?;
    host.connect()?;
    host.run("sh", &["-c", STRANGERS])?;
    let strangers = "/var/log/containers:\nstranger_ns_c-0123456.log\n\n/var/log/pods:\nns_stranger_uid\n";
    let images = vec![Image::busybox("test.local/app:1")?];
    let mut c = Cluster::start_on(host, Options { images, ..Options::default() })?;
    let logs = |c: &Cluster| c.host().run("ls", &["-A", "/var/log/containers", "/var/log/pods"]);
    c.apply(LOGS)?;
    c.kubectl(&["wait", "--for=condition=Ready", "pod/speaks", "pod/collects", "--timeout=60s"])?;
    let read = ["exec", "collects", "--", "sh", "-c", "cat /var/log/containers/speaks_default_c-*.log"];
    eventually("the line is collected", || {
        let text = c.kubectl(&read)?;
        ensure!(text.lines().count() == 1 && text.ends_with(" stdout F heard\n"), "{text}");
        Ok(Some(()))
    })?;
    ensure!(c.kubectl(&["logs", "speaks"])? == "heard\n");
    c.kubectl(&["delete", "pod", "speaks"])?;
    eventually("its logs go", || Ok((!logs(&c)?.contains("speaks")).then_some(())))?;
    // The next process takes the logs that the one before marked for its own, and no others.
    c.stop_ferrokube(Signal::KILL)?;
    c.start_ferrokube()?;
    c.wait_ready()?;
    ensure!(logs(&c)?.contains("default_collects_"), "{}", logs(&c)?);
    c.stop_ferrokube(Signal::KILL)?;
    let data = c.data_dir();
    c.host().run(&binary().to_string_lossy(), &["down", "--data-dir", &data.to_string_lossy()])?;
    ensure!(logs(&c)? == strangers, "{}", logs(&c)?);
    ensure!(c.host().run("cat", &["/var/log/pods/ns_stranger_uid/c/0.log"])? == "kept\n");
    Ok(())
}
