//! Frames of SPDY/3.1 and their codec; no I/O.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use super::Headers;
use super::headers::{Deflater, Inflater};

const VERSION: u16 = 3;
const HEAD: usize = 8;
/// The longest control frame taken; header blocks stay far below it.
const MAX_CONTROL: usize = 64 << 10;
/// The longest data frame written; a longer one that is read arrives in pieces.
pub(super) const MAX_DATA: usize = 32 << 10;

const FIN: u8 = 1;
const UNIDIRECTIONAL: u8 = 2;

/// An error in received bytes. The connection cannot go on after it.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// Another protocol version.
    #[error("SPDY version {0} is not 3")]
    Version(u16),
    /// A control frame that is too long.
    #[error("control frame of {0} bytes is too long")]
    TooLong(usize),
    /// A control frame whose length does not fit its type.
    #[error("control frame of type {0} is malformed")]
    Malformed(u16),
    /// A frame about stream 0.
    #[error("stream id zero is disallowed")]
    ZeroStream,
    /// A header block that zlib refuses.
    #[error("compressed header block is malformed")]
    Compression,
    /// A header block whose lengths or texts are wrong.
    #[error("header block is malformed")]
    Headers,
    /// Too many or too long headers.
    #[error("header block is too large")]
    HeadersTooLarge,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Opens a stream.
    SynStream {
        /// The new stream.
        stream: u32,
        /// The stream to which it belongs, 0 for none.
        associated: u32,
        /// The priority: 0 (highest) to 7.
        priority: u8,
        /// Whether nothing else follows from the sender.
        fin: bool,
        /// Whether the receiver may not send.
        unidirectional: bool,
        /// The stream's headers.
        headers: Headers,
    },
    /// Accepts a stream.
    SynReply {
        /// The stream.
        stream: u32,
        /// Whether nothing else follows from the sender.
        fin: bool,
        /// Headers of the answer.
        headers: Headers,
    },
    /// Ends a stream at once, both ways.
    RstStream {
        /// The stream.
        stream: u32,
        /// The reason; 5 is CANCEL.
        status: u32,
    },
    /// Settings: flags, id, value.
    Settings(Vec<(u8, u32, u32)>),
    /// Asks for the same frame back; odd ids are the client's.
    Ping(u32),
    /// The sender takes no new streams.
    GoAway {
        /// The last stream that the sender took.
        last: u32,
        /// The reason; 0 is OK.
        status: u32,
    },
    /// More headers of a stream.
    Headers {
        /// The stream.
        stream: u32,
        /// Whether nothing else follows from the sender.
        fin: bool,
        /// The headers.
        headers: Headers,
    },
    /// Room for more data; see the module's note on windows.
    WindowUpdate {
        /// The stream, 0 for the connection.
        stream: u32,
        /// The number of further bytes.
        delta: u32,
    },
    /// Data, or a piece of it.
    Data {
        /// The stream.
        stream: u32,
        /// Whether nothing else follows from the sender.
        fin: bool,
        /// The bytes.
        data: Bytes,
    },
}

/// Encodes frames, in the order in which they are sent.
pub struct Encoder {
    deflater: Deflater,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// Makes the encoder of a new connection.
    pub fn new() -> Self {
        Self { deflater: Deflater::new() }
    }

