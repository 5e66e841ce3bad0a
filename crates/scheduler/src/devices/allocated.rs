//! The devices that claims have.

use std::collections::{BTreeMap, HashMap};

use api::quantity::Quantity;
use k8s_openapi::api::resource::v1::AllocationResult;

use super::terms::DeviceId;

/// Amounts of capacities, by name.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// Amounts of the counters of a pool, by set. The amounts that are left may be below zero.
pub(super) type Available = BTreeMap<String, Amounts>;

/// The devices that are allocated, each with the number of claims that have it.
#[derive(Debug, Clone, Default)]
pub struct Allocated {
    /// Devices that one claim has for itself.
    whole: HashMap<DeviceId, usize>,
    /// Devices that several claims may have parts of.
    shared: HashMap<DeviceId, Shared>,
}

#[derive(Debug, Clone, Default)]
struct Shared {
    claims: usize,
    consumed: Amounts,
}

/// Adds amounts to others, or takes them away.
pub(super) fn count(amounts: &mut Amounts, others: &Amounts, more: bool) {
    for (name, other) in others {
        let amount = amounts.entry(name.clone()).or_default();
        if more { amount.add(other) } else { amount.sub(other) }
    }
}

impl Allocated {
    /// Counts an allocation, or counts it no more; tells of each device. Devices that an administrator has access to stay
    /// free; without consumable capacity, a share stands for its whole device.
    pub fn count(
        &mut self,
        allocation: &AllocationResult,
        consumable: bool,
        more: bool,
        mut tell: impl FnMut(&Self, &DeviceId),
    ) {
        let results = allocation.devices.iter().flat_map(|d| d.results.iter().flatten());
        for result in results.filter(|r| r.admin_access != Some(true)) {
            let id = DeviceId::new(&result.driver, &result.pool, &result.device);
            if consumable && result.share_id.is_some() {
                let parsed = result.consumed_capacity.iter().flatten();
                let consumed = parsed
                    .map(|(name, q)| (name.clone(), Quantity::parse(&q.0).unwrap_or_default()))
                    .collect();
                self.count_share(&id, &consumed, more);
            } else {
                self.count_whole(&id, more);
            }
            tell(self, &id);
        }
    }

    fn count_whole(&mut self, id: &DeviceId, more: bool) {
        let claims = self.whole.entry(id.clone()).or_default();
        *claims = if more { *claims + 1 } else { claims.saturating_sub(1) };
        if *claims == 0 {
            self.whole.remove(id);
        }
    }

    fn count_share(&mut self, id: &DeviceId, consumed: &Amounts, more: bool) {
        let shared = self.shared.entry(id.clone()).or_default();
        shared.claims = if more { shared.claims + 1 } else { shared.claims.saturating_sub(1) };
        count(&mut shared.consumed, consumed, more);
        if shared.claims == 0 {
            self.shared.remove(id);
        }
    }

    /// Whether a claim has the device for itself.
    pub(super) fn has(&self, id: &DeviceId) -> bool {
        self.whole.contains_key(id)
    }
    /// The devices that claims have, or have parts of; one may be named twice.
    pub(super) fn ids(&self) -> impl Iterator<Item = &DeviceId> {
        self.whole.keys().chain(self.shared.keys())
    }
    /// The amounts that claims have of a device's capacities.
    pub(super) fn consumed(&self, id: &DeviceId) -> Option<&Amounts> {
        self.shared.get(id).map(|s| &s.consumed)
    }
    /// How many devices there are.
    pub fn len(&self) -> usize {
        self.whole.len() + self.shared.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[cfg(test)]
    pub(super) fn set(&mut self, id: DeviceId, consumed: Option<Amounts>) {
        match consumed {
            None => self.count_whole(&id, true),
            Some(consumed) => self.count_share(&id, &consumed, true),
        }
    }
}
