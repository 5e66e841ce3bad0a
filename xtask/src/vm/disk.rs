//! The disk of a machine: a root with busybox, a few programs, and the libraries that they need.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::setup::sh;

/// A root in the making.
pub(super) struct Root(PathBuf);

impl Root {
    /// Begins anew in a directory.
    pub(super) fn new(at: PathBuf) -> Result<Self> {
        if at.exists() {
            fs::remove_dir_all(&at)?;
        }
        let root = Self(at);
        for directory in [
            "bin", "dev", "etc", "home", "lib64", "mnt", "proc", "root", "run", "sbin", "sys", "tmp",
            "usr/bin", "usr/sbin", "var/lib", "var/log",
        ] {
            fs::create_dir_all(root.0.join(directory))?;
        }
        Ok(root)
    }

    /// Begins with a copy of another root.
    pub(super) fn like(other: &Path, at: PathBuf) -> Result<Self> {
        if at.exists() {
            fs::remove_dir_all(&at)?;
        }
        sh(Command::new("cp").arg("-a").arg(other).arg(&at))?;
        Ok(Self(at))
    }

    /// A place in the root.
    pub(super) fn path(&self, at: &str) -> PathBuf {
        self.0.join(at.trim_start_matches('/'))
    }

    /// Puts a program there, without the names for debuggers, with its libraries.
    pub(super) fn program(&self, program: &Path, at: &str) -> Result<()> {
        let to = self.path(at);
        fs::create_dir_all(to.parent().context("the root is no program")?)?;
        let stripped = Command::new("strip").arg("-o").arg(&to).arg(program).output();
        // A script has none.
        if !stripped.is_ok_and(|s| s.status.success()) {
            fs::copy(program, &to)?;
        }
        let libraries = Command::new("ldd").arg(program).output().context("running ldd")?;
        for line in String::from_utf8_lossy(&libraries.stdout).lines() {
            let library = line.rsplit("=> ").next().and_then(|l| l.split_whitespace().next());
            if let Some(library) = library.filter(|l| l.starts_with('/')) {
                self.copy(Path::new(library))?;
            }
        }
        Ok(())
    }

    /// Puts programs of this machine at the same place.
    pub(super) fn programs(&self, names: &[&str]) -> Result<()> {
        for name in names {
            let places = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(|d| Path::new(d).join(name));
            let found = places.iter().find(|p| p.exists()).with_context(|| format!("there is no {name}"))?;
            self.program(found, &found.display().to_string())?;
        }
        Ok(())
    }

    /// Puts busybox there, and its names that no other program has.
    pub(super) fn busybox(&self) -> Result<()> {
        self.program(Path::new("/bin/busybox"), "/bin/busybox")?;
        if !self.path("/usr/bin/busybox").exists() {
            symlink("/bin/busybox", self.path("/usr/bin/busybox"))?;
        }
        let names = Command::new("/bin/busybox").arg("--list").output()?;
        for name in String::from_utf8_lossy(&names.stdout).lines() {
            let places = ["bin", "usr/bin", "sbin", "usr/sbin"];
            if !places.iter().any(|d| self.path(d).join(name).symlink_metadata().is_ok()) {
                symlink("/bin/busybox", self.path("bin").join(name))?;
            }
        }
        Ok(())
    }

    /// Puts a file of this machine at the same place; one that is there stays.
    pub(super) fn copy(&self, file: &Path) -> Result<()> {
        let to = self.path(&file.display().to_string());
        if !to.exists() {
            fs::create_dir_all(to.parent().context("the root is no file")?)?;
            fs::copy(file, &to).with_context(|| format!("copying {}", file.display()))?;
        }
        Ok(())
    }

    /// Writes a script.
    pub(super) fn script(&self, at: &str, text: &str) -> Result<()> {
        fs::write(self.path(at), text)?;
        Ok(fs::set_permissions(self.path(at), fs::Permissions::from_mode(0o755))?)
    }

    /// Makes a disk of it, of so many MiB, most of which need no room here.
    pub(super) fn disk(&self, at: &Path, mebibytes: u64) -> Result<()> {
        let file = fs::File::create(at)?;
        file.set_len(mebibytes << 20)?;
        let mut command = Command::new("/sbin/mke2fs");
        command.args(["-q", "-t", "ext4", "-O", "^has_journal", "-E", "root_owner=0:0", "-d"]);
        sh(command.arg(&self.0).arg(at))
    }
}
