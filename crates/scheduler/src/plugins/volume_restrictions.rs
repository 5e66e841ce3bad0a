//! VolumeRestrictions: disks that one node cannot mount twice, and claims that one Pod alone may use (upstream's
//! `plugins/volumerestrictions`).

use std::collections::BTreeSet;
use std::sync::Arc;

use api::go::quote;
use objects::volumes::{self, READ_WRITE_ONCE_POD};

use crate::cache::{Cache, NodeInfo};
use crate::events::{About, Events, Happening, Pair};
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{Cycle, Filter, Move, PreFilter, Prefiltered};
use crate::framework::verdict::{Rejection, Stop};
use crate::pod::PodInfo;

/// The plugin's name.
pub const NAME: &str = "VolumeRestrictions";

const DISK: &str = "node(s) had no available disk";
const IN_USE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

/// The claims of a Pod that it would have for itself.
#[derive(Debug)]
struct Alone {
    claims: BTreeSet<String>,
    /// How often other Pods use them.
    users: i64,
}

impl Alone {
    fn of(cycle: &Cycle<'_>) -> Result<Self, Stop> {
        let (pod, known) = (cycle.pod, cycle.cluster.storage().read());
        let mut alone = Self { claims: BTreeSet::new(), users: 0 };
        for name in pod.used().iter().flat_map(|used| used.named()) {
            let claim = known.claim(pod.namespace(), name).ok_or_else(|| {
                Stop::rejected(NAME, format!("persistentvolumeclaim {} not found", quote(name)))
            })?;
            if volumes::wants_mode(claim, READ_WRITE_ONCE_POD) {
                // One Pod at most uses it.
                alone.users += i64::from(cycle.cluster.is_claim_used(pod.namespace(), name));
                alone.claims.insert(name.to_owned());
            }
        }
        Ok(alone)
    }
}

struct VolumeRestrictions;

impl PreFilter for VolumeRestrictions {
    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Result<Prefiltered, Stop> {
        let Some(used) = cycle.pod.used() else { return Ok(Prefiltered::Skip) };
        let alone = Alone::of(cycle)?;
        if used.disks.is_empty() && alone.users == 0 {
            return Ok(Prefiltered::Skip);
        }
        cycle.state.put(alone);
        Ok(Prefiltered::All)
    }
    /// DIFFERENCE: upstream also counts claims of the same name in other namespaces.
    fn count(&self, cycle: &mut Cycle<'_>, change: Move<'_>) {
        let Some(used) = change.other.used().filter(|_| change.other.namespace() == cycle.pod.namespace())
        else {
            return;
        };
        if let Some(alone) = cycle.state.get_mut::<Alone>() {
            let shared = used.named().filter(|name| alone.claims.contains(*name)).count();
            alone.users += change.by * i64::try_from(shared).unwrap_or(0);
        }
    }
    /// Of a Pod with claims or disks nothing: another one of its sort has others.
    fn keeps(&self, pod: &PodInfo) -> bool {
        pod.used().is_none()
    }
}

impl Filter for VolumeRestrictions {
    fn filter(&self, cycle: &Cycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(used) = cycle.pod.used() else { return Ok(()) };
        let conflicts = |other: &PodInfo| other.used().is_some_and(|theirs| used.conflicts(theirs));
        if !used.disks.is_empty() && node.pods.values().any(conflicts) {
            return Err(Rejection::new(NAME, DISK));
        }
        match cycle.state.get::<Alone>() {
            Some(alone) if alone.users > 0 => Err(Rejection::new(NAME, IN_USE)),
            _ => Ok(()),
        }
    }
    fn keeps(&self, pod: &PodInfo) -> bool {
        pod.used().is_none()
    }
}

/// A Pod goes that uses the same disks or claims, or a claim comes that the Pod names.
///
/// DIFFERENCE: upstream does not look at the disks of Pods in other namespaces.
fn hint(pod: &PodInfo, what: &Happening, _cluster: &Cache) -> Result<bool, String> {
    let Some(used) = pod.used() else { return Ok(false) };
    Ok(match &what.about {
        About::Pod(Pair { old: Some(old), new: None }) => old.used().is_some_and(|theirs| {
            let same = old.namespace() == pod.namespace();
            used.conflicts(theirs) || same && used.named().any(|name| theirs.named().any(|t| t == name))
        }),
        About::Claim(Pair { new: Some(new), .. }) => {
            new.metadata.namespace.as_deref() == Some(pod.namespace())
                && used.named().any(|name| new.metadata.name.as_deref() == Some(name))
        }
        _ => true,
    })
}

pub(super) fn plugin() -> Plugin {
    let plugin = Arc::new(VolumeRestrictions);
    let points = Points { pre_filter: Some(plugin.clone()), filter: Some(plugin), ..Points::default() };
    let events = Events::POD_DELETED | Events::NODE_ADDED | Events::CLAIM_ADDED;
    Plugin::new(NAME, points).lifted_by(events).hinted(hint)
}
