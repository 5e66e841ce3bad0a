//! Where the system's bus is.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The environment's word for it, and where it is otherwise.
const VARIABLE: &str = "DBUS_SYSTEM_BUS_ADDRESS";
const USUAL: &str = "unix:path=/var/run/dbus/system_bus_socket";

/// A socket of a bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// One in the file system.
    Path(PathBuf),
    /// One of the kernel's abstract names.
    Abstract(Vec<u8>),
}

/// The sockets to try, in their order.
pub(crate) fn of_system() -> Vec<Address> {
    let given = std::env::var(VARIABLE).ok().filter(|address| !address.is_empty());
    parse(given.as_deref().unwrap_or(USUAL))
}

/// The sockets in a list of addresses, as the D-Bus specification writes it; others than sockets are left out.
fn parse(list: &str) -> Vec<Address> {
    let one = |address: &str| {
        let values = address.strip_prefix("unix:")?;
        values.split(',').find_map(|pair| match pair.split_once('=')? {
            ("path", value) => {
                let path = std::ffi::OsString::from_vec(unescape(value)?);
                Some(Address::Path(path.into()))
            }
            ("abstract", value) => unescape(value).map(Address::Abstract),
            _ => None,
        })
    };
    list.split(';').filter_map(one).collect()
}

/// A value with `%` and two digits for each byte that cannot stand for itself.
fn unescape(value: &str) -> Option<Vec<u8>> {
    let mut parts = value.split('%');
    let mut out = parts.next()?.as_bytes().to_vec();
    for part in parts {
        out.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        out.extend(part.get(2..)?.bytes());
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_specification() {
        let path = |path: &str| Address::Path(path.into());
        let check = |text: &str, expected: &[Address]| assert_eq!(parse(text), expected, "{text}");
        check(USUAL, &[path("/var/run/dbus/system_bus_socket")]);
        check("unix:path=/a%20b,guid=1", &[path("/a b")]);
        check("unix:abstract=/x", &[Address::Abstract(b"/x".to_vec())]);
        check("tcp:host=h,port=1;unix:guid=2,path=/c;unix:path=/d", &[path("/c"), path("/d")]);
        check("unix:path=%", &[]);
        check("unix:path=%zz", &[]);
        check("", &[]);
    }
}
