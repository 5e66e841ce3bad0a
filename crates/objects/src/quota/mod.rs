//! The amounts that objects take from ResourceQuotas (upstream: `pkg/quota/v1/evaluator/core`). The controller counts
//! them, and admission reserves them.

mod objects;

use std::collections::{BTreeMap, BTreeSet};

use api::quantity::Quantity;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ResourceQuotaSpec, ScopedResourceSelectorRequirement};

use crate::quantity::ResourceList;

/// Amounts by the name of what is counted.
pub type Usage = BTreeMap<String, Quantity>;

/// A resource, as quotas tell it from others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Pods.
    Pods,
    /// Services.
    Services,
    /// PersistentVolumeClaims.
    Claims,
    /// ResourceClaims.
    DeviceClaims,
    /// Another resource, whose objects are numbered alone: its group and plural.
    Other(String, String),
}

/// The older names of numbers of objects.
const ALIASES: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];

/// The part of a claim's names before which a storage class stands.
const BY_CLASS: &str = ".storageclass.storage.k8s.io/";

/// The end of the names under which devices of a class count that claims ask for.
const OF_DEVICES: &str = ".deviceclass.resource.k8s.io/devices";

const REQUESTS: &str = "requests.";

/// The prefix of extended resources that stand for a class of devices.
const DEVICES: &str = "deviceclass.resource.kubernetes.io/";

impl Kind {
    /// Tells a resource by its group and plural.
    pub fn of(group: &str, plural: &str) -> Self {
        match (group, plural) {
            ("", "pods") => Self::Pods,
            ("", "services") => Self::Services,
            ("", "persistentvolumeclaims") => Self::Claims,
            ("resource.k8s.io", "resourceclaims") => Self::DeviceClaims,
            _ => Self::Other(group.to_owned(), plural.to_owned()),
        }
    }

    /// The group and the plural.
    pub fn resource(&self) -> (&str, &str) {
        match self {
            Self::Pods => ("", "pods"),
            Self::Services => ("", "services"),
            Self::Claims => ("", "persistentvolumeclaims"),
            Self::DeviceClaims => ("resource.k8s.io", "resourceclaims"),
            Self::Other(group, plural) => (group, plural),
        }
    }

    /// Finds the resources whose objects count under a name in a quota.
    pub fn counted_as(name: &str, devices: &DeviceClasses) -> Vec<Self> {
        if let Some(resource) = name.strip_prefix("count/") {
            let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
            return vec![Self::of(group, plural)];
        }
        if ALIASES.contains(&name) {
            return vec![Self::Other(String::new(), name.to_owned())];
        }
        let all = [Self::Pods, Self::Services, Self::Claims, Self::DeviceClaims];
        all.into_iter().filter(|kind| kind.counts(name, devices)).collect()
    }

    /// Whether objects of the resource count under a name in a quota.
    pub fn counts(&self, name: &str, devices: &DeviceClasses) -> bool {
        let (group, plural) = self.resource();
        if name == count_of(group, plural) {
            return true;
        }
        match self {
            Self::Pods => counts_pods(name),
            Self::Services => matches!(name, "services" | "services.nodeports" | "services.loadbalancers"),
            Self::Claims => {
                let is = |n: &str| matches!(n, "persistentvolumeclaims" | "requests.storage");
                is(name) || name.split_once(BY_CLASS).is_some_and(|(_, rest)| is(rest))
            }
            Self::DeviceClaims => {
                name.ends_with(OF_DEVICES)
                    || name.strip_prefix(REQUESTS).is_some_and(|requested| {
                        requested.strip_prefix(DEVICES).is_some_and(|class| devices.has_resource(class))
                            || devices.has_class(requested)
                    })
            }
            Self::Other(group, plural) => group.is_empty() && plural == name && ALIASES.contains(&name),
        }
    }

    /// Whether quotas leave the resource alone (upstream's `DefaultIgnoredResources`).
    pub fn is_ignored(&self) -> bool {
        let Self::Other(group, plural) = self else { return false };
        match group.as_str() {
            "" => matches!(plural.as_str(), "bindings" | "componentstatuses" | "events"),
            "authentication.k8s.io" => matches!(plural.as_str(), "tokenreviews" | "selfsubjectreviews"),
            "authorization.k8s.io" => matches!(
                plural.as_str(),
                "subjectaccessreviews"
                    | "selfsubjectaccessreviews"
                    | "localsubjectaccessreviews"
                    | "selfsubjectrulesreviews"
            ),
            "events.k8s.io" => plural == "events",
            _ => false,
        }
    }

    /// Whether some scope may choose objects of the resource.
    pub fn has_scopes(&self) -> bool {
        matches!(self, Self::Pods | Self::Claims)
    }
}

/// The extended resources of containers that stand for classes of devices, by class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceClasses(BTreeMap<String, String>);

impl DeviceClasses {
    /// Notes a class, and the resource by which containers ask for its devices.
    pub fn insert(&mut self, class: &str, resource: &str) {
        if !resource.is_empty() {
            self.0.insert(class.to_owned(), resource.to_owned());
        }
    }

