//! StatefulSets and DaemonSets on a real node, as kubectl sees them.

use anyhow::Result;
use serde_json::Value;
use testkit::image::Image;
use testkit::{Cluster, Options, eventually};

const SETS: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: None
  selector: {app: web}
  ports: [{port: 80}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  replicas: 3
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: c, image: test.local/app:1, command: [sh, -c, "hostname; sleep 1000"]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: c, image: test.local/app:1, command: [sleep, "1000"]}
"#;

fn names(c: &Cluster, app: &str) -> Result<Vec<(String, String)>> {
    let pods: Value =
        serde_json::from_str(&c.kubectl(&["get", "pods", "-l", &format!("app={app}"), "-o", "json"])?)?;
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let mut all: Vec<_> = pods["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|p| p["metadata"]["deletionTimestamp"].is_null())
        .map(|p| (text(&p["metadata"]["name"]), text(&p["spec"]["containers"][0]["env"][0]["value"])))
        .collect();
    all.sort();
    Ok(all)
}

/// Gives the containers of a set another environment.
fn update(c: &Cluster, set: &str, value: &str) -> Result<String> {
    c.kubectl(&["set", "env", set, &format!("VERSION={value}")])
}

fn rolled_out(c: &Cluster, set: &str) -> Result<String> {
    c.kubectl(&["rollout", "status", set, "--timeout=120s"])
}

#[test]
fn sets_are_scaled_updated_and_rolled_back() -> Result<()> {
    let flags = vec![
        "--eviction-hard".into(),
        "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%".into(),
    ];
    let images = vec![Image::busybox("test.local/app:1")?];
    let c = Cluster::start("sets", Options { images, flags, ..Options::default() })?;
    c.apply(SETS)?;
    for set in ["statefulset/web", "daemonset/agent"] {
        rolled_out(&c, set)?;
    }
    let versions = |all: &[(String, String)]| all.iter().map(|(_, v)| v.clone()).collect::<Vec<_>>();
    let of = |all: &[(String, String)]| all.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>();
    assert_eq!(of(&names(&c, "web")?), ["web-0", "web-1", "web-2"]);
    assert_eq!(c.kubectl(&["logs", "web-1"])?.trim(), "web-1", "the Pod's name is its host name");
    assert_eq!(names(&c, "agent")?.len(), 1);

    // Only what is above the partition is updated.
    let partition =
        |n: u32| format!(r#"{{"spec":{{"updateStrategy":{{"rollingUpdate":{{"partition":{n}}}}}}}}}"#);
    c.kubectl(&["patch", "statefulset", "web", "-p", &partition(2)])?;
    update(&c, "statefulset/web", "two")?;
    rolled_out(&c, "statefulset/web")?;
    assert_eq!(versions(&names(&c, "web")?), ["", "", "two"]);
    c.kubectl(&["patch", "statefulset", "web", "-p", &partition(0)])?;
    rolled_out(&c, "statefulset/web")?;
    assert_eq!(versions(&names(&c, "web")?), ["two", "two", "two"]);
    let history = c.kubectl(&["rollout", "history", "statefulset/web"])?;
    assert!(history.lines().filter(|l| l.starts_with(char::is_numeric)).count() == 2, "{history}");
    c.kubectl(&["rollout", "undo", "statefulset/web"])?;
    rolled_out(&c, "statefulset/web")?;
    assert_eq!(versions(&names(&c, "web")?), ["", "", ""]);
    c.kubectl(&["scale", "statefulset/web", "--replicas=1"])?;
    eventually("one Pod is left", || Ok((of(&names(&c, "web")?) == ["web-0"]).then_some(())))?;

    update(&c, "daemonset/agent", "two")?;
    rolled_out(&c, "daemonset/agent")?;
    assert_eq!(versions(&names(&c, "agent")?), ["two"]);
    c.kubectl(&["rollout", "undo", "daemonset/agent"])?;
    rolled_out(&c, "daemonset/agent")?;
    assert_eq!(versions(&names(&c, "agent")?), [""]);
    let node = c.kubectl(&["get", "nodes", "-o", "name"])?;
    c.kubectl(&["drain", node.trim().trim_start_matches("node/"), "--ignore-daemonsets", "--timeout=60s"])?;
    assert_eq!(names(&c, "agent")?.len(), 1, "a daemon stays on a node that is drained");
    c.kubectl(&["delete", "daemonset/agent", "statefulset/web", "--wait=true"])?;
    eventually("no Pod is left", || {
        Ok((names(&c, "web")?.is_empty() && names(&c, "agent")?.is_empty()).then_some(()))
    })
}
