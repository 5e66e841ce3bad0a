//! Rules about devices: lines of the devices controller in version 1, a program in version 2.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};
use rustix::fs::{Mode, OFlags};

use super::write::Write;
use crate::raw;

/// A rule: the kind (`a`, `b`, `c`), numbers (none: any), what may be done (`rwm`), and whether it may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) kind: char,
    pub(crate) major: Option<u32>,
    pub(crate) minor: Option<u32>,
    pub(crate) access: String,
    pub(crate) allow: bool,
}

/// The rules of a container: its own, then what every container may do (nodes of any device, the devices that the OCI
/// runtime specification gives it, terminals), as in runc.
pub(crate) fn rules(own: &[LinuxDeviceCgroup]) -> Vec<Rule> {
    let mut out: Vec<Rule> = own
        .iter()
        .map(|r| Rule {
            kind: match r.typ() {
                Some(LinuxDeviceType::B) => 'b',
                Some(LinuxDeviceType::C | LinuxDeviceType::U) => 'c',
                _ => 'a',
            },
            major: r.major().filter(|m| *m >= 0).map(|m| m as u32),
            minor: r.minor().filter(|m| *m >= 0).map(|m| m as u32),
            access: r.access().clone().filter(|a| !a.is_empty()).unwrap_or_else(|| "rwm".to_owned()),
            allow: r.allow(),
        })
        .collect();
    let always = |kind, major, minor, access: &str| Rule {
        kind,
        major,
        minor,
        access: access.to_owned(),
        allow: true,
    };
    out.push(always('c', None, None, "m"));
    out.push(always('b', None, None, "m"));
    for minor in [3, 5, 7, 8, 9] {
        out.push(always('c', Some(1), Some(minor), "rwm"));
    }
    for (major, minor) in [(5, Some(0)), (5, Some(1)), (5, Some(2)), (136, None)] {
        out.push(always('c', Some(major), minor, "rwm"));
    }
    out
}

/// Whether something may be done with a device: the last rule that fits decides, and nothing may by default.
#[cfg(test)]
pub(crate) fn allowed(rules: &[Rule], kind: char, major: u32, minor: u32, access: char) -> bool {
    let fits = |r: &&Rule| {
        let named =
            r.kind == kind && r.major.is_none_or(|m| m == major) && r.minor.is_none_or(|m| m == minor);
        (r.kind == 'a' || named) && r.access.contains(access)
    };
    rules.iter().rev().find(fits).is_some_and(|r| r.allow)
}

/// The lines of version 1.
pub(super) fn v1(own: &[LinuxDeviceCgroup]) -> Vec<Write> {
    let number = |n: Option<u32>| n.map_or_else(|| "*".to_owned(), |n| n.to_string());
    rules(own)
        .iter()
        .map(|r| Write {
            controller: "devices",
            file: if r.allow { "devices.allow" } else { "devices.deny" }.to_owned(),
            value: format!("{} {}:{} {}", r.kind, number(r.major), number(r.minor), r.access),
            optional: false,
        })
        .collect()
}

/// One instruction of the kernel's machine: operation, registers, offset, value.
fn instruction(code: u8, dst: u8, src: u8, offset: i16, value: i32) -> u64 {
    u64::from(code)
        | u64::from(dst | src << 4) << 8
        | u64::from(offset as u16) << 16
        | u64::from(value as u32) << 32
}

const LOAD: u8 = 0x61;
const MOVE: u8 = 0xb4;
const MOVE_REGISTER: u8 = 0xbc;
const AND: u8 = 0x54;
const SHIFT_RIGHT: u8 = 0x74;
const JUMP_NOT: u8 = 0x56;
const JUMP_NOT_REGISTER: u8 = 0x5e;
const EXIT: u8 = 0x95;

/// The program of version 2: the last rule that fits decides, so they are looked at from the last.
pub(crate) fn program(rules: &[Rule]) -> Vec<u64> {
    // Registers: 1 the context, 2 the kind, 3 what is to be done, 4 and 5 the numbers, 6 for work.
    let mut out = vec![
        instruction(LOAD, 2, 1, 0, 0),
        instruction(MOVE_REGISTER, 3, 2, 0, 0),
        instruction(AND, 2, 0, 0, 0xffff),
        instruction(SHIFT_RIGHT, 3, 0, 0, 16),
        instruction(LOAD, 4, 1, 4, 0),
        instruction(LOAD, 5, 1, 8, 0),
    ];
    for rule in rules.iter().rev() {
        let mut tests: Vec<(u8, u8, u8, i32)> = Vec::new();
        if rule.kind != 'a' {
            tests.push((JUMP_NOT, 2, 0, if rule.kind == 'b' { 1 } else { 2 }));
        }
        // MKNOD 1, READ 2, WRITE 4. A rule fits if all that is asked for is among its own.
        let bits =
            [('m', 1), ('r', 2), ('w', 4)].iter().filter(|(c, _)| rule.access.contains(*c)).map(|(_, b)| b);
        let bits: i32 = bits.sum();
        let mut body = Vec::new();
        for (code, dst, src, value) in tests {
            body.push((code, dst, src, value));
        }
        if bits != 7 {
            body.push((MOVE_REGISTER, 6, 3, 0));
            body.push((AND, 6, 0, bits));
            body.push((JUMP_NOT_REGISTER, 6, 3, 0));
        }
        if rule.kind != 'a' {
            for (register, number) in [(4, rule.major), (5, rule.minor)] {
                if let Some(number) = number {
                    body.push((JUMP_NOT, register, 0, number as i32));
                }
            }
        }
        let whole = body.is_empty();
        let total = body.len() + 2;
        for (at, (code, dst, src, value)) in body.into_iter().enumerate() {
            let jumps = matches!(code, JUMP_NOT | JUMP_NOT_REGISTER);
            let offset = if jumps { (total - at - 1) as i16 } else { 0 };
            out.push(instruction(code, dst, src, offset, value));
        }
        out.push(instruction(MOVE, 0, 0, 0, i32::from(rule.allow)));
        out.push(instruction(EXIT, 0, 0, 0, 0));
        if whole {
            // Rules before one that fits everything are never reached, which the kernel refuses.
            return out;
        }
    }
    out.push(instruction(MOVE, 0, 0, 0, 0));
    out.push(instruction(EXIT, 0, 0, 0, 0));
    out
}

/// Loads the program of rules for a cgroup, in the place of one that is there.
pub(crate) fn load(directory: &Path, own: &[LinuxDeviceCgroup]) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let cgroup = rustix::fs::open(directory, flags, Mode::empty())?;
    let program = raw::load_device_program(&program(&rules(own)))?;
    let old = raw::device_programs(cgroup.as_fd()).unwrap_or_default();
    raw::attach_device_program(cgroup.as_fd(), program.as_fd(), old.first().map(AsFd::as_fd))
}
