//! The embedded engine: an append-only, checksummed log and snapshots of the state, so that the log can be cut.
//!
//! - `format`: one line, the version of all other files.
//! - `lock`: held by the process that has the store open.
//! - `log-N.F` (of format F): segments. A batch is one frame, synced before the next begins, so that only the last
//!   frame of the last segment can be torn. A segment names its predecessor and how much of it counts: after a failed
//!   write or sync nothing is appended to a segment any more, and its tail is not read.
//! - `unsynced`: there while a store is open at a level of durability that does not sync every batch, and after such a
//!   store did not end in order. Then the log counts only as far as it is whole, and the revision is raised, because
//!   later revisions may have been seen.
//! - `snapshot-R.F`: all objects at revision R, and the number of the first segment after it. It is written beside the
//!   writer and renamed when durable; then older files are removed. The log therefore never grows much beyond the
//!   larger of [`MIN_LOG`] and the last snapshot.
//!
//! The module `format` defines the bytes in the files, `migrate` rewrites those of an older version.

mod backup;
mod checkpoint;
mod codec;
#[cfg(test)]
mod crashes;
mod files;
mod format;
mod load;
mod migrate;
#[cfg(test)]
mod migrations;
mod open;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use checkpoint::{Beside, Frames, Running, Writing};
use codec::{Encoder, MAX_PAYLOAD};
use component::Clock;
use files::{Appender, Files};
use format::{Format, Header, Kind, NEWEST, Seed};

use crate::durability::Durability;
use crate::engine::{CommitError, Engine, Record, View};
pub use backup::{Backup, BackupError, BackupInfo, inspect, restore};
use load::Loaded;
pub use open::OpenError;
pub(crate) use open::open;

/// The length of log, in bytes, below which no snapshot is written.
const MIN_LOG: u64 = 32 << 20;
/// The bytes of a segment that are reserved at once.
const ROOM: usize = 1 << 20;
/// The number of segments (a restart begins a new one) above which a snapshot is written, too.
const MAX_SEGMENTS: usize = 16;
/// The time after which a snapshot that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// The mark of a store that does not sync every batch.
const UNSYNCED: &str = "unsynced";
/// The step by which the revision is raised where revisions above the last known one may have been given out: after a
/// restore, and after a loss of unsynced writes. It is more than the number of writes that there can have been.
const RAISE: u64 = 1_000_000_000;
/// The time after which at most a write is synced with [`Durability::EverySecond`].
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Stands in the place of a segment's predecessor if there is none.
const NONE: u64 = u64::MAX;
/// The time of day, in milliseconds since 1970.
fn millis(clock: Clock) -> u64 {
    u64::try_from(clock.now().as_millisecond()).unwrap_or(0)
}

/// The segment that is being written.
struct Segment {
    seq: u64,
    seed: Seed,
    file: Box<dyn Appender>,
    len: u64,
    /// The number of reserved bytes that are left in the file.
    room: usize,
    encoder: Encoder,
}

/// The settings of a log.
pub(crate) struct Settings {
    durability: Durability,
    /// The clock of the times at which files are made.
    clock: Clock,
    /// The format that is written.
    format: &'static Format,
    min_log: u64,
    /// The size of a snapshot's frame, in bytes.
    frame: usize,
    /// The bytes of a segment that are reserved at once.
    room: usize,
    /// The time after which a snapshot that could not be written is tried again.
    retry: Duration,
    beside: Beside,
}

impl Settings {
    pub(crate) fn new(durability: Durability, clock: Clock) -> Self {
        let beside = Box::new(checkpoint::in_thread);
        Self {
            durability,
            clock,
            format: NEWEST,
            min_log: MIN_LOG,
            frame: checkpoint::FRAME_BYTES,
            room: ROOM,
            retry: RETRY,
            beside,
        }
    }
}

/// A snapshot that is being written.
struct Checkpoint {
    running: Box<dyn Running>,
    /// Whether the snapshot has the changes that the log lacks.
    fills: bool,
}

/// The log, an engine.
pub(crate) struct Log {
    files: Arc<dyn Files>,
    /// The number of the store, which its files hold.
    store: u128,
    segment: Option<Segment>,
    /// The last segment that holds something, but for the current one, and how much of it counts.
    previous: (u64, u64),
    next_seq: u64,
    /// The bytes since the last snapshot.
    bytes: u64,
    segments: usize,
    snapshot_bytes: u64,
    settings: Settings,
    /// The time at which the current segment is to be synced.
    sync_at: Option<Instant>,
    /// Whether the log may lack changes, as after a failed sync; only a snapshot mends that.
    holes: bool,
    checkpoint: Option<Checkpoint>,
    retry_at: Option<Instant>,
    /// The lock of the directory.
    _lock: Option<std::fs::File>,
}

