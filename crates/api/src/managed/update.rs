//! managedFields after a write that is no apply.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use super::Writer;
use super::entries::{Manager, Operation, Places};
use super::set::FieldSet;
use super::walk::{Comparison, compare, is_typed};
use crate::schema::Schema;
use crate::tree::{Node, Struct, Text};

/// The greatest number of entries of writes that are no apply; older ones are merged.
const MAX_UPDATERS: usize = 10;
/// The entry into which old ones are merged.
const ANCIENT: &str = "ancient-changes";
/// Managers' names are cut to this length.
const MAX_MANAGER: usize = 128;

/// The manager's name of a client that sends none: its user agent up to the first `/`.
pub fn manager_of_agent(agent: &str) -> Text {
    let mut out = Text::default();
    for c in agent.split('/').next().unwrap_or_default().chars().filter(|c| printable(*c)) {
        if out.len() + c.len_utf8() > MAX_MANAGER {
            break;
        }
        out.push(c);
    }
    out
}

fn printable(c: char) -> bool {
    c == ' ' || !(c.is_control() || c.is_whitespace())
}

/// The fields that no entry ever holds.
static NEVER_MANAGED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of_names(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

pub(super) fn strip(set: FieldSet) -> FieldSet {
    set.difference(&NEVER_MANAGED)
}

/// Differences by version, each computed once.
pub(super) struct Differences<'w, 'a> {
    w: &'w Writer<'a>,
    known: HashMap<Text, Option<Comparison>>,
}

impl<'w, 'a> Differences<'w, 'a> {
    /// `of` are the differences in the writer's version.
    pub(super) fn new(w: &'w Writer<'a>, of: Comparison) -> Self {
        Self { w, known: HashMap::from([(w.api_version.into(), Some(of))]) }
    }
    /// The differences in a version; `None` if the kind has no such version.
    pub(super) fn get(
        &mut self,
        version: &str,
        make: impl FnOnce() -> Result<Option<Comparison>, String>,
    ) -> Result<Option<&Comparison>, String> {
        let version = self.w.version_of(version);
        let known = match self.known.entry(version.into()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(make()?),
        };
        Ok(known.as_ref())
    }
}

impl Writer<'_> {
    /// Sets the managedFields of `new`, which is about to be stored over `live` (`None` for a create): the fields that
    /// it changes belong to this writer, and to nobody else any more.
    ///
    /// Objects that nobody tracks stay untracked until something is applied to them.
    pub fn update(&self, live: Option<&Struct>, new: &mut Struct) {
        let Some(places) = Places::new(self.schema, new.id) else { return };
        let managers = self.managers_of_request(&places, live, new);
        places.clear(new);
        if managers.is_empty() && live.is_some() {
            return;
        }
        if !is_typed(self.schema, new) {
            return;
        }
        // As upstream, an object whose fields can't be told apart is stored without managedFields.
        let Ok(managers) = self.after_update(live, new, managers, self.manager) else { return };
        places.write(self.schema, new, managers);
    }

    /// The managers before the write. A client may change them, but not through a subresource; if its entries can't be
    /// read, the stored ones count.
    fn managers_of_request(&self, places: &Places, live: Option<&Struct>, new: &Struct) -> Vec<Manager> {
        let stored = || live.map(|l| places.read(l).unwrap_or_default()).unwrap_or_default();
        if !self.subresource.is_empty() {
            return stored();
        }
        if places.is_reset(new) {
            return Vec::new();
        }
        match places.read(new) {
            Ok(managers) if !managers.is_empty() => managers,
            _ => stored(),
        }
    }

    /// The managers after a write of `new` over `live` by `name`.
    pub(super) fn after_update(
        &self,
        live: Option<&Struct>,
        new: &Struct,
        managers: Vec<Manager>,
        name: &str,
    ) -> Result<Vec<Manager>, String> {
        let empty;
        let live = if let Some(live) = live {
            live
        } else {
            empty = Struct::new(new.id);
            &empty
        };
        let difference = self.taken.filter_all(compare(self.schema, live, new)?);
        // In a create no other manager has fields, and fields that were added need not stay.
        let (difference, own) = if managers.is_empty() {
            (Comparison::default(), difference.modified.union(difference.added))
        } else {
            let own = difference.modified.clone().union(difference.added.clone());
            (difference, own)
        };
        let own = strip(own);
        let mut differences = Differences::new(self, difference);
        let mut after = Vec::with_capacity(managers.len() + 1);
        for mut manager in managers {
            let version = manager.api_version.clone();
            let Some(c) = differences.get(&version, || self.compare_in(&version, live, new))? else {
                continue;
            };
            manager.fields = lessened(manager.fields, c);
            if !manager.fields.is_empty() {
                after.push(manager);
            }
        }
        if !own.is_empty() {
            let mut current = Manager {
                name: if name.is_empty() { "unknown".into() } else { name.into() },
                operation: Operation::Update,
                api_version: self.api_version.into(),
                subresource: self.subresource.into(),
                time: Some(self.now.into()),
                fields: own,
            };
            match after.iter_mut().find(|m| m.is(&current)) {
                Some(previous) => {
                    current.fields = current.fields.union(std::mem::take(&mut previous.fields));
                    *previous = current;
                }
                None => after.push(current),
            }
        }
        cap(&mut after);
        Ok(after)
    }

    /// Compares both objects in another version.
    fn compare_in(&self, version: &str, live: &Struct, new: &Struct) -> Result<Option<Comparison>, String> {
        let Some(versions) = self.versions.filter(|v| v.has(version)) else { return Ok(None) };
        let convert = |object: &Struct| versions.convert(object, self.api_version, version);
        let (Some(live), Some(new)) = (convert(live)?, convert(new)?) else { return Ok(None) };
        Ok(Some(self.taken.filter_all(compare(self.schema, &live, &new)?)))
    }
}

