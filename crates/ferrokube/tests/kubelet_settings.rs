//! Settings of a kubelet that users see, beside a control plane.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use testkit::{Cluster, eventually};

use crate::kubelet_alone::{
    ADDRESS, IMAGE, NODE, cgroup, flags, kill, node_is_ready, on_a_control_plane, start,
};
use crate::limits::is_unified;
use crate::resource_managers::on_the_built_in_runtime;

const CGROUPS: &str = "/sys/fs/cgroup";

/// The directory of a cgroup for a controller.
fn dir(controller: &str, name: &str) -> PathBuf {
    let base = PathBuf::from(CGROUPS);
    if is_unified() { base.join(name) } else { base.join(controller).join(name) }
}

/// A setting of a cgroup: the file's name in the older hierarchy, and in the unified one.
fn setting(name: &str, (controller, v1, v2): (&str, &str, &str)) -> Result<String> {
    let path = dir(controller, name).join(if is_unified() { v2 } else { v1 });
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(text.trim().to_owned())
}

const MEMORY: (&str, &str, &str) = ("memory", "memory.limit_in_bytes", "memory.max");
const PIDS: (&str, &str, &str) = ("pids", "pids.max", "pids.max");

/// The name of the cgroup that others than Pods have.
fn others() -> String {
    format!("{}-kube", cgroup())
}

/// Starts a kubelet with further settings.
fn with(cluster: &Cluster, more: &str) -> Result<std::process::Child> {
    let flags = flags(cluster)?;
    let path = cluster.host().path("kubelet.yaml");
    let text = std::fs::read_to_string(&path)?;
    std::fs::write(path, text + more)?;
    start(cluster, &flags)
}

/// Starts a kubelet with further settings that it refuses.
fn refused(cluster: &Cluster, settings: &str, why: &str) -> Result<()> {
    let mut kubelet = with(cluster, settings)?;
    ensure!(!kubelet.wait()?.success(), "it started with {settings}");
    let log = cluster.host().log("kubelet");
    ensure!(log.contains(why), "{why}: {log}");
    Ok(())
}

fn bytes(node: &Value, which: &str) -> Result<u64> {
    let text = node["status"][which]["memory"].as_str().context("no memory")?;
    let number: u64 = text.trim_end_matches(char::is_alphabetic).parse()?;
    let unit = match text.trim_start_matches(|c: char| c.is_ascii_digit()) {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        other => anyhow::bail!("{other:?} is no unit that was expected"),
    };
    Ok(number * unit)
}

fn shares_the_node(cluster: &Cluster) -> Result<()> {
    for controller in ["cpu", "memory", "pids"] {
        std::fs::create_dir_all(dir(controller, &others()))?;
    }
    let settings = format!(
        "enforceNodeAllocatable: [pods, kube-reserved]
kubeReserved: {{cpu: 200m, memory: 64Mi, pid: \"500\"}}
kubeReservedCgroup: /{}
systemReserved: {{memory: 32Mi}}
cpuCFSQuotaPeriod: 20ms
memorySwap: {{swapBehavior: LimitedSwap}}
",
        others()
    );
    let kubelet = with(cluster, &settings)?;
    let node = eventually("the node is Ready", || node_is_ready(cluster))?;
    let (capacity, allocatable) = (bytes(&node, "capacity")?, bytes(&node, "allocatable")?);
    ensure!(capacity - allocatable == (64 + 32 + 10) << 20, "{node}");
    // The kernel counts whole pages.
    let limit: u64 = setting(&format!("{}/kubepods", cgroup()), MEMORY)?.parse()?;
    let wanted = capacity - (96 << 20);
    ensure!(limit <= wanted && wanted - limit < 1 << 16, "{limit} {wanted}");
    let pids: u64 = setting(&format!("{}/kubepods", cgroup()), PIDS)?.parse()?;
    // The host's word: the limit may be another one in its namespace.
    let of_kernel = |name: &str| -> Result<u64> {
        let path = format!("/proc/sys/kernel/{name}");
        Ok(cluster.host().run("cat", &[&path])?.trim().parse()?)
    };
    let most = of_kernel("pid_max")?.min(of_kernel("threads-max")?);
    ensure!(pids == most - 500, "{pids} {most}");
    ensure!(setting(&others(), MEMORY)? == (64 << 20).to_string() && setting(&others(), PIDS)? == "500");
    let shares = if is_unified() { "8" } else { "204" };
    ensure!(setting(&others(), ("cpu", "cpu.shares", "cpu.weight"))? == shares);
    let text = "{range .items[*]}{.message}{\"\\n\"}{end}";
    eventually("the Events tell of it", || {
        let field = "--field-selector=reason=NodeAllocatableEnforced";
        let events = cluster.kubectl(&["get", "events", "-A", field, "-o", &format!("jsonpath={text}")])?;
        let others = format!("Updated limits on kube reserved cgroup /{}\n", others());
        let all = "Updated Node Allocatable limit across pods\n";
        Ok((events.contains(all) && events.contains(&others)).then_some(()))
    })?;

    cluster.apply(&format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: limited}}
spec:
  nodeName: {NODE}
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: {IMAGE}
    command: [sleep, \"1000000\"]
    resources: {{requests: {{cpu: 100m, memory: 16Mi}}, limits: {{cpu: 500m, memory: 32Mi}}}}
"
    ))?;
    let pod = eventually("the Pod runs", || {
        let pod = cluster.get("pod", "limited")?;
        Ok((pod["status"]["phase"] == "Running").then_some(pod))
    })?;
    let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
    let of_pod = format!("{}/kubepods/burstable/pod{uid}", cgroup());
    if is_unified() {
        ensure!(setting(&of_pod, ("cpu", "", "cpu.max"))? == "10000 20000");
    } else {
        ensure!(setting(&of_pod, ("cpu", "cpu.cfs_period_us", ""))? == "20000");
        ensure!(setting(&of_pod, ("cpu", "cpu.cfs_quota_us", ""))? == "10000");
    }
    let shown = pod["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"].clone();
    ensure!(shown == "500m", "{pod}");
    kill(kubelet)?;

    // A cgroup that nobody made, and more than the machine has.
    refused(
        cluster,
        "enforceNodeAllocatable: [system-reserved]\nsystemReservedCgroup: /no/such\nsystemReserved: {cpu: 1m}\n",
        "Failed to enforce System Reserved Cgroup Limits on \"/no/such\"",
    )?;
    refused(
        cluster,
        "kubeReserved: {memory: 100000Gi}\n",
        "Resource \"memory\" has a reservation of 102400010Mi but capacity of ",
    )
}

