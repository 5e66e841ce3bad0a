//! Clients whose name of the host is a path. Programs that use gRPC's Go library and connect to a socket by a dialer of
//! their own, as most device plugins do, send the socket's path as the host of a request, with or without escapes. That
//! is no host, and HTTP/2's implementation here ends such a stream. Nobody reads the host of a request to a socket, so
//! [`Caller`] puts other letters in the place of those that no host has, in the bytes that come from the client. The
//! number of letters stays the same, and with it the tables of compressed headers on both sides (RFC 7541, section 4.1).

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::{Connected, UdsConnectInfo};

/// The bytes before the first frame of a connection.
const PREFACE: usize = 24;
/// The bytes before a frame's content.
const HEAD: usize = 9;
/// The largest frame that a server takes, unless it says otherwise, which ours does not.
const MOST: usize = 1 << 14;
/// The bytes that are read at once.
const CHUNK: usize = 1 << 12;
/// The kind of frames with which a request begins.
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The number of the header `:authority` in HPACK's static table.
const AUTHORITY: usize = 1;
/// The byte that comes in the place of others.
const STAND_IN: u8 = b'-';

/// The bytes of a client, frame by frame.
#[derive(Debug)]
enum State {
    /// So many go on as they are.
    Pass(usize),
    /// A frame begins.
    Head,
    /// A frame of headers, with its head.
    Headers(usize),
}

/// Puts right what a client sends. It holds back one frame of headers at most.
#[derive(Debug)]
struct Filter {
    state: State,
    held: Vec<u8>,
    ready: Vec<u8>,
}

impl Default for Filter {
    fn default() -> Self {
        Self { state: State::Pass(PREFACE), held: Vec::new(), ready: Vec::new() }
    }
}

impl Filter {
    /// Takes bytes in; those that can go on are in `ready`.
    fn take(&mut self, mut input: &[u8]) {
        while !input.is_empty() {
            let wanted = match self.state {
                State::Pass(left) => left,
                State::Head => HEAD - self.held.len(),
                State::Headers(all) => all - self.held.len(),
            };
            let (now, rest) = input.split_at(wanted.min(input.len()));
            input = rest;
            if let State::Pass(left) = self.state {
                self.ready.extend_from_slice(now);
                self.state = after(left - now.len());
                continue;
            }
            self.held.extend_from_slice(now);
            if now.len() == wanted {
                self.whole();
            }
        }
    }

    /// The head of a frame is there, or the whole of one with headers.
    fn whole(&mut self) {
        let length = self.held.iter().take(3).fold(0, |n, byte| n << 8 | usize::from(*byte));
        let is_headers = self.held.get(3) == Some(&HEADERS) && (1..=MOST).contains(&length);
        self.state = match self.state {
            State::Head if is_headers => {
                self.state = State::Headers(HEAD + length);
                return;
            }
            State::Headers(_) => {
                let flags = self.held.get(4).copied().unwrap_or_default();
                // Content that cannot be read goes on as it is: the server says why it is wrong.
                let _ = self.held.get_mut(HEAD..).and_then(|content| mend(content, flags));
                State::Head
            }
            _ => after(length),
        };
        self.ready.append(&mut self.held);
    }

    /// The client sends nothing more.
    fn end(&mut self) {
        self.ready.append(&mut self.held);
    }
}

fn after(left: usize) -> State {
    if left == 0 { State::Head } else { State::Pass(left) }
}

/// Puts the authority right in the content of a frame of headers. None: the content cannot be read to its end.
fn mend(content: &mut [u8], flags: u8) -> Option<()> {
    let (mut begin, mut end) = (0, content.len());
    if flags & PADDED != 0 {
        begin = 1;
        end = end.checked_sub(usize::from(*content.first()?))?;
    }
    if flags & PRIORITY != 0 {
        begin += 5;
    }
    let block = content.get_mut(begin..end)?;
    let mut at = 0;
    while let Some(first) = block.get(at).copied() {
        // The forms of RFC 7541, section 6: a header from the table, a new size of the table, a header with its value.
        let bits = match first {
            0x80.. => 7,
            0x40.. => 6,
            0x20.. => 5,
            _ => 4,
        };
        let (number, next) = integer(block, at, bits)?;
        at = next;
        if matches!(bits, 5 | 7) {
            continue;
        }
        if number == 0 {
            at = string(block, at)?.1.end;
        }
        let (is_huffman, value) = string(block, at)?;
        at = value.end;
        if number == AUTHORITY {
            let value = block.get_mut(value)?;
            if is_huffman { mend_huffman(value) } else { mend_plain(value) }
        }
    }
    Some(())
}

