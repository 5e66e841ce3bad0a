//! Files below a container's root. The kernel resolves every path inside it, whatever links the image has.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

/// Opens a path as if the root were `/`.
pub(crate) fn open(root: BorrowedFd<'_>, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// Reads a regular file of at most `longest` bytes as text; none if there is none.
pub(crate) fn text(root: BorrowedFd<'_>, path: &str, longest: u64) -> io::Result<Option<String>> {
    // A pipe or a terminal must not hold up who opens it.
    let file = match open(root, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
        Ok(file) => file,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
                _ => Err(error),
            };
        }
    };
    if FileType::from_raw_mode(fstat(file.as_fd())?.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    std::fs::File::from(file).take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("{path} is longer than {longest} bytes"),
        ));
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("etc")).unwrap();
        std::fs::write(at("real"), "inside").unwrap();
        symlink("/real", at("etc/passwd")).unwrap();
        symlink("../../../../etc/hostname", at("etc/group")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let root = std::fs::File::open(dir.path()).unwrap();
        let read = |path: &str| text(root.as_fd(), path, 100).map_err(|e| e.raw_os_error());
        assert_eq!(read("etc/passwd"), Ok(Some("inside".to_owned())));
        assert_eq!(read("etc/group"), Ok(None));
        assert_eq!(read("etc"), Ok(None));
        assert!(read("loop").is_err());
        std::fs::write(at("long"), [b'x'; 101]).unwrap();
        assert!(text(root.as_fd(), "long", 100).is_err());
    }
}
