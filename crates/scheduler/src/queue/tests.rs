use serde_json::json;

use super::*;
use crate::events::About;
use crate::framework::points::Prospects;

fn pod(uid: &str, priority: i32, gates: serde_json::Value) -> PodInfo {
    let pod = json!({"metadata": {"uid": uid}, "spec": {"priority": priority, "schedulingGates": gates, "containers": []}});
    PodInfo::new(serde_json::from_value(pod).unwrap())
}

const INITIAL_BACKOFF: Duration = Duration::from_secs(1);

fn queue() -> Queue {
    queue_that(false)
}

fn queue_that(cuts_backoff: bool) -> Queue {
    let profile = crate::plugins::tests::profile();
    let sort = profile.queue_sort.clone();
    let devices = Prospects::default();
    let gated =
        move |p: &PodInfo| profile.pre_enqueue.iter().any(|at| at.plugin.pre_enqueue(p, &devices).is_err());
    Queue::new(Rules {
        sort,
        gated: Box::new(gated),
        initial_backoff: INITIAL_BACKOFF,
        max_backoff: Duration::from_secs(10),
        max_wait: MAX_WAIT,
        cuts_backoff,
    })
}

fn what(kinds: Events) -> Happening {
    Happening::new(kinds, About::Nothing)
}

impl Queue {
    /// Takes in a Pod that is new, or that did not change in anything that matters.
    fn take(&mut self, info: PodInfo, now: Instant) {
        self.set(info, &Happening::nothing(), now, &mut |_, _| true);
    }
    fn tell(&mut self, kinds: Events, now: Instant) {
        self.happened(&what(kinds), None, now, &mut |_, _| true);
    }
    fn refuse(&mut self, e: Entry, mark: &Mark, waits_for: Events, now: Instant) {
        self.refused(e, mark, waits_for, now, &mut |_, _| true);
    }
}

fn popped(q: &mut Queue, now: Instant) -> Option<String> {
    q.pop(now).map(|(e, _)| e.info.uid().to_owned())
}

#[test]
fn priority_then_age() {
    let (mut q, t) = (queue(), Instant::now());
    q.take(pod("old", 0, json!([])), t);
    q.take(pod("new", 0, json!([])), t + Duration::from_millis(1));
    q.take(pod("high", 5, json!([])), t + Duration::from_millis(2));
    q.take(pod("gated", 9, json!([{"name": "g"}])), t);
    let order: Vec<_> = std::iter::from_fn(|| popped(&mut q, t)).collect();
    assert_eq!(order, ["high", "old", "new"]);
    assert_eq!(q.counts(), [0, 0, 0, 1]);
    q.take(pod("gated", 9, json!([])), t);
    assert_eq!(popped(&mut q, t).as_deref(), Some("gated"));
}

#[test]
fn waits_for_change_and_backs_off() {
    let (mut q, t) = (queue(), Instant::now());
    q.take(pod("p", 0, json!([])), t);
    let (e, mark) = q.pop(t).unwrap();
    q.refuse(e, &mark, Events::NODE_ADDED | Events::POD_DELETED, t);
    assert_eq!(q.next_at(t), Some(t + MAX_WAIT));
    q.tell(Events::POD_ADDED, t);
    assert_eq!(q.next_at(t), Some(t + MAX_WAIT), "this helps others");
    q.happened(&what(Events::POD_DELETED), Some("p"), t, &mut |_, _| true);
    assert_eq!(q.next_at(t), Some(t + MAX_WAIT), "it is the one that went");
    q.happened(&what(Events::POD_DELETED), None, t, &mut |_, _| false);
    assert_eq!(q.next_at(t), Some(t + MAX_WAIT), "that was no reason");
    q.tell(Events::POD_DELETED, t);
    assert_eq!(q.next_at(t), Some(t + INITIAL_BACKOFF));
    assert_eq!(popped(&mut q, t), None);
    let (e, mark) = q.pop(t + INITIAL_BACKOFF).unwrap();
    q.tell(Events::NODE_ADDED, t + INITIAL_BACKOFF);
    q.refuse(e, &mark, Events::NODE_ADDED, t + INITIAL_BACKOFF);
    assert_eq!(q.next_at(t), Some(t + INITIAL_BACKOFF * 3), "a change during the cycle is not missed");
    let (e, mark) = q.pop(t + MAX_WAIT).unwrap();
    assert!(!e.flushed);
    q.tell(Events::NODE_ADDED, t + MAX_WAIT);
    q.refused(e, &mark, Events::NODE_ADDED, t + MAX_WAIT, &mut |_, _| false);
    assert_eq!(q.next_at(t), Some(t + MAX_WAIT * 2), "and one that does not concern it is");
    let (e, _) = q.pop(t + MAX_WAIT * 2).unwrap();
    assert!(e.flushed && q.entries.is_empty() && q.groups.is_empty());
}

