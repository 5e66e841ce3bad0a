//! Which of the built-in resources are served: upstream's defaults, `--runtime-config` and feature gates.

use std::collections::{BTreeMap, BTreeSet};

use api::FeatureGates;
use api::go::parse_bool;
use api::resources::{ResourceInfo, builtin};

/// The forms of versions that `--runtime-config` names together, in the order in which they count.
const TOGETHER: [&str; 4] = ["api/all", "api/ga", "api/beta", "api/alpha"];

/// The settings of `--runtime-config`.
#[derive(Debug, Clone, Default)]
pub struct RuntimeConfig {
    /// Of [`TOGETHER`].
    together: [Option<bool>; 4],
    versions: BTreeMap<(String, String), bool>,
    resources: BTreeMap<(String, String, String), bool>,
}

/// Why a `--runtime-config` makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeConfigError {
    /// One of the settings of all versions is neither true nor false.
    #[error("invalid value {0}={1}")]
    Together(String, String),
    /// A version or resource is neither true nor false.
    #[error("invalid value of {0}: {1}, err: strconv.ParseBool: parsing {1:?}: invalid syntax")]
    Value(String, String),
    /// No API would be left.
    #[error("invalid runtime-config with only api/all=false")]
    Nothing,
    /// A key names no version.
    #[error("runtime-config invalid key {0}")]
    Key(String),
    /// Groups are not built in.
    #[error("unknown api groups {0}")]
    Groups(String),
    /// The group does not have this version.
    #[error("group version {0} that has not been registered")]
    Version(String),
    /// A resource's name is its lowercase plural.
    #[error("invalid key {0}: group/version/resource and resource is always lowercase plural, not {1:?}")]
    Resource(String, String),
}

/// The stability that a version's name tells, as a place in [`TOGETHER`].
fn stability(version: &str) -> usize {
    match (version.contains("beta"), version.contains("alpha")) {
        (true, _) => 2,
        (_, true) => 3,
        _ => 1,
    }
}

/// The present form of a key: older ones name the core group differently, and one has no meaning any more.
fn present(key: &str) -> Option<&str> {
    let is_core =
        |core: &str| key.strip_prefix(core).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match key {
        "api/legacy" => None,
        // As in upstream, a resource of the older forms stands for its version.
        _ if is_core("v1") || is_core("api/v1") => Some("/v1"),
        _ => Some(key),
    }
}

