//! The packet filter (nftables): tables, chains, rules, sets and maps.
//!
//! A [`Batch`] holds changes of one table, which the kernel makes all at once or not at all. Rules are lists of
//! [`Expression`]s over registers; keys of sets are bytes as packets have them, each field of a key of several filled up to four.

mod batch;
mod expression;
mod read;

use std::borrow::Cow;

use netlink_bindings::nftables::VerdictCode;

use crate::Error;
use crate::socket::Socket;

pub use batch::{Batch, Element, Field, Hook, Kind, SetKind};
pub use expression::{Base, Compare, Expression, Meta, Register, Tracked, state, status};
pub use read::{Chain, Rule, Set};

/// The packets that a table sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// The frames of bridges.
    Bridge,
    /// Packets as devices get and send them.
    Netdev,
}

impl Family {
    fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ipv4 => 2,
            Self::Netdev => 5,
            Self::Bridge => 7,
            Self::Ipv6 => 10,
        }
    }
}

/// A table's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Table {
    /// The packets that it sees.
    pub family: Family,
    /// Its name within the family.
    pub name: String,
}

/// The end of a rule, or the value of a verdict map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict<'a> {
    /// The packet goes on to the next chain of the hook.
    Accept,
    /// The packet goes nowhere.
    Drop,
    /// The chain that jumped here goes on.
    Return,
    /// The next rule goes on.
    Continue,
    /// A chain goes on, and then the rule after this one.
    Jump(Cow<'a, str>),
    /// A chain goes on, and this one does not.
    Goto(Cow<'a, str>),
}

impl Verdict<'_> {
    fn code(&self) -> VerdictCode {
        match self {
            Self::Accept => VerdictCode::Accept,
            Self::Drop => VerdictCode::Drop,
            Self::Return => VerdictCode::Return,
            Self::Continue => VerdictCode::Continue,
            Self::Jump(_) => VerdictCode::Jump,
            Self::Goto(_) => VerdictCode::Goto,
        }
    }
    fn chain(&self) -> Option<&str> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            _ => None,
        }
    }
}

/// The value of a map's element.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value<'a> {
    /// Bytes, each field filled up to four.
    Bytes(Cow<'a, [u8]>),
    /// A verdict.
    Verdict(Verdict<'a>),
}

/// The packet filter of one network namespace: that of the thread that opened it.
pub struct Filter {
    socket: Socket,
    sequence: u32,
}

impl Filter {
    /// Opens a socket in the network namespace of this thread.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { socket: Socket::open_netfilter()?, sequence: 0 })
    }

    /// Makes all changes of a batch or none.
    pub fn commit(&mut self, batch: Batch<'_>) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let (messages, names, first) = batch.finish(self.sequence);
        self.sequence = first.wrapping_add(names.len() as u32 + 2);
        self.socket.transaction(&messages, |sequence| {
            let index = sequence.wrapping_sub(first) as usize;
            names.get(index).cloned().unwrap_or_else(|| "cannot change the packet filter".into())
        })
    }
}
