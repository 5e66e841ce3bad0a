//! Carries out a plan, in the process that it is for.

use crate::hook;
use crate::mounts;
use crate::nr;
use crate::program;
use crate::serve;
use crate::sys::{self, Result};
use crate::wire::{self, flag, note, step};

/// The sockets of a process that is set up.
pub(crate) struct Setup {
    /// The runtime's.
    pub(crate) socket: i32,
    /// The shim's, or none.
    pub(crate) go: i32,
}

/// The fields of a step, read with checks.
pub(crate) struct Fields<'p> {
    rest: &'p [u8],
}

impl<'p> Fields<'p> {
    pub(crate) fn u32(&mut self) -> Result<u32> {
        let (head, rest) = self.rest.split_at_checked(4).ok_or(sys::EBADMSG)?;
        self.rest = rest;
        Ok(u32::from_le_bytes([head[0], head[1], head[2], head[3]]))
    }
    pub(crate) fn u64(&mut self) -> Result<u64> {
        let low = self.u32()?;
        Ok(u64::from(low) | u64::from(self.u32()?) << 32)
    }
    /// A text without its NUL, which follows it in memory.
    pub(crate) fn text(&mut self) -> Result<&'p [u8]> {
        let len = self.u32()? as usize;
        let padded = (len.checked_add(1).ok_or(sys::EBADMSG)?).checked_add(3).ok_or(sys::EBADMSG)? & !3;
        let (text, rest) = self.rest.split_at_checked(padded).ok_or(sys::EBADMSG)?;
        if text[len] != 0 {
            return Err(sys::EBADMSG);
        }
        self.rest = rest;
        Ok(&text[..len])
    }
    /// A text as an address that the kernel can read up to its NUL.
    pub(crate) fn path(&mut self) -> Result<*const u8> {
        self.text().map(<[u8]>::as_ptr)
    }
}

/// Things that steps leave for later ones.
pub(crate) struct Run {
    pub(crate) setup: Setup,
    fds: [i32; wire::MAX_FDS],
    count: usize,
    made: [i32; wire::MAX_MADE],
    made_count: usize,
    /// The host's root, while it is reachable yet.
    old_root: i32,
    /// Whether the first try of the working directory was refused.
    cwd_again: bool,
    /// The program that was found.
    pub(crate) program: *const u8,
    pub(crate) program_len: usize,
}

impl Run {
    /// A descriptor of the plan.
    pub(crate) fn fd(&self, index: u32) -> Result<i32> {
        self.fds.get(index as usize).copied().filter(|_| (index as usize) < self.count).ok_or(sys::EBADF)
    }
    /// Tells the runtime, or the shim once the runtime has let go.
    fn tell(&self, kind: u32, figures: [u32; 3], with: Option<i32>) -> Result<()> {
        let socket = if self.setup.socket >= 0 { self.setup.socket } else { self.setup.go };
        tell(socket, kind, figures, with)
    }
}