impl Log {
    /// Continues after the loaded files.
    fn new(files: Arc<dyn Files>, loaded: &Loaded, settings: Settings, lock: Option<std::fs::File>) -> Self {
        Self {
            files,
            store: loaded.store.unwrap_or_else(|| fastrand::u128(1..)),
            segment: None,
            previous: loaded.previous,
            next_seq: loaded.next_seq,
            bytes: loaded.log_bytes,
            segments: loaded.segments,
            snapshot_bytes: loaded.snapshot_bytes,
            settings,
            sync_at: None,
            holes: loaded.lossy,
            checkpoint: None,
            retry_at: None,
            _lock: lock,
        }
    }

    /// Finishes loading, before anything is committed: where acknowledged writes may have been lost, a snapshot of the
    /// remaining state marks the revision at which the history begins.
    pub(crate) fn begun(&mut self, loaded: &Loaded, view: impl FnOnce() -> View) -> io::Result<()> {
        if loaded.lossy {
            tracing::warn!(
                revision = loaded.last,
                "the store was not closed in order; at its level of durability the last writes may be lost, and the revision is raised"
            );
            let segment = self.begin(loaded.last)?;
            let seq = segment.seq;
            self.segment = Some(segment);
            self.snapshot_bytes = self.snapshot(view(), seq).run()?;
            self.bytes = 0;
            self.segments = 1;
            self.holes = false;
        }
        if self.settings.durability != Durability::Synced {
            self.files.create(UNSYNCED)?.sync()?;
            self.files.sync_dir()?;
        } else if loaded.lossy {
            self.files.remove(UNSYNCED)?;
            self.files.sync_dir()?;
        }
        Ok(())
    }

    /// The header of a new file.
    fn header(&self, kind: Kind, number: u64, floor: u64, (seq, len): (u64, u64)) -> Header {
        let made = millis(self.settings.clock);
        Header { kind, store: self.store, salt: fastrand::u64(..), made, number, floor, seq, len }
    }

    /// Prepares a snapshot, which segment `first` continues.
    fn snapshot(&self, view: View, first: u64) -> Writing {
        let format = self.settings.format;
        let header = self.header(Kind::Snapshot, view.revision, view.revision, (first, 0));
        let frames = Frames::new(view, format, &header, self.settings.frame);
        Writing::new(self.files.clone(), format, header, frames)
    }

    /// Syncs the changes that were committed without a sync.
    fn sync(&mut self) {
        self.sync_at = None;
        let Some(segment) = &mut self.segment else { return };
        if let Err(error) = segment.file.sync() {
            tracing::error!(%error, "the store cannot sync its log; a crash may lose acknowledged writes");
            self.holes = true;
        }
    }

    /// Begins a segment, durably, for revisions above `floor`.
    fn begin(&mut self, floor: u64) -> io::Result<Segment> {
        let seq = self.next_seq;
        // The number is not reused if this fails: the remains of a segment must not be taken for a later one.
        self.next_seq += 1;
        let format = self.settings.format;
        let header = self.header(Kind::Segment, seq, floor, self.previous);
        let (seed, header) = (header.seed(format), header.bytes(format));
        let name = format.segment(seq);
        let begun = (|| {
            let mut file = self.files.create(&name)?;
            file.append(&header)?;
            file.sync()?;
            self.files.sync_dir()?;
            Ok(file)
        })();
        match begun {
            Ok(file) => {
                self.segments += 1;
                let (len, encoder) = (header.len() as u64, Encoder::new(format));
                Ok(Segment { seq, seed, file, len, room: 0, encoder })
            }
            Err(e) => {
                self.remove(&name);
                Err(e)
            }
        }
    }

