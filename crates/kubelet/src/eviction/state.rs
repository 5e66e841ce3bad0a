//! The consequences of observations over time: conditions that stay for a while, thresholds whose time is up.

use std::time::Duration;

use tokio::time::Instant;

use super::observe::{self, Observations};
use super::signal::{Condition, Signal};
use super::threshold::Threshold;

/// The memory of the manager. Nothing in it is of one Pod.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// When each threshold was met first.
    first: Vec<(Threshold, Instant)>,
    /// Those that were met for as long as they may be.
    met: Vec<Threshold>,
    /// When each condition was there last.
    conditions: Vec<(Condition, Instant)>,
    /// The last observations.
    last: Observations,
}

/// The result of a look.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Verdict {
    /// The conditions that the Node has, in the order of their names.
    pub(crate) conditions: Vec<Condition>,
    /// The thresholds for which something is to be done, the most urgent first.
    pub(crate) act: Vec<Threshold>,
}

/// Adds those of `more` that are not there yet.
fn merge(mut all: Vec<Threshold>, more: Vec<Threshold>) -> Vec<Threshold> {
    for threshold in more {
        if !all.iter().any(|known| known.same(&threshold)) {
            all.push(threshold);
        }
    }
    all
}

/// The order in which thresholds are acted for: memory before everything else.
pub(crate) fn sort(thresholds: &mut [Threshold]) {
    thresholds.sort_by_key(|t| !matches!(t.signal, Signal::Memory | Signal::AllocatableMemory));
}

/// When each threshold was met first, given when those of before were.
fn first_met(now: Vec<Threshold>, before: &[(Threshold, Instant)], at: Instant) -> Vec<(Threshold, Instant)> {
    let since = |threshold: &Threshold| {
        before.iter().find(|(known, _)| known == threshold).map_or(at, |(_, since)| *since)
    };
    now.into_iter().map(|threshold| (threshold.clone(), since(&threshold))).collect()
}

/// The conditions with the time when each was there last.
fn last_seen(now: &[Condition], before: &[(Condition, Instant)], at: Instant) -> Vec<(Condition, Instant)> {
    let mut all: Vec<_> = now.iter().map(|condition| (*condition, at)).collect();
    all.extend(before.iter().filter(|(condition, _)| !now.contains(condition)));
    all
}

/// The conditions that thresholds stand for, each once.
fn conditions(thresholds: &[Threshold]) -> Vec<Condition> {
    let mut all: Vec<Condition> = thresholds.iter().map(|t| t.signal.condition()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The conditions that were there less than `period` ago.
fn still(seen: &[(Condition, Instant)], period: Duration, now: Instant) -> Vec<Condition> {
    let recent = seen.iter().filter(|(_, at)| now.saturating_duration_since(*at) < period);
    let mut all: Vec<Condition> = recent.map(|(condition, _)| *condition).collect();
    all.sort_unstable();
    all
}

impl State {
    /// Takes a look at the node; upstream's rules.
    pub(crate) fn observe(
        &mut self,
        thresholds: &[Threshold],
        transition: Duration,
        seen: Observations,
        now: Instant,
    ) -> Verdict {
        let met = observe::met(thresholds, &seen, false);
        let unresolved = observe::met(&self.met, &seen, true);
        let met = merge(met, unresolved);
        self.conditions = last_seen(&conditions(&met), &self.conditions, now);
        self.first = first_met(met, &self.first, now);
        let over = |(threshold, since): &&(Threshold, Instant)| {
            now.saturating_duration_since(*since) >= threshold.grace
        };
        self.met = self.first.iter().filter(over).map(|(threshold, _)| threshold.clone()).collect();
        let mut act = observe::updated(&self.met, &seen, &self.last);
        sort(&mut act);
        self.last = seen;
        Verdict { conditions: still(&self.conditions, transition, now), act }
    }
}
