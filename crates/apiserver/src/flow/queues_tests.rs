//! Fair queuing, as a machine: no clock, no tasks.

use std::cell::RefCell;
use std::rc::Rc;

use super::demand::Nanos;
use super::queues::{Arrived, Counted, Estimate, Limit, Queues, Reason, Step, Ticket, work_text};
use super::shuffle::{Dealer, hash};

const MILLI: Nanos = 1_000_000;
const SECOND: Nanos = 1000 * MILLI;

/// A request of a flow, which notes when it has begun.
#[derive(Debug, Clone)]
struct Request {
    flow: usize,
    begun: Rc<RefCell<bool>>,
}

impl Counted for Request {
    fn step(&self, step: Step, _: u32) {
        if step == Step::Began {
            *self.begun.borrow_mut() = true;
        }
    }
}

fn request(flow: usize) -> Request {
    Request { flow, begun: Rc::default() }
}

fn queueing(queues: i32, hand: i32, length: usize) -> Limit {
    Limit::Queue { dealer: Dealer::new(queues, hand).unwrap(), length }
}

fn level(limit: Limit, seats: u32) -> Queues<Request> {
    let mut level = Queues::new(0);
    level.configure(0, limit, seats, seats);
    level
}

/// Hashes of flows that have no queue in common.
fn apart(dealer: Dealer, count: usize) -> Vec<u64> {
    let mut found: Vec<u64> = Vec::new();
    for n in 0.. {
        let hash = hash("schema", &format!("flow-{n}"));
        let hand = dealer.deal(hash);
        let free = |other: &u64| dealer.deal(*other).cards().iter().all(|c| !hand.cards().contains(c));
        if found.iter().all(free) {
            found.push(hash);
            if found.len() == count {
                break;
            }
        }
    }
    found
}

/// Clients that always have a request at the level: so many of a flow, each request of so many seats.
#[derive(Clone, Copy)]
struct Clients {
    count: usize,
    estimate: Estimate,
    /// How long a request runs.
    time: Nanos,
}

/// Has clients use a level for a time; the seat-seconds that each flow had.
fn simulate(level: &mut Queues<Request>, hashes: &[u64], clients: &[Clients], until: Nanos) -> Vec<f64> {
    struct Client {
        flow: usize,
        ticket: Ticket,
        request: Request,
        ends: Option<Nanos>,
    }
    let mut now = 0;
    let mut had = vec![0.0; clients.len()];
    let come = |level: &mut Queues<Request>, now: Nanos, flow: usize| {
        let request = request(flow);
        match level.arrive(now, clients[flow].estimate, hashes[flow], request.clone()) {
            Arrived::Runs(ticket) | Arrived::Waits(ticket) => Client { flow, ticket, request, ends: None },
            Arrived::Refused(reason) => panic!("{reason:?}"),
        }
    };
    let mut all: Vec<Client> = Vec::new();
    for (flow, of) in clients.iter().enumerate() {
        for _ in 0..of.count {
            all.push(come(level, now, flow));
        }
    }
    while now < until {
        for client in &mut all {
            if *client.request.begun.borrow() && client.ends.is_none() {
                client.ends = Some(now + clients[client.flow].time);
            }
        }
        while level.next_begun().is_some() {}
        let next = all.iter().filter_map(|client| client.ends).min().unwrap();
        now = level.awaited().map_or(next, |awaited| awaited.min(next)).max(now);
        level.tick(now);
        for client in &mut all {
            if client.ends.is_some_and(|at| at <= now) {
                let time = level.finish(now, client.ticket).unwrap() as f64 / 1e9;
                had[client.flow] += time * f64::from(clients[client.flow].estimate.initial);
                *client = come(level, now, client.flow);
            }
        }
    }
    had
}

/// Whether it is what is expected, but for a tenth: a flow waits for whole seats, and others' requests end when they do.
fn assert_about(got: f64, expected: f64, what: &str) {
    assert!((got - expected).abs() <= 0.1 * expected, "{what}: {got} instead of {expected}");
}

