//! Devices of this machine.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use cri::runtime as pb;
use rustix::fs::{major, minor};

use crate::translate::{Device, TranslateError, is_access};

/// The directories of devices that are no container's: its own terminals and queues take their place.
const APART: [&str; 6] = ["/dev/pts", "/dev/shm", "/dev/fd", "/dev/mqueue", "/dev/console", "/dev/.udev"];
/// The deepest directory that is looked at.
const DEEPEST: u32 = 8;

/// The devices that a configuration names. A directory stands for all devices in it.
pub(crate) fn find(asked: &[pb::Device]) -> Result<Vec<Device>, TranslateError> {
    let mut all = Vec::new();
    for one in asked {
        let failed = |source| TranslateError::Device { path: one.host_path.clone(), source };
        if !is_access(&one.permissions) {
            let text = format!("permissions {:?} are no letters of rwm", one.permissions);
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        let host = fs::canonicalize(&one.host_path).map_err(failed)?;
        let inside = if one.container_path.is_empty() { &one.host_path } else { &one.container_path };
        let before = all.len();
        add(&host, Path::new(inside), &one.permissions, 0, &mut all).map_err(failed)?;
        if all.len() == before {
            return Err(failed(io::Error::other("it is no device")));
        }
    }
    Ok(all)
}

/// All devices of the machine, for a privileged container.
pub(crate) fn all() -> io::Result<Vec<Device>> {
    let mut all = Vec::new();
    let dev = Path::new("/dev");
    add(dev, dev, "rwm", 0, &mut all)?;
    Ok(all)
}

/// A device by its path on the host; none if it is another file.
pub(crate) fn one(host: &Path, inside: &Path, access: &str) -> io::Result<Option<Device>> {
    let known = fs::symlink_metadata(host)?;
    let kind = known.file_type();
    Ok((kind.is_block_device() || kind.is_char_device()).then(|| Device {
        path: inside.to_owned(),
        block: kind.is_block_device(),
        major: major(known.rdev()),
        minor: minor(known.rdev()),
        mode: known.mode() & 0o7777,
        uid: known.uid(),
        gid: known.gid(),
        access: access.to_owned(),
    }))
}

fn add(host: &Path, inside: &Path, access: &str, depth: u32, all: &mut Vec<Device>) -> io::Result<()> {
    if !fs::symlink_metadata(host)?.is_dir() {
        all.extend(one(host, inside, access)?);
        return Ok(());
    }
    if depth > DEEPEST {
        return Ok(());
    }
    for entry in fs::read_dir(host)? {
        let entry = entry?;
        let path = entry.path();
        if APART.iter().any(|apart| path == Path::new(apart)) {
            continue;
        }
        match add(&path, &inside.join(entry.file_name()), access, depth + 1, all) {
            // Devices come and go.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_this_machine() {
        let asked = |host: &str, permissions: &str| pb::Device {
            host_path: host.into(),
            container_path: "/dev/x".into(),
            permissions: permissions.into(),
        };
        let found = find(&[asked("/dev/null", "rw")]).unwrap();
        assert_eq!((found[0].major, found[0].minor, &found[0].access[..]), (1, 3, "rw"));
        assert_eq!(found[0].path, Path::new("/dev/x"));
        for (host, permissions) in
            [("/dev/null", ""), ("/dev/null", "x"), ("/none", "r"), ("/proc/self/status", "r")]
        {
            assert!(find(&[asked(host, permissions)]).is_err(), "{host} {permissions}");
        }
        let all = all().unwrap();
        assert!(all.iter().any(|one| one.path == Path::new("/dev/null")));
        assert!(all.iter().all(|one| !one.path.starts_with("/dev/pts")));
    }
}
