//! Device nodes and links below `/dev`.

use std::path::Path;

use oci_spec::runtime::{LinuxDevice, LinuxDeviceType};

use super::mounts::clean;
use super::{Bind, Plan, Source, fields};
use crate::error::{Error, Result};
use crate::raw::{Change, propagation};
use crate::shim::wire::step;

const CHARACTER: u32 = 0o020_000;
const BLOCK: u32 = 0o060_000;
const FIFO: u32 = 0o010_000;

/// The devices that every container has, by the OCI runtime specification.
const DEFAULT: [(&str, u64, u64); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];

/// The links that every container has.
const LINKS: [(&str, &str); 6] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("/proc/kcore", "/dev/core"),
    ("pts/ptmx", "/dev/ptmx"),
];

/// A device's number in the kernel's form.
fn number(major: u64, minor: u64) -> u64 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// The steps of all devices. In a user namespace no node can be made: the host's is bound.
pub(super) fn devices(plan: &mut Plan, described: &[LinuxDevice], user: bool) -> Result<()> {
    let mut nodes: Vec<(String, u32, u64, u32, u32)> = Vec::new();
    for device in described {
        let path = clean(device.path());
        let at = path.to_str().filter(|p| !p.contains('\0'));
        let at = at.ok_or_else(|| Error::Invalid(format!("the device {} has no name", path.display())))?;
        let kind = match device.typ() {
            LinuxDeviceType::C | LinuxDeviceType::U => CHARACTER,
            LinuxDeviceType::B => BLOCK,
            LinuxDeviceType::P => FIFO,
            LinuxDeviceType::A => {
                return Err(Error::Invalid(format!(
                    "the device {at} has the type \"a\", which is for rules alone"
                )));
            }
        };
        let mode = kind | device.file_mode().unwrap_or(0o666) & 0o7777;
        let device_number = number(device.major() as u64, device.minor() as u64);
        nodes.push((
            at.to_owned(),
            mode,
            device_number,
            device.uid().unwrap_or(0),
            device.gid().unwrap_or(0),
        ));
    }
    for (at, major, minor) in DEFAULT {
        if !nodes.iter().any(|n| n.0 == at) {
            nodes.push((at.to_owned(), CHARACTER | 0o666, number(major, minor), 0, 0));
        }
    }
    for (at, mode, device, uid, gid) in nodes {
        let deed = format!("error creating device node {at:?}");
        if user {
            let changes = vec![Change { propagation: propagation::PRIVATE, ..Change::default() }];
            let bind = Bind { path: Path::new(&at).to_owned(), recursive: false, changes, idmap: None };
            let fd = plan.source(Source::Bind(bind));
            plan.push(step::MOUNT_FD, 0, fields().u32(fd).text(&at), deed);
        } else {
            plan.push(step::MKNOD, 0, fields().text(&at).u32(mode).u64(device).u32(uid).u32(gid), deed);
        }
    }
    for (to, at) in LINKS {
        plan.push(step::SYMLINK, 0, fields().text(to).text(at), format!("error creating link {at:?}"));
    }
    Ok(())
}
