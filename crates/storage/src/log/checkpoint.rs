//! Writes a snapshot, and removes what it makes superfluous.

use std::io;

use super::codec::Encoder;
use super::files::Files;
use super::{END, Header, SNAPSHOT_MAGIC, segment_name, snapshot_name};
use crate::engine::View;
use crate::view::Key;

/// The size of a frame, in bytes.
pub(super) const FRAME_BYTES: usize = 1 << 20;
/// Synced in parts of this size, so that the log's syncs never wait for all of it.
const SYNC_BYTES: u64 = 8 << 20;

/// A state as frames, the one that ends it included. Each is made when it is asked for.
pub(super) struct Frames {
    view: View,
    /// The resource that is being written, and the last of its objects that was.
    at: usize,
    after: Option<Key>,
    number: u64,
    encoder: Encoder,
}

impl Frames {
    pub(super) fn new(view: View) -> Self {
        Self { view, at: 0, after: None, number: 0, encoder: Encoder::default() }
    }

    /// Encodes objects until a frame is full; whether there may be more.
    fn fill(&mut self) -> bool {
        while let Some((group, plural, live)) = self.view.resources.get(self.at) {
            for (key, object) in live.after(self.after.take()) {
                let expires = self.view.expiries.get(&object.revision).copied().unwrap_or(0);
                self.encoder.put(group, plural, object, expires);
                if self.encoder.len() >= FRAME_BYTES {
                    self.after = Some(key.clone());
                    return true;
                }
            }
            self.at += 1;
        }
        false
    }
}

impl Iterator for Frames {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.number == END {
            return None;
        }
        let more = self.fill();
        let number = if more || self.encoder.len() > 0 { self.number } else { END };
        self.number = if number == END { END } else { number + 1 };
        Some(self.encoder.frame(self.view.revision, number))
    }
}

/// Writes the state, which segment `first` continues. The size of the snapshot.
pub(super) fn write(files: &dyn Files, view: View, first: u64) -> io::Result<u64> {
    let revision = view.revision;
    let header = Header { magic: SNAPSHOT_MAGIC, number: revision, floor: revision, seq: first, len: 0 };
    let bytes = write_frames(files, &header, |put| Frames::new(view).try_for_each(put))?;
    superseded(files, revision, first)?;
    Ok(bytes)
}

/// Takes one frame of a snapshot.
pub(super) type Put<'a> = &'a mut dyn FnMut(Vec<u8>) -> io::Result<()>;

/// Writes a snapshot of the frames that `frames` puts, durably. Its size.
pub(super) fn write_frames(
    files: &dyn Files,
    header: &Header,
    frames: impl FnOnce(Put<'_>) -> io::Result<()>,
) -> io::Result<u64> {
    let name = snapshot_name(header.number);
    let temporary = format!("{name}.tmp");
    let written = (|| {
        let mut file = files.create(&temporary)?;
        file.append(&header.bytes())?;
        let (mut bytes, mut unsynced) = (Header::LEN as u64, 0);
        frames(&mut |frame| {
            file.append(&frame)?;
            bytes += frame.len() as u64;
            unsynced += frame.len() as u64;
            if unsynced >= SYNC_BYTES {
                unsynced = 0;
                file.sync()?;
            }
            Ok(())
        })?;
        file.sync()?;
        files.rename(&temporary, &name)?;
        files.sync_dir()?;
        Ok(bytes)
    })();
    if written.is_err() {
        // Gives its space back; opening removes it otherwise.
        files.remove(&temporary).ok();
    }
    written
}

/// Removes the segments before `first` and the snapshots before `revision`.
pub(super) fn superseded(files: &dyn Files, revision: u64, first: u64) -> io::Result<()> {
    let (first, current) = (segment_name(first), snapshot_name(revision));
    for name in files.list()? {
        let old_segment = name.starts_with("log-") && name < first;
        let old_snapshot = name.starts_with("snapshot-") && name < current;
        if old_segment || old_snapshot {
            files.remove(&name)?;
        }
    }
    Ok(())
}
