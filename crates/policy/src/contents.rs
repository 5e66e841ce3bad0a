//! The contents of the table: those that policies ask for, those that the kernel has, and the difference.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use client::Key;
use netlink::Error;
use netlink::nft::{Batch, Element, Filter, SetKind, Table, Value, Verdict};

use crate::chains::{BASES, BaseChain, Rule, base_rules, fixed_sets};
use crate::name::{Name, note};

/// The key of an element.
pub(crate) type Bytes = Arc<[u8]>;

/// The hash of a chain's rules and their number, as the kernel has them.
type Written = (u64, usize);

/// An element that somebody asks for, or that the kernel has.
#[derive(Debug, Default)]
struct Cell {
    /// How many ask for it, for an element of a set.
    holds: usize,
    /// Those who ask for it, in order, for an element of a map: the first one's chain counts.
    leads: Vec<(Arc<Key>, Name)>,
    /// The hash of what the kernel has; 0 for none.
    present: u64,
}

impl Cell {
    /// The hash of what is asked for; 0 for nothing.
    fn wanted(&self) -> u64 {
        match (self.leads.first(), self.holds) {
            (Some((_, chain)), _) => lead_hash(chain),
            (None, 0) => 0,
            (None, _) => HELD,
        }
    }
}

/// The hash of an element without a value.
const HELD: u64 = 1;

fn lead_hash(chain: &str) -> u64 {
    note(&[chain.as_bytes()]).max(HELD + 1)
}

#[derive(Debug)]
struct Set {
    kind: SetKind,
    /// The elements of a set of ranges, which never change.
    ranges: Vec<Element<'static>>,
    note: u64,
    /// Whether it is asked for; otherwise it is to go.
    wanted: bool,
    /// Whether the kernel has it.
    present: bool,
    cells: BTreeMap<Bytes, Cell>,
    dirty: BTreeSet<Bytes>,
}

impl Set {
    fn new(kind: SetKind, ranges: Vec<Element<'static>>) -> Self {
        let note = note(&[format!("{kind:?}").as_bytes(), format!("{ranges:?}").as_bytes()]);
        let (cells, dirty) = Default::default();
        Self { kind, ranges, note, wanted: true, present: false, cells, dirty }
    }
}

#[derive(Debug)]
struct Chain {
    base: Option<BaseChain>,
    rules: Vec<Rule>,
    written: Written,
}

impl Chain {
    fn new(base: Option<BaseChain>, rules: Vec<Rule>) -> Self {
        let (mut text, mut count) = (String::new(), 0);
        for rule in &rules {
            rule.expressions(&mut |expressions| {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{expressions:?}");
                count += 1;
            });
        }
        let hash = if count == 0 { 0 } else { note(&[text.as_bytes()]) };
        Self { base, rules, written: (hash, count) }
    }
}

/// The contents of the table.
#[derive(Debug)]
pub(crate) struct Contents {
    chains: BTreeMap<Name, Chain>,
    dirty_chains: BTreeSet<Name>,
    present_chains: BTreeMap<Name, Written>,
    sets: BTreeMap<Name, Set>,
    dirty_sets: BTreeSet<Name>,
    /// Sets that the kernel has and nobody knows.
    strange_sets: BTreeSet<Name>,
    /// Whether the kernel's contents are known.
    known: bool,
    /// Whether the table is there in a form that cannot be changed into this one.
    foreign: bool,
}

/// The size of a commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Elements that were added, or have another value.
    pub added: usize,
    /// Elements that were removed.
    pub removed: usize,
    /// Chains and sets that were made, removed, or have other rules.
    pub objects: usize,
}

impl Changes {
    /// Whether nothing was to do.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The number of rules and elements that are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) rules: usize,
    pub(crate) elements: usize,
    pub(crate) chains: usize,
    pub(crate) sets: usize,
}

impl Contents {
    /// The base chains, and the sets that are always there.
    pub(crate) fn new() -> Self {
        let mut new = Self {
            chains: BTreeMap::new(),
            dirty_chains: BTreeSet::new(),
            present_chains: BTreeMap::new(),
            sets: BTreeMap::new(),
            dirty_sets: BTreeSet::new(),
            strange_sets: BTreeSet::new(),
            known: false,
            foreign: false,
        };
        for base in BASES {
            let name: Name = base.name.into();
            new.chains.insert(name.clone(), Chain::new(Some(base), base_rules(base)));
            new.dirty_chains.insert(name);
        }
        for (name, kind) in fixed_sets() {
            new.put_set(&name, kind, Vec::new());
        }
        new
    }

