//! The kubelet's directory where drivers' manifests expect it.

use anyhow::Result;
use testkit::{Cluster, Image, Options};

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
