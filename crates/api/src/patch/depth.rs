//! How deep a document can be while operations change it.

use super::PatchError;
use super::document::Doc;
use crate::depth::{MAX_DEPTH, measure};
use crate::tree::Node;

/// The greatest number of values that are walked over for `move` operations: several times as many as a body of the
/// greatest size holds.
const MAX_WALKED: usize = 4 << 20;

/// Keeps a document from nesting deeper than [`MAX_DEPTH`] after any operation: the code that works on it recurses.
///
/// A value that is added or copied is measured as it goes in. A value that moves would have to be measured each time,
/// which costs as much as the value is large; so the document's depth is known as a bound that grows with each move,
/// and is measured again when the bound is too high.
pub(super) struct Depth {
    at_most: usize,
    walked: usize,
}

/// The number of containers above the value that a pointer names, with the root.
fn level(pointer: &str) -> usize {
    pointer.bytes().filter(|b| *b == b'/').count()
}

impl Depth {
    /// Starts with a document of unknown depth, which is not too deep.
    pub(super) fn new() -> Self {
        Self { at_most: MAX_DEPTH, walked: 0 }
    }

    /// Notes that a value, `depth` deep, is about to be put at a place.
    fn put(&mut self, path: &str, depth: usize) -> Result<(), PatchError> {
        let after = level(path) + depth;
        if after > MAX_DEPTH {
            return Err(PatchError::TooDeep);
        }
        self.at_most = self.at_most.max(after);
        Ok(())
    }

    /// Notes that a value that was not in the document is about to be put at a place.
    pub(super) fn add(&mut self, path: &str, value: &Node) -> Result<(), PatchError> {
        let (depth, _) = measure(value, MAX_DEPTH).ok_or(PatchError::TooDeep)?;
        self.put(path, depth)
    }

    /// Notes that a value that was taken out of the document is about to be put at another place.
    pub(super) fn shift(&mut self, doc: &Doc, from: &str, path: &str, value: &Doc) -> Result<(), PatchError> {
        let deeper = level(path).saturating_sub(level(from));
        if self.at_most + deeper <= MAX_DEPTH {
            self.at_most += deeper;
            return Ok(());
        }
        if deeper == 0 {
            return Ok(());
        }
        let whole = doc.measure(MAX_DEPTH).ok_or(PatchError::TooDeep)?;
        let moved = value.measure(MAX_DEPTH).ok_or(PatchError::TooDeep)?;
        self.walked += whole.1 + moved.1;
        if self.walked > MAX_WALKED {
            return Err(PatchError::TooLarge("the patch moves too much".into()));
        }
        self.at_most = whole.0;
        self.put(path, moved.0)
    }
}
