//! The bytes of records, and the frames around them.
//!
//! A file is a header and frames. A frame is a batch (in a snapshot: a part of the objects):
//! mark, length of the payload, number (the first revision of a batch), checksum, payload. The checksum also
//! covers the file's own number, so that a frame of another file is not taken for one of this. The mark
//! is not UTF-8: no JSON holds it. Integers are little-endian in headers, LEB128 in records.

use std::sync::Arc;

use api::{NewObject, Object, OwnerRef, Text};
use bytes::Bytes;

use crate::engine::{Change, Record};

/// Begins a frame.
pub(crate) const MARK: [u8; 4] = [0xff, 0xfe, b'F', b'K'];
/// The length of a frame's header.
pub(crate) const FRAME: usize = 20;
/// No frame is longer; a length above it is not a length.
pub(crate) const MAX_PAYLOAD: u32 = 1 << 30;

const DEFINE: u8 = 1;
const PUT: u8 = 2;
const DELETE: u8 = 3;

/// Writes records. A resource is named once in a file, and by its number from then on.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    resources: Vec<(Text, Text)>,
    payload: Vec<u8>,
}

impl Encoder {
    /// How many bytes wait for [`Encoder::frame`].
    pub(crate) fn len(&self) -> usize {
        self.payload.len()
    }

    /// Adds a record.
    pub(crate) fn record(&mut self, record: &Record) {
        match &record.change {
            Change::Put { object, expires } => self.put(&record.group, &record.plural, object, *expires),
            Change::Delete { namespace, name } => {
                let resource = self.resource(&record.group, &record.plural);
                let out = &mut self.payload;
                out.push(DELETE);
                number(out, resource);
                number(out, record.revision);
                text(out, namespace);
                text(out, name);
            }
        }
    }

    /// Adds an object.
    pub(crate) fn put(&mut self, group: &str, plural: &str, object: &Object, expires: u64) {
        let resource = self.resource(group, plural);
        let out = &mut self.payload;
        out.push(PUT);
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
    }

    fn resource(&mut self, group: &str, plural: &str) -> u64 {
        if let Some(at) = self.resources.iter().position(|(g, p)| g == group && p == plural) {
            return at as u64;
        }
        self.resources.push((group.into(), plural.into()));
        self.payload.push(DEFINE);
        text(&mut self.payload, group);
        text(&mut self.payload, plural);
        self.resources.len() as u64 - 1
    }

    /// Takes what was added, as a frame of the file `file`.
    pub(crate) fn frame(&mut self, file: u64, number: u64) -> Vec<u8> {
        let payload = std::mem::take(&mut self.payload);
        let mut frame = Vec::with_capacity(FRAME + payload.len());
        frame.extend_from_slice(&MARK);
        frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        frame.extend_from_slice(&number.to_le_bytes());
        frame.extend_from_slice(&checksum(file, &frame, &payload).to_le_bytes());
        frame.extend_from_slice(&payload);
        frame
    }
}

/// The checksum of a frame, given the first 16 bytes of its header.
pub(crate) fn checksum(file: u64, header: &[u8], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&file.to_le_bytes());
    crc.update(header);
    crc.update(payload);
    crc.finalize()
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
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    resources: Vec<(Text, Text)>,
}

/// The bytes are not records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

impl Decoder {
    /// Hands over the records of a payload.
    pub(crate) fn records(&mut self, payload: &[u8], mut sink: impl FnMut(Record)) -> Result<(), Malformed> {
        let mut cursor = Cursor(payload);
        while !cursor.0.is_empty() {
            let kind = cursor.byte()?;
            if kind == DEFINE {
                self.resources.push((cursor.text()?, cursor.text()?));
                continue;
            }
            let resource = usize::try_from(cursor.number()?).map_err(|_| Malformed)?;
            let (group, plural) = self.resources.get(resource).cloned().ok_or(Malformed)?;
            let revision = cursor.number()?;
            let change = match kind {
                PUT => {
                    let expires = cursor.number()?;
                    let object = Arc::new(Object { data: cursor.object()?, revision });
                    Change::Put { object, expires }
                }
                DELETE => Change::Delete { namespace: cursor.text()?, name: cursor.text()? },
                _ => return Err(Malformed),
            };
            sink(Record { group, plural, revision, change });
        }
        Ok(())
    }
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }
    fn number(&mut self) -> Result<u64, Malformed> {
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
    fn small(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed)
    }
    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }
    fn text(&mut self) -> Result<Text, Malformed> {
        std::str::from_utf8(self.bytes()?).map(Text::from).map_err(|_| Malformed)
    }
    fn many<T>(&mut self, read: impl Fn(&mut Self) -> Result<T, Malformed>) -> Result<Box<[T]>, Malformed> {
        let n = self.number()?;
        // Every item takes a byte at least.
        if n > self.0.len() as u64 {
            return Err(Malformed);
        }
        // Of exactly this size, and not of what growing leaves.
        let mut all = Vec::with_capacity(n.min(64) as usize);
        for _ in 0..n {
            all.push(read(self)?);
        }
        Ok(all.into())
    }
    fn object(&mut self) -> Result<NewObject, Malformed> {
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
