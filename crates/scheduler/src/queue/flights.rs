//! Pods that are out of the queue for their turn, and what happened meanwhile (upstream's `inFlightPods` and
//! `inFlightEvents`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::events::{Events, Happening};

/// How many events are kept at most. Of older ones only their kinds are known, and a Pod that is still out then is tried
/// again if it waits for one of these.
///
/// DIFFERENCE: upstream keeps all events as long as a Pod is out that saw none of them.
const MOST: usize = 4096;

/// How many of them may hold objects that users write as large as the API takes them.
const MOST_OF_USERS: usize = 64;

/// The Pods that are out. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Flights(Arc<Mutex<Out>>);

#[derive(Debug, Default)]
struct Out {
    /// How many Pods went when so many events had been.
    pods: BTreeMap<u64, usize>,
    /// The last events.
    events: VecDeque<Arc<Happening>>,
    /// How many of these hold objects of users.
    of_users: usize,
    /// How many events there were.
    told: u64,
    /// The kinds of the events that are not kept any more, while a Pod is out that did not see them.
    cut: Events,
}

/// A Pod that is out, and the events that it has seen. It is back when this is dropped.
#[derive(Debug)]
pub struct Mark {
    seen: u64,
    flights: Flights,
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut out = self.flights.lock();
        if let Some(n) = out.pods.get_mut(&self.seen) {
            *n -= 1;
            if *n == 0 {
                out.pods.remove(&self.seen);
                out.forget();
            }
        }
    }
}

impl Out {
    /// The number of the first event that is kept.
    fn first(&self) -> u64 {
        self.told - self.events.len() as u64
    }
    /// Takes the oldest event.
    fn pop(&mut self) -> Option<Arc<Happening>> {
        let event = self.events.pop_front()?;
        self.of_users -= usize::from(event.is_of_users());
        Some(event)
    }
    /// Forgets the events that every Pod has seen.
    fn forget(&mut self) {
        let Some(oldest) = self.pods.keys().next().copied() else {
            self.events.clear();
            self.of_users = 0;
            self.cut = Events::NONE;
            return;
        };
        while self.first() < oldest && self.pop().is_some() {}
        if self.first() <= oldest {
            self.cut = Events::NONE;
        }
    }
}

impl Flights {
    fn lock(&self) -> MutexGuard<'_, Out> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// A Pod goes.
    pub(super) fn go(&self) -> Mark {
        let mut out = self.lock();
        let seen = out.told;
        *out.pods.entry(seen).or_default() += 1;
        Mark { seen, flights: self.clone() }
    }
    /// Notes something that happened, if a Pod is out.
    pub(super) fn note(&self, what: &Happening) {
        let mut out = self.lock();
        if out.pods.is_empty() || what.kinds.is_empty() {
            return;
        }
        out.events.push_back(Arc::new(what.clone()));
        out.of_users += usize::from(what.is_of_users());
        out.told += 1;
        while (out.events.len() > MOST || out.of_users > MOST_OF_USERS)
            && let Some(oldest) = out.pop()
        {
            out.cut |= oldest.kinds;
        }
    }
    /// How many Pods are out, and how many events of each kind are kept.
    pub(super) fn counts(&self) -> (usize, BTreeMap<&'static str, usize>) {
        let out = self.lock();
        let mut events = BTreeMap::new();
        for what in &out.events {
            *events.entry(what.kinds.label(Events::ALL)).or_default() += 1;
        }
        (out.pods.values().sum(), events)
    }
}

impl Mark {
    /// The events since the Pod went, and the kinds of those that are not known any more.
    pub fn missed(&self) -> (Vec<Arc<Happening>>, Events) {
        let out = self.flights.lock();
        let first = out.first();
        let cut = if self.seen < first { out.cut } else { Events::NONE };
        let skipped = usize::try_from(self.seen.saturating_sub(first)).unwrap_or(usize::MAX);
        (out.events.iter().skip(skipped).cloned().collect(), cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::resource::v1::ResourceClaim;

    use crate::events::{About, Pair};

    fn event(kinds: Events) -> Happening {
        Happening::new(kinds, About::Nothing)
    }

    fn missed(mark: &Mark) -> (Vec<Events>, Events) {
        let (events, cut) = mark.missed();
        (events.iter().map(|e| e.kinds).collect(), cut)
    }

    #[test]
    fn each_pod_misses_what_came_after_it() {
        let flights = Flights::default();
        flights.note(&event(Events::NODE_ADDED));
        let first = flights.go();
        flights.note(&event(Events::POD_ADDED));
        let (second, third) = (flights.go(), flights.go());
        flights.note(&event(Events::POD_DELETED));
        flights.note(&event(Events::NONE));
        assert_eq!(missed(&first), (vec![Events::POD_ADDED, Events::POD_DELETED], Events::NONE));
        assert_eq!(missed(&second), (vec![Events::POD_DELETED], Events::NONE));
        let (pods, events) = flights.counts();
        assert_eq!((pods, events["AssignedPodAdd"], events["AssignedPodDelete"]), (3, 1, 1));
        drop(first);
        assert_eq!(flights.counts().1.len(), 1, "nobody has missed it");
        drop(second);
        assert_eq!(missed(&third).0, [Events::POD_DELETED]);
        drop(third);
        assert_eq!(flights.counts(), (0, BTreeMap::new()));
    }

    #[test]
    fn the_events_that_are_kept_are_bounded() {
        let flights = Flights::default();
        let long = flights.go();
        flights.note(&event(Events::NODE_ADDED));
        for _ in 0..MOST {
            flights.note(&event(Events::POD_ADDED));
        }
        let later = flights.go();
        assert_eq!((missed(&long).0.len(), missed(&long).1), (MOST, Events::NODE_ADDED));
        assert_eq!(missed(&later), (vec![], Events::NONE));
        drop(long);
        flights.note(&event(Events::POD_ADDED));
        assert_eq!(missed(&later), (vec![Events::POD_ADDED], Events::NONE));
    }

    #[test]
    fn few_large_objects_are_kept() {
        let flights = Flights::default();
        let mark = flights.go();
        let claim = Arc::new(ResourceClaim::default());
        let about = || About::DeviceClaim(Pair { old: None, new: Some(claim.clone()) });
        flights.note(&event(Events::NODE_ADDED));
        for _ in 0..=MOST_OF_USERS {
            flights.note(&Happening::new(Events::DEVICE_CLAIM_CHANGED, about()));
        }
        let (kept, cut) = missed(&mark);
        assert_eq!((kept.len(), cut), (MOST_OF_USERS, Events::NODE_ADDED | Events::DEVICE_CLAIM_CHANGED));
        drop(mark);
        assert_eq!(flights.lock().of_users, 0);
    }
}
