//! The policies: the hints of all providers become one. Pure.

use std::collections::BTreeSet;

use super::hint::{Hint, Hints};
use super::mask::NumaMask;
use super::numa::NumaInfo;

/// The use of hints; upstream's `topologyManagerPolicy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// Nothing.
    #[default]
    None,
    /// The best one is chosen.
    BestEffort,
    /// A Pod without a preferred one is refused.
    Restricted,
    /// A Pod that does not fit one NUMA node is refused.
    SingleNumaNode,
}

impl PolicyKind {
    /// Every policy with upstream's name of it.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::None, "none"),
        (Self::BestEffort, "best-effort"),
        (Self::Restricted, "restricted"),
        (Self::SingleNumaNode, "single-numa-node"),
    ];

    /// The policy of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(kind, _)| kind)
    }
    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

/// A policy on a machine.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// Which.
    pub(crate) kind: PolicyKind,
    /// The machine's NUMA nodes.
    pub(crate) numa: NumaInfo,
    /// Whether nodes near to each other are preferred.
    pub(crate) closest: bool,
}

impl Policy {
    /// Whether resources come from one NUMA node, or not at all.
    pub(crate) fn guarantees(&self) -> bool {
        self.kind == PolicyKind::SingleNumaNode
    }

    /// Makes one hint of those of all providers, and says whether the Pod is taken.
    pub(crate) fn merge(&self, providers: &[Hints]) -> (Hint, bool) {
        if self.kind == PolicyKind::None {
            return (super::hint::UNKNOWN, true);
        }
        let mut hints = by_resource(providers);
        if self.kind == PolicyKind::SingleNumaNode {
            for list in &mut hints {
                list.retain(|h| h.preferred && h.affinity.is_none_or(|mask| mask.count() == 1));
            }
        }
        let mut best = self.best(&hints);
        if self.kind == PolicyKind::SingleNumaNode && best.affinity == Some(self.numa.all()) {
            best.affinity = None;
        }
        (best, self.kind == PolicyKind::BestEffort || best.preferred)
    }

    /// The best of all combinations of hints, one of each resource. Combinations that come to the same are looked at
    /// once: which of several is the best does not depend on their order.
    fn best(&self, hints: &[Vec<Hint>]) -> Hint {
        /// The result of a combination: the nodes of all, whether all are preferred, and the nodes that all name so far.
        type Merged = (NumaMask, bool, Option<NumaMask>);
        let all = self.numa.all();
        let mut merged: BTreeSet<Merged> = [(all, true, None)].into();
        for list in hints {
            let with = |(mask, preferred, first): &Merged, hint: &Hint| -> Merged {
                let Some(own) = hint.affinity else { return (*mask, *preferred && hint.preferred, *first) };
                let same = first.is_none_or(|first| first == own);
                let preferred = *preferred && hint.preferred && same;
                // It matters only as long as all are the same.
                (mask.and(own), preferred, preferred.then_some(own))
            };
            merged = merged.iter().flat_map(|m| list.iter().map(move |hint| with(m, hint))).collect();
        }
        let widest = widest_narrowest(hints);
        let better = |current: Option<Hint>, (mask, preferred, _): Merged| {
            self.better(widest, current, Hint { affinity: Some(mask), preferred })
        };
        merged.into_iter().fold(None, better).unwrap_or(Hint { affinity: Some(all), preferred: false })
    }

    /// The better of two sets of nodes; of equal ones the first.
    fn fitter(&self, current: Hint, candidate: Hint) -> Hint {
        let (Some(a), Some(b)) = (current.affinity, candidate.affinity) else { return current };
        let closest = self.closest && self.kind != PolicyKind::SingleNumaNode;
        let best = if closest { self.numa.closest(a, b) } else { a.narrowest(b) };
        if a == b || best == a { current } else { candidate }
    }

    /// The better of the best hint so far and another one. `widest` is how many nodes the resource needs that needs most
    /// of them: of hints that are not preferred, one of so many nodes is best, or of as many as are below that.
    fn better(&self, widest: usize, current: Option<Hint>, candidate: Hint) -> Option<Hint> {
        let count = |hint: &Hint| hint.affinity.map_or(0, NumaMask::count);
        if count(&candidate) == 0 {
            return current;
        }
        let Some(current) = current else { return Some(candidate) };
        let (now, other) = (count(&current), count(&candidate));
        Some(match (current.preferred, candidate.preferred) {
            (false, true) => candidate,
            (true, false) => current,
            (true, true) => self.fitter(current, candidate),
            (false, false) if now > widest => self.fitter(current, candidate),
            (false, false) if now == widest && other != widest => current,
            (false, false) if now == widest => self.fitter(current, candidate),
            (false, false) if other > widest => current,
            (false, false) if other == widest || other > now => candidate,
            (false, false) if other < now => current,
            (false, false) => self.fitter(current, candidate),
        })
    }
}

