//! Applying a layer: its archive becomes a directory that overlayfs takes as a lower layer.
//!
//! A layer is applied by itself, before or beside the layers below it. Every path is resolved inside the layer's root
//! by the kernel (`openat2` with `RESOLVE_IN_ROOT`), so nothing outside is ever touched, whatever links the archive
//! has. All that depends on lower layers (attributes of directories that the archive does not have, links to files that
//! it does not have) is remembered, and `adapt` brings it in once those are there.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self as sys, AtFlags, FileType, Gid, Mode, OFlags, RawMode, ResolveFlags, Uid};
use rustix::io::Errno;

use crate::layer::action::{Action, action, clean, split};
use crate::layer::error::{LayerError, fault, invalid};
use crate::layer::space::Space;
use crate::layer::tar::{Entry, Kind, Reader};
use crate::layer::tree;
use crate::settings::Usage;

/// The most bytes of paths of directories that a layer may have: they are kept until its end, when their times are set.
const MAX_PATHS: usize = 64 << 20;
const BUFFER: usize = 128 << 10;
/// Pieces of zeros from this size on become holes.
const HOLE: usize = 4096;

/// Opens a directory of the layer; links are followed inside it.
pub(super) fn open_directory(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    sys::openat2(
        root,
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV,
    )
}

/// A layer in the making.
#[derive(Debug)]
pub struct Apply {
    pub(super) root: OwnedFd,
    /// A directory on the same file system for what an archive replaces.
    trash: PathBuf,
    /// The prefix of overlayfs's attributes: `trusted.` or `user.`.
    pub(super) xattrs: &'static str,
    pub(super) space: Space,
    pub(super) usage: Usage,
    /// Directories that the archive uses but does not have: they get the attributes that lower layers give them.
    pub(super) implicit: BTreeSet<Vec<u8>>,
    /// Links whose target the archive does not have: name and target.
    pub(super) missing: Vec<(Vec<u8>, Vec<u8>)>,
    /// Directories and the times that they get in the end.
    times: Vec<(Vec<u8>, (i64, u32))>,
    paths: usize,
    /// Whether the archive tells the root's attributes.
    pub(super) has_root: bool,
    /// The directory that the last entry was in.
    last: Option<(Vec<u8>, Arc<OwnedFd>)>,
    buffer: Vec<u8>,
}

impl Apply {
    /// Begins a layer in `root`, an empty directory.
    pub fn new(root: &Path, trash: &Path, xattrs: &'static str, space: Space) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = sys::open(root, flags, Mode::empty())?;
        sys::fchmod(&root, Mode::from_raw_mode(0o755))?;
        Ok(Self {
            root,
            trash: trash.to_owned(),
            xattrs,
            space,
            usage: Usage { bytes: 4096, inodes: 1 },
            implicit: BTreeSet::new(),
            missing: Vec::new(),
            times: Vec::new(),
            paths: 0,
            has_root: false,
            last: None,
            buffer: vec![0; BUFFER],
        })
    }

    /// How many bytes an archive may have without compression.
    pub fn room(&self) -> io::Result<u64> {
        Ok(self.space.room(&self.root)?)
    }

    /// Applies a tar, to the end of its source.
    pub fn tar(&mut self, source: impl Read) -> Result<(), LayerError> {
        let mut reader = Reader::new(source);
        while let Some(entry) = reader.next_entry().map_err(LayerError::Archive)? {
            self.entry(&entry, &mut reader)?;
        }
        reader.finish().map_err(LayerError::Archive)?;
        Ok(())
    }

    /// Makes one file of a source: an artifact's layer that is no archive.
    pub fn file(&mut self, name: &[u8], mut source: impl Read) -> Result<(), LayerError> {
        let path = clean(name);
        let (directory, name) = split(&path);
        if name.is_empty() {
            return Err(invalid(&path, "it is no name of a file"));
        }
        let parent = self.parent(&directory)?;
        self.clear(&parent, &name, &path, false)?;
        let file = self.create_file(&parent, &name, &path)?;
        let length = self.copy(&mut source, &file, &path, u64::MAX)?;
        sys::ftruncate(&file, length).map_err(|e| fault(&path, e))?;
        sys::fchmod(&file, Mode::from_raw_mode(0o644)).map_err(|e| fault(&path, e))
    }