fn tell(socket: i32, kind: u32, figures: [u32; 3], with: Option<i32>) -> Result<()> {
    let mut bytes = [0u8; note::LEN];
    for (place, word) in bytes.chunks_exact_mut(4).zip([kind, figures[0], figures[1], figures[2]]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    sys::send(socket, &bytes, with)
}

/// Receives the plan and carries it out. A failure is told and ends the process.
pub(crate) fn run(setup: Setup) -> ! {
    let mut run = Run {
        setup,
        fds: [-1; wire::MAX_FDS],
        count: 0,
        made: [-1; wire::MAX_MADE],
        made_count: 0,
        old_root: -1,
        cwd_again: false,
        program: core::ptr::null(),
        program_len: 0,
    };
    let plan = match receive(&mut run) {
        Ok(plan) => plan,
        Err(e) => fail(&run, u32::MAX, e, 0),
    };
    let mut rest = plan;
    let mut place = 0;
    while !rest.is_empty() {
        let Some((head, after)) = rest.split_at_checked(wire::STEP_HEADER) else {
            fail(&run, place, sys::EBADMSG, 0)
        };
        let op = u16::from_le_bytes([head[0], head[1]]);
        let flags = u16::from_le_bytes([head[2], head[3]]);
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let Some((fields, next)) = after.split_at_checked(len) else { fail(&run, place, sys::EBADMSG, 0) };
        match act(&mut run, op, flags, Fields { rest: fields }) {
            Ok(()) => {}
            Err(e) if flags & flag::OPTIONAL != 0 && tolerated(e) => {}
            Err(e) => fail(&run, place, e, 0),
        }
        rest = next;
        place += 1;
    }
    fail(&run, place, sys::EBADMSG, 0)
}

/// Errors that say that a kernel or a machine does not have or allow something.
fn tolerated(e: i32) -> bool {
    matches!(
        e,
        sys::EPERM
            | sys::EACCES
            | sys::ENOENT
            | sys::ENOTDIR
            | sys::EEXIST
            | sys::ELOOP
            | sys::ENOSYS
            | sys::EINVAL
            | sys::EOPNOTSUPP
            | sys::EROFS
            | sys::ENODEV
    )
}

pub(crate) fn fail(run: &Run, place: u32, error: i32, detail: u32) -> ! {
    let _ = run.tell(note::FAILED, [place, error as u32, detail], None);
    sys::exit(127)
}

/// Receives the plan: its length and the number of descriptors first, with the memory file, then the descriptors.
fn receive(run: &mut Run) -> Result<&'static [u8]> {
    let mut head = [0u8; 8];
    let mut file = [-1i32; 1];
    let (n, with) = sys::receive(run.setup.socket, &mut head, &mut file, true)?;
    if n == 0 {
        return Err(sys::ECONNRESET);
    }
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let count = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if n != 8 || with != 1 || len == 0 || len > wire::MAX_PLAN || count > wire::MAX_FDS {
        return Err(sys::EBADMSG);
    }
    let at = sys::map_file(file[0], len)?;
    sys::close(file[0]);
    while run.count < count {
        let mut word = [0u8; 4];
        let (n, got) = sys::receive(run.setup.socket, &mut word, &mut run.fds[run.count..], true)?;
        if n == 0 {
            return Err(sys::ECONNRESET);
        }
        if got == 0 {
            return Err(sys::EBADMSG);
        }
        run.count += got;
    }
    // SAFETY: the file is sealed before it is sent, so it keeps its length; the mapping lives as long as the process.
    Ok(unsafe { core::slice::from_raw_parts(at, len) })
}

