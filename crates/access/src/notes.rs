//! Warnings about a request, and annotations of it for the audit.

use parking_lot::Mutex;

/// Warnings about a request, and annotations of it for the audit.
#[derive(Debug, Default)]
pub struct Notes {
    warnings: Mutex<Vec<String>>,
    annotations: Mutex<Vec<(String, String)>>,
}

/// More warnings have no room in any answer.
const MOST_WARNINGS: usize = 5000;
/// More annotations than this of one request are not kept.
const MOST_ANNOTATIONS: usize = 256;

impl Notes {
    /// Adds a text to those of Warning headers, once.
    pub fn warn(&self, text: String) {
        let mut all = self.warnings.lock();
        if all.len() < MOST_WARNINGS && !all.contains(&text) {
            all.push(text);
        }
    }
    /// Adds an annotation for the audit; the first of a key stays, as upstream's does.
    pub fn annotate(&self, key: &str, value: &str) {
        let mut all = self.annotations.lock();
        if all.len() < MOST_ANNOTATIONS && !all.iter().any(|(known, _)| known == key) {
            all.push((key.to_owned(), value.to_owned()));
        }
    }
    /// The texts of Warning headers, which are taken out.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock())
    }
    /// The annotations, in the order in which they came.
    pub fn annotations(&self) -> Vec<(String, String)> {
        self.annotations.lock().clone()
    }
    /// Forgets everything: the request is handled anew.
    pub fn clear(&self) {
        self.warnings.lock().clear();
        self.annotations.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_kept_once_and_not_without_end() {
        let notes = Notes::default();
        for _ in 0..2 {
            notes.warn("a".into());
            notes.annotate("k", "first");
            notes.annotate("k", "second");
        }
        assert_eq!(notes.annotations(), [("k".to_owned(), "first".to_owned())]);
        assert_eq!(notes.take_warnings(), ["a"]);
        assert!(notes.take_warnings().is_empty());
        for i in 0..2 * MOST_ANNOTATIONS {
            notes.annotate(&i.to_string(), "");
        }
        assert_eq!(notes.annotations().len(), MOST_ANNOTATIONS);
        notes.clear();
        assert!(notes.annotations().is_empty());
    }
}
