//! Messages on the wire, as far as every query needs them: questions are read, answers written without any other form
//! between. Messages of other servers are read by hickory (see `upstream`).

use crate::name::QName;

/// The length of a header.
pub const HEADER: usize = 12;
/// The longest answer over UDP, and the longest question that is asked for: larger packets are split on the way.
pub const UDP_SIZE: u16 = 1232;
/// The longest answer over UDP to a client that does not speak EDNS.
const PLAIN_SIZE: u16 = 512;
/// The length of our OPT record.
const OPT_SIZE: usize = 11;

/// Record types, with their numbers.
pub mod kind {
    #![allow(missing_docs, reason = "these are the names of RFC 1035 and its successors")]
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const HINFO: u16 = 13;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const OPT: u16 = 41;
    pub const IXFR: u16 = 251;
    pub const AXFR: u16 = 252;
    pub const ANY: u16 = 255;
}

/// The class of the Internet.
pub const IN: u16 = 1;

/// Response codes, with their numbers.
#[allow(missing_docs, reason = "these are the names of RFC 1035 and RFC 6891")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Rcode {
    NoError = 0,
    FormErr = 1,
    ServFail = 2,
    NxDomain = 3,
    NotImp = 4,
    Refused = 5,
    BadVers = 16,
}

impl Rcode {
    /// The name as CoreDNS' metrics have it.
    pub fn name(number: u16) -> &'static str {
        const NAMES: [&str; 11] = [
            "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET",
            "NXRRSET", "NOTAUTH", "NOTZONE",
        ];
        match number {
            16 => "BADVERS",
            _ => NAMES.get(usize::from(number)).copied().unwrap_or("other"),
        }
    }
}

/// The bits of a header's second word.
pub mod flag {
    #![allow(missing_docs, reason = "these are the names of RFC 1035 and RFC 4035")]
    pub const QR: u16 = 1 << 15;
    pub const OPCODE: u16 = 15 << 11;
    pub const AA: u16 = 1 << 10;
    pub const TC: u16 = 1 << 9;
    pub const RD: u16 = 1 << 8;
    pub const RA: u16 = 1 << 7;
    pub const AD: u16 = 1 << 5;
    pub const CD: u16 = 1 << 4;
    pub const RCODE: u16 = 15;
}

/// How a query came, and so how its answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A datagram.
    Udp,
    /// A stream, with lengths before the messages.
    Tcp,
}

/// A question that can be answered.
#[derive(Debug, Clone)]
pub struct Query {
    /// The client's number for it.
    pub id: u16,
    /// The header's flags.
    pub flags: u16,
    /// The name that is asked for.
    pub name: QName,
    /// The type that is asked for.
    pub kind: u16,
    /// The class that is asked for.
    pub class: u16,
    /// The client's word of itself, if it speaks EDNS.
    pub edns: Option<Edns>,
}

/// The part of an OPT record that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edns {
    /// The longest datagram that the client takes.
    pub size: u16,
    /// The version; there is 0 alone.
    pub version: u8,
    /// Whether DNSSEC's records are wanted.
    pub dnssec: bool,
}

/// A message that asks nothing.
#[derive(Debug, PartialEq, Eq)]
pub enum Bad {
    /// It is an answer, or too short for any: nobody waits for a word.
    Ignore,
    /// It is refused, with a header alone.
    Refuse {
        /// The number.
        id: u16,
        /// The flags.
        flags: u16,
        /// The reason.
        rcode: Rcode,
    },
}

