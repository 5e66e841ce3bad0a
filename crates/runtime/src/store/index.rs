//! Things by id, by a beginning of it, and by name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;

/// A thing that is not found by what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FindError {
    /// None has this id, or begins so.
    #[error("{0} {1:?} not found")]
    None(&'static str, String),
    /// Several begin so.
    #[error("more than one {0} has an id that begins with {1:?}")]
    Several(&'static str, String),
}

/// A name that another thing has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to reserve {kind} name {name:?}: name {name:?} is reserved for {owner:?}")]
pub(crate) struct Reserved {
    kind: &'static str,
    name: String,
    owner: String,
}

struct State<T> {
    all: BTreeMap<String, Arc<T>>,
    names: HashMap<String, String>,
}

/// The things of one kind. A name is taken before its thing is there.
pub(crate) struct Index<T> {
    kind: &'static str,
    state: RwLock<State<T>>,
}

impl<T> Index<T> {
    /// Makes an index without things; `kind` is their word.
    pub(crate) fn new(kind: &'static str) -> Self {
        let state = State { all: BTreeMap::new(), names: HashMap::new() };
        Self { kind, state: RwLock::new(state) }
    }

    /// Takes a name for the thing that will have this id.
    pub(crate) fn reserve(&self, name: &str, id: &str) -> Result<(), Reserved> {
        let mut state = self.state.write();
        if let Some(owner) = state.names.get(name) {
            return Err(Reserved { kind: self.kind, name: name.to_owned(), owner: owner.clone() });
        }
        state.names.insert(name.to_owned(), id.to_owned());
        Ok(())
    }

    /// Adds a thing.
    pub(crate) fn add(&self, id: &str, thing: Arc<T>) {
        self.state.write().all.insert(id.to_owned(), thing);
    }

    /// Forgets a thing and its name.
    pub(crate) fn remove(&self, id: &str) {
        let mut state = self.state.write();
        state.all.remove(id);
        state.names.retain(|_, owner| owner != id);
    }

    /// Finds a thing by its id, or by the beginning of one.
    pub(crate) fn find(&self, id: &str) -> Result<Arc<T>, FindError> {
        let none = || FindError::None(self.kind, id.to_owned());
        if id.is_empty() {
            return Err(none());
        }
        let state = self.state.read();
        if let Some(exact) = state.all.get(id) {
            return Ok(exact.clone());
        }
        let mut like = state.all.range(id.to_owned()..).take_while(|(known, _)| known.starts_with(id));
        let (_, first) = like.next().ok_or_else(none)?;
        match like.next() {
            None => Ok(first.clone()),
            Some(_) => Err(FindError::Several(self.kind, id.to_owned())),
        }
    }

    /// All things, by id.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.state.read().all.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_id_and_name() {
        let index = Index::new("sandbox");
        for id in ["abc1", "abd2", "ab"] {
            index.reserve(&format!("name-{id}"), id).unwrap();
            index.add(id, Arc::new(id.to_owned()));
        }
        let find = |id: &str| index.find(id).map(|one| (*one).clone()).map_err(|e| e.to_string());
        assert_eq!(find("abc").unwrap(), "abc1");
        assert_eq!(find("ab").unwrap(), "ab", "the whole id counts more");
        assert_eq!(find("").unwrap_err(), "sandbox \"\" not found");
        assert_eq!(find("abe").unwrap_err(), "sandbox \"abe\" not found");
        assert!(find("a").unwrap_err().starts_with("more than one sandbox"));
        let taken = index.reserve("name-ab", "x").unwrap_err().to_string();
        assert_eq!(
            taken,
            "failed to reserve sandbox name \"name-ab\": name \"name-ab\" is reserved for \"ab\""
        );
        index.remove("ab");
        index.reserve("name-ab", "x").unwrap();
        assert_eq!(index.all().len(), 2);
    }
}
