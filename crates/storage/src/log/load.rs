//! Reads the newest snapshot and the segments after it.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};

use super::codec::{BadRecord, Decoder, END, FrameHeader, MARK};
use super::files::Files;
use super::format::{BadHeader, Format, Header, Kind, SEGMENT, SNAPSHOT, Seed};
use super::{NONE, RAISE, UNSYNCED, checkpoint};
use crate::engine::Record;

/// The reason for which the files of a store cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// A system call failed.
    #[error("reading {0}: {1}")]
    Io(String, #[source] io::Error),
    /// A file is damaged where a crash cannot have damaged it.
    #[error("{file} is damaged at byte {at}: {what}")]
    Damaged { file: String, at: u64, what: &'static str },
    /// A file is not there.
    #[error("{0} is missing")]
    Missing(String),
    /// A file is whole, but has something that only a later version knows.
    #[error("{file} has {what}")]
    Newer { file: String, what: String },
}

/// The state of the log after loading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// The revision of the snapshot; the log has the changes after it.
    pub(crate) floor: u64,
    /// The last revision that was given out.
    pub(crate) last: u64,
    /// Whether acknowledged writes may be missing at the end: the revision is raised, and `floor` with it.
    pub(crate) lossy: bool,
    /// The store to which the files belong; `None` before there are any, and in format 1.
    pub(super) store: Option<u128>,
    pub(super) previous: (u64, u64),
    pub(super) next_seq: u64,
    pub(super) log_bytes: u64,
    pub(super) snapshot_bytes: u64,
    pub(super) segments: usize,
}

/// An item of the files: first the snapshot's objects, if there is one, then the segments' changes after it.
pub(crate) enum Item {
    /// The snapshot begins.
    Snapshot(Header),
    /// An object of the snapshot.
    State(Record),
    /// A segment begins.
    Segment(Header),
    /// A batch begins; its first revision.
    Batch(u64),
    /// A change, in the order of revisions.
    Change(Record),
}

/// One frame, or the reason for which there is none.
enum Frame {
    Whole(FrameHeader),
    End,
    /// The bytes from the place where a frame should begin to the end of the file.
    Broken(Vec<u8>),
}

/// Reads a file frame by frame.
pub(super) struct Reader {
    format: &'static Format,
    inner: BufReader<Box<dyn Read>>,
    seed: Option<Seed>,
    /// The length of the part that was read and was in order.
    pub(super) at: u64,
    payload: Vec<u8>,
}

/// The reason for which a state cannot be read from its frames.
pub(super) enum StateError {
    Io(io::Error),
    Damaged(&'static str),
    Newer(String),
}

/// The sentence about the part of a frame or a record that only a later version knows.
fn unknown(kind: Option<u8>) -> String {
    match kind {
        Some(kind) => format!("records of a kind ({kind}) that this version does not know"),
        None => "parts encoded in a way that this version does not know".to_owned(),
    }
}

impl Reader {
    /// Reads the header of a file.
    pub(super) fn open(
        file: Box<dyn Read>,
        format: &'static Format,
        kind: Kind,
    ) -> io::Result<(Result<Header, BadHeader>, Self)> {
        let mut inner = BufReader::with_capacity(1 << 18, file);
        let mut bytes = Vec::with_capacity(format.header);
        (&mut inner).take(format.header as u64).read_to_end(&mut bytes)?;
        let header = Header::parse(format, kind, &bytes);
        let seed = header.ok().map(|h| h.seed(format));
        Ok((header, Self { format, inner, seed, at: bytes.len() as u64, payload: Vec::new() }))
    }