    /// Asks for a chain with these rules.
    pub(crate) fn put_chain(&mut self, name: &Name, rules: Vec<Rule>) {
        self.chains.insert(name.clone(), Chain::new(None, rules));
        self.dirty_chains.insert(name.clone());
    }

    pub(crate) fn remove_chain(&mut self, name: &Name) {
        self.chains.remove(name);
        self.dirty_chains.insert(name.clone());
    }

    /// Asks for a set; one of ranges has its elements for good.
    pub(crate) fn put_set(&mut self, name: &Name, kind: SetKind, ranges: Vec<Element<'static>>) {
        match self.sets.get_mut(name) {
            Some(set) => set.wanted = true,
            None => drop(self.sets.insert(name.clone(), Set::new(kind, ranges))),
        }
        self.dirty_sets.insert(name.clone());
    }

    /// Takes back a set and all of its elements.
    pub(crate) fn remove_set(&mut self, name: &Name) {
        let Some(set) = self.sets.get_mut(name) else { return };
        set.wanted = false;
        for (key, cell) in &mut set.cells {
            cell.holds = 0;
            cell.leads.clear();
            set.dirty.insert(key.clone());
        }
        self.dirty_sets.insert(name.clone());
    }

    fn cell(&mut self, name: &Name, key: &Bytes, change: impl FnOnce(&mut Cell)) {
        let Some(set) = self.sets.get_mut(name) else { return };
        change(set.cells.entry(key.clone()).or_default());
        set.dirty.insert(key.clone());
        if !self.dirty_sets.contains(name) {
            self.dirty_sets.insert(name.clone());
        }
    }

    /// Asks for an element of a set; as often as it is asked for it must be dropped.
    pub(crate) fn hold(&mut self, set: &Name, key: &Bytes) {
        self.cell(set, key, |cell| cell.holds += 1);
    }

    pub(crate) fn unhold(&mut self, set: &Name, key: &Bytes) {
        self.cell(set, key, |cell| cell.holds = cell.holds.saturating_sub(1));
    }

    /// Asks for an element of a map that leads to a chain; none takes the wish back.
    pub(crate) fn lead(&mut self, set: &Name, key: &Bytes, owner: &Arc<Key>, chain: Option<&Name>) {
        self.cell(set, key, |cell| match (cell.leads.binary_search_by(|(o, _)| o.cmp(owner)), chain) {
            (Ok(at), Some(chain)) => cell.leads[at].1 = chain.clone(),
            (Ok(at), None) => drop(cell.leads.remove(at)),
            (Err(at), Some(chain)) => cell.leads.insert(at, (owner.clone(), chain.clone())),
            (Err(_), None) => {}
        });
    }

    /// The kernel's contents are not known any more: they are read before the next commit.
    pub(crate) fn doubt(&mut self) {
        self.known = false;
    }

    pub(crate) fn size(&self) -> Size {
        let elements = |set: &Set| set.ranges.len() + set.cells.values().filter(|c| c.wanted() != 0).count();
        Size {
            rules: self.chains.values().map(|chain| chain.written.1).sum(),
            elements: self.sets.values().map(elements).sum(),
            chains: self.chains.len(),
            sets: self.sets.values().filter(|set| set.wanted).count(),
        }
    }

    /// Whether the kernel has as many chains and sets as were written; false if somebody removed the table.
    pub(crate) fn is_there(&self, filter: &mut Filter, table: &Table) -> Result<bool, Error> {
        let chains = filter.chains(table)?;
        let sets = filter.sets(table)?;
        let present = self.sets.values().filter(|set| set.present).count();
        Ok(chains.len() == self.present_chains.len() && sets.len() == present)
    }

    /// Writes the difference between what is asked for and what the kernel has.
    pub(crate) fn commit(&mut self, filter: &mut Filter, table: &Table) -> Result<Changes, Error> {
        if !self.known {
            self.read(filter, table)?;
        }
        let mut changes = Changes::default();
        let mut batch = Batch::new(table);
        if self.foreign {
            batch.delete_table();
        }
        if self.present_chains.is_empty() {
            batch.add_table();
        }
        self.make_sets(&mut batch, &mut changes);
        self.write_chains(&mut batch, &mut changes);
        self.write_elements(&mut batch, &mut changes);
        self.clear(&mut batch, &mut changes);
        if !changes.is_empty() {
            // After a refusal nothing is known of the table.
            self.known = false;
            filter.commit(batch)?;
            self.known = true;
            self.foreign = false;
        }
        self.settle();
        Ok(changes)
    }

