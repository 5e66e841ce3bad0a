//! Containers without a cluster: the time of a sandbox with a container, of a further process, and the memory of a
//! shim; beside runc where it is installed. It needs root, and a static busybox for the root file system.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ::containers::{
    Cgroups, ContainerSpec, ExecSpec, Io, Network, PidMode, Private, Root, SandboxSpec, Sandboxes, Settings,
};
use anyhow::{Context, Result, ensure};
use clap::Args as ClapArgs;
use component::Shutdown;
use oci_spec::runtime::Spec;
use serde_json::json;

use crate::table::{Table, figure};

/// How much to measure.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// A pause before each round, in milliseconds: an idle kernel is slower
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pause: u64,
    /// A static busybox
    #[arg(long, value_name = "FILE", default_value = "/usr/bin/busybox")]
    busybox: PathBuf,
    /// An OCI runtime to put beside, if it is there
    #[arg(long, value_name = "FILE", default_value = "/usr/sbin/runc")]
    runc: PathBuf,
}

/// Times of one deed.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn percentile(&self, percent: usize) -> String {
        let mut sorted = self.0.clone();
        sorted.sort();
        let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
        sorted.get(at).map_or_else(|| "-".to_owned(), |t| figure(t.as_secs_f64() * 1000.0))
    }
}

/// Measures, and prints a table.
pub(crate) fn run(args: &Args) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let root = directory.path().join("rootfs");
    make_root(&root, &args.busybox)?;
    let (own, memory) = crate::block_on(ours(args, directory.path()))?;
    let mut table = Table::new(&["milliseconds", "p50", "p90"]);
    let mut row = |name: &str, times: &Times| {
        table.row([name.to_owned(), times.percentile(50), times.percentile(90)]);
    };
    let [sandbox, create, start, exec, together] = &own;
    row("sandbox", sandbox);
    row("create", create);
    row("start", start);
    row("sandbox, create and start", together);
    row("exec of true, to its end", exec);
    if args.runc.exists() {
        let [create, exec] = theirs(args, directory.path())?;
        row("runc: create and start", &create);
        row("runc: exec of true, to its end", &exec);
    }
    print!("{table}");
    println!("private memory of a shim with a container: {memory} KiB");
    Ok(())
}

fn make_root(root: &Path, busybox: &Path) -> Result<()> {
    for name in ["bin", "proc", "sys", "dev", "tmp"] {
        fs::create_dir_all(root.join(name))?;
    }
    fs::copy(busybox, root.join("bin/busybox")).context("no busybox: install busybox-static")?;
    for program in ["sleep", "true"] {
        symlink("busybox", root.join("bin").join(program))?;
    }
    Ok(())
}

/// The description of a container on the host's network.
fn spec(args: &[&str]) -> serde_json::Value {
    let mount = |at: &str, typ: &str, options: &[&str]| json!({"destination": at, "type": typ, "source": typ, "options": options});
    json!({
        "ociVersion": "1.0.2",
        "process": {"user": {"uid": 0, "gid": 0}, "args": args, "env": ["PATH=/bin"], "cwd": "/"},
        "root": {"path": "rootfs"},
        "mounts": [
            mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
            mount("/dev", "tmpfs", &["nosuid", "mode=755", "size=65536k"]),
            mount("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
            mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        ],
        "linux": {
            "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}],
            "maskedPaths": ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}

/// The times of sandbox, create, start, exec, and of the first three; and the private memory of a shim, in KiB.
async fn ours(args: &Args, directory: &Path) -> Result<([Times; 5], u64)> {
    let shutdown = Shutdown::new();
    let settings = Settings { state: directory.join("pods"), cgroups: Cgroups::detect()? };
    let sandboxes = Sandboxes::open(settings, &shutdown)?;
    let parent = format!("/ferrokube-bench-{}", std::process::id());
    let mut times: [Times; 5] = Default::default();
    let mut memory = 0;
    for round in 0..args.rounds {
        tokio::time::sleep(Duration::from_millis(args.pause)).await;
        let id = format!("s{round}");
        let began = Instant::now();
        let sandbox = sandboxes
            .start(SandboxSpec {
                id: id.clone(),
                hostname: String::new(),
                network: Network::Host,
                pid: PidMode::PerContainer,
                ipc: Private::New,
                uts: Private::New,
                user: None,
                sysctls: BTreeMap::default(),
                cgroup: Some(format!("{parent}/{id}")),
                resources: None,
                labels: BTreeMap::default(),
            })
            .await?;
        let started = Instant::now();
        let described: Spec = serde_json::from_value(spec(&["sleep", "1000"]))?;
        let process = described.process().clone().context("a process")?;
        let container = sandbox
            .create(ContainerSpec {
                id: "c".to_owned(),
                spec: described,
                root: Root::Path(directory.join("rootfs")),
                mounts: Vec::new(),
                pid_target: None,
                io: Io { log_path: Some(directory.join("log")), ..Io::default() },
                cgroup: Some(format!("{parent}/c{round}")),
                runtime: None,
                labels: BTreeMap::default(),
            })
            .await?;
        let created = Instant::now();
        container.start().await?;
        let running = Instant::now();
        let mut process = process;
        process.set_args(Some(vec!["true".to_owned()]));
        let exec = ExecSpec { process, terminal: false, stdin: false, stdout: true, stderr: true };
        let exit = container.exec(exec).await?.wait().await;
        let done = Instant::now();
        ensure!(exit.code == 0, "the further process ended with {}", exit.code);
        times[0].0.push(started - began);
        times[1].0.push(created - started);
        times[2].0.push(running - created);
        times[3].0.push(done - running);
        times[4].0.push(running - began);
        memory = memory.max(private(sandbox.shim_pid())?);
        sandboxes.remove(&id).await?;
    }
    shutdown.stop();
    for hierarchy in fs::read_dir("/sys/fs/cgroup")?.flatten() {
        let _ = fs::remove_dir(hierarchy.path().join(parent.trim_start_matches('/')));
    }
    Ok((times, memory))
}

/// The private memory of a process, in KiB.
fn private(pid: i32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let lines = text.lines().filter(|l| l.starts_with("Private_"));
    Ok(lines.filter_map(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).sum())
}

/// The times of runc: create with start, and exec.
fn theirs(args: &Args, directory: &Path) -> Result<[Times; 2]> {
    let mut times: [Times; 2] = Default::default();
    fs::write(directory.join("config.json"), spec(&["sleep", "1000"]).to_string())?;
    let state = directory.join("runc");
    let runc = |words: &[&str]| -> Result<()> {
        let mut command = Command::new(&args.runc);
        command.arg("--root").arg(&state).args(words).current_dir(directory);
        // A container keeps its streams.
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        ensure!(command.status()?.success(), "runc {words:?} failed");
        Ok(())
    };
    for round in 0..args.rounds {
        std::thread::sleep(Duration::from_millis(args.pause));
        let id = format!("ferrokube-bench-{}-{round}", std::process::id());
        let began = Instant::now();
        runc(&["create", &id])?;
        runc(&["start", &id])?;
        let running = Instant::now();
        runc(&["exec", &id, "true"])?;
        times[0].0.push(running - began);
        times[1].0.push(running.elapsed());
        runc(&["delete", "--force", &id])?;
    }
    Ok(times)
}
