//! The warnings and the annotations for the audit that a request collects besides its answer.

use parking_lot::Mutex;

/// The warnings and the annotations for the audit of a request.
#[derive(Debug, Default)]
pub struct Notes {
    warnings: Mutex<Vec<String>>,
    annotations: Mutex<Vec<(String, String)>>,
    /// The numbers of those that stay when the request is handled anew.
    kept: Mutex<(usize, usize)>,
}

/// The greatest number of warnings of a request; more have no room in any answer.
const MOST_WARNINGS: usize = 5000;
/// The greatest number of annotations of a request; more are not kept.
const MOST_ANNOTATIONS: usize = 256;

impl Notes {
    /// Adds the text of a Warning header, once.
    pub fn warn(&self, text: String) {
        let mut all = self.warnings.lock();
        if all.len() < MOST_WARNINGS && !all.contains(&text) {
            all.push(text);
        }
    }
    /// Adds an annotation for the audit; of several with one key the first stays, as upstream's does.
    pub fn annotate(&self, key: &str, value: &str) {
        let mut all = self.annotations.lock();
        if all.len() < MOST_ANNOTATIONS && !all.iter().any(|(known, _)| known == key) {
            all.push((key.to_owned(), value.to_owned()));
        }
    }
    /// Takes the texts of Warning headers out.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock())
    }
    /// The annotations, in the order in which they came.
    pub fn annotations(&self) -> Vec<(String, String)> {
        self.annotations.lock().clone()
    }
    /// Keeps what there is, whatever becomes of the request.
    pub fn keep(&self) {
        *self.kept.lock() = (self.warnings.lock().len(), self.annotations.lock().len());
    }
    /// Forgets everything that was not kept: the request is handled anew.
    pub fn clear(&self) {
        let (warnings, annotations) = *self.kept.lock();
        self.warnings.lock().truncate(warnings);
        self.annotations.lock().truncate(annotations);
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
        notes.warn("of the caller".into());
        notes.keep();
        notes.warn("of the object".into());
        notes.clear();
        assert_eq!(notes.take_warnings(), ["of the caller"]);
    }
}