#[test]
fn a_node_is_shared_as_the_settings_say() -> Result<()> {
    on_a_control_plane(shares_the_node)
}

/// The status code and the body of a request.
fn curl(cluster: &Cluster, url: &str, more: &[&str]) -> Result<(String, String)> {
    let mut command: Command = cluster.host().command("curl");
    let out = command.args(["-qsk", "-w", "\n%{http_code}"]).args(more).arg(url).output()?;
    let text = String::from_utf8(out.stdout)?;
    let (body, code) = text.rsplit_once('\n').context("no answer")?;
    Ok((code.to_owned(), body.to_owned()))
}

/// Controllers and scheduler in one process with the API server tell what they act by.
fn parts_tell_their_settings(cluster: &Cluster) -> Result<()> {
    let config: Value = serde_json::from_str(&cluster.kubectl(&["config", "view", "--raw", "-o", "json"])?)?;
    let mut files = Vec::new();
    for (flag, field) in [("--cert", "client-certificate-data"), ("--key", "client-key-data")] {
        let data = config["users"][0]["user"][field].as_str().context(field)?;
        let file = cluster.host().path(field);
        std::fs::write(&file, BASE64_STANDARD.decode(data)?)?;
        files.extend([flag.to_owned(), file.display().to_string()]);
    }
    let admin: Vec<&str> = files.iter().map(String::as_str).collect();
    for (port, at, expected) in [
        (10257, "/kubecontrollermanager.config.k8s.io/NodeLifecycleController/NodeMonitorGracePeriod", "50s"),
        (10259, "/componentconfig/profiles/0/schedulerName", "default-scheduler"),
    ] {
        let url = |path: &str| format!("https://127.0.0.1:{port}{path}");
        let (code, text) = curl(cluster, &url("/configz"), &admin)?;
        ensure!(code == "200", "{port}: {code} {text}");
        let settings: Value = serde_json::from_str(&text)?;
        ensure!(settings.pointer(at).and_then(Value::as_str) == Some(expected), "{at} in {settings}");
        let (code, flags) = curl(cluster, &url("/flagz"), &admin)?;
        ensure!(code == "200" && flags.contains("\nleader-elect=false\n"), "{port}: {code} {flags}");
        ensure!(curl(cluster, &url("/configz"), &[])?.0 == "403", "{port} to nobody");
    }
    Ok(())
}

