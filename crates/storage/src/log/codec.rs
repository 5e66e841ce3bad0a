//! The bytes of records, and the frames around them.
//!
//! A file is a header and frames. A frame is a batch (in a snapshot: a part of the objects):
//! mark, length of the payload, (from format 2 on: number of records, encoding,) number (the first revision of a
//! batch), checksum, payload. The mark is not UTF-8: no JSON holds it. Integers are little-endian in headers,
//! LEB128 in records. From format 2 on a record is a kind, its length, and itself.

use std::sync::Arc;

use api::{NewObject, Object, OwnerRef, Text};
use bytes::Bytes;

use super::format::{Format, OPTIONAL, Seed};
use crate::engine::{Change, Record};

/// The mark that begins a frame.
pub(super) const MARK: [u8; 4] = [0xff, 0xfe, b'F', b'K'];
/// The greatest length of a frame; a greater one is damage.
pub(super) const MAX_PAYLOAD: u32 = 1 << 30;
/// The number of the frame that ends a snapshot.
pub(super) const END: u64 = u64::MAX;
/// A frame whose payload is the records themselves.
const PLAIN: u32 = 0;

const DEFINE: u8 = 1;
const PUT: u8 = 2;
const DELETE: u8 = 3;

/// Writes records. A resource is named once in a file, and then by its number.
#[derive(Debug)]
pub(super) struct Encoder {
    format: &'static Format,
    resources: Vec<(Text, Text)>,
    payload: Vec<u8>,
    /// The number of records in the payload.
    records: u32,
}

impl Encoder {
    pub(super) fn new(format: &'static Format) -> Self {
        Self { format, resources: Vec::new(), payload: Vec::new(), records: 0 }
    }

    /// The number of bytes that wait for [`Encoder::frame`].
    pub(super) fn len(&self) -> usize {
        self.payload.len()
    }

    /// Adds a record.
    pub(super) fn record(&mut self, record: &Record) {
        match &record.change {
            Change::Put { object, expires } => self.put(&record.group, &record.plural, object, *expires),
            Change::Delete { namespace, name } => {
                let resource = self.resource(&record.group, &record.plural);
                let at = self.begin(DELETE);
                let out = &mut self.payload;
                number(out, resource);
                number(out, record.revision);
                text(out, namespace);
                text(out, name);
                self.end(at);
            }
        }
    }

    /// Adds an object.
    pub(super) fn put(&mut self, group: &str, plural: &str, object: &Object, expires: u64) {
        let resource = self.resource(group, plural);
        let at = self.begin(PUT);
        let out = &mut self.payload;
        number(out, resource);
        number(out, object.revision);
        number(out, expires);
        let data = &object.data;
        for field in [&data.namespace, &data.name, &data.uid] {
            text(out, field);
        }
        number(out, data.labels.len() as u64);
        for (key, value) in &data.labels {
            text(out, key);
            text(out, value);
        }
        number(out, data.owners.len() as u64);
        for owner in &data.owners {
            for field in [&owner.api_version, &owner.kind, &owner.name, &owner.uid] {
                text(out, field);
            }
            out.push(u8::from(owner.controller) | u8::from(owner.block_owner_deletion) << 1);
        }
        number(out, data.fields.len() as u64);
        for field in &data.fields {
            text(out, field);
        }
        out.push(u8::from(data.deleting) | u8::from(data.finalizers) << 1);
        number(out, u64::from(data.stamp));
        number(out, u64::from(data.rv_at));
        number(out, data.body.len() as u64);
        out.extend_from_slice(&data.body);
        self.end(at);
    }

    fn resource(&mut self, group: &str, plural: &str) -> u64 {
        if let Some(at) = self.resources.iter().position(|(g, p)| g == group && p == plural) {
            return at as u64;
        }
        self.resources.push((group.into(), plural.into()));
        let at = self.begin(DEFINE);
        text(&mut self.payload, group);
        text(&mut self.payload, plural);
        self.end(at);
        self.resources.len() as u64 - 1
    }

