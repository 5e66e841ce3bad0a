//! Files of a volume, replaced all at once: readers see the old set or the new one.
//!
//! Upstream's layout: files live in a directory named for the time, `..data` is a symbolic link to it,
//! and each top-level name is a link into `..data`. Renaming a new `..data` over the old one is the switch.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown, fchown, symlink};
use std::path::{Path, PathBuf};

use crate::files;

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

/// Why a path does not name a file of a volume; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathError {
    #[error("invalid path: must not be empty")]
    Empty,
    #[error("invalid path: must be relative path: {0}")]
    Absolute(String),
    #[error("invalid path: must be less than or equal to 4096 characters")]
    Long,
    #[error("invalid path: must not contain '..': {0}")]
    Climbs(String),
    #[error("invalid path: filenames must be less than or equal to 255 characters")]
    LongName,
    #[error("invalid path: must not start with '..': {0}")]
    Own(String),
}

/// Refuses paths that lead out of the volume or collide with the layout's own names.
pub(crate) fn check_path(path: &str) -> Result<(), PathError> {
    if path.is_empty() {
        return Err(PathError::Empty);
    }
    if path.starts_with('/') {
        return Err(PathError::Absolute(path.to_owned()));
    }
    if path.len() > 4096 {
        return Err(PathError::Long);
    }
    for name in path.split('/') {
        if name == ".." {
            return Err(PathError::Climbs(path.to_owned()));
        }
        if name.len() > 255 {
            return Err(PathError::LongName);
        }
    }
    if names(path).next().is_none_or(|first| first.starts_with("..")) {
        return Err(PathError::Own(path.to_owned()));
    }
    Ok(())
}

/// The names that a path is made of.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".")
}

/// Whether a set of files was written into `dir`.
pub(crate) fn is_written(dir: &Path) -> bool {
    fs::read_link(dir.join(DATA)).is_ok()
}

/// Brings the files of `dir` to `payload`; answers whether anything changed. `group` gets the files
/// with the volume's read rights if it is set.
pub(crate) fn write(dir: &Path, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    let mut clean: BTreeMap<String, &File> = BTreeMap::new();
    for (path, file) in payload {
        check_path(path).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        clean.insert(names(path).collect::<Vec<_>>().join("/"), file);
    }
    let payload = &clean;
    let own = |name: &PathBuf| name.components().count() == 1 && name.to_string_lossy().starts_with("..2");
    let old = fs::read_link(dir.join(DATA)).ok().filter(own).map(|name| dir.join(name));
    let known = old.as_deref().map(read_tree).transpose().unwrap_or_default().unwrap_or_default();
    let same = known.len() == payload.len()
        && payload.iter().all(|(path, file)| known.get(path.as_str()) == Some(&file.data));
    if same && old.is_some() {
        link_names(dir, payload)?;
        return Ok(false);
    }

    let stamp = format!("..{}.{}", jiff::Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S"), fastrand::u32(..));
    let new = dir.join(&stamp);
    // Nobody else enters it before every file in it has its rights.
    fs::DirBuilder::new().mode(0o700).create(&new)?;
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
        let _ = files::remove_tree(&new);
        return Err(error);
    }
    link_names(dir, payload)?;
    if let Some(old) = old {
        let _ = files::remove_tree(&old);
    }
    Ok(true)
}

