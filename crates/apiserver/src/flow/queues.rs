//! The requests of one priority level, and which of them runs next: fair queuing as upstream's `queueset` does it, as a
//! machine without a clock or tasks. Its caller tells what happens and when, and is told which requests begin.
//!
//! Each queue gets the same share of the level's seats. A virtual time `r`, in seat-seconds, tells how much each queue
//! that is not empty has had so far; the queue whose next request would end first by it is served next. As long as
//! nobody knows how long a request takes, it counts as [`SERVICE`].

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::demand::{Integrator, Nanos, Summary, TimingRatio};
use super::shuffle::Dealer;

/// Hundred-millionths of a seat-second.
pub(super) type Work = i128;

/// One seat-second.
const SEAT_SECOND: f64 = 1e8;

/// The time that a request is taken to run for, until it has.
const SERVICE: Nanos = 3_000_000;

/// How many seats for how long.
fn work(seats: f64, time: f64) -> Work {
    (seats * time * (SEAT_SECOND / 1e9)).round() as Work
}

/// `12.00300000ss`, as upstream's pages show it.
pub(super) fn work_text(work: Work) -> String {
    let unit = SEAT_SECOND as Work;
    format!("{}.{:08}ss", work.div_euclid(unit), work.rem_euclid(unit))
}

/// Seat-seconds as a number.
pub(super) fn seat_seconds(work: Work) -> f64 {
    work as f64 / SEAT_SECOND
}

/// The work that a request is thought to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Estimate {
    /// Seats while it runs.
    pub(super) initial: u32,
    /// Seats afterwards.
    pub(super) last: u32,
    /// For how long afterwards.
    pub(super) after: Nanos,
}

impl Estimate {
    /// A request of so many seats, which gives them back at its end.
    pub(super) const fn seats(initial: u32) -> Self {
        Self { initial, last: 0, after: 0 }
    }

    /// The seats that it takes: as many as it needs at any time.
    pub(super) fn most(&self) -> u32 {
        self.initial.max(self.last)
    }
}

/// The treatment of a request for which a level has no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// It has seats for all.
    Exempt,
    /// It refuses it.
    Reject,
    /// It lets it wait in a queue of at most so many.
    Queue {
        /// Chooses the queues.
        dealer: Dealer,
        /// The length of a queue.
        length: usize,
    },
}

/// Why a request was refused; upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// There is no seat, and nobody waits at this level.
    ConcurrencyLimit,
    /// Its queue is full.
    QueueFull,
}

/// The fate of a request that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrived {
    /// It runs.
    Runs(Ticket),
    /// It waits; [`Queues::next_begun`] tells when it runs.
    Waits(Ticket),
    /// It is refused.
    Refused(Reason),
}

/// One request. It is of no use once the request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    slot: u32,
    generation: u32,
}

/// A change of a request, for whoever counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It waits, in a queue that is so long now.
    Queued(usize),
    /// It waits no longer.
    Left,
    /// It runs.
    Began,
    /// It runs no longer.
    Ended,
    /// Its seats are free.
    Freed,
    /// It would be next, and there are too few free seats.
    TooWide,
}

/// A request, as far as the queues are concerned.
pub(super) trait Counted {
    /// A step of the request, with the seats that it takes.
    fn step(&self, step: Step, seats: u32);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    /// It has ended, and its seats are taken for a while.
    Lingering,
}

/// A request that is known.
#[derive(Debug)]
pub(super) struct Known<R> {
    state: State,
    /// Its queue; none where there are no queues.
    queue: Option<usize>,
    /// The work that it is thought to be.
    pub(super) estimate: Estimate,
    /// All of that work.
    total: Work,
    /// The part after its end.
    last: Work,
    /// When it came.
    pub(super) arrived: Nanos,
    arrived_r: Work,
    /// When it began to run.
    pub(super) began: Option<Nanos>,
    /// The caller's own.
    pub(super) request: R,
}

#[derive(Debug)]
struct Slot<R> {
    generation: u32,
    known: Option<Known<R>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<u32>,
    running: usize,
    /// Seats that its requests have.
    seats: u32,
    /// The virtual time at which its next request begins.
    next: Work,
    /// Sums over those that wait.
    work: Work,
    initial: u32,
    most: u32,
}

