//! A priority level that runs: its queues, the clock, and those who wait for a seat.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use access::{RequestInfo, UserInfo};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::classify::Distinguisher;
use super::counts::{Counts, Kinds};
use super::demand::{Nanos, Summary};
use super::dropped::Dropped;
use super::queues::{Arrived, Counted, Estimate, Limit, Queues, Reason, Step, Ticket};

/// For how long a watch may have seats until what it begins with was sent.
///
/// DIFFERENCE: upstream waits for as long as the client takes for it, so that one that takes nothing keeps its seats.
const WATCH: Nanos = 60_000_000_000;

/// A request that comes to a level.
pub(super) struct Coming {
    /// The counts of its schema.
    pub(super) counts: Arc<Counts>,
    /// The mark that tells its flow from others.
    pub(super) distinguisher: Distinguisher,
    /// Its user.
    pub(super) user: Arc<UserInfo>,
    /// Its target.
    pub(super) info: Arc<RequestInfo>,
    /// The seats that it takes.
    pub(super) estimate: Estimate,
    /// The hash of its flow.
    pub(super) hash: u64,
    /// It writes.
    pub(super) mutating: bool,
}

/// A request that waits or runs.
#[derive(Debug)]
pub(super) struct Entry {
    counts: Arc<Counts>,
    distinguisher: Distinguisher,
    /// Its user.
    pub(super) user: Arc<UserInfo>,
    /// Its target.
    pub(super) info: Arc<RequestInfo>,
    wake: Option<oneshot::Sender<()>>,
}

impl Entry {
    /// The name of its schema.
    pub(super) fn schema(&self) -> &str {
        &self.counts.schema
    }

    /// The mark that tells its flow from others of the schema.
    pub(super) fn flow(&self) -> &str {
        self.distinguisher.of(&self.user, &self.info)
    }
}

impl Counted for Entry {
    fn step(&self, step: Step, seats: u32) {
        self.counts.step(step, seats);
    }
}

struct Core {
    queues: Queues<Entry>,
    /// The time until which a task waits for what happens by itself, if one does.
    timed: Option<Nanos>,
}

/// A level.
pub(super) struct Level {
    start: Instant,
    core: Mutex<Core>,
    /// Something happens by itself earlier than the task waits.
    earlier: Arc<Notify>,
    /// It has several queues, so that the hash of a flow matters.
    hashes: AtomicBool,
    widest: AtomicU32,
    /// It goes as soon as it is idle.
    going: AtomicBool,
    /// Told when one that goes is idle.
    idle: Arc<Notify>,
    dropped: Dropped,
    kinds: Arc<Kinds>,
}

/// A request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// When it came.
    AtOnce(Reason),
    /// After it had waited.
    Late,
}

impl Level {
    /// A level without seats, where time begins at `start`.
    pub(super) fn new(start: Instant, kinds: &Arc<Kinds>, idle: &Arc<Notify>) -> Self {
        let now = start.elapsed().as_nanos() as Nanos;
        Self {
            start,
            core: Mutex::new(Core { queues: Queues::new(now), timed: None }),
            earlier: Arc::default(),
            hashes: AtomicBool::default(),
            widest: AtomicU32::default(),
            going: AtomicBool::default(),
            idle: Arc::clone(idle),
            dropped: Dropped::default(),
            kinds: Arc::clone(kinds),
        }
    }

