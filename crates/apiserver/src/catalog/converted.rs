//! Objects of definitions that were brought into another version than they are stored in. Many watchers ask for the same
//! object at once: it is converted once, and kept for those who come later.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use api::{Object, Status, Text};
use futures::future::{BoxFuture, WeakShared};
use parking_lot::Mutex;

use super::resource::ResourceEntry;

/// The most bytes of objects that are kept, of all versions together.
const BYTES: usize = 16 << 20;
/// Of so many objects at once none is kept: they would drive out the others.
const MANY: usize = 256;

/// The key of an object: the number of the version's entry, and the object in one state.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    entry: u32,
    revision: u64,
    namespace: Text,
    name: Text,
}

impl Key {
    pub(super) fn of(resource: &ResourceEntry, object: &Object) -> Self {
        Self {
            entry: resource.number,
            revision: object.revision,
            namespace: object.data.namespace.clone(),
            name: object.data.name.clone(),
        }
    }
}

/// The objects of a conversion under way.
pub(super) type Answer = Result<Arc<[Arc<Object>]>, Arc<Status>>;
pub(super) type UnderWay = BoxFuture<'static, Answer>;

/// The objects that were converted lately, and the conversions under way.
#[derive(Default)]
pub(super) struct Converted(pub(super) Mutex<State>);

#[derive(Default)]
pub(super) struct State {
    pub(super) made: HashMap<Key, Arc<Object>>,
    /// The keys of `made`, the oldest first.
    order: VecDeque<Key>,
    bytes: usize,
    /// The conversions under way, with the object's place in each. One that nobody waits for any more is gone.
    pub(super) under_way: HashMap<Key, (WeakShared<UnderWay>, usize)>,
}

impl Converted {
    /// An object that was converted lately.
    pub(super) fn get(&self, resource: &ResourceEntry, object: &Object) -> Option<Arc<Object>> {
        self.0.lock().made.get(&Key::of(resource, object)).cloned()
    }

    /// Keeps what became of objects.
    pub(super) fn keep(&self, resource: &ResourceEntry, from: &[Arc<Object>], made: &[Arc<Object>]) {
        if from.len() > MANY {
            return;
        }
        let mut state = self.0.lock();
        for (from, made) in from.iter().zip(made) {
            state.keep(Key::of(resource, from), made);
        }
    }
}

impl State {
    fn keep(&mut self, key: Key, object: &Arc<Object>) {
        let size = object.data.body.len();
        if size > BYTES / 4 || self.made.insert(key.clone(), Arc::clone(object)).is_some() {
            return;
        }
        self.bytes += size;
        self.order.push_back(key);
        while self.bytes > BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(gone) = self.made.remove(&oldest) {
                self.bytes -= gone.data.body.len();
            }
        }
    }
}
