//! Messages that are exchanged with other servers. Their answers may hold anything; hickory decodes them, and only what
//! it encodes again goes on.

use hickory_proto::op::Message;
use hickory_proto::rr::{RData, Record};

use crate::cache::{Answer, Question};
use crate::packet::{self, HEADER, IN, Rcode, UDP_SIZE, flag, word};

/// How long a server's failure holds, in seconds; CoreDNS'.
const FAILURE_TTL: u32 = 5;

/// The reason for which a packet is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It answers another question, or none: it may not come from the server at all.
    Foreign,
    /// The server does not speak EDNS.
    NoEdns,
    /// It is cut: the whole is to be had over TCP.
    Truncated,
    /// It cannot be decoded.
    Malformed,
}

/// A question as it is sent.
pub fn ask(question: &Question, id: u16, edns: bool) -> Vec<u8> {
    let flags = flag::RD | if question.unchecked { flag::CD } else { 0 };
    let mut out = Vec::with_capacity(HEADER + question.name.len() + 15);
    for word in [id, flags, 1, 0, 0, u16::from(edns)] {
        out.extend(word.to_be_bytes());
    }
    out.extend(&question.name);
    out.extend(question.kind.to_be_bytes());
    out.extend(IN.to_be_bytes());
    if edns {
        out.extend([0, 0, 41]);
        out.extend(UDP_SIZE.to_be_bytes());
        out.extend([0, 0, if question.dnssec { 0x80 } else { 0 }, 0, 0, 0]);
    }
    out
}

/// Reads a packet as the answer to a question that was sent with a number.
pub fn read(packet: &[u8], question: &Question, id: u16, edns: bool) -> Result<Answer, Unfit> {
    let head = word(packet, 0).zip(word(packet, 2)).zip(word(packet, 4));
    let ((their_id, flags), questions) = head.ok_or(Unfit::Foreign)?;
    if their_id != id || flags & flag::QR == 0 || flags & flag::OPCODE != 0 {
        return Err(Unfit::Foreign);
    }
    let rcode = flags & flag::RCODE;
    let plain = edns && (rcode == Rcode::FormErr as u16 || rcode == Rcode::NotImp as u16);
    if plain && (questions == 0 || repeats(packet, question)) {
        return Err(Unfit::NoEdns);
    }
    if questions != 1 || !repeats(packet, question) {
        return Err(Unfit::Foreign);
    }
    if flags & flag::TC != 0 {
        return Err(Unfit::Truncated);
    }
    let mut message = Message::from_vec(packet).map_err(|_| Unfit::Malformed)?;
    message.edns = None;
    message.signature = None;
    let rcode = u16::from(message.metadata.response_code);
    let (ttl, denial) = holds(&message, rcode);
    let bytes = message.to_vec().map_err(|_| Unfit::Malformed)?;
    let whole = u16::try_from(bytes.len()).is_ok() && repeats(&bytes, question);
    if whole { Ok(Answer { message: bytes.into(), ttl, denial }) } else { Err(Unfit::Malformed) }
}

/// Whether a packet repeats the question.
fn repeats(packet: &[u8], question: &Question) -> bool {
    let end = HEADER + question.name.len();
    packet.get(HEADER..end).is_some_and(|name| name.eq_ignore_ascii_case(&question.name))
        && word(packet, end) == Some(question.kind)
        && word(packet, end + 2) == Some(IN)
}

/// How long an answer holds, in seconds, and whether it is a denial.
fn holds(message: &Message, rcode: u16) -> (u32, bool) {
    let shortest = |records: &[Record]| records.iter().map(|r| r.ttl).min();
    let start = message.authorities.iter().find_map(|r| match &r.data {
        RData::SOA(soa) => Some(r.ttl.min(soa.minimum)),
        _ => None,
    });
    match rcode {
        0 if !message.answers.is_empty() => (shortest(&message.answers).unwrap_or(0), false),
        // RFC 2308: a denial without the zone's start is not kept.
        0 | 3 => (start.unwrap_or(0).min(shortest(&message.answers).unwrap_or(u32::MAX)), true),
        2 => (FAILURE_TTL, true),
        _ => (0, true),
    }
}