    fn make_sets(&self, batch: &mut Batch<'_>, changes: &mut Changes) {
        for name in &self.dirty_sets {
            let Some(set) = self.sets.get(name).filter(|set| set.wanted && !set.present) else { continue };
            batch.add_set(name, &set.kind, &set.note.to_be_bytes());
            batch.add_elements(name, &set.kind, &set.ranges);
            changes.objects += 1;
        }
    }

    /// Makes chains that are missing, and writes other rules anew.
    fn write_chains(&self, batch: &mut Batch<'_>, changes: &mut Changes) {
        let dirty = self.dirty_chains.iter().filter_map(|name| Some((name, self.chains.get(name)?)));
        let changed: Vec<(&Name, &Chain)> =
            dirty.filter(|(name, chain)| self.present_chains.get(*name) != Some(&chain.written)).collect();
        // All are there before any leads to another.
        for (name, chain) in &changed {
            match chain.base {
                Some(base) => batch.add_base_chain(name, BaseChain::KIND, BaseChain::HOOK, base.priority),
                None => batch.add_chain(name, &[]),
            }
        }
        for (name, chain) in changed {
            if self.present_chains.contains_key(name) {
                batch.flush_chain(name);
            }
            let note = chain.written.0.to_be_bytes();
            for rule in &chain.rules {
                rule.expressions(&mut |rule| batch.add_rule(name, rule, &note));
            }
            changes.objects += 1;
        }
    }

    fn write_elements(&self, batch: &mut Batch<'_>, changes: &mut Changes) {
        for name in &self.dirty_sets {
            // A set that goes takes its elements with it; maps that lead to chains always stay.
            let Some(set) = self.sets.get(name).filter(|set| set.wanted) else { continue };
            let (mut gone, mut new) = (Vec::new(), Vec::new());
            for key in &set.dirty {
                let Some(cell) = set.cells.get(key) else { continue };
                let wanted = cell.wanted();
                if wanted == cell.present {
                    continue;
                }
                if cell.present != 0 {
                    gone.push(Element::key(&key[..]));
                    changes.removed += usize::from(wanted == 0);
                }
                if wanted != 0 {
                    new.push(match cell.leads.first() {
                        None => Element::key(&key[..]),
                        Some((_, chain)) => {
                            Element::value(&key[..], Value::Verdict(Verdict::Jump(Cow::Borrowed(chain))))
                        }
                    });
                    changes.added += 1;
                }
            }
            batch.delete_elements(name, &set.kind, &gone);
            batch.add_elements(name, &set.kind, &new);
        }
    }

    /// Removes chains and sets that nobody wants. Rules go first, since chains use each other.
    fn clear(&self, batch: &mut Batch<'_>, changes: &mut Changes) {
        let chains = self.dirty_chains.iter().filter(|name| !self.chains.contains_key(*name));
        let chains: Vec<&Name> = chains.filter(|name| self.present_chains.contains_key(*name)).collect();
        for name in &chains {
            batch.flush_chain(name);
        }
        for name in &chains {
            batch.delete_chain(name);
        }
        let gone = |name: &&Name| self.sets.get(*name).is_some_and(|set| !set.wanted && set.present);
        let sets = self.dirty_sets.iter().filter(gone).chain(&self.strange_sets);
        let mut count = chains.len();
        for name in sets {
            batch.delete_set(name);
            count += 1;
        }
        changes.objects += count;
    }

    /// Takes what was written for what is there.
    fn settle(&mut self) {
        for name in std::mem::take(&mut self.dirty_chains) {
            match self.chains.get(&name) {
                Some(chain) => drop(self.present_chains.insert(name, chain.written)),
                None => drop(self.present_chains.remove(&name)),
            }
        }
        self.strange_sets.clear();
        for name in std::mem::take(&mut self.dirty_sets) {
            let Some(set) = self.sets.get_mut(&name) else { continue };
            if !set.wanted {
                self.sets.remove(&name);
                continue;
            }
            set.present = true;
            for key in std::mem::take(&mut set.dirty) {
                let Some(cell) = set.cells.get_mut(&key) else { continue };
                cell.present = cell.wanted();
                if cell.present == 0 {
                    set.cells.remove(&key);
                }
            }
        }
    }

