//! The descriptions of sandboxes, containers and processes that callers give, and the answers that they get.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use jiff::Timestamp;
use oci_spec::runtime::{LinuxIdMapping, LinuxResources, Process, Spec};
use serde::{Deserialize, Serialize};

/// A sandbox: the namespaces that the containers of a Pod share, and the shim that holds them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// The sandbox's name, unique below [`Settings::state`](crate::Settings::state): 1 to 128 letters, digits, `-`, `_`
    /// and `.`, not beginning with a dot.
    pub id: String,
    /// The host's name inside the sandbox; ignored where the UTS namespace is the host's.
    pub hostname: String,
    /// The network namespace.
    pub network: Network,
    /// The process namespace of its containers, unless a container names a target.
    pub pid: PidMode,
    /// Whether the sandbox has an IPC namespace of its own.
    pub ipc: Private,
    /// Whether the sandbox has a UTS namespace (names of the host) of its own.
    pub uts: Private,
    /// The mappings of the sandbox's user namespace; none if it is in the host's.
    pub user: Option<IdMappings>,
    /// Kernel parameters of the sandbox's namespaces, as `net.ipv4.ip_forward`.
    pub sysctls: BTreeMap<String, String>,
    /// The sandbox's own cgroup, below the Pod's: `/kubepods/pod…/ID`, or `SLICE:PREFIX:ID` for the scope `PREFIX-ID.scope`
    /// in a slice of systemd's. The shim and the first process of a shared process namespace are in it. None: they stay in
    /// the runtime's cgroup.
    pub cgroup: Option<String>,
    /// Limits of that cgroup.
    pub resources: Option<LinuxResources>,
    /// Anything that the caller wants to find again: kept with the sandbox, never read here.
    pub labels: BTreeMap<String, String>,
}

/// The network namespace of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// One of its own, with the loopback link up.
    New,
    /// The host's.
    Host,
    /// An existing one, by the path of its file.
    Path(PathBuf),
}

/// The process namespace of containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PidMode {
    /// One for the sandbox, whose first process reaps.
    Shared,
    /// Each container has its own.
    PerContainer,
    /// The host's.
    Host,
}

/// Whether a namespace is the sandbox's own or the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Private {
    /// The sandbox's own.
    New,
    /// The host's.
    Host,
}

/// The mappings of a user namespace: which identifiers inside are which ones outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IdMappings {
    /// Users.
    pub uids: Vec<LinuxIdMapping>,
    /// Groups.
    pub gids: Vec<LinuxIdMapping>,
}

/// A container.
#[derive(Debug)]
pub struct ContainerSpec {
    /// The container's name, unique in its sandbox, by the rules of a sandbox's.
    pub id: String,
    /// The container as the OCI runtime specification describes it. Its `root.path` is not read (but for `readonly`),
    /// its network, IPC, UTS and user namespaces are the sandbox's, and its PID namespace is the sandbox's mode or
    /// [`ContainerSpec::pid_target`].
    pub spec: Spec,
    /// The root file system. With a user namespace it is already mapped.
    pub root: Root,
    /// Mounts that are there already (image volumes): destination and a detached mount. Each takes the place of the
    /// entry of `spec.mounts` with the same destination, whose options it is given, or comes after all of them.
    pub mounts: Vec<(PathBuf, OwnedFd)>,
    /// The container whose process namespace this one joins, by its id, instead of the sandbox's mode.
    pub pid_target: Option<String>,
    /// Input, output and the log.
    pub io: Io,
    /// The container's cgroup: `/kubepods/pod…/ID`, or a scope as the sandbox's. None: `spec.linux.cgroupsPath`, or none at all.
    pub cgroup: Option<String>,
    /// Another OCI runtime that makes the container; none for this crate itself.
    pub runtime: Option<OciRuntime>,
    /// Anything that the caller wants to find again.
    pub labels: BTreeMap<String, String>,
}

/// An OCI runtime that is a program, such as runc. It is called as runc is: `create`, `start`, `exec`, `kill`,
/// `update`, `state` and `delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OciRuntime {
    /// The program, by its absolute path.
    pub program: PathBuf,
    /// Arguments that come before those of each command.
    pub arguments: Vec<String>,
}

