//! The claims of a Pod, and the nodes where they have devices or can get some.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceRequest, ResourceClaim, ResourceClaimConsumerReference,
};
use objects::claims::{self, User};
use objects::node_affinity::term_matches;
use tokio::time::Instant;

use super::conditions;
use super::extended::{self, Special};
use super::settings::{NAME, Settings, deadline, named};
use crate::cache::{Cache, NodeInfo};
use crate::devices::{AllocationError, Allocator, Limits, Outcome, WORK, sort_of};
use crate::framework::verdict::{Rejection, Stop};
use crate::groups::Groups;
use crate::inventory::{Claimed, Devices, Objects, allocation};
use crate::pod::PodInfo;

/// The alternatives of a request at most, by which they are scored (upstream's `FirstAvailableDeviceRequestMaxSize`).
const MOST_ALTERNATIVES: i64 = 8;

/// A Pod's claims, as they are when its turn begins.
#[derive(Debug, Default)]
pub(super) struct Needs {
    pub(super) pod: Option<PodInfo>,
    /// The claims that the Pod names, and then the one that stands for its extended resources, if there is one.
    pub(super) claims: Vec<Arc<ResourceClaim>>,
    /// How many the Pod names.
    named: usize,
    /// The consumers of those: the Pod or its PodGroup.
    pub(super) consumers: Vec<ResourceClaimConsumerReference>,
    /// The devices of claims, by their place among them, that another Pod of the group is on its way with.
    pub(super) shared: BTreeMap<usize, AllocationResult>,
    /// Whether a request has alternatives.
    listed: bool,
    /// No claim for extended resources.
    plain: Arc<Special>,
    /// Looks for devices, if a claim needs some.
    allocator: Option<Allocator>,
    devices: Option<Devices>,
    settings: Option<Settings>,
    /// When the search has to end.
    until: Option<Instant>,
    now: Timestamp,
    seen: Mutex<Notes>,
}

/// This is what was found on nodes.
#[derive(Debug, Default)]
struct Notes {
    /// The claims whose devices were not usable on some node.
    unavailable: BTreeSet<usize>,
    found: HashMap<String, Found>,
    /// The last claim for extended resources, and which it is for.
    special: Option<(Vec<String>, Arc<Special>)>,
}

/// The end of a search.
type Searched = Result<Option<Arc<Vec<AllocationResult>>>, AllocationError>;

/// The refusal of a node on which the search did not find all devices.
fn refusal(node: &NodeInfo, searched: Searched) -> Result<Arc<Vec<AllocationResult>>, Rejection> {
    match searched {
        Ok(Some(results)) => Ok(results),
        Ok(None) => Err(Rejection::lasting(NAME, "cannot allocate all claims")),
        Err(AllocationError::Node(why)) => Err(Rejection::lasting(NAME, why)),
        Err(AllocationError::Failed(why)) => Err(Rejection::failure(NAME, why)),
        Err(AllocationError::TimedOut) => {
            let why = format!("node {}: timed out trying to allocate devices", node.name());
            Err(Rejection::failure(NAME, why))
        }
    }
}

/// Whether a request of a claim has alternatives.
fn has_alternatives(claim: &ResourceClaim) -> bool {
    let requests = claim.spec.devices.iter().flat_map(|d| d.requests.iter().flatten());
    requests.into_iter().any(|r| r.exactly.is_none())
}

/// The devices for a Pod on a node.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// An allocation for each claim that needs one.
    pub(super) results: Arc<Vec<AllocationResult>>,
    /// The claim for extended resources, as it is for this node.
    pub(super) extended: Arc<Special>,
}

