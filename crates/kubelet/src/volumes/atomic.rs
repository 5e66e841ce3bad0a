//! Files of a volume, replaced all at once: readers see the old set or the new one.
//!
//! Upstream's layout: files live in a directory named for the time, `..data` is a symbolic link to it,
//! and each top-level name is a link into `..data`. Renaming a new `..data` over the old one is the switch.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Component, Path, PathBuf};

/// A file to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    /// Content.
    pub(crate) data: Vec<u8>,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Its owner, if not root.
    pub(crate) owner: Option<u32>,
}

/// Files by path in the volume.
pub(crate) type Payload = BTreeMap<String, File>;

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// Refuses paths that lead out of the volume or collide with the layout's own names.
pub(crate) fn check_path(path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err("invalid path: must not be empty".into());
    }
    if path.starts_with('/') {
        return Err(format!("invalid path: must be relative path: {path}"));
    }
    if path.len() > 4096 {
        return Err("invalid path: must be less than or equal to 4096 characters".into());
    }
    let clean = Path::new(path).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if !clean || path.starts_with("..") {
        return Err(format!("invalid path: must not contain '..': {path}"));
    }
    Ok(())
}

/// Brings the files of `dir` to `payload`; answers whether anything changed. `group` gets the files
/// with the volume's read rights if it is set.
pub(crate) fn write(dir: &Path, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    for path in payload.keys() {
        check_path(path).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    }
    let old = fs::read_link(dir.join(DATA)).ok().map(|name| dir.join(name));
    let known = old.as_deref().map(read_tree).transpose().unwrap_or_default().unwrap_or_default();
    let same = known.len() == payload.len()
        && payload.iter().all(|(path, file)| known.get(path.as_str()) == Some(&file.data));
    if same && old.is_some() {
        link_names(dir, payload)?;
        return Ok(false);
    }

    let stamp = format!("..{}.{}", jiff::Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S"), fastrand::u32(..));
    let new = dir.join(&stamp);
    fs::create_dir(&new)?;
    let written = fill(&new, payload, group).and_then(|()| {
        let link = dir.join(NEW_DATA);
        match fs::remove_file(&link) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        symlink(&stamp, &link)?;
        fs::rename(&link, dir.join(DATA))
    });
    if let Err(error) = written {
        let _ = fs::remove_dir_all(&new);
        return Err(error);
    }
    link_names(dir, payload)?;
    if let Some(old) = old {
        let _ = fs::remove_dir_all(old);
    }
    Ok(true)
}

fn fill(root: &Path, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
    let mut dirs: BTreeSet<PathBuf> = BTreeSet::from([root.to_owned()]);
    for (path, file) in payload {
        let at = root.join(path);
        if let Some(parent) = at.parent() {
            fs::create_dir_all(parent)?;
            dirs.extend(parent.ancestors().take_while(|a| a.starts_with(root)).map(Path::to_owned));
        }
        fs::write(&at, &file.data)?;
        let mode = if group.is_some() { file.mode | 0o440 } else { file.mode };
        if file.owner.is_some() || group.is_some() {
            chown(&at, file.owner, group)?;
        }
        fs::set_permissions(&at, fs::Permissions::from_mode(mode))?;
    }
    if group.is_some() {
        for dir in dirs {
            chown(&dir, None, group)?;
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o2775))?;
        }
    }
    Ok(())
}

/// Makes the top-level links that are missing, and removes those whose files are gone.
fn link_names(dir: &Path, payload: &Payload) -> io::Result<()> {
    let wanted: BTreeSet<&str> =
        payload.keys().filter_map(|p| p.trim_start_matches("./").split('/').next()).collect();
    for name in &wanted {
        let link = dir.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(name), &link)?;
        }
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if !name.starts_with("..") && !wanted.contains(name) && entry.file_type()?.is_symlink() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn read_tree(root: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                dirs.push(entry.path());
            } else if let Some(path) = entry.path().strip_prefix(root).ok().and_then(Path::to_str) {
                files.insert(path.to_owned(), fs::read(entry.path())?);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        files
            .iter()
            .map(|(path, data)| {
                ((*path).to_owned(), File { data: data.as_bytes().to_vec(), mode: 0o640, owner: None })
            })
            .collect()
    }

    #[test]
    fn a_set_of_files_replaces_another() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        assert!(write(at, &payload(&[("a", "1"), ("d/b", "2")]), None).unwrap());
        assert_eq!(fs::read_to_string(at.join("a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(at.join("d/b")).unwrap(), "2");
        assert_eq!(fs::read_link(at.join("a")).unwrap(), Path::new("..data/a"));
        assert_eq!(fs::metadata(at.join("a")).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(!write(at, &payload(&[("a", "1"), ("d/b", "2")]), None).unwrap(), "nothing changed");
        assert!(write(at, &payload(&[("a", "3"), ("c", "4")]), None).unwrap());
        assert_eq!(fs::read_to_string(at.join("a")).unwrap(), "3");
        assert!(fs::symlink_metadata(at.join("d")).is_err(), "gone");
        let stamped =
            fs::read_dir(at).unwrap().filter(|e| e.as_ref().unwrap().file_type().unwrap().is_dir()).count();
        assert_eq!(stamped, 1, "the old set is removed");
        assert!(write(at, &Payload::new(), None).unwrap());
        assert!(!write(at, &Payload::new(), None).unwrap());
    }

    #[test]
    fn paths_stay_inside() {
        for (path, ok) in [
            ("a", true),
            ("a/b", true),
            ("", false),
            ("/a", false),
            ("../a", false),
            ("a/../b", false),
            ("..a", false),
        ] {
            assert_eq!(check_path(path).is_ok(), ok, "{path}");
        }
    }
}