    /// Reads a state, object after object, with its end. Returns the number of objects.
    pub(super) fn state(&mut self, sink: &mut dyn FnMut(Record)) -> Result<u64, StateError> {
        let mut decoder = Decoder::new(self.format);
        let mut objects = 0;
        for expected in 0.. {
            match self.frame().map_err(StateError::Io)? {
                Frame::Whole(frame) if frame.number == END => break,
                Frame::Whole(frame) if !frame.is_known() => return Err(StateError::Newer(unknown(None))),
                Frame::Whole(frame) if frame.number == expected => {
                    let count = |record| {
                        objects += 1;
                        sink(record);
                    };
                    decoder.records(&frame, &self.payload, count).map_err(|e| match e {
                        BadRecord::Malformed => StateError::Damaged("a record is malformed"),
                        BadRecord::Unknown(kind) => StateError::Newer(unknown(Some(kind))),
                    })?;
                }
                Frame::Whole(_) => return Err(StateError::Damaged("a part is missing")),
                Frame::End | Frame::Broken(_) => {
                    return Err(StateError::Damaged("a checksum is wrong or the end is missing"));
                }
            }
        }
        if self.format.explicit && self.payload != u64::to_le_bytes(objects) {
            return Err(StateError::Damaged("objects are missing"));
        }
        match self.frame().map_err(StateError::Io)? {
            Frame::End => Ok(objects),
            Frame::Whole(_) | Frame::Broken(_) => Err(StateError::Damaged("it goes on after its end")),
        }
    }

    /// Reads a frame into `payload`.
    fn frame(&mut self) -> io::Result<Frame> {
        let len = self.format.frame;
        let mut header = Vec::with_capacity(len);
        self.payload.clear();
        (&mut self.inner).take(len as u64).read_to_end(&mut header)?;
        if header.is_empty() {
            return Ok(Frame::End);
        }
        if let (Some(frame), Some(seed)) = (FrameHeader::parse(self.format, &header), &self.seed) {
            (&mut self.inner).take(u64::from(frame.len)).read_to_end(&mut self.payload)?;
            if frame.fits(self.format, seed, &header, &self.payload) {
                self.at += (len + self.payload.len()) as u64;
                return Ok(Frame::Whole(frame));
            }
        }
        header.append(&mut self.payload);
        self.inner.read_to_end(&mut header)?;
        Ok(Frame::Broken(header))
    }

    /// Whether a whole frame of this file begins anywhere after the first byte.
    fn holds_frame(&self, bytes: &[u8]) -> bool {
        let starts = (1..bytes.len()).filter(|&at| bytes[at..].starts_with(&MARK));
        starts.map(|at| &bytes[at..]).any(|bytes| {
            let (Some(frame), Some(seed)) = (FrameHeader::parse(self.format, bytes), &self.seed) else {
                return false;
            };
            let payload = bytes.get(self.format.frame..).and_then(|rest| rest.get(..frame.len as usize));
            payload.is_some_and(|payload| frame.fits(self.format, seed, bytes, payload))
        })
    }
}

/// A directory that is being read.
struct Loading<'a> {
    files: &'a dyn Files,
    format: &'static Format,
    loaded: Loaded,
    sink: &'a mut dyn FnMut(Item),
}

/// Reads everything, cuts a torn tail, and removes the files that do not count.
pub(super) fn load(
    files: &dyn Files,
    format: &'static Format,
    sink: &mut dyn FnMut(Item),
) -> Result<Loaded, LoadError> {
    let names = files.list().map_err(|e| LoadError::Io("the directory".to_owned(), e))?;
    let numbers = |prefix: &'static str| names.iter().filter_map(move |n| format.number(prefix, n));
    let loaded = Loaded {
        floor: 0,
        last: 0,
        lossy: names.iter().any(|n| n == UNSYNCED),
        store: None,
        previous: (NONE, 0),
        next_seq: numbers(SEGMENT).max().map_or(0, |n| n + 1),
        log_bytes: 0,
        snapshot_bytes: 0,
        segments: 0,
    };
    let mut loading = Loading { files, format, loaded, sink };
    let mut first = 0;
    if let Some(revision) = numbers(SNAPSHOT).max() {
        first = loading.snapshot(revision)?;
        loading.loaded.next_seq = loading.loaded.next_seq.max(first);
    }
    let mut segments = loading.chain(numbers(SEGMENT).filter(|&n| n >= first), first)?;
    let mut count = segments.len();
    for (i, header) in segments.iter().enumerate() {
        let counts = segments.get(i + 1).map(|next| next.len);
        if !loading.segment(header, counts)? {
            // Segments are removed from the last one back, also those that do not count: the last one leads to those
            // before.
            let mut lost: Vec<_> = numbers(SEGMENT).filter(|&n| n > header.number).collect();
            lost.sort_unstable();
            for name in lost.into_iter().rev().map(|n| format.segment(n)) {
                let removed = files.remove(&name).and_then(|()| files.sync_dir());
                removed.map_err(|e| LoadError::Io(name, e))?;
            }
            count = i + 1;
            break;
        }
    }
    let mut loaded = loading.loaded;
    segments.truncate(count);
    loaded.segments = segments.len();
    tidy(files, format, &names, &segments, &loaded, first);
    if loaded.lossy {
        loaded.last = loaded.last.saturating_add(RAISE);
        loaded.floor = loaded.last;
    }
    Ok(loaded)
}

