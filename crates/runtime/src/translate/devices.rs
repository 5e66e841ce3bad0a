//! Devices of a container.

use std::path::PathBuf;

use oci_spec::runtime::{LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType};

/// A device that a container gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its path in the container.
    pub path: PathBuf,
    /// Whether it is a block device.
    pub block: bool,
    /// Its numbers.
    pub major: u32,
    /// The second one.
    pub minor: u32,
    /// The permission bits of its file.
    pub mode: u32,
    /// The owner of its file.
    pub uid: u32,
    /// The group of its file.
    pub gid: u32,
    /// The permitted uses: letters of `rwm`.
    pub access: String,
}

/// A rule for devices: kind, numbers (none for all), uses.
type Rule = (LinuxDeviceType, Option<i64>, Option<i64>, &'static str);

/// The devices that every container may use: null, random, full, tty, zero, urandom, console, terminals and their
/// multiplexer. Nodes of any kind may be made.
const DEFAULT: [Rule; 11] = [
    (LinuxDeviceType::C, None, None, "m"),
    (LinuxDeviceType::B, None, None, "m"),
    (LinuxDeviceType::C, Some(1), Some(3), "rwm"),
    (LinuxDeviceType::C, Some(1), Some(8), "rwm"),
    (LinuxDeviceType::C, Some(1), Some(7), "rwm"),
    (LinuxDeviceType::C, Some(5), Some(0), "rwm"),
    (LinuxDeviceType::C, Some(1), Some(5), "rwm"),
    (LinuxDeviceType::C, Some(1), Some(9), "rwm"),
    (LinuxDeviceType::C, Some(5), Some(1), "rwm"),
    (LinuxDeviceType::C, Some(136), None, "rwm"),
    (LinuxDeviceType::C, Some(5), Some(2), "rwm"),
];

fn rule(
    allow: bool,
    (kind, major, minor, access): (LinuxDeviceType, Option<i64>, Option<i64>, &str),
) -> LinuxDeviceCgroup {
    let mut made = LinuxDeviceCgroup::default();
    made.set_allow(allow)
        .set_typ(Some(kind))
        .set_major(major)
        .set_minor(minor)
        .set_access(Some(access.to_owned()));
    made
}

/// The rules of a container's devices: those of its own and the usual ones, or all for a privileged one.
pub(super) fn rules(devices: &[Device], privileged: bool) -> Vec<LinuxDeviceCgroup> {
    if privileged {
        return vec![rule(true, (LinuxDeviceType::A, None, None, "rwm"))];
    }
    let mut all = vec![rule(false, (LinuxDeviceType::A, None, None, "rwm"))];
    all.extend(DEFAULT.into_iter().map(|one| rule(true, one)));
    all.extend(devices.iter().map(|one| {
        let numbers = (Some(i64::from(one.major)), Some(i64::from(one.minor)));
        rule(true, (kind(one), numbers.0, numbers.1, &one.access))
    }));
    all
}

fn kind(device: &Device) -> LinuxDeviceType {
    if device.block { LinuxDeviceType::B } else { LinuxDeviceType::C }
}

/// The nodes of a container's devices.
pub(super) fn nodes(devices: &[Device]) -> Vec<LinuxDevice> {
    devices
        .iter()
        .map(|one| {
            let mut made = LinuxDevice::default();
            made.set_path(one.path.clone())
                .set_typ(kind(one))
                .set_major(i64::from(one.major))
                .set_minor(i64::from(one.minor))
                .set_file_mode(Some(one.mode))
                .set_uid(Some(one.uid))
                .set_gid(Some(one.gid));
            made
        })
        .collect()
}

/// Whether a text names uses of devices.
pub(crate) fn is_access(text: &str) -> bool {
    !text.is_empty() && text.len() <= 3 && text.chars().all(|c| "rwm".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_container() {
        let device = Device {
            path: "/dev/fuse".into(),
            block: false,
            major: 10,
            minor: 229,
            mode: 0o666,
            uid: 0,
            gid: 1,
            access: "rw".into(),
        };
        let made = rules(std::slice::from_ref(&device), false);
        assert!(!made[0].allow() && made[0].typ() == Some(LinuxDeviceType::A));
        assert_eq!(made.len(), 13);
        let last = &made[12];
        assert_eq!((last.major(), last.minor(), last.access().as_deref()), (Some(10), Some(229), Some("rw")));
        let node = &nodes(std::slice::from_ref(&device))[0];
        assert_eq!((node.file_mode(), node.gid(), node.typ()), (Some(0o666), Some(1), LinuxDeviceType::C));
        let all = rules(&[device], true);
        assert!(all.len() == 1 && all[0].allow());
        for (text, expected) in [("rwm", true), ("r", true), ("", false), ("rx", false), ("rwmr", false)] {
            assert_eq!(is_access(text), expected, "{text}");
        }
    }
}