/// Makes the files and directories. A file has its owner and its mode before it has content, and the
/// root is opened to others last.
fn fill(root: &Path, payload: &BTreeMap<String, &File>, group: Option<u32>) -> io::Result<()> {
    let mut dirs: BTreeSet<PathBuf> = BTreeSet::from([root.to_owned()]);
    for (path, file) in payload {
        let at = root.join(path);
        if let Some(parent) = at.parent()
            && !dirs.contains(parent)
        {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            dirs.extend(parent.ancestors().take_while(|a| a.starts_with(root)).map(Path::to_owned));
        }
        let mut made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&at)?;
        if file.owner.is_some() || group.is_some() {
            fchown(&made, file.owner, group)?;
        }
        let mode = if group.is_some() { file.mode | 0o440 } else { file.mode };
        made.set_permissions(fs::Permissions::from_mode(mode))?;
        made.write_all(&file.data)?;
    }
    // The root sorts first.
    for dir in dirs.iter().rev() {
        let mode = if group.is_some() { 0o2775 } else { 0o755 };
        if group.is_some() {
            chown(dir, None, group)?;
        }
        fs::set_permissions(dir, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Makes the top-level links that are missing, and removes those whose files are gone.
fn link_names(dir: &Path, payload: &BTreeMap<String, &File>) -> io::Result<()> {
    let wanted: BTreeSet<&str> = payload.keys().filter_map(|p| names(p).next()).collect();
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
            ("./..data", false),
            (".", false),
            ("./a", true),
            ("a/..b", true),
        ] {
            assert_eq!(check_path(path).is_ok(), ok, "{path}");
        }
    }

    #[test]
    fn odd_paths_are_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let set = payload(&[("./a", "1"), ("d//b", "2")]);
        assert!(write(dir.path(), &set, None).unwrap());
        assert!(!write(dir.path(), &set, None).unwrap(), "nothing changed");
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(dir.path().join("d/b")).unwrap(), "2");
        assert!(write(dir.path(), &payload(&[("a", "1"), ("a/b", "2")]), None).is_err());
        assert_eq!(fs::read_to_string(dir.path().join("d/b")).unwrap(), "2", "the old set stays");
        // A link of somebody else's is not taken for the old set.
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("keep"), "").unwrap();
        fs::remove_file(dir.path().join(DATA)).unwrap();
        symlink(other.path(), dir.path().join(DATA)).unwrap();
        assert!(write(dir.path(), &payload(&[("a", "3")]), None).unwrap());
        assert!(other.path().join("keep").exists());
    }

    #[test]
    fn secrets_are_never_readable_wider_than_their_mode() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, Ordering};
        let dir = tempfile::tempdir().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let (at, stop) = (dir.path().to_owned(), over.clone());
        // Looks at everything that is there at any moment.
        let looker = std::thread::spawn(move || {
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) {
                for stamp in fs::read_dir(&at).unwrap().flatten().filter(|e| e.path().is_dir()) {
                    let Ok(of_dir) = fs::symlink_metadata(stamp.path()) else { continue };
                    let others = of_dir.permissions().mode() & 0o077;
                    for file in fs::read_dir(stamp.path()).into_iter().flatten().flatten() {
                        let Ok(m) = fs::symlink_metadata(file.path()) else { continue };
                        let mode = m.permissions().mode() & 0o777;
                        assert!(mode == 0o600 || (mode == 0o440 && m.len() <= 6), "{mode:o}");
                        assert!(mode == 0o440 || m.len() == 0, "content before the mode");
                        seen += usize::from(others == 0);
                    }
                }
            }
            seen
        });
        let mut round = 0;
        while round < 200 && !looker.is_finished() {
            round += 1;
            let files = (0..50).map(|n| {
                let data = format!("{round:06}").into_bytes();
                (format!("f{n}"), File { data, mode: 0o440, owner: None })
            });
            write(dir.path(), &files.collect(), None).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        assert!(looker.join().unwrap() > 0, "files were seen while they were written");
    }

    /// Upstream's 9 cases of `TestValidatePath`; 5 of the 7 of `TestValidatePayload` are the same, the other two are below.
    #[test]
    fn paths_that_name_no_file() {
        let check = |path: &str, expected: Result<(), &str>| {
            let got = check_path(path).map_err(|e| e.to_string());
            assert_eq!(got.as_ref().map_err(String::as_str).copied(), expected, "{path}");
        };
        check("i/am/well/behaved.txt", Ok(()));
        check("keepyourheaddownandfollowtherules.txt", Ok(()));
        check(&"a".repeat(4097), Err("invalid path: must be less than or equal to 4096 characters"));
        check(&"a".repeat(256), Err("invalid path: filenames must be less than or equal to 255 characters"));
        check("/dev/null", Err("invalid path: must be relative path: /dev/null"));
        check("..sneaky.txt", Err("invalid path: must not start with '..': ..sneaky.txt"));
        let climbs = "hello/there/../../../../../../etc/passwd";
        check(climbs, Err(&format!("invalid path: must not contain '..': {climbs}")));
        check(
            "hello/../etc/somethingbad",
            Err("invalid path: must not contain '..': hello/../etc/somethingbad"),
        );
        check("", Err("invalid path: must not be empty"));
    }

    /// The names in a volume, and where their links lead.
    fn visible(dir: &Path) -> Vec<(String, String)> {
        let mut all: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| !entry.file_name().to_string_lossy().starts_with(".."))
            .map(|entry| {
                let to = fs::read_link(entry.path()).unwrap();
                (entry.file_name().into_string().unwrap(), to.into_os_string().into_string().unwrap())
            })
            .collect();
        all.sort();
        all
    }

    /// The last 2 cases of `TestValidatePayload`, 2 of upstream's 3 of `TestCreateUserVisibleFiles` (the other one's payload
    /// has a file and a directory of one name), and the 7 of `TestPathsToRemove`: the set before, that after, and the paths
    /// that are left.
    #[test]
    fn names_come_and_go_with_their_files() {
        let check = |before: &[&str], after: &[&str], expected: &[&str]| {
            let dir = tempfile::tempdir().unwrap();
            for set in [before, after] {
                let set: Vec<_> = set.iter().map(|path| (*path, *path)).collect();
                write(dir.path(), &payload(&set), None).unwrap();
            }
            let tops: BTreeSet<&str> = expected.iter().filter_map(|path| names(path).next()).collect();
            let tops: Vec<_> = tops.iter().map(|n| ((*n).to_owned(), format!("..data/{n}"))).collect();
            assert_eq!(visible(dir.path()), tops, "{before:?} {after:?}");
            let left = read_tree(&fs::canonicalize(dir.path().join(DATA)).unwrap()).unwrap();
            let expected: BTreeSet<&str> = expected.iter().copied().collect();
            assert_eq!(left.keys().map(String::as_str).collect::<BTreeSet<_>>(), expected);
        };
        check(&[], &["foo", "bar"], &["foo", "bar"]);
        check(&[], &["foo////bar"], &["foo/bar"]);
        check(&[], &["./bar", "foo///bar"], &["bar", "foo/bar"]);
        check(&["foo.txt", "bar.txt"], &["foo.txt"], &["foo.txt"]);
        check(&["foo.txt", "zip/bar.txt"], &["foo.txt"], &["foo.txt"]);
        check(&["foo.txt", "zip/zap/bar.txt"], &["foo.txt"], &["foo.txt"]);
        check(&["foo.txt", "zip/1/2/3/4/bar.txt"], &["foo.txt"], &["foo.txt"]);
        check(&["foo.txt", "zip/1/2/3/4/bar.txt", "zap/a/b/c/bar.txt"], &["foo.txt"], &["foo.txt"]);
        let kept = ["foo.txt", "zap/1/2/magic.txt"];
        check(&["foo.txt", "zap/1/2/3/4/bar.txt", "zap/1/2/c/bar.txt", "zap/1/2/magic.txt"], &kept, &kept);
        check(&["foo.txt", "zap/1/2/3/4/bar.txt", "zap/1/2/c/bar.txt"], &kept, &kept);
    }
}
