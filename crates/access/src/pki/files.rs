//! Private files, which only their owner may read.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::PkiError;

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PkiError {
    move |source| PkiError::File { action, path: path.to_owned(), source }
}

/// Makes a directory and its parents, 0700.
pub(super) fn ensure_dir(path: &Path) -> Result<(), PkiError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("create", path))
}

/// Returns the file's text; `None` if there is no file. Makes the file private if others may read it.
pub(super) fn read(path: &Path) -> Result<Option<String>, PkiError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed("read", path)(e)),
    };
    let mode = fs::metadata(path).map_err(failed("read", path))?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed("protect", path))?;
    }
    Ok(Some(text))
}

/// Whether a file must outlive a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// The content must last: it cannot be made again.
    Durably,
    /// The content may be lost: it is made anew then.
    Loosely,
}

/// Replaces the file, 0600, in one step: a reader sees the old or the new content.
pub(super) fn write(path: &Path, content: &str, keep: Keep) -> Result<(), PkiError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:08x}.tmp", fastrand::u32(..)));
    let temporary = path.with_file_name(name);
    let attempt = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(content.as_bytes())?;
        if keep == Keep::Durably {
            file.sync_all()?;
        }
        fs::rename(&temporary, path)?;
        match path.parent() {
            Some(dir) if keep == Keep::Durably => File::open(dir)?.sync_all(),
            _ => Ok(()),
        }
    };
    attempt().map_err(|e| {
        // The rest of a failed attempt has no use.
        let _ = fs::remove_file(&temporary);
        failed("write", path)(e)
    })
}
