//! The second run of the mutating plugins, after policies or webhooks changed what others saw before (upstream:
//! `admission/reinvocation.go`).

use std::collections::{BTreeMap, BTreeSet};

use api::Struct;

/// The runs of the mutating plugins over one object: there is a second one if one was wanted in the first.
#[derive(Debug, Default)]
pub(super) struct Reinvocation {
    /// Whether this is the second run.
    again: bool,
    wanted: bool,
    callers: BTreeMap<&'static str, Calls>,
}

/// The calls of a plugin in these runs.
#[derive(Debug, Default)]
pub(super) struct Calls {
    last: Option<Struct>,
    before: BTreeSet<String>,
    due: BTreeSet<String>,
}

impl Reinvocation {
    /// Begins the second run, if it is wanted and was not yet.
    pub(super) fn begin(&mut self) -> bool {
        let begins = self.wanted && !self.again;
        self.again |= begins;
        begins
    }
    /// Whether this is the second run.
    pub(super) fn is_again(&self) -> bool {
        self.again
    }
    /// Wants a second run.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }
    /// The calls of a plugin.
    pub(super) fn calls(&mut self, plugin: &'static str) -> &mut Calls {
        self.callers.entry(plugin).or_default()
    }
}

impl Calls {
    /// Whether the object is another one than this plugin left.
    pub(super) fn is_changed(&self, object: &Struct) -> bool {
        self.last.as_ref() != Some(object)
    }
    /// Keeps the object as this plugin leaves it.
    pub(super) fn leave(&mut self, object: &Struct) {
        self.last = Some(object.clone());
    }
    /// Notes that something was called that may be called again.
    pub(super) fn called(&mut self, key: String) {
        self.before.insert(key);
    }
    /// Whether something is to be called in the second run.
    pub(super) fn is_due(&self, key: &str) -> bool {
        self.due.contains(key)
    }
    /// Everything that was called before and may be called again is due.
    pub(super) fn all_due(&mut self) {
        self.due.append(&mut self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_called_before_a_change_is_called_again_once() {
        // The sequences of upstream's reinvocationcontext_test.go.
        let mut again = Reinvocation::default();
        assert!(!again.begin());
        for (called, due) in [(vec!["A", "B"], vec!["A", "B"]), (vec!["C"], vec!["A", "B", "C"])] {
            let calls = again.calls("P");
            for key in &called {
                calls.called((*key).to_owned());
            }
            calls.all_due();
            let found: Vec<&str> = ["A", "B", "C", "D"].into_iter().filter(|k| calls.is_due(k)).collect();
            assert_eq!(found, due);
        }
        again.want();
        assert!(again.begin() && again.is_again());
        again.want();
        assert!(!again.begin(), "there is no third run");
    }
}