    /// Begins a record; returns the place where its content begins.
    fn begin(&mut self, kind: u8) -> usize {
        self.records += 1;
        self.payload.push(kind);
        if self.format.explicit {
            self.payload.extend_from_slice(&[0; 4]);
        }
        self.payload.len()
    }

    /// Ends the record whose content begins there.
    fn end(&mut self, at: usize) {
        let len = (self.payload.len() - at) as u32;
        if self.format.explicit
            && let Some(place) = self.payload.get_mut(at - 4..at)
        {
            place.copy_from_slice(&len.to_le_bytes());
        }
    }

    /// Takes the added records, as a frame of a file.
    pub(super) fn frame(&mut self, seed: &Seed, number: u64) -> Vec<u8> {
        let payload = std::mem::take(&mut self.payload);
        let records = std::mem::take(&mut self.records);
        let mut frame = Vec::with_capacity(self.format.frame + payload.len());
        frame.extend_from_slice(&MARK);
        frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        if self.format.explicit {
            frame.extend_from_slice(&records.to_le_bytes());
            frame.extend_from_slice(&PLAIN.to_le_bytes());
        }
        frame.extend_from_slice(&number.to_le_bytes());
        frame.extend_from_slice(&seed.checksum(&frame, &payload).to_le_bytes());
        frame.extend_from_slice(&payload);
        frame
    }

    /// The frame that ends a snapshot of so many objects.
    pub(super) fn last(&mut self, seed: &Seed, objects: u64) -> Vec<u8> {
        if self.format.explicit {
            self.payload.extend_from_slice(&objects.to_le_bytes());
        }
        self.frame(seed, END)
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameHeader {
    /// The length of the payload, in bytes.
    pub(super) len: u32,
    /// The number of records, if the format has it.
    pub(super) records: Option<u32>,
    /// The encoding of the payload.
    encoding: u32,
    pub(super) number: u64,
    crc: u32,
}

impl FrameHeader {
    /// Reads a header from the first bytes of a frame.
    pub(super) fn parse(format: &Format, bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&MARK)?;
        let mut field = || {
            let (first, after) = rest.split_first_chunk()?;
            rest = after;
            Some(u32::from_le_bytes(*first))
        };
        let len = field()?;
        let (records, encoding) = if format.explicit { (Some(field()?), field()?) } else { (None, PLAIN) };
        let number = u64::from(field()?) | u64::from(field()?) << 32;
        let crc = field()?;
        (len <= MAX_PAYLOAD).then_some(Self { len, records, encoding, number, crc })
    }

    /// Whether a frame with this header (`bytes` begins with it) and this payload is whole.
    pub(super) fn fits(&self, format: &Format, seed: &Seed, bytes: &[u8], payload: &[u8]) -> bool {
        let header = bytes.get(..format.frame - 4).unwrap_or_default();
        payload.len() == self.len as usize && seed.checksum(header, payload) == self.crc
    }

    /// Whether this version knows the encoding of the payload.
    pub(super) fn is_known(&self) -> bool {
        self.encoding == PLAIN
    }
}

fn number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn text(out: &mut Vec<u8>, s: &str) {
    number(out, s.len() as u64);
    out.extend_from_slice(s.as_bytes());
}

/// Reads the records of one file's frames.
#[derive(Debug)]
pub(super) struct Decoder {
    format: &'static Format,
    resources: Vec<(Text, Text)>,
}

/// The reason for which bytes cannot be read as records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadRecord {
    /// The bytes are no records.
    Malformed,
    /// A record is of a kind that a later version writes, and must not be passed over.
    Unknown(u8),
}

use BadRecord::Malformed;

impl Decoder {
    pub(super) fn new(format: &'static Format) -> Self {
        Self { format, resources: Vec::new() }
    }

