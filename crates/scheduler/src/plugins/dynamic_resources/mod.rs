//! DynamicResources: a Pod goes where its claims have devices, or can get some (upstream's `plugins/dynamicresources`).
//!
//! 1. *The Pod's claims* (`needs::Needs`, once a turn): those that have devices, and those that need some. Resources
//!    that classes of devices stand for make one more claim (`extended`).
//! 2. *Each node* (`needs.rs`): devices must be usable there; the others are looked for.
//! 3. *The node that was chosen*: the search is done again, and the devices are in flight (`bind::Held`), so that no
//!    other Pod gets them. The Pod's own task writes them into the claims, and waits until they are attached if they have
//!    to be; it holds no place among the bindings meanwhile.
//!
//! DIFFERENCE: the time for the search (`filterTimeout`) is one for all nodes of a turn, since other Pods wait meanwhile,
//! and the work for one node is bounded. Resources of nodes that devices stand for are not known: their gate
//! (DRANodeAllocatableResources) is off in v1.36.
//!
//! A claim that a Pod shares with its PodGroup (DRAWorkloadResourceClaims) is reserved for the group. Devices that one Pod
//! of a group chose are those of the others in the same turn.

mod bind;
#[cfg(test)]
mod cases;
mod conditions;
mod extended;
mod needs;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use api::{FeatureGates, Gate, Status};
use k8s_openapi::api::resource::v1::ResourceClaim;
use objects::claims::{self, User};

use crate::cache::{Cache, NodeInfo};
use crate::config::args::PluginArgs;
use crate::devices::Features;
use crate::events::{About, Events, Happening, Pair};
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{
    Binding, Cycle, Errand, Failed, Filter, Later, MAX_SCORE, PostFilter, PostFiltered, PreBind, PreEnqueue,
    PreFilter, Prefiltered, Prospects, Reserve, Score, Unbound,
};
use crate::framework::state::State;
use crate::framework::verdict::{Rejection, Stop, Verdicts};
use crate::inventory::allocation;
use crate::pod::{PodInfo, PodView};
use bind::Held;
use needs::Needs;
pub use settings::NAME;
use settings::Settings;

struct DynamicResources {
    settings: Settings,
}

/// Whether there may be anything to do for a Pod: it has claims, or asks for resources that devices may be.
fn concerns(pod: &PodInfo) -> bool {
    !claims::places(pod.whole()).is_empty() || pod.requests.fit.scalar.keys().any(|n| extended::is_name(n))
}

impl PreEnqueue for DynamicResources {
    fn pre_enqueue(&self, pod: &PodInfo, prospects: &Prospects) -> Result<(), Rejection> {
        if claims::places(pod.whole()).is_empty() {
            return Ok(());
        }
        let known = prospects.devices.read();
        let found = known.claims_of(pod.whole(), self.settings.by_group).map(drop);
        found.map_err(|why| Rejection::lasting(NAME, why))
    }
}

impl PreFilter for DynamicResources {
    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Result<Prefiltered, Stop> {
        if !concerns(cycle.pod) {
            return Ok(Prefiltered::Skip);
        }
        // Nothing of an earlier turn.
        cycle.state.put(Needs::default());
        let needs = Needs::of(cycle.pod, cycle.cluster, self.settings)?;
        let Some(needs) = needs else { return Ok(Prefiltered::Skip) };
        cycle.state.put(needs);
        Ok(Prefiltered::All)
    }
    fn forget(&self, state: &mut State) {
        // The devices of claims are copied on each change as long as somebody has them.
        state.put(Needs::default());
    }
    /// Another Pod of the sort has other claims; resources may stand for devices at any time.
    fn keeps(&self, pod: &PodInfo) -> bool {
        !concerns(pod)
    }
}

impl Filter for DynamicResources {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        match cycle.state.get::<Needs>() {
            Some(needs) => needs.judge(node),
            None => Ok(()),
        }
    }
    /// Ends where there can be no decision.
    fn filter_all(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) {
        for (i, node) in cycle.cluster.nodes().iter().enumerate() {
            if verdicts.fits(i)
                && let Err(rejection) = self.filter(cycle, node)
            {
                let ends = rejection.failed;
                verdicts.set(i, Err(rejection));
                if ends {
                    return;
                }
            }
        }
    }
    fn keeps(&self, pod: &PodInfo) -> bool {
        !concerns(pod)
    }
}

