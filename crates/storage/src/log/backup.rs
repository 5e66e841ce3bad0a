//! A state of the store as one file, to be kept elsewhere: taken while the store runs, from the index, at a
//! revision that is durable. The file is that of a snapshot of the log under a mark of its own: every part has
//! its checksum, and an end tells a whole file from one that was cut off. Every format of the log is read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use component::Clock;

use super::checkpoint::{FRAME_BYTES, Frames, Unfinished};
use super::codec::Encoder;
use super::files::Disk;
use super::format::{BadHeader, FORMATS, Header, Kind, NEWEST};
use super::load::{Reader, StateError};
use super::open::write_version;
use super::{RAISE, millis};
use crate::engine::{Record, View};

/// The newest version of the format that is read.
const NEWEST_READ: u32 = FORMATS[FORMATS.len() - 1].version;

/// Yields the bytes of a backup piece by piece, each made when it is asked for. It holds on to the state at
/// its revision, not to the store's writer.
pub struct Backup {
    header: Option<Bytes>,
    frames: Frames,
}

impl Backup {
    pub(crate) fn new(view: View, clock: Clock) -> Self {
        let header = Header {
            kind: Kind::Backup,
            store: 0,
            salt: fastrand::u64(..),
            made: millis(clock),
            number: view.revision,
            floor: view.revision,
            seq: 0,
            len: 0,
        };
        let frames = Frames::new(view, NEWEST, &header, FRAME_BYTES);
        Self { header: Some(header.bytes(NEWEST).into()), frames }
    }
}

impl Iterator for Backup {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        self.header.take().or_else(|| self.frames.next().map(Bytes::from))
    }
}

/// The content of a backup. A value of this type shows that every checksum was right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupInfo {
    /// The version of the backup's format.
    pub format: u32,
    /// The time of the backup, in milliseconds since 1970; format 1 does not tell.
    pub taken: Option<u64>,
    /// The revision of the store that the backup shows.
    pub revision: u64,
    /// The number of objects.
    pub objects: u64,
    /// The size of the file.
    pub bytes: u64,
}

/// The reason for which a backup cannot be used. Every sentence tells the remedy.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file is something else.
    #[error("{} is not a snapshot of FerroKube: choose a file that `ferrokube snapshot save` wrote", .0.display())]
    NotOurs(PathBuf),
    /// The backup was written by a newer version.
    #[error("{} has format {found}, this version reads up to {NEWEST_READ}: use a newer version", file.display())]
    Newer {
        /// The file.
        file: PathBuf,
        /// The version of its format.
        found: u32,
    },
    /// A newer version wrote something into the backup that must be known to read it.
    #[error("{} has {what}: use a newer version", file.display())]
    Unknown {
        /// The file.
        file: PathBuf,
        /// The unknown thing.
        what: String,
    },
    /// The backup is damaged or cut off.
    #[error("{} is damaged at byte {at}: {what}: use another snapshot", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The place of the damage.
        at: u64,
        /// The damage found there.
        what: &'static str,
    },
    /// The backup cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// There is a store in the directory already.
    #[error("{} holds a store: restore into a fresh data directory", .0.display())]
    Exists(PathBuf),
    /// The new store cannot be written.
    #[error("cannot write the store in {}", dir.display())]
    Write {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Reads the whole of a backup and checks it.
pub fn inspect(file: &Path) -> Result<BackupInfo, BackupError> {
    read(file, &mut |_| {})
}

/// Makes a store of a backup in a directory that does not exist yet or is empty, durably: afterwards either all of it
/// is there or nothing. The store goes on at a revision far above the backup's and has no history before it, so that
/// watchers of the old store must list anew.
pub fn restore(file: &Path, dir: &Path) -> Result<BackupInfo, BackupError> {
    let failed = |source| BackupError::Write { dir: dir.to_owned(), source };
    match fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => fs::remove_dir(dir).map_err(failed)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Ok(false) | Err(_) => return Err(BackupError::Exists(dir.to_owned())),
    }
    // The file is read once before anything is written: a bad one leaves nothing behind.
    let info = inspect(file)?;
    let making = dir.with_extension("restoring");
    match fs::remove_dir_all(&making) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    let disk = Arc::new(Disk::open(&making).map_err(failed)?);
    let revision = info.revision.saturating_add(RAISE);
    let header = Header {
        kind: Kind::Snapshot,
        store: fastrand::u128(1..),
        salt: fastrand::u64(..),
        made: info.taken.unwrap_or(0),
        number: revision,
        floor: revision,
        seq: 0,
        len: 0,
    };
    convert(file, &disk, &header).map_err(failed)?;
    write_version(disk.as_ref(), NEWEST.version).map_err(failed)?;
    fs::rename(&making, dir).map_err(failed)?;
    let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(parent).and_then(|p| p.sync_all()).map_err(failed)?;
    Ok(info)
}

