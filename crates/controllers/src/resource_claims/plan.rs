//! The decisions about one claim, and about one place of a Pod.

use client::Cached;
use k8s_openapi::Resource;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimStatus, ResourceClaimTemplate};
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use objects::claims::{
    self, FINALIZER, POD_CLAIM_NAME, controller, is_allocated, is_protected, reserved_for,
};

use crate::views::PodView;

/// The room for the prefix of a generated name, to which a hyphen and five characters are added.
const PREFIX: usize = 57;

/// Whether a Pod will never use its claims again: it has ended, or goes before it has a node.
pub(super) fn is_done(pod: &PodView) -> bool {
    pod.is_terminal() || pod.is_deleting() && pod.node.is_empty()
}

/// The owner of a claim, as the cache shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The claim was made for nobody, or the Pod is not known.
    Unknown,
    /// The Pod may still use the claim.
    Uses,
    /// The Pod is done, or another has its name.
    Done,
}

/// The Pod for which a claim was made: name and uid.
pub(crate) fn owner(claim: &ResourceClaim) -> Option<(&str, &str)> {
    let owner = controller(claim).filter(|o| o.api_version == "v1" && o.kind == "Pod")?;
    Some((&owner.name, &owner.uid))
}

/// This is what is to be done about a claim, in this order.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Plan {
    /// Its new status.
    pub(super) status: Option<ResourceClaimStatus>,
    /// Whether its finalizer goes.
    pub(super) unprotect: bool,
    /// Whether it is deleted.
    pub(super) delete: bool,
}

/// Decides about a claim: `keep` says for each consumer whether it may still use the claim.
pub(super) fn plan(claim: &ResourceClaim, keep: &[bool], owner: Owner) -> Plan {
    let reserved = reserved_for(claim);
    let kept = |i: usize| keep.get(i).copied().unwrap_or(true);
    let remaining: Vec<_> =
        reserved.iter().enumerate().filter(|(i, _)| kept(*i)).map(|(_, r)| r.clone()).collect();
    let (free, protected) = (remaining.is_empty(), is_protected(claim));
    let deleting = claim.metadata.deletion_timestamp.is_some();
    let mut plan = Plan { delete: free && owner == Owner::Done, ..Plan::default() };
    let fewer = remaining.len() < reserved.len();
    // Once nobody uses it any more, its devices are free for others. A claim that nobody has used yet keeps them.
    let release = protected && free && (fewer || deleting);
    if fewer || release && is_allocated(claim) {
        let mut status = claim.status.clone().unwrap_or_default();
        status.reserved_for = (!free).then_some(remaining);
        if release {
            status.allocation = None;
        }
        plan.unprotect = protected && status.allocation.is_none();
        plan.status = Some(status);
    } else {
        plan.unprotect = release;
    }
    plan
}

/// The claim without its finalizer.
pub(super) fn unprotected(mut claim: ResourceClaim) -> ResourceClaim {
    claim.metadata.finalizers.iter_mut().for_each(|all| all.retain(|f| f != FINALIZER));
    claim
}

/// A Pod or a PodGroup, for which claims are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder<'a> {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
}

impl<'a> Holder<'a> {
    pub(super) fn pod(pod: &'a PodView) -> Self {
        let (namespace, name, uid) = (pod.namespace(), pod.name(), pod.uid());
        Self { api_version: "v1", kind: "Pod", namespace, name, uid }
    }
    pub(super) fn group(group: &'a PodGroup) -> Self {
        let (namespace, name, uid) = (group.namespace(), group.name(), group.uid());
        Self { api_version: PodGroup::API_VERSION, kind: PodGroup::KIND, namespace, name, uid }
    }
}

/// The uid of the Pod or PodGroup for which a claim was made.
pub(super) fn holder_uid(claim: &ResourceClaim) -> Option<&str> {
    let is_holder = |o: &&OwnerReference| match o.kind.as_str() {
        "Pod" => o.api_version == "v1",
        "PodGroup" => {
            o.api_version.strip_prefix(claims::GROUP).is_some_and(|version| version.starts_with('/'))
        }
        _ => false,
    };
    controller(claim).filter(is_holder).map(|o| o.uid.as_str())
}

/// The claim of a place, made of a template.
pub(super) fn claim_for(holder: Holder<'_>, place: &str, template: &ResourceClaimTemplate) -> ResourceClaim {
    let of_template = template.spec.metadata.clone().unwrap_or_default();
    let mut annotations = of_template.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM_NAME.to_owned(), place.to_owned());
    let owner = OwnerReference {
        api_version: holder.api_version.to_owned(),
        kind: holder.kind.to_owned(),
        name: holder.name.to_owned(),
        uid: holder.uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(prefix(holder.name, place)),
            namespace: Some(holder.namespace.to_owned()),
            owner_references: Some(vec![owner]),
            annotations: Some(annotations),
            labels: of_template.labels,
            ..ObjectMeta::default()
        },
        spec: template.spec.spec.clone(),
        status: None,
    }
}

/// The prefix of a claim's name: that of its holder and the place, both cut in proportion if they are long.
pub(super) fn prefix(holder: &str, place: &str) -> String {
    let whole = format!("{holder}-{place}-");
    if whole.len() <= PREFIX {
        return whole;
    }
    // Names are ASCII.
    let cut = |name: &str| name.get(..name.len() * PREFIX / whole.len()).unwrap_or(name).to_owned();
    format!("{}-{}", cut(holder), cut(place))
}

/// Whether a claim asks for an administrator's access.
pub(super) fn wants_admin(claim: &ResourceClaim) -> bool {
    let requests = claim.spec.devices.iter().flat_map(|d| d.requests.iter().flatten());
    requests.filter_map(|r| r.exactly.as_ref()).any(|e| e.admin_access == Some(true))
}

/// Whether a claim has alternatives.
pub(super) fn has_alternatives(claim: &ResourceClaim) -> bool {
    let mut requests = claim.spec.devices.iter().flat_map(|d| d.requests.iter().flatten());
    requests.any(|r| r.first_available.as_ref().is_some_and(|all| !all.is_empty()))
}
