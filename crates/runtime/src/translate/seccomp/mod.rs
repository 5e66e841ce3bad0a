//! Seccomp: the profile of `RuntimeDefault`, and profiles from files.

mod default;

use std::collections::HashSet;

use oci_spec::runtime::{
    Arch, Capability, LinuxSeccomp, LinuxSeccompAction as Action, LinuxSeccompArg, LinuxSeccompArgBuilder,
    LinuxSeccompOperator as Operator, LinuxSyscall,
};

use self::default::{
    AF_ALG, AF_VSOCK, ALWAYS, CLONE_NEW, ENOSYS, OF_ARCHITECTURES, OF_CAPABILITIES, PERSONALITIES, SINCE_4_8,
};
use super::error::TranslateError;

/// The longest profile that is read from a file, in bytes.
pub(crate) const LONGEST: u64 = 4 << 20;

/// The profile of `RuntimeDefault` for a process with these capabilities, on this architecture (by Rust's name).
pub(super) fn runtime_default(
    capabilities: &HashSet<Capability>,
    kernel: (u32, u32),
    architecture: &str,
) -> Result<LinuxSeccomp, TranslateError> {
    let mut calls = vec![allow(ALWAYS)];
    for (op, family) in
        [(Operator::ScmpCmpLt, AF_ALG), (Operator::ScmpCmpEq, AF_ALG + 1), (Operator::ScmpCmpGt, AF_VSOCK)]
    {
        calls.push(allow_if("socket", argument(0, op, family, None)?));
    }
    for value in PERSONALITIES {
        calls.push(allow_if("personality", argument(0, Operator::ScmpCmpEq, value, None)?));
    }
    if kernel >= (4, 8) {
        calls.push(allow(SINCE_4_8));
    }
    calls
        .extend(OF_ARCHITECTURES.iter().filter(|(name, _)| *name == architecture).map(|(_, all)| allow(all)));
    calls.extend(
        OF_CAPABILITIES.iter().filter(|(one, _)| capabilities.contains(one)).map(|(_, all)| allow(all)),
    );
    if !capabilities.contains(&Capability::SysAdmin) {
        let flags = usize::from(architecture == "s390x");
        calls.push(allow_if("clone", argument(flags, Operator::ScmpCmpMaskedEq, CLONE_NEW, Some(0))?));
        // A C library that finds no clone3 takes clone, whose flags can be looked at.
        let mut clone3 = LinuxSyscall::default();
        clone3.set_names(vec!["clone3".into()]).set_action(Action::ScmpActErrno).set_errno_ret(Some(ENOSYS));
        calls.push(clone3);
    }
    let mut made = LinuxSeccomp::default();
    made.set_default_action(Action::ScmpActErrno)
        .set_architectures(Some(architectures(architecture)))
        .set_syscalls(Some(calls));
    Ok(made)
}

/// Reads a profile in OCI's form.
pub(super) fn read(text: &[u8]) -> serde_json::Result<LinuxSeccomp> {
    serde_json::from_slice(text)
}

/// The ways of calling the kernel that an architecture has.
fn architectures(name: &str) -> Vec<Arch> {
    match name {
        "x86_64" => vec![Arch::ScmpArchX86_64, Arch::ScmpArchX86, Arch::ScmpArchX32],
        "aarch64" => vec![Arch::ScmpArchArm, Arch::ScmpArchAarch64],
        "s390x" => vec![Arch::ScmpArchS390, Arch::ScmpArchS390x],
        "riscv64" => vec![Arch::ScmpArchRiscv64],
        "loongarch64" => vec![Arch::ScmpArchLoongarch64],
        _ => Vec::new(),
    }
}

fn allow(names: &str) -> LinuxSyscall {
    let mut call = LinuxSyscall::default();
    call.set_names(names.split_whitespace().map(str::to_owned).collect()).set_action(Action::ScmpActAllow);
    call
}

fn allow_if(name: &str, argument: LinuxSeccompArg) -> LinuxSyscall {
    let mut call = allow(name);
    call.set_args(Some(vec![argument]));
    call
}

fn argument(
    index: usize,
    op: Operator,
    value: u64,
    second: Option<u64>,
) -> Result<LinuxSeccompArg, TranslateError> {
    let made = LinuxSeccompArgBuilder::default().index(index).op(op).value(value);
    Ok(if let Some(second) = second { made.value_two(second) } else { made }.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(capabilities: &[Capability]) -> LinuxSeccomp {
        runtime_default(&capabilities.iter().copied().collect(), (6, 18), "x86_64").unwrap()
    }

    fn allows(profile: &LinuxSeccomp, name: &str) -> bool {
        profile.syscalls().iter().flatten().any(|call| {
            call.names().iter().any(|n| n == name)
                && call.action() == Action::ScmpActAllow
                && call.args().is_none()
        })
    }

    #[test]
    fn calls_by_capability() {
        let none = profile(&[]);
        for (name, expected) in [
            ("read", true),
            ("mseal", true),
            ("mount", false),
            ("clone", false),
            ("clone3", false),
            ("io_uring_setup", false),
            ("keyctl", false),
            ("ptrace", true),
            ("arch_prctl", true),
            ("reboot", false),
        ] {
            assert_eq!(allows(&none, name), expected, "{name}");
        }
        let admin = profile(&[Capability::SysAdmin, Capability::SysBoot]);
        for name in ["mount", "clone", "clone3", "reboot", "bpf"] {
            assert!(allows(&admin, name), "{name}");
        }
        let clone3 = none.syscalls().iter().flatten().find(|call| call.names()[0] == "clone3").unwrap();
        assert_eq!((clone3.action(), clone3.errno_ret()), (Action::ScmpActErrno, Some(ENOSYS)));
        assert_eq!(ALWAYS.split_whitespace().count(), 363);
    }

    #[test]
    fn profiles_of_files() {
        let text = br#"{"defaultAction":"SCMP_ACT_ERRNO","architectures":["SCMP_ARCH_X86_64"],
            "syscalls":[{"names":["read"],"action":"SCMP_ACT_ALLOW"}]}"#;
        assert!(allows(&read(text).unwrap(), "read"));
        assert!(read(b"{}").is_err());
    }
}
