//! The formats of the files, as data: the newest one is written, and files of every other one are rewritten to it.
//!
//! **Format 1**: a header of 44 bytes (mark, number, floor, predecessor and how much of it counts, checksum), then
//! frames; a frame is a batch, or a part of a snapshot's objects. The checksum of a frame also covers the number of its
//! file. Records follow each other without a length of their own.
//!
//! **Format 2** has these additions:
//! - Every file names its format, the store to which it belongs, and the time at which it was made. A file of another
//!   store among those of this one is found, and a backup tells its age.
//! - Every file has a salt that all its checksums cover. Bytes that the disk held before, of a segment of the same
//!   number included, are never taken for a part of it.
//! - A header tells its own length, and the features that a reader must know: additions of a later version are told
//!   from damage, also if they need no format of their own. The same holds for frames (their encoding) and records (a
//!   kind, a length): a reader may pass over a kind from [`OPTIONAL`] on that it does not know.
//! - A frame tells its number of records, and the end of a snapshot the number of objects.
//!
//! The names of files end with their format's number from 2 on, so that the files of two formats never meet: a
//! migration writes the new ones beside the old, and the one line in `format` tells which of them count.

/// A format of the files.
#[derive(Debug)]
pub(super) struct Format {
    /// The format's version, as in the file `format`.
    pub(super) version: u32,
    /// The end of the names of its files.
    pub(super) suffix: &'static str,
    /// The marks at the start of its files: of a segment, of a snapshot, of a backup.
    pub(super) marks: [[u8; 8]; 3],
    /// The length of a file's header, in bytes.
    pub(super) header: usize,
    /// The length of a frame's header, in bytes.
    pub(super) frame: usize,
    /// Whether headers name format, store and salt, records their length, and frames and ends their number.
    pub(super) explicit: bool,
}

/// The first kind of record over which a reader may pass that does not know it.
pub(super) const OPTIONAL: u8 = 0x80;

pub(super) const FORMAT_1: Format = Format {
    version: 1,
    suffix: "",
    marks: [*b"FKlog\xff\xfe\n", *b"FKsnap\xff\n", *b"FKsave\xff\n"],
    header: 44,
    frame: 20,
    explicit: false,
};

pub(super) const FORMAT_2: Format = Format {
    version: 2,
    suffix: ".2",
    marks: [*b"FKLOG\xff\xfe\n", *b"FKSNAP\xff\n", *b"FKSAVE\xff\n"],
    header: 88,
    frame: 28,
    explicit: true,
};

/// All formats that are read, oldest first, without a gap.
pub(super) static FORMATS: [Format; 2] = [FORMAT_1, FORMAT_2];

/// The format that is written.
pub(super) static NEWEST: &Format = &FORMATS[FORMATS.len() - 1];

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Segment,
    Snapshot,
    Backup,
}

/// The header of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// The store to which the file belongs; 0 for a file of format 1, and for a backup.
    pub(super) store: u128,
    /// A number that every checksum of the file covers; 0 for a file of format 1.
    pub(super) salt: u64,
    /// The time at which the file was made, in milliseconds since 1970; 0 for a file of format 1.
    pub(super) made: u64,
    /// A segment's sequence number; the revision of a snapshot or backup.
    pub(super) number: u64,
    /// The greatest revision that was given out before the file.
    pub(super) floor: u64,
    /// In a segment, its predecessor. In a snapshot, the first segment after it.
    pub(super) seq: u64,
    /// In a segment, how many bytes of the predecessor count. In a backup of format 1, the number of those.
    pub(super) len: u64,
}

/// The reason for which a header cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// The bytes are no header, or damaged.
    Broken,
    /// The header is whole, and of a later format.
    Version(u32),
    /// The header is whole, and names features that are not known.
    Features(u32),
}

/// The checksum of a frame before the frame itself.
#[derive(Debug, Clone)]
pub(super) struct Seed(crc32fast::Hasher);

impl Seed {
    /// The checksum of a frame, given its header without the checksum.
    pub(super) fn checksum(&self, header: &[u8], payload: &[u8]) -> u32 {
        let mut crc = self.0.clone();
        crc.update(header);
        crc.update(payload);
        crc.finalize()
    }
}

