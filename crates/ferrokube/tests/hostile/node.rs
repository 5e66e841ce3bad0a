//! A node in trouble: Pods that are deleted while they start, a runtime that hangs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, ensure};
use testkit::{Cluster, Image, Options, Signal, eventually};

const IMAGE: &str = "test.local/app:1";
/// The number of Pods that are deleted, each a moment later in its start than the one before.
const PODS: usize = 20;

fn cluster(name: &str, containerd: bool) -> Result<Cluster> {
    // The disk of the test machine does not matter.
    let flags = vec![
        "--eviction-hard".into(),
        "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%".into(),
    ];
    Cluster::start(
        name,
        Options { images: vec![Image::busybox(IMAGE)?], flags, containerd, ..Options::default() },
    )
}

/// Pods of all kinds that differ in how they start.
fn pods(prefix: &str) -> String {
    let mut all = String::new();
    for i in 0..PODS {
        let image = if i % 10 == 9 { "test.local/nowhere:1" } else { IMAGE };
        let hook = if i % 5 == 3 { ", lifecycle: {postStart: {exec: {command: [sleep, '5']}}}" } else { "" };
        let init = if i % 3 == 1 {
            format!("\n  initContainers: [{{name: i, image: {IMAGE}, command: ['true']}}]")
        } else {
            String::new()
        };
        let _ = write!(
            all,
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {prefix}{i}}}\nspec:\n  \
             terminationGracePeriodSeconds: 1{init}\n  containers:\n  - {{name: c, image: {image}, \
             command: [sleep, '1000'], volumeMounts: [{{name: m, mountPath: /m}}]{hook}}}\n  \
             volumes: [{{name: m, emptyDir: {{medium: Memory}}}}]\n"
        );
    }
    all
}

/// The remains of the Pods with these uids on the host, by kind.
fn remains(cluster: &Cluster, uids: &[String]) -> Result<BTreeMap<&'static str, String>> {
    let host = cluster.host();
    let sh = |script: &str| host.run("sh", &["-c", script]);
    let any: Vec<String> = uids.iter().map(|uid| format!("-name 'pod{uid}'")).collect();
    // Those of other tests go meanwhile, which is no fault; each other complaint counts as something that is left.
    let cgroups = format!(
        "find /sys/fs/cgroup -type d \\( {} \\) 2>&1 | grep -v 'No such file or directory' || true",
        any.join(" -o ")
    );
    let dirs = cluster.data_dir();
    // Mounts of other clusters on this machine are seen here, too.
    let own = host.dir().display();
    let mounts = format!(
        "grep -E ' {own}/.*(/kubelet/pods/|containerd-state/.*/(rootfs|shm) |/runtime/sandboxes/)' /proc/self/mountinfo || true"
    );
    let (containers, shims) = if cluster.has_containerd() {
        (
            cluster.ctr(&["containers", "list", "--quiet"])? + &cluster.ctr(&["tasks", "list", "--quiet"])?,
            // Shims of other clusters are seen here, too; each is told the socket of its own.
            // The brackets keep this command from finding itself.
            format!(
                "grep -l '[c]ontainerd-shim' /proc/[0-9]*/cmdline 2>/dev/null | \
                 xargs -r grep -l -F '{own}/' 2>/dev/null || true"
            ),
        )
    } else {
        let places = "records/sandboxes records/containers sandboxes containers shims";
        let list = format!("cd {}/runtime 2>/dev/null && ls {places} 2>/dev/null || true", dirs.display());
        let shims = format!(
            "for p in $(grep -l '[f]errokube-shim' /proc/[0-9]*/cmdline 2>/dev/null); do \
             ls -l ${{p%cmdline}}fd 2>/dev/null | grep -F -q '{own}/' && echo $p; done; true"
        );
        (sh(&list)?, shims)
    };
    let mut found = BTreeMap::from([
        ("containers", containers),
        ("shims", sh(&shims)?),
        ("mounts", sh(&mounts)?),
        ("cgroups", sh(&cgroups)?),
        ("network namespaces", sh("ls /run/netns 2>/dev/null || true")?),
        (
            "directories",
            sh(&format!(
                "ls -A {0}/kubelet/pods /var/log/pods /var/log/containers 2>/dev/null || true",
                dirs.display()
            ))?,
        ),
    ]);
    found.retain(|_, text| text.lines().any(|line| !line.is_empty() && !line.ends_with(':')));
    Ok(found)
}

