//! This is known of the devices of a stock: the answers of requests about them, what is left of them, and what was found on
//! nodes. It is kept true by the changes of their use.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::resource::v1::DeviceAttribute;

use super::allocated::{Amounts, Available};
use super::bits::Bits;
use super::constraint::{Column, MISSING, UNKNOWN, Values, lookup};
use super::counters;
use super::memo::Memos;
use super::reach::{Reaches, View};
use super::stock::{Name, Slot, Stock};
use super::terms::Features;
use super::usage::Usage;

/// The answers about devices, of requests that ask for the same.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The devices of which is known whether they are selected.
    pub(super) asked: Bits,
    pub(super) selected: Bits,
    /// Those of which is known whether there is enough left of their capacities, as long as no more of these is chosen.
    pub(super) judged: Bits,
    pub(super) lacking: Bits,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    features: Features,
    /// The number of changes that have been taken in.
    version: u64,
    numbers: HashMap<String, usize>,
    answers: Vec<Answers>,
    /// The devices of which is known whether there are enough counters for them, if none besides is chosen.
    counted: Bits,
    short: Bits,
    /// The counters that are left, by the number of the view.
    left: HashMap<u64, (u32, Arc<Available>)>,
    columns: HashMap<String, Column>,
    pub(super) reaches: Reaches,
    pub(super) memos: Memos,
}

/// The requests at most whose answers are known when a search begins, and the attributes.
const REQUESTS: usize = 128;
const ATTRIBUTES: usize = 32;

impl Known {
    /// Takes in the changes of the use of devices. Nothing is kept of before, if they are not known.
    pub(super) fn catch_up(&mut self, stock: &Stock, usage: &Usage, features: Features) {
        if self.features != features {
            *self = Self { features, reaches: Reaches::new(features), ..Self::default() };
        }
        if self.answers.len() > REQUESTS {
            self.numbers.clear();
            self.answers.clear();
        }
        if self.version == usage.version() {
            return;
        }
        if let Some(names) = stock.changes(self.version, usage.version()) {
            self.forget(names, stock);
        } else {
            for answers in &mut self.answers {
                (answers.judged, answers.lacking) = Default::default();
            }
            (self.counted, self.short) = Default::default();
            self.left.clear();
        }
        self.version = usage.version();
    }

    /// Forgets what depends on the use of these devices.
    fn forget(&mut self, names: Vec<Name>, stock: &Stock) {
        let mut pools = BTreeSet::new();
        for slot in names.into_iter().flat_map(|name| stock.slots(name)) {
            for answers in &mut self.answers {
                answers.judged.set(slot, false);
                answers.lacking.set(slot, false);
            }
            pools.insert(stock.pool_of(stock.slice_of(slot)));
        }
        for slot in pools.iter().flat_map(|pool| stock.devices_of(*pool)) {
            self.counted.set(slot, false);
            self.short.set(slot, false);
        }
        self.left.retain(|_, (pool, _)| !pools.contains(pool));
    }

    /// The number of a request, by a text that tells what it asks for.
    pub(super) fn number(&mut self, request: String) -> usize {
        let next = self.answers.len();
        let number = *self.numbers.entry(request).or_insert(next);
        if number == next {
            self.answers.push(Answers::default());
        }
        number
    }
    /// The answers to a request.
    pub(super) fn answers(&self, number: usize) -> &Answers {
        &self.answers[number]
    }
    /// The same, to add some.
    pub(super) fn answers_mut(&mut self, number: usize) -> &mut Answers {
        &mut self.answers[number]
    }

    /// Devices that nobody gets, of a word of numbers: they are not selected, or not enough is left of them or of their
    /// counters.
    pub(super) fn useless(&self, number: usize, word: usize) -> u64 {
        let answers = &self.answers[number];
        answers.asked.word(word)
            & (!answers.selected.word(word) | answers.lacking.word(word) | self.short.word(word))
    }
    /// Whether there are enough counters for a device alone, if that is known.
    pub(super) fn counted(&self, slot: Slot) -> Option<bool> {
        self.counted.has(slot).then(|| !self.short.has(slot))
    }
    /// Remembers that.
    pub(super) fn count(&mut self, slot: Slot, suffices: bool) {
        self.counted.set(slot, true);
        self.short.set(slot, !suffices);
    }

    /// The counters that are left of a pool.
    pub(super) fn left(&mut self, view: &View, stock: &Stock, usage: &Usage) -> Arc<Available> {
        let count = || (view.pool, Arc::new(counters::available(view, stock, usage)));
        self.left.entry(view.number).or_insert_with(count).1.clone()
    }

    /// The values of an attribute.
    pub(super) fn column(&mut self, attribute: &str, stock: &Stock) -> Column {
        if let Some(column) = self.columns.get(attribute) {
            return column.clone();
        }
        if self.columns.len() >= ATTRIBUTES {
            self.columns.clear();
        }
        let mut numbers: HashMap<Values, u32> = HashMap::new();
        let mut number = |attribute: &DeviceAttribute| match Values::of(attribute, false) {
            Values::Unknown => UNKNOWN,
            values => {
                let next = UNKNOWN + 1 + u32::try_from(numbers.len()).unwrap_or(u32::MAX - 2);
                *numbers.entry(values).or_insert(next)
            }
        };
        let of = |slot: Slot| {
            let slice = stock.slice_of(slot);
            let place = slot - stock.of_slice(slice).start;
            let slice = stock.slice(slice);
            let device = slice.devices.get(place as usize)?;
            lookup(slice.written(place as usize)?, &device.id, attribute)
        };
        let column: Vec<u32> =
            (0..stock.devices()).map(|slot| of(slot).map_or(MISSING, &mut number)).collect();
        let column = Arc::new(column);
        self.columns.insert(attribute.to_owned(), column.clone());
        column
    }
}

/// A text of amounts that tells them from others.
pub(super) fn text_of(amounts: &Amounts) -> String {
    let all: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    all.join(";")
}
