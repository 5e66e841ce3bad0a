//! Files of cgroups.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The number in a file; `max` and the like are none.
pub(crate) fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number behind a word at a line's beginning.
pub(crate) fn field(path: &Path, name: &str) -> Option<u64> {
    value(&fs::read_to_string(path).ok()?, name)
}

/// The number behind a word at a line's beginning.
pub(crate) fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The directories in a directory.
pub(crate) fn below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

/// Removes a cgroup with those below it; one that is not there is removed.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(()) => return Ok(()),
        Err(_) => {}
    }
    for child in below(directory) {
        remove(&child)?;
    }
    match fs::remove_dir(directory) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
