//! Bringing into a layer what it takes over from the layers below: the attributes of directories that its archive
//! uses but does not have, and files that its archive only has links to. A layer that needs this is kept for its
//! chain of layers; all others are shared by every image that has them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self as sys, AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use crate::layer::action::{may_set, split};
use crate::layer::apply::{Apply, open_directory, timestamps};
use crate::layer::error::{LayerError, fault};
use crate::layer::tree;

/// The largest value of an extended attribute.
const MAX_XATTR: usize = 64 << 10;

/// The answer of a lower layer about a path.
enum Lower {
    /// It has it.
    Has(OwnedFd),
    /// It hides it: layers further below do not count.
    Hides,
    /// It says nothing.
    Silent,
}

impl Apply {
    /// Brings in what comes from the layers below, the topmost first.
    pub fn adapt(&mut self, lower: &[PathBuf]) -> Result<(), LayerError> {
        let mut layers = Vec::new();
        for path in lower {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = sys::open(path, flags, Mode::empty());
            layers.push(opened.map_err(|e| fault(path.as_os_str().as_encoded_bytes(), e))?);
        }
        for (path, target) in std::mem::take(&mut self.missing) {
            self.bring_file(&layers, &path, &target)?;
        }
        for path in std::mem::take(&mut self.implicit) {
            // Something else may have come in its place.
            let Ok(directory) = open_directory(&self.root, &path) else { continue };
            if let Some(found) = self.find(&layers, &path)?
                && tree::kind(&found, b"").is_ok_and(|kind| kind == FileType::Directory)
            {
                Self::copy_attributes(&found, &directory, b".", &path)?;
            }
        }
        Ok(())
    }

    /// The path in the layer that counts for it.
    fn find(&self, layers: &[OwnedFd], path: &[u8]) -> Result<Option<OwnedFd>, LayerError> {
        for layer in layers {
            match self.look(layer, path).map_err(|e| fault(path, e))? {
                Lower::Has(found) => return Ok(Some(found)),
                Lower::Hides => return Ok(None),
                Lower::Silent => {}
            }
        }
        Ok(None)
    }

    fn look(&self, layer: &OwnedFd, path: &[u8]) -> Result<Lower, Errno> {
        let opened = sys::openat2(
            layer,
            path,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        );
        match opened {
            Ok(found) if tree::is_whiteout(&found, b"") => Ok(Lower::Hides),
            Ok(found) => Ok(Lower::Has(found)),
            // A file, or a whiteout, where the path has a directory.
            Err(Errno::NOTDIR) => Ok(Lower::Hides),
            Err(Errno::NOENT) => {
                // An opaque directory on the way hides it.
                let mut above = split(path).0;
                loop {
                    if let Ok(directory) = open_directory(layer, &above)
                        && self.is_opaque(&directory)
                    {
                        return Ok(Lower::Hides);
                    }
                    if above.is_empty() {
                        return Ok(Lower::Silent);
                    }
                    above = split(&above).0;
                }
            }
            Err(Errno::LOOP) => Ok(Lower::Silent),
            Err(e) => Err(e),
        }
    }

    fn is_opaque(&self, directory: &OwnedFd) -> bool {
        let mut value = [0_u8; 2];
        let key = format!("{}overlay.opaque", self.xattrs);
        sys::lgetxattr(&*tree::proc_path(directory, b"."), key, &mut value[..])
            .is_ok_and(|n| &value[..n] == b"y")
    }

    /// Copies a file of a lower layer up, and links to it.
    fn bring_file(&mut self, layers: &[OwnedFd], path: &[u8], target: &[u8]) -> Result<(), LayerError> {
        let none = || LayerError::Entry {
            name: String::from_utf8_lossy(path).into_owned(),
            reason: "it is a link to a file that no layer has".to_owned(),
        };
        let (directory, name) = split(target);
        let parent = self.parent(&directory)?;
        if tree::kind(&*parent, &name) == Err(Errno::NOENT) {
            let found = self.find(layers, target)?.ok_or_else(none)?;
            match tree::kind(&found, b"").map_err(|e| fault(path, e))? {
                FileType::RegularFile => {
                    let source = tree::proc_path(&found, b"");
                    let mut source = File::open(source).map_err(|e| disk(path, e))?;
                    let length = source.metadata().map_err(|e| disk(path, e))?.len();
                    let file = self.create_file(&parent, &name, target)?;
                    self.copy(&mut source, &file, target, length)?;
                    sys::ftruncate(&file, length).map_err(|e| fault(target, e))?;
                }
                FileType::Symlink => {
                    let points = sys::readlinkat(&found, "", Vec::new()).map_err(|e| fault(path, e))?;
                    sys::symlinkat(&points, &*parent, &*name).map_err(|e| fault(path, e))?;
                    self.count(path, 0)?;
                }
                _ => return Err(none()),
            }
            Self::copy_attributes(&found, &parent, &name, target)?;
        }
        let (directory, link) = split(path);
        let there = self.parent(&directory)?;
        sys::linkat(&*parent, &*name, &*there, &*link, AtFlags::empty()).map_err(|e| fault(path, e))
    }

    /// Gives a name the owner, attributes, permissions and times of another file.
    fn copy_attributes(
        from: &OwnedFd,
        directory: &OwnedFd,
        name: &[u8],
        path: &[u8],
    ) -> Result<(), LayerError> {
        let failed = |e| fault(path, e);
        let facts = sys::statat(from, "", AtFlags::EMPTY_PATH).map_err(failed)?;
        let owner = (Some(Uid::from_raw(facts.st_uid)), Some(Gid::from_raw(facts.st_gid)));
        sys::chownat(directory, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        let link = FileType::from_raw_mode(facts.st_mode) == FileType::Symlink;
        if !link {
            let (source, to) = (tree::proc_path(from, b""), tree::proc_path(directory, name));
            copy_xattrs(&source, &to).map_err(failed)?;
            let mode = Mode::from_raw_mode(facts.st_mode & 0o7777);
            sys::chmodat(directory, name, mode, AtFlags::empty()).map_err(failed)?;
        }
        let time = (facts.st_mtime, u32::try_from(facts.st_mtime_nsec).unwrap_or(0));
        sys::utimensat(directory, name, &timestamps(time), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
    }
}

fn disk(path: &[u8], source: io::Error) -> LayerError {
    LayerError::Disk { name: String::from_utf8_lossy(path).into_owned(), source }
}

/// Copies the attributes that a layer may have. `from` is a path of an open file, which is followed.
fn copy_xattrs(from: &Path, to: &Path) -> Result<(), Errno> {
    let mut names = vec![0_u8; MAX_XATTR];
    let length = match sys::listxattr(from, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        other => other?,
    };
    let mut value = vec![0_u8; MAX_XATTR];
    for name in names[..length].split(|b| *b == 0).filter(|n| !n.is_empty() && may_set(n)) {
        let length = sys::getxattr(from, name, &mut value[..])?;
        match sys::lsetxattr(to, name, &value[..length], sys::XattrFlags::empty()) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
