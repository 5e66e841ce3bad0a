//! Which NUMA nodes the resources of a Pod come from (upstream: `pkg/kubelet/cm/topologymanager`).
//!
//! Those that give resources say from which sets of NUMA nodes they can (`hint`, `mask`); a policy makes one set of all
//! (`policy`), or refuses the Pod. Everything here is pure; `crate::resource_managers` asks and gives.

mod hint;
mod mask;
mod numa;
mod options;
mod policy;

#[cfg(test)]
pub(crate) mod cases;

pub(crate) use self::hint::{Hint, Hints, UNKNOWN, prefer_smallest};
pub use self::mask::NumaMask;
pub(crate) use self::mask::{MOST_NODES, all_masks};
pub(crate) use self::numa::NumaInfo;
pub(crate) use self::options::Options;
pub use self::options::TopologyOptionError;
pub(crate) use self::policy::Policy;
pub use self::policy::PolicyKind;
use crate::node::hardware::Hardware;

/// The unit for which resources are near to each other; upstream's `topologyManagerScope`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scope {
    /// Each container by itself.
    #[default]
    Container,
    /// All containers of a Pod.
    Pod,
}

impl Scope {
    /// Every scope with upstream's name of it.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Container, "container"), (Self::Pod, "pod")];

    /// The scope of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(scope, _)| scope)
    }
    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(scope, _)| *scope == self).map_or("", |(_, name)| name)
    }
}

/// Why the policy cannot be had; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyPolicyError {
    /// An option cannot be taken.
    #[error(transparent)]
    Option(#[from] TopologyOptionError),
    /// The distances of NUMA nodes are wanted, and not known.
    #[error("cannot discover NUMA topology: error getting NUMA distances from cadvisor")]
    NoDistances,
    /// There are too many.
    #[error("unsupported on machines with more than {0} NUMA Nodes")]
    TooManyNodes(usize),
}

/// The policy of a name on a machine. One that does nothing needs no options, and does not look at them.
///
/// # Errors
/// The options or the machine do not allow it.
pub(crate) fn policy(
    kind: PolicyKind,
    options: &std::collections::BTreeMap<String, String>,
    hardware: &Hardware,
) -> Result<Policy, TopologyPolicyError> {
    if kind == PolicyKind::None {
        return Ok(Policy { kind, numa: NumaInfo::default(), closest: false });
    }
    let options = Options::parse(options)?;
    let numa = NumaInfo::of(hardware, options.closest).map_err(|_| TopologyPolicyError::NoDistances)?;
    if numa.nodes.len() > options.max_nodes {
        return Err(TopologyPolicyError::TooManyNodes(options.max_nodes));
    }
    Ok(Policy { kind, numa, closest: options.closest })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::cases::{cases, hardware, options, usizes};
    use super::*;

    /// Upstream's table of options, but for those that its test makes up.
    #[test]
    fn upstreams_cases_of_options() {
        for case in cases(include_str!("cases/options.jsonl"), 5) {
            let got = Options::parse(&options(&case["policyOptions"]));
            if let Some(error) = case["expectedErr"].as_str() {
                let text = got.expect_err(error).to_string();
                // Upstream compares the beginning alone.
                assert!(text.contains(error.trim()) || error.contains(&text), "{text}: {case}");
            } else {
                let expected = &case["expectedOptions"];
                let got = got.unwrap();
                assert_eq!(
                    (got.closest, got.max_nodes as u64),
                    (
                        expected["PreferClosestNUMA"] == true,
                        expected["MaxAllowableNUMANodes"].as_u64().unwrap()
                    )
                );
            }
        }
    }

    /// Upstream's tables of NUMA nodes and of policies.
    #[test]
    fn upstreams_cases_of_machines() {
        for case in cases(include_str!("cases/numa.jsonl"), 13) {
            let got = NumaInfo::of(&hardware(&case["topology"]), case["opts"]["PreferClosestNUMA"] == true);
            if let Some(error) = case["expectedErr"].as_str() {
                assert_eq!(got.unwrap_err().to_string(), error);
            } else {
                let expected = &case["expectedNUMAInfo"];
                let got = got.unwrap();
                assert_eq!(got.nodes, usizes(&expected["Nodes"]), "{case}");
                for (node, row) in expected["NUMADistances"].as_object().unwrap() {
                    let row: Option<Vec<u64>> = serde_json::from_value(row.clone()).unwrap();
                    assert_eq!(got.distances.get(&node.parse().unwrap()).cloned(), row, "{case}");
                }
            }
        }
        for case in cases(include_str!("cases/policies.jsonl"), 9) {
            let name = case["policyName"].as_str().unwrap();
            let Some(kind) = PolicyKind::named(name) else {
                assert_eq!(case["expectedError"], format!("unknown policy: \"{name}\""));
                continue;
            };
            let got = policy(kind, &options(&case["policyOptions"]), &hardware(&case["topology"]));
            match case["expectedError"].as_str() {
                Some(error) => {
                    let text = got.unwrap_err().to_string();
                    assert!(error.contains(&text) || text.contains(error), "{text}: {case}");
                }
                None => assert_eq!(got.unwrap().kind.name(), case["expectedPolicy"]),
            }
        }
        for case in cases(include_str!("cases/distances.jsonl"), 6) {
            let rows = case["distance"].as_object().unwrap().iter();
            let row = |row: &serde_json::Value| serde_json::from_value(row.clone()).unwrap();
            let distances: BTreeMap<usize, Vec<u64>> =
                rows.map(|(node, all)| (node.parse().unwrap(), row(all))).collect();
            let numa = NumaInfo { nodes: Vec::new(), distances };
            let mean = numa.mean_distance(cases::mask(&case["bm"]));
            let expected = case["expectedAvg"].as_f64().unwrap();
            assert!((mean - expected).abs() < 1e-9, "{mean}: {case}");
        }
    }
}