impl Query {
    /// Reads a query.
    pub fn read(packet: &[u8]) -> Result<Self, Bad> {
        let header = Header::read(packet).ok_or(Bad::Ignore)?;
        let (id, flags) = (header.id, header.flags);
        if flags & flag::QR != 0 {
            return Err(Bad::Ignore);
        }
        let refuse = |rcode| Bad::Refuse { id, flags, rcode };
        if flags & flag::OPCODE != 0 {
            return Err(refuse(Rcode::NotImp));
        }
        let malformed = || refuse(Rcode::FormErr);
        if header.counts[0] != 1 {
            return Err(malformed());
        }
        let name = packet.get(HEADER..).and_then(QName::read).ok_or_else(malformed)?;
        let at = HEADER + name.asked().len();
        let (kind, class) = word(packet, at).zip(word(packet, at + 2)).ok_or_else(malformed)?;
        let mut query = Self { id, flags, name, kind, class, edns: None };
        for record in Records::of(packet).ok_or_else(malformed)? {
            let record = record.ok_or_else(malformed)?;
            if record.kind == kind::OPT {
                if query.edns.is_some() || record.section != 2 || packet.get(record.start) != Some(&0) {
                    return Err(malformed());
                }
                let [_, version, flags, _] = record.ttl.to_be_bytes();
                query.edns = Some(Edns { size: record.class, version, dnssec: flags & 0x80 != 0 });
            }
        }
        Ok(query)
    }

    /// The longest answer.
    pub fn limit(&self, transport: Transport) -> usize {
        match (transport, self.edns) {
            (Transport::Tcp, _) => usize::from(u16::MAX),
            (Transport::Udp, None) => usize::from(PLAIN_SIZE),
            (Transport::Udp, Some(edns)) => usize::from(edns.size.clamp(PLAIN_SIZE, UDP_SIZE)),
        }
    }

    /// Whether DNSSEC's records are wanted.
    pub fn dnssec(&self) -> bool {
        self.edns.is_some_and(|e| e.dnssec)
    }

    /// The header and the question, as every answer begins.
    fn begin(&self, out: &mut Vec<u8>) {
        out.clear();
        for word in [self.id, 0, 1, 0, 0, 0] {
            out.extend(word.to_be_bytes());
        }
        out.extend(self.name.asked());
        out.extend(self.kind.to_be_bytes());
        out.extend(self.class.to_be_bytes());
    }

    /// The flags of an answer.
    fn answer_flags(&self, rcode: u16, more: u16) -> u16 {
        flag::QR | flag::RA | (self.flags & (flag::RD | flag::CD)) | more | (rcode & flag::RCODE)
    }

    /// Adds our OPT record if the client speaks EDNS.
    fn add_opt(&self, out: &mut Vec<u8>, rcode: u16) {
        let Some(edns) = self.edns else { return };
        out.extend([0, 0, 41]);
        out.extend(UDP_SIZE.to_be_bytes());
        out.extend([(rcode >> 4) as u8, 0, if edns.dnssec { 0x80 } else { 0 }, 0, 0, 0]);
        let count = word(out, 10).unwrap_or_default().saturating_add(1);
        put(out, 10, count);
    }
}

/// A header.
struct Header {
    id: u16,
    flags: u16,
    counts: [u16; 4],
}

impl Header {
    fn read(packet: &[u8]) -> Option<Self> {
        let at = |n| word(packet, n);
        Some(Self { id: at(0)?, flags: at(2)?, counts: [at(4)?, at(6)?, at(8)?, at(10)?] })
    }
}

pub(crate) fn word(packet: &[u8], at: usize) -> Option<u16> {
    packet.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

fn put(packet: &mut [u8], at: usize, value: u16) {
    if let Some(place) = packet.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// The end of a name, which may be compressed.
fn skip_name(packet: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *packet.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(length),
            192.. => return packet.get(at + 1).map(|_| at + 2),
            _ => return None,
        }
    }
}

/// A record's place in a message.
struct Record {
    start: usize,
    /// 0 answers, 1 authority, 2 additional ones.
    section: usize,
    kind: u16,
    class: u16,
    ttl: u32,
    ttl_at: usize,
    end: usize,
}

/// The records of a message; one that breaks off is `None`, and the last.
struct Records<'a> {
    packet: &'a [u8],
    at: usize,
    left: [u16; 3],
}

