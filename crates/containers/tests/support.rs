//! Sandboxes and containers for tests.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use component::Shutdown;
use ferrokube_containers::{
    Cgroups, Container, ContainerSpec, Io, Network, PidMode, Private, Root, Sandbox, SandboxSpec, Sandboxes,
    Settings,
};
use oci_spec::runtime::Spec;
use serde_json::{Value, json};

/// How long anything may take on a machine that is overloaded.
pub(crate) const LONG: Duration = Duration::from_mins(2);

/// The programs of the root.
const PROGRAMS: &[&str] = &[
    "sh", "cat", "echo", "sleep", "ls", "true", "false", "id", "grep", "mount", "hostname", "ps", "kill",
    "stty", "dd", "head", "touch", "mkdir", "chmod", "nproc", "wc", "tr", "printf", "test", "stat",
    "readlink", "awk", "umount", "yes", "sync", "env", "pwd", "ip", "mknod", "ulimit", "seq", "tty", "df",
    "setsid", "chown", "rm", "ln", "cut",
];

/// A place of a test's own: sandboxes, a root, logs, cgroups.
pub(crate) struct Place {
    pub(crate) directory: Directory,
    pub(crate) sandboxes: Sandboxes,
    pub(crate) shutdown: Shutdown,
    /// The cgroup below which all others are.
    pub(crate) cgroup: String,
}

/// A directory of its own, or that of another process.
pub(crate) enum Directory {
    Own(tempfile::TempDir),
    Others(PathBuf),
}

impl Directory {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Own(directory) => directory.path(),
            Self::Others(path) => path,
        }
    }
}

/// Makes a root in a directory.
pub(crate) fn make_root(root: &Path) {
    for directory in ["bin", "proc", "sys", "dev", "tmp", "etc", "root", "run", "var"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::copy("/usr/bin/busybox", root.join("bin/busybox")).unwrap();
    for program in PROGRAMS {
        symlink("busybox", root.join("bin").join(program)).unwrap();
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n")
        .unwrap();
    fs::write(root.join("etc/group"), "root:x:0:\nuser:x:1000:\n").unwrap();
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(tempfile::tempdir().unwrap(), Cgroups::detect().unwrap())
    }
    /// In a directory, with cgroups by somebody.
    pub(crate) fn with(directory: tempfile::TempDir, cgroups: Cgroups) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let shutdown = Shutdown::new();
        let settings = Settings { state: directory.path().join("pods"), cgroups };
        let sandboxes = Sandboxes::open(settings, &shutdown).unwrap();
        make_root(&directory.path().join("root"));
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let cgroup = format!("/ferrokube-test-{}-{count}", std::process::id());
        let directory = Directory::Own(directory);
        Self { directory, sandboxes, shutdown, cgroup }
    }
    /// The place of another process, whose cgroup is in the environment.
    pub(crate) fn at(directory: &Path, sandboxes: Sandboxes) -> Self {
        let cgroup = std::env::var("FERROKUBE_CONTAINERS_CGROUP").unwrap();
        Self {
            directory: Directory::Others(directory.to_owned()),
            sandboxes,
            shutdown: Shutdown::new(),
            cgroup,
        }
    }
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }
    pub(crate) fn log(&self, id: &str) -> PathBuf {
        self.directory.path().join(format!("{id}.log"))
    }
    pub(crate) fn sandbox(&self, id: &str) -> SandboxSpec {
        SandboxSpec {
            id: id.to_owned(),
            hostname: "pod".to_owned(),
            network: Network::New,
            pid: PidMode::PerContainer,
            ipc: Private::New,
            uts: Private::New,
            user: None,
            sysctls: BTreeMap::default(),
            cgroup: Some(format!("{}/{id}", self.cgroup)),
            resources: None,
            labels: BTreeMap::default(),
        }
    }
    pub(crate) async fn start(&self, id: &str) -> Sandbox {
        self.sandboxes.start(self.sandbox(id)).await.unwrap()
    }
    pub(crate) fn container(&self, id: &str, args: &[&str]) -> ContainerSpec {
        ContainerSpec {
            id: id.to_owned(),
            spec: spec(args, |_| {}),
            root: Root::Path(self.root()),
            mounts: Vec::new(),
            pid_target: None,
            io: Io { log_path: Some(self.log(id)), ..Io::default() },
            cgroup: Some(format!("{}/{id}", self.cgroup)),
            runtime: None,
            labels: BTreeMap::default(),
        }
    }
    /// The text that a container has written, without the log's heads.
    pub(crate) fn output(&self, id: &str) -> String {
        let log = fs::read_to_string(self.log(id)).unwrap();
        log.lines().flat_map(|l| [l.splitn(4, ' ').nth(3).unwrap(), "\n"]).collect()
    }
    /// Runs a container to its end: its exit code and its output.
    pub(crate) async fn run(&self, sandbox: &Sandbox, spec: ContainerSpec) -> (i32, String) {
        let id = spec.id.clone();
        let _ = fs::remove_file(self.log(&id));
        let container = sandbox.create(spec).await.unwrap();
        container.start().await.unwrap();
        let exit = wait(&container).await;
        sandbox.delete(&id).await.unwrap();
        (exit.code, self.output(&id))
    }
    /// Removes everything.
    pub(crate) async fn end(self) {
        for sandbox in self.sandboxes.recorded().unwrap() {
            self.sandboxes.remove(&sandbox).await.unwrap();
        }
        self.shutdown.stop();
        remove_cgroup(&self.cgroup);
    }
}

/// Removes a test's cgroups.
pub(crate) fn remove_cgroup(path: &str) {
    for hierarchy in fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        let _ = fs::remove_dir(hierarchy.path().join(path.trim_start_matches('/')));
    }
    let _ = fs::remove_dir(Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/')));
}

/// Waits for a container's end.
pub(crate) async fn wait(container: &Container) -> ferrokube_containers::Exit {
    tokio::time::timeout(LONG, container.wait()).await.expect("the container ends")
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + LONG;
    while !holds() {
        assert!(tokio::time::Instant::now() < end, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

const CAPABILITIES: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

/// A description as containerd makes it for a Pod's container.
pub(crate) fn spec(args: &[&str], change: impl FnOnce(&mut Value)) -> Spec {
    let mount = |at: &str, typ: &str, options: &[&str]| json!({"destination": at, "type": typ, "source": typ, "options": options});
    let mut value = json!({
        "ociVersion": "1.2.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": args,
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "capabilities": {"bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES},
        },
        "root": {"path": "rootfs"},
        "mounts": [
            mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
            mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
            mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
            mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
            mount("/sys/fs/cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]),
        ],
        "linux": {
            "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            "namespaces": [{"type": "pid"}, {"type": "mount"}],
            "maskedPaths": ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware", "/proc/scsi"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    });
    change(&mut value);
    serde_json::from_value(value).unwrap()
}
