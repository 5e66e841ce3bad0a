//! Writes a snapshot, and removes the files that it makes superfluous.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::codec::{END, Encoder};
use super::files::{Appender, Files};
use super::format::{Format, Header, SEGMENT, SNAPSHOT, Seed};
use crate::engine::View;
use crate::view::Key;

/// The size of a frame, in bytes.
pub(super) const FRAME_BYTES: usize = 1 << 20;
/// The size of the parts that are synced, so that the log's syncs never wait for a whole snapshot.
pub(super) const SYNC_BYTES: u64 = 8 << 20;

/// A state as frames, with the one that ends it. Each frame is made when it is asked for.
pub(super) struct Frames {
    view: View,
    seed: Seed,
    /// The resource that is being written, and the last object of it that was.
    at: usize,
    after: Option<Key>,
    number: u64,
    objects: u64,
    encoder: Encoder,
    bytes: usize,
}

impl Frames {
    /// Makes the frames of a file with this header, of about so many bytes each.
    pub(super) fn new(view: View, format: &'static Format, header: &Header, bytes: usize) -> Self {
        let (seed, encoder) = (header.seed(format), Encoder::new(format));
        Self { view, seed, at: 0, after: None, number: 0, objects: 0, encoder, bytes }
    }

    /// Encodes objects until a frame is full; returns whether there may be more.
    fn fill(&mut self) -> bool {
        while let Some((group, plural, live)) = self.view.resources.get(self.at) {
            for (key, object) in live.after(self.after.take()) {
                let expires = self.view.expiries.get(&object.revision).copied().unwrap_or(0);
                self.encoder.put(group, plural, object, expires);
                self.objects += 1;
                if self.encoder.len() >= self.bytes {
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
        if !more && self.encoder.len() == 0 {
            self.number = END;
            return Some(self.encoder.last(&self.seed, self.objects));
        }
        self.number += 1;
        Some(self.encoder.frame(&self.seed, self.number - 1))
    }
}

/// A snapshot that is being written, under a name that does not count yet.
pub(super) struct Unfinished {
    files: Arc<dyn Files>,
    name: String,
    temporary: String,
    file: Option<Box<dyn Appender>>,
    bytes: u64,
    unsynced: u64,
}

impl Unfinished {
    /// Begins a snapshot.
    pub(super) fn create(files: Arc<dyn Files>, format: &Format, header: &Header) -> io::Result<Self> {
        let name = format.snapshot(header.number);
        let temporary = format!("{name}.tmp");
        let file = Some(files.create(&temporary)?);
        let mut unfinished = Self { files, name, temporary, file, bytes: 0, unsynced: 0 };
        unfinished.put(&header.bytes(format))?;
        Ok(unfinished)
    }

    /// Adds a frame.
    pub(super) fn put(&mut self, frame: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.append(frame)?;
        self.bytes += frame.len() as u64;
        self.unsynced += frame.len() as u64;
        if self.unsynced >= SYNC_BYTES {
            self.unsynced = 0;
            file.sync()?;
        }
        Ok(())
    }

    /// Makes the snapshot durable, and lets it count. Returns its size.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        if let Some(file) = &mut self.file {
            file.sync()?;
        }
        self.files.rename(&self.temporary, &self.name)?;
        self.file = None;
        self.files.sync_dir()?;
        Ok(self.bytes)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.file.is_some() {
            // This gives the space back; otherwise the next opening of the store would remove the file.
            self.files.remove(&self.temporary).ok();
        }
    }
}

/// Writes a state as a snapshot, step by step.
pub(super) struct Writing {
    files: Arc<dyn Files>,
    format: &'static Format,
    header: Header,
    frames: Frames,
    unfinished: Option<Unfinished>,
}

impl Writing {
    /// Begins to write frames under a header.
    pub(super) fn new(
        files: Arc<dyn Files>,
        format: &'static Format,
        header: Header,
        frames: Frames,
    ) -> Self {
        Self { files, format, header, frames, unfinished: None }
    }

    /// Does the next step. The last one returns the size of the snapshot, which then counts, and removes the files
    /// before it.
    pub(super) fn step(&mut self) -> io::Result<Option<u64>> {
        let Some(unfinished) = &mut self.unfinished else {
            self.unfinished = Some(Unfinished::create(self.files.clone(), self.format, &self.header)?);
            return Ok(None);
        };
        if let Some(frame) = self.frames.next() {
            unfinished.put(&frame)?;
            return Ok(None);
        }
        let bytes = self.unfinished.take().map_or(Ok(0), Unfinished::finish)?;
        superseded(self.files.as_ref(), self.format, self.header.number, self.header.seq)?;
        Ok(Some(bytes))
    }

    /// Does all steps.
    pub(super) fn run(mut self) -> io::Result<u64> {
        loop {
            if let Some(bytes) = self.step()? {
                return Ok(bytes);
            }
        }
    }
}

/// A snapshot that is being written beside the writer.
pub(super) trait Running: Send {
    /// Whether [`Running::wait`] would not wait.
    fn ended(&mut self) -> bool;
    /// Waits until the snapshot counts; returns its size.
    fn wait(self: Box<Self>) -> io::Result<u64>;
}

/// Lets a snapshot be written beside the writer.
pub(super) type Beside = Box<dyn FnMut(Writing) -> io::Result<Box<dyn Running>> + Send>;

impl Running for JoinHandle<io::Result<u64>> {
    fn ended(&mut self) -> bool {
        self.is_finished()
    }
    fn wait(self: Box<Self>) -> io::Result<u64> {
        self.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
    }
}

/// Writes a snapshot in a thread of its own.
pub(super) fn in_thread(writing: Writing) -> io::Result<Box<dyn Running>> {
    let thread = std::thread::Builder::new().name("store-snapshot".into());
    Ok(Box::new(thread.spawn(move || writing.run())?))
}

/// Removes the segments before `first` and the snapshots before `revision`.
pub(super) fn superseded(files: &dyn Files, format: &Format, revision: u64, first: u64) -> io::Result<()> {
    for name in files.list()? {
        let old = |prefix, than| format.number(prefix, &name).is_some_and(|n| n < than);
        if old(SEGMENT, first) || old(SNAPSHOT, revision) {
            files.remove(&name)?;
        }
    }
    Ok(())
}