    /// The time.
    pub(super) fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }

    /// It has so many seats, does this with requests that find none, and gives none more than `widest` of them.
    pub(super) fn configure(self: &Arc<Self>, limit: Limit, seats: u32, whole: u32, widest: u32) {
        let several = matches!(limit, Limit::Queue { dealer, .. } if dealer.deck() > 1);
        self.hashes.store(several, Ordering::Relaxed);
        self.widest.store(widest, Ordering::Relaxed);
        self.with(|queues, now| queues.configure(now, limit, seats, whole));
    }

    /// Whether it goes once it is idle.
    pub(super) fn goes(&self) -> bool {
        self.going.load(Ordering::Relaxed)
    }

    /// It is to go once it is idle, or not any more.
    pub(super) fn let_go(&self, going: bool) {
        self.going.store(going, Ordering::Relaxed);
    }

    /// Whether flows have their own queues.
    pub(super) fn hashes(&self) -> bool {
        self.hashes.load(Ordering::Relaxed)
    }

    /// The most seats of one request; 0 for any number.
    pub(super) fn widest(&self) -> u32 {
        self.widest.load(Ordering::Relaxed)
    }

    /// The demand since this was asked last.
    pub(super) fn demand(self: &Arc<Self>) -> Summary {
        self.with(|queues, now| queues.demand(now))
    }

    /// Whether nobody waits, runs or has a seat.
    pub(super) fn is_empty(self: &Arc<Self>) -> bool {
        self.look(|queues| queues.is_idle() && queues.load().2 == 0)
    }

    /// Looks at it, as of now.
    pub(super) fn look<T>(self: &Arc<Self>, look: impl FnOnce(&mut Queues<Entry>) -> T) -> T {
        self.with(|queues, now| {
            queues.tick(now);
            look(queues)
        })
    }

    /// Changes it, and wakes all whose turn it is then.
    fn with<T>(self: &Arc<Self>, change: impl FnOnce(&mut Queues<Entry>, Nanos) -> T) -> T {
        let mut core = self.core.lock();
        let out = change(&mut core.queues, self.now());
        wake(&mut core.queues);
        if let Some(at) = core.queues.awaited() {
            match core.timed {
                Some(timed) if timed <= at => {}
                Some(_) => {
                    core.timed = Some(at);
                    self.earlier.notify_one();
                }
                None => {
                    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                        core.timed = Some(at);
                        let earlier = Arc::clone(&self.earlier);
                        runtime.spawn(pass_time(Arc::downgrade(self), earlier, self.start + nanos(at)));
                    }
                }
            }
        }
        if self.goes() && core.queues.is_idle() && core.queues.load().2 == 0 {
            self.idle.notify_one();
        }
        out
    }

    /// Why a request would be refused if it came now.
    pub(super) fn refusal(self: &Arc<Self>, estimate: Estimate, hash: u64) -> Option<Reason> {
        self.with(|queues, now| queues.refusal(now, estimate, hash))
    }

    /// Notes that a request was refused, and tells after how many seconds it may come again.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.record(self.start.elapsed().as_secs())
    }

    /// A seat for a request, which waits for it for so long at most.
    pub(super) async fn seat(self: &Arc<Self>, coming: Coming, patience: Duration) -> Result<Place, Refused> {
        let Coming { counts, distinguisher, user, info, estimate, hash, mutating } = coming;
        let watch = info.verb == "watch";
        let entry = Entry { counts: Arc::clone(&counts), distinguisher, user, info, wake: None };
        let (arrived, turn) = self.with(|queues, now| {
            let arrived = queues.arrive(now, estimate, hash, entry);
            let mut turn = None;
            match arrived {
                Arrived::Waits(ticket) => {
                    let (wake, woken) = oneshot::channel();
                    if let Some(entry) = queues.request_mut(ticket) {
                        entry.wake = Some(wake);
                    }
                    turn = Some(woken);
                }
                Arrived::Runs(ticket) if watch => queues.end_by(ticket, now + WATCH),
                _ => {}
            }
            (arrived, turn)
        });
        let ticket = match arrived {
            Arrived::Refused(reason) => {
                counts.refused(reason);
                return Err(Refused::AtOnce(reason));
            }
            Arrived::Runs(ticket) | Arrived::Waits(ticket) => ticket,
        };
        let mut place = Place { level: Arc::clone(self), counts, ticket, watch, mutating, runs: false };
        if let Some(turn) = turn {
            self.kinds.waits(mutating, true);
            let _counted = Counting(&self.kinds, mutating);
            if !matches!(tokio::time::timeout(patience, turn).await, Ok(Ok(()))) && place.give_up() {
                return Err(Refused::Late);
            }
            if watch {
                self.with(|queues, now| queues.end_by(ticket, now + WATCH));
            }
        }
        place.runs = true;
        self.kinds.runs(mutating, true);
        Ok(place)
    }
}

/// One that waits.
struct Counting<'k>(&'k Kinds, bool);

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.waits(self.1, false);
    }
}

fn wake(queues: &mut Queues<Entry>) {
    while let Some(entry) = queues.next_begun() {
        // The waiter may have gone; it gives its seat back then.
        if let Some(wake) = entry.wake.take() {
            let _ = wake.send(());
        }
    }
}

fn nanos(time: Nanos) -> Duration {
    Duration::from_nanos(time)
}

/// Has happen what happens by itself, as long as somebody waits for it.
async fn pass_time(level: Weak<Level>, earlier: Arc<Notify>, mut at: Instant) {
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(at) => {}
            () = earlier.notified() => {}
        }
        let Some(level) = level.upgrade() else { return };
        let mut core = level.core.lock();
        core.queues.tick(level.now());
        wake(&mut core.queues);
        core.timed = core.queues.awaited();
        match core.timed {
            Some(next) => at = level.start + nanos(next),
            None => return,
        }
    }
}

/// A place at a level: in a queue, or with seats, until this is dropped.
pub(super) struct Place {
    level: Arc<Level>,
    counts: Arc<Counts>,
    ticket: Ticket,
    watch: bool,
    mutating: bool,
    /// It has seats.
    runs: bool,
}

impl Place {
    /// Waits no longer; false if it has seats by now.
    fn give_up(&self) -> bool {
        let gone = self.level.with(|queues, now| queues.give_up(now, self.ticket));
        if gone {
            self.counts.timed_out();
        }
        gone
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.runs {
            self.level.kinds.runs(self.mutating, false);
        } else if self.give_up() {
            return;
        }
        if let Some(time) = self.level.with(|queues, now| queues.finish(now, self.ticket)) {
            self.counts.ran[usize::from(!self.watch)].observe(time as f64 / 1e9);
        }
    }
}
