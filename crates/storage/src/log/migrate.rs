//! Rewrites the files of an older format, one format after the other.
//!
//! A step writes the files of the next format beside those of the last, file by file and batch by batch, so that
//! nothing is lost of the objects, the revisions or the history; makes them durable; and then lets them count by
//! the one line in `format`. Until then the old files count and the new ones are remains, which the next start
//! removes and writes anew; from then on it is the other way around. A step needs room for both.

use std::io;

use super::codec::Encoder;
use super::files::{Appender, Files};
use super::format::{Format, Header, SEGMENT, SNAPSHOT, Seed};
use super::load::{Item, LoadError, load};
use super::open::write_version;
use super::{NONE, checkpoint};
use crate::engine::Record;

/// Rewrites files of the version `found` to the last of `formats`; in a step for each format between. `now` is the time
/// in milliseconds since 1970.
pub(super) fn migrate(
    files: &dyn Files,
    found: u32,
    formats: &'static [Format],
    now: u64,
) -> Result<(), LoadError> {
    for (from, to) in formats.iter().zip(formats.iter().skip(1)).filter(|(from, _)| from.version >= found) {
        tracing::info!(from = from.version, to = to.version, "rewriting the store in a newer format");
        remove_all(files, to).map_err(|e| LoadError::Io("the directory".to_owned(), e))?;
        let written = rewrite(files, from, to, now);
        if written.is_err() {
            // This gives the room back now; otherwise the next start would.
            remove_all(files, to).ok();
        }
        written?;
        write_version(files, to.version).map_err(|e| LoadError::Io("format".to_owned(), e))?;
        if let Err(error) = remove_all(files, from) {
            tracing::debug!(%error, "cannot remove the store's files of an older format");
        }
    }
    Ok(())
}

/// Removes all files of a format.
fn remove_all(files: &dyn Files, format: &Format) -> io::Result<()> {
    let of = |name: &str| [SEGMENT, SNAPSHOT].iter().any(|prefix| format.number(prefix, name).is_some());
    files.list()?.iter().filter(|name| of(name)).try_for_each(|name| files.remove(name))
}

fn rewrite(files: &dyn Files, from: &'static Format, to: &'static Format, now: u64) -> Result<(), LoadError> {
    let mut writer = Rewriter { files, to, now, store: None, file: None, written: (NONE, 0), failed: None };
    load(files, from, &mut |item| {
        if writer.failed.is_none()
            && let Err(error) = writer.take(item)
        {
            writer.failed = Some(error);
        }
    })?;
    let outcome = match writer.failed.take() {
        Some(error) => Err(error),
        None => writer.end_file().and_then(|()| files.sync_dir()),
    };
    outcome.map_err(|e| LoadError::Io("a file of the newer format".to_owned(), e))
}

/// The file that is being written.
struct File {
    file: Box<dyn Appender>,
    header: Header,
    seed: Seed,
    encoder: Encoder,
    len: u64,
    /// The number of bytes that are not yet synced.
    unsynced: u64,
    /// The number of the next frame.
    number: u64,
    /// The number of its records.
    records: u64,
    snapshot: bool,
}

struct Rewriter<'a> {
    files: &'a dyn Files,
    to: &'static Format,
    now: u64,
    store: Option<u128>,
    file: Option<File>,
    /// The last segment that is whole, and its length.
    written: (u64, u64),
    failed: Option<io::Error>,
}

impl File {
    fn put(&mut self, frame: &[u8]) -> io::Result<()> {
        self.file.append(frame)?;
        self.len += frame.len() as u64;
        self.unsynced += frame.len() as u64;
        if self.unsynced >= checkpoint::SYNC_BYTES {
            self.unsynced = 0;
            self.file.sync()?;
        }
        Ok(())
    }

    /// Writes the waiting records as a frame.
    fn flush(&mut self) -> io::Result<()> {
        if self.encoder.len() == 0 {
            return Ok(());
        }
        let frame = self.encoder.frame(&self.seed, self.number);
        self.number += 1;
        self.put(&frame)
    }

    fn record(&mut self, record: &Record) {
        self.encoder.record(record);
        self.records += 1;
    }
}

impl Rewriter<'_> {
    fn take(&mut self, item: Item) -> io::Result<()> {
        match item {
            Item::Snapshot(header) => self.begin(header, true),
            Item::Segment(header) => {
                self.end_file()?;
                // A snapshot replaced any other predecessor, so its length is not asked for.
                let len = if header.seq == self.written.0 { self.written.1 } else { 0 };
                self.begin(Header { len, ..header }, false)
            }
            Item::State(record) => {
                let Some(file) = &mut self.file else { return Ok(()) };
                file.record(&record);
                if file.encoder.len() >= checkpoint::FRAME_BYTES { file.flush() } else { Ok(()) }
            }
            Item::Batch(number) => {
                let Some(file) = &mut self.file else { return Ok(()) };
                file.flush()?;
                file.number = number;
                Ok(())
            }
            Item::Change(record) => {
                if let Some(file) = &mut self.file {
                    file.record(&record);
                }
                Ok(())
            }
        }
    }

    fn begin(&mut self, header: Header, snapshot: bool) -> io::Result<()> {
        let store = *self.store.get_or_insert_with(|| match header.store {
            0 => fastrand::u128(1..),
            store => store,
        });
        let made = if header.made == 0 { self.now } else { header.made };
        let header = Header { store, salt: fastrand::u64(..), made, ..header };
        let name = if snapshot { self.to.snapshot(header.number) } else { self.to.segment(header.number) };
        let mut file = self.files.create(&name)?;
        let bytes = header.bytes(self.to);
        file.append(&bytes)?;
        self.file = Some(File {
            file,
            header,
            seed: header.seed(self.to),
            encoder: Encoder::new(self.to),
            len: bytes.len() as u64,
            unsynced: 0,
            number: 0,
            records: 0,
            snapshot,
        });
        Ok(())
    }

    /// Writes the rest of the current file, and makes it durable.
    fn end_file(&mut self) -> io::Result<()> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        file.flush()?;
        if file.snapshot {
            let last = file.encoder.last(&file.seed, file.records);
            file.put(&last)?;
        } else {
            self.written = (file.header.number, file.len);
        }
        file.file.sync()
    }
}
