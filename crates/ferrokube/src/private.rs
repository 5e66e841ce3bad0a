//! Files and directories that hold secrets: only their owner can read them from the start, and they are never written
//! where somebody's link leads.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// Makes a file, 0600. It is an error if something has its name already, also a symbolic link.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    // `create_new` is O_EXCL, which follows no link at the end of the path.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Checks that nothing has a name.
pub(crate) fn ensure_free(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e).with_context(|| format!("cannot look at {}", path.display())),
        Ok(_) => bail!("{}", taken(path)),
    }
}

fn taken(path: &Path) -> String {
    format!("{} exists and is not overwritten; remove it, or choose another name", path.display())
}

/// Gives a finished file its name, unless something has that by now.
pub(crate) fn publish(from: &Path, to: &Path) -> Result<()> {
    let renamed = match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system cannot rename and check at once.
        Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(from, to).and_then(|()| fs::remove_file(from)),
        renamed => renamed.map_err(io::Error::from),
    };
    match renamed {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => bail!("{}", taken(to)),
        renamed => renamed.with_context(|| format!("cannot write {}", to.display())),
    }
}

/// Makes sure that only the user has access to a directory.
pub(crate) fn own_directory(path: &Path) -> Result<()> {
    let shown = path.display();
    let found = fs::metadata(path).with_context(|| format!("cannot look at {shown}"))?;
    let (owner, me) = (found.uid(), rustix::process::geteuid().as_raw());
    if owner != me && owner != 0 {
        bail!(
            "{shown} belongs to another user ({owner}); give it to user {me}, or choose another --data-dir"
        );
    }
    let others = found.mode() & 0o077;
    if others == 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        .with_context(|| format!("no permission on {shown}; run as root or choose another --data-dir"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_file_is_new_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, victim) =
            (dir.path().join("file"), dir.path().join("link"), dir.path().join("victim"));
        create(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        symlink(&victim, &link).unwrap();
        for taken in [&file, &link] {
            assert_eq!(create(taken).unwrap_err().kind(), ErrorKind::AlreadyExists);
            let said = ensure_free(taken).unwrap_err().to_string();
            assert!(
                said.ends_with("exists and is not overwritten; remove it, or choose another name"),
                "{said}"
            );
            let part = dir.path().join("part");
            fs::write(&part, "new").unwrap();
            assert_eq!(publish(&part, taken).unwrap_err().to_string(), said);
            assert!(part.exists());
        }
        assert!(!victim.exists() && fs::read(&file).unwrap().is_empty());
        let free = dir.path().join("free");
        ensure_free(&free).unwrap();
        publish(&dir.path().join("part"), &free).unwrap();
        assert_eq!(fs::read_to_string(free).unwrap(), "new");
    }

    #[test]
    fn a_directory_is_its_users_own() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        own_directory(dir.path()).unwrap();
        assert_eq!(mode(dir.path()), 0o700);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path(), Some(12345), None).unwrap();
            let said = own_directory(dir.path()).unwrap_err().to_string();
            assert!(said.contains("belongs to another user (12345)"), "{said}");
        }
    }
}