/// An answer that says that nobody gave one. It is not kept.
pub(crate) fn failure(question: &Question) -> Answer {
    let mut out = ask(question, 0, false);
    let flags = flag::QR | Rcode::ServFail as u16;
    out[2..4].copy_from_slice(&flags.to_be_bytes());
    Answer { message: out.into(), ttl: 0, denial: true }
}

/// Joins our CNAMEs, which end with `cnames`, with another server's answer for where they lead. The records of that
/// have `ttl` left.
pub fn join(cnames: &[u8], answer: &Answer, ttl: u32) -> Option<Vec<u8>> {
    let mut ours = Message::from_vec(cnames).ok()?;
    let mut theirs = Message::from_vec(&answer.message).ok()?;
    for record in theirs.answers.iter_mut().chain(&mut theirs.authorities) {
        record.ttl = ttl;
    }
    ours.edns = None;
    ours.metadata.authoritative = false;
    ours.metadata.truncation = false;
    ours.metadata.response_code = theirs.metadata.response_code;
    ours.answers.append(&mut theirs.answers);
    ours.authorities = theirs.authorities;
    ours.to_vec().ok().filter(|m| u16::try_from(m.len()).is_ok() && packet::rcode_of(m) < 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        Question { name: b"\x01a\x07example\0"[..].into(), kind: 1, dnssec: false, unchecked: false }
    }

    /// An answer with flags and records.
    fn packet(flags: u16, counts: [u8; 3], records: &[u8]) -> Vec<u8> {
        let mut out = ask(&question(), 7, false);
        out[2..4].copy_from_slice(&(flag::QR | flags).to_be_bytes());
        for (i, count) in counts.into_iter().enumerate() {
            out[7 + 2 * i] = count;
        }
        out.extend(records);
        out
    }

    const A: &[u8] = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x0a\0\0\x01";
    const SOA: &[u8] =
        b"\xc0\x0e\0\x06\0\x01\0\0\0\x20\0\x18\0\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x05\0\0";
    const OPT: &[u8] = b"\0\0\x29\x10\0\0\0\0\0\0\0";

    #[test]
    fn answers() {
        let check = |packet: &[u8], want: Result<(u32, bool), Unfit>| {
            let got = read(packet, &question(), 7, true).map(|a| (a.ttl, a.denial));
            assert_eq!(got, want, "{packet:?}");
        };
        let mut soa = SOA.to_vec();
        soa.truncate(12 + 22);
        soa[11] = 22;
        check(&packet(0, [1, 0, 0], A), Ok((60, false)));
        check(&packet(0, [1, 0, 1], &[A, OPT].concat()), Ok((60, false)));
        check(&packet(3, [0, 1, 0], &soa), Ok((5, true)));
        check(&packet(0, [0, 1, 0], &soa), Ok((5, true)));
        check(&packet(3, [0, 0, 0], b""), Ok((0, true)));
        check(&packet(2, [0, 0, 0], b""), Ok((5, true)));
        check(&packet(5, [0, 0, 0], b""), Ok((0, true)));
        check(&packet(1, [0, 0, 0], b""), Err(Unfit::NoEdns));
        check(&packet(flag::TC, [1, 0, 0], A), Err(Unfit::Truncated));
        check(&packet(0, [2, 0, 0], A), Err(Unfit::Malformed));
        check(&packet(0, [1, 0, 0], &A[..12]), Err(Unfit::Malformed));
        check(b"", Err(Unfit::Foreign));
        check(&ask(&question(), 7, true), Err(Unfit::Foreign));
        let mut other = packet(0, [1, 0, 0], A);
        other[1] = 8;
        check(&other, Err(Unfit::Foreign));
        let mut other = packet(0, [1, 0, 0], A);
        other[13] = b'b';
        check(&other, Err(Unfit::Foreign));
        other[13] = b'A';
        check(&other, Ok((60, false)));
    }

    #[test]
    fn opt_records_stay_behind() {
        let answer = read(&packet(0, [1, 0, 1], &[A, OPT].concat()), &question(), 7, true).unwrap();
        let message = Message::from_vec(&answer.message).unwrap();
        assert_eq!((message.answers.len(), message.additionals.len(), message.edns), (1, 0, None));
    }
}
