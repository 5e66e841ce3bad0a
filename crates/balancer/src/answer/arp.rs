//! ARP: who has an IPv4 address (RFC 826, RFC 5227).

use std::net::Ipv4Addr;

/// The header of requests and replies between Ethernet and IPv4: hardware, protocol, and the lengths of addresses.
const HEADER: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const EVERYBODY: [u8; 6] = [0xff; 6];
/// The length of a frame's own header, and that of the whole.
const FRAME: usize = 14;
const LENGTH: usize = FRAME + 28;

/// A request for an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) hardware: [u8; 6],
    pub(super) sender: Ipv4Addr,
    pub(super) target: Ipv4Addr,
}

/// Reads a frame; `None` if it asks for nothing.
pub(super) fn request(frame: &[u8]) -> Option<Request> {
    let body = frame.get(FRAME..LENGTH)?;
    let address = |at: usize| body.get(at..at + 4)?.try_into().ok().map(|a: [u8; 4]| Ipv4Addr::from(a));
    let is_request = body.get(..6)? == HEADER && body.get(6..8)? == [0, REQUEST];
    let request =
        Request { hardware: body.get(8..14)?.try_into().ok()?, sender: address(14)?, target: address(24)? };
    // An announcement asks for the sender's own address.
    (is_request && request.sender != request.target).then_some(request)
}

/// Makes the answer that the address is at `hardware`.
pub(super) fn reply(to: &Request, hardware: [u8; 6]) -> Vec<u8> {
    frame(REPLY, to.hardware, (hardware, to.target), (to.hardware, to.sender))
}

/// Makes the frames that tell everybody where an address is now: some take requests, some replies.
pub(super) fn announcements(address: Ipv4Addr, hardware: [u8; 6]) -> [Vec<u8>; 2] {
    [
        frame(REQUEST, EVERYBODY, (hardware, address), ([0; 6], address)),
        frame(REPLY, EVERYBODY, (hardware, address), (EVERYBODY, address)),
    ]
}

fn frame(operation: u8, to: [u8; 6], sender: ([u8; 6], Ipv4Addr), target: ([u8; 6], Ipv4Addr)) -> Vec<u8> {
    let (own, other) = (sender.1.octets(), target.1.octets());
    let parts: [&[u8]; 9] =
        [&to, &sender.0, &[8, 6], &HEADER, &[0, operation], &sender.0, &own, &target.0, &other];
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const YOU: [u8; 6] = [2, 0, 0, 0, 0, 2];

    #[test]
    fn requests_and_replies() {
        let (sender, target) = (Ipv4Addr::new(192, 0, 2, 2), Ipv4Addr::new(192, 0, 2, 50));
        let asked = frame(REQUEST, EVERYBODY, (YOU, sender), ([0; 6], target));
        let read = request(&asked).unwrap();
        assert_eq!(read, Request { hardware: YOU, sender, target });
        let answer = reply(&read, ME);
        assert_eq!(answer, frame(REPLY, YOU, (ME, target), (YOU, sender)));
        assert_eq!((answer.len(), request(&answer)), (LENGTH, None));
        // Padding is no harm, and less than a whole request is none.
        assert_eq!(request(&[&asked[..], &[0; 18]].concat()), Some(read));
        for end in 0..LENGTH {
            assert_eq!(request(&asked[..end]), None, "{end}");
        }
        for at in (FRAME..FRAME + 8).filter(|at| asked[*at] != 0xfe) {
            let mut other = asked.clone();
            other[at] = 0xfe;
            assert_eq!(request(&other), None, "{at}");
        }
        for told in announcements(target, ME) {
            assert_eq!((&told[..6], request(&told)), (&EVERYBODY[..], None));
        }
    }
}
