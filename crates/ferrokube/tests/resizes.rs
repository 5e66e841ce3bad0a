//! Pods that are resized while they run: as a whole, and init containers that end, in the hierarchy of
//! cgroups that the machine has.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{Cluster, Image, Options, Signal, eventually};

use crate::limits::{MEMORY, QUOTA, Setting, is_unified, of_pod, uid};

/// A Pod with resources of its own: one container has its own limits, and one the Pod's, which uses 40 MB of memory.
const WHOLE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: whole}
spec:
  terminationGracePeriodSeconds: 1
  resources: {requests: {cpu: 200m, memory: 24Mi}, limits: {cpu: 500m, memory: 128Mi}}
  containers:
  - name: own
    image: test.local/app:1
    command: [sleep, "100000"]
    resources: {requests: {cpu: 50m}, limits: {cpu: 100m, memory: 24Mi}}
  - name: none
    image: test.local/app:1
    command: [sh, -c, "head -c 40000000 /dev/zero >/memory/x; touch /memory/full; exec sleep 100000"]
    volumeMounts: [{name: memory, mountPath: /memory}]
    readinessProbe: {exec: {command: [test, -f, /memory/full]}, periodSeconds: 1}
  volumes: [{name: memory, emptyDir: {medium: Memory, sizeLimit: 64Mi}}]
"#;

/// A Pod with two init containers, of which each waits for a file; the sidecar beside them makes it.
const INIT: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: begins}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: side, image: test.local/app:1, command: [sleep, "100000"], restartPolicy: Always, volumeMounts: [{name: v, mountPath: /v}]}
  - name: first
    image: test.local/app:1
    command: [sh, -c, "until test -f /v/first; do sleep 0.1; done"]
    resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 100m, memory: 24Mi}}
    volumeMounts: [{name: v, mountPath: /v}]
  - name: second
    image: test.local/app:1
    command: [sh, -c, "until test -f /v/second; do sleep 0.1; done"]
    resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 100m, memory: 24Mi}}
    volumeMounts: [{name: v, mountPath: /v}]
  containers:
  - {name: last, image: test.local/app:1, command: [sleep, "100000"], resources: {requests: {cpu: 10m}}}
  volumes: [{name: v, emptyDir: {}}]
"#;

/// The limits of memory in bytes, and of time on processors in thousandths of a second a second: of the Pod and of containers.
fn limits(c: &Cluster, pod: &str, uid: &str, containers: &[&str]) -> Result<Vec<(String, String)>> {
    let one = |setting: Setting, container: Option<&str>| -> Result<String> {
        let Some(name) = container else { return of_pod(uid, 0, setting) };
        let (controller, v1, v2) = setting;
        let file = if is_unified() {
            format!("/sys/fs/cgroup/{v2}")
        } else {
            format!("/sys/fs/cgroup/{controller}/{v1}")
        };
        Ok(c.kubectl(&["exec", pod, "-c", name, "--", "cat", &file])?.trim().to_owned())
    };
    let all = [None].into_iter().chain(containers.iter().copied().map(Some));
    let mebibytes = |text: String| text.parse::<u64>().map_or(text, |bytes| (bytes >> 20).to_string());
    let quota = |text: String| {
        let first = text.split(' ').next().unwrap_or_default().to_owned();
        first.parse::<u64>().map_or(first, |micros| (micros / 100).to_string())
    };
    all.map(|of| Ok((mebibytes(one(MEMORY, of)?), quota(one(QUOTA, of)?)))).collect()
}

/// The limits of one container, as above.
fn own_limits(c: &Cluster, pod: &str, uid: &str, container: &str) -> Result<(String, String)> {
    limits(c, pod, uid, &[container])?.pop().context("no limits")
}

fn until_limits(c: &Cluster, what: &str, uid: &str, expected: [(&str, &str); 3]) -> Result<()> {
    eventually(what, || {
        let found = limits(c, "whole", uid, &["own", "none"])?;
        let same =
            found.iter().zip(expected).all(|((memory, cpu), want)| (memory.as_str(), cpu.as_str()) == want);
        ensure!(same, "{found:?}, not {expected:?}");
        Ok(Some(()))
    })
}

fn patch(c: &Cluster, pod: &str, spec: &str) -> Result<()> {
    c.kubectl(&["patch", "pod", pod, "--subresource=resize", "-p", &format!(r#"{{"spec": {spec}}}"#)])?;
    Ok(())
}

/// The Pod's condition of a type.
fn condition(pod: &Value, kind: &str) -> Value {
    let all = pod["status"]["conditions"].as_array().into_iter().flatten();
    all.into_iter().find(|c| c["type"] == kind).cloned().unwrap_or_default()
}

fn until(c: &Cluster, pod: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    eventually(&format!("{pod}: {what}"), || {
        let found = c.get("pod", pod)?;
        ensure!(holds(&found), "{}", found["status"]);
        Ok(Some(found))
    })
}

fn is_resized(pod: &Value) -> bool {
    ["PodResizePending", "PodResizeInProgress"].iter().all(|kind| condition(pod, kind).is_null())
}

fn ready(pod: &Value) -> bool {
    condition(pod, "Ready")["status"] == "True"
}

/// The status of the whole Pod in short: what it was given of cpu, and its limits.
fn told(pod: &Value) -> (Value, Value, Value) {
    let status = &pod["status"];
    let limits = &status["resources"]["limits"];
    (status["allocatedResources"]["cpu"].clone(), limits["cpu"].clone(), limits["memory"].clone())
}

/// A Pod beside which nothing of the size of the node has room.
const BESIDE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: beside}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: test.local/app:1, command: [sleep, "100000"], resources: {requests: {cpu: 500m}}}]
"#;

