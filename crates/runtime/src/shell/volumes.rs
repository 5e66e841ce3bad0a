//! Volumes: their paths on this machine, and the image's own ones with their content.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use cri::runtime as pb;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};

use super::rooted;
use crate::translate::{Propagation, TranslateError, Volume, check_mount, check_shared, id_mapping};

/// A volume that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    /// It makes no sense.
    #[error(transparent)]
    Translate(#[from] TranslateError),
    /// Its path cannot be used.
    #[error("volume {path} cannot be used: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The fault.
        source: io::Error,
    },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> VolumeError {
    let path = path.to_owned();
    move |source| VolumeError::Io { path, source }
}

/// Finds the volumes of a configuration on this machine; a path that is not there becomes a directory. Images are not
/// looked at: their source is empty.
pub(crate) fn find(asked: &[pb::Mount]) -> Result<Vec<Volume>, VolumeError> {
    let mut mountinfo = None;
    asked
        .iter()
        .map(|one| {
            let propagation = check_mount(one)?;
            let source =
                if one.image.is_some() { PathBuf::new() } else { source(Path::new(&one.host_path))? };
            if propagation != Propagation::Private {
                if mountinfo.is_none() {
                    let path = Path::new("/proc/self/mountinfo");
                    mountinfo = Some(fs::read_to_string(path).map_err(at(path))?);
                }
                check_shared(&source, propagation, mountinfo.as_deref().unwrap_or_default())?;
            }
            let mapped = |all: &[pb::IdMapping]| all.iter().map(id_mapping).collect::<Result<Vec<_>, _>>();
            Ok(Volume {
                destination: one.container_path.clone(),
                source,
                readonly: one.readonly,
                recursive: one.recursive_read_only,
                propagation,
                uids: mapped(&one.uid_mappings)?,
                gids: mapped(&one.gid_mappings)?,
            })
        })
        .collect()
}

fn source(path: &Path) -> Result<PathBuf, VolumeError> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path).map_err(at(path))?;
            path.canonicalize().map_err(at(path))
        }
        other => other.map_err(at(path)),
    }
}

/// The deepest directory that is copied.
const DEEPEST: u32 = 128;

/// Fills a directory with what an image has at a path, with owners, modes and times. Nothing is there: it is empty.
pub(crate) fn copy_up(root: BorrowedFd<'_>, path: &str, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let from = match rooted::open(root, path, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(from) => from,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let to = fs::File::open(to)?;
    copy_directory(&from, to.as_fd(), 0)?;
    describe(&from, to.as_fd())
}

/// Gives a directory or file the owner, the mode and the times of another one.
fn describe(from: &OwnedFd, to: BorrowedFd<'_>) -> io::Result<()> {
    let known = rustix::fs::fstat(from)?;
    rustix::fs::fchown(to, Some(Uid::from_raw(known.st_uid)), Some(Gid::from_raw(known.st_gid)))?;
    rustix::fs::fchmod(to, Mode::from_raw_mode(known.st_mode & 0o7777))?;
    rustix::fs::futimens(to, &times(&known))?;
    Ok(())
}

fn times(of: &rustix::fs::Stat) -> Timestamps {
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    Timestamps {
        last_access: time(of.st_atime, of.st_atime_nsec as i64),
        last_modification: time(of.st_mtime, of.st_mtime_nsec as i64),
    }
}

fn copy_directory(from: &OwnedFd, to: BorrowedFd<'_>, depth: u32) -> io::Result<()> {
    if depth > DEEPEST {
        return Err(io::Error::other("the image's directories are too deep"));
    }
    for entry in Dir::read_from(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let known = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let open = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match FileType::from_raw_mode(known.st_mode) {
            FileType::Directory => {
                rustix::fs::mkdirat(to, name, Mode::RWXU)?;
                let source = rustix::fs::openat(from, name, open | OFlags::DIRECTORY, Mode::empty())?;
                let made = rustix::fs::openat(to, name, open | OFlags::DIRECTORY, Mode::empty())?;
                copy_directory(&source, made.as_fd(), depth + 1)?;
                describe(&source, made.as_fd())?;
            }
            FileType::RegularFile => {
                let source = rustix::fs::openat(from, name, open, Mode::empty())?;
                let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let made = rustix::fs::openat(to, name, create, Mode::RUSR | Mode::WUSR)?;
                let (mut source, mut made) = (fs::File::from(source), fs::File::from(made));
                io::copy(&mut source, &mut made)?;
                describe(&source.into(), made.as_fd())?;
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(from, name, Vec::new())?;
                rustix::fs::symlinkat(&target, to, name)?;
                owner(to, name, &known)?;
            }
            kind @ (FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice) => {
                let mode = Mode::from_raw_mode(known.st_mode & 0o7777);
                rustix::fs::mknodat(to, name, kind, mode, known.st_rdev)?;
                owner(to, name, &known)?;
                rustix::fs::chmodat(to, name, mode, AtFlags::empty())?;
            }
            // A socket without its program is nothing.
            _ => {}
        }
    }
    Ok(())
}

fn owner(dir: BorrowedFd<'_>, name: &std::ffi::CStr, of: &rustix::fs::Stat) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(of.st_uid), Gid::from_raw(of.st_gid));
    Ok(rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
}

/// The part of an image at a path, as a mount of its own. Links lead nowhere outside the image.
pub(crate) fn part(root: OwnedFd, path: &str) -> io::Result<OwnedFd> {
    use rustix::mount::{OpenTreeFlags, open_tree};
    if path.is_empty() {
        return Ok(root);
    }
    let at = rooted::open(root.as_fd(), path, OFlags::PATH)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(&at, "", flags)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn paths_on_the_host() {
        let dir = tempfile::tempdir().unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        let one = |path: &str| pb::Mount {
            container_path: "/a".into(),
            host_path: dir.path().join(path).display().to_string(),
            ..Default::default()
        };
        let found = find(&[one("link"), one("new/deep")]).unwrap();
        let real = dir.path().canonicalize().unwrap();
        assert_eq!(found[0].source, real.join("real"));
        assert!(found[1].source.is_dir());
        assert!(find(&[pb::Mount { host_path: "relative".into(), ..one("x") }]).is_err());
    }

    #[test]
    fn content_of_an_image() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        fs::create_dir_all(image.join("data/sub")).unwrap();
        fs::write(image.join("data/sub/file"), "text").unwrap();
        symlink("/etc/shadow", image.join("data/link")).unwrap();
        fs::set_permissions(image.join("data"), fs::Permissions::from_mode(0o1777)).unwrap();
        let root = fs::File::open(&image).unwrap();
        let to = dir.path().join("volume");
        copy_up(root.as_fd(), "/data", &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("sub/file")).unwrap(), "text");
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/etc/shadow"));
        assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o1777);
        let empty = dir.path().join("empty");
        copy_up(root.as_fd(), "/none", &empty).unwrap();
        assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
    }
}