    /// Whether the layer is the same whatever is below it.
    pub fn is_independent(&self) -> bool {
        self.implicit.is_empty() && self.missing.is_empty()
    }

    /// Sets the times of directories, last of all; the disk that the layer takes, and whether its archive told the
    /// root's attributes.
    pub fn finish(mut self) -> Result<(Usage, bool), LayerError> {
        for (path, time) in std::mem::take(&mut self.times) {
            // It may have been replaced by something else later in the archive.
            let Ok(directory) = open_directory(&self.root, &path) else { continue };
            sys::utimensat(&directory, ".", &timestamps(time), AtFlags::empty())
                .map_err(|e| fault(&path, e))?;
        }
        Ok((self.usage, self.has_root))
    }

    fn entry<R: Read>(&mut self, entry: &Entry, reader: &mut Reader<R>) -> Result<(), LayerError> {
        let todo = action(entry).map_err(|e| invalid(&entry.name, &e.to_string()))?;
        match todo {
            Action::Skip => Ok(()),
            Action::Root => {
                self.has_root = true;
                let root = self.root.try_clone().map_err(|e| Self::disk(&entry.name, e))?;
                Self::attributes(&root, b".", entry)?;
                self.remember_time(b"", entry)
            }
            Action::Opaque { directory } => {
                let directory = self.parent(&directory)?;
                self.set_opaque(&directory, b".", &entry.name)
            }
            Action::Whiteout { directory, name } => {
                let parent = self.parent(&directory)?;
                match tree::kind(&parent, &name) {
                    // The archive has the name: only the lower layers' part of it is gone.
                    Ok(FileType::Directory) => self.set_opaque(&parent, &name, &entry.name),
                    Ok(_) => Ok(()),
                    Err(Errno::NOENT) => self.whiteout(&parent, &name, &entry.name),
                    Err(e) => Err(fault(&entry.name, e)),
                }
            }
            Action::Create { directory, name } => self.create(entry, reader, directory, name),
        }
    }

    fn disk(name: &[u8], source: io::Error) -> LayerError {
        LayerError::Disk { name: String::from_utf8_lossy(name).into_owned(), source }
    }

    fn whiteout(&mut self, parent: &OwnedFd, name: &[u8], shown: &[u8]) -> Result<(), LayerError> {
        sys::mknodat(parent, name, FileType::CharacterDevice, Mode::empty(), 0)
            .map_err(|e| fault(shown, e))?;
        self.count(shown, 0)
    }

    fn set_opaque(&mut self, parent: &OwnedFd, name: &[u8], shown: &[u8]) -> Result<(), LayerError> {
        let path = tree::proc_path(parent, name);
        sys::lsetxattr(&*path, format!("{}overlay.opaque", self.xattrs), b"y", sys::XattrFlags::empty())
            .map_err(|e| fault(shown, e))
    }

    /// Counts a new inode and its bytes.
    pub(super) fn count(&mut self, name: &[u8], bytes: u64) -> Result<(), LayerError> {
        self.usage.inodes += 1;
        self.usage.bytes += bytes.div_ceil(4096) * 4096;
        self.take(name, bytes, 1)
    }

    fn take(&mut self, name: &[u8], bytes: u64, inodes: u64) -> Result<(), LayerError> {
        match self.space.take(&self.root, bytes, inodes) {
            Ok(true) => Ok(()),
            Ok(false) => Err(LayerError::NoSpace),
            Err(e) => Err(fault(name, e)),
        }
    }

