//! The contents of the table: those that Services ask for, those that the kernel has, and the difference.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use client::Key;
use compact_str::{CompactString as Text, ToCompactString};
use netlink::Error;
use netlink::nft::{Batch, Element, Filter, Table, Value, Verdict};
use objects::backends::Family;

use crate::chain::{BASES, Chain, Fixed};
use crate::layout::{FIXED, Set, hash};
use crate::plan::{Held, Part};
use crate::settings::Settings;

/// The key of an element, shared by those who know it.
pub(crate) type Bytes = Arc<[u8]>;

/// The things that a Service owns.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    /// In order.
    items: Vec<(Set, Bytes)>,
    chains: Vec<Text>,
}

/// An element that somebody asks for, or that the kernel has.
#[derive(Debug, Default)]
struct Cell {
    /// Those who ask for it, in order: the first one's value counts. Two Services may name one external address.
    owners: Vec<(Arc<Key>, Held)>,
    /// The hash of the value that the kernel has; 0 for none.
    present: u64,
}

#[derive(Debug)]
struct Used {
    chain: Chain,
    users: usize,
    /// The hash of its rules, once it is known.
    hash: Option<u64>,
}

/// The chains and sets that are to be there, with the hash of the chains' rules.
#[derive(Debug)]
struct Objects {
    chains: BTreeMap<Text, (Chain, u64)>,
    sets: BTreeMap<Text, Set>,
}

/// The contents of the table.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    elements: BTreeMap<Set, BTreeMap<Bytes, Cell>>,
    dirty: BTreeSet<(Set, Bytes)>,
    chains: BTreeMap<Text, Used>,
    /// The chains that the kernel has, with the hash of their rules.
    present_chains: BTreeMap<Text, u64>,
    present_sets: BTreeSet<Text>,
    /// Whether chains and sets that are wanted may differ from those present.
    objects_changed: bool,
    /// Whether the kernel's contents are known.
    known: bool,
    /// Whether the table is there in a form that cannot be changed into this one.
    foreign: bool,
}

/// The hash of the rules of a chain that has none, and of one whose rules were not written together.
const NO_RULES: u64 = 0;
const UNKNOWN_RULES: u64 = 1;

/// The size of a commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Elements that were added, or have another value.
    pub added: usize,
    /// Elements that were removed.
    pub removed: usize,
    /// Chains and sets that were made, removed, or have other rules.
    pub chains: usize,
}

impl Changes {
    /// Whether nothing was to do.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The hash of a value, never 0.
fn value_hash(held: &Held) -> u64 {
    match held {
        Held::Nothing => 1,
        Held::Drop => 2,
        Held::Bytes(bytes) => hash(&[b"bytes", bytes]).max(3),
        Held::Goto(chain) => hash(&[b"goto", chain.as_bytes()]).max(3),
    }
}

fn element<'a>(key: &'a [u8], held: &'a Held) -> Element<'a> {
    match held {
        Held::Nothing => Element::key(key),
        Held::Drop => Element::value(key, Value::Verdict(Verdict::Drop)),
        Held::Bytes(bytes) => Element::value(key, Value::Bytes(Cow::Borrowed(bytes))),
        Held::Goto(chain) => {
            Element::value(key, Value::Verdict(Verdict::Goto(Cow::Borrowed(chain.as_str()))))
        }
    }
}

fn held(element: &Element<'_>) -> Option<Held> {
    Some(match &element.value {
        None => Held::Nothing,
        Some(Value::Bytes(bytes)) => Held::Bytes(bytes.to_vec().into()),
        Some(Value::Verdict(Verdict::Drop)) => Held::Drop,
        Some(Value::Verdict(Verdict::Goto(chain))) => Held::Goto(chain.as_ref().into()),
        Some(Value::Verdict(_)) => return None,
    })
}

/// The note of a set, by which one of another kind is known. A base chain of another kind has another name.
fn set_note(set: Set) -> [u8; 8] {
    hash(&[format!("{:?}", set.kind()).as_bytes()]).to_be_bytes()
}

/// The hash of a chain's rules.
fn rules_hash(chain: &Chain, settings: &Settings) -> u64 {
    let mut text = String::new();
    chain.rules(settings, &mut |rule| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{rule:?}");
    });
    if text.is_empty() { NO_RULES } else { hash(&[text.as_bytes()]).max(UNKNOWN_RULES + 1) }
}

