//! Images and their names.

use std::fs;
use std::sync::Arc;

use crate::digest::Digest;
use crate::error::StoreError;
use crate::image::Image;
use crate::reference::{InvalidReference, Reference, is_identifier};
use crate::store::files::{self, at};
use crate::store::record::Record;
use crate::store::{State, Store};

/// The shortest prefix of an id that is looked for.
const MIN_PREFIX: usize = 4;

impl State {
    /// The image of an id, a name in any form, or a prefix of an id that no other has.
    fn find(&self, text: &str) -> Option<&Arc<Record>> {
        if let Ok(digest) = text.parse::<Digest>() {
            return self.images.get(&digest);
        }
        if is_identifier(text) {
            return self.images.get(&format!("sha256:{text}").parse().ok()?);
        }
        if let Ok(reference) = Reference::parse(text)
            && let Some(id) = self.names.get(&reference.to_string())
        {
            return self.images.get(id);
        }
        let prefix = text.strip_prefix("sha256:").unwrap_or(text);
        if prefix.len() < MIN_PREFIX {
            return None;
        }
        let mut found = self.images.values().filter(|r| r.id.hex().starts_with(prefix));
        match (found.next(), found.next()) {
            (Some(one), None) => Some(one),
            _ => None,
        }
    }
}

impl Store {
    /// The image's record.
    pub(crate) fn record(&self, text: &str) -> Option<Arc<Record>> {
        self.state.lock().find(text).cloned()
    }

    /// The record of an id.
    pub(crate) fn record_of(&self, id: &Digest) -> Result<Arc<Record>, StoreError> {
        self.state.lock().images.get(id).cloned().ok_or_else(|| StoreError::NoImage(id.to_string()))
    }

    /// All images.
    pub(crate) fn images(&self) -> Vec<Image> {
        self.state.lock().images.values().map(|r| r.image()).collect()
    }

    fn write(&self, record: &Record) -> Result<(), StoreError> {
        let path = self.record_path(&record.id);
        let bytes = serde_json::to_vec(record).map_err(|e| at(&path)(e.into()))?;
        files::write(&self.ingest(), &path, &bytes, record.boot.is_none())
    }

    /// Keeps an image under names, which other images lose. Names of an image of the same id stay.
    pub(crate) fn add(&self, mut record: Record, names: &[String]) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        record.boot = Some(self.boot.clone());
        if let Some(old) = state.images.get(&record.id) {
            record.names.extend(old.names.clone());
            record.pinned |= old.pinned;
            if old.manifest == record.manifest {
                record.boot.clone_from(&old.boot);
            }
        }
        for name in names {
            state.sequence += 1;
            let sequence = state.sequence;
            record.names.insert(name.clone(), sequence);
        }
        let id = record.id.clone();
        self.put(&mut state, record)?;
        for name in names {
            let other = state.names.insert(name.clone(), id.clone()).filter(|other| *other != id);
            if let Some(other) = other.and_then(|o| state.images.get(&o).cloned()) {
                let mut other = Record::clone(&other);
                other.names.remove(name);
                self.put(&mut state, other)?;
            }
        }
        self.collect(&mut state);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    pub(super) fn put(&self, state: &mut State, record: Record) -> Result<(), StoreError> {
        self.write(&record)?;
        state.images.insert(record.id.clone(), Arc::new(record));
        Ok(())
    }

    /// Gives an image another name.
    pub(crate) fn tag(&self, text: &str, name: &str) -> Result<(), StoreError> {
        let bad = |e: InvalidReference| StoreError::Name { name: name.to_owned(), reason: e.to_string() };
        let reference = Reference::parse(name).map_err(bad)?;
        if reference.digest().is_some() {
            let reason = "a digest cannot be given".to_owned();
            return Err(StoreError::Name { name: name.to_owned(), reason });
        }
        let record = self.record(text).ok_or_else(|| StoreError::NoImage(text.to_owned()))?;
        self.add(Record::clone(&record), &[reference.to_string()])
    }

    /// Pins an image, or does so no longer.
    pub(crate) fn pin(&self, text: &str, pinned: bool) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let record = state.find(text).ok_or_else(|| StoreError::NoImage(text.to_owned()))?;
        let record = Record { pinned, ..Record::clone(record) };
        self.put(&mut state, record)
    }

    /// Removes a name that is one of several, else the image.
    pub(crate) fn remove(&self, text: &str) -> Result<bool, StoreError> {
        let mut state = self.state.lock();
        let Some(record) = state.find(text).cloned() else { return Ok(false) };
        let name =
            Reference::parse(text).map(|r| r.to_string()).ok().filter(|n| record.names.contains_key(n));
        // The digests that a tag came with are no names by which somebody would still look for the image.
        let last = |name: &String| {
            let others = record.names.keys().filter(|n| *n != name);
            name.contains('@') || !others.into_iter().any(|n| !n.contains('@'))
        };
        match name {
            Some(name) if !last(&name) => {
                let mut record = Record::clone(&record);
                record.names.remove(&name);
                state.names.remove(&name);
                self.put(&mut state, record)?;
            }
            _ => {
                let path = self.record_path(&record.id);
                fs::remove_file(&path).map_err(at(&path))?;
                state.images.remove(&record.id);
                state.names.retain(|_, id| *id != record.id);
                let mine: Vec<_> = record.content().cloned().collect();
                for digest in mine {
                    state.leftovers.remove(&crate::store::collect::Item::Blob(digest));
                }
                for layer in &record.layers {
                    state.leftovers.remove(&crate::store::collect::Item::Layer(layer.layer.clone()));
                }
            }
        }
        self.collect(&mut state);
        Ok(true)
    }
}
