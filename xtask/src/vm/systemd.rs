//! A node as most are: Debian with systemd, eight processors on two NUMA nodes, swap. Its kubelet gives processors and
//! memory away, lets Pods swap, tells of pressure, and ends Pods before the machine goes down.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::ChildStdin;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use supplies::Image;

use super::client::{Kubeconfig, Kubectl, LONG, forwarded, tell};
use super::disk::Root;
use super::kernel::Kernel;
use super::machine::{END, Machine};
use crate::setup;
use crate::step::binary;

const IMAGE: &str = "localhost/busybox:1";

/// The units besides the container runtime's: a control plane, the kubelet, and the tests' own.
const UNITS: [(&str, &str); 3] = [
    (
        "ferrokube-server.service",
        "[Service]\nExecStart=/usr/bin/ferrokube server --disable-dns\nRestart=always\n",
    ),
    (
        "kubelet.service",
        "[Unit]\nAfter=ferrokube-runtime.service dbus.service systemd-logind.service\n[Service]\n\
         ExecStart=/usr/bin/ferrokube kubelet --config /etc/kubelet.yaml --hostname-override vm --node-ip 10.0.2.15 \
         --bootstrap-kubeconfig /etc/bootstrap.kubeconfig --kubeconfig /var/lib/kubelet/kubeconfig \
         --container-runtime-endpoint unix:///run/ferrokube-runtime/cri.sock\nRestart=always\nRestartSec=2\nKillMode=process\n\
         CPUAccounting=true\nMemoryAccounting=true\n",
    ),
    (
        "vm.service",
        "[Unit]\nAfter=multi-user.target\n[Service]\nExecStart=/vm.sh\nKillMode=process\n\
         [Install]\nWantedBy=multi-user.target\n",
    ),
];

/// The container runtime of a machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runtime {
    /// containerd with runc.
    Containerd,
    /// The built-in one, which makes cgroups by directories.
    BuiltIn,
    /// The built-in one, which asks systemd for cgroups.
    Scopes,
}

impl Runtime {
    /// Its unit.
    fn unit(self) -> String {
        let driver = match self {
            Self::Containerd => return CONTAINERD.to_owned(),
            Self::BuiltIn => "cgroupfs",
            Self::Scopes => "systemd",
        };
        format!(
            "[Unit]\nAfter=dbus.service\n[Service]\nRuntimeDirectory=ferrokube-runtime\nRuntimeDirectoryPreserve=yes\n\
             ExecStart=/usr/bin/ferrokube cri-runtime --network none --images /images --root /var/lib/runtime \
             --cgroup-driver {driver} --listen /run/ferrokube-runtime/cri.sock\nRestart=always\nKillMode=process\n\
             Delegate=yes\n"
        )
    }
}

/// containerd with runc, which asks systemd for the cgroups of containers; so does the kubelet for those of Pods.
const CONTAINERD: &str = "[Service]\nRuntimeDirectory=ferrokube-runtime\nRuntimeDirectoryPreserve=yes\n\
    ExecStart=/usr/bin/containerd --config /etc/containerd.toml\n\
    ExecStartPost=/bin/sh -c 'for image in /images/*.tar; do until ctr -a /run/ferrokube-runtime/cri.sock -n k8s.io \
    images import $image; do sleep 1; done; done'\nRestart=always\nKillMode=process\nDelegate=yes\n";

/// containerd's configuration, and a network that nobody uses.
const CONTAINERD_FILES: [(&str, &str); 2] = [
    (
        "/etc/containerd.toml",
        r#"version = 3
[grpc]
  address = "/run/ferrokube-runtime/cri.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/busybox:1"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
    SystemdCgroup = true
"#,
    ),
    (
        "/etc/cni/net.d/10.conflist",
        r#"{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}"#,
    ),
];

/// The steps with a machine that runs.
type Steps = fn(&Kubectl, &mut ChildStdin) -> Result<()>;

/// The first processor is the system's.
const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {x509: {clientCAFile: /var/lib/ferrokube/pki/ca.crt}}
serverTLSBootstrap: true
failSwapOn: false
memorySwap: {swapBehavior: LimitedSwap}
cpuManagerPolicy: static
memoryManagerPolicy: Static
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: '0'
reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
shutdownGracePeriod: 90s
shutdownGracePeriodCriticalPods: 30s
";

