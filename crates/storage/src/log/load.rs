//! Reads the newest snapshot and the segments after it.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};

use super::codec::{Decoder, FRAME, MARK, MAX_PAYLOAD, checksum};
use super::files::Files;
use super::{
    END, Header, LOG_MAGIC, NONE, RAISE, SNAPSHOT_MAGIC, UNSYNCED, checkpoint, segment_name, snapshot_name,
};
use crate::engine::Record;

/// Why the files of a store cannot be read.
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
}

/// Where the log stands after loading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// The revision of the snapshot; the log tells what came after it.
    pub(crate) floor: u64,
    /// The last revision that was given out.
    pub(crate) last: u64,
    /// Acknowledged writes may be missing at the end: the revision is raised, and `floor` with it.
    pub(crate) lossy: bool,
    pub(super) previous: (u64, u64),
    pub(super) next_seq: u64,
    pub(super) log_bytes: u64,
    pub(super) snapshot_bytes: u64,
    pub(super) segments: usize,
}

/// What is read: first the objects of the snapshot, then the changes after it.
pub(crate) enum Item {
    /// An object of the snapshot.
    State(Record),
    /// A change, in the order of revisions.
    Change(Record),
}

/// One frame, or how the reading of one ended.
enum Frame {
    Whole {
        number: u64,
    },
    End,
    /// The bytes from where a frame should begin to the end of the file.
    Broken(Vec<u8>),
}

/// Reads a file frame by frame.
pub(super) struct Reader {
    inner: BufReader<Box<dyn Read>>,
    file: u64,
    /// How much of it was read and was in order.
    pub(super) at: u64,
    payload: Vec<u8>,
}

/// Why a state cannot be read from its frames.
pub(super) enum StateError {
    Io(io::Error),
    Damaged(&'static str),
}

impl Reader {
    /// Reads the header of a file; `None` if that is broken.
    pub(super) fn open(file: Box<dyn Read>, magic: [u8; 8]) -> io::Result<(Option<Header>, Self)> {
        let mut inner = BufReader::with_capacity(1 << 18, file);
        let mut bytes = Vec::with_capacity(Header::LEN);
        (&mut inner).take(Header::LEN as u64).read_to_end(&mut bytes)?;
        let header = Header::parse(&bytes, magic);
        let file = header.map_or(0, |h| h.number);
        Ok((header, Self { inner, file, at: Header::LEN as u64, payload: Vec::new() }))
    }

    /// Reads a state, with its end: object after object. How many there were.
    pub(super) fn state(&mut self, sink: &mut dyn FnMut(Record)) -> Result<u64, StateError> {
        let mut decoder = Decoder::default();
        let mut objects = 0;
        for expected in 0.. {
            match self.frame().map_err(StateError::Io)? {
                Frame::Whole { number: END } => break,
                Frame::Whole { number } if number == expected => decoder
                    .records(&self.payload, |record| {
                        objects += 1;
                        sink(record);
                    })
                    .map_err(|_| StateError::Damaged("a record is malformed"))?,
                Frame::Whole { .. } => return Err(StateError::Damaged("a part is missing")),
                Frame::End | Frame::Broken(_) => {
                    return Err(StateError::Damaged("a checksum is wrong or the end is missing"));
                }
            }
        }
        match self.frame().map_err(StateError::Io)? {
            Frame::End => Ok(objects),
            Frame::Whole { .. } | Frame::Broken(_) => Err(StateError::Damaged("it goes on after its end")),
        }
    }

