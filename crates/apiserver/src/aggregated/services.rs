//! The group versions that APIServices name: who answers for them, and their places in discovery.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Text;

use super::backend::Backend;
use super::discovery::Discovered;
use super::openapi::Specification;
use super::priorities::{self, Priority, REGISTRATION};

/// A group version for which another server answers.
#[derive(Clone)]
pub(crate) struct Elsewhere {
    /// The group.
    pub(crate) group: Text,
    /// The version.
    pub(crate) version: Text,
    /// Its place in discovery.
    pub(crate) priority: Priority,
    /// The server that answers.
    pub(crate) backend: Arc<Backend>,
    /// Whether its APIService says that it is available.
    pub(crate) available: bool,
    /// Its resources.
    pub(crate) discovered: Arc<Discovered>,
    /// Its part of OpenAPI v2, if it is known.
    pub(crate) v2: Option<Arc<Specification>>,
    /// The hash of its document of OpenAPI v3, if it has one.
    pub(crate) v3: Option<Text>,
}

/// The APIServices, as requests need to know them. They never change; others take their place.
#[derive(Default)]
pub(crate) struct Services {
    elsewhere: BTreeMap<(Text, Text), Arc<Elsewhere>>,
    /// The places of group versions that are served here, by their APIServices.
    local: BTreeMap<(Text, Text), Priority>,
}

/// Group and version.
type Key = (Text, Text);

fn key(group: &str, version: &str) -> Key {
    (group.into(), version.into())
}

impl Elsewhere {
    /// The part of v2 from which its document of v3 is made here, if the server has none itself.
    pub(crate) fn converted(&self) -> Option<&Specification> {
        self.v2.as_deref().filter(|_| self.v3.is_none())
    }
}

impl Services {
    /// Makes them of what others answer for, and of the places of what is served here. APIServices themselves are always here.
    pub(crate) fn new(
        elsewhere: impl IntoIterator<Item = Elsewhere>,
        local: impl IntoIterator<Item = (Key, Priority)>,
    ) -> Self {
        let elsewhere = elsewhere.into_iter().filter(|e| e.group != REGISTRATION);
        Self {
            elsewhere: elsewhere.map(|e| ((e.group.clone(), e.version.clone()), Arc::new(e))).collect(),
            local: local.into_iter().collect(),
        }
    }
    /// The other server that answers for a group version, if one does.
    pub(crate) fn find(&self, group: &str, version: &str) -> Option<&Arc<Elsewhere>> {
        if self.elsewhere.is_empty() {
            return None;
        }
        self.elsewhere.get(&key(group, version))
    }
    /// The other server that answers for a path.
    pub(crate) fn of_path(&self, path: &str) -> Option<&Arc<Elsewhere>> {
        if self.elsewhere.is_empty() {
            return None;
        }
        let mut parts = path.strip_prefix('/')?.split('/');
        match (parts.next()?, parts.next()) {
            ("api", Some(version)) => self.find("", version),
            ("apis", Some(group)) => self.find(group, parts.next()?),
            ("openapi", Some("v3")) if parts.next() == Some("apis") => {
                let (group, version) = (parts.next()?, parts.next()?);
                let found = self.find(group, version).filter(|e| e.v3.is_some())?;
                parts.next().is_none().then_some(found)
            }
            _ => None,
        }
    }
    /// All that others answer for.
    pub(crate) fn elsewhere(&self) -> impl Iterator<Item = &Arc<Elsewhere>> {
        self.elsewhere.values()
    }
    /// The place of a group version that is served here.
    pub(crate) fn priority(&self, group: &str, version: &str) -> Priority {
        let known = if self.local.is_empty() { None } else { self.local.get(&key(group, version)) };
        known.copied().unwrap_or_else(|| priorities::usual(group, version))
    }
}