/// It is queues that get equal parts: with a hand of one, so do flows.
#[test]
fn flows_of_different_demand_get_equal_seats() {
    let limit = queueing(64, 1, 100);
    let Limit::Queue { dealer, .. } = limit else { unreachable!() };
    let hashes = apart(dealer, 3);
    let clients = |count, time| Clients { count, estimate: Estimate::seats(1), time: time * MILLI };
    let all = [clients(50, 97), clients(6, 101)];
    let had = simulate(&mut level(limit, 6), &hashes[..2], &all, 60 * SECOND);
    assert_about(had[0], 180.0, "who wants much");
    assert_about(had[1], 180.0, "who wants less");
    // One that wants less than its part gets what it wants, and the others share the rest.
    let all = [clients(50, 97), clients(50, 89), clients(1, 311)];
    let had = simulate(&mut level(limit, 6), &hashes, &all, 60 * SECOND);
    assert_about(had[2], 60.0, "who wants little");
    assert_about(had[0], 150.0, "who wants much");
    assert_about(had[1], 150.0, "who wants as much");
}

#[test]
fn wide_and_long_requests_count_for_what_they_take() {
    let limit = queueing(64, 4, 100);
    let Limit::Queue { dealer, .. } = limit else { unreachable!() };
    let hashes = apart(dealer, 2);
    let clients = |seats, time| Clients { count: 20, estimate: Estimate::seats(seats), time: time * MILLI };
    let all = [clients(1, 97), clients(3, 101)];
    let had = simulate(&mut level(limit, 6), &hashes, &all, 60 * SECOND);
    assert_about(had[0], had[1], "wide requests");
    let all = [clients(1, 53), clients(1, 499)];
    let had = simulate(&mut level(limit, 6), &hashes, &all, 100 * SECOND);
    assert_about(had[0], had[1], "long requests");
}

#[test]
fn seats_are_taken_for_a_while_after_the_end() {
    let mut level = level(queueing(1, 1, 10), 4);
    let lingering = Estimate { initial: 1, last: 3, after: 10 * MILLI };
    let Arrived::Runs(first) = level.arrive(0, lingering, 0, request(0)) else { panic!() };
    assert_eq!(level.load(), (0, 1, 3), "as many as it needs at any time");
    let second = level.arrive(0, Estimate::seats(2), 0, request(0));
    assert!(matches!(second, Arrived::Waits(_)));
    assert_eq!((level.finish(5 * MILLI, first), level.awaited()), (Some(5 * MILLI), Some(15 * MILLI)));
    assert_eq!((level.load(), level.is_idle()), ((1, 0, 3), false));
    level.tick(14 * MILLI);
    assert!(level.next_begun().is_none());
    level.tick(16 * MILLI);
    assert!(level.next_begun().is_some() && level.load() == (0, 1, 2));
    assert_eq!(level.finish(17 * MILLI, first), None, "it has ended");
}

/// More seats afterwards than there are become fewer for longer.
#[test]
fn what_is_too_wide_is_longer() {
    let mut level = level(queueing(1, 1, 10), 2);
    let wide = Estimate { initial: 1, last: 10, after: 10 * MILLI };
    let Arrived::Runs(ticket) = level.arrive(0, wide, 0, request(0)) else { panic!() };
    assert_eq!(level.load().2, 2);
    level.finish(0, ticket);
    level.arrive(0, Estimate::seats(1), 0, request(0));
    assert_eq!(level.awaited(), Some(50 * MILLI), "ten seats for 10 ms are two for 50");
}

#[test]
fn what_is_wider_than_the_level_has_it_for_itself() {
    let mut level = level(queueing(4, 1, 10), 2);
    let Arrived::Runs(first) = level.arrive(0, Estimate::seats(1), 0, request(0)) else { panic!() };
    let wide = level.arrive(0, Estimate::seats(5), 1, request(1));
    assert!(matches!(wide, Arrived::Waits(_)));
    let next = level.arrive(0, Estimate::seats(1), 2, request(2));
    assert!(matches!(next, Arrived::Runs(_)), "its end is earlier: {next:?}");
    let Arrived::Runs(next) = next else { return };
    level.finish(MILLI, first);
    assert!(level.next_begun().is_none());
    level.finish(MILLI, next);
    assert!(level.next_begun().is_some());
    assert_eq!(level.load(), (0, 1, 5));
}

