//! The plugins that look at one node alone: its name, its labels, its taints, its ports, its features.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeAffinity, PreferredSchedulingTerm, Taint, Toleration};
use objects::taints::{self, NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Tolerance};
use objects::{features, node_affinity};

use crate::cache::{Cache, NodeInfo};
use crate::config::args::PluginArgs;
use crate::events::{About, Events, Happening, Pair};
use crate::framework::hint::Hint;
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{Cycle, Filter, MAX_SCORE, PreFilter, PreScore, Prefiltered, Score};
use crate::framework::verdict::{Rejection, Stop};
use crate::pod::{PodInfo, PodView};

/// The plugin that reads whether nodes are cordoned.
pub const UNSCHEDULABLE: &str = "NodeUnschedulable";
/// The plugin that reads the name of a node in a Pod.
pub const NAME: &str = "NodeName";
/// The plugin that reads taints.
pub const TAINTS: &str = "TaintToleration";
/// The plugin that reads node selectors and node affinity.
pub const AFFINITY: &str = "NodeAffinity";
/// The plugin that reads host ports.
pub const PORTS: &str = "NodePorts";
/// The plugin that reads which features nodes declare.
pub const FEATURES: &str = "NodeDeclaredFeatures";

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true)
}

fn tolerates_cordons(pod: &PodView) -> bool {
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        effect: NO_SCHEDULE.into(),
        ..Taint::default()
    };
    // The taint has no value, so no operator compares it.
    Tolerance::default().uncovered([&taint], taints::tolerations(pod.whole())).is_none()
}

struct Unschedulable;

impl Hint for Unschedulable {
    /// A node is no longer cordoned, or new and not cordoned; or the Pod tolerates it now.
    fn lifts(&self, _pod: &PodInfo, what: &Happening, _cluster: &Cache) -> Result<bool, String> {
        Ok(match &what.about {
            About::Node(Pair { old, new: Some(new) }) => {
                !is_cordoned(new) && old.as_ref().is_none_or(|old| is_cordoned(old))
            }
            About::Pod(Pair { new: Some(new), .. }) => tolerates_cordons(new),
            _ => true,
        })
    }
}