    fn has_resource(&self, class: &str) -> bool {
        self.0.contains_key(class)
    }

    fn has_class(&self, resource: &str) -> bool {
        self.0.values().any(|r| r == resource)
    }

    /// Adds what the devices of a claim are as extended resources, but for those that its Pod already takes.
    pub(crate) fn add_extended(&self, usage: &mut Usage, of_pod: Option<&Usage>) {
        let mut extended = Usage::new();
        for (name, amount) in usage.iter() {
            let Some(class) = name.strip_suffix(OF_DEVICES).filter(|class| !class.is_empty()) else {
                continue;
            };
            extended.insert(format!("{REQUESTS}{DEVICES}{class}"), amount.clone());
            if let Some(resource) = self.0.get(class) {
                extended.insert(format!("{REQUESTS}{resource}"), amount.clone());
            }
        }
        for (name, mut amount) in extended {
            if let Some(taken) = of_pod.and_then(|pod| pod.get(&name)) {
                amount.sub(taken);
            }
            if amount.sign() > 0 {
                usage.insert(name, amount);
            }
        }
    }
}

/// Whether Pods count under a name in a quota, besides their number.
fn counts_pods(name: &str) -> bool {
    let compute = |name| matches!(name, "cpu" | "memory" | "ephemeral-storage");
    let requested = name.strip_prefix(REQUESTS);
    let plain = requested.or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
    name == "pods"
        || compute(plain)
        || name.starts_with("hugepages-")
        || requested.is_some_and(|n| n.starts_with("hugepages-") || is_extended(n))
}

/// Whether a resource of containers is none of Kubernetes' own.
fn is_extended(name: &str) -> bool {
    name.starts_with(DEVICES)
        || name.contains('/')
            && !name.contains("kubernetes.io/")
            && !name.contains(BY_CLASS)
            && !name.starts_with(REQUESTS)
}

/// The name under which the number of all objects of a resource is counted.
fn count_of(group: &str, plural: &str) -> String {
    if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") }
}

/// An object as quotas see it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counted {
    /// The amounts that it takes as long as it exists.
    always: Usage,
    /// The amounts that it takes until it has ended.
    alive: Usage,
    /// The time at which it is as good as gone, though its node does not say so.
    gone: Option<Timestamp>,
    pub(crate) pod: Option<PodFacts>,
    /// The volume attributes classes of a claim, of which one is enough.
    pub(crate) attributes: Option<Vec<String>>,
    /// The Pod whose extended resources a claim of devices stands for: its name and uid.
    pub(crate) stands_for: Option<(String, String)>,
    /// The claim of devices that stands for a Pod's extended resources, if the Pod says so.
    pub(crate) claim: Option<String>,
}

