//! Labels of a Pod in little room.

use compact_str::CompactString as Text;

/// Labels in the order of their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Text, Text)]>);

impl Labels {
    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| k.as_str().cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value.as_str())
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> FromIterator<(&'a String, &'a String)> for Labels {
    /// From labels in the order of their keys.
    fn from_iter<I: IntoIterator<Item = (&'a String, &'a String)>>(labels: I) -> Self {
        Self(labels.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }
}
