//! The rules of a configuration, with upstream's paths and texts (`apis/config/validation`).

use std::collections::{BTreeMap, BTreeSet};

use api::field::{Errors, Path, Plain, Raw};
use api::{FeatureGates, Gate, names};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::args::{
    DefaultPreemptionArgs, DynamicResourcesArgs, InterPodAffinityArgs, NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs, PluginArgs, PodTopologySpreadArgs, ShapePoint, VolumeBindingArgs,
};
use super::document::{Document, LeaderElection, PluginSet, Profile, VERSION};
use super::extenders;

/// Plugins that v1 does not have any more.
const GONE: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];

/// Says what is wrong, all at once.
pub(super) fn validate(document: &Document, gates: FeatureGates) -> Result<(), String> {
    let mut errors = Errors::new();
    let root = Path::root("");
    let connection = root.field("clientConnection");
    if document.client_connection.burst < 0 {
        let burst = i64::from(document.client_connection.burst);
        errors.invalid(&connection.field("burst"), burst, "must be non-negative");
    }
    leader_election(&mut errors, &root.field("leaderElection"), &document.leader_election);
    if document.parallelism <= 0 {
        let value = i64::from(document.parallelism);
        errors.invalid(&root.field("parallelism"), value, "should be an integer value greater than zero");
    }
    profiles(&mut errors, &root.field("profiles"), &document.profiles, gates);
    percentage(&mut errors, &root.field("percentageOfNodesToScore"), document.percentage_of_nodes_to_score);
    if document.pod_initial_backoff_seconds <= 0 {
        let value = document.pod_initial_backoff_seconds;
        errors.invalid(&root.field("podInitialBackoffSeconds"), value, "must be greater than 0");
    }
    if document.pod_max_backoff_seconds < document.pod_initial_backoff_seconds {
        let why = "must be greater than or equal to PodInitialBackoffSeconds";
        errors.invalid(&root.field("podMaxBackoffSeconds"), document.pod_max_backoff_seconds, why);
    }
    extenders::validate(&mut errors, &root.field("extenders"), &document.extenders);
    let all: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    match all.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

/// The rules of upstream's `ValidateLeaderElectionConfiguration`, and the lock that there is.
fn leader_election(errors: &mut Errors, at: &Path<'_>, said: &LeaderElection) {
    if !said.leader_elect {
        return;
    }
    let mut times = [None; 3];
    let texts = [&said.lease_duration, &said.renew_deadline, &said.retry_period];
    for ((name, text), time) in
        ["leaseDuration", "renewDeadline", "retryPeriod"].into_iter().zip(texts).zip(&mut times)
    {
        *time = api::time::parse_duration(text);
        match time {
            None => errors.invalid(&at.field(name), text.as_str(), "invalid duration"),
            Some(time) if !time.is_positive() => {
                errors.invalid(&at.field(name), shown(*time), "must be greater than zero");
            }
            Some(_) => {}
        }
    }
    if let [Some(lease), Some(renew), _] = times
        && lease <= renew
    {
        // Upstream shows the other of the two values.
        errors.invalid(&at.field("leaseDuration"), shown(renew), "must be greater than `RenewDeadline`");
    }
    for (name, value) in [
        ("resourceLock", &said.resource_lock),
        ("resourceNamespace", &said.resource_namespace),
        ("resourceName", &said.resource_name),
    ] {
        if value.is_empty() {
            errors.required(&at.field(name), "");
        }
    }
    if said.resource_lock != "leases" {
        errors.invalid(
            &at.field("resourceLock"),
            said.resource_lock.as_str(),
            "resourceLock value must be \"leases\"",
        );
    }
}

/// A duration as upstream shows it in an error.
fn shown(time: SignedDuration) -> Raw {
    Raw(api::time::format_duration(time).to_string())
}

fn percentage(errors: &mut Errors, at: &Path<'_>, value: i32) {
    if !(0..=100).contains(&value) {
        errors.invalid(at, i64::from(value), "not in valid range [0-100]");
    }
}

fn profiles(errors: &mut Errors, at: &Path<'_>, all: &[Profile], gates: FeatureGates) {
    let mut names = BTreeMap::new();
    for (i, profile) in all.iter().enumerate() {
        let at = at.index(i);
        let name = profile.scheduler_name.as_deref().unwrap_or_default();
        if name.is_empty() {
            errors.required(&at.field("schedulerName"), "");
        }
        if let Some(value) = profile.percentage_of_nodes_to_score {
            percentage(errors, &at.field("percentageOfNodesToScore"), value);
        }
        plugins(errors, &at, profile, gates);
        if let Some(first) = names.insert(name, i) {
            let other = format!("profiles[{first}].schedulerName");
            errors.duplicate(&at.field("schedulerName"), Raw(other));
        }
    }
    queue_sort(errors, at, all);
}

fn plugins(errors: &mut Errors, at: &Path<'_>, profile: &Profile, gates: FeatureGates) {
    let in_plugins = at.field("plugins");
    let gone = |name: &str| {
        GONE.contains(&name).then(|| {
            let version = api::go::quote(VERSION);
            format!("was invalid in version {version} (KubeSchedulerConfiguration is version {version})")
        })
    };
    for (point, set) in profile.plugins.iter().flat_map(super::document::Plugins::sets) {
        let in_point = in_plugins.field(point);
        let enabled = in_point.field("enabled");
        for (i, plugin) in set.enabled.iter().enumerate() {
            if let Some(why) = gone(&plugin.name) {
                errors.invalid(&enabled.index(i), plugin.name.as_str(), why);
            }
        }
    }
    let mut seen = BTreeSet::new();
    let configs = at.field("pluginConfig");
    for (i, config) in profile.plugin_config.iter().enumerate() {
        let at = configs.index(i);
        if !seen.insert(config.name.as_str()) {
            errors.duplicate(&at, config.name.as_str());
        }
        if let Some(why) = gone(&config.name) {
            errors.invalid(&at, config.name.as_str(), why);
            continue;
        }
        let at = at.field("args");
        match &config.args {
            PluginArgs::DefaultPreemption(args) => default_preemption(errors, &at, args),
            PluginArgs::InterPodAffinity(args) => inter_pod_affinity(errors, &at, args),
            PluginArgs::NodeResourcesFit(args) => node_resources_fit(errors, &at, args),
            PluginArgs::NodeResourcesBalancedAllocation(args) => balanced_allocation(errors, &at, args),
            PluginArgs::PodTopologySpread(args) => pod_topology_spread(errors, &at, args),
            PluginArgs::VolumeBinding(args) => volume_binding(errors, &at, args, gates),
            PluginArgs::DynamicResources(args) => dynamic_resources(errors, &at, args),
            PluginArgs::NodeAffinity(_) | PluginArgs::Other(_) => {}
        }
    }
}

fn dynamic_resources(errors: &mut Errors, at: &Path<'_>, args: &DynamicResourcesArgs) {
    let seconds = |text: &str| api::time::parse_duration(text).map(|d| d.as_secs_f64());
    if seconds(&args.filter_timeout).is_none_or(|s| s < 0.0) {
        errors.invalid(&at.field("filterTimeout"), args.filter_timeout.as_str(), "must be zero or positive");
    }
    if seconds(&args.binding_timeout).is_none_or(|s| s < 1.0) {
        errors.invalid(
            &at.field("bindingTimeout"),
            args.binding_timeout.as_str(),
            "must be at least 1 second",
        );
    }
}

fn queue_sort(errors: &mut Errors, at: &Path<'_>, all: &[Profile]) {
    let of = |p: &Profile| p.plugins.as_ref().map(|p| p.queue_sort.clone()).unwrap_or_default();
    let Some(first) = all.first() else { return };
    let canon: PluginSet = of(first);
    if canon.enabled.len() > 1 {
        let at = at.index(0);
        let at = at.field("plugins");
        let at = at.field("queueSort");
        errors.invalid(
            &at.field("Enabled"),
            canon.enabled.len(),
            "only one queue sort plugin can be enabled",
        );
    }
    for (i, profile) in all.iter().enumerate().skip(1) {
        if of(profile) != canon {
            let at = at.index(i);
            let at = at.field("plugins");
            let shown = serde_json::to_string(&of(profile)).unwrap_or_default();
            errors.invalid(&at.field("queueSort"), Raw(shown), "must be the same for all profiles");
        }
    }
}

fn default_preemption(errors: &mut Errors, at: &Path<'_>, args: &DefaultPreemptionArgs) {
    let (percentage, absolute) = (args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute);
    let at = [at.field("minCandidateNodesPercentage"), at.field("minCandidateNodesAbsolute")];
    if !(0..=100).contains(&percentage) {
        errors.invalid(&at[0], i64::from(percentage), "not in valid range [0, 100]");
    }
    if absolute < 0 {
        errors.invalid(&at[1], i64::from(absolute), "not in valid range [0, inf)");
    }
    if percentage == 0 && absolute == 0 {
        errors.invalid(&at[0], 0i64, "cannot be zero at the same time as minCandidateNodesAbsolute");
        errors.invalid(&at[1], 0i64, "cannot be zero at the same time as minCandidateNodesPercentage");
    }
}

fn inter_pod_affinity(errors: &mut Errors, at: &Path<'_>, args: &InterPodAffinityArgs) {
    let weight = args.hard_pod_affinity_weight;
    if !(0..=100).contains(&weight) {
        errors.invalid(&at.field("hardPodAffinityWeight"), i64::from(weight), "not in valid range [0, 100]");
    }
}

fn node_resources_fit(errors: &mut Errors, at: &Path<'_>, args: &NodeResourcesFitArgs) {
    let ignored = at.field("ignoredResources");
    for (i, name) in args.ignored_resources.iter().enumerate() {
        errors.each(&ignored.index(i), name, names::qualified_name(name));
    }
    let groups = at.field("ignoredResourceGroups");
    for (i, group) in args.ignored_resource_groups.iter().enumerate() {
        let at = groups.index(i);
        if group.contains('/') {
            errors.invalid(&at, group.as_str(), "resource group name can't contain '/'");
        }
        errors.each(&at, group, names::qualified_name(group));
    }
    const STRATEGIES: [&str; 3] = ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];
    let (at, strategy) = (at.field("scoringStrategy"), &args.scoring_strategy);
    if !STRATEGIES.contains(&strategy.type_.as_str()) {
        errors.not_supported(&at.field("type"), strategy.type_.as_str(), &STRATEGIES);
    }
    let resources = at.field("resources");
    for (i, resource) in strategy.resources.iter().enumerate() {
        if !(1..=100).contains(&resource.weight) {
            let why = format!("resource weight of {} not in valid range (0, 100]", resource.name);
            let at = resources.index(i);
            errors.invalid(&at.field("weight"), resource.weight, why);
        }
    }
    let at = at.field("requestedToCapacityRatio");
    match (&strategy.requested_to_capacity_ratio, strategy.type_ == "RequestedToCapacityRatio") {
        (Some(ratio), true) => shape(errors, &at.field("shape"), &ratio.shape),
        (None, true) => errors.required(&at, "must be specified when type is RequestedToCapacityRatio"),
        (Some(_), false) => errors.forbidden(&at, "must be nil when type is not RequestedToCapacityRatio"),
        (None, false) => {}
    }
}

