//! The search for devices: depth first over all combinations, in the order of pools, slices and devices.
//!
//! It is a recursion over claims, requests, alternatives and devices, written as a loop over [`Frame`]s, so that a Pod
//! with many claims needs no deep stack.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use objects::node_affinity::Seen;

use super::allocated::{Amounts, Available};
use super::allocator::Allocator;
use super::bits::{WORD, within};
use super::capacity::suffices;
use super::constraint::{Column, Constraint};
use super::known::{Known, text_of};
use super::memo::Far;
use super::reach::{Item, Place, Reach, State, is_for};
use super::request::{Asked, Request, requests};
use super::selector::Unanswered;
use super::stock::{Device, Name, Slice, Slot, Stock};
use super::terms::{AllocationError, Limits, MOST_RESULTS};

#[cfg(test)]
thread_local! {
    /// How often the last search of this thread looked for a device.
    pub(super) static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The work that the evaluation of an expression counts as, per unit of its cost.
const COST_OF_WORK: u64 = 50;

/// A device that may be chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'s> {
    pub(super) slice: &'s Slice,
    /// Its place in the slice.
    pub(super) place: usize,
    /// Its number in the stock.
    pub(super) slot: Slot,
}

impl<'s> Candidate<'s> {
    pub(super) fn device(&self) -> &'s Device {
        &self.slice.devices[self.place]
    }
}

/// A device that was chosen.
pub(super) struct Chosen<'s> {
    pub(super) candidate: Candidate<'s>,
    /// The places of its request, and of the alternative.
    pub(super) request: [usize; 2],
    pub(super) share_id: Option<String>,
    pub(super) consumed: Amounts,
}

/// The place of a device that is to be found: claim, request, alternative, number.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct At {
    pub(super) claim: usize,
    pub(super) request: usize,
    pub(super) alternative: usize,
    device: usize,
}

/// This is what has to be undone when a device turns out wrong.
pub(super) struct Undo<'s> {
    pub(super) candidate: Candidate<'s>,
    pub(super) at: At,
    pub(super) counted: bool,
}

enum Frame<'s> {
    /// The next claim is being tried.
    Claim,
    /// One of the alternatives of a request is; whether all before needed too many devices.
    Alternative { at: At, exceeded: bool },
    /// A device was chosen of those that are all wanted.
    All(Undo<'s>),
    /// A device was chosen; others may be chosen in its place.
    One { undo: Undo<'s>, next: Place },
}

/// The end of an attempt.
enum End {
    Found,
    Nothing,
    /// It would need more devices than a claim may have.
    Exceeded,
    Failed(AllocationError),
}

enum Step {
    /// Looks for a device; `within`: an alternative was chosen.
    Call {
        at: At,
        within: bool,
        from: Place,
    },
    Return(End),
}

/// A search.
pub(super) struct Search<'s> {
    pub(super) allocator: &'s Allocator,
    node: Seen<'s>,
    pub(super) claims: &'s [&'s ResourceClaim],
    pub(super) stock: &'s Stock,
    pub(super) reach: &'s Reach,
    pub(super) known: &'s mut Known,
    limits: Limits<'s>,
    work: u64,
    far: Far,
    /// Whether an amount that is asked for is below zero.
    odd: bool,
    /// By claim, request and alternative.
    pub(super) asked: Vec<Vec<Vec<Asked<'s, Candidate<'s>>>>>,
    /// The alternative of each request that was chosen.
    pub(super) selected: Vec<Vec<usize>>,
    pub(super) constraints: Vec<Vec<Constraint<'s>>>,
    /// The claims for which a device is chosen.
    pub(super) taken: HashMap<Name, BTreeSet<usize>>,
    /// This is what is chosen of devices that have parts.
    pub(super) consumed: HashMap<Name, (usize, Amounts)>,
    /// The counters that are taken, by the number of the view.
    pub(super) counters: HashMap<u64, Available>,
    /// By claim.
    pub(super) chosen: Vec<Vec<Chosen<'s>>>,
    /// How often a device was looked for (upstream's `NumAllocateOneInvocations`).
    steps: u64,
}

