//! Finds a program and executes it.

use crate::nr;
use crate::plan::{Fields, Run};
use crate::sys::{self, IoVec, Result};
use crate::wire;

/// Finds the program: the first candidate that is a file and may be executed. As runc, a refusal is told rather than
/// that there is none.
pub(crate) fn look(run: &mut Run, f: &mut Fields<'_>) -> Result<()> {
    let mut worst = sys::ENOENT;
    for _ in 0..f.u32()? {
        let path = f.text()?;
        match executable(path.as_ptr()) {
            Ok(()) => {
                (run.program, run.program_len) = (path.as_ptr(), path.len());
                return Ok(());
            }
            Err(sys::ENOENT | sys::ENOTDIR) => {}
            Err(e) => worst = e,
        }
    }
    Err(worst)
}

fn executable(path: *const u8) -> Result<()> {
    let found = sys::stat(path)?;
    if found.mode & sys::S_IFMT == sys::S_IFDIR {
        return Err(sys::EISDIR);
    }
    const EXECUTE: usize = 1;
    const EFFECTIVE: usize = 0x200;
    match sys::call(nr::FACCESSAT2, &[sys::fd(sys::AT_FDCWD), path as usize, EXECUTE, EFFECTIVE]) {
        // A filter of system calls may know the older call alone, or none.
        Err(sys::ENOSYS | sys::EPERM) if found.mode & 0o111 != 0 => Ok(()),
        other => other.map(|_| ()),
    }
}

pub(crate) fn execute(run: &mut Run, f: &mut Fields<'_>) -> Result<()> {
    let (arguments, environment) = lists(f)?;
    if run.program.is_null() {
        return Err(sys::EBADMSG);
    }
    const ON_EXEC: usize = 4;
    let _ = sys::call(nr::CLOSE_RANGE, &[3, u32::MAX as usize, ON_EXEC]);
    sys::mask(0);
    let r = sys::call(nr::EXECVE, &[run.program as usize, arguments as usize, environment as usize]);
    sys::mask(sys::SIG_BLOCK_ALL);
    match r {
        // The container was started already: as runc, its own output says why it ends, and its exit code is 255.
        Err(e) if run.setup.socket < 0 => {
            complain(run, e);
            sys::exit(255)
        }
        other => other.map(|_| ()),
    }
}

/// The lists of arguments and variables, as execve(2) takes them.
pub(crate) fn lists(f: &mut Fields<'_>) -> Result<(*const *const u8, *const *const u8)> {
    let (args, variables) = (f.u32()? as usize, f.u32()? as usize);
    let all = args.checked_add(variables).and_then(|n| n.checked_add(2)).ok_or(sys::EBADMSG)?;
    if all > wire::MAX_PLAN {
        return Err(sys::EBADMSG);
    }
    let lists = sys::map(all * size_of::<*const u8>())?.cast::<*const u8>();
    for i in 0..all {
        let end = i == args || i == all - 1;
        let text = if end { core::ptr::null() } else { f.path()? };
        // SAFETY: `lists` has room for `all` addresses.
        unsafe { lists.add(i).write(text) };
    }
    // SAFETY: as above.
    Ok((lists, unsafe { lists.add(args + 1) }))
}

/// Says on standard error why a program was not executed.
fn complain(run: &Run, error: i32) {
    let words: &[u8] = match error {
        sys::ENOENT => b"no such file or directory\n",
        sys::ENOEXEC => b"exec format error\n",
        sys::EACCES => b"permission denied\n",
        sys::EPERM => b"operation not permitted\n",
        sys::E2BIG => b"argument list too long\n",
        sys::ENOMEM => b"cannot allocate memory\n",
        sys::ETXTBSY => b"text file busy\n",
        sys::ELOOP => b"too many levels of symbolic links\n",
        _ => b"invalid argument\n",
    };
    let part = |bytes: &[u8]| IoVec { base: bytes.as_ptr(), len: bytes.len() };
    let parts = [part(b"exec "), IoVec { base: run.program, len: run.program_len }, part(b": "), part(words)];
    let _ = sys::writev(2, &parts);
}
