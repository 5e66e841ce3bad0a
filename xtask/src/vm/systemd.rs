//! A node as most are: Debian with systemd, eight processors on two NUMA nodes, swap. Its kubelet gives processors and
//! memory away, lets Pods swap, tells of pressure, and ends Pods before the machine goes down.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::image::Image;

use super::client::{Kubeconfig, Kubectl, LONG, forwarded, tell};
use super::disk::Root;
use super::kernel::Kernel;
use super::machine::{END, Machine};
use crate::setup;
use crate::step::binary;

const IMAGE: &str = "localhost/busybox:1";

/// The units: a control plane, the container runtime, and the kubelet.
const UNITS: [(&str, &str); 4] = [
    (
        "ferrokube-server.service",
        "[Service]\nExecStart=/usr/bin/ferrokube server --disable-dns\nRestart=always\n",
    ),
    (
        "ferrokube-runtime.service",
        "[Service]\nExecStart=/usr/bin/ferrokube cri-runtime --network none --images /images --root /var/lib/runtime \
         --listen /run/ferrokube/cri.sock\nRestart=always\nKillMode=process\nDelegate=yes\n",
    ),
    (
        "kubelet.service",
        "[Unit]\nAfter=ferrokube-runtime.service dbus.service systemd-logind.service\n[Service]\n\
         ExecStart=/usr/bin/ferrokube kubelet --config /etc/kubelet.yaml --hostname-override vm --node-ip 10.0.2.15 \
         --bootstrap-kubeconfig /etc/bootstrap.kubeconfig --kubeconfig /var/lib/kubelet/kubeconfig \
         --container-runtime-endpoint unix:///run/ferrokube/cri.sock\nRestart=always\nRestartSec=2\nKillMode=process\n\
         CPUAccounting=true\nMemoryAccounting=true\n",
    ),
    (
        "vm.service",
        "[Unit]\nAfter=multi-user.target\n[Service]\nExecStart=/vm.sh\nKillMode=process\n\
         [Install]\nWantedBy=multi-user.target\n",
    ),
];

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

/// Boots the machine twice: the second time tells what became of the Pods.
pub(super) fn run(root: &Path, place: &Path) -> Result<()> {
    eprintln!("xtask: a node with systemd");
    let kernel = Kernel::find(root)?;
    let start = place.join("start.cpio");
    fs::write(&start, kernel.start(include_str!("start.sh"))?.finish())?;
    let disk = place.join("systemd.img");
    make_disk(root, &place.join("systemd"), &disk)?;
    for steps in [before as fn(&Kubectl) -> Result<()>, after] {
        let (port, net) = forwarded()?;
        let numa = |node: u32, cpus: &str| format!("node,nodeid={node},cpus={cpus},memdev=m{node}");
        let machine = Machine {
            kernel: &kernel.image,
            start: &start,
            disk: Some(&disk),
            log: &place.join("systemd.log"),
            memory: "3G",
            processors: 8,
            more: &[
                "-object",
                "memory-backend-ram,id=m0,size=1536M",
                "-object",
                "memory-backend-ram,id=m1,size=1536M",
                "-numa",
                &numa(0, "0-3"),
                "-numa",
                &numa(1, "4-7"),
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
                tried = Some(kubectl.and_then(|kubectl| steps(&kubectl)));
                if let Some(Err(e)) = &tried {
                    println!("{e:#}");
                    tell(
                        input,
                        "journalctl --no-pager -n 40 -u kubelet -u ferrokube-runtime -u ferrokube-server",
                    );
                }
                tell(input, &format!("echo {END}; systemctl poweroff"));
            }
            None => println!("{line}"),
        });
        ran.context("in the virtual machine")?;
        tried.context("there was no cluster")??;
    }
    Ok(fs::remove_file(&disk)?)
}

fn make_disk(root: &Path, at: &Path, disk: &Path) -> Result<()> {
    let made = Root::like(&setup::debian(root), at.to_owned())?;
    made.program(&binary(root), "/usr/bin/ferrokube")?;
    symlink("/lib/systemd/systemd", made.path("/init"))?;
    let units = made.path("/etc/systemd/system");
    for (name, text) in UNITS {
        fs::write(units.join(name), text)?;
    }
    fs::create_dir_all(units.join("multi-user.target.wants"))?;
    symlink("../vm.service", units.join("multi-user.target.wants/vm.service"))?;
    fs::write(made.path("/etc/kubelet.yaml"), KUBELET)?;
    fs::write(made.path("/etc/hostname"), "vm\n")?;
    made.script("/vm.sh", include_str!("systemd.sh"))?;
    fs::create_dir_all(made.path("/images"))?;
    Image::busybox(IMAGE)?.write(&made.path("/images/busybox.tar"))?;
    made.disk(disk, 4096)
}

/// What a file of the machine says, as a Pod that may read it all sees it.
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
fn before(kubectl: &Kubectl) -> Result<()> {
    kubectl.node()?;
    approve(kubectl)?;
    let whole = "{limits: {cpu: 2, memory: 64Mi}}";
    kubectl.apply(
        &[
            pod("exact", "", whole),
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
    kubectl.apply(&pod("fits-nowhere", "", whole))?;
    let reason = ["get", "pod", "fits-nowhere", "-o", "jsonpath={.status.phase} {.status.reason}"];
    kubectl.until("two more fit on no node", &reason, |r| {
        r == "Failed TopologyAffinityError" || r == "Failed UnexpectedAdmissionError"
    })?;

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
fn after(kubectl: &Kubectl) -> Result<()> {
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
