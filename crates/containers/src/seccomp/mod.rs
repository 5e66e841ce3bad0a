//! Filters of system calls: from the OCI runtime specification's form to the kernel's program. Pure.
//!
//! As in libseccomp and runc: the native architecture always belongs to the filter; a call of an architecture that does
//! not is the end of the thread; names that an architecture does not have are passed over; a call whose number is above
//! all that the profile knows fails with ENOSYS where the default is another error, so that programs fall back.
//!
//! DIFFERENCE: of several entries for one call the first that fits decides; libseccomp lets an entry without conditions
//! replace those that have some. On 32-bit x86, `socketcall` and `ipc` are calls of their own.

mod bpf;
mod names;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompFilterFlag, LinuxSyscall,
};

use crate::error::{Error, Result};
use bpf::Instruction;
use names::Machine;
use rules::{Condition, Rule, Table};

/// A filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) program: Vec<Instruction>,
    /// Flags of seccomp(2).
    pub(crate) flags: u32,
}

impl Filter {
    /// The program as the kernel reads it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.program.iter().flat_map(|i| i.bytes()).collect()
    }
}

const ENOSYS: u32 = 38;
const RET_ERRNO: u32 = 0x0005_0000;
/// The most instructions of a filter, as the kernel has it.
const MAX: usize = 4096;

fn action(action: LinuxSeccompAction, errno: Option<u32>) -> Result<u32> {
    if action == LinuxSeccompAction::ScmpActNotify {
        return Err(Error::Invalid("the seccomp action SCMP_ACT_NOTIFY is not supported".to_owned()));
    }
    Ok(action.as_u32(errno.map(|e| e & 0xffff)))
}

/// The filter of a profile; none if the profile allows everything.
pub(crate) fn compile(profile: &LinuxSeccomp) -> Result<Option<Filter>> {
    let default = action(profile.default_action(), profile.default_errno_ret())?;
    let rules: Vec<&LinuxSyscall> = profile.syscalls().iter().flatten().collect();
    if rules.is_empty() && profile.default_action() == LinuxSeccompAction::ScmpActAllow {
        return Ok(None);
    }
    let mut machines = vec![names::NATIVE];
    for arch in profile.architectures().iter().flatten() {
        let machine = match arch {
            Arch::ScmpArchX86_64 => Machine::X86_64,
            Arch::ScmpArchX86 => Machine::X86,
            Arch::ScmpArchX32 => Machine::X32,
            Arch::ScmpArchAarch64 => Machine::Aarch64,
            Arch::ScmpArchArm => Machine::Arm,
            // Others' programs do not run on these machines.
            _ => continue,
        };
        if !machines.contains(&machine) && machine.runs_here() {
            machines.push(machine);
        }
    }
    let mut blocks = Vec::new();
    for machine in machines {
        blocks.push((machine, table(machine, &rules, default)?));
    }
    let program = bpf::program(&blocks, default);
    if program.len() > MAX {
        return Err(Error::Invalid(format!(
            "the seccomp profile is too large: {} instructions",
            program.len()
        )));
    }
    Ok(Some(Filter { program, flags: flags(profile.flags().as_deref()) }))
}

fn flags(flags: Option<&[LinuxSeccompFilterFlag]>) -> u32 {
    const LOG: u32 = 2;
    const SPEC_ALLOW: u32 = 4;
    // As runc: without a word, programs keep the processor's speculation.
    let Some(flags) = flags else { return SPEC_ALLOW };
    flags.iter().fold(0, |all, flag| {
        all | match flag {
            LinuxSeccompFilterFlag::SeccompFilterFlagLog => LOG,
            LinuxSeccompFilterFlag::SeccompFilterFlagSpecAllow => SPEC_ALLOW,
            // There is one thread when the filter is loaded, and nobody who is notified.
            LinuxSeccompFilterFlag::SeccompFilterFlagTsync
            | LinuxSeccompFilterFlag::SeccompFilterFlagWaitKillableRecv => 0,
        }
    })
}

fn table(machine: Machine, rules: &[&LinuxSyscall], default: u32) -> Result<Table> {
    let mut calls: BTreeMap<u32, Vec<Rule>> = BTreeMap::new();
    let mut highest = 0;
    for rule in rules {
        let action = action(rule.action(), rule.errno_ret())?;
        for name in rule.names() {
            let Some(number) = names::number(machine, name) else { continue };
            highest = highest.max(number);
            if action == default {
                continue;
            }
            let alternatives = alternatives(rule.args().as_deref().unwrap_or_default())?;
            let into = calls.entry(number).or_default();
            into.extend(alternatives.into_iter().map(|conditions| Rule { conditions, action }));
        }
    }
    let falls_back = default & 0xffff_0000 == RET_ERRNO && default != RET_ERRNO | ENOSYS && highest > 0;
    let above = if falls_back { RET_ERRNO | ENOSYS } else { default };
    if falls_back {
        // The highest one is known, even if nothing is said of it but the default.
        calls.entry(highest).or_default();
    }
    Ok(Table { calls, above })
}

/// Conditions on different arguments hold together; where one argument has several, each is an alternative, as in runc.
fn alternatives(args: &[LinuxSeccompArg]) -> Result<Vec<Vec<Condition>>> {
    if let Some(odd) = args.iter().find(|a| a.index() > 5) {
        return Err(Error::Invalid(format!("a system call has no argument {}", odd.index())));
    }
    let twice = args.iter().enumerate().any(|(i, a)| args[..i].iter().any(|b| b.index() == a.index()));
    Ok(if twice { args.iter().map(|a| vec![*a]).collect() } else { vec![args.to_vec()] })
}
