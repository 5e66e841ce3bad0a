//! Leases for objects that expire. As in upstream, objects written at about the same time share one, so that an event
//! costs no call of its own.

use std::time::Duration;

use etcd::{Client, Error};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The longest time for which a lease is given out, and the part of its time for which it is.
const REUSE: (Duration, u32) = (Duration::from_mins(1), 20);
/// The number of objects that share a lease at most.
const OBJECTS: u32 = 1000;

/// The lease that is being given out.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<Option<Current>>);

#[derive(Debug, Clone, Copy)]
struct Current {
    lease: i64,
    expires: Instant,
    objects: u32,
}

/// The time by which a lease lives longer than asked for, so that it can be given out again.
fn extra(ttl: Duration) -> Duration {
    Duration::from_secs((ttl / REUSE.1).min(REUSE.0).as_secs())
}

impl Current {
    /// Whether an object that is to live for `ttl` may have the lease: it does not end early, and not late by more than
    /// the added time.
    fn fits(&self, ttl: Duration, now: Instant) -> bool {
        self.objects < OBJECTS && now + ttl < self.expires && now + ttl + extra(ttl) >= self.expires
    }
}

impl Leases {
    /// A lease that lives for at least `ttl`.
    pub(crate) async fn get(&self, client: &Client, ttl: Duration) -> Result<i64, Error> {
        let mut current = self.0.lock().await;
        let now = Instant::now();
        if let Some(shared) = current.as_mut().filter(|c| c.fits(ttl, now)) {
            shared.objects += 1;
            return Ok(shared.lease);
        }
        let long = ttl.max(Duration::from_secs(1)) + extra(ttl);
        let lease = client.grant(long).await?;
        *current = Some(Current { lease, expires: now + long, objects: 1 });
        Ok(lease)
    }

    /// Forgets a lease that etcd no longer knows.
    pub(crate) async fn forget(&self, lease: i64) {
        let mut current = self.0.lock().await;
        if current.is_some_and(|c| c.lease == lease) {
            *current = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_lease_fits() {
        let now = Instant::now() + Duration::from_hours(24);
        let check = |left: u64, objects: u32, ttl: u64, expected: bool| {
            let current = Current { lease: 1, expires: now + Duration::from_secs(left), objects };
            assert_eq!(current.fits(Duration::from_secs(ttl), now), expected, "{left} {objects} {ttl}");
        };
        // The lease was granted for an hour and a minute.
        check(3660, 1, 3600, true);
        check(3601, 999, 3600, true);
        check(3600, 1, 3600, false);
        check(3601, 1000, 3600, false);
        check(3661, 1, 3600, false);
        // The object has another time to live.
        check(3660, 1, 60, false);
        check(63, 1, 60, true);
        check(64, 1, 60, false);
    }
}
