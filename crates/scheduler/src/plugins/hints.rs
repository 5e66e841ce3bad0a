//! The cases of upstream's tests of queueing hints (`Test_isSchedulableAfter…` of each plugin), with upstream's answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceClaim;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cache::Cache;
use crate::config::args::PluginArgs;
use crate::events::{self, About, Events, Happening, Pair};
use crate::framework::plugin::Plugin;
use crate::inventory::News;
use crate::pod::{PodInfo, PodView};
use crate::resources::is_reduced;

#[derive(Deserialize)]
struct Case {
    plugin: String,
    #[serde(rename = "fn")]
    function: String,
    case: String,
    pod: Value,
    old: Option<Value>,
    new: Option<Value>,
    kind: String,
    /// The arguments of the plugin.
    args: Option<Value>,
    /// The claims that are there.
    #[serde(default)]
    claims: Vec<ResourceClaim>,
    hint: String,
}

/// Upstream's answers that are not those here, and why.
const OTHERS: &[(&str, &str)] = &[(
    "VolumeBinding isSchedulableAfterCSIDriverChange driver_name_in_pod_and_csidriver_name_are_different",
    "see the DIFFERENCE at VolumeBinding's hint",
)];

fn pair<T: DeserializeOwned>(case: &Case) -> Pair<T> {
    let read = |v: &Option<Value>| v.clone().map(|v| Arc::new(serde_json::from_value(v).unwrap()));
    Pair { old: read(&case.old), new: read(&case.new) }
}

fn pick<T>(pair: &Pair<T>, [added, changed, deleted]: [Events; 3]) -> Events {
    match (&pair.old, &pair.new) {
        (None, _) => added,
        (_, None) => deleted,
        _ => changed,
    }
}

/// The event of a Pod's change; `None` if that is no event, since it has no room on any node.
fn of_pod(case: &Case, pod: &PodInfo) -> Option<Happening> {
    let read =
        |v: &Option<Value>| v.clone().map(|v| Arc::new(PodView::new(serde_json::from_value(v).unwrap())));
    let (old, new) = (read(&case.old), read(&case.new));
    let both = old.iter().chain(&new);
    let kinds = if let (Some(before), Some(after)) = (&old, &new)
        && after.node().is_none()
    {
        if after.uid() != pod.uid() {
            return None;
        }
        events::of_own(before, after)
    } else if both.clone().any(|p| p.node().is_none() && p.nominated().is_empty()) {
        return None;
    } else {
        match (&old, &new) {
            (None, _) => Events::POD_ADDED,
            (_, None) => Events::POD_DELETED,
            (Some(old), Some(new)) => {
                let pick = |is: bool, kind: Events| if is { kind } else { Events::NONE };
                pick(old.labels != new.labels, Events::POD_LABELS)
                    | pick(is_reduced(&old.requests.fit, &new.requests.fit), Events::POD_SCALED_DOWN)
            }
        }
    };
    Some(Happening::new(kinds, About::Pod(Pair { old, new })))
}