    /// Reads a frame into `payload`.
    fn frame(&mut self) -> io::Result<Frame> {
        let mut header = Vec::with_capacity(FRAME);
        self.payload.clear();
        (&mut self.inner).take(FRAME as u64).read_to_end(&mut header)?;
        if header.is_empty() {
            return Ok(Frame::End);
        }
        if let Some((len, number, crc)) = frame_header(&header) {
            (&mut self.inner).take(u64::from(len)).read_to_end(&mut self.payload)?;
            if self.payload.len() == len as usize && checksum(self.file, &header[..16], &self.payload) == crc
            {
                self.at += (FRAME + self.payload.len()) as u64;
                return Ok(Frame::Whole { number });
            }
        }
        header.append(&mut self.payload);
        self.inner.read_to_end(&mut header)?;
        Ok(Frame::Broken(header))
    }
}

/// Length, number and checksum.
fn frame_header(bytes: &[u8]) -> Option<(u32, u64, u32)> {
    let rest = bytes.strip_prefix(&MARK)?;
    let len = u32::from_le_bytes(*rest.first_chunk()?);
    let number = u64::from_le_bytes(*rest.get(4..)?.first_chunk()?);
    let crc = u32::from_le_bytes(*rest.get(12..)?.first_chunk()?);
    (len <= MAX_PAYLOAD).then_some((len, number, crc))
}

/// Whether a whole frame of this file begins anywhere after the first byte.
fn holds_frame(bytes: &[u8], file: u64) -> bool {
    let starts = (1..bytes.len()).filter(|&at| bytes[at..].starts_with(&MARK));
    starts.map(|at| &bytes[at..]).any(|bytes| {
        frame_header(bytes).is_some_and(|(len, _, crc)| {
            bytes[FRAME..].get(..len as usize).is_some_and(|p| checksum(file, &bytes[..16], p) == crc)
        })
    })
}

fn open(files: &dyn Files, name: &str, magic: [u8; 8]) -> Result<(Option<Header>, Reader), LoadError> {
    let io = |e| LoadError::Io(name.to_owned(), e);
    Reader::open(files.read(name).map_err(io)?, magic).map_err(io)
}

/// Reads everything, cuts a torn tail, and removes what does not count.
pub(super) fn load(files: &dyn Files, sink: &mut dyn FnMut(Item)) -> Result<Loaded, LoadError> {
    let names = files.list().map_err(|e| LoadError::Io("the directory".to_owned(), e))?;
    let numbers =
        |prefix: &'static str| names.iter().filter_map(move |n| n.strip_prefix(prefix)?.parse::<u64>().ok());
    let mut loaded = Loaded {
        floor: 0,
        last: 0,
        lossy: names.iter().any(|n| n == UNSYNCED),
        previous: (NONE, 0),
        next_seq: numbers("log-").max().map_or(0, |n| n + 1),
        log_bytes: 0,
        snapshot_bytes: 0,
        segments: 0,
    };
    let mut first = 0;
    if let Some(revision) = numbers("snapshot-").max() {
        first = snapshot(files, revision, &mut loaded, sink)?;
        loaded.next_seq = loaded.next_seq.max(first);
    }
    let mut segments = chain(files, numbers("log-").filter(|&n| n >= first), first)?;
    let mut count = segments.len();
    for (i, header) in segments.iter().enumerate() {
        let counts = segments.get(i + 1).map(|next| next.len);
        if !segment(files, header, counts, &mut loaded, sink)? {
            // From behind, and also those that do not count: whichever is the last leads back to those before.
            let mut lost: Vec<_> = numbers("log-").filter(|&n| n > header.number).collect();
            lost.sort_unstable();
            for name in lost.into_iter().rev().map(segment_name) {
                let removed = files.remove(&name).and_then(|()| files.sync_dir());
                removed.map_err(|e| LoadError::Io(name, e))?;
            }
            count = i + 1;
            break;
        }
    }
    segments.truncate(count);
    loaded.segments = segments.len();
    tidy(files, &names, &segments, &loaded, first);
    if loaded.lossy {
        loaded.last = loaded.last.saturating_add(RAISE);
        loaded.floor = loaded.last;
    }
    Ok(loaded)
}

fn snapshot(
    files: &dyn Files,
    revision: u64,
    loaded: &mut Loaded,
    sink: &mut dyn FnMut(Item),
) -> Result<u64, LoadError> {
    let name = snapshot_name(revision);
    let (header, mut reader) = open(files, &name, SNAPSHOT_MAGIC)?;
    let damaged = |at, what| LoadError::Damaged { file: name.clone(), at, what };
    let header = header.filter(|h| h.number == revision).ok_or_else(|| damaged(0, "its header is broken"))?;
    reader.state(&mut |record| sink(Item::State(record))).map_err(|e| match e {
        StateError::Io(e) => LoadError::Io(name.clone(), e),
        StateError::Damaged(what) => damaged(reader.at, what),
    })?;
    loaded.floor = revision;
    loaded.last = header.floor;
    loaded.snapshot_bytes = reader.at;
    Ok(header.seq)
}

/// The headers of the segments that count, oldest first: those that the last one leads back to.
fn chain(
    files: &dyn Files,
    numbers: impl Iterator<Item = u64>,
    first: u64,
) -> Result<Vec<Header>, LoadError> {
    let mut headers = BTreeMap::new();
    for seq in numbers {
        let (header, mut reader) = open(files, &segment_name(seq), LOG_MAGIC)?;
        let header = header.filter(|h| h.number == seq);
        if header.is_none() {
            // A crash while it was begun leaves such a file, with no frame in it.
            reader.file = seq;
            let mut bytes = vec![0];
            reader.inner.read_to_end(&mut bytes).map_err(|e| LoadError::Io(segment_name(seq), e))?;
            if holds_frame(&bytes, seq) {
                let what = "its header is broken, but not its content";
                return Err(LoadError::Damaged { file: segment_name(seq), at: 0, what });
            }
            continue;
        }
        headers.extend(header.map(|h| (seq, h)));
    }
    let mut chain = Vec::new();
    let mut next = headers.last_key_value().map(|(_, h)| *h);
    while let Some(header) = next {
        chain.push(header);
        if header.seq == NONE || header.seq < first {
            break;
        }
        let previous = headers.get(&header.seq).filter(|p| p.number < header.number);
        next = Some(*previous.ok_or_else(|| LoadError::Missing(segment_name(header.seq)))?);
    }
    chain.reverse();
    Ok(chain)
}

/// Reads a segment; `counts` is how much of it counts, known unless it is the last. Whether all of that is there.
fn segment(
    files: &dyn Files,
    header: &Header,
    counts: Option<u64>,
    loaded: &mut Loaded,
    sink: &mut dyn FnMut(Item),
) -> Result<bool, LoadError> {
    let name = segment_name(header.number);
    let io = |e| LoadError::Io(name.clone(), e);
    let damaged = |at, what| LoadError::Damaged { file: name.clone(), at, what };
    let (_, mut reader) = open(files, &name, LOG_MAGIC)?;
    let mut decoder = Decoder::default();
    loaded.last = loaded.last.max(header.floor);
    let mut whole = true;
    while counts.is_none_or(|counts| reader.at < counts) {
        let at = reader.at;
        match reader.frame().map_err(io)? {
            Frame::Whole { number } => {
                if number <= loaded.last {
                    return Err(damaged(at, "its revisions go backward"));
                }
                let last = &mut loaded.last;
                let change = |r: Record| {
                    *last = r.revision.max(*last);
                    sink(Item::Change(r));
                };
                decoder.records(&reader.payload, change).map_err(|_| damaged(at, "a record is malformed"))?;
            }
            Frame::End if counts.is_none() => break,
            // Room for what was to come.
            Frame::Broken(rest) if counts.is_none() && rest.iter().all(|b| *b == 0) => break,
            Frame::Broken(rest) if loaded.lossy || counts.is_none() && !holds_frame(&rest, header.number) => {
                // Synced, it is the batch that was being written when the power went; nobody was told that it is
                // durable. Unsynced, any later bytes may have come without earlier ones.
                let bytes = rest.len();
                tracing::info!(file = name, at, bytes, "cutting an incomplete batch off the log");
                files.truncate(&name, at).map_err(io)?;
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

/// Removes what a crash left behind. Nothing depends on it.
fn tidy(files: &dyn Files, names: &[String], segments: &[Header], loaded: &Loaded, first: u64) {
    let counts = |name: &str| segments.iter().any(|s| segment_name(s.number) == name);
    for name in names {
        let temporary = name.strip_suffix(".tmp").is_some_and(|n| n.starts_with("snapshot-"));
        if (temporary || name.starts_with("log-") && !counts(name))
            && let Err(error) = files.remove(name)
        {
            tracing::debug!(%error, name, "cannot remove a file of the store");
        }
    }
    if let Err(error) = checkpoint::superseded(files, loaded.floor, first) {
        tracing::debug!(%error, "cannot remove old files of the store");
    }
}
