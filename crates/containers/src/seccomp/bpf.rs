//! Programs of the kernel's packet filter machine, as seccomp(2) runs them.

use oci_spec::runtime::LinuxSeccompOperator;

use super::names::{Machine, X32_BIT};
use super::rules::{Condition, RET_KILL_THREAD, Rule, Table};

/// One instruction (`struct sock_filter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) then: u8,
    pub(crate) otherwise: u8,
    pub(crate) k: u32,
}

impl Instruction {
    pub(crate) fn bytes(self) -> [u8; 8] {
        let (c, k) = (self.code.to_le_bytes(), self.k.to_le_bytes());
        [c[0], c[1], self.then, self.otherwise, k[0], k[1], k[2], k[3]]
    }
}

pub(crate) const LOAD: u16 = 0x20;
pub(crate) const AND: u16 = 0x54;
pub(crate) const RETURN: u16 = 0x06;
pub(crate) const JUMP: u16 = 0x05;
pub(crate) const JUMP_EQUAL: u16 = 0x15;
pub(crate) const JUMP_GREATER: u16 = 0x25;
pub(crate) const JUMP_GREATER_EQUAL: u16 = 0x35;

/// Places in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

fn plain(code: u16, k: u32) -> Instruction {
    Instruction { code, then: 0, otherwise: 0, k }
}

fn branch(code: u16, k: u32, then: u8, otherwise: u8) -> Instruction {
    Instruction { code, then, otherwise, k }
}

/// The whole program: the architecture chooses a block.
pub(super) fn program(blocks: &[(Machine, Table)], default: u32) -> Vec<Instruction> {
    let mut out = vec![plain(LOAD, ARCHITECTURE)];
    let x32 = blocks.iter().find(|(m, _)| *m == Machine::X32).map(|(_, table)| table);
    for (machine, table) in blocks.iter().filter(|(m, _)| *m != Machine::X32) {
        let mut block = vec![plain(LOAD, NUMBER)];
        if *machine == Machine::X86_64 {
            let other = x32.map_or_else(|| vec![plain(RETURN, RET_KILL_THREAD)], |t| body(t, default));
            // Calls of x32 have the same architecture.
            block.push(branch(JUMP_GREATER_EQUAL, X32_BIT, 0, 1));
            block.push(plain(JUMP, other.len() as u32));
            let own = body(table, default);
            // The own ones come last, and the jump above leads over them.
            let at = block.len() - 1;
            block[at].k = own.len() as u32;
            block.extend(own);
            block.extend(other);
        } else {
            block.extend(body(table, default));
        }
        out.push(branch(JUMP_EQUAL, machine.audit(), 1, 0));
        out.push(plain(JUMP, block.len() as u32));
        out.extend(block);
    }
    out.push(plain(RETURN, RET_KILL_THREAD));
    out
}

/// A range of numbers, by its first, and what becomes of them.
struct Range<'t> {
    from: u32,
    rules: &'t [Rule],
    default: u32,
}