/// Upstream's defaults.
const KUBELET_SMALL: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {x509: {clientCAFile: /var/lib/ferrokube/pki/ca.crt}}
serverTLSBootstrap: true
failSwapOn: false
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
";

/// A Pod on the machine's network. It looks at the machine, if it may.
fn pod(name: &str, more: &str, resources: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  hostNetwork: true
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  {more}
  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, exec sleep 1000000]
    resources: {resources}
"
    )
}

/// Boots a machine with containerd, one with the built-in runtime that asks systemd for cgroups, and one with the built-in
/// runtime twice: the second time tells what became of the Pods.
pub(super) fn run(root: &Path, place: &Path) -> Result<()> {
    let disk = place.join("systemd.img");
    eprintln!("xtask: a node with systemd and containerd");
    make_disk(root, &place.join("systemd"), &disk, Runtime::Containerd)?;
    boot(root, place, &disk, 2, driver)?;
    eprintln!("xtask: a node with systemd, which makes the built-in runtime's cgroups");
    make_disk(root, &place.join("systemd"), &disk, Runtime::Scopes)?;
    boot(root, place, &disk, 2, scopes)?;
    eprintln!("xtask: a node with systemd");
    make_disk(root, &place.join("systemd"), &disk, Runtime::BuiltIn)?;
    for steps in [before as Steps, after] {
        boot(root, place, &disk, 8, steps)?;
    }
    Ok(fs::remove_file(&disk)?)
}

fn boot(root: &Path, place: &Path, disk: &Path, processors: u32, steps: Steps) -> Result<()> {
    let kernel = Kernel::find(root)?;
    let start = place.join("start.cpio");
    fs::write(&start, kernel.start(include_str!("start.sh"))?.finish())?;
    let (port, net) = forwarded()?;
    let half = processors / 2;
    let numa = |node: u32| {
        format!("node,nodeid={node},cpus={}-{},memdev=m{node}", node * half, (node + 1) * half - 1)
    };
    let memory = |node: u32| format!("memory-backend-ram,id=m{node},size=1536M");
    let machine = Machine {
        kernel: &kernel.image,
        start: &start,
        disk: Some(disk),
        log: &place.join("systemd.log"),
        memory: "3G",
        processors,
        more: &[
            "-object",
            &memory(0),
            "-object",
            &memory(1),
            "-numa",
            &numa(0),
            "-numa",
            &numa(1),
            "-netdev",
            &net,
            "-device",
            "virtio-net-pci,netdev=net,romfile=",
        ],
        words: "systemd.show_status=0",
    };
    let (mut kubeconfig, mut tried) = (Kubeconfig::default(), None);
    let ran = machine.run(4 * LONG, |line, input| match kubeconfig.take(line) {
        Some(false) => {}
        Some(true) => {
            let kubectl = Kubectl::new(root, &kubeconfig, place.join("systemd.kubeconfig"), port);
            tried = Some(kubectl.and_then(|kubectl| steps(&kubectl, input)));
            if let Some(Err(e)) = &tried {
                println!("{e:#}");
                tell(
                    input,
                    "journalctl --no-pager -n 60 -u kubelet -u ferrokube-runtime -u ferrokube-server",
                );
            }
            tell(input, &format!("echo {END}; systemctl poweroff"));
        }
        None => println!("{line}"),
    });
    ran.context("in the virtual machine")?;
    tried.context("there was no cluster")?
}