impl Filter for Unschedulable {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        if !is_cordoned(&node.node) || tolerates_cordons(cycle.pod) {
            return Ok(());
        }
        Err(Rejection::lasting(UNSCHEDULABLE, "node(s) were unschedulable"))
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

struct Name;

impl Filter for Name {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        if cycle.pod.node().is_none_or(|wanted| wanted == node.name()) {
            return Ok(());
        }
        Err(Rejection::lasting(NAME, "node(s) didn't match the requested node name"))
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

/// Whether the node has a `NoSchedule` or `NoExecute` taint that the Pod does not tolerate.
pub(super) fn has_untolerated_taint(tolerance: Tolerance, pod: &PodInfo, node: &Node) -> bool {
    let hard = taints::of_node(node).iter().filter(|t| t.effect == NO_SCHEDULE || t.effect == NO_EXECUTE);
    tolerance.uncovered(hard, taints::tolerations(pod.whole())).is_some()
}

struct Taints {
    tolerance: Tolerance,
}

impl Taints {
    fn refuse(&self, pod: &PodInfo, node: &Node) -> bool {
        has_untolerated_taint(self.tolerance, pod, node)
    }
}

impl Hint for Taints {
    /// The Pod tolerates a node's taints now, or more than before.
    fn lifts(&self, pod: &PodInfo, what: &Happening, _cluster: &Cache) -> Result<bool, String> {
        Ok(match &what.about {
            About::Node(Pair { old, new: Some(new) }) => {
                !self.refuse(pod, new) && old.as_ref().is_none_or(|old| self.refuse(pod, old))
            }
            _ => true,
        })
    }
}

impl Filter for Taints {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        if self.refuse(cycle.pod, &node.node) {
            return Err(Rejection::lasting(TAINTS, "node(s) had untolerated taint(s)"));
        }
        Ok(())
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

impl Score for Taints {
    /// How many `PreferNoSchedule` taints the Pod does not tolerate.
    fn score(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<i64, String> {
        let soft = taints::of_node(&node.node).iter().filter(|t| t.effect == PREFER_NO_SCHEDULE);
        let usable = |t: &&Toleration| matches!(t.effect.as_deref(), None | Some("" | PREFER_NO_SCHEDULE));
        let tolerations = taints::tolerations(cycle.pod.whole());
        let tolerated =
            |taint: &Taint| tolerations.iter().filter(usable).any(|t| self.tolerance.covers(t, taint));
        Ok(soft.filter(|t| !tolerated(t)).count() as i64)
    }
    fn normalize(&self, _cycle: &Cycle<'_>, _nodes: &[usize], scores: &mut [i64]) {
        normalize(scores, true);
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

/// Scales scores so that the largest becomes 100; `reverse` turns them round (upstream's `DefaultNormalizeScore`).
fn normalize(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or(0);
    if max == 0 {
        scores.fill(if reverse { MAX_SCORE } else { 0 });
        return;
    }
    for s in scores {
        *s = MAX_SCORE * *s / max;
        if reverse {
            *s = MAX_SCORE - *s;
        }
    }
}

/// Node affinity; what the configuration adds counts for every Pod of the profile.
struct Affinity {
    added: NodeAffinity,
}

impl PreFilter for Affinity {
    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Result<Prefiltered, Stop> {
        let spec = cycle.pod.spec();
        let selector = spec.is_some_and(|s| s.node_selector.iter().flatten().next().is_some());
        let terms = node_affinity::required_terms(cycle.pod.whole());
        if !selector
            && terms.is_none()
            && self.added.required_during_scheduling_ignored_during_execution.is_none()
        {
            return Ok(Prefiltered::Skip);
        }
        Ok(nodes_by_name(cycle.pod)?.map_or(Prefiltered::All, Prefiltered::Only))
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

/// The only nodes that can take the Pod, if each term of its node affinity names some (as a DaemonSet's do).
fn nodes_by_name(pod: &PodInfo) -> Result<Option<BTreeSet<String>>, Stop> {
    let Some(terms) = node_affinity::required_terms(pod.whole()).filter(|t| !t.is_empty()) else {
        return Ok(None);
    };
    let mut all = BTreeSet::new();
    for term in terms {
        let mut named: Option<BTreeSet<String>> = None;
        for r in term.match_fields.iter().flatten() {
            if r.key == "metadata.name" && r.operator == "In" {
                let these: BTreeSet<String> = r.values.iter().flatten().cloned().collect();
                named = Some(match named {
                    Some(before) => &before & &these,
                    None => these,
                });
            }
        }
        let Some(named) = named else { return Ok(None) };
        all.extend(named);
    }
    if all.is_empty() {
        return Err(Stop::rejected(AFFINITY, "pod affinity terms conflict"));
    }
    Ok(Some(all))
}

impl Affinity {
    /// Whether a node is one that the configuration allows.
    fn allows(&self, node: &Node) -> bool {
        let added = self.added.required_during_scheduling_ignored_during_execution.as_ref();
        added.is_none_or(|added| {
            added.node_selector_terms.iter().any(|t| node_affinity::term_matches(t, node))
        })
    }
}

impl Hint for Affinity {
    /// A node is one that the Pod wants, and was not before.
    ///
    /// DIFFERENCE: a node that the configuration did not allow before counts as one that was not wanted.
    fn lifts(&self, pod: &PodInfo, what: &Happening, _cluster: &Cache) -> Result<bool, String> {
        let wanted = |node: &Node| self.allows(node) && node_affinity::admits(pod.whole(), node);
        Ok(match &what.about {
            About::Node(Pair { old, new: Some(new) }) => {
                wanted(new) && old.as_ref().is_none_or(|old| !wanted(old))
            }
            _ => true,
        })
    }
}

impl Filter for Affinity {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        if !self.allows(&node.node) {
            return Err(Rejection::lasting(
                AFFINITY,
                "node(s) didn't match scheduler-enforced node affinity",
            ));
        }
        if node_affinity::admits(cycle.pod.whole(), &node.node) {
            return Ok(());
        }
        Err(Rejection::lasting(AFFINITY, "node(s) didn't match Pod's node affinity/selector"))
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

impl Affinity {
    fn preferred<'a>(&'a self, pod: &'a PodInfo) -> impl Iterator<Item = &'a PreferredSchedulingTerm> {
        let affinity = pod.spec().and_then(|s| s.affinity.as_ref()).and_then(|a| a.node_affinity.as_ref());
        let both = [Some(&self.added), affinity].into_iter().flatten();
        both.flat_map(|a| a.preferred_during_scheduling_ignored_during_execution.iter().flatten())
    }
}

impl PreScore for Affinity {
    fn pre_score(&self, cycle: &mut Cycle<'_>, _feasible: &[usize], _kept: bool) -> Result<bool, String> {
        Ok(self.preferred(cycle.pod).next().is_some())
    }
}

impl Score for Affinity {
    fn score(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<i64, String> {
        let matching = self
            .preferred(cycle.pod)
            .filter(|t| t.weight != 0 && node_affinity::term_matches(&t.preference, &node.node));
        Ok(matching.map(|t| i64::from(t.weight)).sum())
    }
    fn normalize(&self, _cycle: &Cycle<'_>, _nodes: &[usize], scores: &mut [i64]) {
        normalize(scores, false);
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

struct Ports;

impl Hint for Ports {
    /// A Pod that goes had a port that this one wants.
    fn lifts(&self, pod: &PodInfo, what: &Happening, _cluster: &Cache) -> Result<bool, String> {
        Ok(match &what.about {
            About::Pod(Pair { old: Some(old), new: None }) => {
                old.ports.iter().any(|had| pod.ports.iter().any(|wants| wants.conflicts(had)))
            }
            _ => true,
        })
    }
}

impl PreFilter for Ports {
    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Result<Prefiltered, Stop> {
        Ok(if cycle.pod.ports.is_empty() { Prefiltered::Skip } else { Prefiltered::All })
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

impl Filter for Ports {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        if !cycle.pod.ports.is_empty() && node.ports_taken(&cycle.pod.ports) {
            let why = "node(s) didn't have free ports for the requested pod ports";
            return Err(Rejection::new(PORTS, why));
        }
        Ok(())
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

struct Features;

impl Hint for Features {
    /// A node came, or declares other features; or the Pod needs others.
    fn lifts(&self, _pod: &PodInfo, what: &Happening, _cluster: &Cache) -> Result<bool, String> {
        Ok(match &what.about {
            About::Node(Pair { old: Some(old), new: Some(new) }) => {
                features::declared(old) != features::declared(new)
            }
            About::Pod(Pair { old: Some(old), new: Some(new) }) => {
                !features::needed(old.whole()).eq(features::needed(new.whole()))
            }
            _ => true,
        })
    }
}

impl PreFilter for Features {
    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Result<Prefiltered, Stop> {
        let needs = features::needed(cycle.pod.whole()).next().is_some();
        Ok(if needs { Prefiltered::All } else { Prefiltered::Skip })
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

impl Filter for Features {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        if features::missing(cycle.pod.whole(), features::declared(&node.node)).is_empty() {
            return Ok(());
        }
        Err(Rejection::lasting(FEATURES, "node(s) didn't match Pod's required features"))
    }
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

pub(super) fn node_unschedulable() -> Plugin {
    let points = Points { filter: Some(Arc::new(Unschedulable)), ..Points::default() };
    Plugin::new(UNSCHEDULABLE, points)
        .lifted_by(Events::NODE_ADDED | Events::NODE_TAINTS | Events::OWN_TOLERATIONS)
        .hinted(Unschedulable)
}

pub(super) fn node_name() -> Plugin {
    let points = Points { filter: Some(Arc::new(Name)), ..Points::default() };
    Plugin::new(NAME, points).lifted_by(Events::NODE_ADDED)
}

pub(super) fn taint_toleration(tolerance: Tolerance) -> Plugin {
    let plugin = Arc::new(Taints { tolerance });
    let points = Points { filter: Some(plugin.clone()), score: Some(plugin), ..Points::default() };
    Plugin::new(TAINTS, points)
        .lifted_by(Events::NODE_ADDED | Events::NODE_TAINTS | Events::OWN_TOLERATIONS)
        .hinted(Taints { tolerance })
}

pub(super) fn node_affinity(args: &PluginArgs) -> Result<Plugin, String> {
    let PluginArgs::NodeAffinity(args) = args else {
        return Err("want args to be of type NodeAffinityArgs".to_owned());
    };
    let affinity = || Affinity { added: args.added_affinity.clone().unwrap_or_default() };
    let plugin = Arc::new(affinity());
    let points = Points {
        pre_filter: Some(plugin.clone()),
        filter: Some(plugin.clone()),
        pre_score: Some(plugin.clone()),
        score: Some(plugin),
        ..Points::default()
    };
    let events = Events::NODE_ADDED | Events::NODE_LABELS;
    Ok(Plugin::new(AFFINITY, points).lifted_by(events).hinted(affinity()))
}

pub(super) fn node_ports() -> Plugin {
    let points =
        Points { pre_filter: Some(Arc::new(Ports)), filter: Some(Arc::new(Ports)), ..Points::default() };
    Plugin::new(PORTS, points).lifted_by(Events::NODE_ADDED | Events::POD_DELETED).hinted(Ports)
}

pub(super) fn node_declared_features() -> Plugin {
    let points = Points {
        pre_filter: Some(Arc::new(Features)),
        filter: Some(Arc::new(Features)),
        ..Points::default()
    };
    let events = Events::NODE_ADDED | Events::NODE_FEATURES | Events::OWN;
    Plugin::new(FEATURES, points).lifted_by(events).hinted(Features)
}
