//! System calls, made without a library.

use crate::nr;

/// A result of a system call: its value, or the error's number.
pub(crate) type Result<T> = core::result::Result<T, i32>;

pub(crate) const EPERM: i32 = 1;
pub(crate) const ENOENT: i32 = 2;
pub(crate) const EINTR: i32 = 4;
pub(crate) const E2BIG: i32 = 7;
pub(crate) const ENOEXEC: i32 = 8;
pub(crate) const EBADF: i32 = 9;
pub(crate) const EAGAIN: i32 = 11;
pub(crate) const ENOMEM: i32 = 12;
pub(crate) const EACCES: i32 = 13;
pub(crate) const EEXIST: i32 = 17;
pub(crate) const ENODEV: i32 = 19;
pub(crate) const ENOTDIR: i32 = 20;
pub(crate) const EISDIR: i32 = 21;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENOTTY: i32 = 25;
pub(crate) const ETXTBSY: i32 = 26;
pub(crate) const EROFS: i32 = 30;
pub(crate) const ENOSYS: i32 = 38;
pub(crate) const ELOOP: i32 = 40;
pub(crate) const EBADMSG: i32 = 74;
pub(crate) const EOPNOTSUPP: i32 = 95;
pub(crate) const ENAMETOOLONG: i32 = 36;
pub(crate) const ENOBUFS: i32 = 105;
pub(crate) const ESRCH: i32 = 3;
pub(crate) const ECONNRESET: i32 = 104;

pub(crate) const AT_FDCWD: i32 = -100;
pub(crate) const O_RDONLY: u64 = 0;
pub(crate) const O_WRONLY: u64 = 1;
pub(crate) const O_RDWR: u64 = 2;
pub(crate) const O_CREAT: u64 = 0o100;
pub(crate) const O_EXCL: u64 = 0o200;
pub(crate) const O_NOCTTY: u64 = 0o400;
pub(crate) const O_TRUNC: u64 = 0o1000;
#[cfg(target_arch = "x86_64")]
pub(crate) const O_DIRECTORY: u64 = 0o200_000;
#[cfg(target_arch = "x86_64")]
pub(crate) const O_NOFOLLOW: u64 = 0o400_000;
#[cfg(target_arch = "aarch64")]
pub(crate) const O_DIRECTORY: u64 = 0o40_000;
#[cfg(target_arch = "aarch64")]
pub(crate) const O_NOFOLLOW: u64 = 0o100_000;
pub(crate) const O_CLOEXEC: u64 = 0o2_000_000;
pub(crate) const O_PATH: u64 = 0o10_000_000;
pub(crate) const O_NONBLOCK: u64 = 0o4000;
pub(crate) const AT_EMPTY_PATH: usize = 0x1000;
pub(crate) const AT_RECURSIVE: usize = 0x8000;
pub(crate) const AT_SYMLINK_NOFOLLOW: usize = 0x100;

pub(crate) use crate::call::call;

/// A descriptor as an argument.
pub(crate) fn fd(fd: i32) -> usize {
    fd as isize as usize
}

/// An empty path.
pub(crate) const EMPTY: &[u8; 1] = b"\0";

pub(crate) fn exit(code: i32) -> ! {
    loop {
        let _ = call(nr::EXIT_GROUP, &[code as usize]);
    }
}

pub(crate) fn close(d: i32) {
    if d >= 0 {
        let _ = call(nr::CLOSE, &[fd(d)]);
    }
}

pub(crate) fn read(d: i32, buf: &mut [u8]) -> Result<usize> {
    loop {
        match call(nr::READ, &[fd(d), buf.as_mut_ptr() as usize, buf.len()]) {
            Err(EINTR) => {}
            other => return other,
        }
    }
}

pub(crate) fn write(d: i32, buf: &[u8]) -> Result<usize> {
    loop {
        match call(nr::WRITE, &[fd(d), buf.as_ptr() as usize, buf.len()]) {
            Err(EINTR) => {}
            other => return other,
        }
    }
}

/// A part of what is written.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IoVec {
    pub(crate) base: *const u8,
    pub(crate) len: usize,
}

pub(crate) fn writev(d: i32, parts: &[IoVec]) -> Result<usize> {
    loop {
        match call(nr::WRITEV, &[fd(d), parts.as_ptr() as usize, parts.len()]) {
            Err(EINTR) => {}
            other => return other,
        }
    }
}

#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

pub(crate) const RESOLVE_NO_MAGICLINKS: u64 = 2;
pub(crate) const RESOLVE_NO_SYMLINKS: u64 = 4;
pub(crate) const RESOLVE_IN_ROOT: u64 = 0x10;

