//! Pods of a RuntimeClass whose handler is another OCI runtime: runc, beside the built-in one.

use anyhow::Result;
use testkit::{Cluster, Image, Options, Signal, eventually};

const PODS: &str = r#"
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: runc}
handler: runc
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: unknown}
handler: nosuch
---
apiVersion: v1
kind: Pod
metadata: {name: runs}
spec:
  runtimeClassName: runc
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: test.local/app:1
    command: [sh, -c, "echo hello; exec sleep 1000000"]
    readinessProbe: {exec: {command: [test, -e, /bin/busybox]}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: fails}
spec:
  runtimeClassName: runc
  restartPolicy: Never
  containers:
  - {name: c, image: test.local/app:1, command: [sh, -c, "echo done > /dev/termination-log; exit 3"]}
---
apiVersion: v1
kind: Pod
metadata: {name: eats}
spec:
  runtimeClassName: runc
  restartPolicy: Never
  containers:
  - {name: c, image: test.local/app:1, command: [sh, -c, "tail /dev/zero"], resources: {limits: {memory: 32Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: refused}
spec:
  runtimeClassName: unknown
  containers:
  - {name: c, image: test.local/app:1, command: [sleep, "1000"]}
"#;

#[test]
fn pods_of_another_runtime() -> Result<()> {
    let flags = vec![
        "--runtime-handler=runc=/usr/sbin/runc".into(),
        "--eviction-hard".into(),
        "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%".into(),
    ];
    let images = vec![Image::busybox("test.local/app:1")?];
    let mut c = Cluster::start("runtime-class", Options { images, flags, ..Options::default() })?;
    let node = c.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].status.runtimeHandlers[*].name}"])?;
    assert!(node.split_whitespace().any(|name| name == "runc"), "{node}");
    c.apply(PODS)?;
    let status = |name: &str| c.get("pod", name).map(|p| p["status"].clone());
    let ended = |name: &str| {
        eventually(&format!("the end of {name}"), || {
            Ok(status(name)?["containerStatuses"][0]["state"].get("terminated").cloned())
        })
    };
    let failed = ended("fails")?;
    assert_eq!((&failed["exitCode"], &failed["message"]), (&3.into(), &"done\n".into()));
    let eaten = ended("eats")?;
    assert_eq!((&eaten["exitCode"], &eaten["reason"]), (&137.into(), &"OOMKilled".into()));
    c.kubectl(&["wait", "--for=condition=Ready", "pod/runs", "--timeout=180s"])?;
    assert_eq!(c.kubectl(&["logs", "runs"])?, "hello\n");
    assert_eq!(c.kubectl(&["exec", "runs", "--", "hostname"])?, "runs\n");
    eventually("the refusal", || {
        let text = c.kubectl(&["describe", "pod", "refused"])?;
        Ok(text.contains("no runtime for \"nosuch\" is configured").then_some(()))
    })?;
    let before = status("runs")?["containerStatuses"][0].clone();
    c.stop_ferrokube(Signal::KILL)?;
    c.start_ferrokube()?;
    c.wait_ready()?;
    assert_eq!(c.kubectl(&["exec", "runs", "--", "echo", "on"])?, "on\n");
    let after = c.get("pod", "runs")?["status"]["containerStatuses"][0].clone();
    assert_eq!((&after["containerID"], &after["restartCount"]), (&before["containerID"], &0.into()));
    c.kubectl(&["delete", "pods", "--all", "--wait=true"])?;
    // The kubelet removes containers after the Pods are gone.
    eventually("nothing is mounted for a container", || {
        let mounts = c.host().run("cat", &["/proc/self/mountinfo"])?;
        Ok((!mounts.contains("/bundles/")).then_some(()))
    })
}