#[test]
fn pods_deleted_while_they_start_leave_nothing_and_down_removes_the_rest() -> Result<()> {
    deleted(cluster("deleted", false)?)
}

#[test]
fn pods_deleted_while_they_start_leave_nothing_in_containerd() -> Result<()> {
    deleted(cluster("deleted-containerd", true)?)
}

fn deleted(mut cluster: Cluster) -> Result<()> {
    let mut uids = Vec::new();
    for (prefix, how) in [("normal", &["--wait=false"][..]), ("forced", &["--grace-period=0", "--force"])] {
        cluster.apply(&pods(prefix))?;
        let names: Vec<String> = (0..PODS).map(|i| format!("{prefix}{i}")).collect();
        let all = cluster.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"])?;
        uids.extend(all.split(' ').map(str::to_owned));
        // Each deletion takes a moment, in which the other Pods go on with their start.
        for name in names.chunks(2) {
            let mut args = vec!["delete", "pod", "--ignore-not-found", "--wait=false"];
            args.extend(how);
            args.extend(name.iter().map(String::as_str));
            cluster.kubectl(&args)?;
        }
    }
    eventually("no Pods", || Ok(cluster.kubectl(&["get", "pods", "-o", "name"])?.is_empty().then_some(())))?;
    eventually("nothing is left of them", || {
        let found = remains(&cluster, &uids)?;
        ensure!(found.is_empty(), "{found:#?}");
        Ok(Some(()))
    })?;
    let failed = cluster.kubectl(&["get", "events", "-o", "jsonpath={.items[*].message}"])?;
    ensure!(!failed.contains("context canceled"), "{failed}");
    // A process that is stopped in the middle of the start of Pods still ends its work: `down` finds all of it.
    cluster.apply(&pods("stopped"))?;
    let all = cluster.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"])?;
    uids.extend(all.split(' ').map(str::to_owned));
    eventually("sandboxes are being made", || Ok((!remains(&cluster, &uids)?.is_empty()).then_some(())))?;
    cluster.stop_ferrokube(Signal::TERM)?;
    let data = cluster.data_dir();
    let binary = testkit::binary();
    let binary = binary.to_str().unwrap_or_default();
    cluster.host().run(binary, &["down", "--data-dir", data.to_str().unwrap_or_default()])?;
    let found = remains(&cluster, &uids)?;
    ensure!(found.is_empty(), "after `down`: {found:#?}");
    Ok(())
}

#[test]
fn a_runtime_that_hangs_is_told_and_got_over() -> Result<()> {
    let cluster = cluster("hangs", true)?;
    cluster.kubectl(&["run", "before", "--image", IMAGE, "--command", "--", "sleep", "1000"])?;
    let phase = |name: &str, phase: &str| {
        eventually(phase, || {
            let is = cluster.kubectl(&["get", "pod", name, "-o", "jsonpath={.status.phase}"])?;
            Ok((is == phase).then_some(()))
        })
    };
    phase("before", "Running")?;
    cluster.signal_containerd(Signal::STOP)?;
    cluster.kubectl(&["delete", "pod", "before", "--grace-period=1", "--wait=false"])?;
    cluster.kubectl(&["run", "after", "--image", IMAGE, "--command", "--", "sleep", "1000"])?;
    let ready = || {
        cluster.kubectl(&[
            "get",
            "nodes",
            "-o",
            "jsonpath={range .items[*].status.conditions[?(@.type==\"Ready\")]}{.status} {.message}{end}",
        ])
    };
    eventually(
        "the node is not ready",
        || Ok((ready()? == "False container runtime is down").then_some(())),
    )?;
    cluster.signal_containerd(Signal::CONT)?;
    eventually("the node is ready again", || Ok(ready()?.starts_with("True").then_some(())))?;
    phase("after", "Running")?;
    eventually("the deleted one is gone", || {
        let left = cluster.kubectl(&["get", "pods", "-o", "name"])?;
        Ok((left.trim() == "pod/after").then_some(()))
    })?;
    Ok(())
}
