//! The kernel's machine, in small: it decides calls, and its word is compared with the profile's meaning.

use oci_spec::runtime::LinuxSeccomp;
use proptest::prelude::*;
use serde_json::json;

use super::bpf::{AND, Instruction, JUMP, JUMP_EQUAL, JUMP_GREATER, JUMP_GREATER_EQUAL, LOAD, RETURN};
use super::names::{self, Machine};
use super::rules::RET_KILL_THREAD;
use super::{ENOSYS, Filter, RET_ERRNO, compile};

const ALLOW: u32 = 0x7fff_0000;

/// A call: architecture, number, arguments.
#[derive(Debug, Clone)]
struct Call {
    arch: u32,
    number: u32,
    args: [u64; 6],
}

/// Runs a program; it must end, and stay within itself.
fn run(program: &[Instruction], call: &Call) -> u32 {
    let load = |at: u32| match at {
        0 => call.number,
        4 => call.arch,
        at if (16..64).contains(&at) && at % 4 == 0 => {
            let arg = call.args[(at as usize - 16) / 8];
            if at % 8 == 0 { arg as u32 } else { (arg >> 32) as u32 }
        }
        odd => panic!("a load from {odd}"),
    };
    let (mut at, mut a) = (0, 0u32);
    loop {
        let i = program[at];
        at += 1;
        let jump = |holds: bool| usize::from(if holds { i.then } else { i.otherwise });
        match i.code {
            LOAD => a = load(i.k),
            AND => a &= i.k,
            JUMP => at += i.k as usize,
            JUMP_EQUAL => at += jump(a == i.k),
            JUMP_GREATER => at += jump(a > i.k),
            JUMP_GREATER_EQUAL => at += jump(a >= i.k),
            RETURN => return i.k,
            odd => panic!("an operation {odd:#x}"),
        }
    }
}

fn filter(profile: serde_json::Value) -> Filter {
    compile(&serde_json::from_value::<LinuxSeccomp>(profile).unwrap()).unwrap().unwrap()
}

fn native(name: &str, args: [u64; 6]) -> Call {
    Call { arch: names::NATIVE.audit(), number: names::number(names::NATIVE, name).unwrap(), args }
}

#[test]
fn names_have_the_kernels_numbers() {
    let check = |machine, name, expected| assert_eq!(names::number(machine, name), expected, "{name}");
    check(Machine::X86_64, "read", Some(0));
    check(Machine::X86_64, "clone3", Some(435));
    check(Machine::X86, "socketcall", Some(102));
    check(Machine::Aarch64, "openat", Some(56));
    check(Machine::Aarch64, "open", None);
    check(Machine::Arm, "set_tls", Some(983_045));
    check(Machine::X32, "read", Some(0x4000_0000));
    check(Machine::X86_64, "nosuch", None);
}

#[test]
fn a_profile_decides() {
    let allow = filter(json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_PPC64LE"],
        "syscalls": [
            {"names": ["read", "write", "nosuch"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 8, "op": "SCMP_CMP_EQ"}]},
            {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 0xffff_ffffu32, "op": "SCMP_CMP_EQ"}]},
            {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 0x7e02_0000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
            {"names": ["kill"], "action": "SCMP_ACT_KILL_PROCESS", "args": [
                {"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}, {"index": 1, "value": 9, "op": "SCMP_CMP_GE"}]},
        ]
    }));
    let eperm = RET_ERRNO | 1;
    let check = |name: &str, args: [u64; 6], expected: u32| {
        assert_eq!(run(&allow.program, &native(name, args)), expected, "{name} {args:x?}");
    };
    check("read", [0; 6], ALLOW);
    check("write", [9; 6], ALLOW);
    check("mkdirat", [0; 6], eperm);
    check("personality", [8, 0, 0, 0, 0, 0], ALLOW);
    check("personality", [0xffff_ffff, 0, 0, 0, 0, 0], ALLOW);
    check("personality", [8 | 1 << 32, 0, 0, 0, 0, 0], eperm);
    check("clone", [0x1200_0011 & !0x7e02_0000, 0, 0, 0, 0, 0], ALLOW);
    check("clone", [0x1000_0000, 0, 0, 0, 0, 0], eperm);
    check("clone3", [0; 6], RET_ERRNO | ENOSYS);
    check("kill", [1, 9, 0, 0, 0, 0], 0x8000_0000);
    check("kill", [1, 8, 0, 0, 0, 0], eperm);
    check("kill", [2, 9, 0, 0, 0, 0], eperm);
    // Above all that the profile knows.
    let call = |arch, number| Call { arch, number, args: [0; 6] };
    let native = names::NATIVE.audit();
    assert_eq!(run(&allow.program, &call(native, 436)), RET_ERRNO | ENOSYS);
    assert_eq!(run(&allow.program, &call(native, 0x3fff_ffff)), RET_ERRNO | ENOSYS);
    assert_eq!(run(&allow.program, &call(0x1234, 0)), RET_KILL_THREAD);
    if names::NATIVE == Machine::X86_64 {
        assert_eq!(run(&allow.program, &call(native, 0x4000_0000)), RET_KILL_THREAD);
        assert_eq!(run(&allow.program, &call(Machine::X86.audit(), 3)), ALLOW);
        assert_eq!(run(&allow.program, &call(Machine::X86.audit(), 5)), eperm);
    }
}

