//! Frames and their codec; no I/O.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

/// The content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// The next part of a message.
    Continuation,
    /// A message of UTF-8 text, or its first part.
    Text,
    /// A message of bytes, or its first part.
    Binary,
    /// The end of the connection.
    Close,
    /// A question.
    Ping,
    /// The answer to a ping.
    Pong,
}

impl Opcode {
    fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }
    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }
    fn is_control(self) -> bool {
        self.bits() >= 8
    }
}

/// An error in received bytes. The connection cannot go on after it.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// Reserved bits or an unknown opcode.
    #[error("reserved bits or opcode in a websocket frame")]
    Reserved,
    /// A control frame that is fragmented or longer than 125 bytes.
    #[error("malformed websocket control frame")]
    Control,
    /// A client's frame without a mask, or a server's with one.
    #[error("wrong masking of a websocket frame")]
    Mask,
    /// A frame or message longer than the limit.
    #[error("websocket message is too long")]
    TooLong,
    /// A continuation of nothing, or a new message inside one.
    #[error("websocket fragments out of order")]
    Fragment,
}

/// One frame, unmasked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Whether the frame ends its message.
    pub fin: bool,
    /// The kind of the content.
    pub opcode: Opcode,
    /// The bytes of the content.
    pub payload: Bytes,
}

/// Takes the next frame off the buffer; `None` if the buffer has to be filled first.
///
/// `masked` tells whether the other side must mask, as clients do; `limit` is the longest payload.
pub fn decode(buffer: &mut BytesMut, masked: bool, limit: usize) -> Result<Option<Frame>, FrameError> {
    if buffer.len() < 2 {
        return Ok(None);
    }
    let (first, second) = (buffer[0], buffer[1]);
    if first & 0x70 != 0 {
        return Err(FrameError::Reserved);
    }
    let fin = first & 0x80 != 0;
    let opcode = Opcode::from_bits(first & 0x0f).ok_or(FrameError::Reserved)?;
    if (second & 0x80 != 0) != masked {
        return Err(FrameError::Mask);
    }
    let (mut head, length) = match second & 0x7f {
        126 if buffer.len() < 4 => return Ok(None),
        127 if buffer.len() < 10 => return Ok(None),
        126 => (4, u64::from(u16::from_be_bytes([buffer[2], buffer[3]]))),
        127 => {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&buffer[2..10]);
            (10, u64::from_be_bytes(bytes))
        }
        n => (2, u64::from(n)),
    };
    if opcode.is_control() && (!fin || length > 125) {
        return Err(FrameError::Control);
    }
    if length > limit as u64 {
        return Err(FrameError::TooLong);
    }
    let length = length as usize;
    let mut mask = [0u8; 4];
    if masked {
        if buffer.len() < head + 4 {
            return Ok(None);
        }
        mask.copy_from_slice(&buffer[head..head + 4]);
        head += 4;
    }
    if buffer.len() < head + length {
        return Ok(None);
    }
    buffer.advance(head);
    let mut payload = buffer.split_to(length);
    if masked {
        apply_mask(&mut payload, mask);
    }
    Ok(Some(Frame { fin, opcode, payload: payload.freeze() }))
}

/// Appends a frame; with a mask if this side is the client.
pub fn encode(fin: bool, opcode: Opcode, parts: &[&[u8]], mask: Option<[u8; 4]>, out: &mut BytesMut) {
    let length: usize = parts.iter().map(|p| p.len()).sum();
    let masked = if mask.is_some() { 0x80 } else { 0 };
    out.reserve(length + 14);
    out.put_u8(if fin { 0x80 } else { 0 } | opcode.bits());
    if length < 126 {
        out.put_u8(masked | length as u8);
    } else if let Ok(short) = u16::try_from(length) {
        out.put_u8(masked | 0x7e);
        out.put_u16(short);
    } else {
        out.put_u8(masked | 0x7f);
        out.put_u64(length as u64);
    }
    if let Some(mask) = mask {
        out.put_slice(&mask);
    }
    let start = out.len();
    for part in parts {
        out.put_slice(part);
    }
    if let Some(mask) = mask {
        apply_mask(&mut out[start..], mask);
    }
}

fn apply_mask(payload: &mut [u8], mask: [u8; 4]) {
    let wide = u64::from_ne_bytes([mask[0], mask[1], mask[2], mask[3], mask[0], mask[1], mask[2], mask[3]]);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, m) in rest.iter_mut().zip(mask) {
        *byte ^= m;
    }
    for (byte, m) in rest.iter_mut().skip(4).zip(mask) {
        *byte ^= m;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses() {
        let check = |bytes: &[u8], error: FrameError| {
            assert_eq!(decode(&mut BytesMut::from(bytes), true, 100), Err(error), "{bytes:x?}");
        };
        check(&[0xc2, 0x80], FrameError::Reserved);
        check(&[0x83, 0x80], FrameError::Reserved);
        check(&[0x82, 0x00], FrameError::Mask);
        check(&[0x09, 0x80], FrameError::Control);
        check(&[0x82, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0], FrameError::TooLong);
        check(&[0x82, 0xfe, 0, 200], FrameError::TooLong);
    }

    proptest! {
        #[test]
        fn round_trip(payload in proptest::collection::vec(any::<u8>(), 0..70_000), mask: Option<[u8; 4]>) {
            let mut bytes = BytesMut::new();
            let (a, b) = payload.split_at(payload.len() / 2);
            encode(true, Opcode::Binary, &[a, b], mask, &mut bytes);
            for cut in [0, 1, 2, 3, 9, bytes.len() - 1] {
                if cut < bytes.len() {
                    let mut part = BytesMut::from(&bytes[..cut]);
                    prop_assert_eq!(decode(&mut part, mask.is_some(), 1 << 20), Ok(None));
                }
            }
            let frame = decode(&mut bytes, mask.is_some(), 1 << 20).unwrap().unwrap();
            prop_assert_eq!(&frame.payload[..], &payload[..]);
            prop_assert!(bytes.is_empty());
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64), masked: bool) {
            let _ = decode(&mut BytesMut::from(&bytes[..]), masked, 1000);
        }
    }
}