fn shape(errors: &mut Errors, at: &Path<'_>, points: &[ShapePoint]) {
    if points.is_empty() {
        return errors.required(at, "at least one point must be specified");
    }
    if let Some(i) = (1..points.len()).find(|i| points[i - 1].utilization >= points[*i].utilization) {
        let at = at.index(i);
        let value = i64::from(points[i].utilization);
        errors.invalid(&at.field("utilization"), value, "values must be sorted in increasing order");
    }
    for (i, point) in points.iter().enumerate() {
        let at = at.index(i);
        if !(0..=100).contains(&point.utilization) {
            let value = i64::from(point.utilization);
            errors.invalid(&at.field("utilization"), value, "not in valid range [0, 100]");
        }
        if !(0..=10).contains(&point.score) {
            errors.invalid(&at.field("score"), i64::from(point.score), "not in valid range [0, 10]");
        }
    }
}

fn balanced_allocation(errors: &mut Errors, at: &Path<'_>, args: &NodeResourcesBalancedAllocationArgs) {
    let at = at.field("resources");
    let mut seen = BTreeSet::new();
    for (i, resource) in args.resources.iter().enumerate() {
        let at = at.index(i);
        if !seen.insert(&resource.name) {
            errors.duplicate(&at.field("name"), resource.name.as_str());
        }
        if resource.weight != 1 {
            errors.invalid(&at.field("weight"), resource.weight, "must be 1");
        }
    }
}