fn happening(case: &Case, pod: &PodInfo) -> Option<Happening> {
    let none = Events::NONE;
    macro_rules! object {
        ($about:ident, $added:expr, $changed:expr, $deleted:expr) => {{
            let pair = pair(case);
            Happening::new(pick(&pair, [$added, $changed, $deleted]), About::$about(pair))
        }};
    }
    Some(match case.kind.as_str() {
        "v1.Pod" => return of_pod(case, pod),
        "v1.Node" => {
            let pair = pair(case);
            let kinds = match (&pair.old, &pair.new) {
                (Some(old), Some(new)) => events::of_node(old, new),
                _ => pick(&pair, [Events::NODE_ADDED, none, Events::NODE_DELETED]),
            };
            Happening::new(kinds, About::Node(pair))
        }
        "v1.PersistentVolume" => object!(Volume, Events::VOLUME_ADDED, Events::VOLUME_CHANGED, none),
        "v1.PersistentVolumeClaim" => object!(Claim, Events::CLAIM_ADDED, Events::CLAIM_CHANGED, none),
        "v1.StorageClass" => object!(Class, Events::CLASS_ADDED, Events::CLASS_CHANGED, none),
        "v1.CSINode" => object!(CsiNode, Events::CSI_NODE_ADDED, Events::CSI_NODE_CHANGED, none),
        "v1.CSIDriver" => object!(Driver, none, Events::DRIVER_CHANGED, none),
        "v1.CSIStorageCapacity" => {
            object!(Capacity, Events::CAPACITY_ADDED, Events::CAPACITY_CHANGED, none)
        }
        "v1.VolumeAttachment" => object!(Attachment, none, none, Events::ATTACHMENT_DELETED),
        "v1.DeviceClass" => {
            object!(DeviceClass, Events::DEVICE_CLASS_ADDED, Events::DEVICE_CLASS_CHANGED, none)
        }
        "v1.ResourceClaim" => {
            let all =
                [Events::DEVICE_CLAIM_ADDED, Events::DEVICE_CLAIM_CHANGED, Events::DEVICE_CLAIM_DELETED];
            let pair = pair(case);
            Happening::new(pick(&pair, all), About::DeviceClaim(pair))
        }
        other => panic!("{other}"),
    })
}

/// The plugin of a case.
fn plugin(case: &Case) -> Plugin {
    let all = super::registry().unwrap();
    let name = all.names().find(|n| *n == case.plugin).unwrap();
    let args = match &case.args {
        Some(args) => PluginArgs::parse(name, args.clone()).unwrap(),
        None => PluginArgs::of(name),
    };
    all.get(name).unwrap()(&args).unwrap()
}

#[test]
fn upstreams_cases() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for line in include_str!("cases/hints.jsonl").lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let pod = PodInfo::new(serde_json::from_value(case.pod.clone()).unwrap());
        let cluster = Cache::default();
        for claim in &case.claims {
            let change = client::Change::Added(Arc::new(claim.clone()));
            cluster.devices().take(&News::Claim(change));
        }
        let plugin = plugin(&case);
        let lifts = happening(&case, &pod).is_some_and(|what| {
            if let About::DeviceClaim(Pair { new: Some(new), .. }) = &what.about {
                cluster.devices().take(&News::Claim(client::Change::Added(new.clone())));
            }
            let hint = plugin.hint.as_ref();
            plugin.lifted_by.meets(what.kinds)
                && hint.is_none_or(|hint| hint.lifts(&pod, &what, &cluster).unwrap())
        });
        let name = format!("{} {} {}", case.plugin, case.function, case.case);
        let other = OTHERS.iter().any(|(n, why)| *n == name && !why.is_empty());
        if lifts != ((case.hint == "Queue") != other) {
            wrong.push(format!("{name}: {lifts}, not {}\n{line}", case.hint));
        }
        *counts.entry(case.plugin).or_default() += 1;
    }
    assert!(wrong.is_empty(), "{} of {counts:?}\n{}", wrong.len(), wrong.join("\n\n"));
    let counts: Vec<(&str, usize)> = counts.iter().map(|(plugin, n)| (plugin.as_str(), *n)).collect();
    let expected = [
        ("DynamicResources", 11),
        ("InterPodAffinity", 31),
        ("NodeAffinity", 9),
        ("NodeDeclaredFeatures", 3),
        ("NodePorts", 4),
        ("NodeResourcesFit", 26),
        ("NodeUnschedulable", 8),
        ("NodeVolumeLimits", 18),
        ("PodTopologySpread", 35),
        ("SchedulingGates", 2),
        ("TaintToleration", 6),
        ("VolumeBinding", 31),
        ("VolumeRestrictions", 15),
        ("VolumeZone", 12),
    ];
    assert_eq!(counts, expected);
}