/// A Pod that nothing helps is tried again after the time that a flag names, but not before its back-off is over.
#[test]
fn waiting_ends_when_a_flag_says_so() {
    for (max_wait, tried_again) in [(MAX_WAIT, 300), (Duration::from_secs(40), 40), (Duration::ZERO, 1)] {
        let mut q = queue();
        q.rules.max_wait = max_wait;
        let start = Instant::now();
        q.take(pod("a", 0, json!([])), start);
        let (e, mark) = q.pop(start).unwrap();
        q.refuse(e, &mark, Events::NODE_ADDED, start);
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(popped(&mut q, after(tried_again - 1)), None, "{max_wait:?}");
        assert_eq!(popped(&mut q, after(tried_again)).as_deref(), Some("a"), "{max_wait:?}");
    }
}

#[test]
fn its_own_change_wakes_a_pod_if_it_is_a_reason() {
    let (mut q, t) = (queue(), Instant::now());
    let changed = || Happening::new(Events::OWN_LABELS, About::Nothing);
    let waits = |q: &mut Queue, waits_for| {
        q.take(pod("p", 0, json!([])), t);
        let (e, mark) = q.pop(t).unwrap();
        q.refuse(e, &mark, waits_for, t);
    };
    waits(&mut q, Events::OWN_LABELS);
    q.set(pod("p", 0, json!([])), &changed(), t, &mut |_, _| false);
    assert_eq!(q.counts(), [0, 0, 1, 0]);
    q.set(pod("p", 0, json!([])), &Happening::nothing(), t, &mut |_, _| true);
    assert_eq!(q.counts(), [0, 0, 1, 0], "its status is no reason");
    q.set(pod("p", 0, json!([])), &changed(), t, &mut |_, _| true);
    assert_eq!(q.counts(), [0, 1, 0, 0]);
    assert!(q.remove("p").is_some() && q.remove("p").is_none());
    assert_eq!((q.next_at(t), q.counts()), (None, [0; 4]));
}

#[test]
fn a_change_of_another_pod_during_the_cycle_is_not_its_own() {
    let (mut q, t) = (queue(), Instant::now());
    for (other, expected) in [(true, [0, 0, 1, 0]), (false, [0, 1, 0, 0])] {
        q.take(pod("p", 0, json!([])), t);
        let (e, mark) = q.pop(t).unwrap();
        let changed = pod(if other { "q" } else { "p" }, 0, json!([])).shared();
        let pair = crate::events::Pair { old: Some(changed.clone()), new: Some(changed) };
        q.note(&Happening::new(Events::OWN_LABELS, About::Pod(pair)));
        q.refuse(e, &mark, Events::OWN_LABELS, t);
        assert_eq!(q.counts(), expected);
        q.remove("p");
    }
}

#[test]
fn pods_that_are_alike_are_asked_about_once() {
    let (mut q, t) = (queue(), Instant::now());
    for i in 0..20 {
        q.take(pod(&format!("p{i}"), i % 2, json!([])), t);
    }
    while let Some((e, mark)) = q.pop(t) {
        let by = if e.info.uid() == "p7" { "Other" } else { "One" };
        q.refuse(Entry { refused_by: vec![by], ..e }, &mark, Events::NODE_ADDED, t);
    }
    let mut asked = Vec::new();
    q.happened(&what(Events::POD_ADDED), None, t, &mut |_, _| unreachable!("nobody waits for it"));
    q.happened(&what(Events::NODE_ADDED), Some("p0"), t, &mut |e, _| {
        asked.push((e.info.priority(), e.refused_by.clone()));
        e.info.priority() == 0
    });
    asked.sort();
    assert_eq!(asked, [(0, vec!["One"]), (1, vec!["One"]), (1, vec!["Other"])]);
    assert_eq!(q.counts(), [0, 9, 11, 0], "but for the one by which it happened");
}

#[test]
fn errors_back_off_and_held_pods_wait() {
    let (mut q, t) = (queue(), Instant::now());
    q.take(pod("p", 0, json!([])), t);
    let (e, _) = q.pop(t).unwrap();
    q.errored(e, t);
    assert_eq!(q.next_at(t), Some(t + INITIAL_BACKOFF));
    let t = t + INITIAL_BACKOFF;
    let (e, _) = q.pop(t).unwrap();
    assert_eq!(e.attempts, 2);
    q.held(e, t);
    q.tell(Events::ALL, t);
    assert_eq!(q.next_at(t), Some(t + MAX_WAIT), "nothing that happens wakes it");
    q.activate("p", t);
    let (e, _) = q.pop(t).expect("it was no try, so there is nothing to back off from");
    assert_eq!(e.attempts, 2);
    q.take(pod("p", 0, json!([])), t);
    q.errored(e, t);
    assert_eq!(popped(&mut q, t).as_deref(), Some("p"), "it came anew meanwhile");
}

