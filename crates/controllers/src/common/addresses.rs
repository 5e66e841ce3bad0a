//! Addresses as old fields may hold them.

use std::net::IpAddr;

/// Reads an address whose parts may have leading zeros: old fields of the API admit those.
pub(crate) fn read(text: &str) -> Option<IpAddr> {
    text.parse().or_else(|_| plain(text).parse()).ok()
}

fn plain(text: &str) -> String {
    let bare = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        bare => bare.to_owned(),
    };
    let group = |group: &str| group.split('.').map(bare).collect::<Vec<_>>().join(".");
    text.split(':').map(group).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros() {
        let check = |text: &str, want: Option<&str>| {
            assert_eq!(read(text).map(|ip| ip.to_string()).as_deref(), want, "{text}");
        };
        check("1.2.3.4", Some("1.2.3.4"));
        check("01.002.3.0", Some("1.2.3.0"));
        check("010.000.0.1", Some("10.0.0.1"));
        check("02000::4", Some("2000::4"));
        check("::1", Some("::1"));
        check("::", Some("::"));
        for odd in ["", "0", "0123", "1.2.3", "1.2.3.256", "1.2.3.4.5", "1..3.4", "x", "00000:x"] {
            check(odd, None);
        }
    }
}