fn fixed_sets() -> impl Iterator<Item = Set> {
    [Family::V4, Family::V6].into_iter().flat_map(|family| FIXED.map(|what| Set { family, what }))
}

impl Contents {
    /// Puts a Service's part in the place of what it owned.
    pub(crate) fn replace(&mut self, owner: &Arc<Key>, before: &mut Owned, part: Part) {
        let mut now = Vec::with_capacity(part.items.len());
        let mut old = std::mem::take(&mut before.items).into_iter().peekable();
        for item in part.items {
            let mut known = None;
            while let Some((set, key)) = old.peek() {
                match (*set, &key[..]).cmp(&(item.set, &item.key[..])) {
                    std::cmp::Ordering::Less => {
                        if let Some((set, key)) = old.next() {
                            self.withdraw(owner, set, &key);
                        }
                    }
                    std::cmp::Ordering::Equal => {
                        known = old.next().map(|(_, key)| key);
                        break;
                    }
                    std::cmp::Ordering::Greater => break,
                }
            }
            let key = known.unwrap_or_else(|| Arc::from(item.key));
            self.put(owner, item.set, &key, item.held);
            now.push((item.set, key));
        }
        for (set, key) in old {
            self.withdraw(owner, set, &key);
        }
        before.items = now;
        let mut names = Vec::with_capacity(part.chains.len());
        for chain in part.chains {
            let name = chain.to_compact_string();
            let used = self.chains.entry(name.clone()).or_insert(Used { chain, users: 0, hash: None });
            self.objects_changed |= used.users == 0;
            used.users += 1;
            names.push(name);
        }
        for name in std::mem::replace(&mut before.chains, names) {
            if let Some(used) = self.chains.get_mut(&name) {
                used.users -= 1;
                if used.users == 0 {
                    self.chains.remove(&name);
                    self.objects_changed = true;
                }
            }
        }
    }

    fn put(&mut self, owner: &Arc<Key>, set: Set, key: &Bytes, held: Held) {
        let cells = self.elements.entry(set).or_default();
        let cell = match cells.get_mut(key) {
            Some(cell) => cell,
            None => cells.entry(key.clone()).or_default(),
        };
        match cell.owners.binary_search_by(|(o, _)| o.cmp(owner)) {
            Ok(at) if cell.owners[at].1 == held => return,
            Ok(at) => cell.owners[at].1 = held,
            Err(at) => {
                cell.owners.reserve_exact(1);
                cell.owners.insert(at, (owner.clone(), held));
            }
        }
        self.dirty.insert((set, key.clone()));
    }

    fn withdraw(&mut self, owner: &Arc<Key>, set: Set, key: &Bytes) {
        let Some(cell) = self.elements.get_mut(&set).and_then(|cells| cells.get_mut(key)) else { return };
        cell.owners.retain(|(o, _)| o != owner);
        self.dirty.insert((set, key.clone()));
    }

    /// The kernel's contents are not known any more: they are read before the next commit.
    pub(crate) fn doubt(&mut self) {
        self.known = false;
    }

    /// The settings changed, and rules with them.
    pub(crate) fn rules_changed(&mut self) {
        self.objects_changed = true;
        for used in self.chains.values_mut() {
            used.hash = None;
        }
    }

    /// The number of elements that are asked for.
    pub(crate) fn len(&self) -> usize {
        self.elements.values().map(BTreeMap::len).sum()
    }

    /// Whether the kernel has as many chains and sets as were written; false if somebody removed the table.
    pub(crate) fn is_there(&self, filter: &mut Filter, table: &Table) -> Result<bool, Error> {
        let chains = filter.chains(table)?;
        let sets = filter.sets(table)?;
        Ok(chains.len() == self.present_chains.len() && sets.len() == self.present_sets.len())
    }