fn make_disk(root: &Path, at: &Path, disk: &Path, runtime: Runtime) -> Result<()> {
    let made = Root::like(&setup::debian(root), at.to_owned())?;
    made.program(&binary(root), "/usr/bin/ferrokube")?;
    symlink("/lib/systemd/systemd", made.path("/init"))?;
    let units = made.path("/etc/systemd/system");
    for (name, text) in UNITS {
        fs::write(units.join(name), text)?;
    }
    fs::write(units.join("ferrokube-runtime.service"), runtime.unit())?;
    fs::create_dir_all(units.join("multi-user.target.wants"))?;
    symlink("../vm.service", units.join("multi-user.target.wants/vm.service"))?;
    fs::write(
        made.path("/etc/kubelet.yaml"),
        if runtime == Runtime::BuiltIn { KUBELET } else { KUBELET_SMALL },
    )?;
    for (file, text) in
        [("/etc/hostname", "vm\n"), ("/etc/hosts", "127.0.0.1 localhost\n"), ("/etc/resolv.conf", "")]
    {
        fs::write(made.path(file), text)?;
    }
    made.script("/vm.sh", include_str!("systemd.sh"))?;
    fs::create_dir_all(made.path("/images"))?;
    let mut image = Image::busybox(IMAGE)?;
    // It is the image of sandboxes, too, whose process has no arguments.
    image.config["Cmd"] = serde_json::json!(["sleep", "2147483647"]);
    image.write(&made.path("/images/busybox.tar"))?;
    if runtime == Runtime::Containerd {
        made.programs(&["runc"])?;
        for program in ["containerd", "containerd-shim-runc-v2", "ctr"] {
            let file = fs::canonicalize(setup::tools(root).join("bin").join(program))?;
            made.program(&file, &format!("/usr/bin/{program}"))?;
        }
        for (file, text) in CONTAINERD_FILES {
            let file = made.path(file);
            fs::create_dir_all(file.parent().context("the root is no file")?)?;
            fs::write(file, text)?;
        }
    }
    made.disk(disk, 4096)
}

/// The content of a file, as a Pod sees it.
fn read(kubectl: &Kubectl, pod: &str, file: &str) -> Result<String> {
    kubectl.run(&["exec", pod, "--", "cat", file])
}

/// Lets the kubelet serve: the machine has the API server's address, so its request is left to an administrator.
fn approve(kubectl: &Kubectl) -> Result<()> {
    let names = [
        "get",
        "csr",
        "-o",
        "jsonpath={.items[?(@.spec.signerName=='kubernetes.io/kubelet-serving')].metadata.name}",
    ];
    let name = kubectl.until("the kubelet's request", &names, |names| !names.is_empty())?;
    for name in name.split(' ') {
        kubectl.run(&["certificate", "approve", name])?;
    }
    Ok(())
}

/// The first life of the machine, up to its shutdown.
fn before(kubectl: &Kubectl, _: &mut ChildStdin) -> Result<()> {
    kubectl.node()?;
    approve(kubectl)?;
    // The node has five processors left, and no NUMA node has.
    kubectl.apply(&pod("wide", "", "{limits: {cpu: 5, memory: 64Mi}}"))?;
    let reason = ["get", "pod", "wide", "-o", "jsonpath={.status.phase} {.status.reason}"];
    kubectl.until("five fit on no node", &reason, |reason| reason == "Failed TopologyAffinityError")?;
    kubectl.apply(
        &[
            pod("exact", "", "{limits: {cpu: 2, memory: 64Mi}}"),
            pod("large", "", "{limits: {cpu: 4, memory: 64Mi}}"),
            pod("swaps", "", "{requests: {memory: 64Mi}, limits: {memory: 128Mi}}"),
            pod("critical", "priorityClassName: system-node-critical", "{}"),
        ]
        .join("---\n"),
    )?;
    for name in ["exact", "large", "swaps", "critical"] {
        kubectl.ready(name)?;
    }
    let allowed = |pod: &str| -> Result<(String, String)> {
        let status = read(kubectl, pod, "/proc/1/status")?;
        let line = |key: &str| {
            let found = status.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix("_allowed_list:"));
            found.map(|l| l.trim().to_owned()).context("no line of the kernel")
        };
        Ok((line("Cpus")?, line("Mems")?))
    };
    // The first node has three processors left, so four together are the second one's.
    let (large, exact) = (allowed("large")?, allowed("exact")?);
    ensure!(large == ("4-7".to_owned(), "1".to_owned()), "large has {large:?}");
    ensure!(exact == ("1-2".to_owned(), "0".to_owned()), "exact has {exact:?}");
    let shared = allowed("swaps")?.0;
    ensure!(shared == "0,3", "those that share have {shared}");

    let swap = |pod: &str| read(kubectl, pod, "/sys/fs/cgroup/memory.swap.max");
    // The part of the machine's swap that its request is of the machine's memory.
    let given: u64 = swap("swaps")?.parse().context("no limit of swap")?;
    ensure!(given > 1 << 20 && given < 64 << 20, "a burstable Pod has {given} bytes of swap");
    ensure!(swap("exact")? == "0" && swap("critical")? == "0", "others have none");
    figures(kubectl)?;
    kubectl.run(&["get", "pods", "-o", "wide"]).map(|pods| println!("{pods}"))
}

