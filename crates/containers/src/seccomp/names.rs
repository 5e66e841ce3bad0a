//! Names and numbers of system calls.

use std::collections::HashMap;
use std::sync::LazyLock;

/// An architecture whose programs run here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Machine {
    X86_64,
    X86,
    X32,
    Aarch64,
    Arm,
}

#[cfg(target_arch = "x86_64")]
pub(crate) const NATIVE: Machine = Machine::X86_64;
#[cfg(target_arch = "aarch64")]
pub(crate) const NATIVE: Machine = Machine::Aarch64;

/// Numbers of x32 have this bit.
pub(crate) const X32_BIT: u32 = 0x4000_0000;

impl Machine {
    /// The kernel's name (`AUDIT_ARCH_…`).
    pub(crate) fn audit(self) -> u32 {
        match self {
            Self::X86_64 | Self::X32 => 0xc000_003e,
            Self::X86 => 0x4000_0003,
            Self::Aarch64 => 0xc000_00b7,
            Self::Arm => 0x4000_0028,
        }
    }
    /// Whether such programs run on this machine.
    pub(crate) fn runs_here(self) -> bool {
        match self {
            Self::X86_64 | Self::X86 | Self::X32 => cfg!(target_arch = "x86_64"),
            Self::Aarch64 | Self::Arm => cfg!(target_arch = "aarch64"),
        }
    }
}

/// Names, and the numbers on x86_64, x86, aarch64 and arm.
static CALLS: LazyLock<HashMap<&'static str, [Option<u32>; 4]>> = LazyLock::new(|| {
    let lines = include_str!("syscalls.tsv").lines().filter(|l| !l.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split('\t');
            let name = words.next()?;
            Some((name, std::array::from_fn(|_| words.next().and_then(|n| n.parse().ok()))))
        })
        .collect()
});

/// The number of a call, if the architecture has it.
pub(crate) fn number(machine: Machine, name: &str) -> Option<u32> {
    let numbers = CALLS.get(name)?;
    match machine {
        Machine::X86_64 => numbers[0],
        Machine::X86 => numbers[1],
        // Calls that x32 has under numbers of its own begin at 512; they are none of a profile's common ones.
        Machine::X32 => numbers[0].map(|n| n | X32_BIT),
        Machine::Aarch64 => numbers[2],
        Machine::Arm => numbers[3],
    }
}
