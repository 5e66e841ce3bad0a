//! The choice of one device in a search, and its end.

use k8s_openapi::api::resource::v1 as resource;

use super::allocated::{Amounts, Available, count};
use super::capacity::all_consumed;
use super::counters;
use super::reach::View;
use super::request::{Asked, Request};
use super::search::{At, Candidate, Chosen, Search, Undo, failed, named};
use super::stock::Name;
use super::terms::AllocationError;

impl<'s> Search<'s> {
    pub(super) fn in_use(&self, at: At, request: &Request<'_>, candidate: Candidate<'_>) -> bool {
        let taken = self.taken.get(&self.name(candidate));
        if request.is_admin() {
            return taken.is_some_and(|claims| claims.contains(&at.claim));
        }
        self.allocator.snapshot.usage.has(candidate.slot) || taken.is_some_and(|claims| !claims.is_empty())
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
        let Some(written) = candidate.slice.written(candidate.place) else { return Ok(None) };
        let requests = std::mem::take(&mut self.asked[at.claim]);
        let asked = &requests[at.request][at.alternative];
        let chosen = self.try_choose(at, asked, candidate, (written, must));
        self.asked[at.claim] = requests;
        chosen
    }

    fn try_choose(
        &mut self,
        at: At,
        asked: &Asked<'_, Candidate<'_>>,
        candidate: Candidate<'s>,
        (written, must): (&resource::Device, bool),
    ) -> Result<Option<Undo<'s>>, AllocationError> {
        let features = self.allocator.features;
        let (device, request) = (candidate.device(), &asked.request);
        let name = self.name(candidate);
        let multiple = features.consumable_capacity && device.multiple;
        let in_use = self.in_use(at, request, candidate) && !(multiple && request.is_admin());
        let tainted = features.device_taints && objects::devices::is_kept_from(written, request.tolerations);
        if in_use
            || !features.partitionable_devices && !device.consumes.is_empty()
            || tainted
            || !self.suffices(asked, candidate)
        {
            return Ok(None);
        }
        let counted = device.consumes.is_empty() || multiple && self.has_parts(name);
        if !counted && !self.take_counters(candidate) {
            return Ok(None);
        }
        let undo = Undo { candidate, at, counted: !counted };
        let of = request.as_for();
        let constraints = &mut self.constraints[at.claim];
        let refuses = constraints.iter_mut().position(|c| !c.add(of, candidate.slot, written, &device.id));
        if let Some(refuses) = refuses {
            constraints[..refuses].iter_mut().for_each(|c| c.remove(of));
            self.give_counters_back(&undo);
            if must {
                let claim = named(self.claims[at.claim]);
                return failed(format!(
                    "claim {claim}, request {}: cannot add device {} because a claim constraint would not be satisfied",
                    request.name, device.id
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
            let (parts, amounts) = self.consumed.entry(name).or_default();
            *parts += 1;
            count(amounts, &chosen.consumed, true);
        } else {
            self.taken.entry(name).or_default().insert(at.claim);
        }
        self.chosen[at.claim].push(chosen);
        Ok(Some(undo))
    }

    /// Whether parts of a device are allocated or chosen.
    fn has_parts(&self, name: Name) -> bool {
        self.allocator.snapshot.usage.consumed(name).is_some() || self.consumed.contains_key(&name)
    }

    fn view(&self, candidate: Candidate<'_>) -> Option<&'s View> {
        let pool = self.stock.pool_of(self.stock.slice_of(candidate.slot));
        self.reach.view(pool).map(|view| &**view)
    }

    /// Takes the counters that a device needs, if they are there.
    fn take_counters(&mut self, candidate: Candidate<'_>) -> bool {
        let Some(view) = self.view(candidate) else { return false };
        let left = self.known.left(view, self.stock, &self.allocator.snapshot.usage);
        let pool = self.stock.pools().get(view.pool as usize);
        if pool.is_some_and(|pool| pool.is_regular) {
            let alone = self.known.counted(candidate.slot).unwrap_or_else(|| {
                let mut alone = Available::new();
                counters::take(&mut alone, candidate.device(), true);
                let suffices = counters::suffice(&left, &alone);
                self.known.count(candidate.slot, suffices);
                suffices
            });
            if !alone {
                return false;
            }
        }
        let taken = self.counters.entry(view.number).or_default();
        counters::take(taken, candidate.device(), true);
        if counters::suffice(&left, taken) {
            return true;
        }
        counters::take(taken, candidate.device(), false);
        false
    }

    fn give_counters_back(&mut self, undo: &Undo<'_>) {
        if undo.counted
            && let Some(view) = self.view(undo.candidate)
            && let Some(taken) = self.counters.get_mut(&view.number)
        {
            counters::take(taken, undo.candidate.device(), false);
        }
    }

    pub(super) fn undo(&mut self, undo: &Undo<'s>) {
        let Undo { at, candidate, .. } = undo;
        let name = self.name(*candidate);
        let of = self.asked[at.claim][at.request][at.alternative].request.as_for();
        self.constraints[at.claim].iter_mut().for_each(|c| c.remove(of));
        self.give_counters_back(undo);
        let Some(chosen) = self.chosen[at.claim].pop() else { return };
        if chosen.share_id.is_none() {
            self.taken.get_mut(&name).map(|claims| claims.remove(&at.claim));
        } else if let Some((parts, amounts)) = self.consumed.get_mut(&name) {
            count(amounts, &chosen.consumed, false);
            *parts -= 1;
            if *parts == 0 {
                self.consumed.remove(&name);
            }
        }
    }
}
