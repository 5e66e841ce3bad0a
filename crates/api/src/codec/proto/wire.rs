//! The wire format: keys, varints, lengths.

use super::DecodeError;
use crate::depth::MAX_DEPTH;
use crate::tree::Text;

/// The layout of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Varint,
    Fixed64,
    Bytes,
    Group,
    EndGroup,
    Fixed32,
}

/// Reads a message field by field.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

fn broken(what: &str) -> DecodeError {
    DecodeError::Syntax(what.to_owned())
}

impl<'a> Reader<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }
    pub(super) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (b, rest) = self.rest.split_first().ok_or_else(|| broken("unexpected EOF"))?;
            self.rest = rest;
            value |= u64::from(b & 0x7f) << shift;
            if b & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(broken("proto: integer overflow"))
    }
    /// The next field's number and layout; `None` at the end.
    pub(super) fn key(&mut self) -> Result<Option<(u32, Wire)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| broken("proto: illegal tag"))?;
        let wire = match key & 7 {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Bytes,
            3 => Wire::Group,
            4 => Wire::EndGroup,
            5 => Wire::Fixed32,
            n => return Err(broken(&format!("proto: illegal wireType {n}"))),
        };
        if number == 0 {
            return Err(broken("proto: illegal tag 0"));
        }
        Ok(Some((number, wire)))
    }
    fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        if self.rest.len() < n {
            return Err(broken("unexpected EOF"));
        }
        let (head, rest) = self.rest.split_at(n);
        self.rest = rest;
        Ok(head)
    }
    pub(super) fn bytes(&mut self, wire: Wire) -> Result<&'a [u8], DecodeError> {
        if wire != Wire::Bytes {
            return Err(broken("proto: wrong wireType for a length-delimited field"));
        }
        let n = self.varint()?;
        self.take(usize::try_from(n).map_err(|_| broken("proto: negative length found during unmarshaling"))?)
    }
    pub(super) fn text(&mut self, wire: Wire) -> Result<Text, DecodeError> {
        let bytes = self.bytes(wire)?;
        Ok(match std::str::from_utf8(bytes) {
            Ok(s) => s.into(),
            Err(_) => String::from_utf8_lossy(bytes).into(),
        })
    }
    pub(super) fn int(&mut self, wire: Wire) -> Result<i64, DecodeError> {
        if wire != Wire::Varint {
            return Err(broken("proto: wrong wireType for a varint field"));
        }
        Ok(self.varint()? as i64)
    }
    pub(super) fn float(&mut self, wire: Wire) -> Result<f64, DecodeError> {
        if wire != Wire::Fixed64 {
            return Err(broken("proto: wrong wireType for a double field"));
        }
        let b = self.take(8)?;
        Ok(f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
    }
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    /// Passes over a field that is not known.
    pub(super) fn skip(&mut self, wire: Wire) -> Result<(), DecodeError> {
        match wire {
            Wire::Varint => self.varint().map(drop),
            Wire::Fixed64 => self.take(8).map(drop),
            Wire::Fixed32 => self.take(4).map(drop),
            Wire::Bytes => self.bytes(wire).map(drop),
            Wire::Group => {
                let mut open = 1;
                while open > 0 {
                    match self.key()? {
                        None => return Err(broken("unexpected EOF")),
                        Some((_, Wire::EndGroup)) => open -= 1,
                        Some((_, Wire::Group)) if open < MAX_DEPTH => open += 1,
                        Some((_, Wire::Group)) => return Err(broken("proto: exceeded max depth")),
                        Some((_, w)) => self.skip(w)?,
                    }
                }
                Ok(())
            }
            Wire::EndGroup => Err(broken("proto: unexpected end of group")),
        }
    }
}

pub(super) fn put_varint(mut v: u64, out: &mut Vec<u8>) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

pub(super) fn put_int(number: u32, v: i64, out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3, out);
    put_varint(v as u64, out);
}

pub(super) fn put_float(number: u32, v: f64, out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | 1, out);
    out.extend_from_slice(&v.to_le_bytes());
}

pub(super) fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | 2, out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes a length-delimited field whose content `fill` appends: the length goes in front afterwards.
pub(super) fn put_nested(number: u32, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    put_varint(u64::from(number) << 3 | 2, out);
    let start = out.len();
    out.push(0);
    fill(out);
    let len = out.len() - start - 1;
    if len < 0x80 {
        out[start] = len as u8;
        return;
    }
    let mut prefix = Vec::with_capacity(5);
    put_varint(len as u64, &mut prefix);
    out.splice(start..=start, prefix);
}