impl<'a> Records<'a> {
    fn of(packet: &'a [u8]) -> Option<Self> {
        let header = Header::read(packet)?;
        let mut at = HEADER;
        for _ in 0..header.counts[0] {
            at = skip_name(packet, at)? + 4;
        }
        let [_, left @ ..] = header.counts;
        Some(Self { packet, at, left })
    }

    fn read(&self, section: usize) -> Option<Record> {
        let at = skip_name(self.packet, self.at)?;
        let fixed: [u8; 10] = *self.packet.get(at..)?.first_chunk()?;
        let [k0, k1, c0, c1, t0, t1, t2, t3, l0, l1] = fixed;
        let end = at + 10 + usize::from(u16::from_be_bytes([l0, l1]));
        (end <= self.packet.len()).then_some(Record {
            start: self.at,
            section,
            kind: u16::from_be_bytes([k0, k1]),
            class: u16::from_be_bytes([c0, c1]),
            ttl: u32::from_be_bytes([t0, t1, t2, t3]),
            ttl_at: at + 4,
            end,
        })
    }
}

impl Iterator for Records<'_> {
    type Item = Option<Record>;
    fn next(&mut self) -> Option<Option<Record>> {
        let section = self.left.iter().position(|n| *n > 0)?;
        self.left[section] -= 1;
        let record = self.read(section);
        match &record {
            Some(record) => self.at = record.end,
            None => self.left = [0; 3],
        }
        Some(record)
    }
}

/// Writes the answer to something that is no query.
pub fn refuse(id: u16, flags: u16, rcode: Rcode, out: &mut Vec<u8>) {
    out.clear();
    let flags = flag::QR | (flags & (flag::OPCODE | flag::RD | flag::CD)) | (rcode as u16 & flag::RCODE);
    for word in [id, flags, 0, 0, 0, 0] {
        out.extend(word.to_be_bytes());
    }
}

/// Writes an answer without records.
pub fn empty(query: &Query, rcode: Rcode, out: &mut Vec<u8>) {
    query.begin(out);
    put(out, 2, query.answer_flags(rcode as u16, 0));
    query.add_opt(out, rcode as u16);
}

/// Writes another server's answer to the same question: as this client asked, with our OPT record, and as far as it
/// fits. All its records have `ttl` left, if one is given. It must be whole, without an OPT record of its own.
pub fn adapt(message: &[u8], query: &Query, limit: usize, ttl: Option<u32>, out: &mut Vec<u8>) -> Rcode4 {
    query.begin(out);
    let question = out.len();
    let theirs = word(message, 2).unwrap_or_default();
    let rcode = theirs & flag::RCODE;
    let limit = limit - if query.edns.is_some() { OPT_SIZE } else { 0 };
    let (mut counts, mut more) = ([0u16; 3], theirs & flag::AA);
    if query.dnssec() || query.flags & flag::AD != 0 {
        more |= theirs & flag::AD;
    }
    let records = Records::of(message).filter(|r| r.at == question);
    for record in records.into_iter().flatten().map_while(|r| r) {
        if record.end > limit {
            // Additional records may be missing without a word.
            more |= if record.section < 2 { flag::TC } else { 0 };
            break;
        }
        out.extend(&message[record.start..record.end]);
        if let Some(ttl) = ttl {
            out[record.ttl_at..record.ttl_at + 4].copy_from_slice(&ttl.to_be_bytes());
        }
        counts[record.section] += 1;
    }
    for (i, count) in counts.into_iter().enumerate() {
        put(out, 6 + 2 * i, count);
    }
    put(out, 2, query.answer_flags(rcode, more));
    query.add_opt(out, 0);
    rcode
}

/// A response code without EDNS' higher bits.
pub type Rcode4 = u16;

/// The response code of a message.
pub fn rcode_of(message: &[u8]) -> Rcode4 {
    word(message, 2).unwrap_or_default() & flag::RCODE
}

