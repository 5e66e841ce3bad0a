//! The choice of one device in a search, and its end.

use super::allocated::{Amounts, count};
use super::capacity::all_consumed;
use super::counters;
use super::request::Request;
use super::search::{At, Candidate, Chosen, Search, Undo, failed, named};
use super::terms::{AllocationError, DeviceId};

impl<'s> Search<'s> {
    pub(super) fn in_use(&self, at: At, request: &Request<'_>, candidate: Candidate<'_>) -> bool {
        let id = &candidate.device().id;
        let taken = self.taken.get(id);
        if request.is_admin() {
            return taken.is_some_and(|claims| claims.contains(&at.claim));
        }
        self.allocator.allocated.has(id) || taken.is_some_and(|claims| !claims.is_empty())
    }

    /// Chooses a device that the request selects, unless something is against it.
    ///
    /// DIFFERENCE: whatever is against it, all is as it was. Upstream forgets to give back counters in some cases, and so
    /// does not find what is there.
    pub(super) fn choose(
        &mut self,
        at: At,
        candidate: Candidate<'s>,
        must: bool,
    ) -> Result<Option<Undo<'s>>, AllocationError> {
        let features = self.allocator.features;
        let device = candidate.device();
        let Some(written) = candidate.slice.written(candidate.place) else { return Ok(None) };
        let requests = std::mem::take(&mut self.asked[at.claim]);
        let request = &requests[at.request][at.alternative].request;
        let multiple = features.consumable_capacity && device.multiple;
        let in_use = self.in_use(at, request, candidate) && !(multiple && request.is_admin());
        let tainted = features.device_taints && objects::devices::is_kept_from(written, request.tolerations);
        let against = in_use
            || !features.partitionable_devices && !device.consumes.is_empty()
            || tainted
            || !self.suffices(request, candidate);
        let counted = device.consumes.is_empty() || multiple && self.has_parts(&device.id);
        if against || !counted && !self.take_counters(candidate) {
            self.asked[at.claim] = requests;
            return Ok(None);
        }
        let undo = Undo { candidate, at, counted: !counted };
        let of = request.as_for();
        let constraints = &mut self.constraints[at.claim];
        if let Some(refuses) = constraints.iter_mut().position(|c| !c.add(of, written, &device.id)) {
            constraints[..refuses].iter_mut().for_each(|c| c.remove(of));
            self.give_counters_back(&undo);
            let name = request.name;
            self.asked[at.claim] = requests;
            if must {
                let claim = named(self.claims[at.claim]);
                return failed(format!(
                    "claim {claim}, request {name}: cannot add device {} because a claim constraint would not be satisfied",
                    device.id
                ));
            }
            return Ok(None);
        }
        let mut chosen = Chosen {
            candidate,
            request: [at.request, at.alternative],
            share_id: None,
            consumed: Amounts::new(),
        };
        if multiple {
            let none = Amounts::new();
            chosen.consumed = all_consumed(request.capacity.as_ref().unwrap_or(&none), &device.capacity);
            chosen.share_id = Some((self.allocator.share_id)());
            let (parts, amounts) = self.consumed.entry(device.id.clone()).or_default();
            *parts += 1;
            count(amounts, &chosen.consumed, true);
        } else {
            self.taken.entry(device.id.clone()).or_default().insert(at.claim);
        }
        self.chosen[at.claim].push(chosen);
        self.asked[at.claim] = requests;
        Ok(Some(undo))
    }

    /// Whether parts of a device are allocated or chosen.
    fn has_parts(&self, id: &DeviceId) -> bool {
        self.allocator.allocated.consumed(id).is_some() || self.consumed.contains_key(id)
    }

    /// Takes the counters that a device needs, if they are there.
    fn take_counters(&mut self, candidate: Candidate<'_>) -> bool {
        let pool = &self.pools[candidate.pool];
        let allocated = &self.allocator.allocated;
        let left = self.allocator.available(&pool.id, || counters::available(pool, allocated));
        let taken = self.counters.entry(pool.id.clone()).or_default();
        counters::take(taken, candidate.device(), true);
        if counters::suffice(&left, taken) {
            return true;
        }
        counters::take(taken, candidate.device(), false);
        false
    }

    fn give_counters_back(&mut self, undo: &Undo<'_>) {
        let pool = &self.pools[undo.candidate.pool].id;
        if undo.counted
            && let Some(taken) = self.counters.get_mut(pool)
        {
            counters::take(taken, undo.candidate.device(), false);
        }
    }

    pub(super) fn undo(&mut self, undo: &Undo<'s>) {
        let Undo { at, candidate, .. } = undo;
        let id = &candidate.device().id;
        let of = self.asked[at.claim][at.request][at.alternative].request.as_for();
        self.constraints[at.claim].iter_mut().for_each(|c| c.remove(of));
        self.give_counters_back(undo);
        let Some(chosen) = self.chosen[at.claim].pop() else { return };
        if chosen.share_id.is_none() {
            self.taken.get_mut(id).map(|claims| claims.remove(&at.claim));
        } else if let Some((parts, amounts)) = self.consumed.get_mut(id) {
            count(amounts, &chosen.consumed, false);
            *parts -= 1;
            if *parts == 0 {
                self.consumed.remove(id);
            }
        }
    }
}
