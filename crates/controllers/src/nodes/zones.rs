//! The rates at which Pods of silent nodes are evicted: slower where many nodes of a zone are silent, because the
//! network is the likely cause then, and zero where all nodes are silent: pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::views::NodeView;
use tokio::time::Instant;

/// The rates of eviction and the limits between them; upstream's by default.
#[derive(Debug, Clone, Copy)]
pub struct EvictionRates {
    /// The number of nodes a second whose Pods are evicted.
    pub normal: f64,
    /// The same number in a large zone with many silent nodes.
    pub secondary: f64,
    /// The number of nodes beyond which a zone is large.
    pub large: usize,
    /// The share of silent nodes from which a zone counts as disrupted.
    pub unhealthy: f64,
}

impl Default for EvictionRates {
    fn default() -> Self {
        Self { normal: 0.1, secondary: 0.01, large: 50, unhealthy: 0.55 }
    }
}

/// The state of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Normal,
    Partial,
    Full,
}

fn state(ready: usize, silent: usize, rates: &EvictionRates) -> State {
    if ready == 0 && silent > 0 {
        State::Full
    } else if silent > 2 && silent as f64 / (ready + silent) as f64 >= rates.unhealthy {
        State::Partial
    } else {
        State::Normal
    }
}

/// The zone of a node.
pub(super) fn zone_of(node: &NodeView) -> String {
    let label = |keys: [&str; 2]| {
        let labels = node.metadata.labels.as_ref();
        keys.iter().find_map(|k| labels?.get(*k)).cloned().unwrap_or_default()
    };
    let region = label(["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]);
    let zone = label(["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]);
    if region.is_empty() && zone.is_empty() { String::new() } else { format!("{region}:\0:{zone}") }
}

#[derive(Debug)]
struct Zone {
    rate: f64,
    tokens: f64,
    at: Instant,
    pending: BTreeSet<String>,
}

/// The zones with the nodes that wait to be tainted.
#[derive(Debug, Default)]
pub(super) struct Zones {
    zones: BTreeMap<String, Zone>,
    all_silent: bool,
}

/// The effect of a change of the zones' states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disruption {
    None,
    /// All nodes have become silent: no Pod is evicted, and planned evictions are called off.
    Begins,
    /// A node has given a sign of life: all nodes get a new grace.
    Ends,
}

impl Zones {
    /// Takes the numbers of ready and of silent nodes of each zone in.
    pub(super) fn count(
        &mut self,
        counts: &BTreeMap<String, (usize, usize)>,
        rates: &EvictionRates,
        now: Instant,
    ) -> Disruption {
        let states: BTreeMap<_, _> = counts.iter().map(|(z, (r, s))| (z, state(*r, *s, rates))).collect();
        let all_silent = !states.is_empty() && states.values().all(|s| *s == State::Full);
        self.zones.retain(|zone, _| counts.contains_key(zone));
        for (zone, state) in states {
            let (ready, silent) = counts[zone];
            let rate = match state {
                _ if all_silent => 0.0,
                State::Normal | State::Full => rates.normal,
                State::Partial if ready + silent > rates.large => rates.secondary,
                State::Partial => 0.0,
            };
            let entry = self.zones.entry(zone.clone()).or_insert(Zone {
                rate,
                tokens: 1.0,
                at: now,
                pending: BTreeSet::new(),
            });
            entry.rate = rate;
        }
        match (std::mem::replace(&mut self.all_silent, all_silent), all_silent) {
            (false, true) => Disruption::Begins,
            (true, false) => Disruption::Ends,
            _ => Disruption::None,
        }
    }

    /// Puts a node into its zone's queue, or takes it out.
    pub(super) fn want(&mut self, zone: &str, node: &str, wanted: bool) {
        if let Some(zone) = self.zones.get_mut(zone) {
            if wanted {
                zone.pending.insert(node.to_owned());
            } else {
                zone.pending.remove(node);
            }
        }
    }

    /// Returns the nodes whose turn it is.
    pub(super) fn due(&mut self, now: Instant) -> Vec<String> {
        let mut due = Vec::new();
        for zone in self.zones.values_mut() {
            let passed = now.saturating_duration_since(zone.at).as_secs_f64();
            zone.tokens = (zone.tokens + passed * zone.rate).min(1.0);
            zone.at = now;
            while zone.rate > 0.0 && zone.tokens >= 1.0 {
                let Some(node) = zone.pending.pop_first() else { break };
                zone.tokens -= 1.0;
                due.push(node);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a time so many seconds after the beginning of the tests.
    fn at(seconds: u64) -> Instant {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        *START + std::time::Duration::from_secs(seconds)
    }

    #[test]
    fn states() {
        let check = |ready, silent, want| {
            assert_eq!(state(ready, silent, &EvictionRates::default()), want, "{ready} {silent}");
        };
        check(0, 0, State::Normal);
        check(1, 0, State::Normal);
        check(0, 1, State::Full);
        check(1, 2, State::Normal);
        check(2, 3, State::Partial);
        check(3, 3, State::Normal);
    }

    #[test]
    fn one_node_in_ten_seconds() {
        let mut z = Zones::default();
        let counts = BTreeMap::from([(String::new(), (5, 2))]);
        z.count(&counts, &EvictionRates::default(), at(0));
        z.want("", "a", true);
        z.want("", "b", true);
        assert_eq!(z.due(at(0)), ["a"]);
        assert!(z.due(at(5)).is_empty());
        assert_eq!(z.due(at(10)), ["b"]);
        z.want("", "c", true);
        z.want("", "c", false);
        assert!(z.due(at(100)).is_empty());
    }

    #[test]
    fn nobody_goes_when_all_are_silent() {
        let mut z = Zones::default();
        let rates = EvictionRates::default();
        let one = |ready, silent| BTreeMap::from([(String::new(), (ready, silent))]);
        assert_eq!(z.count(&one(0, 1), &rates, at(0)), Disruption::Begins);
        z.want("", "a", true);
        assert!(z.due(at(1000)).is_empty());
        assert_eq!(z.count(&one(0, 1), &rates, at(1)), Disruption::None);
        assert_eq!(z.count(&one(1, 1), &rates, at(2)), Disruption::Ends);
        assert_eq!(z.due(at(1001)), ["a"]);
        let two = BTreeMap::from([("a".to_owned(), (0, 2)), ("b".to_owned(), (3, 0))]);
        assert_eq!(Zones::default().count(&two, &rates, at(0)), Disruption::None);
    }
}
