//! The questions for which other servers are being asked: so many at a time, and a share of them for each client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// A client's share is this part of all.
const SHARE: usize = 4;

/// The questions under way.
#[derive(Debug)]
pub(crate) struct InFlight {
    most: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_source: HashMap<IpAddr, usize>,
}

/// A place among them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    flights: Arc<InFlight>,
    source: IpAddr,
}

impl InFlight {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, counts: Mutex::default() })
    }

    /// A place for a client's question, if there is one.
    pub(crate) fn enter(self: &Arc<Self>, source: IpAddr) -> Option<Place> {
        let mut counts = self.counts.lock();
        let share = (self.most / SHARE).max(1);
        if counts.all >= self.most || counts.by_source.get(&source).is_some_and(|n| *n >= share) {
            return None;
        }
        counts.all += 1;
        *counts.by_source.entry(source).or_default() += 1;
        Some(Place { flights: self.clone(), source })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.flights.counts.lock();
        counts.all -= 1;
        if let Some(count) = counts.by_source.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                counts.by_source.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_a_share() {
        let flights = InFlight::new(8);
        let ip = |n: u8| IpAddr::from([10, 0, 0, n]);
        let mut places: Vec<Place> = (0..10).filter_map(|_| flights.enter(ip(1))).collect();
        assert_eq!(places.len(), 2);
        places.extend((2..10).flat_map(|n| [flights.enter(ip(n)), flights.enter(ip(n))]).flatten());
        assert_eq!(places.len(), 8);
        places.pop();
        assert!(flights.enter(ip(1)).is_none() && flights.enter(ip(20)).is_some());
        drop(places);
        let counts = flights.counts.lock();
        assert_eq!((counts.all, counts.by_source.len()), (0, 0));
    }
}
