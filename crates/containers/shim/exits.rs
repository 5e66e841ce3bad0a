//! Records of processes' ends.

use crate::nr;
use crate::sys::{self, IoVec};

/// Digits of a number, from the end of a buffer; where they begin.
pub(crate) fn digits(out: &mut [u8; 24], value: i64) -> usize {
    let mut rest = value.unsigned_abs();
    let mut at = out.len();
    loop {
        at -= 1;
        out[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    at
}

/// Writes an exit record: a file with the slot's number as name, and status, seconds, nanoseconds, failed step and its
/// error as text. It appears whole or not at all.
pub(crate) fn record(exits: i32, id: u32, status: i32, ended: (i64, i64), failure: (u32, u32)) {
    let mut text = [0u8; 128];
    let mut len = 0;
    for value in [i64::from(status), ended.0, ended.1, i64::from(failure.0), i64::from(failure.1)] {
        let mut number = [0u8; 24];
        let at = digits(&mut number, value);
        let part = &number[at..];
        text[len..len + part.len()].copy_from_slice(part);
        text[len + part.len()] = b' ';
        len += part.len() + 1;
    }
    text[len - 1] = b'\n';
    let mut number = [0u8; 24];
    let at = digits(&mut number, i64::from(id));
    let mut name = [0u8; 32];
    let digits = number.len() - at;
    name[..digits].copy_from_slice(&number[at..]);
    let mut temporary = name;
    temporary[digits..digits + 4].copy_from_slice(b".new");
    let flags = sys::O_WRONLY | sys::O_CREAT | sys::O_TRUNC;
    let Ok(file) = sys::openat2(exits, temporary.as_ptr(), flags, 0o600, 0) else { return };
    let written = sys::writev(file, &[IoVec { base: text.as_ptr(), len }]) == Ok(len);
    sys::close(file);
    if written {
        let (from, to) = (temporary.as_ptr() as usize, name.as_ptr() as usize);
        let _ = sys::call(nr::RENAMEAT, &[sys::fd(exits), from, sys::fd(exits), to]);
    }
}
