//! Connections on which nobody is known yet: so many at once, of all and of each address, so that they leave
//! descriptors and memory to others. Where there is no room, the one that does nothing for longest makes it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::lifetime::Lifetime;

/// The share of all descriptors that strangers may have.
const SHARE: usize = 4;
/// The share of that which one address may have.
const OF_ADDRESS: usize = 4;
/// More than this are not let in however many descriptors there are: each costs memory, too.
const MOST: usize = 4096;
/// How long a connection that does nothing is left alone.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) all: usize,
    pub(crate) of_address: usize,
}

impl Limits {
    /// The limits of a process that may have so many descriptors.
    pub(crate) fn of_descriptors(descriptors: u64) -> Self {
        let all = usize::try_from(descriptors).map_or(MOST, |n| n / SHARE).clamp(OF_ADDRESS, MOST);
        Self { all, of_address: all / OF_ADDRESS }
    }
    /// The limits of this process.
    pub(crate) fn of_process() -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Self::of_descriptors(limit.current.unwrap_or(u64::MAX))
    }
}

/// All of them.
pub(crate) struct Strangers {
    limits: Limits,
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    ids: u64,
    by_address: HashMap<IpAddr, HashMap<u64, Arc<Lifetime>>>,
    count: usize,
}

/// The place of one; it has none any more once somebody is known there.
pub(crate) struct Stranger {
    strangers: Arc<Strangers>,
    address: IpAddr,
    id: u64,
    gone: AtomicBool,
}

impl Strangers {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, all: Mutex::default() })
    }

    /// A place for a connection; none if all are taken by such as do something.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr, lifetime: &Arc<Lifetime>) -> Option<Stranger> {
        let address = network(address);
        let mut all = self.all.lock();
        let here = all.by_address.get(&address).map_or(0, HashMap::len);
        let (crowded, only) = (all.count >= self.limits.all, here >= self.limits.of_address);
        if (crowded || only) && !all.dismiss(only.then_some(address)) {
            return None;
        }
        all.ids += 1;
        let id = all.ids;
        all.count += 1;
        all.by_address.entry(address).or_default().insert(id, Arc::clone(lifetime));
        Some(Stranger { strangers: Arc::clone(self), address, id, gone: AtomicBool::new(false) })
    }

    /// Ends the one that does nothing for longest, wherever it is.
    pub(crate) fn make_room(&self) {
        self.all.lock().dismiss(None);
    }
}

impl All {
    /// Ends the connection that does nothing for longest, of an address or of all.
    fn dismiss(&mut self, address: Option<IpAddr>) -> bool {
        let addresses = self.by_address.iter().filter(|(at, _)| address.is_none_or(|only| only == **at));
        let every = addresses.flat_map(|(at, here)| here.iter().map(|(id, lifetime)| (*at, *id, lifetime)));
        let idle = every.filter_map(|(at, id, lifetime)| Some((lifetime.idle_since()?, at, id)));
        let Some((since, at, id)) = idle.min() else { return false };
        if since.elapsed() < PATIENCE {
            return false;
        }
        if let Some(lifetime) = self.remove(at, id) {
            lifetime.cut();
        }
        true
    }

    fn remove(&mut self, address: IpAddr, id: u64) -> Option<Arc<Lifetime>> {
        let here = self.by_address.get_mut(&address)?;
        let lifetime = here.remove(&id)?;
        if here.is_empty() {
            self.by_address.remove(&address);
        }
        self.count -= 1;
        Some(lifetime)
    }
}

impl Stranger {
    /// Somebody is known here; from now on it is no stranger.
    pub(crate) fn known(&self) {
        if !self.gone.load(Ordering::Relaxed) && !self.gone.swap(true, Ordering::Relaxed) {
            self.strangers.all.lock().remove(self.address, self.id);
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.known();
    }
}

/// The network that an address stands for: a client with one address of IPv6 has a whole network (/64) of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let check = |descriptors: u64, all: usize, of_address: usize| {
            assert_eq!(Limits::of_descriptors(descriptors), Limits { all, of_address });
        };
        check(0, 4, 1);
        check(1024, 256, 64);
        check(1 << 20, 4096, 1024);
        check(u64::MAX, 4096, 1024);
    }

    #[test]
    fn networks() {
        let check = |given: &str, expected: &str| {
            assert_eq!(network(given.parse().unwrap()), expected.parse::<IpAddr>().unwrap());
        };
        check("10.0.0.1", "10.0.0.1");
        check("::ffff:10.0.0.1", "10.0.0.1");
        check("2001:db8::1:2:3:4", "2001:db8::");
    }

    /// Connections of one address each, and how many of them are there.
    struct Crowd {
        strangers: Arc<Strangers>,
        places: Vec<(Stranger, Arc<Lifetime>)>,
    }

    impl Crowd {
        fn new(all: usize, of_address: usize) -> Self {
            Self { strangers: Strangers::new(Limits { all, of_address }), places: Vec::new() }
        }
        fn come(&mut self, address: u8) -> bool {
            let lifetime = Arc::new(Lifetime::default());
            let place = self.strangers.admit([10, 0, 0, address].into(), &lifetime);
            let came = place.is_some();
            self.places.extend(place.map(|place| (place, lifetime)));
            came
        }
        async fn ended(&self) -> Vec<usize> {
            let mut ended = Vec::new();
            for (at, (_, lifetime)) in self.places.iter().enumerate() {
                if tokio::time::timeout(Duration::ZERO, lifetime.end()).await.is_ok() {
                    ended.push(at);
                }
            }
            ended
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_nothing_makes_room() {
        let mut crowd = Crowd::new(4, 2);
        assert!(crowd.come(1) && crowd.come(1), "there is room");
        assert!(!crowd.come(1), "they have only just come");
        assert!(crowd.come(2) && crowd.come(3));
        assert!(!crowd.come(4), "all places are taken");
        tokio::time::advance(PATIENCE).await;
        let busy = crowd.places[0].1.request();
        assert!(crowd.come(1), "instead of the one that does nothing");
        assert_eq!(crowd.ended().await, [1]);
        assert!(crowd.come(4), "instead of the one that came first");
        assert_eq!(crowd.ended().await, [1, 2]);
        drop(busy);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_known_counts_no_more() {
        let mut crowd = Crowd::new(2, 2);
        assert!(crowd.come(1) && crowd.come(1) && !crowd.come(2));
        crowd.places[0].0.known();
        crowd.places[0].0.known();
        assert!(crowd.come(2) && !crowd.come(2));
        crowd.places.clear();
        assert_eq!(crowd.strangers.all.lock().count, 0);
        assert!(crowd.strangers.all.lock().by_address.is_empty());
    }
}
