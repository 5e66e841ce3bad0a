//! The plugins of a profile by default, and the ones that a configuration makes of them (upstream's `mergePlugins`).

use std::collections::BTreeSet;

use api::{FeatureGates, Gate};

use super::args::{PluginArgs, ShapePoint};
use super::document::{
    ClientConnection, Document, LeaderElection, Named, PluginConfig, PluginSet, Plugins, Profile,
};

/// The name of the scheduler for Pods that name none.
pub const SCHEDULER_NAME: &str = "default-scheduler";

/// The plugins of every profile, in order, with their weights as scores. Those of gates that v1.36 has off are not
/// among them.
pub const PLUGINS: [(&str, i32); 20] = [
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
];

/// Completes a document. An empty name, a time of zero and a rate of zero have the default, as upstream has it.
pub fn complete(document: &mut Document) {
    election(&mut document.leader_election);
    let (connection, usual) = (&mut document.client_connection, ClientConnection::default());
    if connection.content_type.is_empty() {
        connection.content_type = usual.content_type;
    }
    if connection.qps == 0.0 {
        connection.qps = usual.qps;
    }
    if connection.burst == 0 {
        connection.burst = usual.burst;
    }
    if document.profiles.is_empty() {
        document.profiles.push(Profile::default());
    }
    if let [only] = document.profiles.as_mut_slice() {
        only.scheduler_name.get_or_insert_with(|| SCHEDULER_NAME.to_owned());
    }
    for profile in &mut document.profiles {
        let plugins = merged(profile.plugins.take().unwrap_or_default());
        let configured: BTreeSet<String> = profile.plugin_config.iter().map(|c| c.name.clone()).collect();
        let named: BTreeSet<String> =
            plugins.sets().into_iter().flat_map(|(_, set)| &set.enabled).map(|p| p.name.clone()).collect();
        for name in named.difference(&configured) {
            let args = PluginArgs::of(name);
            if !matches!(args, PluginArgs::Other(_)) {
                profile.plugin_config.push(PluginConfig { name: name.clone(), args });
            }
        }
        profile.plugins = Some(plugins);
    }
}

/// The value of nodes by how much of their storage is in use: the less, the better (upstream's default of
/// VolumeBinding's `shape` where the gate StorageCapacityScoring is on).
pub fn usual_shape() -> Vec<ShapePoint> {
    vec![ShapePoint { utilization: 0, score: 10 }, ShapePoint { utilization: 100, score: 0 }]
}

/// Fills in what features that are on have as defaults; the configuration is complete otherwise.
pub fn complete_for(document: &mut Document, gates: FeatureGates) {
    if !gates.enabled(Gate::StorageCapacityScoring) {
        return;
    }
    for plugin in document.profiles.iter_mut().flat_map(|p| &mut p.plugin_config) {
        if let PluginArgs::VolumeBinding(args) = &mut plugin.args
            && args.shape.as_ref().is_none_or(Vec::is_empty)
        {
            args.shape = Some(usual_shape());
        }
    }
}

fn election(said: &mut LeaderElection) {
    let usual = LeaderElection::default();
    for (said, usual) in [
        (&mut said.lease_duration, usual.lease_duration),
        (&mut said.renew_deadline, usual.renew_deadline),
        (&mut said.retry_period, usual.retry_period),
    ] {
        if api::time::parse_duration(said).is_some_and(|time| time.is_zero()) {
            *said = usual;
        }
    }
    for (said, usual) in [
        (&mut said.resource_lock, usual.resource_lock),
        (&mut said.resource_name, usual.resource_name),
        (&mut said.resource_namespace, usual.resource_namespace),
    ] {
        if said.is_empty() {
            *said = usual;
        }
    }
}

/// Adds a plugin of a gate that is on to the default ones, behind them (upstream's `applyFeatureGates`).
pub fn add(document: &mut Document, name: &str, weight: i32) {
    for plugins in document.profiles.iter_mut().filter_map(|p| p.plugins.as_mut()) {
        let set = &mut plugins.multi_point;
        let out = set.disabled.iter().any(|d| d.name == name || d.name == "*");
        if !out && !set.enabled.iter().any(|p| p.name == name) {
            set.enabled.push(Named { name: name.to_owned(), weight });
        }
    }
}

