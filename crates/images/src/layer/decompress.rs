//! A layer's compression: gzip of any number of members, zstd of any number of frames, or none. It is told by the
//! first bytes, since registries have layers whose media type is wrong.

use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest window of zstd, and so the memory that a layer may ask for: zstd's own bound without options.
const MAX_WINDOW: u64 = 128 << 20;

/// Reads what was compressed.
pub fn decompress<'a>(mut source: impl BufRead + Send + 'a) -> io::Result<Box<dyn Read + Send + 'a>> {
    let mut first = Vec::with_capacity(4);
    (&mut source).take(4).read_to_end(&mut first)?;
    let (gzip, zstd) = (first.starts_with(&[0x1f, 0x8b]), is_zstd(&first));
    let source = io::Cursor::new(first).chain(source);
    Ok(if gzip {
        Box::new(MultiGzDecoder::new(source))
    } else if zstd {
        Box::new(Zstd { source, decoder: FrameDecoder::new(), in_frame: false })
    } else {
        Box::new(source)
    })
}

/// A frame's first bytes, or those of a frame to be skipped.
fn is_zstd(first: &[u8]) -> bool {
    matches!(first, [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18])
}

struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

fn bad(error: &FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the zstd stream is damaged: {error}"))
}

impl<R: BufRead> Zstd<R> {
    /// Begins the next frame; false at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            self.decoder.set_max_window_size(MAX_WINDOW);
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    self.in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped = io::copy(&mut (&mut self.source).take(u64::from(length)), &mut io::sink())?;
                    if skipped < u64::from(length) {
                        return Err(bad(&FrameDecoderError::FailedToSkipFrame));
                    }
                }
                Err(error) => return Err(bad(&error)),
            }
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.in_frame {
                if self.decoder.can_collect() > 0 {
                    return self.decoder.read(buffer);
                }
                if !self.decoder.is_finished() {
                    let one = BlockDecodingStrategy::UptoBlocks(1);
                    self.decoder.decode_blocks(&mut self.source, one).map_err(|e| bad(&e))?;
                    continue;
                }
                self.in_frame = false;
            }
            if !self.next_frame()? {
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn check(compressed: &[u8], expected: &[u8]) {
        let mut read = Vec::new();
        decompress(compressed).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == expected, "{} bytes, not {}", read.len(), expected.len());
    }

    fn fails(compressed: &[u8]) {
        let mut read = Vec::new();
        assert!(decompress(compressed).and_then(|mut r| r.read_to_end(&mut read)).is_err());
    }

    #[test]
    fn every_form_is_known_by_its_first_bytes() {
        let data: Vec<u8> = (0..300_000_u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        check(b"", b"");
        check(b"ab", b"ab");
        check(&data, &data);
        check(&gzip(&data), &data);
        let zstd = |data: &[u8]| compress_to_vec(data, CompressionLevel::Fastest);
        check(&zstd(&data), &data);
        check(&[gzip(&data[..1000]), gzip(b""), gzip(&data[1000..])].concat(), &data);
        let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 5, 0, 0, 0][..], b"extra"].concat();
        check(&[zstd(&data[..1000]), skipped.clone(), zstd(&data[1000..]), skipped.clone()].concat(), &data);
        check(&[skipped, zstd(&data)].concat(), &data);
    }

    #[test]
    fn damage_is_an_error() {
        let data = vec![7; 100_000];
        let zipped = gzip(&data);
        fails(&zipped[..zipped.len() - 4]);
        fails(&[&zipped[..], b"trailing"].concat());
        let zstd = compress_to_vec(&data[..], CompressionLevel::Fastest);
        fails(&zstd[..zstd.len() - 1]);
        fails(&[&zstd[..], b"trailing"].concat());
        fails(&[0x50, 0x2a, 0x4d, 0x18, 255, 255, 255, 255]);
        // A window of 2 GiB.
        fails(&[0x28, 0xb5, 0x2f, 0xfd, 0, 0xa8, 0, 0, 0]);
    }
}