/// The part of an answer that a record stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// The answer itself.
    Answer = 0,
    /// The zone's start, where there is no answer.
    Authority = 1,
    /// Addresses of names in the answer.
    Additional = 2,
}

/// The owner of a record.
#[derive(Debug, Clone, Copy)]
pub enum Owner<'a> {
    /// A name that begins at this place of the message.
    At(usize),
    /// A whole name.
    Wire(&'a [u8]),
}

/// The owner that is the question's name.
pub const ASKED: Owner<'static> = Owner::At(HEADER);

/// Writes an answer, record by record, as far as it fits.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    query: &'a Query,
    limit: usize,
    counts: [u16; 3],
    truncated: bool,
}

impl<'a> Writer<'a> {
    /// Begins an answer with its question.
    pub fn new(query: &'a Query, limit: usize, out: &'a mut Vec<u8>) -> Self {
        query.begin(out);
        let limit = limit - if query.edns.is_some() { OPT_SIZE } else { 0 };
        Self { out, query, limit, counts: [0; 3], truncated: false }
    }

    /// The query that is answered.
    pub fn query(&self) -> &'a Query {
        self.query
    }

    /// Whether records of the answer did not fit.
    pub fn is_full(&self) -> bool {
        self.truncated
    }

    /// How many bytes are left.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.out.len())
    }

    /// Writes a record, and tells where its data begins; `None` if it does not fit.
    pub fn record(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        kind: u16,
        ttl: u32,
        data: impl FnOnce(&mut Vec<u8>),
    ) -> Option<usize> {
        if self.truncated {
            return None;
        }
        let start = self.out.len();
        match owner {
            Owner::At(at) => self.out.extend(pointer(at)),
            Owner::Wire(name) => self.out.extend(name),
        }
        self.out.extend(kind.to_be_bytes());
        self.out.extend(IN.to_be_bytes());
        self.out.extend(ttl.to_be_bytes());
        self.out.extend([0, 0]);
        let at = self.out.len();
        data(self.out);
        let length = self.out.len() - at;
        if self.out.len() > self.limit {
            self.out.truncate(start);
            // Additional records may be missing without a word.
            self.truncated = section != Section::Additional;
            return None;
        }
        put(self.out, at - 2, length as u16);
        self.counts[section as usize] += 1;
        Some(at)
    }

    /// Ends the answer.
    pub fn finish(self, rcode: Rcode, authoritative: bool) {
        for (i, count) in self.counts.into_iter().enumerate() {
            put(self.out, 6 + 2 * i, count);
        }
        let aa = if authoritative { flag::AA } else { 0 };
        let tc = if self.truncated { flag::TC } else { 0 };
        put(self.out, 2, self.query.answer_flags(rcode as u16, aa | tc));
        self.query.add_opt(self.out, rcode as u16);
    }
}

/// A pointer to a name that stands in the message; it reaches 16 KiB.
pub(crate) fn pointer(at: usize) -> [u8; 2] {
    (0xc000 | (at as u16 & 0x3fff)).to_be_bytes()
}