    /// The directory of a path, made where it is not there.
    pub(super) fn parent(&mut self, path: &[u8]) -> Result<Arc<OwnedFd>, LayerError> {
        if let Some((last, directory)) = &self.last
            && last == path
        {
            return Ok(Arc::clone(directory));
        }
        let directory = match open_directory(&self.root, path) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => {
                let resolved = self.make_parents(path)?;
                open_directory(&self.root, &resolved).map_err(|e| fault(path, e))?
            }
            Err(e) => return Err(fault(path, e)),
        };
        let directory = Arc::new(directory);
        self.last = Some((path.to_vec(), Arc::clone(&directory)));
        Ok(directory)
    }

    /// Makes the directories of a path. A link on the way leads to where it points inside the root, even if nothing
    /// is there yet: it may be in a lower layer. The resolved path, without links.
    fn make_parents(&mut self, path: &[u8]) -> Result<Vec<u8>, LayerError> {
        let components = |path: &[u8]| -> Vec<Vec<u8>> {
            path.split(|b| *b == b'/').filter(|p| !p.is_empty()).rev().map(<[u8]>::to_vec).collect()
        };
        let mut todo = components(path);
        let mut done: Vec<Vec<u8>> = Vec::new();
        let mut links = 0;
        while let Some(name) = todo.pop() {
            match &*name {
                b"." => continue,
                b".." => {
                    done.pop();
                    continue;
                }
                _ => {}
            }
            let at = done.join(&b'/');
            let directory = open_directory(&self.root, &at).map_err(|e| fault(path, e))?;
            match tree::kind(&directory, &name) {
                Ok(FileType::Directory) => done.push(name),
                Ok(FileType::Symlink) => {
                    links += 1;
                    if links > 40 {
                        return Err(fault(path, Errno::LOOP));
                    }
                    let target =
                        sys::readlinkat(&directory, &name, Vec::new()).map_err(|e| fault(path, e))?;
                    let target = target.as_bytes();
                    if target.starts_with(b"/") {
                        done.clear();
                    }
                    todo.extend(components(target));
                    if todo.len() > 4096 {
                        return Err(fault(path, Errno::NAMETOOLONG));
                    }
                }
                Ok(FileType::CharacterDevice) if tree::is_whiteout(&directory, &name) => {
                    // The name was hidden before something was put into it: a new directory, which hides it still.
                    self.clear(&directory, &name, path, false)?;
                    self.make_directory(&directory, &name, path)?;
                    self.set_opaque(&directory, &name, path)?;
                    done.push(name);
                }
                Ok(_) => return Err(fault(path, Errno::NOTDIR)),
                Err(Errno::NOENT) => {
                    self.make_directory(&directory, &name, path)?;
                    done.push(name);
                    let made = done.join(&b'/');
                    self.remember(made.len())?;
                    self.implicit.insert(made);
                }
                Err(e) => return Err(fault(path, e)),
            }
        }
        Ok(done.join(&b'/'))
    }

    fn make_directory(&mut self, parent: &OwnedFd, name: &[u8], shown: &[u8]) -> Result<(), LayerError> {
        sys::mkdirat(parent, name, Mode::from_raw_mode(0o755)).map_err(|e| fault(shown, e))?;
        // The process's mask counts for nothing.
        sys::chmodat(parent, name, Mode::from_raw_mode(0o755), AtFlags::empty())
            .map_err(|e| fault(shown, e))?;
        self.count(shown, 4096)
    }

    fn remember(&mut self, length: usize) -> Result<(), LayerError> {
        self.paths += length + 64;
        if self.paths > MAX_PATHS {
            Err(invalid(b"the layer", "it has too many directories"))
        } else {
            Ok(())
        }
    }

    fn remember_time(&mut self, path: &[u8], entry: &Entry) -> Result<(), LayerError> {
        self.remember(path.len())?;
        self.times.push((path.to_vec(), entry.mtime));
        Ok(())
    }

    /// Makes room for an entry; a directory stays if `keep`. Tells whether a whiteout was there.
    pub(super) fn clear(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: &[u8],
        keep: bool,
    ) -> Result<Cleared, LayerError> {
        match tree::kind(parent, name) {
            Err(Errno::NOENT) => Ok(Cleared::Nothing),
            Err(e) => Err(fault(path, e)),
            Ok(FileType::Directory) if keep => Ok(Cleared::Kept),
            Ok(FileType::Directory) => {
                self.last = None;
                // Nothing below is to be adapted any more.
                let below = [path, b"/"].concat();
                self.implicit.retain(|p| p != path && !p.starts_with(&below));
                tree::discard(parent, name, &self.trash).map_err(|e| Self::disk(path, e))?;
                Ok(Cleared::Something)
            }
            Ok(kind) => {
                self.last = None;
                let whiteout = kind == FileType::CharacterDevice && tree::is_whiteout(parent, name);
                sys::unlinkat(parent, name, AtFlags::empty()).map_err(|e| fault(path, e))?;
                Ok(if whiteout { Cleared::Whiteout } else { Cleared::Something })
            }
        }
    }

    fn create<R: Read>(
        &mut self,
        entry: &Entry,
        reader: &mut Reader<R>,
        directory: Vec<u8>,
        name: Vec<u8>,
    ) -> Result<(), LayerError> {
        let path = if directory.is_empty() { name.clone() } else { [&*directory, b"/", &*name].concat() };
        let parent = self.parent(&directory)?;
        if entry.kind == Kind::Link {
            return self.link(&parent, &name, &path, &clean(&entry.target));
        }
        let cleared = self.clear(&parent, &name, &path, entry.kind == Kind::Directory)?;
        match entry.kind {
            Kind::Directory => {
                if cleared != Cleared::Kept {
                    self.make_directory(&parent, &name, &path)?;
                }
                if cleared == Cleared::Whiteout {
                    self.set_opaque(&parent, &name, &path)?;
                }
                self.implicit.remove(&path);
                self.remember_time(&path, entry)?;
            }
            Kind::File => {
                let file = self.create_file(&parent, &name, &path)?;
                self.content(entry, reader, &file, &path)?;
            }
            Kind::Symlink => {
                sys::symlinkat(&entry.target, &*parent, &*name).map_err(|e| fault(&path, e))?;
                self.count(&path, 0)?;
            }
            Kind::Character | Kind::Block | Kind::Fifo => {
                let kind = match entry.kind {
                    Kind::Character => FileType::CharacterDevice,
                    Kind::Block => FileType::BlockDevice,
                    _ => FileType::Fifo,
                };
                let device = sys::makedev(entry.device.0, entry.device.1);
                sys::mknodat(&*parent, &*name, kind, Mode::empty(), device).map_err(|e| fault(&path, e))?;
                self.count(&path, 0)?;
            }
            Kind::Link => {}
        }
        Self::attributes(&parent, &name, entry)
    }

    pub(super) fn create_file(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: &[u8],
    ) -> Result<std::fs::File, LayerError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            sys::openat(parent, name, flags, Mode::from_raw_mode(0o600)).map_err(|e| fault(path, e))?;
        self.count(path, 0)?;
        Ok(file.into())
    }

    fn link(&mut self, parent: &OwnedFd, name: &[u8], path: &[u8], target: &[u8]) -> Result<(), LayerError> {
        if target == path {
            return Err(invalid(path, "it is a link to itself"));
        }
        let (directory, target_name) = split(target);
        let found = open_directory(&self.root, &directory).and_then(|directory| {
            let kind = tree::kind(&directory, &target_name)?;
            Ok((directory, kind))
        });
        match found {
            Ok((_, FileType::Directory)) => Err(invalid(path, "it is a link to a directory")),
            Ok((directory, _)) => {
                self.clear(parent, name, path, false)?;
                sys::linkat(&directory, &target_name, parent, name, AtFlags::empty())
                    .map_err(|e| fault(path, e))
            }
            Err(Errno::NOENT) => {
                self.clear(parent, name, path, false)?;
                self.remember(path.len() + target.len())?;
                self.missing.push((path.to_vec(), target.to_vec()));
                Ok(())
            }
            Err(e) => Err(fault(path, e)),
        }
    }

    /// Writes a file's content; what the archive leaves out, and long rows of zeros, become holes.
    fn content<R: Read>(
        &mut self,
        entry: &Entry,
        reader: &mut Reader<R>,
        file: &std::fs::File,
        path: &[u8],
    ) -> Result<(), LayerError> {
        let whole = [(0, entry.size)];
        for (offset, length) in entry.pieces.as_deref().unwrap_or(&whole) {
            if *offset > 0 {
                sys::seek(file, sys::SeekFrom::Start(*offset)).map_err(|e| fault(path, e))?;
            }
            self.copy(reader, file, path, *length)?;
        }
        if entry.size > 0 {
            sys::ftruncate(file, entry.size).map_err(|e| fault(path, e))?;
        }
        Ok(())
    }

    /// Copies `length` bytes, or all there are, to the file's position on; how many there were.
    pub(super) fn copy(
        &mut self,
        source: &mut impl Read,
        file: &std::fs::File,
        path: &[u8],
        length: u64,
    ) -> Result<u64, LayerError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        // Small files are written as they are: a hole would cost more than it saves.
        let holes = length > 4 * HOLE as u64;
        let mut left = length;
        let mut result = Ok(());
        while left > 0 && result.is_ok() {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let read = match fill(source, &mut buffer[..most]) {
                Ok(0) => break,
                Ok(read) => read,
                Err(e) => {
                    result = Err(LayerError::Archive(e));
                    break;
                }
            };
            left -= read as u64;
            result = match write(file, &buffer[..read], holes) {
                Ok(written) => {
                    self.usage.bytes += written.div_ceil(HOLE as u64) * HOLE as u64;
                    self.take(path, written, 0)
                }
                Err(e) => Err(fault(path, e)),
            };
        }
        self.buffer = buffer;
        result.map(|()| length - left)
    }

    /// Owner, attributes, permissions and times, in the order in which one does not take away another: a change of
    /// the owner clears set-id bits and capabilities.
    fn attributes(parent: &OwnedFd, name: &[u8], entry: &Entry) -> Result<(), LayerError> {
        let failed = |e| fault(&entry.name, e);
        let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
        sys::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        for (key, value) in &entry.xattrs {
            tree::set_xattr(parent, name, key, value, entry.kind).map_err(failed)?;
        }
        if entry.kind != Kind::Symlink {
            let mode = Mode::from_raw_mode(RawMode::from(entry.mode));
            sys::chmodat(parent, name, mode, AtFlags::empty()).map_err(failed)?;
        }
        if entry.kind != Kind::Directory {
            sys::utimensat(parent, name, &timestamps(entry.mtime), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(failed)?;
        }
        Ok(())
    }
}