    /// Writes the difference between what is asked for and what the kernel has.
    pub(crate) fn commit(
        &mut self,
        filter: &mut Filter,
        table: &Table,
        settings: &Settings,
    ) -> Result<Changes, Error> {
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
        // Most changes are of elements alone.
        let objects = self.objects_changed.then(|| self.objects(settings));
        if let Some(objects) = &objects {
            self.make(&mut batch, &mut changes, objects, settings);
        }
        let dirty = self.changed_elements(&mut batch, &mut changes);
        if let Some(objects) = &objects {
            self.clear(&mut batch, &mut changes, objects);
        }
        if !changes.is_empty() {
            // After a refusal nothing is known of the table.
            self.known = false;
            filter.commit(batch)?;
            self.known = true;
            self.foreign = false;
        }
        if let Some(Objects { chains, sets }) = objects {
            self.present_chains = chains.into_iter().map(|(name, (_, hash))| (name, hash)).collect();
            self.present_sets = sets.into_keys().collect();
            self.objects_changed = false;
        }
        // Cells that nobody has may be left over from changes that took each other back.
        self.settle(dirty);
        Ok(changes)
    }

    /// Makes chains and sets that are missing, and writes other rules anew.
    fn make(&self, batch: &mut Batch<'_>, changes: &mut Changes, wanted: &Objects, settings: &Settings) {
        let rewritten: Vec<(&Text, &Chain, u64)> = wanted
            .chains
            .iter()
            .filter(|(name, (_, hash))| self.present_chains.get(*name) != Some(hash))
            .map(|(name, (chain, hash))| (name, chain, *hash))
            .collect();
        for (name, set) in wanted.sets.iter().filter(|(name, _)| !self.present_sets.contains(*name)) {
            batch.add_set(name, &set.kind(), &set_note(*set));
            changes.chains += 1;
        }
        for (name, chain, _) in &rewritten {
            if let Chain::Fixed(Fixed::Base(base)) = chain {
                batch.add_base_chain(name, base.kind, base.hook, base.priority);
            } else {
                batch.add_chain(name, &[]);
            }
        }
        for (name, chain, hash) in &rewritten {
            if self.present_chains.contains_key(*name) {
                batch.flush_chain(name);
            }
            chain.rules(settings, &mut |rule| batch.add_rule(name, rule, &hash.to_be_bytes()));
            changes.chains += 1;
        }
    }

    /// Removes chains and sets that nobody wants. Their rules go first, since chains use each other.
    fn clear(&self, batch: &mut Batch<'_>, changes: &mut Changes, wanted: &Objects) {
        let chains = self.present_chains.keys().filter(|name| !wanted.chains.contains_key(*name));
        let chains: Vec<&Text> = chains.collect();
        for name in &chains {
            batch.flush_chain(name);
        }
        for name in &chains {
            batch.delete_chain(name);
        }
        let sets = self.present_sets.iter().filter(|name| !wanted.sets.contains_key(*name));
        let sets: Vec<&Text> = sets.collect();
        for name in &sets {
            batch.delete_set(name);
        }
        changes.chains += chains.len() + sets.len();
    }

    /// The chains and sets that are to be there.
    fn objects(&mut self, settings: &Settings) -> Objects {
        let mut chains = BTreeMap::new();
        let mut sets: BTreeMap<Text, Set> = fixed_sets().map(|set| (set.to_compact_string(), set)).collect();
        for chain in Fixed::all().into_iter().map(Chain::Fixed) {
            let hash = rules_hash(&chain, settings);
            chains.insert(chain.to_compact_string(), (chain, hash));
        }
        for (name, used) in &mut self.chains {
            if let Some(set) = used.chain.affinity() {
                sets.insert(set.to_compact_string(), set);
            }
            let hash = *used.hash.get_or_insert_with(|| rules_hash(&used.chain, settings));
            chains.insert(name.clone(), (used.chain.clone(), hash));
        }
        Objects { chains, sets }
    }