/// Whether a pointer reaches a place.
pub(crate) fn reachable(at: usize) -> bool {
    at < 0x4000
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[u8] = b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    fn with(counts: [u8; 4], tail: &[u8]) -> Vec<u8> {
        let mut packet = PLAIN[..4].to_vec();
        packet.extend(counts.iter().flat_map(|n| [0, *n]));
        packet.extend(&PLAIN[12..]);
        packet.extend(tail);
        packet
    }

    #[test]
    fn queries() {
        let query = Query::read(PLAIN).unwrap();
        assert_eq!((query.id, query.kind, query.class, query.edns), (0x1234, 1, 1, None));
        assert_eq!((query.limit(Transport::Udp), query.limit(Transport::Tcp)), (512, 65535));
        let opt = b"\0\0\x29\x10\0\0\0\x80\0\0\0";
        let query = Query::read(&with([1, 0, 0, 1], opt)).unwrap();
        assert_eq!(query.edns, Some(Edns { size: 4096, version: 0, dnssec: true }));
        assert_eq!(query.limit(Transport::Udp), 1232);
        let small = Query::read(&with([1, 0, 0, 1], b"\0\0\x29\0\x10\0\0\0\0\0\0")).unwrap();
        assert_eq!(small.limit(Transport::Udp), 512);
    }

    #[test]
    fn messages_that_ask_nothing() {
        let check = |packet: &[u8], want: Option<Rcode>| match Query::read(packet) {
            Err(Bad::Ignore) => assert_eq!(want, None, "{packet:?}"),
            Err(Bad::Refuse { rcode, .. }) => assert_eq!(want, Some(rcode), "{packet:?}"),
            Ok(query) => panic!("{query:?}"),
        };
        let opt = b"\0\0\x29\x10\0\0\0\x80\0\0\0";
        check(&PLAIN[..11], None);
        check(b"\x12\x34\x81\x00\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01", None);
        check(b"\x12\x34\x29\x00\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01", Some(Rcode::NotImp));
        check(&PLAIN[..12], Some(Rcode::FormErr));
        check(&PLAIN[..17], Some(Rcode::FormErr));
        check(&with([0, 0, 0, 0], b""), Some(Rcode::FormErr));
        check(&with([2, 0, 0, 0], b"\x01b\0\0\x01\0\x01"), Some(Rcode::FormErr));
        check(&with([1, 0, 0, 1], b""), Some(Rcode::FormErr));
        check(&with([1, 0, 0, 2], &[&opt[..], opt].concat()), Some(Rcode::FormErr));
        check(&with([1, 0, 0, 1], b"\x01x\0\0\x29\x10\0\0\0\x80\0\0\0"), Some(Rcode::FormErr));
        check(&with([1, 0, 0, 1], b"\0\0\x29\x10\0\0\0\x80\0\0\x05ab"), Some(Rcode::FormErr));
        check(b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\0\xc0\x0c\0\x01\0\x01", Some(Rcode::FormErr));
    }

    #[test]
    fn answers_are_cut_where_a_record_ends() {
        let query = Query::read(&with([1, 0, 0, 1], b"\0\0\x29\x02\0\0\0\0\0\0\0")).unwrap();
        let mut whole = Vec::new();
        let mut writer = Writer::new(&query, 65535, &mut whole);
        for n in 0..100u8 {
            assert!(
                writer.record(Section::Answer, ASKED, kind::A, 30, |d| d.extend([10, 0, 0, n])).is_some()
            );
        }
        writer.finish(Rcode::NoError, true);
        let opt = whole.split_off(whole.len() - OPT_SIZE);
        assert_eq!(&opt[..3], b"\0\0\x29");
        put(&mut whole, 10, 0);
        let mut cut = Vec::new();
        assert_eq!(adapt(&whole, &query, 512, Some(7), &mut cut), 0);
        assert!(cut.len() <= 512 && cut.len() > 490, "{}", cut.len());
        assert_eq!(word(&cut, 2).unwrap() & flag::TC, flag::TC);
        assert_eq!(word(&cut, 6), Some(30));
        for record in Records::of(&cut).unwrap() {
            let record = record.unwrap();
            assert_eq!(record.ttl, if record.kind == kind::OPT { 0 } else { 7 });
        }
        let mut written = Vec::new();
        let mut writer = Writer::new(&query, 512, &mut written);
        while writer.record(Section::Answer, ASKED, kind::A, 7, |d| d.extend([10, 0, 0, 1])).is_some() {}
        writer.finish(Rcode::NoError, true);
        assert_eq!(
            (written.len(), word(&written, 2), word(&written, 6)),
            (cut.len(), word(&cut, 2), Some(30))
        );
    }
}