/// Writes the objects of a backup as a snapshot of the log.
fn convert(file: &Path, disk: &Arc<Disk>, header: &Header) -> io::Result<()> {
    let mut snapshot = Unfinished::create(disk.clone(), NEWEST, header)?;
    let seed = header.seed(NEWEST);
    let mut encoder = Encoder::new(NEWEST);
    let (mut number, mut outcome) = (0, Ok(()));
    let read = read(file, &mut |record| {
        encoder.record(&record);
        if encoder.len() >= FRAME_BYTES && outcome.is_ok() {
            outcome = snapshot.put(&encoder.frame(&seed, number));
            number += 1;
        }
    });
    let info = outcome.and(read.map_err(io::Error::other))?;
    snapshot.put(&encoder.frame(&seed, number))?;
    snapshot.put(&encoder.last(&seed, info.objects))?;
    snapshot.finish().map(drop)
}

fn read(file: &Path, sink: &mut dyn FnMut(Record)) -> Result<BackupInfo, BackupError> {
    let failed = |source| BackupError::Read { file: file.to_owned(), source };
    let unknown = |what| BackupError::Unknown { file: file.to_owned(), what };
    for format in FORMATS.iter().rev() {
        let open = || {
            let open = fs::File::open(file)?;
            let bytes = open.metadata()?.len();
            Ok((bytes, Reader::open(Box::new(open), format, Kind::Backup)?))
        };
        let (bytes, (header, mut reader)) = open().map_err(failed)?;
        let header = match header {
            Ok(header) => header,
            Err(BadHeader::Broken) => continue,
            Err(BadHeader::Version(found)) => {
                return Err(BackupError::Newer { file: file.to_owned(), found });
            }
            Err(BadHeader::Features(bits)) => {
                return Err(unknown(format!("features ({bits:#x}) that this version does not know")));
            }
        };
        let objects = reader.state(sink).map_err(|e| match e {
            StateError::Io(e) => failed(e),
            StateError::Damaged(what) => BackupError::Damaged { file: file.to_owned(), at: reader.at, what },
            StateError::Newer(what) => unknown(what),
        })?;
        let taken = format.explicit.then_some(header.made);
        return Ok(BackupInfo { format: format.version, taken, revision: header.number, objects, bytes });
    }
    Err(BackupError::NotOurs(file.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, StoreConfig};
    use component::Shutdown;

    #[tokio::test]
    async fn a_format_of_the_future_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new");
        let good: Vec<u8> = Store::in_memory().backup().await.unwrap().flatten().collect();
        let check = |at: usize, value: u32, expected: &str| {
            let mut header = good[..NEWEST.header - 4].to_vec();
            header[at..at + 4].copy_from_slice(&value.to_le_bytes());
            header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
            fs::write(&file, [&header, &good[NEWEST.header..]].concat()).unwrap();
            let error = inspect(&file).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        };
        check(8, 7, "new has format 7, this version reads up to 2: use a newer version");
        check(80, 5, "new has features (0x5) that this version does not know: use a newer version");
    }

    #[tokio::test]
    async fn what_an_interrupted_restore_left_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let (file, to) = (dir.path().join("file"), dir.path().join("store"));
        let bytes: Vec<u8> = Store::in_memory().backup().await.unwrap().flatten().collect();
        fs::write(&file, bytes).unwrap();
        fs::create_dir(dir.path().join("store.restoring")).unwrap();
        fs::write(dir.path().join("store.restoring/snapshot-1.tmp"), "half").unwrap();
        restore(&file, &to).unwrap();
        let store = Store::open(StoreConfig::new(&to), &Shutdown::new()).unwrap();
        assert_eq!(store.newest(), RAISE);
    }
}