impl RuntimeConfig {
    /// Reads settings such as `resource.k8s.io/v1beta1=true`. The last one of a key counts.
    ///
    /// # Errors
    /// The first that upstream finds: keys before groups, groups before values.
    pub fn parse<'a>(settings: impl IntoIterator<Item = &'a str>) -> Result<Self, RuntimeConfigError> {
        let mut of_keys = BTreeMap::new();
        for setting in settings.into_iter().map(str::trim).filter(|s| !s.is_empty()) {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            if let Some(key) = present(key) {
                of_keys.insert(key, value);
            }
        }
        if of_keys.len() == 1 && of_keys.get(TOGETHER[0]) == Some(&"false") {
            return Err(RuntimeConfigError::Nothing);
        }
        let mut named = Vec::new();
        for (key, value) in of_keys.iter().filter(|(key, _)| !TOGETHER.contains(key)) {
            let parts: Vec<&str> = key.split('/').collect();
            let ([group, version] | [group, version, _]) = parts[..] else {
                return Err(RuntimeConfigError::Key((*key).into()));
            };
            named.push((*key, (group, version, parts.get(2).copied()), *value));
        }
        let unknown = named.iter().filter(|(_, (group, ..), _)| !builtin().iter().any(|r| r.group == *group));
        let unknown: BTreeSet<String> = unknown.map(|(_, (g, v, _), _)| format!("{g}/{v}")).collect();
        if !unknown.is_empty() {
            return Err(RuntimeConfigError::Groups(unknown.into_iter().collect::<Vec<_>>().join(",")));
        }
        let mut out = Self::default();
        for (i, key) in TOGETHER.iter().enumerate() {
            out.together[i] = match of_keys.get(key) {
                None => None,
                Some(&"true") => Some(true),
                Some(&"false") => Some(false),
                Some(value) => return Err(RuntimeConfigError::Together((*key).into(), (*value).into())),
            };
        }
        for (key, (group, version, resource), value) in named {
            if !builtin().iter().any(|r| r.group == group && r.version == version) {
                return Err(RuntimeConfigError::Version(format!("{group}/{version}")));
            }
            let on = match value {
                "" => true,
                _ => parse_bool(value).ok_or_else(|| RuntimeConfigError::Value(key.into(), value.into()))?,
            };
            match resource {
                None => {
                    out.versions.insert((group.into(), version.into()), on);
                }
                Some(resource) if resource.chars().any(char::is_uppercase) => {
                    return Err(RuntimeConfigError::Resource(key.into(), resource.into()));
                }
                Some(resource) => {
                    out.resources.insert((group.into(), version.into(), resource.into()), on);
                }
            }
        }
        Ok(out)
    }

    fn serves(&self, row: &ResourceInfo, gates: FeatureGates) -> bool {
        if row.gate.is_some_and(|gate| !gates.enabled(gate)) {
            return false;
        }
        let (group, version) = (row.group.to_owned(), row.version.to_owned());
        if let Some(on) = self.resources.get(&(group.clone(), version.clone(), row.resource.to_owned())) {
            return *on;
        }
        if let Some(on) = self.versions.get(&(group, version)) {
            return *on;
        }
        // The server itself needs the core group.
        let together = [1, 2, 3].into_iter().find(|i| *i == stability(row.version));
        let said = together.and_then(|i| self.together[i]).or(self.together[0]);
        row.group.is_empty() || said.unwrap_or(row.served_by_default)
    }

    /// The resources that are served, in discovery's order.
    pub fn resources(&self, gates: FeatureGates) -> Vec<ResourceInfo> {
        builtin().iter().filter(|r| self.serves(r, gates)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(settings: &[&str], gates: &[&str]) -> Vec<String> {
        let gates = FeatureGates::parse(gates.iter().copied()).unwrap();
        let config = RuntimeConfig::parse(settings.iter().copied()).unwrap();
        let rows = config.resources(gates);
        rows.iter().map(|r| format!("{}/{}/{}", r.group, r.version, r.resource)).collect()
    }

    #[test]
    fn what_is_served() {
        let defaults: Vec<String> = builtin()
            .iter()
            .filter(|r| r.served_by_default)
            .map(|r| format!("{}/{}/{}", r.group, r.version, r.resource))
            .collect();
        assert_eq!(served(&[], &[]), defaults);
        let check = |settings: &[&str], gates: &[&str], row: &str, expected: bool| {
            assert_eq!(served(settings, gates).iter().any(|r| r == row), expected, "{settings:?} {row}");
        };
        let claims = "resource.k8s.io/v1beta1/resourceclaims";
        check(&["resource.k8s.io/v1beta1=true"], &[], claims, true);
        check(&["resource.k8s.io/v1beta1"], &[], claims, true);
        check(&["api/beta=true"], &[], claims, true);
        check(&["api/all=true"], &[], claims, true);
        check(&["api/all=true", "api/beta=false"], &[], claims, false);
        check(&["api/beta=true", "resource.k8s.io/v1beta1=false"], &[], claims, false);
        check(&["resource.k8s.io/v1beta1/resourceclaims=true"], &[], claims, true);
        check(
            &["resource.k8s.io/v1beta1=true", "resource.k8s.io/v1beta1/resourceclaims=false"],
            &[],
            claims,
            false,
        );
        check(&["apps/v1=false"], &[], "apps/v1/deployments", false);
        check(&["api/ga=false"], &[], "/v1/pods", true);
        for core in ["v1", "/v1", "api/v1", "v1/pods", "api/v1/pods"] {
            check(&[core], &[], "/v1/pods", true);
            check(&[&format!("{core}=false")], &[], "/v1/pods", false);
        }
        check(&["apps/v1=false", "apps/v1=true", "api/legacy=nonsense"], &[], "apps/v1/deployments", true);
        let pod_groups = "scheduling.k8s.io/v1alpha2/podgroups";
        check(&["scheduling.k8s.io/v1alpha2=true"], &[], pod_groups, false);
        check(&["scheduling.k8s.io/v1alpha2=true"], &["GenericWorkload=true"], pod_groups, true);
    }

    #[test]
    fn what_makes_no_sense() {
        let check = |settings: &[&str], expected: &str| {
            assert_eq!(RuntimeConfig::parse(settings.iter().copied()).unwrap_err().to_string(), expected);
        };
        for (settings, expected) in [
            (["api/all=maybe"], "invalid value api/all=maybe"),
            (["apps"], "runtime-config invalid key apps"),
            (["v2"], "runtime-config invalid key v2"),
            (["a/b/c/d=true"], "runtime-config invalid key a/b/c/d"),
            (["api/v2"], "unknown api groups api/v2"),
            (["api/all=false"], "invalid runtime-config with only api/all=false"),
            (["example.com/v1=true"], "unknown api groups example.com/v1"),
            (["apps/v7=true"], "group version apps/v7 that has not been registered"),
            (
                ["apps/v1=x"],
                "invalid value of apps/v1: x, err: strconv.ParseBool: parsing \"x\": invalid syntax",
            ),
            (
                ["apps/v1/Deployments=true"],
                "invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not \"Deployments\"",
            ),
        ] {
            check(&settings, expected);
        }
        check(&["b.io/v1", "api/all=maybe", "a.io/v1/as", "apps/v7"], "unknown api groups a.io/v1,b.io/v1");
        check(&["b.io/v1", "apps"], "runtime-config invalid key apps");
        check(&["apps/v7", "api/all=maybe"], "invalid value api/all=maybe");
    }
}
