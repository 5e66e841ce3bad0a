//! Writes a snapshot, and removes what it makes superfluous.

use std::io;

use super::codec::Encoder;
use super::files::Files;
use super::{END, Header, SNAPSHOT_MAGIC, segment_name, snapshot_name};
use crate::engine::View;

/// The size of a frame, in bytes.
const FRAME_BYTES: usize = 1 << 20;
/// Synced in parts of this size, so that the log's syncs never wait for all of it.
const SYNC_BYTES: u64 = 8 << 20;

/// Writes the state, which segment `first` continues. The size of the snapshot.
pub(super) fn write(files: &dyn Files, view: &View, first: u64) -> io::Result<u64> {
    let revision = view.revision;
    let name = snapshot_name(revision);
    let temporary = format!("{name}.tmp");
    let header = Header { magic: SNAPSHOT_MAGIC, number: revision, floor: revision, seq: first, len: 0 };
    let written = (|| {
        let mut file = files.create(&temporary)?;
        file.append(&header.bytes())?;
        let (mut bytes, mut unsynced, mut frames) = (Header::LEN as u64, 0, 0);
        let mut encoder = Encoder::default();
        let mut append = |frame: Vec<u8>| {
            file.append(&frame)?;
            bytes += frame.len() as u64;
            unsynced += frame.len() as u64;
            if unsynced >= SYNC_BYTES {
                unsynced = 0;
                file.sync()?;
            }
            Ok::<_, io::Error>(())
        };
        for (group, plural, live) in &view.resources {
            for object in live.iter() {
                let expires = view.expiries.get(&object.revision).copied().unwrap_or(0);
                encoder.put(group, plural, object, expires);
                if encoder.len() >= FRAME_BYTES {
                    append(encoder.frame(revision, frames))?;
                    frames += 1;
                }
            }
        }
        append(encoder.frame(revision, frames))?;
        append(encoder.frame(revision, END))?;
        file.sync()?;
        files.rename(&temporary, &name)?;
        files.sync_dir()?;
        Ok(bytes)
    })();
    if written.is_err() {
        // Gives its space back; opening removes it otherwise.
        files.remove(&temporary).ok();
    } else {
        superseded(files, revision, first)?;
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