impl Loading<'_> {
    fn open(&self, name: &str, kind: Kind) -> Result<(Option<Header>, Reader), LoadError> {
        let io = |e| LoadError::Io(name.to_owned(), e);
        let newer = |what| LoadError::Newer { file: name.to_owned(), what };
        let (header, reader) =
            Reader::open(self.files.read(name).map_err(io)?, self.format, kind).map_err(io)?;
        match header {
            Ok(header) => Ok((Some(header), reader)),
            Err(BadHeader::Broken) => Ok((None, reader)),
            Err(BadHeader::Version(version)) => Err(newer(format!("format {version}"))),
            Err(BadHeader::Features(bits)) => {
                Err(newer(format!("features ({bits:#x}) that this version does not know")))
            }
        }
    }

    /// Checks that all files are of one store.
    fn belongs(&mut self, name: &str, header: &Header) -> Result<(), LoadError> {
        if !self.format.explicit || *self.loaded.store.get_or_insert(header.store) == header.store {
            return Ok(());
        }
        let what = "it belongs to another store";
        Err(LoadError::Damaged { file: name.to_owned(), at: 0, what })
    }

    fn snapshot(&mut self, revision: u64) -> Result<u64, LoadError> {
        let name = self.format.snapshot(revision);
        let (header, mut reader) = self.open(&name, Kind::Snapshot)?;
        let damaged = |at, what| LoadError::Damaged { file: name.clone(), at, what };
        let header =
            header.filter(|h| h.number == revision).ok_or_else(|| damaged(0, "its header is broken"))?;
        self.belongs(&name, &header)?;
        (self.sink)(Item::Snapshot(header));
        reader.state(&mut |record| (self.sink)(Item::State(record))).map_err(|e| match e {
            StateError::Io(e) => LoadError::Io(name.clone(), e),
            StateError::Damaged(what) => damaged(reader.at, what),
            StateError::Newer(what) => LoadError::Newer { file: name.clone(), what },
        })?;
        self.loaded.floor = revision;
        self.loaded.last = header.floor;
        self.loaded.snapshot_bytes = reader.at;
        Ok(header.seq)
    }

    /// The headers of the segments that count, oldest first: the last one leads back to them.
    fn chain(&mut self, numbers: impl Iterator<Item = u64>, first: u64) -> Result<Vec<Header>, LoadError> {
        let mut headers = BTreeMap::new();
        for seq in numbers {
            let name = self.format.segment(seq);
            let (header, mut reader) = self.open(&name, Kind::Segment)?;
            let Some(header) = header.filter(|h| h.number == seq) else {
                // A crash at the start of a segment leaves such a file. Frames only follow once the header is durable.
                let mut next = [0];
                if reader.inner.read(&mut next).map_err(|e| LoadError::Io(name.clone(), e))? > 0 {
                    let what = "its header is broken, but not its content";
                    return Err(LoadError::Damaged { file: name, at: 0, what });
                }
                continue;
            };
            headers.insert(seq, header);
        }
        let mut chain = Vec::new();
        let mut next = headers.last_key_value().map(|(_, h)| *h);
        while let Some(header) = next {
            self.belongs(&self.format.segment(header.number), &header)?;
            chain.push(header);
            if header.seq == NONE || header.seq < first {
                break;
            }
            let previous = headers.get(&header.seq).filter(|p| p.number < header.number);
            next = Some(*previous.ok_or_else(|| LoadError::Missing(self.format.segment(header.seq)))?);
        }
        chain.reverse();
        Ok(chain)
    }

    /// Reads a segment; `counts` is the length of the part that counts, known unless it is the last segment. Returns
    /// whether all of that part is there.
    fn segment(&mut self, header: &Header, counts: Option<u64>) -> Result<bool, LoadError> {
        let name = self.format.segment(header.number);
        let io = |e| LoadError::Io(name.clone(), e);
        let damaged = |at, what| LoadError::Damaged { file: name.clone(), at, what };
        let newer = |kind| LoadError::Newer { file: name.clone(), what: unknown(kind) };
        let (_, mut reader) = self.open(&name, Kind::Segment)?;
        let mut decoder = Decoder::new(self.format);
        let loaded = &mut self.loaded;
        (self.sink)(Item::Segment(*header));
        loaded.last = loaded.last.max(header.floor);
        let mut whole = true;
        while counts.is_none_or(|counts| reader.at < counts) {
            let at = reader.at;
            match reader.frame().map_err(io)? {
                Frame::Whole(frame) => {
                    if frame.number <= loaded.last {
                        return Err(damaged(at, "its revisions go backward"));
                    }
                    if !frame.is_known() {
                        return Err(newer(None));
                    }
                    (self.sink)(Item::Batch(frame.number));
                    let change = |r: Record| {
                        loaded.last = r.revision.max(loaded.last);
                        (self.sink)(Item::Change(r));
                    };
                    decoder.records(&frame, &reader.payload, change).map_err(|e| match e {
                        BadRecord::Malformed => damaged(at, "a record is malformed"),
                        BadRecord::Unknown(kind) => newer(Some(kind)),
                    })?;
                }
                Frame::End if counts.is_none() => break,
                // The rest is reserved room for later frames.
                Frame::Broken(rest) if counts.is_none() && rest.iter().all(|b| *b == 0) => break,
                Frame::Broken(rest) if loaded.lossy || counts.is_none() && !reader.holds_frame(&rest) => {
                    // Synced, this is the batch that was being written when the power went; it was not acknowledged.
                    // Unsynced, any later bytes may have reached the disk without earlier ones.
                    let bytes = rest.len();
                    tracing::info!(file = name, at, bytes, "cutting an incomplete batch off the log");
                    self.files.truncate(&name, at).map_err(io)?;
                    whole = false;
                    break;
                }
                Frame::End if loaded.lossy => {
                    whole = false;
                    break;
                }
                Frame::End | Frame::Broken(_) => return Err(damaged(at, "a checksum is wrong")),
            }
        }
        loaded.log_bytes += reader.at;
        loaded.previous = (header.number, reader.at);
        Ok(whole)
    }
}

/// Removes the remains of a crash, and the files of other formats. No file that counts is among them.
fn tidy(
    files: &dyn Files,
    format: &Format,
    names: &[String],
    segments: &[Header],
    loaded: &Loaded,
    first: u64,
) {
    let counts = |name: &str| {
        let segment = format.number(SEGMENT, name);
        segment.is_some_and(|n| segments.iter().any(|s| s.number == n))
            || format.number(SNAPSHOT, name).is_some()
    };
    for name in names {
        let ours = name.starts_with(SEGMENT) || name.starts_with(SNAPSHOT);
        if ours
            && !counts(name)
            && let Err(error) = files.remove(name)
        {
            tracing::debug!(%error, name, "cannot remove a file of the store");
        }
    }
    if let Err(error) = checkpoint::superseded(files, format, loaded.floor, first) {
        tracing::debug!(%error, "cannot remove old files of the store");
    }
}
