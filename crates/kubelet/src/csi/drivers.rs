//! The drivers that are registered on this node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use tonic::transport::Channel;

use crate::metrics::Metrics;

/// A version of the protocol, as a driver tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u64, u64, u64);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl Version {
    /// Reads `1.2.3`, with or without `v` before it and with anything after it.
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let mut parts = text[..end].trim_end_matches('.').split('.').map(str::parse::<u64>);
        let (major, minor) = (parts.next()?.ok()?, parts.next()?.ok()?);
        Some(Self(major, minor, parts.next().transpose().ok()?.unwrap_or(0)))
    }

    /// The highest of these that this kubelet speaks, which is a version 1.
    ///
    /// # Errors
    /// There is none; upstream's text.
    pub(crate) fn highest(versions: &[String]) -> Result<Self, String> {
        let parsed = versions.iter().filter_map(|v| Self::parse(v));
        match parsed.filter(|v| v.0 <= 1).max() {
            None => Err(format!(
                "could not find a highest supported version from versions ({versions:?}) reported by this plugin"
            )),
            Some(found) if found.0 != 1 => {
                Err(format!("highest supported version reported by plugin is {found}, must be v1.x"))
            }
            Some(found) => Ok(found),
        }
    }
}

/// A registered driver.
#[derive(Debug, Clone)]
pub(crate) struct Driver {
    /// The socket of its services.
    pub(crate) endpoint: PathBuf,
    /// The highest version that it speaks.
    pub(crate) version: Version,
    /// A connection, which is made when it is needed.
    pub(crate) channel: Channel,
}

/// Upstream's text for a driver that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("driver name {0} not found in the list of registered CSI drivers")]
pub(crate) struct NotRegistered(pub(crate) String);

/// Drivers by name. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Drivers {
    all: Arc<RwLock<BTreeMap<String, Driver>>>,
    /// Counts the calls to them.
    pub(crate) metrics: Metrics,
}

impl Drivers {
    /// None yet.
    pub(crate) fn counted_by(metrics: Metrics) -> Self {
        Self { metrics, ..Self::default() }
    }
    /// A driver.
    ///
    /// # Errors
    /// It is not registered.
    pub(crate) fn get(&self, name: &str) -> Result<Driver, NotRegistered> {
        self.all.read().get(name).cloned().ok_or_else(|| NotRegistered(name.to_owned()))
    }
    /// Takes a driver in.
    pub(crate) fn put(&self, name: &str, driver: Driver) {
        self.all.write().insert(name.to_owned(), driver);
    }
    /// Forgets the driver of a name that serves at an endpoint.
    pub(crate) fn remove(&self, name: &str, endpoint: &std::path::Path) {
        let mut all = self.all.write();
        if all.get(name).is_some_and(|d| d.endpoint == endpoint) {
            all.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version() {
        let check = |versions: &[&str], expected: Option<&str>| {
            let versions: Vec<String> = versions.iter().map(ToString::to_string).collect();
            let got = Version::highest(&versions).ok().map(|v| v.to_string());
            assert_eq!(got.as_deref(), expected, "{versions:?}");
        };
        // Upstream's cases of `TestHighestSupportedVersion` and `TestValidatePlugin`.
        check(&["v1.0.0"], Some("1.0.0"));
        check(&["0.3.0"], None);
        check(&["0.2.0"], None);
        check(&["1.0.0"], Some("1.0.0"));
        check(&["0.3.0", "1.0.0"], Some("1.0.0"));
        check(&["v1.2.3", "0.3.0", "2.0.1"], Some("1.2.3"));
        check(&["v1.2.3", "0.3.0", "1.3.0", "2.0.1"], Some("1.3.0"));
        check(&["v1.2.3", "0.3.0", "2.0.1", "v4.9.12"], Some("1.2.3"));
        check(&["2.0.1"], None);
        check(&["notaversion"], None);
        check(&["v1.2.3-rc1"], Some("1.2.3"));
        check(&[], None);
    }
}
