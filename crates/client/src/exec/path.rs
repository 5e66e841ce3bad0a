//! Programs by their names, as Go finds them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A path as Go's `filepath.Clean` leaves it.
pub(super) fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|p| *p != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            part => parts.push(part),
        }
    }
    match (rooted, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

/// The program of a name: a path as it is, a mere name in this process's `$PATH`.
pub(super) fn find(command: &str) -> Option<PathBuf> {
    find_in(command, &std::env::var_os("PATH").unwrap_or_default())
}

fn find_in(command: &str, path: &std::ffi::OsStr) -> Option<PathBuf> {
    if command.contains('/') {
        return Some(command.into());
    }
    // As Go: a program of the working directory is none, whatever `$PATH` says.
    let dirs = std::env::split_paths(path).filter(|dir| dir.is_absolute());
    dirs.map(|dir| dir.join(command)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let check = |path: &str, expected: &str| assert_eq!(clean(path), expected, "{path}");
        for (path, expected) in [
            ("x", "x"),
            ("./x", "x"),
            ("/a//b/../x/", "/a/x"),
            ("../x", "../x"),
            ("a/../../x", "../x"),
            ("/../x", "/x"),
            ("", "."),
        ] {
            check(path, expected);
        }
    }

    #[test]
    fn programs() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, mode: u32| {
            let file = dir.path().join(name);
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            file
        };
        let good = put("good", 0o755);
        put("bad", 0o644);
        let path = std::env::join_paths([Path::new("."), Path::new("/none"), dir.path()]).unwrap();
        let check = |command: &str, expected: Option<&Path>| {
            assert_eq!(find_in(command, &path).as_deref(), expected, "{command}");
        };
        check("good", Some(&good));
        check("bad", None);
        check("missing", None);
        check("", None);
        check("/any/where", Some(Path::new("/any/where")));
    }
}