    /// Appends a frame. A data frame may become several.
    pub fn encode(&mut self, frame: &Frame, out: &mut BytesMut) -> Result<(), FrameError> {
        match frame {
            Frame::SynStream { stream, associated, priority, fin, unidirectional, headers } => {
                let flags = flag(*fin, FIN) | flag(*unidirectional, UNIDIRECTIONAL);
                self.control(1, flags, out, |deflater, out| {
                    out.put_u32(*stream);
                    out.put_u32(*associated);
                    out.put_u8(priority << 5);
                    out.put_u8(0);
                    deflater.encode(headers, out)
                })
            }
            Frame::SynReply { stream, fin, headers } => {
                self.control(2, flag(*fin, FIN), out, |deflater, out| {
                    out.put_u32(*stream);
                    deflater.encode(headers, out)
                })
            }
            Frame::RstStream { stream, status } => self.control(3, 0, out, |_, out| {
                out.put_u32(*stream);
                out.put_u32(*status);
                Ok(())
            }),
            Frame::Settings(values) => self.control(4, 0, out, |_, out| {
                out.put_u32(values.len() as u32);
                for (flags, id, value) in values {
                    out.put_u32(u32::from(*flags) << 24 | (id & 0x00ff_ffff));
                    out.put_u32(*value);
                }
                Ok(())
            }),
            Frame::Ping(id) => self.control(6, 0, out, |_, out| {
                out.put_u32(*id);
                Ok(())
            }),
            Frame::GoAway { last, status } => self.control(7, 0, out, |_, out| {
                out.put_u32(*last);
                out.put_u32(*status);
                Ok(())
            }),
            Frame::Headers { stream, fin, headers } => {
                self.control(8, flag(*fin, FIN), out, |deflater, out| {
                    out.put_u32(*stream);
                    deflater.encode(headers, out)
                })
            }
            Frame::WindowUpdate { stream, delta } => self.control(9, 0, out, |_, out| {
                out.put_u32(*stream);
                out.put_u32(*delta);
                Ok(())
            }),
            Frame::Data { stream, fin, data } => {
                let mut pieces = data.chunks(MAX_DATA).peekable();
                if pieces.peek().is_none() {
                    out.put_u32(*stream);
                    out.put_u32(u32::from(flag(*fin, FIN)) << 24);
                }
                while let Some(piece) = pieces.next() {
                    let last = pieces.peek().is_none();
                    out.put_u32(*stream);
                    out.put_u32(u32::from(flag(*fin && last, FIN)) << 24 | piece.len() as u32);
                    out.put_slice(piece);
                }
                Ok(())
            }
        }
    }

    fn control(
        &mut self,
        kind: u16,
        flags: u8,
        out: &mut BytesMut,
        payload: impl FnOnce(&mut Deflater, &mut BytesMut) -> Result<(), FrameError>,
    ) -> Result<(), FrameError> {
        let start = out.len();
        out.put_u16(0x8000 | VERSION);
        out.put_u16(kind);
        out.put_u32(0);
        payload(&mut self.deflater, out)?;
        let length = out.len() - start - HEAD;
        out[start + 4..start + HEAD].copy_from_slice(&(u32::from(flags) << 24 | length as u32).to_be_bytes());
        Ok(())
    }
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

/// A data frame of which a part has not arrived.
struct Partial {
    stream: u32,
    fin: bool,
    missing: usize,
}

/// Decodes frames.
pub struct Decoder {
    inflater: Inflater,
    partial: Option<Partial>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Makes the decoder of a new connection.
    pub fn new() -> Self {
        Self { inflater: Inflater::new(), partial: None }
    }