/// An integer whose first bits are the last ones of a byte (RFC 7541, section 5.1), and where the next thing begins.
fn integer(block: &[u8], at: usize, bits: u32) -> Option<(usize, usize)> {
    let mask = (1_usize << bits) - 1;
    let mut value = usize::from(*block.get(at)?) & mask;
    if value < mask {
        return Some((value, at + 1));
    }
    // More than four bytes say more than a frame can hold.
    for (index, byte) in block.get(at + 1..)?.iter().take(4).enumerate() {
        value += usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, at + 2 + index));
        }
    }
    None
}

/// Whether a string is in Huffman's code, and where its bytes are.
fn string(block: &[u8], at: usize) -> Option<(bool, Range<usize>)> {
    let is_huffman = block.get(at)? & 0x80 != 0;
    let (length, begin) = integer(block, at, 7)?;
    let end = begin.checked_add(length).filter(|end| *end <= block.len())?;
    Some((is_huffman, begin..end))
}

fn mend_plain(value: &mut [u8]) {
    for byte in value.iter_mut().filter(|byte| matches!(byte, b'%' | b'/')) {
        *byte = STAND_IN;
    }
}

/// The letters that no host has, and the one in their place, in Huffman's code (RFC 7541, appendix B). All have six bits.
const PERCENT: u16 = 0x15;
const SLASH: u16 = 0x18;
const HYPHEN: u16 = 0x16;

/// The lengths of codes by the first 16 bits: below which number a code has so many.
const LENGTHS: [(u16, usize); 10] = [
    (0x5000, 5),
    (0xb800, 6),
    (0xf800, 7),
    (0xfe00, 8),
    (0xff40, 10),
    (0xffa0, 11),
    (0xffc0, 12),
    (0xfff0, 13),
    (0xfff8, 14),
    (0xfffe, 15),
];

fn mend_huffman(value: &mut [u8]) {
    let mut at = 0;
    loop {
        // Behind the end are ones, as in the code's own padding, which has no length below.
        let byte = |index: usize| u32::from(value.get(at / 8 + index).copied().unwrap_or(0xff));
        let bits = (byte(0) << 16 | byte(1) << 8 | byte(2)) >> (8 - at % 8) & 0xffff;
        let next = u16::try_from(bits).unwrap_or(u16::MAX);
        // Longer codes are of bytes that a host cannot have in any case.
        let Some((_, length)) = LENGTHS.iter().find(|(end, _)| next < *end) else { return };
        if *length == 6 && matches!(next >> 10, PERCENT | SLASH) {
            for bit in 0..6 {
                let Some(byte) = value.get_mut((at + bit) / 8) else { return };
                let mask = 0x80 >> ((at + bit) % 8);
                *byte = if HYPHEN >> (5 - bit) & 1 == 1 { *byte | mask } else { *byte & !mask };
            }
        }
        at += length;
        if at >= value.len() * 8 {
            return;
        }
    }
}

/// A client's connection to a socket, whatever it calls the host.
#[derive(Debug)]
pub struct Caller {
    stream: UnixStream,
    filter: Filter,
    /// How much of what is ready was read.
    read: usize,
}

impl Caller {
    /// A connection that nothing was read of.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, filter: Filter::default(), read: 0 }
    }
}