impl Queue {
    fn is_active(&self) -> bool {
        !self.waiting.is_empty() || self.running > 0
    }
}

/// Counts since the level was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Requests that ran.
    pub(super) dispatched: u64,
    /// Requests that were refused, or waited in vain.
    pub(super) rejected: u64,
    /// Requests that waited in vain.
    pub(super) cancelled: u64,
}

/// The virtual times of the last request that left a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dispatch {
    /// `r` then.
    pub(super) r: Work,
    /// Its own begin.
    pub(super) s: Work,
    /// The earliest and the latest begin over all queues.
    pub(super) bounds: (Work, Work),
    /// The same, less the work of what runs.
    pub(super) discounted: (Work, Work),
}

/// The ranges of ratios; upstream's.
const REQUESTS: &[f64] = &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];
const SEATS: &[f64] = &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
const DEMAND: &[f64] = &[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0];

/// How full a level was over time.
#[derive(Debug)]
pub(super) struct Ratios {
    /// Requests that wait, of those that may.
    pub(super) waiting: TimingRatio,
    /// Requests that run, of the seats.
    pub(super) running: TimingRatio,
    /// Seats that are taken, of all.
    pub(super) seats: TimingRatio,
    /// Seats that would be taken, of all.
    pub(super) demand: TimingRatio,
}

/// The requests of a level.
#[derive(Debug)]
pub(super) struct Queues<R> {
    limit: Limit,
    /// How many seats there are.
    seats_limit: u32,
    queues: Vec<Queue>,
    slots: Vec<Slot<R>>,
    free: Vec<u32>,
    now: Nanos,
    /// The virtual time.
    r: Work,
    /// Queues in which a request waits or runs.
    active: usize,
    /// The queue that was served last.
    robin: usize,
    enqueued: usize,
    waiting: usize,
    waiting_seats: u32,
    running: usize,
    seats: u32,
    /// Seats of those that came through a queue.
    queued_seats: u32,
    /// When requests end by themselves, the first on top; those that ended before are still there.
    ends: BinaryHeap<Reverse<(Nanos, u32, u32)>>,
    begun: Vec<u32>,
    /// Counts.
    pub(super) totals: Totals,
    /// The last request that left a queue.
    pub(super) last: Option<Dispatch>,
    demand: Integrator,
    /// How full the level was.
    pub(super) ratios: Ratios,
}

impl<R: Counted> Queues<R> {
    /// A level without seats.
    pub(super) fn new(now: Nanos) -> Self {
        let ratio = |bounds| TimingRatio::new(bounds, now);
        Self {
            limit: Limit::Reject,
            seats_limit: 0,
            queues: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            now,
            r: 0,
            active: 0,
            robin: 0,
            enqueued: 0,
            waiting: 0,
            waiting_seats: 0,
            running: 0,
            seats: 0,
            queued_seats: 0,
            ends: BinaryHeap::new(),
            begun: Vec::new(),
            totals: Totals::default(),
            last: None,
            demand: Integrator::new(now),
            ratios: Ratios {
                waiting: ratio(REQUESTS),
                running: ratio(REQUESTS),
                seats: ratio(SEATS),
                demand: ratio(DEMAND),
            },
        }
    }

    /// The level has so many seats, and does this with requests that find none. `whole` is what its ratios are of.
    pub(super) fn configure(&mut self, now: Nanos, limit: Limit, seats: u32, whole: u32) {
        self.pass(now);
        let mut places = 1;
        if let Limit::Queue { dealer, length } = limit {
            if self.queues.len() < dealer.deck() {
                self.queues.resize_with(dealer.deck(), Queue::default);
            }
            places = length.max(1) * dealer.deck();
        }
        (self.limit, self.seats_limit) = (limit, seats);
        self.trim();
        self.ratios.waiting.of(now, places as f64);
        for ratio in [&mut self.ratios.running, &mut self.ratios.seats, &mut self.ratios.demand] {
            ratio.of(now, f64::from(whole));
        }
        self.dispatch();
        self.note();
    }

    /// Queues that are too many go once they are empty.
    fn trim(&mut self) {
        let wanted = match self.limit {
            Limit::Queue { dealer, .. } => dealer.deck(),
            Limit::Exempt | Limit::Reject => 0,
        };
        while self.queues.len() > wanted && self.queues.last().is_some_and(|q| !q.is_active() && q.seats == 0)
        {
            self.queues.pop();
        }
        // The next one is that after the last that was served.
        self.robin = self.robin.min(self.queues.len().saturating_sub(1));
    }

