//! This was found on nodes, for claims that ask for the same.
//!
//! A claim that asks for what another has asked for is answered as that one was, on all nodes but those where devices have
//! been allocated or given back since. A node is answered as another was if the search did not come to where their
//! devices differ.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass};

use super::reach::{Place, Reach};
use super::stock::Stock;
use super::usage::Usage;

/// This was found on a node.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Devices for all claims; the allocations, if the claims have alternatives.
    Found(Option<Arc<Vec<AllocationResult>>>),
    /// Some claim gets none.
    Nothing,
    /// The node's pools cannot be used.
    Unusable(String),
}

/// How far a search came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Far {
    /// To this place.
    To(Place),
    /// It looked at all devices.
    Everywhere,
    /// It met devices that are not the same for all nodes that see them.
    Special,
}

#[derive(Debug)]
struct Entry {
    reach: Arc<Reach>,
    /// The use of devices that it was found with.
    version: u64,
    outcome: Outcome,
}

/// A search of this turn.
#[derive(Debug)]
struct Recent {
    reach: Arc<Reach>,
    far: Far,
    outcome: Outcome,
}

/// The outcomes for claims that ask for the same.
#[derive(Debug, Default)]
pub(super) struct Memo {
    /// The use of devices now.
    version: u64,
    /// By the number of what a node can use.
    reaches: Vec<Option<Entry>>,
    recent: Vec<Recent>,
    used: u64,
}

/// How many sorts of claims are known at most; each takes some 50 bytes a node.
const SORTS: usize = 16;
/// How many searches of a turn are compared.
const RECENT: usize = 4;

/// The outcomes, by what the claims ask for.
#[derive(Debug, Default)]
pub(super) struct Memos {
    classes: Option<Classes>,
    all: Vec<(Arc<str>, Memo)>,
    uses: u64,
}

type Classes = Arc<BTreeMap<String, Arc<DeviceClass>>>;

impl Memos {
    /// Those of claims, without what is not true any more.
    pub(super) fn of(&mut self, sort: &Arc<str>, classes: &Classes, usage: &Usage) -> &mut Memo {
        if self.classes.as_ref().is_none_or(|known| !Arc::ptr_eq(known, classes)) {
            self.all.clear();
            self.classes = Some(classes.clone());
        }
        self.uses += 1;
        let known = self.all.iter().position(|(s, _)| Arc::ptr_eq(s, sort) || s == sort);
        let at = known.unwrap_or_else(|| {
            if self.all.len() >= SORTS
                && let Some(oldest) = (0..self.all.len()).min_by_key(|i| self.all[*i].1.used)
            {
                self.all.swap_remove(oldest);
            }
            self.all.push((sort.clone(), Memo::default()));
            self.all.len() - 1
        });
        let (known, memo) = &mut self.all[at];
        // The next look at it is one at the address.
        *known = sort.clone();
        memo.used = self.uses;
        if memo.version != usage.version() {
            memo.version = usage.version();
            memo.recent.clear();
        }
        memo
    }
}

impl Memo {
    /// The outcome on a node, if it is known.
    pub(super) fn get(&mut self, reach: &Arc<Reach>, stock: &Stock) -> Option<Outcome> {
        if let Some(Some(entry)) = self.reaches.get(reach.number)
            && Arc::ptr_eq(&entry.reach, reach)
            && entry.version <= self.version
            && reach.is_as(entry.version, stock)
        {
            return Some(entry.outcome.clone());
        }
        let same = |recent: &&Recent| match recent.far {
            Far::To(place) => recent.reach.goes_with(reach, Some(place)),
            Far::Everywhere => recent.reach.goes_with(reach, None),
            Far::Special => false,
        };
        let outcome = self.recent.iter().find(same)?.outcome.clone();
        self.set(reach, outcome.clone());
        Some(outcome)
    }

    /// Remembers the outcome of a search.
    pub(super) fn found(&mut self, reach: &Arc<Reach>, far: Far, outcome: &Outcome) {
        if far != Far::Special {
            if self.recent.len() >= RECENT {
                self.recent.remove(0);
            }
            self.recent.push(Recent { reach: reach.clone(), far, outcome: outcome.clone() });
        }
        self.set(reach, outcome.clone());
    }

    fn set(&mut self, reach: &Arc<Reach>, outcome: Outcome) {
        let entry = Entry { reach: reach.clone(), version: self.version, outcome };
        if reach.number >= self.reaches.len() {
            self.reaches.resize_with(reach.number + 1, || None);
        }
        if let Some(known) = self.reaches.get_mut(reach.number) {
            *known = Some(entry);
        }
    }
}
