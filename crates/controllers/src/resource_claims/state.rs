//! The state of the controller of claims: the objects that it knows, and its work.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use api::FeatureGates;
use client::{Cached, Client, Index, Informer, Key, Queue, Recorder};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use objects::claims;
use parking_lot::Mutex;

use crate::common::pods;
use crate::views::PodView;

/// How many that are gone are remembered.
const REMEMBERED: usize = 500;

/// A Pod, a PodGroup or a claim that is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    Pod(Key),
    Group(Key),
    Claim(Key),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) => write!(f, "pod:{key}"),
            Self::Group(key) => write!(f, "podgroup:{key}"),
            Self::Claim(key) => write!(f, "claim:{key}"),
        }
    }
}

/// The Pods and PodGroups that were seen to go, by uid: no request is needed to know that.
#[derive(Default)]
pub(super) struct Gone {
    pub(super) uids: HashSet<String>,
    order: VecDeque<String>,
}

impl Gone {
    pub(super) fn add(&mut self, uid: &str) {
        if self.uids.insert(uid.to_owned()) {
            self.order.push_back(uid.to_owned());
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }
}

/// The attempts to make claims, by whether they succeeded and whether an administrator's access was asked for.
#[derive(Default)]
pub(super) struct Attempts(pub(super) [[AtomicU64; 2]; 2]);

/// The controller of claims on devices.
pub(crate) struct ResourceClaims {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) gates: FeatureGates,
    pub(super) pods: Informer<PodView>,
    pub(super) by_claim: Index<PodView>,
    pub(super) by_template: Index<PodView>,
    /// The PodGroups, where they have claims.
    pub(super) groups: Option<PodGroups>,
    pub(super) claims: Informer<ResourceClaim>,
    pub(super) by_owner: Index<ResourceClaim>,
    pub(super) templates: Informer<ResourceClaimTemplate>,
    pub(super) queue: Queue<Work>,
    pub(super) gone: Mutex<Gone>,
    /// Claims that were made and are not shown yet, by the holder's uid and the place.
    pub(super) made: Mutex<HashMap<(String, String), String>>,
    pub(super) attempts: Arc<Attempts>,
}

/// The PodGroups, and the Pods in each.
pub(super) struct PodGroups {
    pub(super) all: Informer<PodGroup>,
    pub(super) by_claim: Index<PodGroup>,
    pub(super) by_template: Index<PodGroup>,
    pub(super) members: Index<PodView>,
}

impl PodGroups {
    pub(super) fn new(all: Informer<PodGroup>, pods: &Informer<PodView>) -> Self {
        let by_claim = all.index("device claim", |group| {
            let named = claims::places_in_group(group)
                .iter()
                .filter_map(|place| claims::name_in_group(group, place).ok().flatten());
            named.map(|(name, _)| pods::claim_key(group.namespace(), name).into()).collect()
        });
        let by_template = all.index("claim template", |group| {
            let places = claims::places_in_group(group).iter();
            let templates = places.filter_map(|place| place.resource_claim_template_name.as_ref());
            templates.map(|name| pods::claim_key(group.namespace(), name).into()).collect()
        });
        Self { all, by_claim, by_template, members: pods::by_group(pods) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_are_remembered() {
        let mut gone = Gone::default();
        (0..2 * REMEMBERED).for_each(|i| gone.add(&i.to_string()));
        assert_eq!((gone.uids.len(), gone.order.len()), (REMEMBERED, REMEMBERED));
        assert!(gone.uids.contains(&(2 * REMEMBERED - 1).to_string()) && !gone.uids.contains("0"));
    }
}
