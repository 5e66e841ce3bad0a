//! How caches and work queues name an object.

use std::fmt;

use compact_str::CompactString as Text;

/// Namespace and name of an object; the namespace is "" for the cluster's own objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace.
    pub namespace: Text,
    /// Name.
    pub name: Text,
}

impl Key {
    /// The key of an object.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self { namespace: namespace.as_ref().into(), name: name.as_ref().into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}
