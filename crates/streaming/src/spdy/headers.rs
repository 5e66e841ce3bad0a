//! Header blocks: name/value pairs behind a zlib stream that lives as long as the connection.

use std::collections::HashSet;

use bytes::{Buf, BufMut, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::Headers;
use super::dictionary::DICTIONARY;
use super::frame::FrameError;

/// The most bytes of one uncompressed header block.
const MAX_BLOCK: usize = 64 << 10;
/// The most headers of one block.
const MAX_HEADERS: usize = 1000;

/// Compresses header blocks in the order in which they are sent.
pub(super) struct Deflater {
    zlib: Compress,
    primed: bool,
}

impl Deflater {
    pub(super) fn new() -> Self {
        Self { zlib: Compress::new(Compression::best(), true), primed: false }
    }

    /// Appends the compressed block.
    pub(super) fn encode(&mut self, headers: &Headers, out: &mut BytesMut) -> Result<(), FrameError> {
        if !self.primed {
            self.zlib.set_dictionary(DICTIONARY).map_err(|_| FrameError::Compression)?;
            self.primed = true;
        }
        let mut plain = BytesMut::new();
        plain.put_u32(headers.len() as u32);
        for (name, value) in headers {
            plain.put_u32(name.len() as u32);
            plain.put_slice(name.to_ascii_lowercase().as_bytes());
            plain.put_u32(value.len() as u32);
            plain.put_slice(value.as_bytes());
        }
        if headers.len() > MAX_HEADERS || plain.len() > MAX_BLOCK {
            return Err(FrameError::HeadersTooLarge);
        }
        let mut chunk = [0u8; 4096];
        let mut rest = &plain[..];
        loop {
            let (read, written) = (self.zlib.total_in(), self.zlib.total_out());
            self.zlib.compress(rest, &mut chunk, FlushCompress::Sync).map_err(|_| FrameError::Compression)?;
            rest = &rest[(self.zlib.total_in() - read) as usize..];
            let made = (self.zlib.total_out() - written) as usize;
            out.put_slice(&chunk[..made]);
            if rest.is_empty() && made < chunk.len() {
                return Ok(());
            }
        }
    }
}

/// Decompresses header blocks in the order in which they arrive.
pub(super) struct Inflater {
    zlib: Decompress,
}

impl Inflater {
    pub(super) fn new() -> Self {
        Self { zlib: Decompress::new(true) }
    }

    /// The headers of one compressed block.
    pub(super) fn decode(&mut self, mut block: &[u8]) -> Result<Headers, FrameError> {
        let mut plain = Vec::with_capacity(1024);
        let mut chunk = [0u8; 4096];
        loop {
            let (read, written) = (self.zlib.total_in(), self.zlib.total_out());
            let result = self.zlib.decompress(block, &mut chunk, FlushDecompress::Sync);
            let took = (self.zlib.total_in() - read) as usize;
            let made = (self.zlib.total_out() - written) as usize;
            block = &block[took..];
            plain.extend_from_slice(&chunk[..made]);
            if plain.len() > MAX_BLOCK {
                return Err(FrameError::HeadersTooLarge);
            }
            match result {
                Ok(Status::StreamEnd) => return Err(FrameError::Compression),
                Ok(_) => {
                    if made == chunk.len() {
                        continue;
                    }
                    if block.is_empty() {
                        break;
                    }
                    if took == 0 && made == 0 {
                        return Err(FrameError::Compression);
                    }
                }
                Err(e) if e.needs_dictionary().is_some() => {
                    self.zlib.set_dictionary(DICTIONARY).map_err(|_| FrameError::Compression)?;
                }
                Err(_) => return Err(FrameError::Compression),
            }
        }
        parse(&plain)
    }
}

fn parse(mut plain: &[u8]) -> Result<Headers, FrameError> {
    let count = length(&mut plain)?;
    if count > MAX_HEADERS {
        return Err(FrameError::HeadersTooLarge);
    }
    let mut headers = Headers::with_capacity(count.min(16));
    for _ in 0..count {
        let name = text(&mut plain)?;
        // Upstream's framer ends the connection here, too.
        if name.chars().any(char::is_uppercase) {
            return Err(FrameError::Headers);
        }
        let value = text(&mut plain)?;
        headers.push((name, value));
    }
    let mut names = HashSet::with_capacity(headers.len());
    if headers.iter().all(|(name, _)| names.insert(name.as_str())) {
        return Ok(headers);
    }
    Err(FrameError::Headers)
}

fn length(plain: &mut &[u8]) -> Result<usize, FrameError> {
    if plain.len() < 4 {
        return Err(FrameError::Headers);
    }
    Ok(plain.get_u32() as usize)
}

fn text(plain: &mut &[u8]) -> Result<String, FrameError> {
    let n = length(plain)?;
    if n > plain.len() {
        return Err(FrameError::Headers);
    }
    let (head, tail) = plain.split_at(n);
    *plain = tail;
    String::from_utf8(head.to_vec()).map_err(|_| FrameError::Headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionary_is_that_of_the_draft() {
        let mut zlib = Compress::new(Compression::best(), true);
        assert_eq!(zlib.set_dictionary(DICTIONARY).unwrap(), 0xe3c6_a7c2);
    }

    #[test]
    fn blocks_share_one_stream() {
        let mut deflater = Deflater::new();
        let mut inflater = Inflater::new();
        let big: Headers = (0..200).map(|i| (format!("name-{i}"), "v".repeat(i))).collect();
        for headers in
            [vec![], vec![("streamtype".into(), "error".into())], big, vec![("a".into(), String::new())]]
        {
            let mut block = BytesMut::new();
            deflater.encode(&headers, &mut block).unwrap();
            assert_eq!(inflater.decode(&block).unwrap(), headers);
        }
    }

    #[test]
    fn names_are_lowercase_and_stand_once() {
        let check = |names: [&str; 2], expected: bool| {
            let mut plain = vec![0, 0, 0, 2];
            for name in names {
                plain.extend_from_slice(&[0, 0, 0, name.len() as u8]);
                plain.extend_from_slice(name.as_bytes());
                plain.extend_from_slice(&[0, 0, 0, 1, b'v']);
            }
            assert_eq!(parse(&plain).is_ok(), expected, "{names:?}");
        };
        check(["port", "streamtype"], true);
        check(["port", "streamType"], false);
        check(["port", "port"], false);
    }

    #[test]
    fn a_bomb_is_refused() {
        let mut zlib = Compress::new(Compression::best(), true);
        zlib.set_dictionary(DICTIONARY).unwrap();
        let mut block = Vec::with_capacity(64 << 10);
        zlib.compress_vec(&vec![0u8; 8 << 20], &mut block, FlushCompress::Sync).unwrap();
        assert!(matches!(Inflater::new().decode(&block), Err(FrameError::HeadersTooLarge)));
    }
}
