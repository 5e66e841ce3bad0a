//! `reservedMemory`: what is kept of each NUMA node for the system. Upstream's rules and texts. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::node::hardware::Hardware;

/// Memory that is kept of a NUMA node, in bytes by kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reservation {
    /// The node.
    pub node: usize,
    /// How much.
    pub limits: BTreeMap<String, u64>,
}

/// Amounts by NUMA nodes and kinds.
pub(crate) type ByNode = BTreeMap<usize, BTreeMap<String, u64>>;

/// Why memory cannot be kept so; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReservedError {
    /// The machine has no such node.
    #[error(
        "the reserved memory configuration references a NUMA node {0} that does not exist on this machine"
    )]
    NoNode(usize),
    /// The nodes keep another amount than the machine.
    #[error(
        "the total amount {} of type {} is not equal to the value {} determined by Node Allocatable feature",
        api::go::quote(.total),
        api::go::quote(.kind),
        api::go::quote(.expected)
    )]
    Unequal {
        /// The amount that the nodes keep together.
        total: String,
        /// The kind.
        kind: String,
        /// The amount that the machine keeps.
        expected: String,
    },
    /// No memory is kept.
    #[error("[memorymanager] you should specify the system reserved memory")]
    Nothing,
}

/// An amount of bytes in the largest unit of which it is a multiple.
fn canonical(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let power = (bytes.trailing_zeros() as usize / 10).min(UNITS.len() - 1);
    let power = if bytes == 0 { 0 } else { power };
    format!("{}{}", bytes >> (power * 10), UNITS[power])
}

/// The amounts that are kept of each node, which must together be those that are kept of the machine.
///
/// # Errors
/// It is not, or a node is not there.
pub(crate) fn by_node(
    hardware: &Hardware,
    machine: &BTreeMap<String, u64>,
    reservations: &[Reservation],
) -> Result<ByNode, ReservedError> {
    let mut nodes: ByNode = hardware.nodes.iter().map(|n| (n.id, BTreeMap::new())).collect();
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for reservation in reservations {
        let node = nodes.get_mut(&reservation.node).ok_or(ReservedError::NoNode(reservation.node))?;
        for (kind, bytes) in &reservation.limits {
            let total = totals.entry(kind).or_default();
            *total = total.saturating_add(*bytes);
            node.insert(kind.clone(), *bytes);
        }
    }
    let kept = machine.keys().map(String::as_str).filter(|k| *k == "memory" || k.starts_with("hugepages-"));
    let kinds: BTreeSet<&str> = totals.keys().copied().chain(kept).collect();
    for kind in kinds {
        let total = totals.get(kind).copied().unwrap_or_default();
        let expected = machine.get(kind).copied().unwrap_or_default();
        if total != expected {
            return Err(ReservedError::Unequal {
                total: canonical(total),
                kind: kind.to_owned(),
                expected: canonical(expected),
            });
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::memory_manager::tests::{amount, hardware};
    use crate::topology_manager::cases::cases;

    fn amounts(value: &Value) -> BTreeMap<String, u64> {
        value.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), amount(v))).collect()
    }

    /// Upstream's tables of what is reserved.
    #[test]
    fn upstreams_cases() {
        for case in cases(include_str!("cases/reserved.jsonl"), 11) {
            let reservations: Vec<Reservation> = case["reservedMemory"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|r| Reservation {
                    node: usize::try_from(r["NumaNode"].as_u64().unwrap()).unwrap(),
                    limits: amounts(&r["Limits"]),
                })
                .collect();
            let got = by_node(
                &hardware(&case["machineInfo"]),
                &amounts(&case["nodeAllocatableReservation"]),
                &reservations,
            );
            if let Some(error) = case["expectedError"].as_str().filter(|e| !e.is_empty()) {
                assert_eq!(got.unwrap_err().to_string(), error, "{case}");
            } else {
                let got = got.unwrap_or_else(|e| panic!("{e}: {case}"));
                if let Some(expected) = case["expectedReserved"].as_object() {
                    let expected: ByNode =
                        expected.iter().map(|(n, all)| (n.parse().unwrap(), amounts(all))).collect();
                    assert_eq!(got, expected, "{case}");
                }
            }
        }
    }

    #[test]
    fn amounts_in_their_units() {
        for (bytes, text) in [(0, "0"), (1, "1"), (1 << 10, "1Ki"), (3 << 29, "1536Mi"), (5 << 30, "5Gi")] {
            assert_eq!(canonical(bytes), text);
        }
    }
}
