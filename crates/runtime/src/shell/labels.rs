//! SELinux labels of the files of volumes (CRI's `selinux_relabel`).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Dir, FileType, Mode, OFlags, XattrFlags, getxattr, setxattr};
use rustix::io::Errno;

/// The attribute that has a file's label.
const ATTRIBUTE: &str = "security.selinux";
/// The longest label that is compared, in bytes.
const LONGEST: usize = 1024;
/// The deepest directory: each one above it is open meanwhile.
const DEEPEST: usize = 256;
/// The machine's own directories, which are not for one container; upstream's list.
const SYSTEM: [&str; 24] = [
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/etc/passwd",
    "/etc/pki",
    "/etc/shadow",
    "/home",
    "/lib",
    "/lib64",
    "/media",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/var",
    "/var/lib",
    "/var/log",
];

/// A directory whose entries are being labelled.
struct Open {
    fd: OwnedFd,
    entries: Dir,
}

/// Gives a label to the file or directory at a path and to all below it; the path itself comes last. Links are labelled
/// themselves, and lead nowhere. A file system that has no labels keeps what it has.
///
/// # Errors
/// The path is one of the machine's own directories, or the kernel refuses.
pub(crate) fn relabel(path: &Path, label: &str) -> io::Result<()> {
    if SYSTEM.iter().any(|one| Path::new(one) == path) {
        let why = format!("SELinux relabeling of {} is not allowed", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    match relabel_all(path, label) {
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => Ok(()),
        done => done,
    }
}

fn relabel_all(path: &Path, label: &str) -> io::Result<()> {
    let root = open(rustix::fs::CWD, &CString::new(path.as_os_str().as_encoded_bytes())?)?;
    let Some(root) = root else { return Ok(()) };
    let mut above: Vec<Open> = enter(&root)?.into_iter().collect();
    if above.is_empty() {
        return set(root.as_fd(), label);
    }
    while let Some(dir) = above.last_mut() {
        let Some(entry) = dir.entries.next() else {
            set(dir.fd.as_fd(), label)?;
            above.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        // A container that uses the volume already may have removed it.
        let Some(found) = open(dir.fd.as_fd(), name)? else { continue };
        match enter(&found)? {
            Some(_) if above.len() >= DEEPEST => {
                return Err(io::Error::other(format!("the directories of {} are too deep", path.display())));
            }
            Some(below) => above.push(below),
            None => set(found.as_fd(), label)?,
        }
    }
    Ok(())
}

/// Opens what is at a path, be it a link; none if nothing is.
fn open(dir: BorrowedFd<'_>, name: &std::ffi::CStr) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// A directory, with its entries; none if it is something else.
fn enter(found: &OwnedFd) -> io::Result<Option<Open>> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(found)?.st_mode);
    if kind != FileType::Directory {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(found, c".", flags, Mode::empty())?;
    Ok(Some(Open { entries: Dir::read_from(&fd)?, fd }))
}

/// Gives a label to an open file that does not have it.
fn set(file: BorrowedFd<'_>, label: &str) -> io::Result<()> {
    // The kernel follows this link to the very file, be that a link itself.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut had = [0; LONGEST];
    if let Ok(length) = getxattr(&path, ATTRIBUTE, &mut had[..]) {
        let had = had.get(..length).unwrap_or_default();
        if had.strip_suffix(b"\0").unwrap_or(had) == label.as_bytes() {
            return Ok(());
        }
    }
    match setxattr(&path, ATTRIBUTE, label.as_bytes(), XattrFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        set => Ok(set?),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const LABEL: &str = "system_u:object_r:container_file_t:s0:c1,c2";

    /// The kernel keeps the attribute also without SELinux, for the machine's administrator.
    fn label_of(path: &Path) -> Option<String> {
        let mut had = [0; LONGEST];
        let length = rustix::fs::lgetxattr(path, ATTRIBUTE, &mut had[..]).ok()?;
        Some(String::from_utf8(had[..length].to_vec()).unwrap())
    }

    #[test]
    fn all_files_of_a_volume() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("volume/a/b")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        fs::write(at("volume/a/file"), "x").unwrap();
        fs::write(at("outside/file"), "x").unwrap();
        symlink("../outside", at("volume/link")).unwrap();
        symlink("/nowhere", at("volume/a/b/broken")).unwrap();
        for _ in 0..2 {
            relabel(&at("volume"), LABEL).unwrap();
        }
        for path in ["volume", "volume/a", "volume/a/b", "volume/a/file", "volume/link", "volume/a/b/broken"]
        {
            assert_eq!(label_of(&at(path)).as_deref(), Some(LABEL), "{path}");
        }
        for path in ["outside", "outside/file"] {
            assert_eq!(label_of(&at(path)), None, "{path}");
        }
        relabel(&at("volume/a/file"), "u:r:t:s0").unwrap();
        assert_eq!(label_of(&at("volume/a/file")).as_deref(), Some("u:r:t:s0"));
        relabel(&at("none"), LABEL).unwrap();
    }

    #[test]
    fn neither_the_machine_nor_depths() {
        for path in ["/", "/etc", "/var/lib"] {
            let why = relabel(Path::new(path), LABEL).unwrap_err().to_string();
            assert_eq!(why, format!("SELinux relabeling of {path} is not allowed"));
        }
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d/".repeat(DEEPEST));
        fs::create_dir_all(&deep).unwrap();
        assert!(relabel(dir.path(), LABEL).unwrap_err().to_string().ends_with("are too deep"));
        relabel(&dir.path().join("d"), LABEL).unwrap();
        assert_eq!(label_of(&deep).as_deref(), Some(LABEL));
        // A kernel's own files have no labels.
        relabel(Path::new("/proc/self/status"), LABEL).unwrap();
    }
}