fn pod_topology_spread(errors: &mut Errors, at: &Path<'_>, args: &PodTopologySpreadArgs) {
    let (kind, all) = (args.defaulting_type.as_str(), args.default_constraints.as_slice());
    let field = at.field("defaultingType");
    match kind {
        "System" if !all.is_empty() => {
            errors.invalid(&field, api::field::Typed(kind), "when .defaultConstraints are not empty");
        }
        "System" | "List" => {}
        _ => errors.not_supported(&field, kind, &["System", "List"]),
    }
    let list = at.field("defaultConstraints");
    for (i, c) in all.iter().enumerate() {
        let at = list.index(i);
        if c.max_skew <= 0 {
            errors.invalid(&at.field("maxSkew"), i64::from(c.max_skew), "not in valid range (0, inf)");
        }
        let key = at.field("topologyKey");
        if c.topology_key.is_empty() {
            errors.required(&key, "can not be empty");
        } else {
            errors.each(&key, &c.topology_key, names::qualified_name(&c.topology_key));
        }
        let when = at.field("whenUnsatisfiable");
        if c.when_unsatisfiable.is_empty() {
            errors.required(&when, "can not be empty");
        } else {
            errors.one_of(&when, &c.when_unsatisfiable, &["DoNotSchedule", "ScheduleAnyway"]);
        }
        if c.label_selector.is_some() {
            let why = "constraint must not define a selector, as they deduced for each pod";
            errors.forbidden(&at.field("labelSelector"), why);
        }
        let same = |o: &TopologySpreadConstraint| {
            o.topology_key == c.topology_key && o.when_unsatisfiable == c.when_unsatisfiable
        };
        if all[..i].iter().any(same) {
            let shown = format!("{{{}, {}}}", c.topology_key, c.when_unsatisfiable);
            errors.duplicate(&at, Plain(&shown));
        }
    }
}