    /// A request came, with the hash of its flow.
    pub(super) fn arrive(&mut self, now: Nanos, estimate: Estimate, hash: u64, request: R) -> Arrived {
        self.pass(now);
        let arrived = match self.limit {
            Limit::Exempt => Arrived::Runs(self.run_unqueued(estimate, request)),
            Limit::Reject if self.accommodates(estimate.most()) => {
                Arrived::Runs(self.run_unqueued(estimate, request))
            }
            Limit::Reject => Arrived::Refused(Reason::ConcurrencyLimit),
            Limit::Queue { dealer, length } => {
                let at = self.choose(dealer, hash);
                self.enqueued = self.enqueued.wrapping_add(1);
                if self.is_full(at, length) {
                    Arrived::Refused(Reason::QueueFull)
                } else {
                    self.enqueue(at, estimate, request)
                }
            }
        };
        if let Arrived::Refused(_) = arrived {
            self.totals.rejected += 1;
        }
        self.note();
        arrived
    }

    /// Why a request would be refused if it came now.
    pub(super) fn refusal(&mut self, now: Nanos, estimate: Estimate, hash: u64) -> Option<Reason> {
        self.pass(now);
        match self.limit {
            Limit::Exempt => None,
            Limit::Reject => (!self.accommodates(estimate.most())).then_some(Reason::ConcurrencyLimit),
            Limit::Queue { dealer, length } => {
                let at = self.choose(dealer, hash);
                self.is_full(at, length).then_some(Reason::QueueFull)
            }
        }
    }

    /// Whether one more is too much for a queue.
    ///
    /// DIFFERENCE: upstream lets a queue grow beyond its length as long as a seat is free, even if the next request needs
    /// more than are free, so that any number may wait.
    fn is_full(&self, at: usize, length: usize) -> bool {
        let waiting = self.queues[at].waiting.len();
        waiting >= length && (self.seats >= self.seats_limit || waiting > 0)
    }

    /// The queue of a hand with the least work. Which of equal ones is first changes each time.
    fn choose(&self, dealer: Dealer, hash: u64) -> usize {
        let hand = dealer.deal(hash);
        let cards = hand.cards();
        let first = self.enqueued % cards.len();
        let turned = cards[first..].iter().chain(&cards[..first]);
        let least = turned.min_by_key(|card| self.queues[**card as usize].work);
        least.map_or(0, |card| *card as usize)
    }

    fn accommodates(&self, seats: u32) -> bool {
        match self.limit {
            Limit::Exempt => true,
            // One that is wider than the level has it for itself.
            _ if seats > self.seats_limit => self.running == 0,
            _ => self.seats + seats <= self.seats_limit,
        }
    }

    fn known(&self, estimate: Estimate, queue: Option<usize>, request: R) -> Known<R> {
        let last = work(estimate.last.into(), estimate.after as f64);
        let total = work(estimate.initial.into(), SERVICE as f64) + last;
        let (arrived, arrived_r) = (self.now, self.r);
        let state = State::Waiting;
        Known { state, queue, estimate, total, last, arrived, arrived_r, began: None, request }
    }