#[allow(clippy::too_many_lines)]
fn act(run: &mut Run, op: u16, flags: u16, mut f: Fields<'_>) -> Result<()> {
    match op {
        step::UNSHARE => sys::call(nr::UNSHARE, &[f.u32()? as usize]).map(|_| ()),
        step::SETNS => {
            let d = run.fd(f.u32()?)?;
            sys::setns(d, u64::from(f.u32()?))
        }
        step::SYNC => sync(run, f.u32()?),
        step::HOSTNAME => {
            let text = f.text()?;
            sys::call(nr::SETHOSTNAME, &[text.as_ptr() as usize, text.len()]).map(|_| ())
        }
        step::DOMAINNAME => {
            let text = f.text()?;
            sys::call(nr::SETDOMAINNAME, &[text.as_ptr() as usize, text.len()]).map(|_| ())
        }
        step::WRITE => {
            let path = f.path()?;
            let text = f.text()?;
            let d = sys::openat2(sys::AT_FDCWD, path, sys::O_WRONLY | sys::O_TRUNC, 0, 0)?;
            let r = sys::write(d, text);
            sys::close(d);
            r.map(|_| ())
        }
        step::PROPAGATION => {
            let root = b"/\0".as_ptr() as usize;
            sys::call(nr::MOUNT, &[0, root, 0, f.u32()? as usize, 0]).map(|_| ())
        }
        step::ATTACH_ROOT => mounts::attach_root(run.fd(f.u32()?)?),
        step::ENTER_ROOT => {
            run.old_root = mounts::enter_root(f.path()?)?;
            Ok(())
        }
        step::LEAVE_HOST => {
            let old = core::mem::replace(&mut run.old_root, -1);
            mounts::leave_host(old, f.path()?)
        }
        step::HOOK => hook::run(run, &mut f),
        step::MKDIR => {
            let path = f.text()?;
            mounts::make_directories(path, f.u32()?).map(sys::close)
        }
        step::MOUNT_FD => {
            let d = run.fd(f.u32()?)?;
            mounts::attach(d, f.text()?, flags)
        }
        step::MOUNT_FS => mounts::new_fs(&mut f, flags),
        step::MAKE_FS => {
            let (kind, attributes) = (f.path()?, f.u32()?);
            let mount = mounts::make_fs(kind, attributes, &mut f)?;
            let place = run.made.get_mut(run.made_count).ok_or(sys::ENOBUFS)?;
            *place = mount;
            run.made_count += 1;
            Ok(())
        }
        step::MOUNT_MADE => {
            let place = f.u32()? as usize;
            let d = run.made.get(place).copied().filter(|_| place < run.made_count).ok_or(sys::EBADF)?;
            mounts::attach(d, f.text()?, flags)
        }
        step::MASK => {
            let d = run.fd(f.u32()?)?;
            mounts::mask(d, f.path()?)
        }
        step::READONLY => mounts::read_only(f.path()?),
        step::ATTR => mounts::change(&mut f),
        step::MKNOD => mounts::node(&mut f),
        step::SYMLINK => mounts::link(&mut f),
        step::RLIMIT => {
            let (what, soft, hard) = (f.u32()?, f.u64()?, f.u64()?);
            let limit = [soft, hard];
            sys::call(nr::PRLIMIT64, &[0, what as usize, limit.as_ptr() as usize, 0]).map(|_| ())
        }
        step::PTY => terminal(run, flags, &mut f),
        step::STDIO => {
            for to in 0..3 {
                let from = run.fd(f.u32()?)?;
                sys::call(nr::DUP3, &[sys::fd(from), to, 0])?;
            }
            Ok(())
        }
        step::SESSION => sys::call(nr::SETSID, &[]).map(|_| ()),
        step::BOUNDING => bounding(f.u64()?),
        step::USER => user(flags, &mut f),
        step::CAPS => capabilities(&mut f),
        step::NO_NEW_PRIVS => sys::prctl(38, 1, 0).map(|_| ()),
        step::SECCOMP => {
            let how = f.u32()?;
            let program = f.text()?;
            let head = [(program.len() / 8) as u64, program.as_ptr() as u64];
            sys::call(nr::SECCOMP, &[1, how as usize, head.as_ptr() as usize]).map(|_| ())
        }
        step::CWD => {
            if flags & flag::AGAIN != 0 && !run.cwd_again {
                return Ok(());
            }
            let r = mounts::enter(f.path()?);
            if r == Err(sys::EACCES) && flags & flag::AGAIN == 0 {
                run.cwd_again = true;
                return Ok(());
            }
            r
        }
        step::UMASK => sys::call(nr::UMASK, &[f.u32()? as usize]).map(|_| ()),
        step::WAIT => wait(run),
        step::LOOK => program::look(run, &mut f),
        step::EXEC => program::execute(run, &mut f),
        step::REAP => reap(run),
        step::SERVE => {
            let (listen, exits) = (run.fd(f.u32()?)?, run.fd(f.u32()?)?);
            run.tell(note::READY, [0; 3], None)?;
            serve::serve(listen, exits)
        }
        step::LOOPBACK => loopback(),
        step::KEYRING => {
            let name = f.path()?;
            sys::call(nr::KEYCTL, &[1, name as usize]).map(|_| ())
        }
        step::PERSONALITY => sys::call(nr::PERSONALITY, &[f.u32()? as usize]).map(|_| ()),
        step::IO_PRIORITY => sys::call(nr::IOPRIO_SET, &[1, 0, f.u32()? as usize]).map(|_| ()),
        step::HIDE => sys::prctl(4, 0, 0).map(|_| ()),
        step::SCHEDULER => {
            let (policy, priority, nice) = (f.u32()?, f.u32()?, f.u32()?);
            sys::call(nr::SCHED_SETSCHEDULER, &[0, policy as usize, &raw const priority as usize])?;
            sys::call(nr::SETPRIORITY, &[0, 0, sys::fd(nice as i32)]).map(|_| ())
        }
        step::JOIN => sys::write(run.fd(f.u32()?)?, b"0").map(|_| ()),
        step::END => sys::exit(0),
        _ => Err(sys::EBADMSG),
    }
}

/// Asks the runtime to do something, and waits until it has. A runtime that ends ends the process, too.
fn sync(run: &Run, code: u32) -> Result<()> {
    run.tell(note::SYNC, [code, 0, 0], None)?;
    let mut word = [0u8; 4];
    let (n, _) = sys::receive(run.setup.socket, &mut word, &mut [], true)?;
    if n == 4 && u32::from_le_bytes(word) == code { Ok(()) } else { Err(sys::ECONNRESET) }
}

fn wait(run: &mut Run) -> Result<()> {
    run.tell(note::READY, [0; 3], None)?;
    sys::close(run.setup.socket);
    run.setup.socket = -1;
    tell(run.setup.go, note::READY, [0; 3], None)?;
    let mut word = [0u8; 4];
    match sys::receive(run.setup.go, &mut word, &mut [], true) {
        Ok((4, _)) => Ok(()),
        _ => sys::exit(127),
    }
}

