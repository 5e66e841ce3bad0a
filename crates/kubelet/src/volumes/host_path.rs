//! Paths of the node that Pods use where they are.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use k8s_openapi::api::core::v1::HostPathVolumeSource;

use super::error::MountError;

/// Checks that a path is of the kind that its Pod wants, or makes it.
///
/// # Errors
/// It is another kind of file, or cannot be made.
pub(super) fn check_host_path(source: &HostPathVolumeSource) -> Result<(), MountError> {
    let path = Path::new(&source.path);
    let failed = |expected| Err(MountError::HostPath { path: source.path.clone(), expected });
    let found = fs::metadata(path).ok();
    let kind = found.as_ref().map(fs::Metadata::file_type);
    match source.type_.as_deref().unwrap_or_default() {
        "" => Ok(()),
        "DirectoryOrCreate" => match kind {
            None => fs::DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(MountError::Io),
            Some(k) if k.is_dir() => Ok(()),
            Some(_) => failed("a directory"),
        },
        "Directory" if kind.is_some_and(|k| k.is_dir()) => Ok(()),
        "Directory" => failed("a directory"),
        "FileOrCreate" => match kind {
            // A file that comes into its place meanwhile is not opened: it may be a pipe.
            None => fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(path)
                .map(drop)
                .map_err(MountError::Io),
            Some(k) if k.is_file() => Ok(()),
            Some(_) => failed("a file"),
        },
        "File" if kind.is_some_and(|k| k.is_file()) => Ok(()),
        "File" => failed("a file"),
        "Socket" if kind.is_some_and(|k| k.is_socket()) => Ok(()),
        "Socket" => failed("a socket file"),
        "CharDevice" if kind.is_some_and(|k| k.is_char_device()) => Ok(()),
        "CharDevice" => failed("a character device"),
        "BlockDevice" if kind.is_some_and(|k| k.is_block_device()) => Ok(()),
        "BlockDevice" => failed("a block device"),
        other => Err(MountError::HostPathType(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_paths_are_what_they_say() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "").unwrap();
        let check = |path: &Path, kind: &str, want: Option<&str>| {
            let source = HostPathVolumeSource {
                path: path.to_string_lossy().into_owned(),
                type_: Some(kind.to_owned()),
            };
            let got = check_host_path(&source).err().map(|e| e.to_string());
            assert_eq!(got.is_none(), want.is_none(), "{kind}: {got:?}");
            if let (Some(got), Some(want)) = (got, want) {
                assert!(got.ends_with(want), "{got}");
            }
        };
        check(&dir.path().join("none"), "", None);
        check(&file, "Directory", Some("is not a directory"));
        check(&file, "File", None);
        check(dir.path(), "File", Some("is not a file"));
        check(&file, "Socket", Some("is not a socket file"));
        check(&dir.path().join("d/e"), "DirectoryOrCreate", None);
        check(&dir.path().join("n"), "FileOrCreate", None);
        check(Path::new("/dev/null"), "CharDevice", None);
        check(Path::new("/dev/null"), "BlockDevice", Some("is not a block device"));
        assert!(dir.path().join("d/e").is_dir() && dir.path().join("n").is_file());
    }
}