#[test]
fn what_is_too_much_is_refused() {
    let mut rejecting = level(Limit::Reject, 2);
    let one = Estimate::seats(1);
    for _ in 0..2 {
        assert!(matches!(rejecting.arrive(0, one, 0, request(0)), Arrived::Runs(_)));
    }
    assert_eq!(rejecting.refusal(0, one, 0), Some(Reason::ConcurrencyLimit));
    assert_eq!(rejecting.arrive(0, one, 0, request(0)), Arrived::Refused(Reason::ConcurrencyLimit));
    assert_eq!(rejecting.load(), (0, 2, 2));

    let mut queueing = level(queueing(1, 1, 3), 2);
    for n in 0..5 {
        let arrived = queueing.arrive(0, one, 0, request(0));
        assert_eq!(matches!(arrived, Arrived::Runs(_)), n < 2, "{n}");
    }
    assert_eq!(queueing.refusal(0, one, 0), Some(Reason::QueueFull));
    assert_eq!(queueing.arrive(0, one, 0, request(0)), Arrived::Refused(Reason::QueueFull));
    assert_eq!((queueing.load(), queueing.totals.rejected), ((3, 2, 2), 1));

    // However wide the first one is, a queue has its length.
    let mut wide = level(self::queueing(1, 1, 3), 4);
    assert!(matches!(wide.arrive(0, Estimate::seats(3), 0, request(0)), Arrived::Runs(_)));
    for _ in 0..3 {
        assert!(matches!(wide.arrive(0, Estimate::seats(3), 0, request(0)), Arrived::Waits(_)));
    }
    assert_eq!(wide.arrive(0, Estimate::seats(3), 0, request(0)), Arrived::Refused(Reason::QueueFull));

    let mut exempt = level(Limit::Exempt, 0);
    for _ in 0..1000 {
        assert!(matches!(exempt.arrive(0, one, 0, request(0)), Arrived::Runs(_)));
    }
}

/// Upstream's anti-windup: a queue that used less than its part for long does not get it all afterwards.
#[test]
fn nobody_saves_seats() {
    let limit = queueing(16, 1, 100);
    let Limit::Queue { dealer, .. } = limit else { unreachable!() };
    let hashes = apart(dealer, 2);
    let clients = |count, time| Clients { count, estimate: Estimate::seats(1), time };
    let mut level = level(limit, 4);
    simulate(&mut level, &hashes, &[clients(1, 100 * MILLI), clients(50, 100 * MILLI)], 60 * SECOND);
    let used: Vec<_> = level.shown().filter(|queue| queue.next > 0).map(|queue| queue.next).collect();
    assert_eq!(used.len(), 2);
    assert!(used.iter().all(|next| *next >= level.r()), "{used:?} {}", level.r());
}

#[test]
fn a_level_that_changes() {
    let one = Estimate::seats(1);
    let mut level = level(queueing(8, 1, 10), 1);
    let Arrived::Runs(first) = level.arrive(0, one, 7, request(0)) else { panic!() };
    let waits: Vec<_> = (0..7).map(|n| level.arrive(0, one, n, request(0))).collect();
    assert_eq!(level.shown().count(), 8);
    // Fewer queues: those that are not empty stay until they are.
    level.configure(0, queueing(2, 1, 10), 1, 1);
    assert_eq!((level.shown().count(), level.load()), (8, (7, 1, 1)));
    level.finish(MILLI, first);
    level.configure(MILLI, Limit::Reject, 3, 3);
    assert_eq!(level.load(), (4, 3, 3), "more seats are taken at once");
    for arrived in waits {
        let Arrived::Waits(ticket) = arrived else { panic!() };
        level.tick(2 * MILLI);
        assert!(level.finish(2 * MILLI, ticket).is_some());
    }
    assert!(level.is_idle() && level.load().2 == 0);
    assert_eq!(level.shown().count(), 0);
    assert!(matches!(level.arrive(3 * MILLI, one, 7, request(0)), Arrived::Runs(_)));
}