/// Checks that the classes are there that a claim names.
fn check_classes(claim: &ResourceClaim, known: &Objects, settings: Settings) -> Result<(), Stop> {
    let about = |request: &DeviceRequest, why: &str| {
        let why = format!("resource claim {}, request {}: {why}", named(claim), request.name);
        Err(Stop::rejected(NAME, why))
    };
    let check = |class: &str, request: String| {
        if class.is_empty() {
            return Err(Stop::Error(format!("request {request}: unsupported request type")));
        }
        if known.classes().contains_key(class) {
            return Ok(());
        }
        Err(Stop::rejected(NAME, format!("request {request}: device class {class} does not exist")))
    };
    let devices = claim.spec.devices.as_ref();
    for request in devices.and_then(|d| d.requests.as_deref()).unwrap_or_default() {
        let alternatives = request.first_available.as_deref().unwrap_or_default();
        if let Some(exactly) = &request.exactly {
            check(&exactly.device_class_name, request.name.clone())?;
        } else if alternatives.is_empty() {
            return about(request, "unknown request type");
        } else if !settings.features.prioritized_list {
            return about(request, "has subrequests, but the DRAPrioritizedList feature is disabled");
        }
        for sub in alternatives.iter().filter(|_| request.exactly.is_none()) {
            check(&sub.device_class_name, format!("{}/{}", request.name, sub.name))?;
        }
    }
    Ok(())
}

fn uid(claim: &ResourceClaim) -> &str {
    claim.metadata.uid.as_deref().unwrap_or_default()
}

impl Needs {
    /// Those of a Pod; `None` if it has no claims.
    pub(super) fn of(pod: &PodInfo, cluster: &Cache, settings: Settings) -> Result<Option<Self>, Stop> {
        let devices = cluster.devices();
        let known = devices.ready();
        let found = known.claims_of(pod.whole(), settings.by_group);
        let found = found.map_err(|why| Stop::rejected(NAME, why))?;
        let consumers =
            consumers(pod, cluster.groups(), &found, settings).map_err(|why| Stop::rejected(NAME, why))?;
        let mut claims: Vec<Arc<ResourceClaim>> = found.into_iter().map(|(_, claim)| claim.clone()).collect();
        let named_claims = claims.len();
        if settings.extended {
            claims.extend(extended::claim(pod, &known));
        }
        if claims.is_empty() {
            return Ok(None);
        }
        let (mut open, mut shared) = (false, BTreeMap::new());
        for (i, claim) in claims.iter().enumerate().filter(|(_, c)| allocation(c).is_none()) {
            if let Some(chosen) = known.shared(uid(claim)) {
                shared.insert(i, chosen.clone());
                continue;
            }
            open = true;
            if known.pending(uid(claim)).is_some() {
                let why = format!("resource claim {} is in the process of being allocated", named(claim));
                return Err(Stop::rejected(NAME, why));
            }
            if i < named_claims {
                check_classes(claim, &known, settings)?;
            }
        }
        let snapshot = known.snapshot().filter(|_| open).cloned();
        let (classes, selectors) = (known.classes().clone(), devices.selectors().clone());
        drop(known);
        let allocator = snapshot.map(|s| Allocator::new(settings.features, s, classes, selectors, share_id));
        Ok(Some(Self {
            pod: Some(pod.clone()),
            named: named_claims,
            consumers,
            shared,
            listed: claims.iter().any(|claim| has_alternatives(claim)),
            plain: Arc::default(),
            claims,
            allocator,
            devices: Some(devices.clone()),
            settings: Some(settings),
            until: deadline(settings),
            now: devices.now(),
            seen: Mutex::default(),
        }))
    }

    /// The claim for extended resources.
    pub(super) fn special(&self) -> Option<&Arc<ResourceClaim>> {
        self.claims.get(self.named)
    }
    /// Whether a claim is that one.
    pub(super) fn is_special(&self, index: usize) -> bool {
        index >= self.named
    }
    fn seen(&self) -> MutexGuard<'_, Notes> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The claims whose devices were not usable on some node.
    pub(super) fn unavailable(&self) -> Vec<&Arc<ResourceClaim>> {
        self.seen().unavailable.iter().filter_map(|i| self.claims.get(*i)).collect()
    }
    /// The devices that were found on a node.
    pub(super) fn found(&self, node: &str) -> Option<Found> {
        self.seen().found.get(node).cloned()
    }