pub(super) fn failed<T>(why: String) -> Result<T, AllocationError> {
    Err(AllocationError::Failed(why))
}

/// A claim as upstream's texts name it.
pub(super) fn named(claim: &ResourceClaim) -> String {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    match claim.metadata.namespace.as_deref().unwrap_or_default() {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}

/// A text that tells what a request asks for from what others do.
fn text(request: &Request<'_>, class: &DeviceClass) -> String {
    let of_class = class.spec.selectors.iter().flatten();
    let all = of_class.chain(request.selectors).map(|s| s.cel.as_ref().map(|c| c.expression.as_str()));
    let mut text = String::new();
    for expression in all.map(Option::unwrap_or_default) {
        text.push_str(expression);
        text.push('\0');
    }
    text.push('\0');
    if let Some(capacity) = &request.capacity {
        text.push_str(&text_of(capacity));
    }
    text
}

impl<'s> Search<'s> {
    /// Looks at what the claims ask for.
    pub(super) fn new(
        allocator: &'s Allocator,
        node: Seen<'s>,
        reach: &'s Reach,
        known: &'s mut Known,
        (claims, limits): (&'s [&'s ResourceClaim], Limits<'s>),
    ) -> Result<Self, AllocationError> {
        let mut search = Self {
            allocator,
            node,
            claims,
            stock: &allocator.snapshot.stock,
            reach,
            known,
            limits,
            work: 0,
            far: Far::To(Place::default()),
            odd: false,
            asked: Vec::new(),
            selected: claims.iter().map(|c| vec![0; requests(c).len()]).collect(),
            constraints: Vec::new(),
            taken: HashMap::new(),
            consumed: HashMap::new(),
            counters: HashMap::new(),
            chosen: claims.iter().map(|_| Vec::new()).collect(),
            steps: 0,
        };
        for claim in 0..claims.len() {
            search.look(claim)?;
        }
        Ok(search)
    }

    /// How far it came.
    pub(super) fn far(&self) -> Far {
        self.far
    }

    fn came(&mut self, to: Far) {
        self.far = match (self.far, to) {
            (Far::Special, _) | (_, Far::Special) => Far::Special,
            (Far::To(a), Far::To(b)) => Far::To(a.max(b)),
            _ => Far::Everywhere,
        };
    }

    /// A device.
    fn candidate(&self, slot: Slot) -> Candidate<'s> {
        let slice = self.stock.slice_of(slot);
        let place = slot.saturating_sub(self.stock.of_slice(slice).start) as usize;
        Candidate { slice: self.stock.slice(slice), place, slot }
    }
    /// The number of a device's name.
    pub(super) fn name(&self, candidate: Candidate<'_>) -> Name {
        self.stock.name_of(candidate.slot)
    }

    fn look(&mut self, i: usize) -> Result<(), AllocationError> {
        let claim = self.claims[i];
        let features = self.allocator.features;
        self.asked.push(Vec::new());
        let mut fewest = 0usize;
        for (r, request) in requests(claim).iter().enumerate() {
            let alternatives = Request::all(request);
            let listed = alternatives.iter().any(|a| !a.parent.is_empty());
            if listed && !features.prioritized_list {
                return failed(format!(
                    "claim {}, request {}: has subrequests, but the DRAPrioritizedList feature is disabled",
                    named(claim),
                    request.name
                ));
            }
            let capacity = alternatives.iter().find(|a| a.capacity.is_some());
            if let Some(wants) = capacity.filter(|_| !features.consumable_capacity) {
                let what = if listed { "subrequest" } else { "request" };
                return failed(format!(
                    "claim {}, {what} {}: has capacity requests, but the DRAConsumableCapacity feature is disabled",
                    named(claim),
                    wants.name
                ));
            }
            let mut asked = Vec::with_capacity(alternatives.len());
            for (a, alternative) in alternatives.into_iter().enumerate() {
                asked.push(self.ask(At { claim: i, request: r, alternative: a, device: 0 }, alternative)?);
            }
            fewest = fewest.saturating_add(asked.iter().map(|a| a.count).min().unwrap_or(0));
            self.asked[i].push(asked);
        }
        if fewest > MOST_RESULTS {
            return failed(format!(
                "claim {}: number of requested devices {fewest} exceeds the claim limit of {MOST_RESULTS}",
                named(claim)
            ));
        }
        let all = claim.spec.devices.iter().flat_map(|d| d.constraints.iter().flatten()).enumerate();
        let (known, stock) = (&mut *self.known, self.stock);
        let mut column =
            |attribute: &str| (!features.list_attributes).then(|| known.column(attribute, stock));
        let constraints = all.map(|(n, c)| {
            Constraint::of(c, &mut column).ok_or_else(|| {
                AllocationError::Failed(format!(
                    "claim {}, constraint #{n}: empty constraint (unsupported constraint type?)",
                    named(claim)
                ))
            })
        });
        let constraints = constraints.collect::<Result<Vec<_>, _>>()?;
        self.constraints.push(constraints);
        Ok(())
    }

    /// Looks at a request, or one of its alternatives.
    fn ask(&mut self, at: At, request: Request<'s>) -> Result<Asked<'s, Candidate<'s>>, AllocationError> {
        let claim = self.claims[at.claim];
        let about = |why: String| failed(format!("claim {}, request {}{why}", named(claim), request.name));
        if let Some(i) = request.selectors.iter().position(|s| s.cel.is_none()) {
            return about(format!(", selector #{i}: CEL expression empty (unsupported selector type?)"));
        }
        if !self.allocator.features.admin_access && request.admin.is_some() {
            return about(": admin access is requested, but the feature is disabled".to_owned());
        }
        let name = request.class_name;
        if name.is_empty() {
            return about(": missing device class name (unsupported request type?)".to_owned());
        }
        let Some(class) = self.allocator.classes.get(name).cloned() else {
            let missing = api::go::quote(name);
            return about(format!(
                ": could not retrieve device class {name}: deviceclass.resource.k8s.io {missing} not found"
            ));
        };
        let number = self.known.number(text(&request, &class));
        self.odd |= request.capacity.iter().flatten().any(|(_, amount)| amount.sign() < 0);
        let mut asked = Asked { request, class, number, count: 0, all: Vec::new() };
        match asked.request.mode {
            "ExactCount" => asked.count = usize::try_from(asked.request.count).unwrap_or(0),
            "All" => {
                asked.all = self.all(at, &asked)?;
                asked.count = asked.all.len();
            }
            mode => {
                return failed(format!(
                    "claim {}, request {}: unsupported count mode {mode}",
                    named(claim),
                    asked.request.name
                ));
            }
        }
        Ok(asked)
    }

    /// All devices that a request selects.
    fn all(
        &mut self,
        at: At,
        asked: &Asked<'s, Candidate<'s>>,
    ) -> Result<Vec<Candidate<'s>>, AllocationError> {
        self.came(Far::Everywhere);
        let mut all = Vec::new();
        for (_, item) in self.reach.from(Place::default()) {
            let range = match item {
                Item::Devices(range) => range.clone(),
                Item::Bad(pool, state) => {
                    let claim = named(self.claims[at.claim]);
                    let state = if *state == State::Invalid { "invalid" } else { "being updated" };
                    let id = &self.stock.pools()[*pool as usize].id;
                    return failed(format!(
                        "claim {claim}, request {}: asks for all devices, but resource pool {id} is currently {state}",
                        asked.request.name
                    ));
                }
            };
            for slot in range {
                let candidate = self.candidate(slot);
                if self.selects(at, asked, candidate)? && self.suffices(asked, candidate) {
                    all.push(candidate);
                }
            }
        }
        Ok(all)
    }

    fn spend(&mut self, work: u64) -> Result<(), AllocationError> {
        let before = self.work;
        self.work += work;
        // The time is looked at now and then.
        let look = before == 0 || before / 64 != self.work / 64;
        if self.work > self.limits.work || look && (self.limits.expired)() {
            return Err(AllocationError::TimedOut);
        }
        Ok(())
    }

    /// Whether a request and its class select a device, and it is for the node.
    fn selects(
        &mut self,
        at: At,
        asked: &Asked<'_, Candidate<'_>>,
        candidate: Candidate<'s>,
    ) -> Result<bool, AllocationError> {
        self.spend(1)?;
        let Candidate { slice, place, slot } = candidate;
        let Some(device) = slice.written(place) else { return Ok(false) };
        let answers = self.known.answers(asked.number);
        let selects = if answers.asked.has(slot) {
            answers.selected.has(slot)
        } else {
            let selects = self.ask_about(at, asked, candidate)?;
            let answers = self.known.answers_mut(asked.number);
            answers.asked.set(slot, true);
            answers.selected.set(slot, selects);
            selects
        };
        if !slice.is_split() {
            return Ok(selects);
        }
        self.came(Far::Special);
        let (name, selector) = (device.node_name.as_deref(), device.node_selector.as_ref());
        Ok(selects && is_for(self.node, name, device.all_nodes, selector))
    }

    /// Whether a request and its class select a device, on whichever node.
    fn ask_about(
        &mut self,
        at: At,
        asked: &Asked<'_, Candidate<'_>>,
        candidate: Candidate<'s>,
    ) -> Result<bool, AllocationError> {
        let has_conditions = |d: &k8s_openapi::api::resource::v1::Device| {
            d.binding_conditions.as_ref().is_some_and(|c| !c.is_empty())
        };
        if !self.allocator.features.binding_conditions
            && candidate.slice.written(candidate.place).is_some_and(has_conditions)
        {
            return Ok(false);
        }
        let class = &asked.class;
        let of_class = class.spec.selectors.iter().flatten().enumerate();
        let of_request = asked.request.selectors.iter().enumerate();
        let all = of_class.map(|(i, s)| (true, i, s)).chain(of_request.map(|(i, s)| (false, i, s)));
        for (by_class, i, s) in all {
            let expression = s.cel.as_ref().map(|c| c.expression.as_str()).unwrap_or_default();
            let place = u32::try_from(candidate.place).unwrap_or(u32::MAX);
            let (answer, cost) = self.allocator.selectors.answer(expression, candidate.slice, place);
            if let Some(cost) = cost {
                self.spend(64 + cost / COST_OF_WORK)?;
            }
            let (kind, why) = match answer {
                Ok(true) => continue,
                Ok(false) => return Ok(false),
                Err(Unanswered::Compile(why)) => ("compile", why),
                Err(Unanswered::Runtime(why)) => ("runtime", why),
            };
            let of = if by_class {
                format!("class {}", class.metadata.name.as_deref().unwrap_or_default())
            } else {
                format!("claim {}", named(self.claims[at.claim]))
            };
            return failed(format!("{of}: selector #{i}: CEL {kind} error: {why}"));
        }
        Ok(true)
    }

    /// Whether there is enough left of a device's capacities.
    pub(super) fn suffices(&mut self, asked: &Asked<'_, Candidate<'_>>, candidate: Candidate<'_>) -> bool {
        if !self.allocator.features.consumable_capacity {
            return true;
        }
        let (name, slot) = (self.name(candidate), candidate.slot);
        let chosen = self.consumed.get(&name).map(|(_, amounts)| amounts);
        let answers = self.known.answers(asked.number);
        if chosen.is_none() && answers.judged.has(slot) {
            return !answers.lacking.has(slot);
        }
        let none = Amounts::new();
        let (device, wanted) = (candidate.device(), asked.request.capacity.as_ref().unwrap_or(&none));
        let others = [self.allocator.snapshot.usage.consumed(name), chosen];
        let does = suffices(wanted, &device.capacity, others);
        if chosen.is_none() && !device.odd && !self.odd {
            let answers = self.known.answers_mut(asked.number);
            answers.judged.set(slot, true);
            answers.lacking.set(slot, !does);
        }
        does
    }

    /// Runs the search; whether there are devices for all claims.
    pub(super) fn run(&mut self) -> Result<bool, AllocationError> {
        let end = self.search();
        #[cfg(test)]
        STEPS.set(self.steps);
        match end {
            End::Found => Ok(true),
            End::Failed(why) => Err(why),
            End::Exceeded => Ok(false),
            End::Nothing if self.reach.has_invalid => {
                Err(AllocationError::Node("invalid resource pools were encountered".to_owned()))
            }
            End::Nothing => Ok(false),
        }
    }

    fn search(&mut self) -> End {
        let mut frames: Vec<Frame<'s>> = Vec::new();
        let mut step = Step::Call { at: At::default(), within: false, from: Place::default() };
        loop {
            step = match step {
                Step::Call { at, within, from } => match self.spend(1) {
                    Ok(()) => self.call(at, within, from, &mut frames),
                    Err(why) => Step::Return(End::Failed(why)),
                },
                Step::Return(end) => match frames.pop() {
                    None => return end,
                    Some(frame) => self.back(frame, end, &mut frames),
                },
            };
        }
    }

    fn call(&mut self, at: At, within: bool, from: Place, frames: &mut Vec<Frame<'s>>) -> Step {
        self.steps += 1;
        let start = |at: At, within: bool| Step::Call { at, within, from: Place::default() };
        let Some(requests) = self.asked.get(at.claim) else { return Step::Return(End::Found) };
        let Some(alternatives) = requests.get(at.request) else {
            frames.push(Frame::Claim);
            return start(At { claim: at.claim + 1, ..At::default() }, false);
        };
        let Some(asked) = alternatives.get(at.alternative) else { return Step::Return(End::Nothing) };
        if !within && !asked.request.parent.is_empty() {
            frames.push(Frame::Alternative { at, exceeded: true });
            return start(at, true);
        }
        let all = asked.request.wants_all();
        if all && asked.all.is_empty() {
            return Step::Return(End::Nothing);
        }
        if at.device >= asked.count {
            return start(At { claim: at.claim, request: at.request + 1, ..At::default() }, false);
        }
        if self.chosen[at.claim].len() + asked.count - at.device > MOST_RESULTS {
            return Step::Return(End::Exceeded);
        }
        if !all {
            return self.next(at, from, frames);
        }
        let candidate = asked.all[at.device];
        match self.choose(at, candidate, true) {
            Err(why) => Step::Return(End::Failed(why)),
            Ok(None) => Step::Return(End::Nothing),
            Ok(Some(undo)) => {
                frames.push(Frame::All(undo));
                start(At { device: at.device + 1, ..at }, true)
            }
        }
    }

    /// Chooses the next device that does, from a place on.
    fn next(&mut self, at: At, from: Place, frames: &mut Vec<Frame<'s>>) -> Step {
        match self.find(at, from) {
            Err(why) => Step::Return(End::Failed(why)),
            Ok(None) => Step::Return(End::Nothing),
            Ok(Some((undo, next))) => {
                frames.push(Frame::One { undo, next });
                Step::Call { at: At { device: at.device + 1, ..at }, within: true, from: next }
            }
        }
    }

    fn find(&mut self, at: At, from: Place) -> Result<Option<(Undo<'s>, Place)>, AllocationError> {
        let reach = self.reach;
        let wants = self.wanted(at);
        for (place, item) in reach.from(from) {
            let Item::Devices(range) = item else { continue };
            let mut slot = range.start.max(place.slot);
            while let Some(next) = self.next_of(at, (slot, range.end), &wants)? {
                self.came(Far::To(place));
                if let Some(undo) = self.consider(at, self.candidate(next))? {
                    return Ok(Some((undo, Place { slot: next + 1, ..place })));
                }
                slot = next + 1;
            }
        }
        self.came(Far::Everywhere);
        Ok(None)
    }

    /// The values that the next device for a request has to have.
    fn wanted(&self, at: At) -> Vec<(Column, u32)> {
        let of = self.asked[at.claim][at.request][at.alternative].request.as_for();
        let all = self.constraints[at.claim].iter().filter_map(|c| c.wants(of));
        all.map(|(column, value)| (column.clone(), value)).collect()
    }

    /// The first device of a row that the request may get. Those that it does not get, as is known, cost next to nothing.
    fn next_of(
        &mut self,
        at: At,
        (from, to): (Slot, Slot),
        wants: &[(Column, u32)],
    ) -> Result<Option<Slot>, AllocationError> {
        let asked = &self.asked[at.claim][at.request][at.alternative];
        let (number, is_admin) = (asked.number, asked.request.is_admin());
        let whole = self.allocator.snapshot.usage.whole();
        let mut passed = 0;
        let mut found = None;
        'row: for word in (from / WORD) as usize..=(to.saturating_sub(1) / WORD) as usize {
            let useless = if self.odd { 0 } else { self.known.useless(number, word) };
            let in_use = if is_admin { 0 } else { whole.word(word) };
            let mut left = within(word, from, to) & !useless & !in_use;
            passed += 1;
            while left != 0 {
                let slot =
                    u32::try_from(word).unwrap_or(u32::MAX).saturating_mul(WORD) + left.trailing_zeros();
                left &= left - 1;
                let has = |(column, value): &(Column, u32)| column.get(slot as usize) == Some(value);
                if wants.iter().all(has) || !self.known.answers(number).asked.has(slot) {
                    found = Some(slot);
                    break 'row;
                }
                passed += 1;
            }
        }
        self.spend(passed / 32)?;
        Ok(found)
    }

    /// Chooses a device if it does.
    fn consider(&mut self, at: At, candidate: Candidate<'s>) -> Result<Option<Undo<'s>>, AllocationError> {
        // Taken out, so that the rest can be changed meanwhile.
        let requests = std::mem::take(&mut self.asked[at.claim]);
        let asked = &requests[at.request][at.alternative];
        let does = if self.in_use(at, &asked.request, candidate) {
            self.spend(1).map(|()| false)
        } else {
            self.selects(at, asked, candidate)
        };
        let does = does.map(|does| does && self.suffices(asked, candidate));
        self.asked[at.claim] = requests;
        if does? { self.choose(at, candidate, false) } else { Ok(None) }
    }

    /// An attempt ended that a frame waited for.
    fn back(&mut self, frame: Frame<'s>, end: End, frames: &mut Vec<Frame<'s>>) -> Step {
        match (frame, end) {
            // Another choice before may leave room in this claim.
            (Frame::Claim, End::Exceeded) => Step::Return(End::Nothing),
            (Frame::Claim, end) => Step::Return(end),
            (Frame::Alternative { at, .. }, End::Found) => {
                self.selected[at.claim][at.request] = at.alternative;
                Step::Return(End::Found)
            }
            (Frame::Alternative { .. }, End::Failed(why)) => Step::Return(End::Failed(why)),
            (Frame::Alternative { at, exceeded }, end) => {
                let exceeded = exceeded && matches!(end, End::Exceeded);
                let next = At { alternative: at.alternative + 1, ..at };
                if next.alternative < self.asked[at.claim][at.request].len() {
                    frames.push(Frame::Alternative { at: next, exceeded });
                    return Step::Call { at: next, within: true, from: Place::default() };
                }
                Step::Return(if exceeded { End::Exceeded } else { End::Nothing })
            }
            (Frame::All(_) | Frame::One { .. }, End::Found) => Step::Return(End::Found),
            (Frame::All(undo), end) => {
                self.undo(&undo);
                Step::Return(end)
            }
            (Frame::One { undo, next }, end) => {
                self.undo(&undo);
                match end {
                    End::Nothing => self.next(undo.at, next, frames),
                    end => Step::Return(end),
                }
            }
        }
    }
}
