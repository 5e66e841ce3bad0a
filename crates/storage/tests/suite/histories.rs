//! Histories of concurrent clients, checked for linearizability.
//!
//! Every write has a revision, and one watch shows them all: their order is known, and does not have to be guessed. A
//! history is linearizable if each answer is right at one moment between its question and itself, in that order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use storage::Cause;

use super::*;

const CLIENTS: usize = 12;
const OPERATIONS: usize = 120;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The question of a client.
#[derive(Debug, Clone)]
enum Question {
    Create { name: &'static str, body: Bytes },
    Update { name: &'static str, body: Bytes, expect: u64 },
    Delete { name: &'static str, expect: u64 },
    Get { name: &'static str },
    List,
}

/// The answer to a question.
#[derive(Debug, Clone)]
enum Answer {
    /// The write was done, at a revision.
    Done(u64),
    /// The revision of the present object; 0 if there is none.
    There(u64),
    /// The names and revisions of all objects at a revision.
    All(u64, BTreeMap<Text, u64>),
    /// It is not known whether the write was done.
    Unknown,
}

/// An operation with the moments of its question and its answer.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    asked: u64,
    answered: u64,
    question: Question,
    answer: Answer,
}

/// Runs a client. With `shared`, others write to the store through another one; then every operation begins with the
/// newest state.
async fn client(
    s: Store,
    r: ResourceId,
    clock: &AtomicU64,
    mut random: fastrand::Rng,
    shared: bool,
) -> Vec<Operation> {
    let mut history = Vec::new();
    // The revisions that the client last saw of each object, which may be long gone.
    let mut seen = BTreeMap::<&str, u64>::new();
    for _ in 0..OPERATIONS {
        let name = random.choice(NAMES).unwrap();
        let expect = seen.get(name).copied().unwrap_or(0);
        let new = object("ns", name, "", &random.u64(..).to_string());
        let body = new.body.clone();
        let asked = clock.fetch_add(1, Ordering::SeqCst);
        if shared {
            s.fresh(&[r]).await.unwrap();
        }
        let (question, outcome) = match random.u8(..10) {
            0..2 => {
                let write = Write::Create { resource: r, object: new, ttl: None };
                (Question::Create { name, body }, Some(s.commit(write).await))
            }
            2..6 => {
                let write = Write::Update { resource: r, object: new, expect, ttl: None };
                (Question::Update { name, body, expect }, Some(s.commit(write).await))
            }
            6 => {
                let write = Write::Delete { resource: r, namespace: "ns".into(), name: name.into(), expect };
                (Question::Delete { name, expect }, Some(s.commit(write).await))
            }
            7..9 => (Question::Get { name }, None),
            _ => (Question::List, None),
        };
        let answer = match (&question, outcome) {
            (_, Some(Ok(object))) => Answer::Done(object.revision),
            (_, Some(Err(WriteError::Exists(o) | WriteError::Changed(o)))) => Answer::There(o.revision),
            (_, Some(Err(WriteError::NotFound))) => Answer::There(0),
            (
                _,
                Some(Err(
                    WriteError::Unreadable(_)
                    | WriteError::NoSpace
                    | WriteError::Engine(_)
                    | WriteError::Closed,
                )),
            ) => Answer::Unknown,
            (Question::List, None) => {
                let all = s.snapshot(r);
                let of = |o: &Arc<Object>| (o.data.name.clone(), o.revision);
                Answer::All(all.revision(), all.scan(&Scope::default(), None).map(of).collect())
            }
            (_, None) => Answer::There(s.get(r, "ns", name).map_or(0, |o| o.revision)),
        };
        match (&question, &answer) {
            (Question::Delete { .. }, Answer::Done(_)) | (_, Answer::Unknown) => {}
            (_, Answer::Done(at) | Answer::There(at)) => drop(seen.insert(name, *at)),
            (_, Answer::All(_, all)) => {
                for name in NAMES {
                    seen.insert(name, all.get(name).copied().unwrap_or(0));
                }
            }
        }
        let answered = clock.fetch_add(1, Ordering::SeqCst);
        history.push(Operation { asked, answered, question, answer });
    }
    history
}

/// The revisions of one object's states, 0 for none, each with the revision since which it was so.
type States = Vec<(u64, u64)>;

/// Checks the answers against the events.
pub(crate) fn check(mut history: Vec<Operation>, happened: &[Arc<Event>]) {
    let mut states: BTreeMap<Text, States> =
        NAMES.iter().map(|name| (Text::from(*name), vec![(0, 0)])).collect();
    let mut bodies = BTreeMap::new();
    for event in happened {
        let states = states.get_mut(&event.object.data.name).unwrap();
        let now = if event.cause == Cause::Deleted { 0 } else { event.revision };
        let before = states.last().map_or(0, |s| s.1);
        assert_eq!(event.previous.as_ref().map_or(0, |p| p.revision), before, "one state leads to the next");
        assert_eq!(event.cause == Cause::Added, before == 0);
        states.push((event.revision, now));
        bodies.insert(event.revision, (event.cause, &event.object.data.body));
    }
    let mut unanswered: Vec<_> = happened.iter().map(|e| e.revision).collect();
    // The time at which the write of a revision was asked for, the earliest at which any client can have seen it.
    let mut asked_at = BTreeMap::new();
    for op in &history {
        let Answer::Done(at) = op.answer else { continue };
        // An update that changes nothing has the revision of the write before.
        let found = unanswered.binary_search(&at).expect("every acknowledged write happened, once");
        unanswered.remove(found);
        asked_at.insert(at, op.asked);
        let (cause, body) = bodies[&at];
        let states = |name: &str| &states[name];
        let before = |name: &str| {
            let states = states(name);
            let here = states.binary_search_by_key(&at, |s| s.0).expect("a state of this object");
            states[here - 1].1
        };
        match &op.question {
            Question::Create { name, body: wrote } => {
                assert_eq!((cause, body, before(name)), (Cause::Added, wrote, 0));
            }
            Question::Update { name, body: wrote, expect } => {
                assert_eq!((cause, body, before(name)), (Cause::Modified, wrote, *expect));
            }
            Question::Delete { name, expect } => {
                assert_eq!((cause, before(name)), (Cause::Deleted, *expect));
            }
            Question::Get { .. } | Question::List => unreachable!("reads are not done"),
        }
    }
    // A write without an answer must at least have been asked for.
    for at in unanswered {
        let (cause, body) = bodies[&at];
        let asked = history.iter().find(|op| {
            matches!(op.answer, Answer::Unknown)
                && match &op.question {
                    Question::Create { body: wrote, .. } => cause == Cause::Added && body == wrote,
                    Question::Update { body: wrote, .. } => cause == Cause::Modified && body == wrote,
                    Question::Delete { .. } => cause == Cause::Deleted,
                    Question::Get { .. } | Question::List => false,
                }
        });
        asked_at.insert(at, asked.expect("nobody asked for this").asked);
    }
    // An answer is not older than any answer given before its question.
    history.sort_by_key(|op| op.answered);
    let mut by_question: Vec<_> = history.iter().collect();
    by_question.sort_by_key(|op| op.asked);
    let (mut known, mut answered) = (0, history.iter().peekable());
    for op in by_question {
        while let Some(earlier) = answered.next_if(|e| e.answered < op.asked) {
            known = known.max(match &earlier.answer {
                Answer::Done(at) | Answer::There(at) | Answer::All(at, _) => *at,
                Answer::Unknown => 0,
            });
        }
        let seen = |at: u64| {
            let asked = asked_at.get(&at).copied().unwrap_or(0);
            assert!(at == 0 || asked < op.answered, "{op:?} saw the future");
        };
        match (&op.question, &op.answer) {
            (_, Answer::Done(at)) => assert!(*at > known, "{op:?} when {known} was known"),
            (_, Answer::All(at, all)) => {
                assert!(*at >= known, "{op:?} when {known} was known");
                seen(all.values().copied().max().unwrap_or(0));
                for (name, states) in &states {
                    let here = states.partition_point(|s| s.0 <= *at);
                    let there = states[here - 1].1;
                    assert_eq!(all.get(name).copied().unwrap_or(0), there, "{name} in {op:?}");
                }
            }
            (
                Question::Create { name, .. }
                | Question::Update { name, .. }
                | Question::Delete { name, .. }
                | Question::Get { name },
                Answer::There(at),
            ) => {
                seen(*at);
                if let Question::Update { expect, .. } | Question::Delete { expect, .. } = &op.question {
                    assert!(*at == 0 || at != expect, "refused for no reason: {op:?}");
                }
                // The object was in this state at some moment after all that was known.
                let states = &states[*name];
                let was = (0..states.len()).any(|i| {
                    let until = states.get(i + 1).map_or(u64::MAX, |s| s.0);
                    states[i].1 == *at && until > known
                });
                assert!(was, "{op:?} when {known} was known, of {states:?}");
            }
            (_, Answer::Unknown) => {}
            (Question::List, Answer::There(_)) => unreachable!("a list has its own answer"),
        }
    }
}

/// Lets clients work on an empty store, with a task meanwhile, and checks their answers.
pub(crate) async fn run(s: &Store, seed: u64, meanwhile: impl Future<Output = ()>) {
    run_on(std::slice::from_ref(s), seed, meanwhile).await;
}

/// Like [`run`], through several stores that share their data.
pub(crate) async fn run_on(stores: &[Store], seed: u64, meanwhile: impl Future<Output = ()>) {
    println!("seed {seed}");
    let s = &stores[0];
    let r = pods(s);
    let start = s.current(r);
    let clock = Arc::new(AtomicU64::new(1));
    let mut random = fastrand::Rng::with_seed(seed);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let (s, clock, random) = (stores[n % stores.len()].clone(), clock.clone(), random.fork());
            let (r, shared) = (pods(&s), stores.len() > 1);
            tokio::spawn(async move { client(s, r, &clock, random, shared).await })
        })
        .collect();
    let (clients, ()) = tokio::join!(futures::future::join_all(clients), meanwhile);
    let history: Vec<_> = clients.into_iter().flat_map(Result::unwrap).collect();
    // This is the last event, so that the watch has an end.
    let end = create(s, r, "ns", "end", "").await.revision;
    let mut w = watch(s, r, Scope::default(), WatchStart::After(start));
    let mut happened = Vec::new();
    while happened.last().is_none_or(|e: &Arc<Event>| e.revision < end) {
        happened.extend(events(&mut w, 1).await);
    }
    happened.pop();
    check(history, &happened);
}

pub(crate) async fn linearizable<F: Fixture>() {
    for seed in 0..5 {
        let f = F::fresh().await;
        run(f.store(), seed, async {}).await;
    }
}
