//! The meaning of a layer's entry: a change of the file system below it. Pure.

use crate::layer::tar::{Entry, Kind};

const WHITEOUT: &[u8] = b".wh.";
const META: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// A change that a layer's entry asks for. Paths are relative to the layer's root, without `.` and `..`; symbolic
/// links in them are still to be followed, inside the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing: bookkeeping of AUFS.
    Skip,
    /// The root's own attributes.
    Root,
    /// The directory hides everything that lower layers have in it.
    Opaque {
        /// The directory; empty is the root.
        directory: Vec<u8>,
    },
    /// The name is gone, though lower layers may have it.
    Whiteout {
        /// The directory; empty is the root.
        directory: Vec<u8>,
        /// The name in it.
        name: Vec<u8>,
    },
    /// The entry is made; a directory that is there already only gets its attributes.
    Create {
        /// The directory; empty is the root.
        directory: Vec<u8>,
        /// The name in it.
        name: Vec<u8>,
    },
}

/// A name that means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a whiteout names no file")]
pub struct InvalidEntry;

/// The change that an entry asks for.
pub fn action(entry: &Entry) -> Result<Action, InvalidEntry> {
    let path = clean(&entry.name);
    if path.is_empty() {
        return Ok(if entry.kind == Kind::Directory { Action::Root } else { Action::Skip });
    }
    let (directory, name) = split(&path);
    if name == OPAQUE {
        return Ok(Action::Opaque { directory });
    }
    if name.starts_with(META) {
        return Ok(Action::Skip);
    }
    if let Some(hidden) = name.strip_prefix(WHITEOUT) {
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(InvalidEntry);
        }
        return Ok(Action::Whiteout { directory, name: hidden.to_vec() });
    }
    Ok(Action::Create { directory, name })
}

/// A path without `.`, `..`, empty components and a leading slash. `..` takes the component before it away, as
/// `filepath.Clean` has it, and nothing is above the root.
pub fn clean(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

/// The directory and the last component of a clean path.
pub fn split(path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (path[..at].to_vec(), path[at + 1..].to_vec()),
        None => (Vec::new(), path.to_vec()),
    }
}

/// Whether an extended attribute is one that a layer may set: overlayfs's own would let a layer choose what of the
/// layers below is seen.
pub fn may_set(xattr: &[u8]) -> bool {
    !xattr.starts_with(b"trusted.overlay.") && !xattr.starts_with(b"user.overlay.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: Kind) -> Entry {
        Entry {
            name: name.as_bytes().to_vec(),
            kind,
            target: Vec::new(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: (0, 0),
            device: (0, 0),
            size: 0,
            xattrs: Vec::new(),
            pieces: None,
        }
    }

    fn check(name: &str, expected: Result<Action, InvalidEntry>) {
        assert_eq!(action(&entry(name, Kind::File)), expected, "{name}");
    }

    fn create(directory: &str, name: &str) -> Result<Action, InvalidEntry> {
        Ok(Action::Create { directory: directory.into(), name: name.into() })
    }

    #[test]
    fn names_stay_below_the_root() {
        check("a", create("", "a"));
        check("./a", create("", "a"));
        check("/etc/passwd", create("etc", "passwd"));
        check("../../etc/passwd", create("etc", "passwd"));
        check("a/../../../b", create("", "b"));
        check("a/b/../c", create("a", "c"));
        check("a//b/./c", create("a/b", "c"));
        for root in [".", "./", "/", "..", "a/.."] {
            check(root, Ok(Action::Skip));
            assert_eq!(action(&entry(root, Kind::Directory)), Ok(Action::Root), "{root}");
        }
    }

    #[test]
    fn whiteouts() {
        let opaque = |directory: &str| Ok(Action::Opaque { directory: directory.into() });
        let gone = |directory: &str, name: &str| {
            Ok(Action::Whiteout { directory: directory.into(), name: name.into() })
        };
        check("a/.wh..wh..opq", opaque("a"));
        check(".wh..wh..opq", opaque(""));
        check("a/.wh.b", gone("a", "b"));
        check(".wh.b", gone("", "b"));
        check(".wh..hidden", gone("", ".hidden"));
        check(".wh..wh.plnk", Ok(Action::Skip));
        check("a/.wh..wh.aufs", Ok(Action::Skip));
        check(".whale", create("", ".whale"));
        for bad in [".wh.", "a/.wh.", ".wh..", ".wh...", "a/.wh..."] {
            check(bad, Err(InvalidEntry));
        }
    }

    #[test]
    fn overlays_own_attributes_are_not_a_layers() {
        for name in ["trusted.overlay.opaque", "trusted.overlay.redirect", "user.overlay.whiteout"] {
            assert!(!may_set(name.as_bytes()), "{name}");
        }
        for name in ["security.capability", "user.mime_type", "trusted.other"] {
            assert!(may_set(name.as_bytes()), "{name}");
        }
    }
}
