//! The bundle of a container: its specification, and the places of its root and of mounts that the caller gave.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxNamespace, LinuxNamespaceType, Mount, Spec};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, UnmountFlags, move_mount, unmount};

use crate::error::{Doing, Result};
use crate::plan::clean;
use crate::records::Directory;

/// The directory of a bundle.
#[derive(Debug, Clone)]
pub(crate) struct Bundle(pub(crate) PathBuf);

/// The files of the namespaces that a container joins; none for the host's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Namespaces {
    pub(crate) network: Option<PathBuf>,
    pub(crate) ipc: Option<PathBuf>,
    pub(crate) uts: Option<PathBuf>,
    pub(crate) user: Option<PathBuf>,
    pub(crate) pid: Pid,
}

/// The process namespace of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Pid {
    #[default]
    Own,
    Host,
    At(PathBuf),
}

impl Bundle {
    /// The bundle of a container of a sandbox.
    pub(crate) fn of(directory: &Directory, id: &str) -> Self {
        Self(directory.0.join("bundles").join(id))
    }
    pub(crate) fn rootfs(&self) -> PathBuf {
        self.0.join("rootfs")
    }
    fn mount(&self, place: usize) -> PathBuf {
        self.0.join("mounts").join(place.to_string())
    }

    /// Makes the bundle. [`Bundle::remove`] takes its mounts away.
    pub(crate) fn create(&self, spec: &Spec, root: OwnedFd, mounts: &[OwnedFd]) -> Result<()> {
        let deed = |path: &Path| format!("make {}", path.display());
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(self.rootfs()).doing(|| deed(&self.rootfs()))?;
        attach(&root, &self.rootfs())?;
        for (place, mount) in mounts.iter().enumerate() {
            let at = self.mount(place);
            builder.create(self.0.join("mounts")).doing(|| deed(&at))?;
            let made = if is_directory(mount)? { builder.create(&at) } else { fs::write(&at, "") };
            made.doing(|| deed(&at))?;
            attach(mount, &at)?;
        }
        let config = self.0.join("config.json");
        let text = serde_json::to_vec(spec).doing(|| deed(&config))?;
        fs::write(&config, text).doing(|| deed(&config))
    }

    /// Removes it, with all that is mounted there.
    pub(crate) fn remove(&self) -> Result<()> {
        let mounts = fs::read_dir(self.0.join("mounts")).into_iter().flatten().flatten().map(|e| e.path());
        for at in mounts.chain([self.rootfs()]) {
            loop {
                match unmount(&at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                    Ok(()) => {}
                    // Nothing is mounted there, or the path is gone.
                    Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => break,
                    Err(e) => return Err(e).doing(|| format!("unmount {}", at.display())),
                }
            }
        }
        match fs::remove_dir_all(&self.0) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(e).doing(|| format!("remove {}", self.0.display()))
            }
            _ => Ok(()),
        }
    }

    /// The specification that hooks read.
    pub(crate) fn of_hooks(&self, spec: &Spec) -> Spec {
        let mut made = spec.clone();
        let mut root = made.root().clone().unwrap_or_default();
        root.set_path(self.rootfs());
        made.set_root(Some(root));
        made
    }

    /// The specification that the runtime gets.
    pub(crate) fn specification(
        &self,
        spec: &Spec,
        of: &Namespaces,
        cgroup: Option<&str>,
        (terminal, given): (bool, &[PathBuf]),
    ) -> Spec {
        let mut made = spec.clone();
        let mut root = made.root().clone().unwrap_or_default();
        root.set_path(PathBuf::from("rootfs"));
        let mut linux = made.linux().clone().unwrap_or_default();
        linux.set_namespaces(Some(list(&linux, of)));
        if let Some(cgroup) = cgroup {
            linux.set_cgroups_path(Some(PathBuf::from(cgroup)));
        }
        if let Some(process) = made.process().clone() {
            let mut process = process;
            process.set_terminal(Some(terminal));
            made.set_process(Some(process));
        }
        let mut mounts = made.mounts().clone().unwrap_or_default();
        for (place, destination) in given.iter().enumerate() {
            let source = self.mount(place);
            let known = mounts.iter_mut().find(|m| clean(m.destination()) == clean(destination));
            if let Some(mount) = known {
                bind(mount, source);
            } else {
                let mut mount = Mount::default();
                mount.set_destination(destination.clone()).set_options(None);
                bind(&mut mount, source);
                mounts.push(mount);
            }
        }
        // The host's name is the sandbox's.
        made.set_root(Some(root)).set_linux(Some(linux)).set_mounts(Some(mounts)).set_hostname(None);
        made
    }
}

