//! Processors and memory that containers have alone, on a real node with the built-in container runtime.

use std::fs;
use std::process::Child;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::device_plugin::PodResources;
use testkit::{Cluster, Image, Options, binary, eventually};

use crate::kubelet_alone::{IMAGE, NODE, cgroup, end, flags, kill, node_is_ready, start};
use crate::limits::is_unified;

/// One processor is the system's; the memory of the only NUMA node is what is kept for evictions.
const STATIC: [&str; 6] = [
    "--cpu-manager-policy=static",
    "--reserved-cpus=0",
    "--cpu-manager-reconcile-period=200ms",
    "--memory-manager-policy=Static",
    "--reserved-memory=0:memory=10Mi",
    "--topology-manager-policy=single-numa-node",
];

/// A control plane with the built-in runtime beside it.
fn cluster(name: &str) -> Result<(Cluster, Child)> {
    let options = Options { control_plane_only: true, ..Options::default() };
    let cluster = Cluster::start(name, options)?;
    let host = cluster.host();
    fs::create_dir_all(host.path("images"))?;
    Image::busybox(IMAGE)?.write(&host.path("images/app.tar"))?;
    let mut command = host.command(binary());
    command.args(["cri-runtime", "--network", "none"]).arg("--listen").arg(cluster.socket());
    command.arg("--root").arg(host.path("cri")).arg("--images").arg(host.path("images"));
    let runtime = host.spawn("cri-runtime", &mut command)?;
    Ok((cluster, runtime))
}

fn pod(name: &str, resources: &str, more: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  {more}
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: main, image: {IMAGE}, resources: {resources}, command: [sh, -c, exec sleep 1000000]}}
"
    )
}

/// A container that is guaranteed, and asks for one whole processor.
const ONE: &str = "{limits: {cpu: 1, memory: 32Mi}}";

fn phase(c: &Cluster, name: &str, phase: &str) -> Result<Value> {
    eventually(&format!("{name} is {phase}"), || {
        let status = c.get("pod", name)?["status"].clone();
        Ok((status["phase"] == phase).then_some(status))
    })
}

/// The list of what the kernel lets the first process of a Pod run on.
fn allowed(c: &Cluster, name: &str, what: &str) -> Result<String> {
    let text = c.kubectl(&["exec", name, "--", "cat", "/proc/1/status"])?;
    let line = text.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix("_allowed_list:"));
    Ok(line.with_context(|| format!("no line: {text}"))?.trim().to_owned())
}

fn runs_on(c: &Cluster, name: &str, cpus: &str) -> Result<()> {
    eventually(&format!("{name} runs on {cpus}"), || Ok((allowed(c, name, "Cpus")? == cpus).then_some(())))
        .with_context(|| format!("{:?}", allowed(c, name, "Cpus")))
}

fn metric(c: &Cluster, line: &str) -> Result<()> {
    let page = c.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/metrics")])?;
    ensure!(page.lines().any(|l| l == line), "{line}");
    Ok(())
}

/// The quota of a Pod's time, in the machine's hierarchy; none where the kernel has no quotas.
fn quota(c: &Cluster, name: &str) -> Result<Option<String>> {
    let pod = c.get("pod", name)?;
    let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
    let below = format!("{}/kubepods/pod{uid}", cgroup());
    if is_unified() {
        let text = fs::read_to_string(format!("/sys/fs/cgroup/{below}/cpu.max"))?;
        return Ok(text.split(' ').next().map(str::to_owned));
    }
    let file = format!("/sys/fs/cgroup/cpu/{below}/cpu.cfs_quota_us");
    Ok(fs::read_to_string(file).ok().map(|text| text.trim().to_owned()))
}