#[test]
fn flags_and_profiles_that_say_nothing() {
    let flags = |value: serde_json::Value| {
        filter(json!({"defaultAction": "SCMP_ACT_ERRNO", "flags": value, "syscalls": []})).flags
    };
    assert_eq!(flags(json!(null)), 4);
    assert_eq!(flags(json!([])), 0);
    assert_eq!(flags(json!(["SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_SPEC_ALLOW"])), 6);
    let nothing: LinuxSeccomp = serde_json::from_value(json!({"defaultAction": "SCMP_ACT_ALLOW"})).unwrap();
    assert_eq!(compile(&nothing).unwrap(), None);
    let odd = json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["read"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 6, "value": 0, "op": "SCMP_CMP_EQ"}]}]});
    let odd: LinuxSeccomp = serde_json::from_value(odd).unwrap();
    assert_eq!(compile(&odd).unwrap_err().to_string(), "a system call has no argument 6");
}

const OPERATORS: [&str; 7] = [
    "SCMP_CMP_NE",
    "SCMP_CMP_LT",
    "SCMP_CMP_LE",
    "SCMP_CMP_EQ",
    "SCMP_CMP_GE",
    "SCMP_CMP_GT",
    "SCMP_CMP_MASKED_EQ",
];

/// The meaning of a comparison.
fn holds(op: usize, arg: u64, value: u64, second: u64) -> bool {
    match op {
        0 => arg != value,
        1 => arg < value,
        2 => arg <= value,
        3 => arg == value,
        4 => arg >= value,
        5 => arg > value,
        _ => arg & value == second,
    }
}

/// Values whose halves are often equal.
fn value() -> impl Strategy<Value = u64> {
    let half = prop_oneof![Just(0u64), Just(1), Just(u64::from(u32::MAX)), 0..4u64];
    (half.clone(), half).prop_map(|(high, low)| high << 32 | low)
}

proptest! {
    #[test]
    fn a_filter_means_its_profile(
        default in 0..2usize,
        rules in prop::collection::vec((0..12u32, 0..3usize, prop::collection::vec((0..6usize, 0..7usize, value(), value()), 0..3)), 0..24),
        calls in prop::collection::vec((0..16u32, prop::array::uniform6(value())), 8),
    ) {
        let actions = [("SCMP_ACT_ALLOW", ALLOW), ("SCMP_ACT_LOG", 0x7ffc_0000), ("SCMP_ACT_KILL_PROCESS", 0x8000_0000)];
        let defaults = [("SCMP_ACT_ALLOW", ALLOW), ("SCMP_ACT_TRAP", 0x0003_0000)];
        // The first calls of the machine, by their names.
        let named: Vec<(u32, &str)> = ["read", "write", "close", "fstat", "lseek", "mmap", "mprotect", "munmap", "brk", "ioctl", "pread64", "pwrite64"]
            .iter().map(|n| (names::number(names::NATIVE, n).unwrap(), *n)).collect();
        let syscalls: Vec<_> = rules.iter().map(|(name, action, args)| {
            let args: Vec<_> = args.iter().map(|(index, op, value, second)| json!({"index": index, "value": value, "valueTwo": second, "op": OPERATORS[*op]})).collect();
            json!({"names": [named[*name as usize].1], "action": actions[*action].0, "args": args})
        }).collect();
        let profile: LinuxSeccomp = serde_json::from_value(json!({"defaultAction": defaults[default].0, "syscalls": syscalls})).unwrap();
        let Some(filter) = compile(&profile).unwrap() else { return Ok(()) };
        for (number, args) in calls {
            let number = named.get(number as usize).map_or(1000 + number, |n| n.0);
            let mut expected = defaults[default].1;
            for (name, action, conditions) in &rules {
                if named[*name as usize].0 != number || actions[*action].1 == defaults[default].1 {
                    continue;
                }
                let twice = conditions.iter().enumerate().any(|(i, c)| conditions[..i].iter().any(|d| d.0 == c.0));
                let mut each = conditions.iter().map(|(index, op, value, second)| holds(*op, args[*index], *value, *second));
                if if twice { each.any(|h| h) } else { each.all(|h| h) } {
                    expected = actions[*action].1;
                    break;
                }
            }
            let call = Call { arch: names::NATIVE.audit(), number, args };
            prop_assert_eq!(run(&filter.program, &call), expected, "{:?}", call);
        }
    }
}