#[test]
fn what_brings_pods_is_counted() {
    let (mut q, t) = (queue(), Instant::now());
    q.take(pod("p", 0, json!([])), t);
    q.take(pod("gated", 0, json!([{"name": "g"}])), t);
    let (e, mark) = q.pop(t).unwrap();
    q.tell(Events::POD_ADDED, t);
    let mut page = component::metrics::Page::default();
    q.metrics().hinted("Fit", "NodeAdd", Said::QueueSkip, Duration::from_secs(1));
    q.metrics().report(&mut page);
    q.refuse(e, &mark, Events::NODE_ADDED, t);
    drop(mark);
    q.tell(Events::NODE_ADDED, t);
    drop(q.pop(t + INITIAL_BACKOFF).unwrap());
    let mut later = component::metrics::Page::default();
    q.metrics().report(&mut later);
    let (text, later) = (page.text(), later.text());
    for (text, line) in [
        (&text, "scheduler_inflight_events{event=\"PodPopped\"} 1"),
        (&text, "scheduler_inflight_events{event=\"AssignedPodAdd\"} 1"),
        (
            &text,
            "scheduler_queueing_hint_execution_duration_seconds_sum{event=\"NodeAdd\",hint=\"QueueSkip\",plugin=\"Fit\"} 1",
        ),
        (&later, "scheduler_inflight_events{event=\"PodPopped\"} 0"),
        (&later, "scheduler_queue_incoming_pods_total{event=\"UnschedulablePodAdd\",queue=\"active\"} 1"),
        (
            &later,
            "scheduler_queue_incoming_pods_total{event=\"UnschedulablePodAdd\",queue=\"unschedulable\"} 1",
        ),
        (
            &later,
            "scheduler_queue_incoming_pods_total{event=\"ScheduleAttemptFailure\",queue=\"unschedulable\"} 1",
        ),
        (&later, "scheduler_queue_incoming_pods_total{event=\"NodeAdd\",queue=\"backoff\"} 1"),
        (&later, "scheduler_queue_incoming_pods_total{event=\"BackoffComplete\",queue=\"active\"} 1"),
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
}

#[test]
fn a_refused_pod_cuts_its_backoff_when_no_other_is_ready() {
    let (mut q, t) = (queue_that(true), Instant::now());
    let fail = |q: &mut Queue, uid: &str, priority: i32, refused: bool, at: Instant| {
        q.take(pod(uid, priority, json!([])), at);
        let (e, mark) = q.pop(at).unwrap();
        assert_eq!(e.info.uid(), uid);
        if refused {
            q.refuse(e, &mark, Events::POD_DELETED, at);
            drop(mark);
            q.tell(Events::POD_DELETED, at);
        } else {
            q.errored(e, at);
        }
    };
    // The first backs off, and each other one is put in while there is something more important.
    fail(&mut q, "failed", 9, false, t);
    assert_eq!(popped(&mut q, t), None, "something went wrong with it");
    q.take(pod("low", 0, json!([])), t);
    let (low, low_mark) = q.pop(t).unwrap();
    q.take(pod("high", 5, json!([])), t);
    let (high, high_mark) = q.pop(t).unwrap();
    q.refuse(low, &low_mark, Events::POD_DELETED, t);
    q.refuse(high, &high_mark, Events::POD_DELETED, t);
    drop((low_mark, high_mark));
    assert_eq!(popped(&mut q, t), None, "they wait");
    q.tell(Events::POD_DELETED, t);
    assert_eq!(q.counts(), [0, 3, 0, 0]);
    q.take(pod("ready", 0, json!([])), t);
    assert_eq!(q.next_at(t), Some(t));
    let order: Vec<_> = std::iter::from_fn(|| popped(&mut q, t)).collect();
    assert_eq!(order, ["ready", "high", "low"]);
    assert_eq!(q.next_at(t), Some(t + INITIAL_BACKOFF), "that which failed backs off");
    // Without the gate each one backs off.
    let mut q = queue();
    fail(&mut q, "p", 0, true, t);
    assert_eq!((popped(&mut q, t), q.next_at(t)), (None, Some(t + INITIAL_BACKOFF)));
}