fn given_and_free_again(c: &Cluster) -> Result<()> {
    let mut all = flags(c)?;
    all.extend(STATIC.map(str::to_owned));
    let kubelet = start(c, &all)?;
    eventually("the node is Ready", || node_is_ready(c))?;
    c.apply(&pod("shared", "{requests: {memory: 1Mi}}", ""))?;
    phase(c, "shared", "Running")?;
    runs_on(c, "shared", "0-1")?;

    c.apply(&pod("alone", ONE, ""))?;
    let before = phase(c, "alone", "Running")?["containerStatuses"][0]["containerID"].clone();
    ensure!(allowed(c, "alone", "Cpus")? == "1", "it never runs on another");
    ensure!(allowed(c, "alone", "Mems")? == "0");
    runs_on(c, "shared", "0")?;
    ensure!(quota(c, "alone")?.is_none_or(|q| q == "-1" || q == "max"), "{:?}", quota(c, "alone"));

    let agent = PodResources::at(&c.host().path("kubelet"));
    let told = agent.get("default", "alone")?.containers;
    ensure!(told[0].cpu_ids == [1] && told[0].memory[0].size == 32 << 20, "{told:?}");
    ensure!(agent.get("default", "shared")?.containers[0].cpu_ids.is_empty());
    let offered = agent.allocatable()?;
    ensure!(offered.cpu_ids == [1] && offered.memory[0].memory_type == "memory", "{offered:?}");
    metric(c, "kubelet_cpu_manager_pinning_requests_total 1")?;
    metric(c, "kubelet_cpu_manager_exclusive_cpu_allocation_count 1")?;
    metric(c, "kubelet_cpu_manager_shared_pool_size_millicores 0")?;
    metric(
        c,
        "kubelet_container_aligned_compute_resources_count{scope=\"container\",boundary=\"numa_node\"} 2",
    )?;

    // Nothing is left, for the scheduler and for the node.
    c.apply(&pod("second", ONE, &format!("nodeName: {NODE}")))?;
    let status = phase(c, "second", "Failed")?;
    let message = "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000, used: 1000, capacity: 1000";
    ensure!(status["reason"] == "OutOfcpu" && status["message"] == message, "{status}");
    resize(c)?;

    // The next process knows who has what, and so does the kernel meanwhile.
    kill(kubelet)?;
    let file = fs::read_to_string(c.host().path("kubelet/cpu_manager_state"))?;
    ensure!(file.contains(r#""policyName":"static","defaultCpuSet":"0","entries":"#), "{file}");
    let kubelet = start(c, &all)?;
    eventually("the new kubelet answers", || Ok(allowed(c, "alone", "Cpus").ok()))?;
    ensure!(allowed(c, "alone", "Cpus")? == "1" && allowed(c, "shared", "Cpus")? == "0");
    let status = phase(c, "alone", "Running")?["containerStatuses"][0].clone();
    ensure!(status["containerID"] == before && status["restartCount"] == 0, "{status}");

    c.kubectl(&["delete", "pod", "alone", "second"])?;
    runs_on(c, "shared", "0-1")?;
    ensure!(agent.get("default", "shared")?.containers[0].cpu_ids.is_empty());
    c.kubectl(&["delete", "pod", "shared"])?;
    kill(kubelet)
}

/// A guaranteed Pod keeps the processors that it has.
fn resize(c: &Cluster) -> Result<()> {
    let patch = r#"{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"500m"},"limits":{"cpu":"500m"}}}]}}"#;
    c.kubectl(&["patch", "pod", "alone", "--subresource", "resize", "--patch", patch])?;
    let told = eventually("the resize is refused", || {
        let conditions = c.get("pod", "alone")?["status"]["conditions"].clone();
        let all = conditions.as_array().cloned().unwrap_or_default();
        Ok(all.into_iter().find(|c| c["type"] == "PodResizePending"))
    })?;
    let message = "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"";
    ensure!(told["reason"] == "Infeasible" && told["message"] == message, "{told}");
    Ok(())
}

/// Starts a kubelet that must end with these words.
fn refuses(c: &Cluster, flags: &[String], words: &str) -> Result<()> {
    let mut kubelet = start(c, flags)?;
    let ended = eventually("the kubelet ends", || Ok(kubelet.try_wait()?))?;
    let log = c.host().log("kubelet");
    ensure!(!ended.success() && log.contains(words), "{words}: {log}");
    Ok(())
}

/// A node whose policy changes: what an earlier one left is refused, and Pods that go on are given what there is.
fn another_policy(c: &Cluster) -> Result<()> {
    let none = flags(c)?;
    let path = c.host().path("kubelet/cpu_manager_state").display().to_string();
    let words = |configured: &str, found: &str| {
        format!(
            "start cpu manager error: could not restore state from checkpoint: configured policy \"{configured}\" differs from state checkpoint policy \"{found}\", please drain this node and delete the CPU manager checkpoint file \"{path}\" before restarting Kubelet"
        )
    };
    refuses(c, &none, &words("none", "static"))?;
    let forget = || -> Result<()> {
        for file in ["cpu_manager_state", "memory_manager_state"] {
            fs::remove_file(c.host().path("kubelet").join(file))?;
        }
        Ok(())
    };
    forget()?;
    let kubelet = start(c, &none)?;
    for name in ["one", "two"] {
        c.apply(&pod(name, ONE, ""))?;
        phase(c, name, "Running")?;
        runs_on(c, name, "0-1")?;
    }
    kill(kubelet)?;
    let mut all = none;
    all.extend(STATIC[..3].iter().map(ToString::to_string));
    refuses(c, &all, &words("static", "none"))?;
    forget()?;
    let kubelet = start(c, &all)?;
    let refused = eventually("one of them is refused", || {
        let failed = |name: &&str| Ok::<_, anyhow::Error>(c.get("pod", name)?["status"]["phase"] == "Failed");
        let mut found = None;
        for name in ["one", "two"] {
            if failed(&name)? {
                found = Some(name);
            }
        }
        Ok(found)
    })?;
    let status = c.get("pod", refused)?["status"].clone();
    let message = "Pod was rejected: Allocate failed due to not enough cpus available to satisfy request: requested=1, available=0, which is unexpected";
    ensure!(status["reason"] == "UnexpectedAdmissionError" && status["message"] == message, "{status}");
    runs_on(c, if refused == "one" { "two" } else { "one" }, "1")?;
    metric(c, "kubelet_cpu_manager_pinning_errors_total 1")?;
    kill(kubelet)
}

/// Runs a test of kubelets beside a control plane and the built-in runtime, and takes what they leave.
pub(crate) fn on_the_built_in_runtime(name: &str, test: impl FnOnce(&Cluster) -> Result<()>) -> Result<()> {
    let (cluster, mut runtime) = cluster(name)?;
    let result = test(&cluster);
    let logs = || {
        let host = cluster.host();
        format!("{}\n{}\n{}", host.log("kubelet"), host.log("cri-runtime"), cluster.report())
    };
    let result = result.with_context(logs);
    cluster.kubectl(&["delete", "pods", "--all", "--wait=false"]).ok();
    runtime.kill()?;
    runtime.wait()?;
    result.and(end(cluster))
}

#[test]
fn processors_and_memory_are_given_kept_and_free_again() -> Result<()> {
    on_the_built_in_runtime("managers", |c| given_and_free_again(c).and_then(|()| another_policy(c)))
}
