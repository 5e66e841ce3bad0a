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

    /// Upstream's cases of `TestMonitorNodeHealth`, but for the label that leaves nodes out: nodes with their zones and
    /// readiness (none: no condition), and the states of the zones.
    #[test]
    fn states_of_zones() {
        let check = |nodes: &[(&str, &str)], want: &[(&str, State)]| {
            let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
            for (zone, ready) in nodes {
                let mut node = serde_json::json!({"metadata": {"name": "n"}, "status": {"conditions": []}});
                if !zone.is_empty() {
                    node["metadata"]["labels"] = serde_json::json!({"topology.kubernetes.io/region": "region1",
                        "topology.kubernetes.io/zone": zone, "failure-domain.beta.kubernetes.io/zone": zone});
                }
                if !ready.is_empty() {
                    node["status"]["conditions"] = serde_json::json!([{"type": "Ready", "status": ready}]);
                }
                let node: NodeView = serde_json::from_value(node).unwrap();
                let count = counts.entry(zone_of(&node)).or_default();
                if super::super::health::readiness(&node) == "True" {
                    count.0 += 1;
                } else {
                    count.1 += 1;
                }
            }
            let rates = EvictionRates { large: 20, ..EvictionRates::default() };
            let got: Vec<_> = counts.iter().map(|(z, (r, s))| (z.clone(), state(*r, *s, &rates))).collect();
            let id = |zone: &str| if zone.is_empty() { String::new() } else { format!("region1:\0:{zone}") };
            assert_eq!(got, want.iter().map(|(z, s)| (id(z), *s)).collect::<Vec<_>>(), "{nodes:?}");
        };
        let (up, down) = ("True", "Unknown");
        check(&[("", up)], &[("", State::Normal)]);
        let two = |first: State, second: State| [("zone1", first), ("zone2", second)];
        check(&[("zone1", down), ("zone2", down)], &two(State::Full, State::Full));
        check(&[("zone1", down), ("zone2", up)], &two(State::Full, State::Normal));
        check(&[("zone1", ""); 4], &[("zone1", State::Full)]);
        let some =
            |downs: usize, ups: usize| [vec![("zone1", down); downs], vec![("zone1", up); ups]].concat();
        check(&some(3, 1), &[("zone1", State::Partial)]);
        check(&some(2, 3), &[("zone1", State::Normal)]);
        check(&some(3, 2), &[("zone1", State::Partial)]);
        check(&some(2, 1), &[("zone1", State::Normal)]);
        check(&some(3, 0), &[("zone1", State::Full)]);
        check(&[("zone1", up)], &[("zone1", State::Normal)]);
        check(&[("zone1", "")], &[("zone1", State::Full)]);
    }

    /// Upstream's cases of `TestUniqueQueueGet`, `TestAddNode`, `TestDelNode`, `TestTry`, `TestTryRemovingWhileTry`,
    /// `TestClear` and `TestAddAfterTry`: the nodes that wait, those that wait no more, and those whose turn it is.
    ///
    /// DIFFERENCE: upstream's queue is in the order in which nodes came; here all nodes of a zone that wait are alike, and
    /// go by name.
    #[test]
    fn nodes_that_wait() {
        let check = |wait: &[&str], leave: &[&str], want: &[&str]| {
            let mut z = Zones::default();
            let rates = EvictionRates { normal: 1.0, ..EvictionRates::default() };
            z.count(&BTreeMap::from([(String::new(), (5, 2))]), &rates, at(0));
            for node in wait {
                z.want("", node, true);
            }
            for node in leave {
                z.want("", node, false);
            }
            let turns: Vec<String> = (0..10).flat_map(|second| z.due(at(second))).collect();
            assert_eq!(turns, want, "{wait:?} {leave:?}");
            // Its turn comes once, and again if it waits again.
            assert!(z.due(at(100)).is_empty());
            z.want("", "second", true);
            assert_eq!(z.due(at(200)), ["second"]);
        };
        let all = &["first", "second", "third"];
        check(all, &[], all);
        check(&["first", "second", "third", "first"], &[], all);
        check(all, &["first"], &["second", "third"]);
        check(all, &["second"], &["first", "third"]);
        check(all, &["third"], &["first", "second"]);
        check(all, all, &[]);
    }

    /// Upstream's case of `TestSwapLimiter`: the rate changes while nodes wait.
    #[test]
    fn rates_that_change() {
        let mut z = Zones::default();
        let counts = BTreeMap::from([(String::new(), (5, 2))]);
        let rate = |normal: f64| EvictionRates { normal, ..EvictionRates::default() };
        z.count(&counts, &rate(0.0), at(0));
        z.want("", "a", true);
        z.want("", "b", true);
        assert!(z.due(at(100)).is_empty());
        z.count(&counts, &rate(0.1), at(100));
        assert_eq!(z.due(at(100)), ["a"]);
        assert!(z.due(at(105)).is_empty());
        z.count(&counts, &rate(1.0), at(105));
        assert_eq!(z.due(at(106)), ["b"]);
    }
}
