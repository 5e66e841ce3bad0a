//! Runs a hook in the container, before its program is executed.

use crate::exits;
use crate::nr;
use crate::plan::{self, Fields, Run};
use crate::program;
use crate::sys::{self, Result};
use crate::wire::hook;

/// Runs a hook to its end. Its input is the container's state, its output that of the container. One that fails ends
/// the container's start.
pub(crate) fn run(run: &Run, f: &mut Fields<'_>) -> Result<()> {
    let (place, limit) = (f.u32()?, f.u32()?);
    let path = f.path()?;
    let (head, tail) = (f.text()?, f.text()?);
    let (arguments, environment) = program::lists(f)?;
    let input = sys::call(nr::MEMFD_CREATE, &[b"state\0".as_ptr() as usize, 1])? as i32;
    let pid = sys::call(nr::GETPID, &[])?;
    let mut number = [0u8; 24];
    let at = exits::digits(&mut number, pid as i64);
    for text in [head, &number[at..], tail] {
        if sys::write(input, text)? != text.len() {
            return Err(sys::ENOBUFS);
        }
    }
    sys::call(nr::LSEEK, &[sys::fd(input), 0, 0])?;
    // A filter of system calls may refuse the newer call.
    let child = sys::call(nr::CLONE, &[sys::SIGCHLD as usize, 0, 0, 0, 0])? as i32;
    if child == 0 {
        if sys::call(nr::DUP3, &[sys::fd(input), 0, 0]).is_ok() {
            let _ = sys::call(nr::CLOSE_RANGE, &[3, u32::MAX as usize, 0]);
            sys::mask(0);
            let _ = sys::call(nr::EXECVE, &[path as usize, arguments as usize, environment as usize]);
        }
        sys::exit(127);
    }
    sys::close(input);
    match wait(child, limit) {
        Some(0) => Ok(()),
        ended => {
            let how = match ended {
                None => hook::LATE,
                Some(status) if status & 0x7f == 0 => hook::CODE + (status >> 8 & 0xff) as u32,
                Some(status) => hook::SIGNAL + (status & 0x7f) as u32,
            };
            plan::fail(run, hook::FIRST - place.min(hook::MOST), how as i32, 0)
        }
    }
}

/// Waits for a child's end; none if its time was up, and then it is gone, too.
fn wait(child: i32, limit: u32) -> Option<i32> {
    let end = sys::monotonic_ms() + i64::from(limit);
    let signal = 1u64 << (sys::SIGCHLD - 1);
    loop {
        match sys::wait(child, false) {
            Ok(Some((_, status))) => return Some(status),
            Ok(None) => {}
            Err(_) => return Some(0xff00),
        }
        let left = end - sys::monotonic_ms();
        if left <= 0 {
            let _ = sys::kill(child, sys::SIGKILL);
            let _ = sys::wait(child, true);
            return None;
        }
        let time = [left / 1000, left % 1000 * 1_000_000];
        let (signals, time) = (&raw const signal as usize, time.as_ptr() as usize);
        let _ = sys::call(nr::RT_SIGTIMEDWAIT, &[signals, 0, time, 8]);
    }
}
