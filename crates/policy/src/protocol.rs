//! The numbers of protocols.

/// The numbers of protocols with ports.
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const SCTP: u8 = 132;

/// The number of a protocol; the default is TCP.
pub(crate) fn protocol(name: Option<&str>) -> Option<u8> {
    match name.unwrap_or_default() {
        "" | "TCP" => Some(TCP),
        "UDP" => Some(UDP),
        "SCTP" => Some(SCTP),
        _ => None,
    }
}