/// Opens a path, which ends with NUL.
pub(crate) fn openat2(dir: i32, path: *const u8, flags: u64, mode: u64, resolve: u64) -> Result<i32> {
    let how = OpenHow { flags: flags | O_CLOEXEC, mode, resolve };
    loop {
        let r = call(nr::OPENAT2, &[fd(dir), path as usize, &raw const how as usize, size_of::<OpenHow>()]);
        match r {
            // The kernel asks to try again where a rename went on meanwhile.
            Err(EINTR | EAGAIN) => {}
            other => return other.map(|d| d as i32),
        }
    }
}

/// The beginning of a file's description that both architectures need.
#[derive(Clone, Copy)]
pub(crate) struct Stat {
    pub(crate) mode: u32,
    pub(crate) rdev: u64,
}

pub(crate) const S_IFMT: u32 = 0o170_000;
pub(crate) const S_IFDIR: u32 = 0o040_000;
pub(crate) const S_IFREG: u32 = 0o100_000;
pub(crate) const S_IFCHR: u32 = 0o020_000;

fn stat_of(raw: &[u64; 18]) -> Stat {
    #[cfg(target_arch = "x86_64")]
    let mode = raw[3] as u32;
    #[cfg(target_arch = "aarch64")]
    let mode = raw[2] as u32;
    #[cfg(target_arch = "x86_64")]
    let rdev = raw[5];
    #[cfg(target_arch = "aarch64")]
    let rdev = raw[4];
    Stat { mode, rdev }
}

pub(crate) fn fstat(d: i32) -> Result<Stat> {
    let mut raw = [0u64; 18];
    call(nr::FSTAT, &[fd(d), raw.as_mut_ptr() as usize])?;
    Ok(stat_of(&raw))
}

/// Looks at a path, which ends with NUL; symbolic links are followed.
pub(crate) fn stat(path: *const u8) -> Result<Stat> {
    let mut raw = [0u64; 18];
    call(nr::NEWFSTATAT, &[fd(AT_FDCWD), path as usize, raw.as_mut_ptr() as usize, 0])?;
    Ok(stat_of(&raw))
}

/// The type of the file system that holds a file.
pub(crate) fn fs_type(d: i32) -> Result<u64> {
    let mut raw = [0u64; 16];
    call(nr::FSTATFS, &[fd(d), raw.as_mut_ptr() as usize])?;
    Ok(raw[0])
}

/// Anonymous memory, which costs nothing before it is touched.
pub(crate) fn map(len: usize) -> Result<*mut u8> {
    call(nr::MMAP, &[0, len, 3, 0x22, usize::MAX, 0]).map(|p| p as *mut u8)
}

/// A file's content, to be read.
pub(crate) fn map_file(d: i32, len: usize) -> Result<*const u8> {
    call(nr::MMAP, &[0, len, 1, 2, fd(d), 0]).map(|p| p as *const u8)
}

pub(crate) fn unmap(at: *mut u8, len: usize) {
    let _ = call(nr::MUNMAP, &[at as usize, len]);
}

pub(crate) const SIG_BLOCK_ALL: u64 = !0;

/// Sets the mask of signals.
pub(crate) fn mask(set: u64) {
    let _ = call(nr::RT_SIGPROCMASK, &[2, &raw const set as usize, 0, 8]);
}

pub(crate) const CLONE_NEWUSER: u64 = 0x1000_0000;
pub(crate) const CLONE_NEWPID: u64 = 0x2000_0000;
pub(crate) const CLONE_PARENT: u64 = 0x8000;
pub(crate) const CLONE_PIDFD: u64 = 0x1000;
pub(crate) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

#[repr(C)]
#[derive(Default)]
pub(crate) struct CloneArgs {
    pub(crate) flags: u64,
    pub(crate) pidfd: u64,
    pub(crate) child_tid: u64,
    pub(crate) parent_tid: u64,
    pub(crate) exit_signal: u64,
    pub(crate) stack: u64,
    pub(crate) stack_size: u64,
    pub(crate) tls: u64,
    pub(crate) set_tid: u64,
    pub(crate) set_tid_size: u64,
    pub(crate) cgroup: u64,
}

/// Forks, with a copy of memory: 0 in the child.
pub(crate) fn clone3(args: &CloneArgs) -> Result<i32> {
    call(nr::CLONE3, &[core::ptr::from_ref(args) as usize, size_of::<CloneArgs>()]).map(|p| p as i32)
}

pub(crate) const SIGCHLD: u64 = 17;
pub(crate) const SIGKILL: i32 = 9;

