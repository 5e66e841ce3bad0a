//! Pods on a real node, with real containers: their end, their messages, and their view of ConfigMaps and Secrets.
//! `cluster.rs` tests that containers outlive the kubelet.

use anyhow::Result;
use serde_json::Value;
use testkit::{Cluster, Image, Options, eventually};

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

/// A Pod whose first container ends with the code for which all of them restart, once; each start leaves a line.
const ANEW: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: anew}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: init, image: test.local/app:1, command: [sh, -c, "echo init >>/v/starts"], volumeMounts: [{name: v, mountPath: /v}]}
  - name: side
    image: test.local/app:1
    command: [sh, -c, "echo side >>/v/starts; exec sleep 100000"]
    restartPolicy: Always
    volumeMounts: [{name: v, mountPath: /v}]
    startupProbe: {exec: {command: [grep, -q, side, /v/starts]}, periodSeconds: 1}
  containers:
  - name: source
    image: test.local/app:1
    command: [sh, -c, "test -f /v/done && exec sleep 100000; until test -f /v/go; do sleep 0.1; done; touch /v/done; exit 42"]
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
    volumeMounts: [{name: v, mountPath: /v}]
  - name: other
    image: test.local/app:1
    command: [sh, -c, "echo other; exec sleep 100000"]
    lifecycle: {preStop: {exec: {command: [sh, -c, "echo stopped >>/v/starts"]}}}
    volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, emptyDir: {}}]
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

/// The containers of a Pod, each with its restarts, whether it is ready, and the reason of its end before.
fn containers(pod: &Value) -> Vec<(String, i64, bool, String)> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let all = lists.iter().flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    all.map(|s| {
        let reason = text(&s["lastState"]["terminated"]["reason"]);
        (text(&s["name"]), s["restartCount"].as_i64().unwrap_or(-1), s["ready"] == true, reason)
    })
    .collect()
}

#[test]
fn a_pod_starts_anew_when_a_container_says_so() -> Result<()> {
    let flags = vec![
        "--eviction-hard".into(),
        "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%".into(),
    ];
    let images = vec![Image::busybox("test.local/app:1")?];
    let c = Cluster::start("anew", Options { images, flags, ..Options::default() })?;
    let node = c.host().name();
    let declared = c.get("node", node)?["status"]["declaredFeatures"].clone();
    let restarts = "RestartAllContainersOnContainerExits";
    assert!(declared.as_array().is_some_and(|all| all.iter().any(|f| f == restarts)), "{declared}");

    c.apply(ANEW)?;
    let before = until(&c, "anew", "all are ready", |p| {
        let all = containers(p);
        all.len() == 4 && all.iter().all(|(_, restarts, ready, _)| *restarts == 0 && *ready)
    })?;
    c.kubectl(&["exec", "anew", "-c", "other", "--", "touch", "/v/go"])?;
    let after = until(&c, "anew", "all run again", |p| {
        let all = containers(p);
        all.len() == 4 && all.iter().all(|(_, restarts, ready, _)| *restarts == 1 && *ready)
    })?;
    for (name, _, _, reason) in containers(&after) {
        assert_eq!(reason, "RestartingAllContainers", "{name}");
    }
    // It is the same sandbox with the same volumes, in which nobody was asked to stop.
    for field in ["podIP", "phase", "startTime"] {
        assert_eq!(after["status"][field], before["status"][field], "{field}");
    }
    let condition = |p: &Value| {
        let all = p["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|c| c["type"] == "AllContainersRestarting").unwrap_or_default()
    };
    for pod in [&before, &after] {
        assert_eq!(condition(pod)["status"], "False", "{}", condition(pod));
    }
    let starts = c.kubectl(&["exec", "anew", "-c", "other", "--", "cat", "/v/starts"])?;
    assert_eq!(starts, "init\nside\ninit\nside\n");
    assert_eq!(c.kubectl(&["logs", "anew", "-c", "other"])?, "other\n");
    let events = c.kubectl(&["get", "events", "--field-selector", "involvedObject.name=anew"])?;
    assert_eq!(events.matches("SandboxChanged").count(), 0, "{events}");
    assert!(events.contains("killing"), "{events}");
    c.kubectl(&["delete", "pod", "anew", "--wait=true"])?;
    Ok(())
}