fn volume_binding(errors: &mut Errors, at: &Path<'_>, args: &VolumeBindingArgs, gates: FeatureGates) {
    if args.bind_timeout_seconds < 0 {
        let why = "invalid BindTimeoutSeconds, should not be a negative value";
        errors.invalid(&at.field("bindTimeoutSeconds"), args.bind_timeout_seconds, why);
    }
    if gates.enabled(Gate::StorageCapacityScoring) {
        shape(errors, &at.field("shape"), args.shape.as_deref().unwrap_or_default());
    } else if let Some(shape) = &args.shape {
        let why = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
        let shown = serde_json::to_string(shape).unwrap_or_default();
        errors.invalid(&at.field("shape"), Raw(shown), why);
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::{parse, parse_for};
    use super::{FeatureGates, Gate, PluginArgs, ShapePoint, VERSION};

    /// A configuration's fields, and what the error says, "" for none.
    fn check(fields: &str, expected: &str) {
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{fields}\n"
        );
        let got = parse(text.as_bytes()).err().unwrap_or_default();
        assert_eq!(got, expected, "{fields}");
    }

    fn args(plugin: &str, args: &str, expected: &str) {
        let fields = format!("profiles: [{{pluginConfig: [{{name: {plugin}, args: {args}}}]}}]");
        let expected = expected.replace("ARGS", "profiles[0].pluginConfig[0].args");
        check(&fields, &expected);
    }

    /// After upstream's `TestValidateKubeSchedulerConfigurationV1`.
    #[test]
    fn configurations() {
        check("", "");
        check("profiles: null", "");
        check(
            "parallelism: 0",
            "parallelism: Invalid value: 0: should be an integer value greater than zero",
        );
        check(
            "percentageOfNodesToScore: 101",
            "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        );
        // An empty name has the default.
        check("leaderElection: {resourceName: ''}", "");
        check("leaderElection: {resourceName: other, resourceNamespace: mine, leaseDuration: 60s}", "");
        check("leaderElection: {leaseDuration: 0s, renewDeadline: 0s, retryPeriod: 5s}", "");
        check(
            "leaderElection: {leaseDuration: 20s, renewDeadline: 20s}",
            "leaderElection.leaseDuration: Invalid value: 20s: must be greater than `RenewDeadline`",
        );
        check(
            "leaderElection: {leaseDuration: 1m, renewDeadline: -1s, retryPeriod: -2s}",
            "[leaderElection.renewDeadline: Invalid value: -1s: must be greater than zero, \
             leaderElection.retryPeriod: Invalid value: -2s: must be greater than zero]",
        );
        check("leaderElection: {leaseDuration: -1s, leaderElect: false}", "");
        check(
            "leaderElection: {leaseDuration: soon}",
            "leaderElection.leaseDuration: Invalid value: \"soon\": invalid duration",
        );
        check(
            "leaderElection: {resourceLock: configmap}",
            "leaderElection.resourceLock: Invalid value: \"configmap\": resourceLock value must be \"leases\"",
        );
        check(
            "podInitialBackoffSeconds: 0",
            "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
        );
        check(
            "podMaxBackoffSeconds: 0",
            "podMaxBackoffSeconds: Invalid value: 0: must be greater than or equal to PodInitialBackoffSeconds",
        );
        check("profiles: [{schedulerName: a}, {}]", "profiles[1].schedulerName: Required value");
        check(
            "profiles: [{schedulerName: a}, {schedulerName: a}]",
            "profiles[1].schedulerName: Duplicate value: profiles[0].schedulerName",
        );
        check(
            "profiles: [{schedulerName: a, percentageOfNodesToScore: -1}]",
            "profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
        );
        check(
            "profiles: [{plugins: {score: {enabled: [{name: EBSLimits}]}}}]",
            "profiles[0].plugins.score.enabled[0]: Invalid value: \"EBSLimits\": was invalid in version \
             \"kubescheduler.config.k8s.io/v1\" (KubeSchedulerConfiguration is version \"kubescheduler.config.k8s.io/v1\")",
        );
        check(
            "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {enabled: [{name: X}]}}}]",
            "profiles[1].plugins.queueSort: Invalid value: {\"enabled\":[{\"name\":\"X\",\"weight\":0}],\"disabled\":[]}: must be the same for all profiles",
        );
    }

    /// After upstream's `TestValidateKubeSchedulerConfigurationV1`, its cases of extenders.
    #[test]
    fn extenders() {
        check(
            "extenders: [{urlPrefix: 'http://a', prioritizeVerb: prioritize, weight: 1, bindVerb: bind}]",
            "",
        );
        check(
            "extenders: [{prioritizeVerb: prioritize, weight: -1}]",
            "extenders[0].weight: Invalid value: -1: must have a positive weight applied to it",
        );
        check(
            "extenders: [{bindVerb: bind, managedResources: [{name: foo.com/bar}]}, {bindVerb: bar, managedResources: [{name: foo.com/bar}]}]",
            "[extenders[1].managedResources[0].name: Invalid value: \"foo.com/bar\": duplicate extender managed resource name, \
             extenders: Invalid value: \"found 2 extenders implementing bind\": only one extender can implement bind]",
        );
        check(
            "extenders: [{managedResources: [{name: kubernetes.io/foo}]}]",
            "extenders[0].managedResources[0].name: Invalid value: \"kubernetes.io/foo\": is an invalid extended resource name",
        );
        check(
            "extenders: [{filterVerbs: a}]",
            "strict decoding error: unknown field \"extenders[0].filterVerbs\"",
        );
        let all = "extenders: [{urlPrefix: 'https://a', enableHTTPS: true, httpTimeout: 2s, ignorable: true, nodeCacheCapable: true, \
             tlsConfig: {insecure: true, caData: YQ==}, managedResources: [{name: a.com/b, ignoredByScheduler: true}]}]";
        check(all, "");
    }

    #[test]
    fn files_are_read_strictly() {
        check("profile: []", "strict decoding error: unknown field \"profile\"");
        check("profiles: [{plugin: {}}]", "strict decoding error: unknown field \"profiles[0].plugin\"");
        let about = "decoding .profiles[0].pluginConfig[0]";
        args(
            "InterPodAffinity",
            "{hardWeight: 1}",
            &format!(
                "strict decoding error: {about}: decoding args for plugin InterPodAffinity: strict decoding error: unknown field \"hardWeight\""
            ),
        );
        args(
            "InterPodAffinity",
            "{kind: NodeAffinityArgs, apiVersion: kubescheduler.config.k8s.io/v1}",
            &format!(
                "{about}: args for plugin InterPodAffinity were not of type InterPodAffinityArgs.kubescheduler.config.k8s.io, got NodeAffinityArgs.kubescheduler.config.k8s.io"
            ),
        );
        args("SomebodyElses", "{any: {thing: 1}}", "");
        let parsed = |text: &str| parse(text.as_bytes()).unwrap_err();
        assert!(parsed("kind: KubeSchedulerConfiguration").starts_with("Object 'apiVersion' is missing"));
        assert_eq!(
            parsed("kind: KubeSchedulerConfiguration\napiVersion: kubescheduler.config.k8s.io/v1beta3"),
            "no kind \"KubeSchedulerConfiguration\" is registered for version \"kubescheduler.config.k8s.io/v1beta3\""
        );
    }

    /// After upstream's tests of `validation_pluginargs.go`.
    #[test]
    fn arguments() {
        args(
            "DefaultPreemption",
            "{minCandidateNodesPercentage: 101}",
            "ARGS.minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]",
        );
        args(
            "DefaultPreemption",
            "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
            "[ARGS.minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute, \
             ARGS.minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as minCandidateNodesPercentage]",
        );
        args(
            "InterPodAffinity",
            "{hardPodAffinityWeight: 101}",
            "ARGS.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
        );
        args(
            "NodeResourcesFit",
            "{scoringStrategy: {type: Most}}",
            "ARGS.scoringStrategy.type: Unsupported value: \"Most\": supported values: \"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\"",
        );
        args("NodeResourcesFit", "{scoringStrategy: {resources: [{name: cpu}]}}", "");
        args(
            "NodeResourcesFit",
            "{scoringStrategy: {resources: [{name: cpu, weight: 101}]}}",
            "ARGS.scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]",
        );
        args(
            "NodeResourcesFit",
            "{scoringStrategy: {type: RequestedToCapacityRatio}}",
            "ARGS.scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is RequestedToCapacityRatio",
        );
        args(
            "NodeResourcesFit",
            "{ignoredResourceGroups: [a/b]}",
            "ARGS.ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/'",
        );
        args(
            "NodeResourcesBalancedAllocation",
            "{resources: [{name: cpu, weight: 2}]}",
            "ARGS.resources[0].weight: Invalid value: 2: must be 1",
        );
        let constraint = "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}";
        args(
            "PodTopologySpread",
            &format!("{{defaultConstraints: [{constraint}]}}"),
            "ARGS.defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty",
        );
        args(
            "PodTopologySpread",
            &format!("{{defaultingType: List, defaultConstraints: [{constraint}, {constraint}]}}"),
            "ARGS.defaultConstraints[1]: Duplicate value: \"{zone, ScheduleAnyway}\"",
        );
        args(
            "VolumeBinding",
            "{bindTimeoutSeconds: -1}",
            "ARGS.bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
        );
    }

    /// The shape of VolumeBinding's scores is there only where its gate is on, and is a usual one if none is said.
    #[test]
    fn scores_of_storage() {
        let gates = FeatureGates::default().with(Gate::StorageCapacityScoring, true);
        let text = |shape: &str| {
            format!(
                "apiVersion: {VERSION}\nkind: KubeSchedulerConfiguration\nprofiles:\n- pluginConfig:\n  - name: VolumeBinding\n    args: {{{shape}}}\n"
            )
        };
        let told = |shape: &str, gates: FeatureGates| {
            let document = parse_for(text(shape).as_bytes(), gates)?;
            let args = document.profiles[0].plugin_config.iter().find_map(|c| match &c.args {
                PluginArgs::VolumeBinding(args) => Some(args.shape.clone()),
                _ => None,
            });
            Ok::<_, String>(args.flatten())
        };
        let (none, own) = ("", "shape: [{utilization: 0, score: 1}, {utilization: 50, score: 9}]");
        let points = |all: Option<Vec<ShapePoint>>| {
            all.map(|all| all.iter().map(|p| (p.utilization, p.score)).collect::<Vec<_>>())
        };
        assert_eq!(points(told(none, FeatureGates::default()).unwrap()), None);
        assert_eq!(points(told(none, gates).unwrap()), Some(vec![(0, 10), (100, 0)]));
        assert_eq!(points(told(own, gates).unwrap()), Some(vec![(0, 1), (50, 9)]));
        let why = told(own, FeatureGates::default()).unwrap_err();
        assert!(why.contains(
            "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        ));
        let why =
            told("shape: [{utilization: 50, score: 11}, {utilization: 50, score: 0}]", gates).unwrap_err();
        let at = "profiles[0].pluginConfig[0].args.shape";
        for part in [
            format!("{at}[1].utilization: Invalid value: 50: values must be sorted in increasing order"),
            format!("{at}[0].score: Invalid value: 11: not in valid range [0, 10]"),
        ] {
            assert!(why.contains(&part), "{why}");
        }
    }
}