/// An amount of cpu that the node has, but not beside the other Pod, less so many thousandths.
fn too_much(c: &Cluster, less: u32) -> Result<String> {
    c.apply(BESIDE)?;
    until(c, "beside", "ready", ready)?;
    let cpu =
        c.get("node", c.host().name())?["status"]["allocatable"]["cpu"].as_str().unwrap_or("").to_owned();
    let milli: u32 = match cpu.strip_suffix('m') {
        Some(milli) => milli.parse()?,
        None => cpu.parse::<u32>()? * 1000,
    };
    Ok(format!("{}m", milli - less))
}

fn start(name: &str) -> Result<Cluster> {
    let thresholds = "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%";
    let flags = vec!["--eviction-hard".into(), thresholds.into()];
    let images = vec![Image::busybox("test.local/app:1")?];
    Cluster::start(name, Options { images, flags, ..Options::default() })
}

fn declares(c: &Cluster, feature: &str) -> Result<()> {
    let declared = c.get("node", c.host().name())?["status"]["declaredFeatures"].clone();
    ensure!(declared.as_array().is_some_and(|all| all.iter().any(|f| f == feature)), "{declared}");
    Ok(())
}

fn whole_pods(c: &mut Cluster) -> Result<()> {
    declares(c, "InPlacePodLevelResourcesVerticalScaling")?;
    c.apply(WHOLE)?;
    let uid = uid(c, "whole").context("no Pod")?;
    let pod = until(c, "whole", "ready", |p| ready(p) && is_resized(p))?;
    ensure!(told(&pod) == ("200m".into(), "500m".into(), "128Mi".into()), "{}", pod["status"]);
    until_limits(c, "its first limits", &uid, [("128", "500"), ("24", "100"), ("128", "500")])?;

    // A container without limits of its own has the Pod's.
    patch(
        c,
        "whole",
        r#"{"resources": {"requests": {"cpu": "300m"}, "limits": {"cpu": "800m", "memory": "192Mi"}}}"#,
    )?;
    let larger = [("192", "800"), ("24", "100"), ("192", "800")];
    until_limits(c, "larger limits", &uid, larger)?;
    let has_more = |p: &Value| is_resized(p) && told(p) == ("300m".into(), "800m".into(), "192Mi".into());
    let pod = until(c, "whole", "the status has them", has_more)?;
    let restarts = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    ensure!(restarts.into_iter().all(|s| s["restartCount"] == 0), "{}", pod["status"]);
    eventually("Events", || {
        let events = c.kubectl(&["get", "events", "--field-selector", "involvedObject.name=whole"])?;
        let all = ["Pod resize started: {\"containers\"", "Pod resize completed: {\"containers\""];
        Ok(all.iter().all(|text| events.contains(text)).then_some(()))
    })?;

    // Memory that is in use is not taken.
    patch(c, "whole", r#"{"resources": {"limits": {"memory": "32Mi"}}}"#)?;
    let refused =
        until(c, "whole", "memory is in use", |p| condition(p, "PodResizeInProgress")["reason"] == "Error")?;
    let message = condition(&refused, "PodResizeInProgress")["message"].to_string();
    for text in [
        "cannot decrease memory limits: ",
        "attempting to set pod memory limit (33554432) below current usage",
    ] {
        ensure!(message.contains(text), "{message}");
    }
    until_limits(c, "the limits as before", &uid, larger)?;
    c.kubectl(&["exec", "whole", "-c", "none", "--", "rm", "/memory/x"])?;
    until_limits(c, "smaller limits", &uid, [("32", "800"), ("24", "100"), ("32", "800")])?;
    patch(c, "whole", r#"{"resources": {"limits": {"memory": "192Mi"}}}"#)?;
    until_limits(c, "larger limits again", &uid, larger)?;
    until(c, "whole", "the status has them again", has_more)?;

    // It is known after a restart what the Pod was given, and not what it asks for.
    let asks = |cpu: &str| {
        format!(r#"{{"resources": {{"requests": {{"cpu": "{cpu}"}}, "limits": {{"cpu": "{cpu}"}}}}}}"#)
    };
    patch(c, "whole", &asks(&too_much(c, 200)?))?;
    let waits = |p: &Value| {
        condition(p, "PodResizePending")["reason"] == "Deferred"
            && told(p) == ("300m".into(), "800m".into(), "192Mi".into())
    };
    until(c, "whole", "there is no room", waits)?;
    c.stop_ferrokube(Signal::TERM)?;
    c.start_ferrokube()?;
    c.wait_ready()?;
    patch(c, "whole", &asks(&too_much(c, 150)?))?;
    let generation = c.get("pod", "whole")?["metadata"]["generation"].clone();
    until(c, "whole", "there is no room either", |p| {
        waits(p) && p["status"]["observedGeneration"] == generation
    })?;
    until_limits(c, "the limits after a restart", &uid, larger)?;
    patch(c, "whole", r#"{"resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "700m"}}}"#)?;
    until_limits(c, "less time", &uid, [("192", "700"), ("24", "100"), ("192", "700")])?;
    until(c, "whole", "all is done", |p| {
        is_resized(p) && ready(p) && told(p) == ("250m".into(), "700m".into(), "192Mi".into())
    })?;
    c.kubectl(&["delete", "pods", "--all", "--wait=true"])?;
    Ok(())
}

/// The requests and limits of cpu that the status has of an init container, and whether it runs.
fn init_status(pod: &Value, name: &str) -> (Value, Value, Value, bool) {
    let all = pod["status"]["initContainerStatuses"].as_array().into_iter().flatten();
    let of = all.into_iter().find(|s| s["name"] == name).cloned().unwrap_or_default();
    let resources = &of["resources"];
    let runs = !of["state"]["running"].is_null();
    (
        of["allocatedResources"]["cpu"].clone(),
        resources["requests"]["cpu"].clone(),
        resources["limits"]["cpu"].clone(),
        runs,
    )
}

fn init_containers(c: &Cluster) -> Result<()> {
    declares(c, "InPlacePodVerticalScalingInitContainers")?;
    c.apply(INIT)?;
    let uid = uid(c, "begins").context("no Pod")?;
    until(c, "begins", "the first one runs", |p| init_status(p, "first").3)?;
    let small = ("24".to_owned(), "100".to_owned());
    ensure!(own_limits(c, "begins", &uid, "first")? == small, "the first limits");

    // One that runs is changed while it runs, and one that waits has what it was given when it starts.
    let more = r#"{"requests": {"cpu": "60m"}, "limits": {"cpu": "200m", "memory": "32Mi"}}"#;
    let both = format!(
        r#"{{"initContainers": [{{"name": "first", "resources": {more}}}, {{"name": "second", "resources": {more}}}]}}"#
    );
    patch(c, "begins", &both)?;
    let large = ("32".to_owned(), "200".to_owned());
    eventually("the first one's new limits", || {
        Ok((own_limits(c, "begins", &uid, "first")? == large).then_some(()))
    })?;
    let given: (Value, Value, Value, bool) = ("60m".into(), "60m".into(), "200m".into(), true);
    let pod =
        until(c, "begins", "the status has them", |p| is_resized(p) && init_status(p, "first") == given)?;
    ensure!(pod["status"]["initContainerStatuses"][1]["restartCount"] == 0, "{}", pod["status"]);
    c.kubectl(&["exec", "begins", "-c", "side", "--", "touch", "/v/first"])?;
    until(c, "begins", "the second one runs", |p| init_status(p, "second") == given)?;
    ensure!(own_limits(c, "begins", &uid, "second")? == large, "the second one's limits");

    // One that has ended has nothing to change; what there is no room for is not given.
    let first = |more: &str| format!(r#"{{"initContainers": [{{"name": "first", "resources": {more}}}]}}"#);
    patch(c, "begins", &first(r#"{"requests": {"cpu": "70m"}}"#))?;
    until(c, "begins", "the one that has ended", |p| {
        let (allocated, requested, _, runs) = init_status(p, "first");
        is_resized(p) && allocated == "70m" && requested == "70m" && !runs
    })?;
    let cpu = too_much(c, 200)?;
    patch(
        c,
        "begins",
        &first(&format!(r#"{{"requests": {{"cpu": "{cpu}"}}, "limits": {{"cpu": "{cpu}"}}}}"#)),
    )?;
    until(c, "begins", "there is no room", |p| {
        condition(p, "PodResizePending")["reason"] == "Deferred" && init_status(p, "first").0 == "70m"
    })?;
    patch(c, "begins", &first(r#"{"requests": {"cpu": "70m"}, "limits": {"cpu": "200m"}}"#))?;
    c.kubectl(&["exec", "begins", "-c", "side", "--", "touch", "/v/second"])?;
    until(c, "begins", "all is done", |p| is_resized(p) && ready(p))?;
    c.kubectl(&["delete", "pods", "--all", "--wait=true"])?;
    Ok(())
}

#[test]
fn init_containers_are_resized() -> Result<()> {
    let cluster = start("resize-init")?;
    init_containers(&cluster).with_context(|| cluster.report())
}

#[test]
fn whole_pods_are_resized() -> Result<()> {
    let mut cluster = start("resize-whole")?;
    whole_pods(&mut cluster).with_context(|| cluster.report())
}
