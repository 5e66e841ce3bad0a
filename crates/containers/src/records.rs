//! The records on disk about sandboxes and containers, so that a runtime that was killed comes back to them.
//!
//! ```text
//! STATE/ID/sandbox.json          the sandbox, and whether it was ready
//! STATE/ID/shim.sock             where its shim listens
//! STATE/ID/exits/SLOT            the end of a process, written by the shim
//! STATE/ID/containers/ID.json    a container, and whether it was made whole
//! STATE/ID/bundles/ID            the bundle of a container that another OCI runtime makes
//! STATE/ID/oci                   the state of such runtimes
//! ```
//!
//! A file appears whole or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use oci_spec::runtime::Spec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::spec::{Exit, Io, OciRuntime, SandboxSpec};

/// A sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) spec: SandboxSpec,
    pub(crate) created_at: Timestamp,
    /// The shim's process and when it began, once the sandbox was ready.
    pub(crate) shim: Option<Process>,
}

/// A process that no later one is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// In the kernel's ticks since it booted.
    pub(crate) began: u64,
}

/// A container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) id: String,
    /// The number of its process in the shim.
    pub(crate) slot: u32,
    /// Its process, once it was made whole.
    pub(crate) pid: Option<i32>,
    pub(crate) created_at: Timestamp,
    /// Written before the process is told to go on.
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) exit: Option<Exit>,
    pub(crate) spec: Spec,
    pub(crate) io: Io,
    pub(crate) cgroup: Option<String>,
    pub(crate) pid_target: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    /// The OCI runtime that made it, if it is another one.
    #[serde(default)]
    pub(crate) runtime: Option<OciRuntime>,
}

impl Process {
    /// A process that runs.
    pub(crate) fn running(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold anything; the fields come after its last parenthesis.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let began = fields.nth(18)?.parse().ok()?;
        (state != "Z" && state != "X").then_some(Self { pid, began })
    }
    /// Whether it runs still.
    pub(crate) fn runs(self) -> bool {
        Self::running(self.pid) == Some(self)
    }
}

/// A name that is also a file's.
pub(crate) fn check_name(kind: &str, id: &str) -> Result<()> {
    let sane = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=128).contains(&id.len()) && id.chars().all(sane) && !id.starts_with('.') {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{id:?} is no name of a {kind}: it needs 1 to 128 letters, digits, '-', '_' or '.'"
    )))
}

/// The directory of a sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new(state: &Path, id: &str) -> Self {
        Self(state.join(id))
    }
    /// Makes it, empty.
    pub(crate) fn create(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        builder.create(&self.0)?;
        builder.create(self.exits())?;
        builder.create(self.0.join("containers"))
    }
    pub(crate) fn exits(&self) -> PathBuf {
        self.0.join("exits")
    }
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("shim.sock")
    }
    fn container(&self, id: &str) -> PathBuf {
        self.0.join("containers").join(format!("{id}.json"))
    }
    pub(crate) fn read(&self) -> Result<SandboxRecord> {
        read(&self.0.join("sandbox.json"))
    }
    pub(crate) fn write(&self, record: &SandboxRecord) -> Result<()> {
        write(&self.0.join("sandbox.json"), record)
    }
    pub(crate) fn write_container(&self, record: &ContainerRecord) -> Result<()> {
        write(&self.container(&record.id), record)
    }
    pub(crate) fn remove_container(&self, id: &str, slot: u32) {
        let _ = fs::remove_file(self.container(id));
        let _ = fs::remove_file(self.exits().join(slot.to_string()));
    }
    /// Every container that has a record.
    pub(crate) fn containers(&self) -> Vec<Result<ContainerRecord>> {
        let entries = fs::read_dir(self.0.join("containers")).into_iter().flatten().flatten();
        let files = entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "json"));
        files.map(|p| read(&p)).collect()
    }
    /// The numbers of the exit records.
    pub(crate) fn exit_slots(&self) -> Vec<u32> {
        let entries = fs::read_dir(self.exits()).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
    }
    /// The shim's note of a process's end: its status, seconds, nanoseconds, the failed step and its error.
    pub(crate) fn exit(&self, slot: u32) -> Option<[i64; 5]> {
        let text = fs::read_to_string(self.exits().join(slot.to_string())).ok()?;
        let figures: Vec<i64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        figures.try_into().ok()
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = fs::read(path).doing(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&bytes).doing(|| format!("read {}", path.display()))
}

fn write<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let new = path.with_extension("new");
    let done = || {
        let bytes = serde_json::to_vec(value)?;
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&bytes)?;
        drop(file);
        fs::rename(&new, path)
    };
    done().doing(|| format!("write {}", path.display()))
}