/// The fields that a manager keeps when another one makes a change.
pub(super) fn lessened(fields: FieldSet, c: &Comparison) -> FieldSet {
    fields.difference(&c.modified).difference(&c.added).difference(&c.removed)
}

/// Merges the oldest entries of updates, a version at a time, until there are few enough.
fn cap(managers: &mut Vec<Manager>) {
    let updaters = managers.iter().filter(|m| m.operation == Operation::Update).count();
    if updaters <= MAX_UPDATERS {
        return;
    }
    let mut oldest: Vec<Manager> = Vec::with_capacity(updaters);
    managers.retain(|m| {
        let update = m.operation == Operation::Update;
        if update {
            oldest.push(m.clone());
        }
        !update
    });
    oldest.sort_by(|a, b| {
        (&a.time, &a.name, &a.api_version, &a.subresource).cmp(&(
            &b.time,
            &b.name,
            &b.api_version,
            &b.subresource,
        ))
    });
    // The first entry of a version stays what it is until a second one joins it. Its place, if it was seen, and
    // that of the first entry which others were merged into.
    let mut versions: HashMap<Text, (Option<usize>, Option<usize>)> = HashMap::new();
    for (i, m) in oldest.iter().enumerate() {
        if m.name == ANCIENT && m.subresource.is_empty() {
            versions.entry(m.api_version.clone()).or_default().1.get_or_insert(i);
        }
    }
    let mut joined: BTreeMap<usize, Vec<FieldSet>> = BTreeMap::new();
    let mut gone = vec![false; oldest.len()];
    let mut left = oldest.len();
    for i in 0..oldest.len() {
        if left <= MAX_UPDATERS {
            break;
        }
        let (first, bucket) = versions.entry(oldest[i].api_version.clone()).or_default();
        let Some(first) = *first else {
            *first = Some(i);
            continue;
        };
        let into = bucket.unwrap_or(first);
        if into == i {
            continue;
        }
        *bucket = Some(into);
        let (fields, time) = (std::mem::take(&mut oldest[i].fields), oldest[i].time.clone());
        joined.entry(into).or_default().push(fields);
        let into = &mut oldest[into];
        into.name = ANCIENT.into();
        into.subresource = Text::default();
        into.time = time;
        gone[i] = true;
        left -= 1;
    }
    for (i, mut sets) in joined {
        sets.push(std::mem::take(&mut oldest[i].fields));
        oldest[i].fields = FieldSet::union_all(sets);
    }
    managers.extend(oldest.into_iter().zip(gone).filter(|(_, gone)| !gone).map(|(m, _)| m));
}

/// Puts back the times in managedFields if nothing but these differs between what is stored and what is
/// about to be, so that a write without effect stays one.
pub fn keep_times(schema: &Schema, old: &Struct, new: &mut Struct) {
    let Some(places) = Places::new(schema, new.id) else { return };
    if old.id != new.id || !places.only_times_differ(old, new) {
        return;
    }
    let entries: Vec<Node> = places.raw(old).to_vec();
    let Some(theirs) = places.clear(new) else { return };
    let equal = {
        let rest = |a: &Struct, b: &Struct| {
            a.iter()
                .filter(|(no, _)| *no != places.metadata)
                .eq(b.iter().filter(|(no, _)| *no != places.metadata))
        };
        let mut bare = old.st(places.metadata).cloned();
        if let Some(meta) = &mut bare {
            places.clear_in(meta);
        }
        rest(old, new) && bare.as_ref() == new.st(places.metadata)
    };
    match (equal, theirs) {
        (false, Node::List(theirs)) => places.put(schema, new, theirs),
        _ => places.put(schema, new, entries),
    }
}

/// Copies managedFields between objects of a kind in different versions.
pub fn copy_entries(schema: &Schema, from: &Struct, to: &mut Struct) {
    if let (Some(a), Some(b)) = (Places::new(schema, from.id), Places::new(schema, to.id)) {
        b.put(schema, to, a.raw(from).to_vec());
    }
}
