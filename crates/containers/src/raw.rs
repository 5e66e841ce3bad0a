//! The system calls for which rustix has no words.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

#[allow(unsafe_code, reason = "a system call by its number")]
#[path = "../shim/call.rs"]
mod call;

/// The number of `mount_setattr(2)`, the same on every architecture.
const MOUNT_SETATTR: usize = 442;
#[cfg(target_arch = "x86_64")]
const BPF: usize = 321;
#[cfg(target_arch = "aarch64")]
const BPF: usize = 280;

#[cfg(target_arch = "x86_64")]
const IOCTL: usize = 16;
#[cfg(target_arch = "aarch64")]
const IOCTL: usize = 29;

const AT_EMPTY_PATH: usize = 0x1000;
const AT_RECURSIVE: usize = 0x8000;

/// Attributes of mounts, as the kernel numbers them.
pub(crate) mod attr {
    pub(crate) const RDONLY: u32 = 0x1;
    pub(crate) const NOSUID: u32 = 0x2;
    pub(crate) const NODEV: u32 = 0x4;
    pub(crate) const NOEXEC: u32 = 0x8;
    /// All ways to keep access times; cleared before one is set.
    pub(crate) const ATIME: u32 = 0x70;
    pub(crate) const NOATIME: u32 = 0x10;
    pub(crate) const STRICTATIME: u32 = 0x20;
    pub(crate) const NODIRATIME: u32 = 0x80;
    pub(crate) const IDMAP: u32 = 0x0010_0000;
    pub(crate) const NOSYMFOLLOW: u32 = 0x0020_0000;
}

/// Ways in which mounts spread, as mount(2) numbers them.
pub(crate) mod propagation {
    pub(crate) const REC: u32 = 0x4000;
    pub(crate) const UNBINDABLE: u32 = 1 << 17;
    pub(crate) const PRIVATE: u32 = 1 << 18;
    pub(crate) const SLAVE: u32 = 1 << 19;
    pub(crate) const SHARED: u32 = 1 << 20;
}

/// A change of a mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) set: u32,
    pub(crate) clear: u32,
    /// 0: as it is.
    pub(crate) propagation: u32,
    pub(crate) recursive: bool,
}

fn done(r: Result<usize, i32>) -> io::Result<usize> {
    r.map_err(io::Error::from_raw_os_error)
}

/// Changes a mount; with `user`, its owners are mapped by that user namespace.
pub(crate) fn mount_setattr(
    mount: BorrowedFd<'_>,
    change: Change,
    user: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let idmap = user.map_or(0, |_| attr::IDMAP);
    let words: [u64; 4] = [
        u64::from(change.set | idmap),
        u64::from(change.clear),
        u64::from(change.propagation),
        user.map_or(0, |u| u.as_raw_fd() as u64),
    ];
    let how = AT_EMPTY_PATH | if change.recursive { AT_RECURSIVE } else { 0 };
    let empty = c"";
    let args = [
        mount.as_raw_fd() as usize,
        empty.as_ptr() as usize,
        how,
        words.as_ptr() as usize,
        size_of_val(&words),
    ];
    done(call::call(MOUNT_SETATTR, &args)).map(|_| ())
}

/// Loads a program that decides about devices (`BPF_PROG_TYPE_CGROUP_DEVICE`): instructions as the kernel has them.
pub(crate) fn load_device_program(program: &[u64]) -> io::Result<OwnedFd> {
    const LOAD: usize = 5;
    const CGROUP_DEVICE: u64 = 15;
    let license = c"Apache-2.0";
    let attributes: [u64; 6] = [
        CGROUP_DEVICE | (program.len() as u64) << 32,
        program.as_ptr() as u64,
        license.as_ptr() as u64,
        0,
        0,
        0,
    ];
    let d = done(call::call(BPF, &[LOAD, attributes.as_ptr() as usize, size_of_val(&attributes)]))?;
    Ok(own(d))
}

/// Attaches a device program to a cgroup; with `replace`, in the place of another one.
pub(crate) fn attach_device_program(
    cgroup: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    replace: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    const ATTACH: usize = 8;
    const DEVICE: u64 = 6;
    const ALLOW_MULTI: u64 = 2;
    const REPLACE: u64 = 4;
    let flags = ALLOW_MULTI | if replace.is_some() { REPLACE } else { 0 };
    let attributes: [u64; 3] = [
        cgroup.as_raw_fd() as u64 | (program.as_raw_fd() as u64) << 32,
        DEVICE | flags << 32,
        replace.map_or(0, |r| r.as_raw_fd() as u64),
    ];
    done(call::call(BPF, &[ATTACH, attributes.as_ptr() as usize, size_of_val(&attributes)])).map(|_| ())
}

/// The device programs of a cgroup.
pub(crate) fn device_programs(cgroup: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    const QUERY: usize = 16;
    const GET_FD: usize = 13;
    const DEVICE: u64 = 6;
    let mut ids = [0u32; 64];
    let mut attributes: [u64; 5] =
        [cgroup.as_raw_fd() as u64 | DEVICE << 32, 0, ids.as_mut_ptr() as u64, ids.len() as u64, 0];
    done(call::call(BPF, &[QUERY, attributes.as_mut_ptr() as usize, size_of_val(&attributes)]))?;
    // The kernel wrote the number of programs into the fourth word.
    let count = attributes[3] as u32 as usize;
    ids.iter()
        .take(count)
        .map(|id| {
            let attributes: [u64; 2] = [u64::from(*id), 0];
            done(call::call(BPF, &[GET_FD, attributes.as_ptr() as usize, size_of_val(&attributes)])).map(own)
        })
        .collect()
}

/// The user namespace to which another one belongs (`NS_GET_USERNS`).
pub(crate) fn user_namespace(namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const GET_USERNS: usize = 0xb701;
    done(call::call(IOCTL, &[namespace.as_raw_fd() as usize, GET_USERNS])).map(own)
}

#[allow(unsafe_code, reason = "a descriptor that a system call has just made")]
fn own(d: usize) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: the kernel made the descriptor for this call, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(d as i32) }
}

/// Makes a descriptor that is not waited for.
pub(crate) fn nonblocking(d: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&d)?;
    Ok(rustix::fs::fcntl_setfl(&d, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// Makes a descriptor one that tokio waits for.
#[allow(unsafe_code, reason = "tokio asks for the promise that a descriptor stays the same")]
pub(crate) fn registered(d: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is the same open descriptor as long as it lives.
    Ok(unsafe { AsyncFd::register_with_interest(d, interest) }?)
}
