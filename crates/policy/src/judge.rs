//! Whether the table lets a packet that begins a connection pass, told without the kernel; and the connections that are
//! forgotten since it does so no more.
//!
//! A connection goes on as it began, but a flow of UDP has no end: one that a policy forbids would go on as long as
//! somebody sends. So flows of UDP that the present policies forbid are forgotten, and their next packet is judged anew.
//! Connections of TCP and SCTP are left, as upstream leaves to implementations what becomes of them.

use std::net::IpAddr;

use netlink::Error;
use netlink::conntrack::{Connections, Flow, UDP};
use objects::backends::Family;

use crate::chains::{BASES, Rule, isolated, itself};
use crate::enforcer::{Enforcer, bytes, endpoint};
use crate::name::Name;
use crate::spec::Direction;

/// A packet that begins a connection, as the table sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) port: u16,
}

impl Packet {
    /// The first packet of a flow: after its destination was rewritten, and before its source is.
    fn first_of(flow: &Flow) -> Self {
        let to = flow.reply.source;
        Self { from: flow.original.source.ip(), to: to.ip(), protocol: flow.protocol, port: to.port() }
    }
}

/// The end of a chain.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Accepted,
    Dropped,
    /// The chain before goes on.
    Over,
}

impl Enforcer {
    /// Whether the table lets a packet pass.
    pub(crate) fn passes(&self, packet: Packet) -> bool {
        BASES.iter().all(|base| self.run(base.name, packet) != End::Dropped)
    }

    fn run(&self, chain: &str, packet: Packet) -> End {
        let contents = &self.contents;
        let family = Family::of(packet.to);
        let then =
            |chain: &Option<Name>| chain.as_ref().map_or(End::Accepted, |chain| self.run(chain, packet));
        for rule in contents.rules(chain) {
            let end = match rule {
                // The packet begins a connection.
                Rule::Established => End::Over,
                Rule::Itself(of) if *of == family => {
                    let key = [bytes(packet.from), bytes(packet.to)].concat();
                    if contents.has(&itself(family), &key) { End::Accepted } else { End::Over }
                }
                Rule::Isolated(direction, of) if *of == family => {
                    let own = if *direction == Direction::Ingress { packet.to } else { packet.from };
                    let chain = contents.leads(&isolated(*direction, family), &bytes(own));
                    chain.map_or(End::Over, |chain| self.run(&chain, packet))
                }
                Rule::Itself(_) | Rule::Isolated(..) => End::Over,
                Rule::Jump(chain) => self.run(chain, packet),
                Rule::Anyone(chain) => then(chain),
                Rule::Peers { direction, set, then: chain, .. } => {
                    let peer = if *direction == Direction::Ingress { packet.from } else { packet.to };
                    if contents.has(set, &bytes(peer)) { then(chain) } else { End::Over }
                }
                Rule::Port(of, low, high) => {
                    let is_meant = *of == packet.protocol && (low..=high).contains(&&packet.port);
                    if is_meant { End::Accepted } else { End::Over }
                }
                Rule::Named(_, set) => {
                    let key = endpoint(packet.to, packet.protocol, packet.port);
                    if contents.has(set, &key) { End::Accepted } else { End::Over }
                }
                Rule::Drop => End::Dropped,
            };
            if end != End::Over {
                return end;
            }
        }
        End::Over
    }

    /// Forgets the flows of UDP that the table lets pass no more; returns how many. The node's own flows, which the table
    /// does not see, may be among them: they begin anew with their next packet.
    ///
    /// # Errors
    /// If the kernel does not tell of them, or keeps one.
    pub fn forget_forbidden(&self, connections: &mut Connections) -> Result<usize, Error> {
        connections.delete_all(|flow| flow.protocol == UDP && !self.passes(Packet::first_of(flow)))
    }
}