    /// Hands over the records of a payload.
    pub(super) fn records(
        &mut self,
        frame: &FrameHeader,
        payload: &[u8],
        mut sink: impl FnMut(Record),
    ) -> Result<(), BadRecord> {
        let mut cursor = Cursor(payload);
        let mut count = 0;
        while !cursor.0.is_empty() {
            count += 1;
            let kind = cursor.byte()?;
            if !self.format.explicit {
                self.record(kind, &mut cursor, &mut sink)?;
                continue;
            }
            let len = u32::from_le_bytes(*cursor.take(4)?.first_chunk().ok_or(Malformed)?);
            let mut content = Cursor(cursor.take(len as usize)?);
            self.record(kind, &mut content, &mut sink)?;
            if !content.0.is_empty() {
                return Err(Malformed);
            }
        }
        if frame.records.is_some_and(|records| records != count) {
            return Err(Malformed);
        }
        Ok(())
    }

    fn record(
        &mut self,
        kind: u8,
        content: &mut Cursor<'_>,
        sink: &mut impl FnMut(Record),
    ) -> Result<(), BadRecord> {
        if kind == DEFINE {
            self.resources.push((content.text()?, content.text()?));
            return Ok(());
        }
        if kind >= OPTIONAL && self.format.explicit {
            content.0 = &[];
            return Ok(());
        }
        if kind != PUT && kind != DELETE {
            return Err(if self.format.explicit { BadRecord::Unknown(kind) } else { Malformed });
        }
        let resource = usize::try_from(content.number()?).map_err(|_| Malformed)?;
        let (group, plural) = self.resources.get(resource).cloned().ok_or(Malformed)?;
        let revision = content.number()?;
        let change = if kind == PUT {
            let expires = content.number()?;
            let object = Arc::new(Object { data: content.object()?, revision });
            Change::Put { object, expires }
        } else {
            Change::Delete { namespace: content.text()?, name: content.text()? }
        };
        sink(Record { group, plural, revision, change });
        Ok(())
    }
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn byte(&mut self) -> Result<u8, BadRecord> {
        let (first, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }
    fn number(&mut self) -> Result<u64, BadRecord> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(Malformed)
    }
    fn small(&mut self) -> Result<u32, BadRecord> {
        u32::try_from(self.number()?).map_err(|_| Malformed)
    }
    fn bytes(&mut self) -> Result<&'a [u8], BadRecord> {
        let len = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        self.take(len)
    }
    fn take(&mut self, len: usize) -> Result<&'a [u8], BadRecord> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }
    fn text(&mut self) -> Result<Text, BadRecord> {
        std::str::from_utf8(self.bytes()?).map(Text::from).map_err(|_| Malformed)
    }
    fn many<T>(&mut self, read: impl Fn(&mut Self) -> Result<T, BadRecord>) -> Result<Box<[T]>, BadRecord> {
        let n = self.number()?;
        // Every item takes a byte at least.
        if n > self.0.len() as u64 {
            return Err(Malformed);
        }
        // The capacity is exact, so that no memory is left over from growth.
        let mut all = Vec::with_capacity(n.min(64) as usize);
        for _ in 0..n {
            all.push(read(self)?);
        }
        Ok(all.into())
    }
    fn object(&mut self) -> Result<NewObject, BadRecord> {
        let (namespace, name, uid) = (self.text()?, self.text()?, self.text()?);
        let labels = self.many(|c| Ok((c.text()?, c.text()?)))?;
        let owners = self.many(|c| {
            let (api_version, kind, name, uid) = (c.text()?, c.text()?, c.text()?, c.text()?);
            let flags = c.byte()?;
            let (controller, block_owner_deletion) = (flags & 1 != 0, flags & 2 != 0);
            Ok(OwnerRef { api_version, kind, name, uid, controller, block_owner_deletion })
        })?;
        let fields = self.many(Self::text)?;
        let flags = self.byte()?;
        let (deleting, finalizers) = (flags & 1 != 0, flags & 2 != 0);
        let (stamp, rv_at) = (self.small()?, self.small()?);
        let body = Bytes::from(Box::<[u8]>::from(self.bytes()?));
        Ok(NewObject {
            name,
            namespace,
            uid,
            labels,
            owners,
            fields,
            deleting,
            finalizers,
            stamp,
            body,
            rv_at,
        })
    }
}