impl Connected for Caller {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Caller {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = &mut *self;
        while me.read == me.filter.ready.len() {
            me.filter.ready.clear();
            me.read = 0;
            let mut chunk = [0; CHUNK];
            let mut got = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut me.stream).poll_read(context, &mut got))?;
            if got.filled().is_empty() {
                me.filter.end();
                break;
            }
            me.filter.take(got.filled());
        }
        let rest = me.filter.ready.get(me.read..).unwrap_or_default();
        let now = rest.get(..into.remaining()).unwrap_or(rest);
        into.put_slice(now);
        me.read += now.len();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Caller {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().map(|d| (d as char).to_digit(16).unwrap() as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// Headers as Go's encoder writes them: of a call of `GetInfo` whose authority has this code.
    fn block(authority: &str) -> Vec<u8> {
        let before = "8386459c62ba2d98d558598c84d83498f52fb4b31909b06931ea63115392a94f41";
        let after = "5f8b1d75d0620d263d4c4d65647a8a9acac8b4c7602bbc25c340027465864d833505b11f";
        let value = bytes(authority);
        let length = 0x80 | u8::try_from(value.len()).unwrap();
        [bytes(before), vec![length], value, bytes(after)].concat()
    }

    fn frame(kind: u8, flags: u8, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], content].concat()
    }

    /// `%2Frun%2Fkubelet.sock`, `/run/kubelet.sock`, and these with hyphens.
    const ESCAPED: (&str, &str) = ("54586cb6a54587adb19682a5741c9d7f", "58586cb6a58587adb19682a5741c9d7f");
    const RAW: (&str, &str) = ("62cb6a63adb19682a5741c9d7f", "5acb6a5badb19682a5741c9d7f");

    #[test]
    fn paths_become_hosts() {
        let check = |sent: &str, expected: &str| {
            let mut block = block(sent);
            assert_eq!(mend(&mut block, 0x4), Some(()), "{sent}");
            assert_eq!(block, self::block(expected), "{sent}");
            // With padding and a priority before it.
            let mut padded = [&[3, 0, 0, 0, 0, 0], &self::block(sent)[..], &[0; 3]].concat();
            assert_eq!(mend(&mut padded, PADDED | PRIORITY), Some(()), "{sent}");
            assert_eq!(padded[6..padded.len() - 3], self::block(expected), "{sent}");
        };
        check(ESCAPED.0, ESCAPED.1);
        check(RAW.0, RAW.1);
        // `localhost`
        check("a0e41d139d09", "a0e41d139d09");
        let mut plain = [&[0x41, 5], &b"/a%2F"[..]].concat();
        mend(&mut plain, 0).unwrap();
        assert_eq!(plain, [&[0x41, 5], &b"-a-2F"[..]].concat());
        // Never to be in a table; the path of a request is another header.
        let mut plain = [&[0x11, 2], &b"/a"[..], &[0x04, 2], b"/b"].concat();
        mend(&mut plain, 0).unwrap();
        assert_eq!(plain, [&[0x11, 2], &b"-a"[..], &[0x04, 2], b"/b"].concat());
    }

    #[test]
    fn what_cannot_be_read_stays() {
        for broken in ["41", "418a54", "41ff", "41ffffffffff", "7fffffffff", "40", "0085"] {
            let mut content = bytes(broken);
            assert_eq!(mend(&mut content, 0), None, "{broken}");
            assert_eq!(content, bytes(broken));
        }
        assert_eq!(mend(&mut [200, 1], PADDED), None);
        assert_eq!(mend(&mut [], PADDED | PRIORITY), None);
        // Codes of every length, and none that fits.
        let mut odd = [&[0x41, 0x84], &[0xff; 4][..]].concat();
        assert_eq!(mend(&mut odd, 0), Some(()));
        assert_eq!(odd[2..], [0xff; 4]);
    }

    #[test]
    fn frames_go_on_however_they_arrive() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let sent = |authority| {
            let (settings, data) = (frame(4, 0, &[]), frame(0, 1, &vec![1; 40_000]));
            [preface.clone(), settings, frame(1, 4, &block(authority)), data, frame(1, 4, &[])].concat()
        };
        let (from, to) = (sent(ESCAPED.0), sent(ESCAPED.1));
        for size in [1, 2, 7, 33, 4096, 1 << 20] {
            let mut filter = Filter::default();
            from.chunks(size).for_each(|chunk| filter.take(chunk));
            assert!(filter.ready == to && filter.held.is_empty(), "{size}");
        }
        // One that is too large goes on as it comes.
        let large = [preface.clone(), frame(1, 4, &vec![0; MOST + 1])].concat();
        let mut filter = Filter::default();
        filter.take(&large[..PREFACE + HEAD + 5]);
        assert_eq!(filter.ready, large[..PREFACE + HEAD + 5]);
        // A client that goes away in the middle.
        let mut filter = Filter::default();
        filter.take(&from[..PREFACE + HEAD + HEAD + 20]);
        filter.end();
        assert_eq!(filter.ready, from[..PREFACE + HEAD + HEAD + 20]);
    }
}