/// Leaves resources to extenders: no profile looks at them (upstream's `buildExtenders`).
pub fn hide(document: &mut Document, hidden: &[String]) {
    for plugin in document.profiles.iter_mut().flat_map(|p| &mut p.plugin_config) {
        if let PluginArgs::NodeResourcesFit(args) = &mut plugin.args {
            args.ignored_resources.extend_from_slice(hidden);
        }
    }
}

/// The default plugins as a configuration changes them.
fn merged(mut custom: Plugins) -> Plugins {
    let defaults = PLUGINS.iter().map(|(name, weight)| Named { name: (*name).to_owned(), weight: *weight });
    let defaults = PluginSet { enabled: defaults.collect(), disabled: Vec::new() };
    let multi_point = merged_set(&defaults, &custom.multi_point);
    for set in custom.sets_mut() {
        *set = merged_set(&PluginSet::default(), set);
    }
    custom.multi_point = multi_point;
    custom
}

fn merged_set(defaults: &PluginSet, custom: &PluginSet) -> PluginSet {
    let disabled = |name: &str| custom.disabled.iter().any(|d| d.name == name || d.name == "*");
    let replaced = |name: &str| custom.enabled.iter().rposition(|p| p.name == name);
    let mut used = BTreeSet::new();
    let mut enabled = Vec::new();
    for plugin in defaults.enabled.iter().filter(|p| !disabled(&p.name)) {
        // A default plugin that is configured anew keeps its place.
        match replaced(&plugin.name) {
            Some(at) => {
                used.insert(at);
                enabled.push(custom.enabled[at].clone());
            }
            None => enabled.push(plugin.clone()),
        }
    }
    enabled
        .extend(custom.enabled.iter().enumerate().filter(|(i, _)| !used.contains(i)).map(|(_, p)| p.clone()));
    PluginSet { enabled, disabled: custom.disabled.clone() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The names and weights of `multiPoint` and of `score`.
    fn check(plugins: Value, multi_point: &[(&str, i32)], score: &[(&str, i32)]) {
        let mut document: Document =
            serde_json::from_value(json!({"profiles": [{"plugins": plugins}]})).unwrap();
        complete(&mut document);
        let got = document.profiles[0].plugins.clone().unwrap();
        let listed =
            |set: &PluginSet| set.enabled.iter().map(|p| (p.name.clone(), p.weight)).collect::<Vec<_>>();
        let wanted = |all: &[(&str, i32)]| all.iter().map(|(n, w)| ((*n).to_owned(), *w)).collect::<Vec<_>>();
        assert_eq!(listed(&got.multi_point), wanted(multi_point));
        assert_eq!(listed(&got.score), wanted(score));
    }

    /// The cases of upstream's `TestMergePlugins`.
    #[test]
    fn plugins_are_merged() {
        let without = |names: &[&str]| -> Vec<(&str, i32)> {
            PLUGINS.iter().copied().filter(|(n, _)| !names.contains(n)).collect()
        };
        check(json!(null), &PLUGINS, &[]);
        check(
            json!({"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": "X", "weight": 7}]}}),
            &[("X", 7)],
            &[],
        );
        let mut more = without(&["ImageLocality"]);
        more.push(("X", 0));
        check(
            json!({"multiPoint": {"disabled": [{"name": "ImageLocality"}], "enabled": [{"name": "X"}]}}),
            &more,
            &[],
        );
        let mut heavier = PLUGINS.to_vec();
        heavier[4].1 = 9;
        check(json!({"multiPoint": {"enabled": [{"name": "TaintToleration", "weight": 9}]}}), &heavier, &[]);
        check(
            json!({"score": {"enabled": [{"name": "X", "weight": 2}, {"name": "NodeAffinity", "weight": 5}]}}),
            &PLUGINS,
            &[("X", 2), ("NodeAffinity", 5)],
        );
    }

    #[test]
    fn arguments_have_defaults() {
        let mut document = Document::default();
        complete(&mut document);
        let profile = &document.profiles[0];
        assert_eq!(profile.scheduler_name.as_deref(), Some(SCHEDULER_NAME));
        assert_eq!(profile.plugin_config.len(), 8);
        let of = |name: &str| profile.plugin_config.iter().find(|c| c.name == name).map(|c| json!(c.args));
        let two = json!([{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]);
        assert_eq!(of("NodeResourcesBalancedAllocation"), Some(json!({ "resources": two })));
        assert_eq!(
            of("DefaultPreemption"),
            Some(json!({"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100}))
        );
    }
}
