//! Plans: the steps that make a process a container's, worked out from its description. Pure; the shim carries them out.

mod container;
mod devices;
mod host;
mod mounts;
mod process;
mod refused;
mod sandbox;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub(crate) use container::{CgroupView, Context, Hierarchy, Hooked, cgroup_namespace, container, exec};
pub(crate) use host::{hook_inside, program};
pub(crate) use mounts::clean;
pub(crate) use process::validate as check_process;
pub(crate) use sandbox::{holder, made_names, mapping, namespaces, shim};

use crate::error::{Error, words};
use crate::raw::{Change, attr};
use crate::shim::wire::step;
use crate::spec::IdMappings;

/// Codes of [`step::SYNC`].
pub(crate) mod sync {
    /// The mappings of its new user namespace are to be written.
    pub(crate) const MAPPINGS: u32 = 2;
    /// Its namespaces are there, and are to be taken hold of.
    pub(crate) const NAMESPACES: u32 = 3;
    /// Its namespaces are there, and the host's hooks are to be run.
    pub(crate) const RUNTIME_HOOKS: u32 = 4;
    /// Its file systems are there, and the hooks of the container are to be run in them.
    pub(crate) const CONTAINER_HOOKS: u32 = 5;
}

/// A descriptor that a plan needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    /// The container's root.
    Root,
    /// An empty file system that nobody can write.
    Empty,
    /// A mount that the caller gave, by its place; and what it is to become.
    Given(usize, Change),
    /// A path of the host.
    Bind(Bind),
    /// The host's `/dev/null`.
    Null,
    /// The sandbox's user namespace.
    User,
    /// The container's process, whose namespaces are joined.
    Process,
    /// Another namespace, by its file.
    Namespace(PathBuf),
    /// A namespace that the sandbox already has, by its name below `/proc/PID/ns`.
    Held(&'static str),
    /// One of the three streams.
    Stream(usize),
    /// The socket at which the shim listens.
    Listen,
    /// The directory of exit records.
    Exits,
    /// One of the files by which a process joins the cgroup.
    Cgroup(usize),
}

/// A bound path of the host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bind {
    pub(crate) path: PathBuf,
    pub(crate) recursive: bool,
    /// Changes, in their order.
    pub(crate) changes: Vec<Change>,
    /// The mapping of its owners, and whether what is mounted below is mapped, too.
    pub(crate) idmap: Option<(IdMappings, bool)>,
}

/// How a failure of a step is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Label {
    /// The deed; the reason follows.
    Deed(String),
    /// The search for a program.
    Look(String),
}

/// A plan.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) bytes: Vec<u8>,
    pub(crate) sources: Vec<Source>,
    labels: Vec<Label>,
}

/// The fields of a step.
#[derive(Debug, Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn text(mut self, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        self.0.extend((value.len() as u32).to_le_bytes());
        self.0.extend(value);
        let padded = (value.len() + 4) & !3;
        self.0.extend(std::iter::repeat_n(0, padded - value.len()));
        self
    }
}

fn fields() -> Fields {
    Fields::default()
}

impl Plan {
    /// Appends a step.
    fn step(&mut self, op: u16, flags: u16, fields: Fields, label: Label) {
        self.bytes.extend(op.to_le_bytes());
        self.bytes.extend(flags.to_le_bytes());
        self.bytes.extend((fields.0.len() as u32).to_le_bytes());
        self.bytes.extend(fields.0);
        self.labels.push(label);
    }
    /// Appends a step whose failure is told as a deed.
    fn push(&mut self, op: u16, flags: u16, fields: Fields, deed: impl Into<String>) {
        self.step(op, flags, fields, Label::Deed(deed.into()));
    }
    /// The place of a descriptor.
    fn source(&mut self, source: Source) -> u32 {
        self.sources.push(source);
        self.sources.len() as u32 - 1
    }
    /// Joins the cgroup, which has so many files.
    fn join(&mut self, files: usize) {
        for file in 0..files {
            let fd = self.source(Source::Cgroup(file));
            self.push(step::JOIN, 0, fields().u32(fd), "join the cgroup");
        }
    }
    /// Asks the runtime for something.
    fn sync(&mut self, code: u32) {
        self.push(step::SYNC, 0, fields().u32(code), "hear from the runtime");
    }

    /// The error of a failed step.
    pub(crate) fn failure(&self, place: u32, errno: i32) -> Error {
        let reason = words(errno);
        let text = match self.labels.get(place as usize) {
            Some(Label::Deed(deed)) => format!("{deed}: {reason}"),
            Some(Label::Look(name)) if !name.contains('/') => {
                format!("exec: {name:?}: executable file not found in $PATH")
            }
            Some(Label::Look(name)) if errno == ENOENT => format!("exec: {name:?}: stat {name}: {reason}"),
            Some(Label::Look(name)) => format!("exec: {name:?}: {reason}"),
            None => format!("prepare a process: {reason}"),
        };
        Error::Step { text, errno }
    }
}

const ENOENT: i32 = 2;

/// The options of a mount that are attributes, as mount(8) names them: what they set and clear; `None` for others.
fn attribute(option: &str) -> Option<(u32, u32)> {
    Some(match option {
        "ro" => (attr::RDONLY, 0),
        "rw" => (0, attr::RDONLY),
        "nosuid" => (attr::NOSUID, 0),
        "suid" => (0, attr::NOSUID),
        "nodev" => (attr::NODEV, 0),
        "dev" => (0, attr::NODEV),
        "noexec" => (attr::NOEXEC, 0),
        "exec" => (0, attr::NOEXEC),
        "noatime" => (attr::NOATIME, attr::ATIME),
        "relatime" | "atime" => (0, attr::ATIME),
        "strictatime" => (attr::STRICTATIME, attr::ATIME),
        "nodiratime" => (attr::NODIRATIME, 0),
        "diratime" => (0, attr::NODIRATIME),
        "nosymfollow" => (attr::NOSYMFOLLOW, 0),
        "symfollow" => (0, attr::NOSYMFOLLOW),
        "defaults" => (0, 0),
        _ => return None,
    })
}
