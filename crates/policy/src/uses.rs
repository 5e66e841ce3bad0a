//! The chains and sets that are in use, each as long as something leads to it: a Pod to the chain of its policies, that
//! one to a chain a policy, and so on to sets of peers.

use std::collections::HashMap;
use std::sync::Arc;

use client::Key;
use compact_str::CompactString as Text;
use objects::backends::Family;

use crate::name::{Name, digit, hash, of_object};
use crate::selections::{Id, Selections};
use crate::spec::{Direction, Ports, Ranges, Scope};

/// A chain or set that can be in use.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    /// The set of the addresses that selected Pods have.
    Peers(Family, Id),
    /// The set of the ports of Pods with this name.
    Named(Family, u8, Text),
    /// The set of addresses of blocks.
    Blocks(Family, Ranges),
    /// The chain that lets packets to ports pass.
    Ports(Family, Arc<Ports>),
    /// The chain that lets pass what a policy allows.
    Policy(Direction, Family, Arc<Key>),
    /// The chain of Pods for which these policies hold: it drops what none of them allows.
    Pods(Direction, Family, Arc<[Arc<Key>]>),
}

impl Use {
    /// Its name in the table.
    pub(crate) fn name(&self, selections: &Selections) -> Name {
        let direction = |direction: &Direction| match direction {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        };
        match self {
            Self::Peers(family, id) => {
                let selection = selections.get(*id).map(|one| one.selection.clone());
                let hash = selection.map_or_else(String::new, |selection| match &selection.scope {
                    Scope::Namespace(name) => {
                        hash(&[b"in", name.as_bytes(), selection.pods.text().as_bytes()])
                    }
                    Scope::Namespaces(wanted) => {
                        hash(&[b"of", wanted.text().as_bytes(), selection.pods.text().as_bytes()])
                    }
                });
                format!("peers{}-{hash}", digit(*family)).into()
            }
            Self::Named(family, protocol, name) => {
                format!("named{}-{protocol}-{}", digit(*family), hash(&[name.as_bytes()])).into()
            }
            Self::Blocks(family, blocks) => {
                let bytes: Vec<u8> = blocks
                    .iter()
                    .flat_map(|(first, last)| [first.to_be_bytes(), last.to_be_bytes()].concat())
                    .collect();
                format!("blocks{}-{}", digit(*family), hash(&[&bytes])).into()
            }
            Self::Ports(family, ports) => {
                let text = format!("{:?} {:?}", ports.numbers, ports.names);
                format!("ports{}-{}", digit(*family), hash(&[text.as_bytes()])).into()
            }
            Self::Policy(way, family, key) => {
                let prefix = format!("{}{}", direction(way), digit(*family));
                of_object(&prefix, &key.namespace, &key.name)
            }
            Self::Pods(way, family, policies) => {
                let all = policies.iter().flat_map(|key| [key.namespace.as_bytes(), key.name.as_bytes()]);
                let all: Vec<&[u8]> = all.collect();
                format!("{}{}-{}", direction(way), digit(*family), hash(&all)).into()
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Used {
    pub(crate) name: Name,
    users: usize,
    /// What it leads to.
    pub(crate) inner: Vec<Use>,
}

/// The chains and sets that are in use.
#[derive(Debug, Default)]
pub(crate) struct Uses(HashMap<Use, Used>);

impl Uses {
    pub(crate) fn get(&self, one: &Use) -> Option<&Used> {
        self.0.get(one)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One more user of what is in use; none if it is not.
    pub(crate) fn again(&mut self, one: &Use) -> Option<Name> {
        let used = self.0.get_mut(one)?;
        used.users += 1;
        Some(used.name.clone())
    }

    pub(crate) fn insert(&mut self, one: Use, name: Name, inner: Vec<Use>) {
        self.0.insert(one, Used { name, users: 1, inner });
    }

    /// Takes other things that it leads to; returns those before.
    pub(crate) fn lead(&mut self, one: &Use, inner: Vec<Use>) -> Vec<Use> {
        self.0.get_mut(one).map(|used| std::mem::replace(&mut used.inner, inner)).unwrap_or_default()
    }

    /// One user less; what nobody uses any more is returned.
    pub(crate) fn release(&mut self, one: &Use) -> Option<Used> {
        let used = self.0.get_mut(one)?;
        used.users -= 1;
        if used.users == 0 { self.0.remove(one) } else { None }
    }
}