/// The hints of each resource of each provider: one without wishes may be anywhere.
fn by_resource(providers: &[Hints]) -> Vec<Vec<Hint>> {
    const ANYWHERE: Hint = Hint { affinity: None, preferred: true };
    let mut all = Vec::new();
    for hints in providers {
        if hints.is_empty() {
            all.push(vec![ANYWHERE]);
        }
        all.extend(hints.values().map(|list| match list {
            None => vec![ANYWHERE],
            Some(list) if list.is_empty() => vec![Hint { affinity: None, preferred: false }],
            Some(list) => list.clone(),
        }));
    }
    all
}

/// The size of the narrowest set of the resource whose narrowest set is the widest.
fn widest_narrowest(hints: &[Vec<Hint>]) -> usize {
    let narrowest = |list: &Vec<Hint>| list.iter().filter_map(|h| h.affinity).map(NumaMask::count).min();
    hints.iter().filter_map(narrowest).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::cases::{cases, hint, mask};
    use super::*;

    fn numa(count: usize) -> NumaInfo {
        let rows: &[&[u64]] = match count {
            2 => &[&[10, 11], &[11, 10]],
            4 => &[&[10, 11, 12, 12], &[11, 10, 12, 12], &[12, 12, 10, 11], &[12, 12, 11, 10]],
            8 => &[
                &[10, 11, 12, 12, 30, 30, 30, 30],
                &[11, 10, 12, 12, 30, 30, 30, 30],
                &[12, 12, 10, 11, 30, 30, 30, 30],
                &[12, 12, 11, 10, 30, 30, 30, 30],
                &[30, 30, 30, 30, 10, 11, 12, 12],
                &[30, 30, 30, 30, 11, 10, 12, 12],
                &[30, 30, 30, 30, 12, 12, 10, 11],
                &[30, 30, 30, 30, 12, 12, 13, 10],
            ],
            _ => &[],
        };
        let distances = rows.iter().enumerate().map(|(i, row)| (i, row.to_vec())).collect();
        NumaInfo { nodes: (0..count).collect(), distances }
    }

    fn hints(value: &Value) -> Option<Vec<Hint>> {
        value.as_array().map(|all| all.iter().map(hint).collect())
    }

    /// Upstream's tables of merged hints. Tests of upstream's with several policies go through one table with each.
    #[test]
    fn upstreams_cases() {
        for case in cases(include_str!("cases/merge.jsonl"), 137) {
            let providers: Vec<Hints> = case["hp"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|p| {
                    let all = p["th"].as_object().into_iter().flatten();
                    all.map(|(name, list)| (name.clone(), hints(list))).collect()
                })
                .collect();
            let policy = Policy {
                kind: PolicyKind::named(case["policy"].as_str().unwrap()).unwrap(),
                numa: numa(usize::try_from(case["nodes"].as_u64().unwrap()).unwrap()),
                closest: case["closest"] == true,
            };
            let (merged, taken) = policy.merge(&providers);
            assert_eq!(merged, hint(&case["expected"]), "{case}");
            let refuses = !matches!(policy.kind, PolicyKind::None | PolicyKind::BestEffort);
            assert_eq!(taken, !refuses || merged.preferred, "{case}");
        }
    }

    #[test]
    fn upstreams_cases_of_comparisons() {
        for case in cases(include_str!("cases/compare.jsonl"), 25) {
            let policy = Policy { kind: PolicyKind::BestEffort, numa: NumaInfo::default(), closest: false };
            let widest =
                usize::try_from(case["bestNonPreferredAffinityCount"].as_i64().unwrap()).unwrap_or(0);
            let current = Some(&case["current"]).filter(|v| !v.is_null()).map(hint);
            let candidate = hint(&case["candidate"]);
            let got = policy.better(widest, current, candidate);
            let expected = if case["expected"] == "current" { current } else { Some(candidate) };
            assert_eq!(got, expected, "{case}");
        }
        for case in cases(include_str!("cases/closest.jsonl"), 5) {
            let rows = case["numaInfo"]["NUMADistances"].as_object().into_iter().flatten();
            let row = |row: &Value| serde_json::from_value(row.clone()).unwrap();
            let distances = rows.map(|(node, all)| (node.parse().unwrap(), row(all))).collect();
            let numa = NumaInfo { nodes: Vec::new(), distances };
            let (current, candidate) = (mask(&case["current"]), mask(&case["candidate"]));
            let got = numa.closest(candidate, current);
            assert_eq!(got == current, case["expected"] == "current", "{case}");
        }
    }

    #[test]
    fn upstreams_cases_of_the_widest() {
        for case in cases(include_str!("cases/widest.jsonl"), 7) {
            let all: Vec<Vec<Hint>> = case["hints"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|l| hints(l).unwrap_or_default())
                .collect();
            assert_eq!(Value::from(widest_narrowest(&all)), case["expected"], "{case}");
        }
    }

    #[test]
    fn many_resources_on_many_nodes_come_to_an_end() {
        let nodes: Vec<usize> = (0..8).collect();
        let every = super::super::hint::prefer_smallest(super::super::mask::all_masks(&nodes), 1);
        let provider: Hints = (0..20).map(|i| (i.to_string(), Some(every.clone()))).collect();
        let policy = Policy { kind: PolicyKind::Restricted, numa: numa(8), closest: true };
        assert_eq!(policy.merge(&[provider]), (every[0], true));
    }
}