    fn keep(&mut self, known: Known<R>) -> Ticket {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, known: None });
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        place.known = Some(known);
        Ticket { slot, generation: place.generation }
    }

    fn forget(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        place.generation = place.generation.wrapping_add(1);
        place.known = None;
        self.free.push(slot);
    }

    fn get(&self, ticket: Ticket) -> Option<&Known<R>> {
        let place = self.slots.get(ticket.slot as usize)?;
        place.known.as_ref().filter(|_| place.generation == ticket.generation)
    }

    /// The caller's own of a request.
    pub(super) fn request_mut(&mut self, ticket: Ticket) -> Option<&mut R> {
        let place = self.slots.get_mut(ticket.slot as usize)?;
        let known = place.known.as_mut().filter(|_| place.generation == ticket.generation)?;
        Some(&mut known.request)
    }

    fn run_unqueued(&mut self, estimate: Estimate, request: R) -> Ticket {
        let mut known = self.known(estimate, None, request);
        known.state = State::Running;
        known.began = Some(self.now);
        let seats = estimate.most();
        known.request.step(Step::Began, seats);
        (self.running, self.seats) = (self.running + 1, self.seats + seats);
        self.totals.dispatched += 1;
        self.keep(known)
    }

    /// Takes a request into a queue, from which it may run at once.
    fn enqueue(&mut self, at: usize, estimate: Estimate, request: R) -> Arrived {
        let known = self.known(estimate, Some(at), request);
        let (seats, total) = (estimate.most(), known.total);
        let free = self.waiting == 0 && self.seats < self.seats_limit && self.accommodates(seats);
        let (r, limit) = (self.r, self.seats_limit);
        let queue = &mut self.queues[at];
        if !queue.is_active() {
            self.active += 1;
            queue.next = r;
        }
        // No request begins before it came.
        if queue.waiting.is_empty() {
            queue.next = queue.next.max(r);
        }
        known.request.step(Step::Queued(queue.waiting.len() + 1), seats);
        if free {
            let discounted = queue.next - work(queue.seats.into(), SERVICE as f64);
            let (bounds, discounted) = ((queue.next, queue.next), (discounted, discounted));
            self.last = Some(Dispatch { r, s: queue.next, bounds, discounted });
            self.robin = at;
            let ticket = self.keep(known);
            self.begin(ticket.slot, at, limit);
            return Arrived::Runs(ticket);
        }
        queue.work += total;
        queue.initial += estimate.initial;
        queue.most += seats;
        (self.waiting, self.waiting_seats) = (self.waiting + 1, self.waiting_seats + seats);
        let ticket = self.keep(known);
        self.queues[at].waiting.push_back(ticket.slot);
        self.dispatch();
        match self.begun.iter().position(|slot| *slot == ticket.slot) {
            Some(at) => {
                self.begun.swap_remove(at);
                Arrived::Runs(ticket)
            }
            None => Arrived::Waits(ticket),
        }
    }

    /// Takes a request out of the sums of those that wait.
    fn unwait(&mut self, slot: u32, at: usize) {
        let Some(known) = &self.slots[slot as usize].known else { return };
        let (estimate, seats, queue) = (known.estimate, known.estimate.most(), &mut self.queues[at]);
        queue.work -= known.total;
        queue.initial -= estimate.initial;
        queue.most -= seats;
        (self.waiting, self.waiting_seats) = (self.waiting - 1, self.waiting_seats - seats);
    }

    /// Has a request of a queue run, which waits no longer.
    fn begin(&mut self, slot: u32, at: usize, limit: u32) {
        let Some(known) = &mut self.slots[slot as usize].known else { return };
        known.request.step(Step::Left, known.estimate.most());
        // The same work with the seats that there are.
        if known.estimate.last > limit {
            known.estimate.last = limit;
            let seats = f64::from(limit.max(1));
            known.estimate.after = (known.last as f64 / seats * (1e9 / SEAT_SECOND)) as Nanos;
        }
        let seats = known.estimate.most();
        known.state = State::Running;
        known.began = Some(self.now);
        known.request.step(Step::Began, seats);
        let queue = &mut self.queues[at];
        queue.next += known.total;
        queue.running += 1;
        queue.seats += seats;
        self.running += 1;
        self.seats += seats;
        self.queued_seats += seats;
        self.totals.dispatched += 1;
    }

    /// Has as many requests run as there are seats for.
    fn dispatch(&mut self) {
        while self.waiting > 0 && self.seats < self.seats_limit && self.dispatch_one() {}
    }

    fn dispatch_one(&mut self) -> bool {
        let count = self.queues.len();
        let mut best: Option<(Work, usize, u32)> = None;
        let (mut bounds, mut discounted) = ((Work::MAX, Work::MIN), (Work::MAX, Work::MIN));
        for turn in 1..=count {
            let at = (self.robin + turn) % count;
            let queue = &self.queues[at];
            let Some(slot) = queue.waiting.front().copied() else { continue };
            let Some(known) = &self.slots[slot as usize].known else { continue };
            let less = queue.next - work(queue.seats.into(), SERVICE as f64);
            bounds = (bounds.0.min(queue.next), bounds.1.max(queue.next));
            discounted = (discounted.0.min(less), discounted.1.max(less));
            let end = queue.next + known.total;
            if best.is_none_or(|(least, ..)| end < least) {
                best = Some((end, at, slot));
            }
        }
        let Some((_, at, slot)) = best else { return false };
        let Some(known) = &self.slots[slot as usize].known else { return false };
        let seats = known.estimate.most();
        if !self.accommodates(seats) {
            known.request.step(Step::TooWide, seats);
            return false;
        }
        self.robin = at;
        self.last = Some(Dispatch { r: self.r, s: self.queues[at].next, bounds, discounted });
        self.queues[at].waiting.pop_front();
        self.unwait(slot, at);
        self.begin(slot, at, self.seats_limit);
        self.bound(at);
        self.begun.push(slot);
        true
    }

    /// The first request of a queue does not begin before it came, however little the queue had.
    fn bound(&mut self, at: usize) {
        let queue = &mut self.queues[at];
        let first = queue.waiting.front().and_then(|slot| self.slots[*slot as usize].known.as_ref());
        if let Some(first) = first {
            queue.next = queue.next.max(first.arrived_r);
        }
    }

    /// A request has ended; how long it ran. Nothing if it had ended already. Its seats may be taken for a while.
    pub(super) fn finish(&mut self, now: Nanos, ticket: Ticket) -> Option<Nanos> {
        self.pass(now);
        let known = self.get(ticket).filter(|known| known.state == State::Running)?;
        let time = self.now.saturating_sub(known.began.unwrap_or(self.now));
        self.end(ticket.slot);
        self.dispatch();
        self.note();
        Some(time)
    }

    /// Ends a request that runs.
    fn end(&mut self, slot: u32) {
        let generation = self.slots[slot as usize].generation;
        let Some(known) = &mut self.slots[slot as usize].known else { return };
        let (estimate, queue) = (known.estimate, known.queue);
        let time = self.now.saturating_sub(known.began.unwrap_or(self.now));
        known.request.step(Step::Ended, estimate.most());
        self.running -= 1;
        let lingers = estimate.after > 0 && estimate.last > 0;
        if lingers {
            known.state = State::Lingering;
            self.ends.push(Reverse((self.now + estimate.after, slot, generation)));
        }
        if let Some(at) = queue {
            let queue = &mut self.queues[at];
            queue.running -= 1;
            queue.next -= work(estimate.initial.into(), SERVICE as f64 - time as f64);
            if !queue.is_active() {
                self.active -= 1;
            }
            self.bound(at);
        }
        if !lingers {
            self.release(slot);
        }
    }

    /// Frees the seats of a request that has ended.
    fn release(&mut self, slot: u32) {
        let Some(known) = &self.slots[slot as usize].known else { return };
        let (seats, queue) = (known.estimate.most(), known.queue);
        known.request.step(Step::Freed, seats);
        self.seats -= seats;
        if let Some(at) = queue {
            self.queued_seats -= seats;
            self.queues[at].seats -= seats;
        }
        self.forget(slot);
        self.trim();
    }

    /// A request waits no longer for its turn. Whether it waited until now; if not, it runs, or has ended.
    pub(super) fn give_up(&mut self, now: Nanos, ticket: Ticket) -> bool {
        self.pass(now);
        let Some(known) = self.get(ticket).filter(|known| known.state == State::Waiting) else {
            return false;
        };
        let Some(at) = known.queue else { return false };
        known.request.step(Step::Left, known.estimate.most());
        self.queues[at].waiting.retain(|slot| *slot != ticket.slot);
        self.unwait(ticket.slot, at);
        if !self.queues[at].is_active() {
            self.active -= 1;
        }
        self.bound(at);
        self.forget(ticket.slot);
        self.totals.rejected += 1;
        self.totals.cancelled += 1;
        self.trim();
        // It may have been the one for which there were too few seats.
        self.dispatch();
        self.note();
        true
    }

    /// A request that runs ends at this time at the latest.
    pub(super) fn end_by(&mut self, ticket: Ticket, at: Nanos) {
        if self.ends.len() > 2 * self.slots.len() + 64 {
            let slots = &self.slots;
            self.ends.retain(|Reverse((_, slot, generation))| {
                slots.get(*slot as usize).is_some_and(|s| s.generation == *generation)
            });
        }
        self.ends.push(Reverse((at, ticket.slot, ticket.generation)));
    }

    /// Lets time pass, with all that happens by itself meanwhile.
    pub(super) fn tick(&mut self, now: Nanos) {
        self.pass(now);
        self.note();
    }

    fn pass(&mut self, now: Nanos) {
        while let Some(Reverse((at, slot, generation))) = self.ends.peek().copied()
            && at <= now
        {
            self.ends.pop();
            let Some(place) = self.slots.get(slot as usize).filter(|s| s.generation == generation) else {
                continue;
            };
            let Some(state) = place.known.as_ref().map(|known| known.state) else { continue };
            self.flow(at);
            match state {
                State::Lingering => self.release(slot),
                State::Running => self.end(slot),
                State::Waiting => continue,
            }
            self.dispatch();
            self.note();
        }
        self.flow(now);
    }

    /// The virtual time goes on with the seats that each queue has.
    fn flow(&mut self, now: Nanos) {
        let time = now.saturating_sub(self.now);
        self.now = self.now.max(now);
        if self.active > 0 && time > 0 {
            let wanted = f64::from((self.queued_seats + self.waiting_seats).min(self.seats_limit));
            self.r += work(wanted / self.active as f64, time as f64);
        }
    }

    fn note(&mut self) {
        let (now, demand) = (self.now, f64::from(self.seats + self.waiting_seats));
        self.demand.set(now, demand);
        self.ratios.demand.set(now, demand);
        self.ratios.waiting.set(now, self.waiting as f64);
        self.ratios.running.set(now, self.running as f64);
        self.ratios.seats.set(now, f64::from(self.seats));
    }

    /// One of those that run since this was asked last, except those that ran when they came.
    pub(super) fn next_begun(&mut self) -> Option<&mut R> {
        loop {
            let slot = self.begun.pop()? as usize;
            if self.slots[slot].known.is_some() {
                return self.slots[slot].known.as_mut().map(|known| &mut known.request);
            }
        }
    }

    /// When something happens by itself, if anybody waits for it.
    pub(super) fn awaited(&self) -> Option<Nanos> {
        let first = self.ends.peek().filter(|_| self.waiting > 0)?;
        Some(first.0.0)
    }

    /// The demand for seats since this was asked last.
    pub(super) fn demand(&mut self, now: Nanos) -> Summary {
        self.pass(now);
        self.demand.take(now)
    }

    /// Whether no request waits or runs.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.running == 0
    }

    /// The virtual time.
    pub(super) fn r(&self) -> Work {
        self.r
    }

    /// Requests that wait, requests that run, and seats that are taken.
    pub(super) fn load(&self) -> (usize, usize, u32) {
        (self.waiting, self.running, self.seats)
    }
}