/// The instructions for the calls of one architecture, whose number is loaded.
fn body(table: &Table, default: u32) -> Vec<Instruction> {
    let mut ranges = vec![Range { from: 0, rules: &[], default }];
    let mut push = |from: u32, rules, default| {
        let same =
            ranges.last().is_some_and(|last: &Range<'_>| last.rules == rules && last.default == default);
        match ranges.last_mut() {
            Some(last) if last.from == from => *last = Range { from, rules, default },
            _ if same => {}
            _ => ranges.push(Range { from, rules, default }),
        }
    };
    let mut next = 0;
    for (number, rules) in &table.calls {
        if *number > next {
            push(next, &[], default);
        }
        push(*number, rules, default);
        next = number + 1;
    }
    push(next, &[], table.above);
    tree(&ranges)
}

/// A tree of comparisons over ranges.
fn tree(ranges: &[Range<'_>]) -> Vec<Instruction> {
    let [range] = ranges else {
        let (low, high) = ranges.split_at(ranges.len() / 2);
        let Some(first) = high.first() else { return Vec::new() };
        let below = tree(low);
        let mut out = vec![branch(JUMP_GREATER_EQUAL, first.from, 0, 1), plain(JUMP, below.len() as u32)];
        out.extend(below);
        out.extend(tree(high));
        return out;
    };
    let mut out = Vec::new();
    for rule in range.rules {
        out.extend(alternative(rule));
        if rule.conditions.is_empty() {
            return out;
        }
    }
    out.push(plain(RETURN, range.default));
    out
}

/// One alternative: its action if all its conditions hold; otherwise what follows.
fn alternative(rule: &Rule) -> Vec<Instruction> {
    let conditions: Vec<Vec<Test>> = rule.conditions.iter().map(tests).collect();
    let total: usize = conditions.iter().map(Vec::len).sum::<usize>() + 1;
    let mut out = Vec::with_capacity(total);
    for condition in &conditions {
        let end = out.len() + condition.len();
        for test in condition {
            // Jumps are counted from the next instruction.
            let next = out.len() + 1;
            let to = |way: Way| match way {
                Way::On => 0,
                Way::Holds => (end - next) as u8,
                Way::Fails => (total - next) as u8,
            };
            out.push(branch(test.code, test.k, to(test.then), to(test.otherwise)));
        }
    }
    out.push(plain(RETURN, rule.action));
    out
}

/// The way after a test.
#[derive(Clone, Copy)]
enum Way {
    /// To the next instruction.
    On,
    /// The condition holds.
    Holds,
    /// The condition fails.
    Fails,
}

struct Test {
    code: u16,
    k: u32,
    then: Way,
    otherwise: Way,
}

/// The instructions of a condition; an argument has 64 bits, the machine 32.
fn tests(condition: &Condition) -> Vec<Test> {
    use LinuxSeccompOperator as Op;
    let at = ARGUMENTS + 8 * condition.index() as u32;
    let (value, second) = (condition.value(), condition.value_two().unwrap_or(0));
    let (high, low) = ((value >> 32) as u32, value as u32);
    let simple = |code, k| Test { code, k, then: Way::On, otherwise: Way::On };
    let test = |code, k, then, otherwise| Test { code, k, then, otherwise };
    let (load_high, load_low) = (simple(LOAD, at + 4), simple(LOAD, at));
    // Ordered comparisons: the high halves decide unless they are equal.
    let ordered = |code, greater: Way, less: Way| {
        vec![
            simple(LOAD, at + 4),
            test(JUMP_GREATER, high, greater, Way::On),
            test(JUMP_EQUAL, high, Way::On, less),
            simple(LOAD, at),
            test(code, low, greater, less),
        ]
    };
    match condition.op() {
        Op::ScmpCmpEq => vec![
            load_high,
            test(JUMP_EQUAL, high, Way::On, Way::Fails),
            load_low,
            test(JUMP_EQUAL, low, Way::Holds, Way::Fails),
        ],
        Op::ScmpCmpNe => vec![
            load_high,
            test(JUMP_EQUAL, high, Way::On, Way::Holds),
            load_low,
            test(JUMP_EQUAL, low, Way::Fails, Way::Holds),
        ],
        Op::ScmpCmpGt => ordered(JUMP_GREATER, Way::Holds, Way::Fails),
        Op::ScmpCmpGe => ordered(JUMP_GREATER_EQUAL, Way::Holds, Way::Fails),
        Op::ScmpCmpLe => ordered(JUMP_GREATER, Way::Fails, Way::Holds),
        Op::ScmpCmpLt => ordered(JUMP_GREATER_EQUAL, Way::Fails, Way::Holds),
        Op::ScmpCmpMaskedEq => vec![
            load_high,
            simple(AND, high),
            test(JUMP_EQUAL, (second >> 32) as u32, Way::On, Way::Fails),
            load_low,
            simple(AND, low),
            test(JUMP_EQUAL, second as u32, Way::Holds, Way::Fails),
        ],
    }
}