/// A watch whose client takes nothing gives its seats back.
#[test]
fn what_runs_for_too_long_ends() {
    let mut level = level(queueing(1, 1, 10), 1);
    let Arrived::Runs(watch) = level.arrive(0, Estimate::seats(1), 0, request(0)) else { panic!() };
    level.end_by(watch, SECOND);
    level.arrive(0, Estimate::seats(1), 0, request(1));
    assert_eq!(level.awaited(), Some(SECOND));
    level.tick(SECOND);
    assert_eq!(level.load(), (0, 1, 1));
    assert_eq!(level.next_begun().map(|request| request.flow), Some(1));
    assert_eq!(level.finish(2 * SECOND, watch), None);
    for _ in 0..1000 {
        level.end_by(watch, 3 * SECOND);
    }
    level.tick(4 * SECOND);
    assert_eq!(level.load(), (0, 1, 1), "another request has its place by now");
}

/// However requests come, end, and are given up, all seats are free in the end, and never more are taken than there are.
#[test]
fn seats_do_not_leak() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let limits = [Limit::Reject, queueing(1, 1, 5), queueing(8, 2, 3), queueing(64, 6, 10)];
        let mut limit = *rng.choice(&limits).unwrap();
        let (mut seats, mut now) = (rng.u32(0..10), 0);
        let mut level = level(limit, seats);
        let mut tickets: Vec<Ticket> = Vec::new();
        for _ in 0..500 {
            now += rng.u64(0..3) * MILLI;
            match rng.u8(0..10) {
                0..5 => {
                    let last = rng.u32(0..4);
                    let after = if last == 0 { 0 } else { rng.u64(0..10) * MILLI };
                    let estimate = Estimate { initial: rng.u32(1..4), last, after };
                    let most = estimate.most();
                    let before = level.load();
                    match level.arrive(now, estimate, rng.u64(..), request(0)) {
                        Arrived::Refused(_) => {}
                        Arrived::Runs(ticket) => {
                            // One that is wider than the level runs with what others still hold.
                            assert!(level.load().2 <= seats.max(before.2) + most, "{seed}");
                            tickets.push(ticket);
                        }
                        Arrived::Waits(ticket) => tickets.push(ticket),
                    }
                }
                5..9 if !tickets.is_empty() => {
                    let ticket = tickets.swap_remove(rng.usize(..tickets.len()));
                    if !level.give_up(now, ticket) {
                        assert!(level.finish(now, ticket).is_some());
                    }
                }
                _ => {
                    (limit, seats) = (*rng.choice(&limits).unwrap(), rng.u32(0..10));
                    level.configure(now, limit, seats, seats);
                }
            }
            while level.next_begun().is_some() {}
            let (waiting, running, taken) = level.load();
            assert_eq!(waiting + running, tickets.len(), "{seed}");
            let shown: Vec<_> = level.shown().collect();
            assert_eq!(shown.iter().map(|queue| queue.waiting).sum::<usize>(), waiting);
            assert!(shown.iter().map(|queue| queue.seats).sum::<u32>() <= taken);
            assert_eq!(level.requests().len(), tickets.len());
        }
        for ticket in tickets {
            if !level.give_up(now, ticket) {
                assert!(level.finish(now, ticket).is_some());
            }
        }
        level.tick(now + SECOND);
        assert_eq!((level.load(), level.is_idle(), level.awaited()), ((0, 0, 0), true, None), "{seed}");
        let idle = |queue: super::queues::Shown| {
            (queue.waiting, queue.running, queue.seats, queue.sums) == (0, 0, 0, (0, 0, 0))
        };
        assert!(level.shown().all(idle), "{seed}");
    }
}

#[test]
fn work_as_text() {
    let check = |work, expected: &str| assert_eq!(work_text(work), expected);
    check(0, "0.00000000ss");
    check(1_200_300_000, "12.00300000ss");
    check(99_999_999, "0.99999999ss");
}