/// A container's root file system.
#[derive(Debug)]
pub enum Root {
    /// A detached mount (`fsmount`, or `open_tree` with `OPEN_TREE_CLONE`), which the container gets for itself.
    Mount(OwnedFd),
    /// A directory of the host; it and what is mounted below are bound.
    Path(PathBuf),
}

/// The streams of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Io {
    /// The log file, in the format of CRI; its directory exists. None: output goes to those who are attached alone.
    pub log_path: Option<PathBuf>,
    /// Whether the container's streams are one terminal.
    pub terminal: bool,
    /// Whether standard input is kept open for those who attach; otherwise it is `/dev/null`.
    pub stdin: bool,
    /// Whether standard input is closed after the first one who was attached to it left.
    pub stdin_once: bool,
}

/// A further process in a container.
#[derive(Debug, Clone)]
pub struct ExecSpec {
    /// The process.
    pub process: Process,
    /// Whether its streams are one terminal.
    pub terminal: bool,
    /// Whether it has standard input.
    pub stdin: bool,
    /// Whether it has standard output.
    pub stdout: bool,
    /// Whether it has standard error; with a terminal there is none.
    pub stderr: bool,
}

/// The end of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code: 128 and the signal's number if a signal ended the process, 255 if nobody saw it end.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether the kernel killed a process of the container because it was out of memory.
    pub oom_killed: bool,
    /// The time.
    pub finished_at: Timestamp,
}

/// The state of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Its process waits to be started.
    Created,
    /// Its process runs.
    Running,
    /// Its process ended.
    Exited(Exit),
}

/// Something that happened without a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A container's process ended; the record is written.
    Exited {
        /// The sandbox.
        sandbox: String,
        /// The container.
        container: String,
        /// The end.
        exit: Exit,
    },
    /// The kernel killed a process of a container because it was out of memory.
    Oom {
        /// The sandbox.
        sandbox: String,
        /// The container.
        container: String,
    },
    /// A sandbox's shim is gone, and with it the sandbox: its containers were killed.
    Lost {
        /// The sandbox.
        sandbox: String,
    },
}

/// Resources that a cgroup has used. Figures that the kernel does not give are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Processor time, in nanoseconds.
    pub cpu_usage: Option<u64>,
    /// Periods in which the quota held processes up, and the time, in nanoseconds.
    pub cpu_throttled: Option<(u64, u64)>,
    /// Memory with page cache, in bytes.
    pub memory_usage: Option<u64>,
    /// Memory without inactive page cache, in bytes: upstream's working set.
    pub memory_working_set: Option<u64>,
    /// Anonymous memory, in bytes.
    pub memory_rss: Option<u64>,
    /// The limit, in bytes.
    pub memory_limit: Option<u64>,
    /// Swap in use, in bytes.
    pub swap_usage: Option<u64>,
    /// The limit of swap, in bytes.
    pub swap_limit: Option<u64>,
    /// Page faults: all, and those that read from disk.
    pub page_faults: Option<(u64, u64)>,
    /// Tasks.
    pub pids: Option<u64>,
    /// The limit of tasks.
    pub pids_limit: Option<u64>,
    /// Bytes read from and written to disks.
    pub io_bytes: Option<(u64, u64)>,
    /// Processes that the kernel killed because memory was out.
    pub oom_kills: Option<u64>,
    /// Pressure of processor, memory and disks, where the kernel has it (cgroup v2).
    pub pressure: BTreeMap<&'static str, Pressure>,
}

/// Pressure stall information of a resource: the shares of the last 10, 60 and 300 s, in percent by 100, and the
/// total, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// At least one task waited.
    pub some: [u64; 4],
    /// All tasks waited.
    pub full: [u64; 4],
}

impl Pressure {
    /// Reads a file of the kernel: `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
    pub fn parse(text: &str) -> Self {
        let mut out = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let Some(kind) = words.next() else { continue };
            let mut figures = [0; 4];
            for (place, word) in figures.iter_mut().zip(words) {
                let digits: String =
                    word.chars().skip_while(|c| *c != '=').filter(char::is_ascii_digit).collect();
                *place = digits.parse().unwrap_or(0);
            }
            match kind {
                "some" => out.some = figures,
                "full" => out.full = figures,
                _ => {}
            }
        }
        out
    }
}