    /// Takes the next frame off the buffer; `None` if it has to be filled first. Data comes in the
    /// pieces in which it arrives. Frames of unknown types are skipped, as the draft wants.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        loop {
            if let Some(partial) = &mut self.partial {
                if buffer.is_empty() && partial.missing > 0 {
                    return Ok(None);
                }
                let data = buffer.split_to(partial.missing.min(buffer.len())).freeze();
                partial.missing -= data.len();
                let (stream, done) = (partial.stream, partial.missing == 0);
                let fin = partial.fin && done;
                if done {
                    self.partial = None;
                }
                return Ok(Some(Frame::Data { stream, fin, data }));
            }
            if buffer.len() < HEAD {
                return Ok(None);
            }
            let first = be32(buffer, 0);
            let second = be32(buffer, 4);
            let flags = (second >> 24) as u8;
            let length = (second & 0x00ff_ffff) as usize;
            if first & 0x8000_0000 == 0 {
                if first == 0 {
                    return Err(FrameError::ZeroStream);
                }
                buffer.advance(HEAD);
                self.partial = Some(Partial { stream: first, fin: flags & FIN != 0, missing: length });
                continue;
            }
            let version = (first >> 16) as u16 & 0x7fff;
            if version != VERSION {
                return Err(FrameError::Version(version));
            }
            if length > MAX_CONTROL {
                return Err(FrameError::TooLong(length));
            }
            if buffer.len() < HEAD + length {
                return Ok(None);
            }
            buffer.advance(HEAD);
            let payload = buffer.split_to(length);
            if let Some(frame) = self.control(first as u16, flags, &payload)? {
                return Ok(Some(frame));
            }
        }
    }

    fn control(&mut self, kind: u16, flags: u8, payload: &[u8]) -> Result<Option<Frame>, FrameError> {
        let need = |n: usize| {
            if payload.len() < n { Err(FrameError::Malformed(kind)) } else { Ok(()) }
        };
        let fin = flags & FIN != 0;
        let stream = |at: usize| match be32(payload, at) & 0x7fff_ffff {
            0 => Err(FrameError::ZeroStream),
            id => Ok(id),
        };
        let frame = match kind {
            1 => {
                need(10)?;
                Frame::SynStream {
                    stream: stream(0)?,
                    associated: be32(payload, 4) & 0x7fff_ffff,
                    priority: payload[8] >> 5,
                    fin,
                    unidirectional: flags & UNIDIRECTIONAL != 0,
                    headers: self.inflater.decode(&payload[10..])?,
                }
            }
            2 => {
                need(4)?;
                Frame::SynReply { stream: stream(0)?, fin, headers: self.inflater.decode(&payload[4..])? }
            }
            3 => {
                need(8)?;
                Frame::RstStream { stream: stream(0)?, status: be32(payload, 4) }
            }
            4 => {
                need(4)?;
                let entries = payload[4..].chunks_exact(8);
                if entries.len() != be32(payload, 0) as usize {
                    return Err(FrameError::Malformed(kind));
                }
                Frame::Settings(entries.map(|e| (e[0], be32(e, 0) & 0x00ff_ffff, be32(e, 4))).collect())
            }
            6 => {
                need(4)?;
                Frame::Ping(be32(payload, 0))
            }
            7 => {
                need(8)?;
                Frame::GoAway { last: be32(payload, 0) & 0x7fff_ffff, status: be32(payload, 4) }
            }
            8 => {
                need(4)?;
                Frame::Headers { stream: stream(0)?, fin, headers: self.inflater.decode(&payload[4..])? }
            }
            9 => {
                need(8)?;
                Frame::WindowUpdate {
                    stream: be32(payload, 0) & 0x7fff_ffff,
                    delta: be32(payload, 4) & 0x7fff_ffff,
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(frame))
    }
}

/// Reads a big-endian number; the caller has checked the length.
fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<Frame> {
        let headers: Headers = vec![("streamtype".into(), "stdin".into()), ("port".into(), "80".into())];
        vec![
            Frame::SynStream {
                stream: 1,
                associated: 0,
                priority: 3,
                fin: false,
                unidirectional: true,
                headers: headers.clone(),
            },
            Frame::SynReply { stream: 1, fin: true, headers: headers.clone() },
            Frame::RstStream { stream: 3, status: 5 },
            Frame::Settings(vec![(1, 4, 100), (0, 7, 65536)]),
            Frame::Ping(2),
            Frame::GoAway { last: 3, status: 0 },
            Frame::Headers { stream: 5, fin: false, headers },
            Frame::WindowUpdate { stream: 0, delta: 9 },
            Frame::Data { stream: 7, fin: true, data: Bytes::new() },
            Frame::Data { stream: 7, fin: false, data: Bytes::from_static(b"hello") },
        ]
    }

    fn decode(bytes: &[u8], step: usize) -> Result<Vec<Frame>, FrameError> {
        let mut decoder = Decoder::new();
        let mut buffer = BytesMut::new();
        let mut frames = Vec::new();
        for piece in bytes.chunks(step) {
            buffer.extend_from_slice(piece);
            while let Some(frame) = decoder.decode(&mut buffer)? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    #[test]
    fn every_frame_survives() {
        let mut encoder = Encoder::new();
        let mut bytes = BytesMut::new();
        for frame in all() {
            encoder.encode(&frame, &mut bytes).unwrap();
        }
        assert_eq!(decode(&bytes, bytes.len()).unwrap(), all());
    }

    #[test]
    fn data_arrives_in_pieces_and_ends_once() {
        let mut bytes = BytesMut::new();
        let data = Bytes::from(vec![7u8; MAX_DATA + 10]);
        Encoder::new().encode(&Frame::Data { stream: 1, fin: true, data: data.clone() }, &mut bytes).unwrap();
        let mut got = Vec::new();
        let mut fins = 0;
        for frame in decode(&bytes, 1000).unwrap() {
            let Frame::Data { stream: 1, fin, data } = frame else { panic!("{frame:?}") };
            got.extend_from_slice(&data);
            fins += usize::from(fin);
        }
        assert_eq!((got, fins), (data.to_vec(), 1));
    }

    /// The bytes that Go's spdystream 0.5 writes for one connection.
    #[test]
    fn golden_frames() {
        let hex = "80030001000000290000000100000000000078f9e3c6a7c26260606004a7b392a2d4c45c6851c29a0a0a6800000000ffff\
                   800300010100002f0000000300000000000002a5470c295029930829b08bc079c3c2c0c280818181b30812c199a084cf6800000000ffff\
                   800300020000000e000000016260606000000000ffff\
                   80030003000000080000000300000005\
                   800300060000000400000005\
                   80030007000000080000000300000000\
                   000000010100000568656c6c6f";
        let bytes: Vec<u8> = hex
            .as_bytes()
            .chunks(2)
            .map(|b| u8::from_str_radix(str::from_utf8(b).unwrap(), 16).unwrap())
            .collect();
        let syn = |stream, fin, headers: &[(&str, &str)]| {
            let mut headers: Headers =
                headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            headers.sort();
            Frame::SynStream { stream, associated: 0, priority: 0, fin, unidirectional: false, headers }
        };
        let mut frames = decode(&bytes, bytes.len()).unwrap();
        // Go's maps have no order.
        for frame in &mut frames {
            if let Frame::SynStream { headers, .. } = frame {
                headers.sort();
            }
        }
        let expected = [
            syn(1, false, &[("streamtype", "error")]),
            syn(3, true, &[("streamtype", "data"), ("port", "8080"), ("requestid", "0")]),
            Frame::SynReply { stream: 1, fin: false, headers: vec![] },
            Frame::RstStream { stream: 3, status: 5 },
            Frame::Ping(5),
            Frame::GoAway { last: 3, status: 0 },
            Frame::Data { stream: 1, fin: true, data: Bytes::from_static(b"hello") },
        ];
        assert_eq!(frames, expected);
    }

    #[test]
    fn refuses() {
        let check = |bytes: &[u8], error: FrameError| {
            assert_eq!(decode(bytes, bytes.len()).unwrap_err(), error, "{bytes:x?}");
        };
        check(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1], FrameError::Version(2));
        check(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff], FrameError::TooLong(0x00ff_ffff));
        check(&[0x80, 3, 0, 6, 0, 0, 0, 1, 0], FrameError::Malformed(6));
        check(&[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1], FrameError::ZeroStream);
        check(&[0, 0, 0, 0, 0, 0, 0, 0], FrameError::ZeroStream);
        check(&[0x80, 3, 0, 2, 0, 0, 0, 6, 0, 0, 0, 1, 1, 2], FrameError::Compression);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600), step in 1usize..64) {
            let _ = decode(&bytes, step);
        }

        #[test]
        fn damaged_frames_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), step in 1usize..64) {
            let mut encoder = Encoder::new();
            let mut bytes = BytesMut::new();
            for frame in all() {
                encoder.encode(&frame, &mut bytes).unwrap();
            }
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = decode(&bytes, step);
        }
    }
}
