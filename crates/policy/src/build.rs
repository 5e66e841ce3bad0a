//! The rules and elements of what is in use.

use std::borrow::Cow;
use std::net::IpAddr;

use client::Key;
use netlink::nft::{Element, Field, SetKind};
use objects::backends::Family;

use crate::chains::{Rule, address_field};
use crate::contents::Bytes;
use crate::enforcer::{Enforcer, bytes, endpoint};
use crate::name::Name;
use crate::spec::{Direction, Ports, Ranges};
use crate::uses::Use;

impl Enforcer {
    /// One more user; what nobody used before is made.
    pub(crate) fn acquire(&mut self, one: &Use) -> Name {
        if let Some(name) = self.uses.again(one) {
            return name;
        }
        let name = one.name(&self.selections);
        let inner = match one {
            Use::Peers(family, id) => {
                self.contents.put_set(&name, SetKind::set(&[address_field(*family)]), Vec::new());
                let of_family = |address: &IpAddr| Family::of(*address) == *family;
                for address in self.addresses_of(*id).filter(of_family).collect::<Vec<_>>() {
                    self.contents.hold(&name, &Bytes::from(bytes(address)));
                }
                Vec::new()
            }
            Use::Named(family, protocol, of) => {
                let kind = SetKind::set(&[address_field(*family), Field::Protocol, Field::Port]);
                self.contents.put_set(&name, kind, Vec::new());
                let all: Vec<_> = self.ports_named(*protocol, of).collect();
                for (address, port) in all.into_iter().filter(|(address, _)| Family::of(*address) == *family)
                {
                    self.contents.hold(&name, &Bytes::from(endpoint(address, *protocol, port)));
                }
                Vec::new()
            }
            Use::Blocks(family, blocks) => {
                let kind = SetKind { ranges: true, ..SetKind::set(&[address_field(*family)]) };
                self.contents.put_set(&name, kind, range_elements(blocks, *family));
                Vec::new()
            }
            Use::Ports(family, ports) => {
                let (rules, inner) = self.ports_rules(*family, ports);
                self.contents.put_chain(&name, rules);
                inner
            }
            Use::Policy(direction, family, key) => {
                let (rules, inner) = self.policy_rules(*direction, *family, key);
                self.contents.put_chain(&name, rules);
                inner
            }
            Use::Pods(direction, family, policies) => {
                let inner: Vec<Use> =
                    policies.iter().map(|key| Use::Policy(*direction, *family, key.clone())).collect();
                let mut rules: Vec<Rule> = inner.iter().map(|one| Rule::Jump(self.acquire(one))).collect();
                rules.push(Rule::Drop);
                self.contents.put_chain(&name, rules);
                inner
            }
        };
        self.uses.insert(one.clone(), name.clone(), inner);
        name
    }

    /// One user less; what nobody uses any more goes.
    pub(crate) fn release(&mut self, one: &Use) {
        let Some(gone) = self.uses.release(one) else { return };
        match one {
            Use::Peers(..) | Use::Named(..) | Use::Blocks(..) => self.contents.remove_set(&gone.name),
            Use::Ports(..) | Use::Policy(..) | Use::Pods(..) => self.contents.remove_chain(&gone.name),
        }
        for inner in &gone.inner {
            self.release(inner);
        }
    }

    /// Writes the rules of a policy's chain anew if it is in use.
    pub(crate) fn rewrite(&mut self, one: &Use) {
        let Use::Policy(direction, family, key) = one else { return };
        let Some(name) = self.uses.get(one).map(|used| used.name.clone()) else { return };
        let (rules, inner) = self.policy_rules(*direction, *family, key);
        self.contents.put_chain(&name, rules);
        for before in self.uses.lead(one, inner) {
            self.release(&before);
        }
    }

    /// The rules of a policy's chain, and what they use from now on.
    fn policy_rules(&mut self, direction: Direction, family: Family, key: &Key) -> (Vec<Rule>, Vec<Use>) {
        let mut steps = Vec::new();
        if let Some((policy, named)) = self.policy(key, direction) {
            for (rule, ids) in policy.rules(direction).unwrap_or_default().iter().zip(named) {
                let ports = rule.ports.clone();
                let Some(peers) = &rule.peers else {
                    steps.push((None, ports));
                    continue;
                };
                let mut sets: Vec<Use> = ids.iter().flatten().map(|id| Use::Peers(family, *id)).collect();
                if !peers.blocks.of(family).is_empty() {
                    sets.push(Use::Blocks(family, peers.blocks.of(family).clone()));
                }
                if !sets.is_empty() {
                    steps.push((Some(sets), ports));
                }
            }
        }
        let (mut rules, mut uses) = (Vec::new(), Vec::new());
        for (sets, ports) in steps {
            let then = ports.map(|ports| {
                let chain = Use::Ports(family, ports);
                let name = self.acquire(&chain);
                uses.push(chain);
                name
            });
            let Some(sets) = sets else {
                rules.push(Rule::Anyone(then));
                continue;
            };
            for set in sets {
                let name = self.acquire(&set);
                uses.push(set);
                rules.push(Rule::Peers { direction, family, set: name, then: then.clone() });
            }
        }
        (rules, uses)
    }

    fn ports_rules(&mut self, family: Family, ports: &Ports) -> (Vec<Rule>, Vec<Use>) {
        let numbers = ports.numbers.iter().map(|(protocol, low, high)| Rule::Port(*protocol, *low, *high));
        let mut rules: Vec<Rule> = numbers.collect();
        let names = ports.names.iter().map(|(protocol, name)| Use::Named(family, *protocol, name.clone()));
        let uses: Vec<Use> = names.collect();
        rules.extend(uses.iter().map(|one| Rule::Named(family, self.acquire(one))));
        (rules, uses)
    }
}

/// The elements of a set of ranges, in order.
fn range_elements(ranges: &Ranges, family: Family) -> Vec<Element<'static>> {
    let width = if family == Family::V6 { 16 } else { 4 };
    let end = |number: u128| Cow::Owned(number.to_be_bytes()[16 - width..].to_vec());
    ranges
        .iter()
        .map(|(first, last)| Element { key: end(*first), last: Some(end(*last)), value: None })
        .collect()
}
