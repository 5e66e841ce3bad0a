//! The start of a zone (SOA), which every denial has.

use super::config::ZoneConfig;
use crate::packet::{Owner, Section, Writer, kind, pointer};

/// The longest TTL of the record itself; CoreDNS'.
const LONGEST: u32 = 300;

/// Writes the start of a zone whose name begins at a place of the message, into a section.
pub(super) fn start(
    config: &ZoneConfig,
    serial: u32,
    writer: &mut Writer<'_>,
    (at, section): (usize, Section),
) {
    let zone = pointer(at);
    writer.record(section, Owner::At(at), kind::SOA, config.ttl.min(LONGEST), |data| {
        data.extend(b"\x02ns\x03dns");
        data.extend(zone);
        data.extend(b"\x0ahostmaster");
        data.extend(zone);
        for number in [serial, 7200, 1800, 86_400, config.ttl] {
            data.extend(number.to_be_bytes());
        }
    });
}
