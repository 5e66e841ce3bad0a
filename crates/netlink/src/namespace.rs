//! Network namespaces.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::{io, thread};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Does work in a network namespace, on a thread that ends with it. Sockets that the work opens stay in the namespace.
pub fn within<T: Send>(namespace: BorrowedFd<'_>, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let enter = thread::Builder::new().name("namespace".into()).spawn_scoped(scope, move || {
            move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
            Ok(work())
        })?;
        enter.join().unwrap_or_else(|_| Err(io::Error::other("work in a network namespace panicked")))
    })
}

/// Opens the network namespace that a path names; fails for a file that is none.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    if is_namespace(file.as_fd()) {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no network namespace"))
}

/// The number of a namespace, which no other one has while it is there.
///
/// # Errors
/// The system refused to tell.
pub fn number(namespace: &File) -> io::Result<u64> {
    Ok(rustix::fs::fstat(namespace)?.st_ino)
}

/// The network namespace of this thread.
///
/// # Errors
/// There is no `/proc`.
pub fn own() -> io::Result<File> {
    open(Path::new("/proc/thread-self/ns/net"))
}

/// Whether a file is a network namespace: a file of `nsfs` that only such a one is taken for.
fn is_namespace(file: BorrowedFd<'_>) -> bool {
    /// `NSFS_MAGIC`.
    const NSFS: i64 = 0x6e73_6673;
    rustix::fs::fstatfs(file).is_ok_and(|of| of.f_type == NSFS)
}
