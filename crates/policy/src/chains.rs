//! The chains of the table, as lists of rules that can be read by others than the kernel.

use std::borrow::Cow;

use netlink::nft::{
    Base, Compare, Expression, Field, Hook, Kind, Meta, Register, SetKind, Tracked, Verdict, state,
};
use objects::backends::Family;

use crate::name::{Name, digit};
use crate::spec::{Direction, FAMILIES};

/// A base chain. An accepted packet goes on to the next one, so that both directions must accept it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BaseChain {
    pub(crate) name: &'static str,
    pub(crate) direction: Direction,
    /// Its place among the chains of others, all before the filters of Services (0): what is not allowed gets no answer.
    pub(crate) priority: i32,
}

impl BaseChain {
    pub(crate) const KIND: Kind = Kind::Filter;
    /// Packets that a Pod exchanges with its own node do not pass here.
    pub(crate) const HOOK: Hook = Hook::Forward;
}

pub(crate) const BASES: [BaseChain; 2] = [
    BaseChain { name: "egress", direction: Direction::Egress, priority: -11 },
    BaseChain { name: "ingress", direction: Direction::Ingress, priority: -10 },
];

/// A step of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Packets of connections that are there, and about them, pass.
    Established,
    /// A Pod reaches itself.
    Itself(Family),
    /// Isolated Pods' packets go to a chain of theirs.
    Isolated(Direction, Family),
    /// A chain goes on, and then the next rule.
    Jump(Name),
    /// All packets pass, or go on in a chain.
    Anyone(Option<Name>),
    /// Packets whose peer is in a set pass, or go on in a chain.
    Peers { direction: Direction, family: Family, set: Name, then: Option<Name> },
    /// Packets to ports of a protocol pass.
    Port(u8, u16, u16),
    /// Packets to ports of Pods in a set pass.
    Named(Family, Name),
    /// All packets are dropped.
    Drop,
}

/// The map that leads Pods' addresses to their chains.
pub(crate) fn isolated(direction: Direction, family: Family) -> Name {
    let of = match direction {
        Direction::Ingress => "ingress-pods",
        Direction::Egress => "egress-pods",
    };
    format!("{of}{}", digit(family)).into()
}

/// The set of isolated Pods' addresses, each twice: source and destination of what a Pod sends to itself.
pub(crate) fn itself(family: Family) -> Name {
    format!("itself{}", digit(family)).into()
}

pub(crate) fn address_field(family: Family) -> Field {
    match family {
        Family::V4 => Field::Address4,
        Family::V6 => Field::Address6,
    }
}

/// The sets and maps that are always there.
pub(crate) fn fixed_sets() -> Vec<(Name, SetKind)> {
    let mut all = Vec::new();
    for family in FAMILIES {
        let field = address_field(family);
        all.push((itself(family), SetKind::set(&[field, field])));
        for direction in crate::spec::DIRECTIONS {
            all.push((isolated(direction, family), SetKind::verdicts(&[field])));
        }
    }
    all
}

/// The rules of a base chain.
pub(crate) fn base_rules(base: BaseChain) -> Vec<Rule> {
    let mut rules = vec![Rule::Established];
    rules.extend(FAMILIES.map(Rule::Itself));
    rules.extend(FAMILIES.map(|family| Rule::Isolated(base.direction, family)));
    rules
}

fn is_of(family: Family) -> [Expression<'static>; 2] {
    let number: &'static [u8] = match family {
        Family::V4 => &[2],
        Family::V6 => &[10],
    };
    [
        Expression::Meta(Meta::Network, Register(0)),
        Expression::Compare(Compare::Equal, Register(0), Cow::Borrowed(number)),
    ]
}

/// The registers of an address.
fn width(family: Family) -> u8 {
    match family {
        Family::V4 => 1,
        Family::V6 => 4,
    }
}

fn source(family: Family, to: Register) -> Expression<'static> {
    match family {
        Family::V4 => Expression::Payload { base: Base::Network, offset: 12, length: 4, to },
        Family::V6 => Expression::Payload { base: Base::Network, offset: 8, length: 16, to },
    }
}

