//! Pods that are held to their limits, and the figures that the node tells of them, in the hierarchy of cgroups that the
//! machine has.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{Cluster, Image, Options, eventually};

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: bounded, labels: {app: bounded}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: test.local/app:1
    command: [sh, -c, "mkdir /www; echo hello >/www/x; echo serving; exec httpd -f -p 8080 -h /www"]
    resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 500m, memory: 64Mi}}
    resizePolicy: [{resourceName: memory, restartPolicy: NotRequired}]
    volumeMounts: [{name: memory, mountPath: /memory}]
  volumes: [{name: memory, emptyDir: {medium: Memory, sizeLimit: 48Mi}}]
---
apiVersion: v1
kind: Service
metadata: {name: bounded}
spec: {selector: {app: bounded}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: test.local/app:1
    command: [sh, -c, "(x=$(head -c 100000000 /dev/zero | tr '\\0' x)); echo survived"]
    resources: {limits: {memory: 24Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: free}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: test.local/app:1, command: [sleep, "100000"]}]
"#;

/// Whether the machine has version 2 of cgroups.
pub(crate) fn is_unified() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// A setting: the file of a controller in the older hierarchy, and that of the unified one.
pub(crate) type Setting = (&'static str, &'static str, &'static str);

pub(crate) const MEMORY: Setting = ("memory", "memory.limit_in_bytes", "memory.max");
pub(crate) const QUOTA: Setting = ("cpu", "cpu.cfs_quota_us", "cpu.max");
const SHARES: Setting = ("cpu", "cpu.shares", "cpu.weight");

/// A setting as a container reads it of itself.
fn own(c: &Cluster, pod: &str, (controller, v1, v2): Setting) -> Result<String> {
    let file = if is_unified() {
        format!("/sys/fs/cgroup/{v2}")
    } else {
        format!("/sys/fs/cgroup/{controller}/{v1}")
    };
    Ok(c.kubectl(&["exec", pod, "--", "cat", &file])?.trim().to_owned())
}

/// The directories of a Pod's cgroup, one in each hierarchy.
fn directories(uid: &str) -> Result<Vec<PathBuf>> {
    let name = format!("pod{uid}");
    let out = Command::new("find").args(["/sys/fs/cgroup", "-type", "d", "-name", &name]).output()?;
    Ok(String::from_utf8(out.stdout)?.lines().map(PathBuf::from).collect())
}

/// A setting of a Pod's cgroup, or of one that it is in.
pub(crate) fn of_pod(uid: &str, above: usize, (controller, v1, v2): Setting) -> Result<String> {
    let all = directories(uid)?;
    let controllers = Path::new("/sys/fs/cgroup").join(controller);
    let dir = all.iter().find(|d| is_unified() || d.starts_with(&controllers)).context("no cgroup")?;
    let dir = dir.ancestors().nth(above).context("no cgroup above")?;
    let path = dir.join(if is_unified() { v2 } else { v1 });
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(text.trim().to_owned())
}

pub(crate) fn uid(c: &Cluster, pod: &str) -> Result<String> {
    Ok(c.get("pod", pod)?["metadata"]["uid"].as_str().context("no uid")?.to_owned())
}

fn running(c: &Cluster, pod: &str) -> Result<()> {
    eventually(&format!("{pod} runs"), || {
        Ok((c.get("pod", pod)?["status"]["phase"] == "Running").then_some(()))
    })
}

/// The figures of the older hierarchy, or of the unified one.
fn which<'a>(v1: &'a str, v2: &'a str) -> &'a str {
    if is_unified() { v2 } else { v1 }
}

/// Settings are those that upstream's kubelet and runc make of the Pods' resources.
fn settings(c: &Cluster) -> Result<()> {
    let (bounded, free) = (uid(c, "bounded")?, uid(c, "free")?);
    let check = |what: &str, found: String, v1: &str, v2: &str| {
        let expected = which(v1, v2);
        ensure!(found == expected, "{what}: {found:?}, not {expected:?}");
        Ok(())
    };
    check("the container's memory", own(c, "bounded", MEMORY)?, "67108864", "67108864")?;
    check("the container's quota", own(c, "bounded", QUOTA)?, "50000", "50000 100000")?;
    check("the container's part", own(c, "bounded", SHARES)?, "102", "17")?;
    check("the Pod's memory", of_pod(&bounded, 0, MEMORY)?, "67108864", "67108864")?;
    check("the Pod's quota", of_pod(&bounded, 0, QUOTA)?, "50000", "50000 100000")?;
    check("the Pod's part", of_pod(&bounded, 0, SHARES)?, "102", "4")?;
    check("the part of burstable Pods", of_pod(&bounded, 1, SHARES)?, "102", "4")?;
    check("a Pod without requests", of_pod(&free, 0, SHARES)?, "2", "1")?;
    check("Pods without requests", of_pod(&free, 1, SHARES)?, "2", "1")?;
    check("a Pod without limits", of_pod(&free, 0, QUOTA)?, "-1", "max 100000")?;
    if is_unified() {
        ensure!(own(c, "bounded", ("", "", "memory.oom.group"))? == "1", "a container ends as a whole");
        let of_pods = of_pod(&free, 2, ("", "", "cgroup.subtree_control"))?;
        for controller in ["cpuset", "cpu", "io", "memory", "pids"] {
            ensure!(of_pods.split(' ').any(|c| c == controller), "no {controller} below {of_pods:?}");
        }
    }
    Ok(())
}

/// Changes the limit of a Pod that runs.
fn resize(c: &Cluster) -> Result<()> {
    let patch = r#"{"spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "96Mi", "cpu": "750m"}}}]}}"#;
    c.kubectl(&["patch", "pod", "bounded", "--subresource=resize", "-p", patch])?;
    let bounded = uid(c, "bounded")?;
    eventually("the new limits", || {
        let memory = (own(c, "bounded", MEMORY)?, of_pod(&bounded, 0, MEMORY)?);
        let quota = own(c, "bounded", QUOTA)?;
        let good = memory == ("100663296".to_owned(), "100663296".to_owned())
            && quota == which("75000", "75000 100000");
        Ok(good.then_some(()))
    })?;
    eventually("the status has them", || {
        let pod = c.get("pod", "bounded")?;
        let status = &pod["status"]["containerStatuses"][0];
        let good = status["resources"]["limits"]["memory"] == "96Mi" && status["restartCount"] == 0;
        Ok(good.then_some(()))
    })
}

/// The figures of the node, of a Pod and of its container.
fn figures(c: &Cluster) -> Result<()> {
    let node = c.host().name();
    let at = format!("/api/v1/nodes/{node}/proxy/stats/summary");
    let summary = eventually("figures of the Pods", || {
        let summary: Value = serde_json::from_str(&c.kubectl(&["get", "--raw", &at])?)?;
        let pods = summary["pods"].as_array().cloned().unwrap_or_default();
        let pod = pods.into_iter().find(|pod| pod["podRef"]["name"] == "bounded");
        let told = |of: &Value| {
            of["memory"]["workingSetBytes"].as_u64() > Some(0) && of["cpu"]["usageNanoCores"].is_u64()
        };
        Ok(pod
            .filter(|pod| told(pod) && told(&pod["containers"][0]))
            .map(|pod| (summary["node"].clone(), pod)))
    })?;
    let (node_figures, pod) = summary;
    ensure!(node_figures["memory"]["workingSetBytes"].as_u64() > Some(0), "{node_figures}");
    ensure!(pod["process_stats"]["process_count"].as_u64() >= Some(1), "{pod}");
    for of in [&pod, &pod["containers"][0]] {
        let memory = &of["memory"];
        let left = memory["availableBytes"].as_u64().context("no limit")?;
        ensure!(left < 64 << 20 && left > 32 << 20, "{memory}");
    }
    for of in [&node_figures, &pod, &pod["containers"][0]] {
        for resource in ["cpu", "memory", "io"] {
            let psi = &of[resource]["psi"];
            let good = if is_unified() {
                psi["some"]["total"].is_u64() && psi["full"]["avg10"].is_number()
            } else {
                psi.is_null()
            };
            ensure!(good, "{resource}: {psi} in {of}");
        }
    }
    let at = format!("/api/v1/nodes/{node}/proxy/metrics/cadvisor");
    let mut wanted = vec![
        "container_memory_working_set_bytes",
        "container_cpu_usage_seconds_total",
        "container_spec_memory_limit_bytes",
        "container_processes",
        "container_cpu_cfs_periods_total",
    ];
    if is_unified() {
        wanted.extend([
            "container_pressure_memory_waiting_seconds_total",
            "container_pressure_cpu_stalled_seconds_total",
        ]);
    }
    eventually("cAdvisor's figures", || {
        let page = c.kubectl(&["get", "--raw", &at])?;
        let has = |name: &&str| {
            page.lines()
                .any(|l| l.starts_with(&format!("{name}{{container=\"c\"")) && l.contains("pod=\"bounded\""))
        };
        let missing: Vec<&&str> = wanted.iter().filter(|name| !has(name)).collect();
        ensure!(missing.is_empty(), "{missing:?}");
        Ok(Some(()))
    })
}

/// A container without memory: version 2 ends it as a whole, version 1 the process alone.
fn out_of_memory(c: &Cluster) -> Result<()> {
    let phase = which("Succeeded", "Failed");
    let greedy = eventually(&format!("greedy is {phase}"), || {
        Ok(Some(c.get("pod", "greedy")?).filter(|pod| pod["status"]["phase"] == phase))
    })?;
    let ended = &greedy["status"]["containerStatuses"][0]["state"]["terminated"];
    let log = c.kubectl(&["logs", "greedy"])?;
    if is_unified() {
        ensure!(ended["reason"] == "OOMKilled" && ended["exitCode"] == 137, "{ended}");
        ensure!(!log.contains("survived"), "{log}");
    } else {
        ensure!(log.contains("survived"), "{log}");
    }
    Ok(())
}

fn held_and_told_of(c: &Cluster) -> Result<()> {
    c.apply(PODS)?;
    running(c, "bounded")?;
    running(c, "free")?;
    settings(c)?;
    let service = c.get("service", "bounded")?;
    let address = service["spec"]["clusterIP"].as_str().context("no address")?.to_owned();
    eventually("the Service answers", || {
        let url = format!("http://{address}/x");
        Ok((c.host().run("curl", &["-qsS", "--max-time", "60", &url])? == "hello\n").then_some(()))
    })?;
    figures(c)?;
    resize(c)?;
    out_of_memory(c)?;
    ensure!(c.kubectl(&["logs", "bounded"])? == "serving\n", "the log");
    let uids = [uid(c, "bounded")?, uid(c, "free")?];
    c.kubectl(&["delete", "pods", "--all", "--wait=true"])?;
    for uid in uids {
        eventually("the Pod's cgroup goes", || Ok(directories(&uid)?.is_empty().then_some(())))?;
    }
    Ok(())
}

#[test]
fn pods_are_held_to_their_limits_and_told_of() -> Result<()> {
    let thresholds = "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%";
    let flags = vec!["--eviction-hard".into(), thresholds.into()];
    let images = vec![Image::busybox("test.local/app:1")?];
    let cluster = Cluster::start("limits", Options { images, flags, ..Options::default() })?;
    held_and_told_of(&cluster).with_context(|| cluster.report())
}