/// The figures of the node that only such a machine has.
fn figures(kubectl: &Kubectl) -> Result<()> {
    let summary = ["get", "--raw", "/api/v1/nodes/vm/proxy/stats/summary"];
    let told = kubectl.until("figures of the Pods", &summary, |text| text.contains("\"name\":\"exact\""))?;
    let told: Value = serde_json::from_str(&told)?;
    for resource in ["cpu", "memory", "io"] {
        ensure!(told["node"][resource]["psi"]["some"]["total"].is_u64(), "{resource}: {}", told["node"]);
    }
    ensure!(told["node"]["swap"]["swapAvailableBytes"].as_u64() > Some(0), "{}", told["node"]["swap"]);
    let kubelet = told["node"]["systemContainers"].as_array().into_iter().flatten();
    let kubelet = kubelet.clone().find(|c| c["name"] == "kubelet").context("no figures of the kubelet")?;
    ensure!(kubelet["memory"]["workingSetBytes"].as_u64() > Some(1 << 20), "{kubelet}");
    Ok(())
}

/// The second life: the Pods of the first one ended before the machine did.
fn after(kubectl: &Kubectl, _: &mut ChildStdin) -> Result<()> {
    kubectl.node()?;
    for name in ["exact", "large", "swaps", "critical"] {
        let status = kubectl.run(&["get", "pod", name, "-o", "json"])?;
        let status: Value = serde_json::from_str(&status)?;
        let status = &status["status"];
        ensure!(status["phase"] == "Failed" && status["reason"] == "Terminated", "{name}: {status}");
        ensure!(
            status["message"] == "Pod was terminated in response to imminent node shutdown.",
            "{name}: {status}"
        );
        println!("{name}: {} {}", status["reason"], status["message"]);
    }
    Ok(())
}

/// Slices are systemd's: it is asked for them, and they keep their limits when it reads its configuration anew.
fn driver(kubectl: &Kubectl, input: &mut ChildStdin) -> Result<()> {
    kubectl.node()?;
    approve(kubectl)?;
    let volume = "volumes: [{name: cgroups, hostPath: {path: /sys/fs/cgroup}}]";
    let look = pod("look", volume, "{}") + "    volumeMounts: [{name: cgroups, mountPath: /host}]\n";
    let limited = "{requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 500m, memory: 128Mi}}";
    kubectl.apply(&[look, pod("limited", "", limited)].join("---\n"))?;
    kubectl.ready("look")?;
    kubectl.ready("limited")?;
    let uid = |pod: &str| kubectl.run(&["get", "pod", pod, "-o", "jsonpath={.metadata.uid}"]);
    let burstable = "/host/kubepods.slice/kubepods-burstable.slice";
    let slice = format!("{burstable}/kubepods-burstable-pod{}.slice", uid("limited")?.replace('-', "_"));
    let settings = || -> Result<()> {
        let check = |file: String, expected: &str| {
            let found = read(kubectl, "look", &file)?;
            ensure!(found == expected, "{file}: {found:?}, not {expected:?}");
            Ok(())
        };
        check(format!("{slice}/memory.max"), "134217728")?;
        check(format!("{slice}/cpu.max"), "50000 100000")?;
        check(format!("{slice}/cpu.weight"), "4")?;
        check(format!("{burstable}/cpu.weight"), "4")?;
        check("/host/kubepods.slice/kubepods-besteffort.slice/cpu.weight".to_owned(), "1")?;
        let all = read(kubectl, "look", "/host/kubepods.slice/memory.max")?;
        ensure!(all.parse::<u64>().is_ok_and(|all| all > 1 << 30), "all Pods may have {all}");
        Ok(())
    };
    settings()?;
    let is_scope =
        |name: &str| name.strip_suffix(".scope").is_some_and(|id| id.starts_with("cri-containerd-"));
    let scopes = kubectl.run(&["exec", "look", "--", "ls", &slice])?;
    ensure!(scopes.lines().any(is_scope), "{scopes}");
    tell(
        input,
        "systemctl daemon-reload; systemctl list-units --no-pager --plain --no-legend 'kubepods*'; touch /var/log/pods/reloaded",
    );
    let reloaded = pod(
        "reloaded",
        "volumes: [{name: logs, hostPath: {path: /var/log/pods/reloaded, type: File}}]",
        "{}",
    );
    kubectl.apply(&reloaded)?;
    kubectl.ready("reloaded")?;
    settings().context("after systemd's reload")?;
    kubectl.run(&["delete", "pod", "limited", "--wait=true"])?;
    let gone = ["exec", "look", "--", "sh", "-c", &format!("ls -d {slice} || echo gone")];
    kubectl.until("the Pod's slice is gone", &gone, |answer| answer.ends_with("gone")).map(drop)
}

