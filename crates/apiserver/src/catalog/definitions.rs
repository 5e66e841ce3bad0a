//! The resources of all definitions. A copy shares them, so that a change costs work for those that change.

use std::cmp::Ordering;
use std::sync::Arc;

use api::Text;
use api::schema::Gvk;
use imbl::OrdMap;

use super::custom::CustomResource;
use super::resource::ResourceEntry;

/// A group, and a name in it.
type Key = (Text, Text);

/// A key to look for.
struct KeyRef<'k>(&'k str, &'k str);

impl equivalent::Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        equivalent::Comparable::compare(self, key) == Ordering::Equal
    }
}

impl equivalent::Comparable<Key> for KeyRef<'_> {
    fn compare(&self, key: &Key) -> Ordering {
        (self.0, self.1).cmp(&(key.0.as_str(), key.1.as_str()))
    }
}

/// The resources that a definition has from now on.
pub(crate) struct Change {
    /// The definition's group.
    pub(crate) group: Text,
    /// The plural of its resource.
    pub(crate) plural: Text,
    /// Its resources; `None` if it is served no more.
    pub(crate) resource: Option<Arc<CustomResource>>,
}

/// The resources of all definitions.
#[derive(Clone, Default)]
pub(crate) struct Definitions {
    /// By the plurals of resources.
    all: OrdMap<Key, Arc<CustomResource>>,
    /// The plurals, by kinds.
    plurals: OrdMap<Key, Text>,
}

impl Definitions {
    /// The same with other resources of some definitions.
    pub(super) fn changed(&self, changes: &[Change]) -> Self {
        let mut made = self.clone();
        for change in changes {
            let (group, plural) = (&change.group, &change.plural);
            if let Some(former) = made.all.remove(&KeyRef(group, plural)) {
                let kind = KeyRef(group, &former.definition.names.kind);
                if made.plurals.get(&kind) == Some(plural) {
                    made.plurals.remove(&kind);
                }
            }
            if let Some(resource) = &change.resource {
                let kind = (group.clone(), resource.definition.names.kind.clone());
                made.plurals.entry(kind).or_insert_with(|| plural.clone());
                made.all.insert((group.clone(), plural.clone()), Arc::clone(resource));
            }
        }
        made
    }
    /// The resources of a definition.
    pub(super) fn get(&self, group: &str, plural: &str) -> Option<&Arc<CustomResource>> {
        self.all.get(&KeyRef(group, plural))
    }
    /// A version of a definition's resource.
    pub(super) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceEntry>> {
        self.get(group, plural)?.entries.iter().find(|r| r.version == version)
    }
    /// The resource whose objects are of a kind.
    pub(super) fn of_kind(&self, kind: &Gvk) -> Option<&Arc<ResourceEntry>> {
        let plural = self.plurals.get(&KeyRef(&kind.group, &kind.kind))?;
        self.find(&kind.group, &kind.version, plural)
    }
    /// All of them, by group and plural.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<CustomResource>> {
        self.all.values()
    }
    /// Those of a group.
    pub(super) fn of_group(&self, group: &str) -> impl Iterator<Item = &Arc<CustomResource>> {
        let from = self.all.range((Text::from(group), Text::default())..);
        from.take_while(move |(key, _)| key.0 == group).map(|(_, resource)| resource)
    }
}
