//! Texts that are packed one by one, and joined as gzip without being unpacked.

use std::collections::BTreeSet;

use api::Text;
use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use parking_lot::Mutex;

/// The header of a gzip file without a name or a time, from an unknown system (RFC 1952).
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// An empty last block (RFC 1951).
const END: [u8; 2] = [3, 0];

/// A packed text. It ends with a whole byte and refers to nothing before it, so others may stand around it.
pub(crate) struct Piece {
    packed: Box<[u8]>,
    sum: Crc,
}

/// A packer for the next text: its tables are large, and are cleared as a whole when they are made.
static SPARE: Mutex<Option<Compress>> = Mutex::new(None);

impl Piece {
    /// Packs a text.
    pub(crate) fn new(text: &[u8]) -> Self {
        let mut sum = Crc::new();
        sum.update(text);
        // Upstream packs answers at this level.
        let spare = SPARE.lock().take();
        let mut packer = spare.unwrap_or_else(|| Compress::new(Compression::fast(), false));
        let mut packed = Vec::with_capacity(text.len() / 8 + 64);
        loop {
            let done = packer.total_in() as usize;
            let rest = text.get(done..).unwrap_or_default();
            match packer.compress_vec(rest, &mut packed, FlushCompress::Full) {
                // With room left, all is written.
                Ok(Status::Ok | Status::BufError) if packed.len() == packed.capacity() => {
                    packed.reserve(packed.len());
                }
                // Packing into memory cannot fail.
                _ => break,
            }
        }
        packer.reset();
        *SPARE.lock() = Some(packer);
        Self { packed: packed.into(), sum }
    }
}

/// A definition's part of a document of OpenAPI: of the 919 KB of ten definitions, 50 KB are left.
pub(super) struct DocumentPart {
    /// The entries of its paths.
    pub(super) paths: Piece,
    /// The entries of its schemas.
    pub(super) schemas: Piece,
    /// The names of the built-in schemas to which it refers.
    pub(super) refers: BTreeSet<Text>,
}

/// The texts one after another, as a gzip file.
pub(crate) fn join<'a>(pieces: impl IntoIterator<Item = &'a Piece>) -> Bytes {
    let mut sum = Crc::new();
    let mut out = HEADER.to_vec();
    for piece in pieces {
        out.extend_from_slice(&piece.packed);
        sum.combine(&piece.sum);
    }
    out.extend_from_slice(&END);
    out.extend_from_slice(&sum.sum().to_le_bytes());
    out.extend_from_slice(&sum.amount().to_le_bytes());
    out.into()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn joined_pieces_are_their_texts() {
        let check = |texts: &[String]| {
            let pieces: Vec<Piece> = texts.iter().map(|text| Piece::new(text.as_bytes())).collect();
            let joined = join(&pieces);
            let mut got = String::new();
            flate2::read::GzDecoder::new(&joined[..]).read_to_string(&mut got).unwrap();
            assert_eq!(got, texts.concat());
        };
        check(&[]);
        check(&[String::new()]);
        check(&["one".into(), String::new(), "one".into()]);
        let mixed: String =
            (0..100_000_u32).map(|i| char::from(b'a' + (i.wrapping_mul(i) >> 7) as u8 % 26)).collect();
        check(&[mixed.clone(), "again".repeat(50_000), mixed]);
    }
}
