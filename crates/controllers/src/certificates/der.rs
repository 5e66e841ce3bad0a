//! The writing of DER, as far as certificates need it.

use jiff::Timestamp;
use jiff::tz::TimeZone;

pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// An element of a tag, with the content of its parts.
pub(super) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut all = Vec::with_capacity(length + 6);
    all.push(tag);
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => all.push(short),
        _ => {
            let bytes = length.to_be_bytes();
            let bytes = &bytes[bytes.iter().take_while(|b| **b == 0).count()..];
            all.push(0x80 | u8::try_from(bytes.len()).unwrap_or(8));
            all.extend(bytes);
        }
    }
    for part in parts {
        all.extend(*part);
    }
    all
}

/// A whole number that is not negative, from its bytes.
pub(super) fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let bytes = &bytes[bytes.iter().take_while(|b| **b == 0).count()..];
    let sign: &[u8] = if bytes.first().is_none_or(|b| *b >= 0x80) { &[0] } else { &[] };
    element(INTEGER, &[sign, bytes])
}

/// A string of named bits, the first of which is the highest of the first byte: without those at the end that are not
/// set.
pub(super) fn named_bits(bits: [u8; 2]) -> Vec<u8> {
    let used = if bits[1] != 0 { 2 } else { usize::from(bits[0] != 0) };
    let unused = bits[..used].last().map_or(0, |last| last.trailing_zeros());
    element(BIT_STRING, &[&[u8::try_from(unused).unwrap_or(0)], &bits[..used]])
}

/// A time, to the second, in the form that its year needs.
pub(super) fn time(at: Timestamp) -> Vec<u8> {
    let at = at.to_zoned(TimeZone::UTC);
    let (tag, form) = if (1950..2050).contains(&at.year()) {
        (UTC_TIME, "%y%m%d%H%M%SZ")
    } else {
        (GENERALIZED_TIME, "%Y%m%d%H%M%SZ")
    };
    element(tag, &[at.strftime(form).to_string().as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        let check = |length: usize, head: &[u8]| {
            let all = element(OCTET_STRING, &[&vec![7; length]]);
            assert_eq!((&all[..head.len()], all.len()), (head, head.len() + length), "{length}");
        };
        check(0, &[4, 0]);
        check(127, &[4, 127]);
        check(128, &[4, 0x81, 128]);
        check(255, &[4, 0x81, 255]);
        check(256, &[4, 0x82, 1, 0]);
        check(70000, &[4, 0x83, 1, 0x11, 0x70]);
    }

    #[test]
    fn values() {
        assert_eq!(unsigned(&[0, 0, 1]), [2, 1, 1]);
        assert_eq!(unsigned(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(unsigned(&[]), [2, 1, 0]);
        assert_eq!(named_bits([0x80, 0]), [3, 2, 7, 0x80]);
        assert_eq!(named_bits([0xa0, 0]), [3, 2, 5, 0xa0]);
        assert_eq!(named_bits([0x08, 0x80]), [3, 3, 7, 0x08, 0x80]);
        assert_eq!(named_bits([0, 0]), [3, 1, 0]);
        let check = |text: &str, tag: u8, expected: &str| {
            let got = time(text.parse().unwrap());
            assert_eq!((got[0], std::str::from_utf8(&got[2..]).unwrap()), (tag, expected));
        };
        check("2026-01-02T03:04:05.9Z", UTC_TIME, "260102030405Z");
        check("2049-12-31T23:59:59Z", UTC_TIME, "491231235959Z");
        check("2050-01-01T00:00:00Z", GENERALIZED_TIME, "20500101000000Z");
    }
}