/// The answer of a command on the machine, by a file that the Pod `look` sees; `name` is the file's, and no other's.
fn ask(kubectl: &Kubectl, input: &mut ChildStdin, name: &str, command: &str) -> Result<String> {
    tell(input, &format!("{{ {command}; }} >/told/{name}.new 2>&1; mv /told/{name}.new /told/{name}"));
    let file = format!("/told/{name}");
    kubectl.until(name, &["exec", "look", "--", "cat", &file], |_| true)
}

/// A container's cgroup as the tests look at it.
struct InScope<'a> {
    kubectl: &'a Kubectl,
    /// The Pod's slice, by its name and as `look` sees it.
    slice: (String, String),
    /// The container's unit.
    unit: String,
}

impl<'a> InScope<'a> {
    /// That of a burstable Pod's only container.
    fn of(kubectl: &'a Kubectl, pod: &str) -> Result<Self> {
        let field = |path: &str| {
            let path = format!("jsonpath={{{path}}}");
            kubectl.run(&["get", "pod", pod, "-o", &path])
        };
        let slice = format!("kubepods-burstable-pod{}.slice", field(".metadata.uid")?.replace('-', "_"));
        let seen = format!("/host/kubepods.slice/kubepods-burstable.slice/{slice}");
        let container = field(".status.containerStatuses[0].containerID")?;
        let (_, id) = container.split_once("://").context("the container has no id")?;
        Ok(Self { kubectl, slice: (slice, seen), unit: format!("cri-containerd-{id}.scope") })
    }

    /// Checks the limits in the files and in the unit's properties; `name` is that of the answer's file.
    fn check(&self, input: &mut ChildStdin, name: &str, (cpu, memory): (u32, u64)) -> Result<()> {
        let files = [("memory.max", memory.to_string()), ("cpu.max", format!("{} 100000", cpu * 100))];
        for (file, expected) in files {
            let found = read(self.kubectl, "look", &format!("{}/{}/{file}", self.slice.1, self.unit))?;
            ensure!(found == expected, "{file}: {found:?}, not {expected:?}");
        }
        let command = format!(
            "systemctl show -p ActiveState,Slice,Delegate,MemoryMax,CPUQuotaPerSecUSec {}",
            self.unit
        );
        let told = ask(self.kubectl, input, name, &command)?;
        let expected = [
            "ActiveState=active".to_owned(),
            format!("Slice={}", self.slice.0),
            "Delegate=yes".to_owned(),
            format!("MemoryMax={memory}"),
            format!("CPUQuotaPerSecUSec={cpu}ms"),
        ];
        for line in expected {
            ensure!(told.lines().any(|told| told == line), "no {line} in {told}");
        }
        Ok(())
    }
}