    /// Judges a node; remembers what is found there if it may make a difference to its score.
    pub(super) fn judge(&self, node: &NodeInfo) -> Result<(), Rejection> {
        let found = self.look(node, |allocator, claims, sort, limits| {
            match allocator.judge((&node.node, node.index), (claims, sort, self.listed), limits)? {
                Outcome::Found(results) => Ok(Some(results.unwrap_or_default())),
                Outcome::Nothing => Ok(None),
                Outcome::Unusable(why) => Err(AllocationError::Node(why)),
            }
        })?;
        if let Some(found) = found.filter(|_| self.listed) {
            self.seen().found.insert(node.name().to_owned(), found);
        }
        Ok(())
    }

    /// The same; what is found is remembered.
    pub(super) fn find(&self, node: &NodeInfo) -> Result<(), Rejection> {
        let found = self.look(node, |allocator, claims, _, limits| {
            Ok(allocator.allocate((&node.node, node.index), claims, limits)?.map(Arc::new))
        })?;
        if let Some(found) = found {
            self.seen().found.insert(node.name().to_owned(), found);
        }
        Ok(())
    }

    /// Lets go of the devices, of which nothing more is looked for.
    pub(super) fn end(&mut self) {
        self.allocator = None;
    }

    /// Looks for the claims' devices on a node; `None`: a device plugin offers it all.
    fn look(
        &self,
        node: &NodeInfo,
        search: impl FnOnce(&Allocator, &[&ResourceClaim], &Arc<str>, Limits<'_>) -> Searched,
    ) -> Result<Option<Found>, Rejection> {
        if self.claims.is_empty() {
            return Ok(None);
        }
        let extended = self.extended(node)?;
        let special = extended.claim.as_ref();
        if special.is_none() && self.named == 0 {
            return Ok(None);
        }
        let unavailable: Vec<usize> = (0..self.claims.len())
            .filter(|i| allocation(&self.claims[*i]).is_some_and(|a| !self.is_available(*i, a, &node.node)))
            .collect();
        let results = match &self.allocator {
            Some(allocator) => {
                let open = self.claims.iter().enumerate().filter(|(i, _)| self.given(*i).is_none());
                let claims: Vec<&ResourceClaim> =
                    open.map(|(i, claim)| special.filter(|_| self.is_special(i)).unwrap_or(claim)).collect();
                let expired = || self.until.is_some_and(|until| Instant::now() >= until);
                let sort = extended.sort.get_or_init(|| sort_of(&claims));
                refusal(node, search(allocator, &claims, sort, Limits { work: WORK, expired: &expired }))?
            }
            None => Arc::default(),
        };
        let elsewhere = self.shared.values().any(|chosen| !can_be_used(chosen, &node.node));
        if elsewhere || !unavailable.is_empty() {
            self.seen().unavailable.extend(unavailable);
            return Err(Rejection::lasting(NAME, "resourceclaim not available on the node"));
        }
        Ok(Some(Found { results, extended }))
    }

    /// Whether the devices of a claim can be used on a node, and are not about to be given back.
    fn is_available(&self, i: usize, allocation: &AllocationResult, node: &Node) -> bool {
        if !can_be_used(allocation, node) {
            return false;
        }
        let Some(settings) = self.settings.filter(|s| s.features.binding_conditions) else { return true };
        match conditions::ready(&self.claims[i]) {
            Err(_) => false,
            Ok(true) => true,
            Ok(false) => !conditions::timed_out(&self.claims[i], settings.binding_timeout, self.now),
        }
    }

    /// The devices that a claim has, or that another Pod of the group has chosen for it.
    ///
    /// DIFFERENCE: upstream looks where the latter can be used only once they are written.
    fn given(&self, i: usize) -> Option<&AllocationResult> {
        self.claims.get(i).and_then(|claim| allocation(claim)).or_else(|| self.shared.get(&i))
    }

    /// The claim for the extended resources that the node does not offer itself. Most nodes offer the same.
    fn extended(&self, node: &NodeInfo) -> Result<Arc<Special>, Rejection> {
        let (Some(claim), Some(pod), Some(devices)) = (self.special(), &self.pod, &self.devices) else {
            return Ok(self.plain.clone());
        };
        let known = devices.read();
        let resources = extended::from_devices(claim, pod, node, &known)?;
        let mut seen = self.seen();
        if let Some((of, special)) = &seen.special
            && of.iter().eq(resources.iter().copied())
        {
            return Ok(special.clone());
        }
        let special = Arc::new(Special::of(claim, pod, &resources, &known, self.named == 0));
        seen.special = Some((resources.into_iter().map(str::to_owned).collect(), special.clone()));
        Ok(special)
    }

    /// The score of a node: the better the alternatives that its devices are for, the higher.
    pub(super) fn score(&self, node: &str) -> Result<i64, String> {
        if !self.listed {
            return Ok(0);
        }
        let seen = self.seen();
        seen.found.get(node).map_or(Ok(0), |found| score(&self.claims, &self.shared, &found.results))
    }
}

/// Whether devices can be used on a node.
fn can_be_used(allocation: &AllocationResult, node: &Node) -> bool {
    let terms = allocation.node_selector.as_ref().map(|s| &s.node_selector_terms);
    terms.is_none_or(|terms| terms.iter().any(|term| term_matches(term, node)))
}

/// The consumers of a Pod's claims.
fn consumers(
    pod: &PodInfo,
    groups: &Groups,
    found: &[Claimed<'_>],
    settings: Settings,
) -> Result<Vec<ResourceClaimConsumerReference>, String> {
    let user = User::of(pod.whole(), settings.by_group);
    let group = match user.group {
        Some(name) => Some(
            groups
                .of(pod)
                .ok_or_else(|| format!("podgroup.scheduling.k8s.io {} not found", api::go::quote(name)))?,
        ),
        None => None,
    };
    let each = found.iter().map(|(place, _)| {
        let source = (place.resource_claim_name.as_deref(), place.resource_claim_template_name.as_deref());
        claims::bind_to(user, group.as_deref(), (&place.name, source))
    });
    each.collect()
}

/// The score of allocations: those that claims have, those that are shared, and those that were found for the others
/// (upstream's `computeScore`).
pub(super) fn score(
    claims: &[Arc<ResourceClaim>],
    shared: &BTreeMap<usize, AllocationResult>,
    found: &[AllocationResult],
) -> Result<i64, String> {
    let (mut score, mut results) = (0, found.iter());
    for (i, claim) in claims.iter().enumerate() {
        let given = allocation(claim).or_else(|| shared.get(&i));
        let allocation = given.or_else(|| results.next()).ok_or_else(|| {
            let n = found.len();
            format!("number of allocations {n} is smaller than number of claims needing allocation")
        })?;
        let chosen = allocation.devices.iter().flat_map(|d| d.results.iter().flatten());
        let chosen: BTreeSet<&str> = chosen.map(|r| r.request.as_str()).collect();
        let requests = claim.spec.devices.iter().flat_map(|d| d.requests.iter().flatten());
        for request in requests.filter(|r| r.exactly.is_none()) {
            for (i, sub) in (0..).zip(request.first_available.iter().flatten()) {
                if chosen.contains(format!("{}/{}", request.name, sub.name).as_str()) {
                    score += MOST_ALTERNATIVES - i;
                }
            }
        }
    }
    Ok(score)
}

/// A new id of a share of a device.
fn share_id() -> String {
    uuid::Uuid::new_v4().to_string()
}