    /// Removes a file that does not count; opening the store removes it otherwise.
    fn remove(&self, name: &str) {
        if let Err(error) = self.files.remove(name)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(%error, name, "cannot remove a file of the store");
        }
    }

    /// Writes no more to the current segment.
    fn retire(&mut self) {
        if self.settings.durability != Durability::Synced {
            self.sync();
        }
        let Some(segment) = self.segment.take() else { return };
        if segment.len > self.settings.format.header as u64 {
            self.previous = (segment.seq, segment.len);
        } else {
            self.segments -= 1;
            self.remove(&self.settings.format.segment(segment.seq));
        }
    }

    fn append(&mut self, batch: &[Record]) -> io::Result<()> {
        let Some(first) = batch.first() else { return Ok(()) };
        let mut segment = match self.segment.take() {
            Some(segment) => segment,
            None => self.begin(first.revision - 1)?,
        };
        for record in batch {
            segment.encoder.record(record);
        }
        let fits = segment.encoder.len() <= MAX_PAYLOAD as usize;
        let frame = segment.encoder.frame(&segment.seed, first.revision);
        let appended = if fits {
            segment.file.append(&frame)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "a batch of more than a GiB"))
        };
        let appended = appended.map(|()| {
            segment.room = match segment.room.checked_sub(frame.len()) {
                Some(rest) => rest,
                // Without reserved room writes are only slower, as they are for large batches, where the length matters
                // little.
                None if frame.len() > self.settings.room / 8 => 0,
                None => segment.file.reserve(self.settings.room).map_or(0, |()| self.settings.room),
            };
        });
        let written = appended.and_then(|()| match self.settings.durability {
            Durability::Synced => segment.file.sync(),
            Durability::EverySecond | Durability::Os => Ok(()),
        });
        let (seq, len) = (segment.seq, segment.len);
        match written {
            Ok(()) => {
                segment.len += frame.len() as u64;
                self.bytes += frame.len() as u64;
                self.segment = Some(segment);
                if self.settings.durability == Durability::EverySecond && self.sync_at.is_none() {
                    self.sync_at = Some(Instant::now() + SYNC_INTERVAL);
                }
                Ok(())
            }
            Err(e) => {
                self.segment = Some(segment);
                self.retire();
                // This gives the space back. The next segment tells anyhow that the tail does not count.
                let format = self.settings.format;
                if len > format.header as u64
                    && let Err(error) = self.files.truncate(&format.segment(seq), len)
                {
                    tracing::debug!(%error, "cannot cut the log after a failed write");
                }
                Err(e)
            }
        }
    }

    /// Waits for the snapshot that is being written, and notes its outcome.
    fn join(&mut self) {
        let Some(Checkpoint { running, fills }) = self.checkpoint.take() else { return };
        match running.wait() {
            Ok(bytes) => self.snapshot_bytes = bytes,
            Err(error) => {
                tracing::warn!(%error, "cannot write a snapshot of the store; its log grows until that works");
                self.holes |= fills;
                self.retry_at = Some(Instant::now() + self.settings.retry);
            }
        }
    }
}

impl Engine for Log {
    fn commit(&mut self, batch: &[Record]) -> Result<(), CommitError> {
        self.append(batch).map_err(|e| {
            let hint = match e.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "the disk of the data directory is full; free some space"
                }
                io::ErrorKind::ReadOnlyFilesystem => "the data directory is on a read-only file system",
                _ => "the log cannot be written; look at the disk of the data directory",
            };
            CommitError(format!("{hint} ({e})").into())
        })
    }

    fn maintain(&mut self, view: &mut dyn FnMut() -> View) {
        if self.checkpoint.as_mut().is_some_and(|c| c.running.ended()) {
            self.join();
        }
        let due = self.retry_at.map_or_else(
            || {
                self.bytes > self.settings.min_log.max(self.snapshot_bytes)
                    || self.segments > MAX_SEGMENTS
                    || self.holes
            },
            |at| at <= Instant::now(),
        );
        if !due || self.checkpoint.is_some() {
            return;
        }
        let view = view();
        self.retry_at = Some(Instant::now() + self.settings.retry);
        self.retire();
        let segment = match self.begin(view.revision) {
            Ok(segment) => segment,
            Err(error) => {
                tracing::warn!(%error, "cannot begin a new segment of the store's log");
                return;
            }
        };
        let snapshot = self.snapshot(view, segment.seq);
        self.segment = Some(segment);
        match (self.settings.beside)(snapshot) {
            Ok(running) => {
                let fills = std::mem::take(&mut self.holes);
                self.checkpoint = Some(Checkpoint { running, fills });
                self.retry_at = None;
                self.bytes = 0;
                self.segments = 1;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot start the thread that writes a snapshot of the store");
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        self.sync_at
    }

    fn tick(&mut self) {
        self.sync();
    }

    fn close(&mut self) {
        self.join();
        if let Some(segment) = self.segment.as_mut().filter(|s| s.room > 0) {
            segment.room = 0;
            if let Err(error) = self.files.truncate(&self.settings.format.segment(segment.seq), segment.len) {
                tracing::debug!(%error, "cannot give back the room at the end of the log");
            }
        }
        if self.settings.durability == Durability::Synced {
            return;
        }
        self.sync();
        if !self.holes
            && let Err(error) = self.files.remove(UNSYNCED).and_then(|()| self.files.sync_dir())
        {
            tracing::warn!(%error, "the store cannot note that everything is synced");
        }
    }
}