/// The facts about a Pod by which scopes choose.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PodFacts {
    pub(crate) terminating: bool,
    pub(crate) best_effort: bool,
    pub(crate) priority_class: String,
    pub(crate) cross_namespace: bool,
    /// The names of its containers that say nothing of an amount, by the amount's name in a quota.
    pub(crate) silent: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Counted {
    /// An object that counts by its number alone.
    pub fn number(kind: &Kind) -> Self {
        let (group, plural) = kind.resource();
        let mut always = Usage::from([(count_of(group, plural), Quantity::from_value(1))]);
        if kind.counts(plural, &DeviceClasses::default()) {
            always.insert(plural.to_owned(), Quantity::from_value(1));
        }
        Self { always, ..Self::default() }
    }

    /// Returns the amounts that it takes; of a claim of devices without the extended resources that these are.
    pub fn usage(&self, now: Timestamp) -> Usage {
        let mut all = Usage::new();
        self.add_to(&mut all, now);
        all
    }

    /// Adds what it takes to a sum.
    pub fn add_to(&self, sum: &mut Usage, now: Timestamp) {
        add(sum, &self.always);
        if self.gone.is_none_or(|gone| now <= gone) {
            add(sum, &self.alive);
        }
    }

    /// Returns the amounts that a claim of devices takes. `pod` are those of the Pod for whose extended resources the
    /// claim stands.
    pub fn usage_of_devices(&self, devices: &DeviceClasses, pod: Option<&Usage>) -> Usage {
        let mut all = self.always.clone();
        devices.add_extended(&mut all, pod);
        all
    }

    /// The Pod for whose extended resources a claim of devices stands: its name and uid.
    pub fn stands_for(&self) -> Option<(&str, &str)> {
        self.stands_for.as_ref().map(|(name, uid)| (name.as_str(), uid.as_str()))
    }

    /// Whether it is a Pod whose time is limited.
    pub fn is_terminating(&self) -> bool {
        self.pod.as_ref().is_some_and(|p| p.terminating)
    }

    /// The time at which it takes less than before.
    pub fn gone(&self) -> Option<Timestamp> {
        self.gone.filter(|_| !self.alive.is_empty())
    }

    /// Whether a claim of devices may stand for the extended resources of this Pod.
    pub fn may_be_stood_for_by(&self, claim: &str) -> bool {
        self.claim.as_deref().is_none_or(|named| named == claim)
    }

    /// Whether a requirement of a quota's scopes chooses it.
    pub fn is_in(&self, scope: &ScopedResourceSelectorRequirement) -> bool {
        if scope.scope_name == "VolumeAttributesClass" {
            return self.attributes.as_ref().is_some_and(|classes| {
                let mut named = classes.iter().filter(|c| !c.is_empty()).peekable();
                if named.peek().is_none() {
                    has_value(scope, &[])
                } else {
                    named.any(|c| has_value(scope, &[c]))
                }
            });
        }
        let Some(pod) = &self.pod else { return false };
        match scope.scope_name.as_str() {
            "Terminating" => pod.terminating,
            "NotTerminating" => !pod.terminating,
            "BestEffort" => pod.best_effort,
            "NotBestEffort" => !pod.best_effort,
            "CrossNamespacePodAffinity" => pod.cross_namespace,
            "PriorityClass" if pod.priority_class.is_empty() => has_value(scope, &[]),
            "PriorityClass" => has_value(scope, &[&pod.priority_class]),
            _ => false,
        }
    }

    /// Whether all requirements choose it.
    pub fn is_in_all(&self, scopes: &[ScopedResourceSelectorRequirement]) -> bool {
        scopes.iter().all(|scope| self.is_in(scope))
    }

    /// Checks that a Pod's containers say how much they need of what a quota limits.
    ///
    /// # Errors
    /// Upstream's text.
    pub fn says_enough<'n>(&self, limited: impl IntoIterator<Item = &'n str>) -> Result<(), String> {
        let Some(pod) = &self.pod else { return Ok(()) };
        let limited: BTreeSet<&str> = limited.into_iter().collect();
        let of = |(name, containers): (&str, &BTreeSet<String>)| {
            format!("{name} for: {}", containers.iter().cloned().collect::<Vec<_>>().join(","))
        };
        let missing = limited.iter().filter_map(|name| pod.silent.get_key_value(name));
        let missing: Vec<String> = missing.map(|(name, containers)| of((name, containers))).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("must specify {}", missing.join("; "))) }
    }
}

/// Whether the values that an object has fit a requirement.
fn has_value(scope: &ScopedResourceSelectorRequirement, has: &[&str]) -> bool {
    let listed = || has.iter().any(|h| scope.values.iter().flatten().any(|v| v == h));
    match scope.operator.as_str() {
        "Exists" => !has.is_empty(),
        "DoesNotExist" => has.is_empty(),
        "In" => listed(),
        "NotIn" => !listed(),
        _ => false,
    }
}

/// The requirements of a quota's scopes, in both of their forms.
pub fn scopes(spec: &ResourceQuotaSpec) -> Vec<ScopedResourceSelectorRequirement> {
    let plain = spec.scopes.iter().flatten().map(|scope| ScopedResourceSelectorRequirement {
        scope_name: scope.clone(),
        operator: "Exists".to_owned(),
        values: None,
    });
    let selector = spec.scope_selector.iter().flat_map(|s| s.match_expressions.iter().flatten());
    plain.chain(selector.cloned()).collect()
}

/// Adds amounts to others.
pub fn add(sum: &mut Usage, more: &Usage) {
    for (name, amount) in more {
        match sum.get_mut(name) {
            Some(sum) => sum.add(amount),
            None => {
                sum.insert(name.clone(), amount.clone());
            }
        }
    }
}

/// Subtracts amounts from others. An amount that is missing, or would be less than nothing, is left out.
pub fn less(usage: &Usage, before: &Usage) -> Usage {
    let rest = |(name, amount): (&String, &Quantity)| {
        let mut rest = amount.clone();
        if let Some(before) = before.get(name) {
            rest.sub(before);
        }
        (rest.sign() > 0).then(|| (name.clone(), rest))
    };
    usage.iter().filter_map(rest).collect()
}

/// Reads amounts; what is malformed counts as nothing.
pub fn read(list: Option<&ResourceList>) -> Usage {
    let parsed = |(name, amount): (&String, _)| {
        let amount: &k8s_openapi::apimachinery::pkg::api::resource::Quantity = amount;
        Some((name.clone(), Quantity::parse(&amount.0).ok()?))
    };
    list.into_iter().flatten().filter_map(parsed).collect()
}

/// Writes amounts.
pub fn write(usage: &Usage) -> ResourceList {
    let written = |(name, amount): (&String, &Quantity)| {
        (name.clone(), k8s_openapi::apimachinery::pkg::api::resource::Quantity(amount.to_string()))
    };
    usage.iter().map(written).collect()
}

/// The time of a Pod's end, by the time at which its deletion was to be over.
fn after_grace(deleted: Timestamp, grace: i64) -> Timestamp {
    deleted.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