    /// Writes changed elements; returns their keys.
    fn changed_elements(&self, batch: &mut Batch<'_>, changes: &mut Changes) -> Vec<(Set, Bytes)> {
        let dirty: Vec<(Set, Bytes)> = self.dirty.iter().cloned().collect();
        for of_set in dirty.chunk_by(|a, b| a.0 == b.0) {
            let Some((set, _)) = of_set.first() else { continue };
            let Some(cells) = self.elements.get(set) else { continue };
            let (mut gone, mut new) = (Vec::new(), Vec::new());
            for (_, key) in of_set {
                let Some(cell) = cells.get(key) else { continue };
                let wanted = cell.owners.first().map(|(_, held)| held);
                let hash = wanted.map_or(0, value_hash);
                if hash == cell.present {
                    continue;
                }
                if cell.present != 0 {
                    gone.push(Element::key(&key[..]));
                    changes.removed += usize::from(wanted.is_none());
                }
                if let Some(wanted) = wanted {
                    new.push(element(key, wanted));
                    changes.added += 1;
                }
            }
            let (name, kind) = (set.to_compact_string(), set.kind());
            batch.delete_elements(&name, &kind, &gone);
            batch.add_elements(&name, &kind, &new);
        }
        dirty
    }

    /// Takes written elements for present ones.
    fn settle(&mut self, written: Vec<(Set, Bytes)>) {
        for (set, key) in written {
            let Some(cells) = self.elements.get_mut(&set) else { continue };
            let Some(cell) = cells.get_mut(&key) else { continue };
            match cell.owners.first() {
                Some((_, held)) => cell.present = value_hash(held),
                None => drop(cells.remove(&key)),
            }
        }
        self.dirty.clear();
    }

    /// Reads what the kernel has.
    fn read(&mut self, filter: &mut Filter, table: &Table) -> Result<(), Error> {
        let there = filter.tables(table.family)?.contains(&table.name);
        let chains = if there { filter.chains(table)? } else { Vec::new() };
        let sets = if there { filter.sets(table)? } else { Vec::new() };
        let is_base = |name: &str| BASES.iter().find(|base| base.name == name);
        let mut foreign = chains.iter().any(|chain| is_base(&chain.name).is_some() != chain.base);
        let kinds: BTreeMap<Text, [u8; 8]> =
            fixed_sets().map(|set| (set.to_compact_string(), set_note(set))).collect();
        foreign |= sets.iter().any(|set| {
            kinds
                .get(set.name.as_str())
                .map_or(!set.name.starts_with("affinity-"), |note| set.note != note[..])
        });
        for cell in self.elements.values_mut().flat_map(BTreeMap::values_mut) {
            cell.present = 0;
        }
        self.foreign = foreign;
        self.present_chains.clear();
        self.present_sets.clear();
        if !foreign {
            // Rules that are not all of one writing have no hash that could be wanted.
            let mut hashes: BTreeMap<String, (Option<u64>, bool)> = BTreeMap::new();
            for rule in filter.rules(table)? {
                let note = rule.note.as_slice().try_into().ok().map(u64::from_be_bytes);
                let known = hashes.entry(rule.chain).or_insert((note, true));
                known.1 &= known.0 == note && note.is_some();
            }
            for chain in chains {
                let hash = match hashes.remove(&chain.name) {
                    None => NO_RULES,
                    Some((hash, same)) => hash.filter(|_| same).unwrap_or(UNKNOWN_RULES),
                };
                self.present_chains.insert(chain.name.into(), hash);
            }
            for set in sets {
                self.present_sets.insert(set.name.into());
            }
            for set in fixed_sets() {
                let name = set.to_compact_string();
                if !self.present_sets.contains(&name) {
                    continue;
                }
                let cells = self.elements.entry(set).or_default();
                for element in filter.elements(table, &name, &set.kind())? {
                    let present = held(&element).map_or(u64::MAX, |held| value_hash(&held));
                    if let Some(cell) = cells.get_mut(&element.key[..]) {
                        cell.present = present;
                    } else {
                        let cell = Cell { owners: Vec::new(), present };
                        cells.insert(Arc::from(&element.key[..]), cell);
                    }
                }
            }
        }
        let all = self.elements.iter().flat_map(|(set, cells)| cells.keys().map(|key| (*set, key.clone())));
        self.dirty = all.collect();
        self.objects_changed = true;
        self.known = true;
        Ok(())
    }
}