/// Makes a mount one of something of the host.
fn bind(mount: &mut Mount, source: PathBuf) {
    let mut options = mount.options().clone().unwrap_or_default();
    if !options.iter().any(|o| o == "bind" || o == "rbind") {
        options.push("rbind".to_owned());
    }
    mount.set_source(Some(source)).set_typ(Some("bind".to_owned())).set_options(Some(options));
}

fn list(linux: &oci_spec::runtime::Linux, of: &Namespaces) -> Vec<LinuxNamespace> {
    use LinuxNamespaceType as Type;
    let one = |typ: Type, path: Option<&PathBuf>| {
        let mut made = LinuxNamespace::default();
        made.set_typ(typ).set_path(path.cloned());
        made
    };
    let mut all = vec![one(Type::Mount, None)];
    match &of.pid {
        Pid::Own => all.push(one(Type::Pid, None)),
        Pid::Host => {}
        Pid::At(path) => all.push(one(Type::Pid, Some(path))),
    }
    let files =
        [(Type::Network, &of.network), (Type::Ipc, &of.ipc), (Type::Uts, &of.uts), (Type::User, &of.user)];
    all.extend(files.into_iter().filter_map(|(typ, path)| Some(one(typ, Some(path.as_ref()?)))));
    let asked = linux.namespaces().iter().flatten();
    all.extend(asked.filter(|n| matches!(n.typ(), Type::Cgroup | Type::Time)).cloned());
    all
}

fn attach(mount: &OwnedFd, at: &Path) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(mount.as_fd(), "", CWD, at, flags).doing(|| format!("mount at {}", at.display()))
}

fn is_directory(d: &OwnedFd) -> Result<bool> {
    let found = rustix::fs::fstat(d).doing(|| "look at a mount")?;
    Ok(rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_specification_for_a_runtime() {
        let spec: Spec = serde_json::from_value(json!({
            "ociVersion": "1.2.0", "hostname": "x", "root": {"path": "elsewhere", "readonly": true},
            "process": {"cwd": "/", "user": {"uid": 0, "gid": 0}, "args": ["a"]},
            "mounts": [{"destination": "/v/", "type": "image", "source": "i", "options": ["ro"]}],
            "linux": {"namespaces": [{"type": "pid"}, {"type": "network", "path": "/old"}, {"type": "cgroup"}]},
        }))
        .unwrap();
        let of = Namespaces {
            network: Some("/proc/1/ns/net".into()),
            pid: Pid::At("/proc/2/ns/pid".into()),
            ..Namespaces::default()
        };
        let given = [PathBuf::from("/v"), PathBuf::from("/w")];
        let made = Bundle("/b".into()).specification(&spec, &of, Some("/pods/c"), (true, &given));
        let made = serde_json::to_value(made).unwrap();
        assert_eq!(made["root"], json!({"path": "rootfs", "readonly": true}));
        assert_eq!(made["hostname"], json!(null));
        assert_eq!(made["process"]["terminal"], true);
        assert_eq!(made["linux"]["cgroupsPath"], "/pods/c");
        assert_eq!(
            made["linux"]["namespaces"],
            json!([{"type": "mount"}, {"type": "pid", "path": "/proc/2/ns/pid"},
                {"type": "network", "path": "/proc/1/ns/net"}, {"type": "cgroup"}])
        );
        assert_eq!(
            made["mounts"],
            json!([{"destination": "/v/", "type": "bind", "source": "/b/mounts/0", "options": ["ro", "rbind"]},
                {"destination": "/w", "type": "bind", "source": "/b/mounts/1", "options": ["rbind"]}])
        );
    }
}