/// The built-in runtime's cgroups are systemd's: a scope for each sandbox and container, whose limits systemd knows and
/// keeps; they outlive the runtime, and nothing of them is left.
fn scopes(kubectl: &Kubectl, input: &mut ChildStdin) -> Result<()> {
    kubectl.node()?;
    approve(kubectl)?;
    let volumes = "volumes: [{name: cgroups, hostPath: {path: /sys/fs/cgroup}}, \
        {name: told, hostPath: {path: /told, type: DirectoryOrCreate}}]";
    let mounts = "    volumeMounts: [{name: cgroups, mountPath: /host}, {name: told, mountPath: /told}]\n";
    let limited = "{requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 500m, memory: 128Mi}}";
    kubectl.apply(&[pod("look", volumes, "{}") + mounts, pod("limited", "", limited)].join("---\n"))?;
    kubectl.ready("look")?;
    kubectl.ready("limited")?;
    let scope = InScope::of(kubectl, "limited")?;
    let list = kubectl.run(&["exec", "look", "--", "ls", &scope.slice.1])?;
    let all: Vec<&str> = list.lines().filter(|name| name.strip_suffix(".scope").is_some()).collect();
    ensure!(all.len() == 2 && all.contains(&&*scope.unit), "a sandbox and a container have {all:?}");
    for unit in all {
        let processes = read(kubectl, "look", &format!("{}/{unit}/cgroup.procs", scope.slice.1))?;
        ensure!(!processes.is_empty(), "nothing is in {unit}");
    }
    scope.check(input, "begun", (500, 128 << 20))?;
    ask(kubectl, input, "reload", "systemctl daemon-reload")?;
    scope.check(input, "reloaded", (500, 128 << 20)).context("after systemd's reload")?;

    let change = "{\"spec\":{\"containers\":[{\"name\":\"main\",\"resources\":{\"requests\":{\"cpu\":\"100m\",\
        \"memory\":\"32Mi\"},\"limits\":{\"cpu\":\"600m\",\"memory\":\"192Mi\"}}}]}}";
    kubectl.run(&["patch", "pod", "limited", "--subresource", "resize", "-p", change])?;
    let file = format!("{}/{}/memory.max", scope.slice.1, scope.unit);
    let grown = (192_u64 << 20).to_string();
    kubectl.until("the new limit", &["exec", "look", "--", "cat", &file], |found| found == grown)?;
    scope.check(input, "changed", (600, 192 << 20)).context("after the change")?;
    ask(kubectl, input, "reload-2", "systemctl daemon-reload")?;
    scope.check(input, "changed-reloaded", (600, 192 << 20)).context("after the change and a reload")?;

    let restart = "systemctl restart ferrokube-runtime; systemctl is-active ferrokube-runtime";
    let told = ask(kubectl, input, "restarted", restart)?;
    ensure!(told == "active", "the runtime is {told}");
    kubectl.until("a further process", &["exec", "limited", "--", "true"], |_| true)?;
    let again = InScope::of(kubectl, "limited")?;
    ensure!(again.unit == scope.unit, "the container was {}, and is {}", scope.unit, again.unit);
    scope.check(input, "adopted", (600, 192 << 20)).context("after the runtime's restart")?;

    let hungry =
        pod("hungry", "", "{limits: {memory: 64Mi}}").replace("exec sleep 1000000", "exec tail /dev/zero");
    kubectl.apply(&hungry)?;
    let reason = "jsonpath={.status.containerStatuses[0].state.terminated.reason}";
    kubectl
        .until("memory is out", &["get", "pod", "hungry", "-o", reason], |reason| reason == "OOMKilled")?;
    kubectl.run(&["delete", "pod", "limited", "hungry", "--wait=true"])?;
    let gone = ["exec", "look", "--", "sh", "-c", &format!("ls -d {} || echo gone", scope.slice.1)];
    kubectl.until("the Pod's slice is gone", &gone, |answer| answer.ends_with("gone"))?;
    let units = "systemctl list-units --all --plain --no-legend --no-pager 'cri-containerd-*'";
    let left = ask(kubectl, input, "left", units)?;
    ensure!(left.lines().count() == 2 && !left.contains("failed"), "besides those of look there are {left}");
    Ok(())
}
