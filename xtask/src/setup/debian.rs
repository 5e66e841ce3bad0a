//! Debian's packages, of the running release and of the development branch.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::{output, sh};

/// A package of the development branch, which moves on, with the version that is known to work.
#[derive(Debug)]
pub(super) struct Package {
    name: &'static str,
    /// Upstream's version, without Debian's revision.
    version: &'static str,
    /// Whether another version is of no use.
    exact: bool,
}

impl Package {
    /// A program: a newer one will do, with a warning.
    pub(super) const fn tool(name: &'static str, version: &'static str) -> Self {
        Self { name, version, exact: false }
    }

    /// Go types: the committed files belong to this version.
    pub(super) const fn types(name: &'static str, version: &'static str) -> Self {
        Self { name, version, exact: true }
    }

    /// Judges the version that Debian has now: an error or a warning in one sentence if it differs.
    fn judge(&self, candidate: Option<&str>) -> Result<Option<String>> {
        let Self { name, version, exact } = self;
        let Some(candidate) = candidate else {
            bail!(
                "Debian's development branch has no package {name} any more; {version} was the last that was used here"
            );
        };
        // [epoch:]version[+rebuilt][-revision]
        let upstream = candidate.split_once(':').map_or(candidate, |(_, v)| v);
        let upstream = upstream.rsplit_once('-').map_or(upstream, |(v, _)| v);
        let upstream = upstream.split_once(['+', '~']).map_or(upstream, |(v, _)| v);
        if upstream == *version {
            return Ok(None);
        }
        ensure!(
            !exact,
            "Debian's development branch has {name} {upstream} now, but the golden tests and the schema belong to \
             {version}: change the version in xtask/src/setup/mod.rs, run `cargo xtask schema` and look at what it changes"
        );
        Ok(Some(format!(
            "Debian's development branch has {name} {upstream} now; {version} is what was tested"
        )))
    }
}

/// Installs the packages of the running release that are missing.
pub(super) fn install(packages: &[&str]) -> Result<()> {
    let missing: Vec<&str> = packages.iter().copied().filter(|p| !installed(p)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "these packages are missing and installing them needs root: {}",
        missing.join(" ")
    );
    sh(Command::new("apt-get").arg("update"))?;
    sh(Command::new("apt-get")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["install", "-y", "--no-install-recommends"])
        .args(&missing))
}

fn installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status}", package])
        .output()
        .is_ok_and(|o| o.status.success() && o.stdout == b"installed")
}

/// Unpacks packages of the development branch, if their versions will do.
pub(super) fn unpack_newer(dir: &Path, packages: &[&Package], into: &Path) -> Result<()> {
    let conf = private_apt(dir, "sid")?;
    for package in packages {
        let policy =
            output(Command::new("apt-cache").env("APT_CONFIG", &conf).args(["policy", package.name]))?;
        let candidate = policy.lines().find_map(|l| l.trim().strip_prefix("Candidate: "));
        if let Some(warning) = package.judge(candidate.filter(|c| *c != "(none)"))? {
            eprintln!("xtask: {warning}");
        }
    }
    unpack(&conf, dir, &packages.iter().map(|p| p.name).collect::<Vec<_>>(), into)
}

/// Unpacks packages of the running release.
pub(super) fn unpack_own(dir: &Path, packages: &[&str], into: &Path) -> Result<()> {
    let conf = private_apt(dir, &own_release()?)?;
    unpack(&conf, dir, packages, into)
}

/// Unpacks the package of the running release that another one, which is empty, depends on; returns its name.
pub(super) fn unpack_named(dir: &Path, by: &str, into: &Path) -> Result<String> {
    let conf = private_apt(dir, &own_release()?)?;
    let mut command = Command::new("apt-cache");
    let depends = output(command.env("APT_CONFIG", &conf).args(["depends", "--important", by]))?;
    let named = depends.lines().find_map(|l| l.trim().strip_prefix("Depends: "));
    let name = named.with_context(|| format!("Debian has no package {by}, which names another one"))?;
    unpack(&conf, dir, &[name], into)?;
    Ok(name.to_owned())
}

/// Makes a small system of the running release with further packages.
pub(super) fn bootstrap(packages: &str, at: &Path) -> Result<()> {
    let mirror = mirror()?.context("apt knows no mirror of Debian: name one in /etc/apt/sources.list")?;
    let mut command = Command::new("debootstrap");
    command.args(["--variant=minbase", &format!("--include={packages}"), &own_release()?]);
    sh(command.arg(at).arg(mirror))
}

/// The name of the release that this machine runs, e.g. `bookworm`.
fn own_release() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("this is not Debian: no /etc/os-release")?;
    text.lines()
        .find_map(|l| l.strip_prefix("VERSION_CODENAME="))
        .map(|v| v.trim_matches('"').to_owned())
        .context("this is not Debian: /etc/os-release has no VERSION_CODENAME")
}

/// The Debian mirror that the machine uses.
fn mirror() -> Result<Option<String>> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(REPO_URI)"]);
    command.args(["Created-By: Packages", "Origin: Debian", "Label: Debian"]);
    Ok(output(&mut command)?.lines().next().map(str::to_owned))
}

/// A private apt configuration for one release, from the same mirror that the machine uses.
fn private_apt(dir: &Path, release: &str) -> Result<PathBuf> {
    let mut found = mirror()?;
    if found.is_none() {
        // A new machine has no lists yet.
        sh(Command::new("apt-get").arg("update"))?;
        found = mirror()?;
    }
    let mirror = found.context("apt knows no mirror of Debian: name one in /etc/apt/sources.list")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let check = |package: Package, candidate: Option<&str>, expected: &str| {
            let found = match package.judge(candidate) {
                Ok(None) => "good".to_owned(),
                Ok(Some(warning)) => warning,
                Err(e) => format!("error: {e}"),
            };
            assert!(found.starts_with(expected), "{candidate:?}: {found}");
        };
        let tool = || Package::tool("kubectl", "1.36.4");
        let types = || Package::types("golang-k8s-api-dev", "0.36.4");
        check(tool(), Some("1.36.4+ds-1"), "good");
        check(tool(), Some("1:1.36.4-2~exp1"), "good");
        check(tool(), Some("1.37.0+ds-1"), "Debian's development branch has kubectl 1.37.0 now; 1.36.4 is");
        check(tool(), None, "error: Debian's development branch has no package kubectl any more");
        check(types(), Some("0.36.4-3"), "good");
        check(
            types(),
            Some("0.37.0-1"),
            "error: Debian's development branch has golang-k8s-api-dev 0.37.0 now, but",
        );
    }
}
