//! The choice of controllers that run.

/// A choice of controllers, by upstream's syntax: `*` for all that run by default, `NAME` for one, `-NAME` to leave one
/// out. The first entry with a name counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice(pub(crate) Vec<String>);

impl Default for Choice {
    /// Chooses all controllers that run by default.
    fn default() -> Self {
        Self(vec!["*".to_owned()])
    }
}

impl Choice {
    /// The entries, as they were given.
    pub fn names(&self) -> &[String] {
        &self.0
    }
    /// Whether a controller runs.
    pub(crate) fn runs(&self, name: &str, by_default: bool) -> bool {
        for chosen in &self.0 {
            if chosen == name {
                return true;
            }
            if chosen.strip_prefix('-') == Some(name) {
                return false;
            }
        }
        by_default && self.0.iter().any(|chosen| chosen == "*")
    }
}