fn serves_and_restarts(cluster: &Cluster) -> Result<()> {
    parts_tell_their_settings(cluster)?;
    let settings = "seccompDefault: true
readOnlyPort: 10255
tlsMinVersion: VersionTLS13
crashLoopBackOff: {maxContainerRestartPeriod: 2s}
featureGates: {EventedPLEG: true}
enableControllerAttachDetach: false
runtimeRequestTimeout: 1m
enableSystemLogQuery: true
eventRecordQPS: 20
registryPullQPS: 0
";
    let kubelet = with(cluster, settings)?;
    let node = eventually("the node is Ready", || node_is_ready(cluster))?;
    // This kubelet attaches volumes itself.
    let managed = &node["metadata"]["annotations"]["volumes.kubernetes.io/controller-managed-attach-detach"];
    ensure!(managed.is_null(), "{node}");
    let log = cluster.host().log("kubelet");
    ensure!(log.contains("featureGates.EventedPLEG=true has no effect here"), "{log}");
    let pod = |name: &str, profile: &str, command: &str| {
        format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: {NODE}
  terminationGracePeriodSeconds: 1
  securityContext: {{{profile}}}
  containers:
  - {{name: main, image: {IMAGE}, command: [sh, -c, \"{command}\"]}}
"
        )
    };
    cluster.apply(&pod("plain", "", "exec sleep 1000000"))?;
    cluster.apply(&pod("open", "seccompProfile: {type: Unconfined}", "exec sleep 1000000"))?;
    cluster.apply(&pod("crashing", "", "exit 1"))?;
    // 2 is that calls are filtered.
    for (name, filtered) in [("plain", "2"), ("open", "0")] {
        eventually(&format!("the calls of {name}"), || {
            let status = cluster.kubectl(&["exec", name, "--", "grep", "Seccomp:", "/proc/1/status"]);
            let Ok(status) = status else { return Ok(None) };
            Ok((status.trim().trim_start_matches("Seccomp:").trim() == filtered).then_some(()))
        })?;
    }
    eventually("the back-off stays short", || {
        let status = cluster.get("pod", "crashing")?["status"]["containerStatuses"][0].clone();
        let message = status["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned();
        ensure!(!message.starts_with("back-off") || message.starts_with("back-off 2s "), "{message}");
        Ok((status["restartCount"].as_i64() >= Some(3)).then_some(()))
    })?;

    let script = "mount -t tmpfs log /var/log && echo written > /var/log/service.log";
    cluster.host().run("sh", &["-c", script])?;
    let asked = |query: &str| {
        cluster.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/logs/?{query}")])
    };
    ensure!(asked("query=service")? == "written\n" && asked("query=/service.log")? == "written\n");
    ensure!(asked("query=nobody")?.contains("log not found for nobody"));
    let refused = asked("query=a%7Cb").err().map(|e| e.to_string()).unwrap_or_default();
    ensure!(refused.contains("input contains unsupported characters"), "{refused}");

    let open = |path: &str| format!("http://{ADDRESS}:10255{path}");
    for (path, text) in [
        ("/pods", "\"name\":\"plain\""),
        ("/healthz", "ok"),
        ("/metrics", "kubelet_node_name"),
        ("/stats/summary", "\"nodeName\":\"alone\""),
    ] {
        let (code, body) = curl(cluster, &open(path), &[])?;
        ensure!(code == "200" && body.contains(text), "{path}: {code} {body}");
    }
    for (path, more, expected) in [
        ("/pods", ["-X", "POST"], "405"),
        ("/exec/default/plain/main?command=id&output=1", ["-X", "GET"], "405"),
        ("/logs/", ["-X", "GET"], "405"),
        ("/configz", ["-X", "GET"], "404"),
    ] {
        let (code, body) = curl(cluster, &open(path), &more)?;
        ensure!(code == expected, "{path}: {code} {body}");
    }
    let closed = format!("https://{ADDRESS}:10250/healthz");
    ensure!(curl(cluster, &closed, &["--tls-max", "1.2"])?.0 == "000", "TLS 1.2 is spoken");
    ensure!(curl(cluster, &closed, &["--tlsv1.3"])?.0 == "401", "TLS 1.3 is not spoken");
    let raw = format!("/api/v1/nodes/{NODE}/proxy/configz");
    let configz: Value = serde_json::from_str(&cluster.kubectl(&["get", "--raw", &raw])?)?;
    let configz = &configz["kubeletconfig"];
    ensure!(configz["seccompDefault"] == true && configz["runtimeRequestTimeout"] == "1m0s", "{configz}");
    ensure!(configz["crashLoopBackOff"]["maxContainerRestartPeriod"] == "2s", "{configz}");
    kill(kubelet)
}

/// The cgroup that the kubelet itself has.
fn own() -> String {
    format!("{}-own", cgroup())
}

fn has_a_place(cluster: &Cluster) -> Result<()> {
    let settings = format!(
        "kubeletCgroups: /{}
podCIDR: 10.250.0.0/24
logging: {{format: json, verbosity: 4}}
",
        own()
    );
    let kubelet = with(cluster, &settings)?;
    eventually("the node is Ready", || node_is_ready(cluster))?;
    let log = cluster.host().log("kubelet");
    ensure!(log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{log}");
    ensure!(log.contains("\"msg\":\"Updating Pod CIDR\"") && log.contains("\"v\":2"), "{log}");

    let pid = testkit::Host::pid_of(&kubelet)?.to_string();
    eventually("the kubelet is in its cgroup", || {
        let inside = |controller: &str| -> Result<bool> {
            let procs = std::fs::read_to_string(dir(controller, &own()).join("cgroup.procs"));
            Ok(procs.unwrap_or_default().lines().any(|line| line == pid))
        };
        Ok((inside("cpu")? && inside("memory")? && inside("pids")?).then_some(()))
    })?;
    let summary = format!("/api/v1/nodes/{NODE}/proxy/stats/summary");
    let summary: Value = serde_json::from_str(&cluster.kubectl(&["get", "--raw", &summary])?)?;
    let system = summary["node"]["systemContainers"].as_array().cloned().unwrap_or_default();
    let used = system.iter().find(|c| c["name"] == "kubelet").map(|c| c["memory"]["workingSetBytes"].clone());
    ensure!(used.and_then(|bytes| bytes.as_u64()) > Some(0), "{summary}");

    // Nobody may have the root.
    kill(kubelet)?;
    refused(
        cluster,
        "systemCgroups: /\n",
        "failed to start ContainerManager: system container cannot be root (\"/\")",
    )
}

#[test]
fn a_kubelet_has_a_cgroup_and_logs_json() -> Result<()> {
    on_a_control_plane(has_a_place)
}

fn gives_users(cluster: &Cluster) -> Result<()> {
    let settings = "userNamespaces: {idsPerPod: 131072}\n";
    let kubelet = with(cluster, settings)?;
    let node = eventually("the node is Ready", || node_is_ready(cluster))?;
    let handlers = &node["status"]["runtimeHandlers"];
    ensure!(handlers[0]["features"]["userNamespaces"] == true, "{handlers}");
    cluster.apply(&format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: words}}
data: {{word: given}}
---
apiVersion: v1
kind: Pod
metadata: {{name: users}}
spec:
  nodeName: {NODE}
  hostUsers: false
  terminationGracePeriodSeconds: 1
  securityContext: {{fsGroup: 2000}}
  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, \"cat /proc/self/uid_map /proc/self/gid_map; stat -c '%u:%g' /words/word; touch /empty/new && stat -c '%u' /empty/new; cat /words/word /etc/hosts > /dev/null && exec sleep 1000000\"]
    volumeMounts: [{{name: words, mountPath: /words}}, {{name: empty, mountPath: /empty}}]
  volumes:
  - {{name: words, configMap: {{name: words}}}}
  - {{name: empty, emptyDir: {{}}}}
"
    ))?;
    let pod = eventually("the Pod runs", || {
        let pod = cluster.get("pod", "users")?;
        Ok((pod["status"]["phase"] == "Running").then_some(pod))
    })?;
    let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
    let files = cluster.host().path("kubelet/pods").join(uid);
    let mapping: Value = serde_json::from_slice(&std::fs::read(files.join("userns"))?)?;
    let mapping = &mapping["uidMappings"][0];
    let first = mapping["hostId"].as_u64().context("no id")?;
    ensure!(mapping["length"] == 131_072 && first >= 131_072 && first % 131_072 == 0, "{mapping}");
    let said = eventually("what it sees", || {
        let log = cluster.kubectl(&["logs", "users"])?;
        Ok((log.lines().count() == 4).then_some(log))
    })?;
    let said: Vec<String> =
        said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let map = format!("0 {first} 131072");
    ensure!(said == [map.clone(), map, "0:2000".to_owned(), "0".to_owned()], "{said:?}");
    let new = files.join("volumes/kubernetes.io~empty-dir/empty/new");
    ensure!(std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(new)?) == 0, "the file has other owners");
    let status = cluster.kubectl(&["exec", "users", "--", "id", "-u"])?;
    ensure!(status == "0\n", "{status}");

    // The next kubelet has the same ids for it, and refuses others.
    kill(kubelet)?;
    let kubelet = with(cluster, settings)?;
    eventually("the new kubelet answers", || {
        Ok((cluster.kubectl(&["exec", "users", "--", "echo", "there"])? == "there\n").then_some(()))
    })?;
    kill(kubelet)?;
    refused(cluster, "", "wrong user namespace length 131072")?;
    let kubelet = with(cluster, settings)?;
    cluster.kubectl(&["delete", "pod", "users", "--wait=true"])?;
    // They go a moment after the Pod's object.
    eventually("its files go", || Ok((!files.exists()).then_some(())))?;
    kill(kubelet)
}

#[test]
fn pods_have_users_of_their_own() -> Result<()> {
    on_the_built_in_runtime("users", gives_users)
}

#[test]
fn a_kubelet_serves_and_restarts_as_the_settings_say() -> Result<()> {
    on_a_control_plane(serves_and_restarts)
}
