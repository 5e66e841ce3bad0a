//! Whole clusters: `ferrokube up` on a host for each test, with real containers and kubectl.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use testkit::{Cluster, Image, Options, Signal, eventually, within};

const IMAGE: &str = "test.local/app:1";

fn cluster(name: &str) -> Result<Cluster> {
    start(name, false)
}

fn start(name: &str, containerd: bool) -> Result<Cluster> {
    let mut second = Image::busybox("test.local/app:2")?;
    second.texts.push(("version".into(), "2\n".into(), 0o644));
    let images = vec![Image::busybox(IMAGE)?, second];
    // The disk of the test machine does not matter.
    let flags = vec![
        "--eviction-hard".into(),
        "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%".into(),
    ];
    Cluster::start(name, Options { images, flags, containerd, ..Options::default() })
}

const APP: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {greeting: hello}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {token: s3cret}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: app}
spec:
  replicas: 3
  selector: {matchLabels: {app: app}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: app}}
    spec:
      terminationGracePeriodSeconds: 1
      initContainers:
      - {name: prepare, image: test.local/app:1, command: [sh, -c, "echo ready > /work/state"], volumeMounts: [{name: work, mountPath: /work}]}
      containers:
      - name: app
        image: test.local/app:1
        command: [sh, -c, "echo started; exec httpd -f -p 8080 -h /work"]
        env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: key, key: token}}}]
        readinessProbe: {httpGet: {path: /state, port: 8080}, periodSeconds: 1}
        volumeMounts: [{name: work, mountPath: /work}, {name: settings, mountPath: /settings}]
      volumes:
      - {name: work, emptyDir: {}}
      - {name: settings, configMap: {name: settings}}
"#;

/// Kills one of the containers' processes, as seen from the host.
const KILL_ONE: &str = r#"
for process in /proc/[0-9]*; do
    if [ "$(cat "$process/comm" 2>/dev/null)" = httpd ]; then kill -9 "${process#/proc/}" && exit; fi
done
exit 1"#;

/// The Pods that are not being deleted.
fn pods(c: &Cluster, selector: &str) -> Result<Vec<Value>> {
    let list: Value = serde_json::from_str(&c.kubectl(&["get", "pods", "-l", selector, "-o", "json"])?)?;
    let mut items = list["items"].as_array().cloned().unwrap_or_default();
    items.retain(|p| p["metadata"]["deletionTimestamp"].is_null());
    Ok(items)
}

fn ready(c: &Cluster, replicas: i64) -> Result<()> {
    eventually("all replicas ready", || {
        let d = c.get("deployment", "app")?;
        let s = &d["status"];
        let done = s["readyReplicas"] == replicas
            && s["updatedReplicas"] == replicas
            && s["replicas"] == replicas
            && s["observedGeneration"] == d["metadata"]["generation"];
        Ok(done.then_some(()))
    })
}

#[test]
fn a_deployment_runs_heals_and_rolls() {
    rolls(cluster("rolls").unwrap());
}

#[test]
fn a_deployment_runs_heals_and_rolls_on_containerd() {
    rolls(start("rolls-containerd", true).unwrap());
}

