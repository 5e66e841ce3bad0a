//! Opens the directory of a log: checks that it is a store's, that no process has it open, and its version.

use std::fs::TryLockError;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{Disk, Files};
use super::format::{FORMATS, NEWEST};
use super::load::{Item, LoadError, Loaded, load};
use super::{Log, Settings, migrate, millis};
use crate::engine::Record;

/// The versions of the format that are read; the last one is written.
const OLDEST_READ: u32 = FORMATS[0].version;
const NEWEST_READ: u32 = FORMATS[FORMATS.len() - 1].version;
/// The first word of the `format` file.
const FORMAT: &str = "ferrokube-store";

/// The reason for which a store could not be opened. Every sentence tells the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory holds something else.
    #[error("{} is not empty and not a FerroKube store: choose another data directory", .0.display())]
    NotOurs(PathBuf),
    /// Another process has the store open.
    #[error("the store in {} is in use by another process: stop that one, or choose another data directory", .0.display())]
    Locked(PathBuf),
    /// The store was written by a newer version.
    #[error("the store in {} has format {found}, this version reads up to {NEWEST_READ}: use a newer version", dir.display())]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// The version of its format.
        found: u32,
    },
    /// The store was written by a version so old that its format is no longer read.
    #[error("the store in {} has format {found}, this version reads {OLDEST_READ} to {NEWEST_READ}: open it with an older version first, which rewrites it", dir.display())]
    Older {
        /// The directory.
        dir: PathBuf,
        /// The version of its format.
        found: u32,
    },
    /// A newer version wrote something into the store that must be known to read it.
    #[error("the store in {} cannot be read by this version: {what}: use a newer version", dir.display())]
    Unknown {
        /// The directory.
        dir: PathBuf,
        /// The unknown thing and its file.
        what: String,
    },
    /// The directory or a file in it is not accessible.
    #[error("no permission to use the store in {}: run as the user who owns it, or change its owner", .0.display())]
    Permission(PathBuf),
    /// The file system is mounted read-only.
    #[error("the store in {} is on a read-only file system: remount it, or choose another data directory", .0.display())]
    ReadOnly(PathBuf),
    /// There is no room for even the store's first files.
    #[error("the disk of the store in {} is full: free some space", .0.display())]
    Full(PathBuf),
    /// A file is damaged or missing, beyond what a crash can do.
    #[error("the store in {} is damaged: {what}: restore a backup, and check the disk", dir.display())]
    Damaged {
        /// The directory.
        dir: PathBuf,
        /// The file, and the place in it.
        what: String,
    },
    /// Another failure of the system.
    #[error("cannot open the store in {}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn of(dir: &Path, source: io::Error) -> Self {
        let dir = dir.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission(dir),
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(dir),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(dir),
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => Self::NotOurs(dir),
            _ => Self::Io { dir, source },
        }
    }
}

/// Opens a directory and hands over its content: the objects of the snapshot, and the changes since.
pub(crate) fn open(
    dir: &Path,
    settings: Settings,
    state: &mut dyn FnMut(Record),
    change: &mut dyn FnMut(Record),
) -> Result<(Log, Loaded), OpenError> {
    let failed = |e| OpenError::of(dir, e);
    let disk = Disk::open(dir).map_err(failed)?;
    // The version is read before anything is written: the directory may be somebody else's.
    let version = version(&disk, dir)?;
    let lock = disk.lock_file().map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::Locked(dir.to_owned())),
        Err(TryLockError::Error(e)) => return Err(failed(e)),
    }
    let disk = Arc::new(disk);
    let unreadable = |e| match e {
        LoadError::Io(_, source) => failed(source),
        LoadError::Damaged { .. } | LoadError::Missing(_) => {
            OpenError::Damaged { dir: dir.to_owned(), what: e.to_string() }
        }
        LoadError::Newer { .. } => OpenError::Unknown { dir: dir.to_owned(), what: e.to_string() },
    };
    match version {
        None => write_version(disk.as_ref(), NEWEST.version).map_err(failed)?,
        Some(found) => {
            migrate::migrate(disk.as_ref(), found, &FORMATS, millis(settings.clock)).map_err(unreadable)?;
        }
    }
    let mut sink = |item| match item {
        Item::State(record) => state(record),
        Item::Change(record) => change(record),
        Item::Snapshot(_) | Item::Segment(_) | Item::Batch(_) => {}
    };
    let loaded = load(disk.as_ref(), NEWEST, &mut sink).map_err(unreadable)?;
    Ok((Log::new(disk, &loaded, settings, Some(lock)), loaded))
}

/// The version of the format; `None` for an empty directory.
fn version(files: &dyn Files, dir: &Path) -> Result<Option<u32>, OpenError> {
    let failed = |e| OpenError::of(dir, e);
    let names = files.list().map_err(failed)?;
    if !names.iter().any(|n| n == "format") {
        // The first start may have been interrupted before it wrote the format.
        let empty = names.iter().all(|n| n == "lock" || n == "format.tmp");
        return if empty { Ok(None) } else { Err(OpenError::NotOurs(dir.to_owned())) };
    }
    let mut text = String::new();
    match files.read("format").and_then(|f| f.take(1024).read_to_string(&mut text)) {
        Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(OpenError::NotOurs(dir.to_owned())),
        read => read.map_err(failed)?,
    };
    match text.trim_end().split_once(' ').map(|(word, version)| (word, version.parse())) {
        Some((FORMAT, Ok(found))) if found > NEWEST_READ => {
            Err(OpenError::Newer { dir: dir.to_owned(), found })
        }
        Some((FORMAT, Ok(found))) if found < OLDEST_READ => {
            Err(OpenError::Older { dir: dir.to_owned(), found })
        }
        Some((FORMAT, Ok(found))) => Ok(Some(found)),
        _ => Err(OpenError::NotOurs(dir.to_owned())),
    }
}

/// Makes the files of this format count from now on, and those of no other.
pub(super) fn write_version(files: &dyn Files, version: u32) -> io::Result<()> {
    let mut file = files.create("format.tmp")?;
    file.append(format!("{FORMAT} {version}\n").as_bytes())?;
    file.sync()?;
    files.rename("format.tmp", "format")?;
    files.sync_dir()
}