/// Waits for children: the process and its status, or none.
pub(crate) fn wait(pid: i32, block: bool) -> Result<Option<(i32, i32)>> {
    let mut status = 0i32;
    loop {
        let flags = if block { 0 } else { 1 } | 0x4000_0000;
        match call(nr::WAIT4, &[fd(pid), &raw mut status as usize, flags, 0]) {
            Err(EINTR) => {}
            Ok(0) => return Ok(None),
            Ok(p) => return Ok(Some((p as i32, status))),
            Err(e) => return Err(e),
        }
    }
}

pub(crate) fn pidfd_open(pid: i32) -> Result<i32> {
    call(nr::PIDFD_OPEN, &[pid as usize, 0]).map(|d| d as i32)
}

pub(crate) fn kill(pid: i32, signal: i32) -> Result<()> {
    call(nr::KILL, &[fd(pid), signal as usize]).map(|_| ())
}

pub(crate) fn setns(d: i32, kind: u64) -> Result<()> {
    call(nr::SETNS, &[fd(d), kind as usize]).map(|_| ())
}

/// The time of day: seconds and nanoseconds.
pub(crate) fn now() -> (i64, i64) {
    clock(0)
}

/// Milliseconds that only grow.
pub(crate) fn monotonic_ms() -> i64 {
    let (s, n) = clock(1);
    s * 1000 + n / 1_000_000
}

fn clock(which: usize) -> (i64, i64) {
    let mut t = [0i64; 2];
    let _ = call(nr::CLOCK_GETTIME, &[which, t.as_mut_ptr() as usize]);
    (t[0], t[1])
}

pub(crate) fn prctl(what: usize, a: usize, b: usize) -> Result<usize> {
    call(nr::PRCTL, &[what, a, b, 0, 0])
}

/// Two connected sockets that keep messages apart.
pub(crate) fn socketpair() -> Result<(i32, i32)> {
    let mut pair = [0i32; 2];
    call(nr::SOCKETPAIR, &[1, 5 | 0o2_000_000, 0, pair.as_mut_ptr() as usize])?;
    Ok((pair[0], pair[1]))
}

#[repr(C)]
struct Message {
    name: usize,
    name_len: usize,
    parts: *const IoVec,
    parts_len: usize,
    control: *const u8,
    control_len: usize,
    flags: usize,
}

/// Room for the descriptors of one message.
pub(crate) const CONTROL: usize = 16 + 4 * 256;

/// Sends a message, and a descriptor if there is one. It does not wait.
pub(crate) fn send(socket: i32, bytes: &[u8], with: Option<i32>) -> Result<()> {
    let part = IoVec { base: bytes.as_ptr(), len: bytes.len() };
    // A length (u64), the level and the type (u32 each), the descriptor.
    let control = [20u64, 1 | 1 << 32, with.unwrap_or(-1) as u32 as u64];
    let message = Message {
        name: 0,
        name_len: 0,
        parts: &raw const part,
        parts_len: 1,
        control: control.as_ptr().cast(),
        control_len: if with.is_some() { 24 } else { 0 },
        flags: 0,
    };
    const NOSIGNAL: usize = 0x4000;
    const DONTWAIT: usize = 0x40;
    loop {
        match call(nr::SENDMSG, &[fd(socket), &raw const message as usize, NOSIGNAL | DONTWAIT]) {
            Err(EINTR) => {}
            Err(e) => return Err(e),
            Ok(_) => return Ok(()),
        }
    }
}

/// Receives a message and its descriptors: the bytes, and how many descriptors. None of either: the other side left.
pub(crate) fn receive(socket: i32, bytes: &mut [u8], fds: &mut [i32], wait: bool) -> Result<(usize, usize)> {
    let part = IoVec { base: bytes.as_mut_ptr(), len: bytes.len() };
    let mut control = [0u64; CONTROL / 8];
    let mut message = Message {
        name: 0,
        name_len: 0,
        parts: &raw const part,
        parts_len: 1,
        control: control.as_mut_ptr().cast(),
        control_len: CONTROL,
        flags: 0,
    };
    const CLOEXEC: usize = 0x4000_0000;
    let flags = CLOEXEC | if wait { 0 } else { 0x40 };
    let n = loop {
        match call(nr::RECVMSG, &[fd(socket), &raw mut message as usize, flags]) {
            Err(EINTR) => {}
            Err(e) => return Err(e),
            Ok(n) => break n,
        }
    };
    let mut count = 0;
    if message.control_len >= 16 && control[1] == 1 | 1 << 32 {
        let len = (control[0] as usize).min(CONTROL).saturating_sub(16) / 4;
        for i in 0..len {
            let word = control[2 + i / 2];
            let d = (if i % 2 == 0 { word } else { word >> 32 }) as u32 as i32;
            match fds.get_mut(count) {
                Some(place) => {
                    *place = d;
                    count += 1;
                }
                None => close(d),
            }
        }
    }
    Ok((n, count))
}