#[expect(clippy::unwrap_used, reason = "the body of two tests")]
fn rolls(mut c: Cluster) {
    c.apply(APP).unwrap();
    ready(&c, 3).unwrap();
    let name = pods(&c, "app=app").unwrap()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(c.kubectl(&["logs", &name]).unwrap().trim(), "started");
    let inside =
        c.kubectl(&["exec", &name, "--", "sh", "-c", "echo $TOKEN; cat /settings/greeting"]).unwrap();
    assert_eq!(inside.lines().collect::<Vec<_>>(), ["s3cret", "hello"]);
    assert_eq!(through_port_forward(&c, &name).unwrap().trim(), "ready");
    let page = c.kubectl(&["get", "--raw", "/metrics"]).unwrap();
    for subresource in ["exec", "portforward"] {
        let labels = format!("proxy_type=\"proxied_to_kubelet\",subresource=\"{subresource}\"");
        assert!(
            page.contains(&format!("apiserver_websocket_streaming_requests_total{{{labels}}} ")),
            "{page}"
        );
    }

    // Healing: a container that ends is started again, a Pod that goes is replaced.
    c.host().run("sh", &["-c", KILL_ONE]).unwrap();
    let restarts = |p: &Value| p["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap_or(0);
    eventually("a restart", || {
        Ok((pods(&c, "app=app")?.iter().map(restarts).sum::<i64>() == 1).then_some(()))
    })
    .unwrap();
    ready(&c, 3).unwrap();
    c.kubectl(&["delete", "pod", &name, "--wait=false"]).unwrap();
    eventually("a replacement", || {
        let all = pods(&c, "app=app")?;
        let others = all
            .iter()
            .filter(|p| p["metadata"]["name"] != *name && p["status"]["phase"] == "Running")
            .count();
        Ok((others == 3).then_some(()))
    })
    .unwrap();
    ready(&c, 3).unwrap();

    // Killed in the middle of a rollout, it goes on after the next start, and the containers stay.
    c.kubectl(&["set", "image", "deployment/app", "app=test.local/app:2"]).unwrap();
    let container = |p: &Value| {
        let id = p["status"]["containerStatuses"][0]["containerID"].as_str()?.to_owned();
        Some((p["metadata"]["uid"].as_str()?.to_owned(), (id, restarts(p))))
    };
    let before: HashMap<String, (String, i64)> =
        pods(&c, "app=app").unwrap().iter().filter_map(container).collect();
    assert!(before.len() >= 3);
    c.stop_ferrokube(Signal::KILL).unwrap();
    c.start_ferrokube().unwrap();
    c.wait_ready().unwrap();
    for (uid, now) in pods(&c, "app=app").unwrap().iter().filter_map(container) {
        if let Some(then) = before.get(&uid) {
            assert_eq!(*then, now, "the container of Pod {uid} was not adopted");
        }
    }
    ready(&c, 3).unwrap();
    let name = pods(&c, "app=app").unwrap()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(c.kubectl(&["exec", &name, "--", "cat", "/version"]).unwrap().trim(), "2");

    // The Deployment goes back to the first version, and never fewer than three Pods are ready on the way.
    c.kubectl(&["rollout", "undo", "deployment/app"]).unwrap();
    let mut fewest = i64::MAX;
    eventually("the rollout", || {
        let d = c.get("deployment", "app")?;
        let s = &d["status"];
        fewest = fewest.min(s["readyReplicas"].as_i64().unwrap_or(0));
        let done = s["observedGeneration"] == d["metadata"]["generation"]
            && s["updatedReplicas"] == 3
            && s["replicas"] == 3;
        Ok(done.then_some(()))
    })
    .unwrap();
    assert!(fewest >= 3, "only {fewest} were ready");
    c.kubectl(&["rollout", "status", "deployment/app", "--timeout=60s"]).unwrap();
    ready(&c, 3).unwrap();
    let image = |p: &Value| p["spec"]["containers"][0]["image"].clone();
    assert!(pods(&c, "app=app").unwrap().iter().all(|p| image(p) == IMAGE));

    c.kubectl(&["delete", "deployment", "app", "--cascade=foreground"]).unwrap();
    eventually("no Pods", || Ok(pods(&c, "app=app")?.is_empty().then_some(()))).unwrap();
}

/// The answer of `/state` through `kubectl port-forward`.
fn through_port_forward(c: &Cluster, pod: &str) -> Result<String> {
    let kubectl = testkit::tool("kubectl");
    let mut command = c.host().command(kubectl);
    command.arg("--kubeconfig").arg(c.kubeconfig()).args(["port-forward", pod, "18080:8080"]);
    let mut forward = c.host().spawn("port-forward", &mut command)?;
    let answer = eventually("an answer through the port", || {
        c.host().run("busybox", &["wget", "-q", "-O", "-", "http://127.0.0.1:18080/state"]).map(Some)
    });
    forward.kill()?;
    forward.wait()?;
    answer
}

#[test]
fn failures_say_why() {
    let c = cluster("fails").unwrap();
    c.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: crash}
spec: {containers: [{name: c, image: "test.local/app:1", command: ["false"]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: lost}
spec: {containers: [{name: c, image: "test.local/none:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: huge}
spec: {containers: [{name: c, image: "test.local/app:1", resources: {requests: {cpu: "1000"}}}]}
"#,
    )
    .unwrap();
    let waiting = |pod: &str, reason: &str| {
        eventually(reason, || {
            let p = c.get("pod", pod)?;
            Ok((p["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == reason).then_some(()))
        })
        .unwrap();
    };
    waiting("crash", "CrashLoopBackOff");
    waiting("lost", "ImagePullBackOff");
    let events =
        |pod: &str| c.kubectl(&["get", "events", "--field-selector", &format!("involvedObject.name={pod}")]);
    let said = |pod: &str, what: &str| {
        within(Duration::from_secs(30), what, || Ok(events(pod)?.contains(what).then_some(()))).unwrap();
    };
    said("crash", "Back-off restarting failed container");
    said("lost", "Failed to pull image");
    said("huge", "0/1 nodes are available: 1 Insufficient cpu.");
}

#[test]
fn bad_input_is_refused_in_one_sentence() {
    let c =
        Cluster::start("refuses", Options { control_plane_only: true, offline: true, ..Options::default() })
            .unwrap();
    let refused = |manifest: &str, args: &[&str]| -> Result<String> {
        let file = c.host().path("bad.yaml");
        std::fs::write(&file, manifest)?;
        let mut all = vec!["create", "-f", file.to_str().unwrap_or_default()];
        all.extend(args);
        let out = c.kubectl_output(&all)?;
        ensure!(!out.status.success(), "{manifest} was taken");
        Ok(String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let check = |manifest: &str, args: &[&str], expected: &str| {
        let text = refused(manifest, args).unwrap();
        assert!(text.contains(expected), "{manifest}: {text}");
    };
    check(
        "{kind: ConfigMap, apiVersion: v1, metadata: {name: Bad_Name}}",
        &[],
        "a lowercase RFC 1123 subdomain",
    );
    check(
        "{kind: ConfigMap, apiVersion: v1, metadata: {name: a}, data: {k: 1}}",
        &[],
        "cannot unmarshal number",
    );
    check(
        "{kind: ConfigMap, apiVersion: v1, metadata: {name: a}, dat: {}}",
        &["--validate=strict"],
        "unknown field \"dat\"",
    );
    check("{kind: Nothing, apiVersion: v1, metadata: {name: a}}", &[], "no matches for kind");
    assert_eq!(c.kubectl(&["get", "--raw", "/readyz"]).unwrap(), "ok");
}