impl PostFilter for DynamicResources {
    /// Gives devices back that can be used on no node, so that others can be looked for.
    fn post_filter(&self, cycle: &mut Cycle<'_>, _failed: &Failed<'_>) -> PostFiltered {
        let needs = cycle.state.get::<Needs>().filter(|needs| !needs.claims.is_empty());
        let Some(needs) = needs else { return PostFiltered::Other("no new claims to deallocate".to_owned()) };
        let special = needs.special();
        let stale = special.filter(|claim| !extended::is_in_memory(claim));
        for claim in needs.unavailable() {
            let is_special = special.is_some_and(|s| Arc::ptr_eq(s, claim));
            if is_special && stale.is_some() {
                break;
            }
            let free = match claims::reserved_for(claim) {
                [] => true,
                [one] => one.uid == cycle.pod.uid(),
                _ => false,
            };
            if !is_special && free {
                let claim = claim.clone();
                let errand = Errand::new(move |client| Box::pin(bind::deallocate(client, claim.clone())));
                return PostFiltered::Does(errand, "deallocation of ResourceClaim completed".to_owned());
            }
        }
        if let Some(claim) = stale {
            let claim = claim.clone();
            let errand = Errand::new(move |client| Box::pin(bind::delete(client, claim.clone())));
            return PostFiltered::Does(errand, "deletion of ResourceClaim completed".to_owned());
        }
        if let Some(errand) = self.leave_claim(cycle) {
            return PostFiltered::Does(errand, "ResourceClaim unreserved for PodGroup".to_owned());
        }
        PostFiltered::Other("still not schedulable".to_owned())
    }
}

impl DynamicResources {
    /// Takes the Pod's group off a claim that has devices for it, if no Pod of the group has a node: these may be the wrong
    /// ones, and are given back once nobody has them reserved.
    fn leave_claim(&self, cycle: &Cycle<'_>) -> Option<Errand> {
        let user = User::of(cycle.pod.whole(), self.settings.by_group);
        let groups = cycle.cluster.groups();
        user.group?;
        if groups.placed_before(cycle.pod) > 0 {
            return None;
        }
        let (group, known) = (groups.of(cycle.pod)?, cycle.cluster.devices().read());
        let mut named = claims::places_in_group(&group)
            .iter()
            .filter_map(|place| claims::name_in_group(&group, place).ok().flatten());
        let claim = named.find_map(|(name, made)| {
            let claim = known.claim(user.namespace, name)?;
            let its = !made || claims::is_for_group(&group, claim).is_ok();
            let reserved = allocation(claim).is_some() && claims::is_reserved_for(user, claim);
            (its && reserved).then(|| claim.clone())
        })?;
        let uid = group.metadata.uid.clone().unwrap_or_default();
        Some(Errand::new(move |client| Box::pin(bind::unreserve(client, claim.clone(), uid.clone()))))
    }
}

impl Score for DynamicResources {
    fn score(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<i64, String> {
        let needs = cycle.state.get::<Needs>().filter(|_| self.settings.features.prioritized_list);
        needs.map_or(Ok(0), |needs| needs.score(node.name()))
    }
    fn normalize(&self, _cycle: &Cycle<'_>, _nodes: &[usize], scores: &mut [i64]) {
        let most = scores.iter().copied().max().unwrap_or(0);
        if most != 0 {
            for score in scores {
                *score = MAX_SCORE * *score / most;
            }
        }
    }
    fn normalizes(&self, pod: &PodInfo) -> bool {
        concerns(pod)
    }
    fn keeps(&self, pod: &PodInfo) -> bool {
        !concerns(pod)
    }
}

impl Reserve for DynamicResources {
    fn concerns(&self, pod: &PodInfo) -> bool {
        concerns(pod)
    }
    fn reserve(
        &self,
        pod: &PodInfo,
        cluster: &Cache,
        node: &NodeInfo,
        carried: &mut State,
    ) -> Result<(), Rejection> {
        let needs = Needs::of(pod, cluster, self.settings).map_err(|stop| match stop {
            Stop::Rejected(rejection) => rejection,
            Stop::Error(why) => Rejection::failure(NAME, why),
        })?;
        let Some(needs) = needs else { return Ok(()) };
        needs.find(node)?;
        carried.put(Held::new(needs, (pod, node.name()), cluster.devices(), self.settings));
        Ok(())
    }
    fn unreserve(&self, _pod: &PodInfo, _node: &str, carried: &mut State) {
        if let Some(held) = carried.get::<Held>() {
            held.give_back();
        }
    }
    fn afterwards(&self, pod: &PodInfo, carried: &State) -> Option<Errand> {
        carried.get::<Held>()?.afterwards(pod)
    }
}

impl PreBind for DynamicResources {
    fn concerns(&self, _pod: &PodInfo, _node: &str, carried: &State) -> bool {
        carried.get::<Held>().is_some()
    }
    fn pre_bind<'a>(&'a self, binding: &'a Binding<'a>) -> Later<'a, Result<(), Unbound>> {
        Box::pin(async move {
            match binding.carried.get::<Held>() {
                // If an object is not found, the Pod is there all the same: it is tried again.
                Some(held) => held
                    .bind(binding)
                    .await
                    .map_err(|why| Unbound::Failed(Status::failure(500, "InternalError", why))),
                None => Ok(()),
            }
        })
    }
}