/// The thing that was in the way of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cleared {
    Nothing,
    Something,
    Whiteout,
    Kept,
}

/// Writes data at the file's position, with holes for rows of zeros; how many bytes were written.
fn write(file: &std::fs::File, data: &[u8], holes: bool) -> Result<u64, Errno> {
    let mut written = 0;
    let mut rest = data;
    while !rest.is_empty() {
        let is_hole = |part: &[u8]| holes && part.len() == HOLE && part.iter().all(|b| *b == 0);
        let zeros = rest.chunks(HOLE).take_while(|part| is_hole(part)).count() * HOLE;
        if zeros > 0 {
            sys::seek(file, sys::SeekFrom::Current(zeros as i64))?;
            rest = &rest[zeros..];
        }
        let full = rest.chunks(HOLE).take_while(|part| !is_hole(part)).map(<[u8]>::len).sum();
        let (mut part, after) = rest.split_at(full);
        rest = after;
        while !part.is_empty() {
            match rustix::io::write(file, part) {
                Ok(count) => {
                    part = &part[count..];
                    written += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(written)
}

/// Reads until the buffer is full or the source ends.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

pub(super) fn timestamps((seconds, nanos): (i64, u32)) -> sys::Timestamps {
    let time = sys::Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    sys::Timestamps { last_access: time, last_modification: time }
}
