//! Neighbour discovery: who has an IPv6 address (RFC 4861).

use std::net::{IpAddr, Ipv6Addr};

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// The option with the hardware address of the target, and its length in units of eight bytes.
const TARGET_HARDWARE: [u8; 2] = [2, 1];

/// The group to which those write who ask for an address.
pub(super) fn group(of: IpAddr) -> Option<Ipv6Addr> {
    let IpAddr::V6(address) = of else { return None };
    let [.., a, b, c] = address.octets();
    Some(Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]))
}

/// Reads the address for which a packet asks; `None` if it asks for nothing.
pub(super) fn solicitation(packet: &[u8]) -> Option<Ipv6Addr> {
    let target: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
    (packet.get(..2)? == [SOLICITATION, 0]).then(|| Ipv6Addr::from(target))
}

/// Makes the packet that tells where an address is; the kernel fills in the checksum.
pub(super) fn advertisement(target: Ipv6Addr, hardware: [u8; 6], solicited: bool) -> Vec<u8> {
    let flags = OVERRIDE | if solicited { SOLICITED } else { 0 };
    let head = [ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0];
    [&head[..], &target.octets(), &TARGET_HARDWARE, &hardware].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets() {
        let target: Ipv6Addr = "2001:db8::12:3456".parse().unwrap();
        assert_eq!(group(target.into()), Some("ff02::1:ff12:3456".parse().unwrap()));
        assert_eq!(group(IpAddr::from([192, 0, 2, 1])), None);
        let asked = [&[SOLICITATION, 0, 7, 7, 0, 0, 0, 0][..], &target.octets()].concat();
        assert_eq!(solicitation(&asked), Some(target));
        for end in 0..asked.len() {
            assert_eq!(solicitation(&asked[..end]), None, "{end}");
        }
        let told = advertisement(target, [2, 0, 0, 0, 0, 1], true);
        assert_eq!((told.len(), told[4], solicitation(&told)), (32, 0x60, None));
        assert_eq!(advertisement(target, [2, 0, 0, 0, 0, 1], false)[4], 0x20);
    }
}