/// A claim gives its devices back, or one of the Pod's is there or has another status. A Pod whose claims are not all
/// there waits for those, whatever happens to others.
///
/// DIFFERENCE: a claim that goes with its devices gives them back, too.
fn hint(pod: &PodInfo, what: &Happening, cluster: &Cache, by_group: bool) -> Result<bool, String> {
    let known = cluster.devices().read();
    let now: &PodView = match &what.about {
        About::Pod(Pair { new: Some(new), .. }) => new,
        _ => pod,
    };
    let own = known.claims_of(now.whole(), by_group);
    let Ok(own) = own else { return Ok(!matches!(what.about, About::DeviceClaim(_) | About::Pod(_))) };
    let used = |claim: &ResourceClaim| own.iter().any(|(_, c)| c.metadata.uid == claim.metadata.uid);
    Ok(match &what.about {
        About::DeviceClaim(Pair { old, new }) => {
            let had = old.as_deref().and_then(allocation).is_some();
            let has = new.as_deref().and_then(allocation).is_some();
            let now = |c: &Option<Arc<ResourceClaim>>| {
                c.as_ref().map(|c| (c.metadata.uid.clone(), c.status.clone()))
            };
            had && !has || new.as_deref().is_some_and(used) && now(old) != now(new)
        }
        _ => true,
    })
}

pub(super) fn plugin(args: &PluginArgs, gates: FeatureGates) -> Result<Plugin, String> {
    let PluginArgs::DynamicResources(args) = args else {
        return Err("got args of another type, want *DynamicResourcesArgs".to_owned());
    };
    let duration = |text: &str| {
        api::time::parse_duration(text).map(|d| Duration::try_from(d).unwrap_or_default()).unwrap_or_default()
    };
    let timeout = duration(&args.filter_timeout);
    let limited = gates.enabled(Gate::DRASchedulerFilterTimeout) && !timeout.is_zero();
    let settings = Settings {
        features: Features::of(gates),
        extended: gates.enabled(Gate::DRAExtendedResource),
        by_group: gates.enabled(Gate::DRAWorkloadResourceClaims),
        filter_timeout: limited.then_some(timeout),
        binding_timeout: duration(&args.binding_timeout),
    };
    if !gates.enabled(Gate::DynamicResourceAllocation) {
        return Ok(Plugin::new(NAME, Points::default()).lifted_by(Events::NONE));
    }
    let plugin = Arc::new(DynamicResources { settings });
    let points = Points {
        pre_enqueue: Some(plugin.clone()),
        pre_filter: Some(plugin.clone()),
        filter: Some(plugin.clone()),
        post_filter: Some(plugin.clone()),
        score: Some(plugin.clone()),
        reserve: Some(plugin.clone()),
        pre_bind: Some(plugin),
        ..Points::default()
    };
    let claims = Events::DEVICE_CLAIM_ADDED
        | Events::DEVICE_CLAIM_CHANGED
        | Events::DEVICE_CLAIM_DELETED
        | Events::OWN_CLAIMS;
    let devices = Events::DEVICE_CLASS_ADDED
        | Events::DEVICE_CLASS_CHANGED
        | Events::SLICE_ADDED
        | Events::SLICE_CHANGED;
    let nodes = Events::NODE_ADDED | Events::NODE_LABELS | Events::NODE_ALLOCATABLE;
    Ok(Plugin::new(NAME, points).lifted_by(claims | devices | nodes).hinted(
        move |pod: &PodInfo, what: &Happening, cluster: &Cache| hint(pod, what, cluster, settings.by_group),
    ))
}