fn destination(family: Family, to: Register) -> Expression<'static> {
    match family {
        Family::V4 => Expression::Payload { base: Base::Network, offset: 16, length: 4, to },
        Family::V6 => Expression::Payload { base: Base::Network, offset: 24, length: 16, to },
    }
}

/// The address of the Pod whose direction it is.
fn own(direction: Direction, family: Family) -> Expression<'static> {
    match direction {
        Direction::Ingress => destination(family, Register(0)),
        Direction::Egress => source(family, Register(0)),
    }
}

fn peer(direction: Direction, family: Family) -> Expression<'static> {
    match direction {
        Direction::Ingress => source(family, Register(0)),
        Direction::Egress => destination(family, Register(0)),
    }
}

fn protocol(to: Register) -> Expression<'static> {
    Expression::Meta(Meta::Transport, to)
}

fn port(to: Register) -> Expression<'static> {
    Expression::Payload { base: Base::Transport, offset: 2, length: 2, to }
}

fn then(chain: Option<&Name>) -> Expression<'_> {
    Expression::Verdict(chain.map_or(Verdict::Accept, |chain| Verdict::Jump(Cow::Borrowed(chain))))
}

impl Rule {
    /// Gives away what the kernel is told.
    pub(crate) fn expressions(&self, emit: &mut dyn FnMut(&[Expression<'_>])) {
        let first = Register(0);
        match self {
            Self::Established => {
                let bits = state::ESTABLISHED | state::RELATED;
                let mask = Cow::Owned(bits.to_ne_bytes().to_vec());
                emit(&[
                    Expression::Tracked(Tracked::State, first),
                    Expression::Bits { from: first, to: first, mask, xor: Cow::Borrowed(&[0; 4]) },
                    Expression::Compare(Compare::NotEqual, first, Cow::Borrowed(&[0; 4])),
                    Expression::Verdict(Verdict::Accept),
                ]);
            }
            Self::Itself(family) => {
                let set = itself(*family);
                let mut rule = is_of(*family).to_vec();
                rule.push(source(*family, first));
                rule.push(destination(*family, Register(width(*family))));
                rule.push(Expression::InSet(&set, first));
                rule.push(Expression::Verdict(Verdict::Accept));
                emit(&rule);
            }
            Self::Isolated(direction, family) => {
                let map = isolated(*direction, *family);
                let mut rule = is_of(*family).to_vec();
                rule.push(own(*direction, *family));
                rule.push(Expression::VerdictMap(&map, first));
                emit(&rule);
            }
            Self::Jump(chain) => emit(&[Expression::Verdict(Verdict::Jump(Cow::Borrowed(chain)))]),
            Self::Anyone(chain) => emit(&[then(chain.as_ref())]),
            Self::Peers { direction, family, set, then: chain } => {
                emit(&[peer(*direction, *family), Expression::InSet(set, first), then(chain.as_ref())]);
            }
            Self::Port(number, low, high) => {
                let mut rule = vec![
                    protocol(first),
                    Expression::Compare(Compare::Equal, first, Cow::Owned(vec![*number])),
                ];
                let bytes = |port: &u16| Cow::Owned(port.to_be_bytes().to_vec());
                if low == high {
                    rule.push(port(first));
                    rule.push(Expression::Compare(Compare::Equal, first, bytes(low)));
                } else if (*low, *high) != (0, u16::MAX) {
                    rule.push(port(first));
                    rule.push(Expression::Range(first, bytes(low), bytes(high)));
                }
                rule.push(then(None));
                emit(&rule);
            }
            Self::Named(family, set) => {
                let behind = width(*family);
                emit(&[
                    destination(*family, first),
                    protocol(Register(behind)),
                    port(Register(behind + 1)),
                    Expression::InSet(set, first),
                    then(None),
                ]);
            }
            Self::Drop => emit(&[Expression::Counter, Expression::Verdict(Verdict::Drop)]),
        }
    }
}