/// A queue, to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    /// Requests that wait.
    pub(super) waiting: usize,
    /// Requests that run.
    pub(super) running: usize,
    /// Seats that they have.
    pub(super) seats: u32,
    /// The virtual time at which the next one begins.
    pub(super) next: Work,
    /// Sums over those that wait: the seats that they need first, and at most, and their work.
    pub(super) sums: (u32, u32, Work),
}

/// The place of a request: its queue, and which it is of those that wait there.
pub(super) type Place = (Option<usize>, Option<usize>);

impl<R> Queues<R> {
    /// The queues.
    pub(super) fn shown(&self) -> impl Iterator<Item = Shown> {
        self.queues.iter().map(|q| Shown {
            waiting: q.waiting.len(),
            running: q.running,
            seats: q.seats,
            next: q.next,
            sums: (q.initial, q.most, q.work),
        })
    }

    /// The requests that wait or run: by queue, those that wait first; then those without one.
    pub(super) fn requests(&self) -> Vec<(Place, &Known<R>)> {
        let mut all = Vec::new();
        for (slot, place) in self.slots.iter().enumerate() {
            let Some(known) = &place.known else { continue };
            let at = match (known.state, known.queue) {
                (State::Lingering, _) => continue,
                (State::Waiting, Some(queue)) => {
                    let order = self.queues[queue].waiting.iter().position(|s| *s as usize == slot);
                    (Some(queue), order)
                }
                (_, queue) => (queue, None),
            };
            all.push((at, known));
        }
        all.sort_by_key(|((queue, order), _)| (queue.is_none(), *queue, order.is_none(), *order));
        all
    }
}