fn bounding(keep: u64) -> Result<()> {
    for cap in 0..64 {
        if keep & 1 << cap == 0 {
            match sys::prctl(24, cap, 0) {
                Ok(_) => {}
                // The kernel has no such capability, and none after it.
                Err(sys::EINVAL) => break,
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

fn user(flags: u16, f: &mut Fields<'_>) -> Result<()> {
    let (uid, gid, count) = (f.u32()? as usize, f.u32()? as usize, f.u32()? as usize);
    let groups = f.rest.as_ptr();
    if count > f.rest.len() / 4 {
        return Err(sys::EBADMSG);
    }
    if flags & flag::KEEP != 0 {
        sys::prctl(8, 1, 0)?;
    }
    if flags & flag::NO_GROUPS == 0 {
        // Fields are aligned to four bytes.
        sys::call(nr::SETGROUPS, &[count, groups as usize])?;
    }
    sys::call(nr::SETRESGID, &[gid, gid, gid])?;
    sys::call(nr::SETRESUID, &[uid, uid, uid])?;
    if flags & flag::KEEP != 0 {
        sys::prctl(8, 0, 0)?;
    }
    Ok(())
}

fn capabilities(f: &mut Fields<'_>) -> Result<()> {
    let (effective, permitted, inheritable, ambient) = (f.u64()?, f.u64()?, f.u64()?, f.u64()?);
    let head = [0x2008_0522u32, 0];
    let low = |set: u64| set as u32;
    let high = |set: u64| (set >> 32) as u32;
    let sets = [
        low(effective),
        low(permitted),
        low(inheritable),
        high(effective),
        high(permitted),
        high(inheritable),
    ];
    sys::call(nr::CAPSET, &[head.as_ptr() as usize, sets.as_ptr() as usize])?;
    // Older kernels than 4.3 have no ambient set; all that are supported do.
    sys::prctl(47, 4, 0)?;
    for cap in 0..64 {
        if ambient & 1 << cap != 0 {
            sys::prctl(47, 2, cap)?;
        }
    }
    Ok(())
}

fn terminal(run: &mut Run, flags: u16, f: &mut Fields<'_>) -> Result<()> {
    const UNLOCK: usize = 0x4004_5431;
    const PEER: usize = 0x5441;
    const SET_SIZE: usize = 0x5414;
    const CONTROLLING: usize = 0x540e;
    let (height, width, owner) = (f.u32()?, f.u32()?, f.u32()?);
    let master = mounts::open_master()?;
    let zero = 0i32;
    sys::call(nr::IOCTL, &[sys::fd(master), UNLOCK, &raw const zero as usize])?;
    let how = (sys::O_RDWR | sys::O_NOCTTY | sys::O_CLOEXEC) as usize;
    let slave = sys::call(nr::IOCTL, &[sys::fd(master), PEER, how])? as i32;
    let size = [height as u16, width as u16, 0, 0];
    sys::call(nr::IOCTL, &[sys::fd(master), SET_SIZE, size.as_ptr() as usize])?;
    sys::call(nr::FCHOWN, &[sys::fd(slave), owner as usize, u32::MAX as usize])?;
    if flags & flag::CONSOLE != 0 {
        mounts::console(slave)?;
    }
    let to = if flags & flag::TO_RUNTIME != 0 { run.setup.socket } else { run.setup.go };
    tell(to, note::CONSOLE, [0; 3], Some(master))?;
    sys::close(master);
    sys::call(nr::SETSID, &[])?;
    sys::call(nr::IOCTL, &[sys::fd(slave), CONTROLLING, 0])?;
    for stream in 0..3 {
        sys::call(nr::DUP3, &[sys::fd(slave), stream, 0])?;
    }
    sys::close(slave);
    Ok(())
}

/// The first process of a process namespace: it holds nothing, and reaps what nobody else does.
fn reap(run: &mut Run) -> Result<()> {
    run.tell(note::READY, [0; 3], None)?;
    let _ = sys::call(nr::CLOSE_RANGE, &[0, u32::MAX as usize, 0]);
    let child = 1u64 << (sys::SIGCHLD - 1);
    loop {
        while let Ok(Some(_)) = sys::wait(-1, false) {}
        let _ = sys::call(nr::RT_SIGTIMEDWAIT, &[&raw const child as usize, 0, 0, 8]);
    }
}

fn loopback() -> Result<()> {
    const SET_FLAGS: usize = 0x8914;
    let socket = sys::call(nr::SOCKET, &[2, 2 | 0o2_000_000, 0])? as i32;
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    // Up, loopback, running.
    request[16] = 0x49;
    let r = sys::call(nr::IOCTL, &[sys::fd(socket), SET_FLAGS, request.as_ptr() as usize]);
    sys::close(socket);
    r.map(|_| ())
}
