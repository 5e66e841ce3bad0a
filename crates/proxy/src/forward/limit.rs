//! Places among all that is led on, of which no client has more than a share.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// A number of places.
#[derive(Debug)]
pub(super) struct Limit {
    most: usize,
    /// The most places of one client.
    share: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// A place, which is free again once this is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    limit: Arc<Limit>,
    client: IpAddr,
}

impl Limit {
    pub(super) fn new(most: usize, share: usize) -> Arc<Self> {
        Arc::new(Self { most, share, taken: Mutex::default() })
    }

    /// Takes a place for a client, if there is one that it may have.
    pub(super) fn take(self: &Arc<Self>, client: IpAddr) -> Option<Ticket> {
        let client = client.to_canonical();
        let mut taken = self.taken.lock();
        if taken.count >= self.most || taken.by_client.get(&client).is_some_and(|own| *own >= self.share) {
            return None;
        }
        taken.count += 1;
        *taken.by_client.entry(client).or_default() += 1;
        Some(Ticket { limit: Arc::clone(self), client })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut taken = self.limit.taken.lock();
        taken.count -= 1;
        if let Some(own) = taken.by_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                taken.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_a_share() {
        let limit = Limit::new(3, 2);
        let [a, b]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let mut held = vec![limit.take(a).unwrap(), limit.take(a).unwrap()];
        assert!(limit.take(a).is_none());
        assert!(limit.take("::ffff:10.0.0.1".parse().unwrap()).is_none(), "the same address in another form");
        held.push(limit.take(b).unwrap());
        assert!(limit.take(b).is_none(), "all are taken");
        held.clear();
        assert!(limit.taken.lock().by_client.is_empty());
        assert!(limit.take(a).is_some());
    }
}
