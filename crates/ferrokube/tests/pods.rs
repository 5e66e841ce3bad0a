//! Pods on a real node, with real containers: their end, their messages, and their view of ConfigMaps and Secrets.
//! `cluster.rs` tests that containers outlive the kubelet.

use anyhow::Result;
use serde_json::Value;
use testkit::image::Image;
use testkit::{Cluster, Options, eventually};

const PODS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: m}
data: {key: one}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {p: secret}
---
apiVersion: v1
kind: Pod
metadata: {name: fails}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: test.local/app:1
    command: [sh, -c, "echo done > /dev/termination-log; exit 3"]
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 32Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: succeeds}
spec:
  restartPolicy: Never
  initContainers:
  - {name: i, image: test.local/app:1, command: [sh, -c, "touch /shared/made"], volumeMounts: [{name: v, mountPath: /shared}]}
  containers:
  - {name: c, image: test.local/app:1, command: [sh, -c, "test -f /shared/made && cat /etc/hosts"], volumeMounts: [{name: v, mountPath: /shared}]}
  volumes: [{name: v, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: waits}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: test.local/app:1
    command: ["true"]
    env: [{name: A, valueFrom: {configMapKeyRef: {name: later, key: a}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: sick}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: test.local/app:1
    command: [sleep, "1000"]
    livenessProbe: {exec: {command: ["false"]}, periodSeconds: 1, failureThreshold: 1, initialDelaySeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: reads}
spec:
  restartPolicy: Never
  securityContext: {fsGroup: 1234}
  containers:
  - name: c
    image: test.local/app:1
    command: [sh, -c, "cat /all/m /all/name /sub; test -s /all/token && touch /memory/x; until grep -q two /all/m; do sleep 0.1; done"]
    volumeMounts:
    - {name: all, mountPath: /all}
    - {name: secret, mountPath: /sub, subPath: p}
    - {name: memory, mountPath: /memory}
  volumes:
  - name: all
    projected:
      defaultMode: 420
      sources:
      - configMap: {name: m, items: [{key: key, path: m}]}
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
  - {name: secret, secret: {secretName: s, defaultMode: 256}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
"#;

fn until(c: &Cluster, pod: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    eventually(&format!("{pod}: {what}"), || Ok(Some(c.get("pod", pod)?).filter(|p| holds(p))))
}

fn phase(c: &Cluster, pod: &str, phase: &str) -> Result<Value> {
    until(c, pod, phase, |p| p["status"]["phase"] == phase)
}

#[test]
fn pods_run_to_their_end_and_say_so() -> Result<()> {
    let flags = vec![
        "--eviction-hard".into(),
        "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%".into(),
    ];
    let images = vec![Image::busybox("test.local/app:1")?];
    let c = Cluster::start("pods", Options { images, flags, ..Options::default() })?;
    c.apply(PODS)?;

    let failed = phase(&c, "fails", "Failed")?;
    let ended = &failed["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&ended["exitCode"], &ended["message"], &ended["reason"]),
        (&3.into(), &"done\n".into(), &"Error".into())
    );
    assert_eq!(failed["status"]["qosClass"], "Burstable");
    let ok = phase(&c, "succeeds", "Succeeded")?;
    assert_eq!(ok["status"]["initContainerStatuses"][0]["state"]["terminated"]["reason"], "Completed");
    assert_eq!(ok["status"]["qosClass"], "BestEffort");
    assert!(c.kubectl(&["logs", "succeeds"])?.contains("Kubernetes-managed hosts file"));

    // A container's status names the thing that it lacks, and the container starts once that is there.
    let waiting = |p: &Value| p["status"]["containerStatuses"][0]["state"]["waiting"].clone();
    let reason = "CreateContainerConfigError";
    let waits = until(&c, "waits", reason, |p| waiting(p)["reason"] == reason)?;
    assert_eq!(waiting(&waits)["message"], "configmap \"later\" not found");
    c.kubectl(&["create", "configmap", "later", "--from-literal=a=1"])?;
    phase(&c, "waits", "Succeeded")?;

    until(&c, "sick", "a restart", |p| {
        p["status"]["containerStatuses"][0]["restartCount"].as_i64() >= Some(1)
    })?;
    let events = c.kubectl(&["get", "events", "--field-selector", "involvedObject.name=sick"])?;
    for said in ["Liveness probe failed", "Container c failed liveness probe, will be restarted"] {
        assert!(events.contains(said), "{said} in\n{events}");
    }

    // Volumes follow changes of the objects that they show.
    phase(&c, "reads", "Running")?;
    c.kubectl(&["patch", "configmap", "m", "--type=merge", "-p", r#"{"data":{"key":"two"}}"#])?;
    phase(&c, "reads", "Succeeded")?;
    assert_eq!(c.kubectl(&["logs", "reads"])?, "onereadssecret");
    c.kubectl(&["delete", "pods", "--all", "--wait=true"])?;
    let left = c.data_dir().join("kubelet/pods");
    eventually("nothing is left of the Pods", || Ok((std::fs::read_dir(&left)?.count() == 0).then_some(())))
}