/// The place of the first 16 bytes of a header of format 2 and later: mark, version, length. The last four bytes of
/// the length are the checksum of those before.
const HEAD: usize = 16;

impl Header {
    pub(super) fn bytes(&self, format: &Format) -> Vec<u8> {
        let mut out = format.mark(self.kind).to_vec();
        if format.explicit {
            out.extend_from_slice(&format.version.to_le_bytes());
            out.extend_from_slice(&(format.header as u32).to_le_bytes());
            out.extend_from_slice(&self.store.to_le_bytes());
            out.extend_from_slice(&self.salt.to_le_bytes());
            out.extend_from_slice(&self.made.to_le_bytes());
        }
        for field in [self.number, self.floor, self.seq, self.len] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        if format.explicit {
            // These are the features that a reader must know.
            out.extend_from_slice(&0u32.to_le_bytes());
        }
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the header of a file of a format; `bytes` may be longer.
    pub(super) fn parse(format: &Format, kind: Kind, bytes: &[u8]) -> Result<Self, BadHeader> {
        if !bytes.starts_with(&format.mark(kind)) {
            return Err(BadHeader::Broken);
        }
        let mut at = Fields(bytes.get(8..).unwrap_or_default());
        let broken = || BadHeader::Broken;
        if format.explicit {
            let (version, len) = (at.u32().ok_or_else(broken)?, at.u32().ok_or_else(broken)? as usize);
            if len < HEAD || !whole(bytes.get(..len).ok_or_else(broken)?) {
                return Err(BadHeader::Broken);
            }
            if version > format.version {
                return Err(BadHeader::Version(version));
            }
            if version != format.version || len != format.header {
                return Err(BadHeader::Broken);
            }
        } else if !bytes.get(..format.header).is_some_and(whole) {
            return Err(BadHeader::Broken);
        }
        let read = || -> Option<(Self, u32)> {
            let identity = if format.explicit { (at.u128()?, at.u64()?, at.u64()?) } else { (0, 0, 0) };
            let (store, salt, made) = identity;
            let (number, floor, seq, len) = (at.u64()?, at.u64()?, at.u64()?, at.u64()?);
            let features = if format.explicit { at.u32()? } else { 0 };
            Some((Self { kind, store, salt, made, number, floor, seq, len }, features))
        };
        match { read }().ok_or_else(broken)? {
            (header, 0) => Ok(header),
            (_, features) => Err(BadHeader::Features(features)),
        }
    }

    /// The seed of the checksums of the file's frames.
    pub(super) fn seed(&self, format: &Format) -> Seed {
        let mut crc = crc32fast::Hasher::new();
        if format.explicit {
            crc.update(&self.store.to_le_bytes());
            crc.update(&self.salt.to_le_bytes());
        }
        crc.update(&self.number.to_le_bytes());
        Seed(crc)
    }
}

/// Whether the last four bytes are the checksum of those before.
fn whole(bytes: &[u8]) -> bool {
    bytes.split_last_chunk().is_some_and(|(fields, crc)| crc32fast::hash(fields).to_le_bytes() == *crc)
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    fn u128(&mut self) -> Option<u128> {
        self.take().map(u128::from_le_bytes)
    }
}

impl Format {
    /// The mark at the start of a file of a kind.
    fn mark(&self, kind: Kind) -> [u8; 8] {
        let [segment, snapshot, backup] = self.marks;
        match kind {
            Kind::Segment => segment,
            Kind::Snapshot => snapshot,
            Kind::Backup => backup,
        }
    }

    /// The name of a segment.
    pub(super) fn segment(&self, seq: u64) -> String {
        format!("{SEGMENT}{seq:016}{}", self.suffix)
    }

    /// The name of a snapshot.
    pub(super) fn snapshot(&self, revision: u64) -> String {
        format!("{SNAPSHOT}{revision:020}{}", self.suffix)
    }

    /// The number in the name of a file of this format.
    pub(super) fn number(&self, prefix: &str, name: &str) -> Option<u64> {
        name.strip_prefix(prefix)?.strip_suffix(self.suffix)?.parse().ok()
    }
}

/// The start of the names of segments.
pub(super) const SEGMENT: &str = "log-";
/// The start of the names of snapshots.
pub(super) const SNAPSHOT: &str = "snapshot-";