    /// Reads what the kernel has.
    fn read(&mut self, filter: &mut Filter, table: &Table) -> Result<(), Error> {
        self.forget();
        let there = filter.tables(table.family)?.contains(&table.name);
        let chains = if there { filter.chains(table)? } else { Vec::new() };
        let sets = if there { filter.sets(table)? } else { Vec::new() };
        let is_base = |name: &str| BASES.iter().any(|base| base.name == name);
        let mut foreign = chains.iter().any(|chain| is_base(&chain.name) != chain.base);
        let mut strange = BTreeSet::new();
        for present in sets {
            let Some(set) = self.sets.get_mut(present.name.as_str()) else {
                strange.insert(present.name.into());
                continue;
            };
            set.present = true;
            foreign |= present.note != set.note.to_be_bytes();
            let elements =
                if foreign { Vec::new() } else { filter.elements(table, &present.name, &set.kind)? };
            if set.kind.ranges {
                foreign |= elements != set.ranges;
                continue;
            }
            for element in elements {
                let present = match &element.value {
                    None => HELD,
                    Some(Value::Verdict(Verdict::Jump(chain))) => lead_hash(chain),
                    // It differs from all that could be wanted.
                    Some(_) => u64::MAX,
                };
                let key: Bytes = Arc::from(&element.key[..]);
                set.cells.entry(key.clone()).or_default().present = present;
                set.dirty.insert(key);
            }
        }
        if foreign {
            self.forget();
        } else {
            self.strange_sets = strange;
            // Rules that are not all of one writing have no hash that could be wanted.
            let mut rules: BTreeMap<String, Written> = BTreeMap::new();
            for rule in filter.rules(table)? {
                let note = rule.note.as_slice().try_into().map_or(u64::MAX, u64::from_be_bytes);
                let found = rules.entry(rule.chain).or_insert((note, 0));
                found.1 += 1;
                if found.0 != note {
                    found.0 = u64::MAX;
                }
            }
            for chain in chains {
                let written = rules.remove(&chain.name).unwrap_or_default();
                self.present_chains.insert(chain.name.into(), written);
            }
        }
        self.dirty_chains.extend(self.chains.keys().cloned());
        self.dirty_chains.extend(self.present_chains.keys().cloned());
        self.dirty_sets.extend(self.sets.keys().cloned());
        self.foreign = foreign;
        self.known = true;
        Ok(())
    }

    /// Takes the kernel for empty.
    fn forget(&mut self) {
        self.present_chains.clear();
        self.strange_sets.clear();
        for set in self.sets.values_mut() {
            set.present = false;
            for (key, cell) in &mut set.cells {
                cell.present = 0;
                set.dirty.insert(key.clone());
            }
        }
    }
}

impl Contents {
    /// The rules of a chain.
    pub(crate) fn rules(&self, chain: &str) -> &[Rule] {
        self.chains.get(chain).map_or(&[], |chain| &chain.rules)
    }

    /// Whether a set has an element.
    pub(crate) fn has(&self, set: &str, key: &[u8]) -> bool {
        let Some(set) = self.sets.get(set).filter(|set| set.wanted) else { return false };
        let within =
            |range: &Element<'_>| &range.key[..] <= key && key <= range.last.as_deref().unwrap_or(&range.key);
        set.cells.get(key).is_some_and(|cell| cell.wanted() != 0) || set.ranges.iter().any(within)
    }

    /// The chain to which a map leads.
    pub(crate) fn leads(&self, map: &str, key: &[u8]) -> Option<Name> {
        Some(self.sets.get(map)?.cells.get(key)?.leads.first()?.1.clone())
    }
}

#[cfg(test)]
impl Contents {
    /// All that is asked for, as text.
    pub(crate) fn wanted(&self) -> String {
        let mut text = String::new();
        for (name, chain) in &self.chains {
            let _ = writeln!(text, "{name} {:?}", chain.rules);
        }
        for (name, set) in self.sets.iter().filter(|(_, set)| set.wanted) {
            let _ = writeln!(text, "{name} {:?} {:?}", set.kind, set.ranges);
            for (key, cell) in set.cells.iter().filter(|(_, cell)| cell.wanted() != 0) {
                let _ = writeln!(text, "{name} {key:?} {:?} {:?}", cell.holds, cell.leads);
            }
        }
        text
    }
}
