//! The limits of a server without priority and fairness: so many requests at once, whoever sends them.

use std::sync::Arc;

use access::UserInfo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Limits;

/// The group whose requests are always let in.
const MASTERS: &str = "system:masters";

/// The places of a server; any number where there is no limit.
#[derive(Debug)]
pub(super) struct InFlight {
    reading: Option<Arc<Semaphore>>,
    writing: Option<Arc<Semaphore>>,
}

impl InFlight {
    /// By the server's limits; zero is none.
    pub(super) fn new(limits: &Limits) -> Self {
        let places =
            |limit: usize| (limit > 0).then(|| Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))));
        Self { reading: places(limits.max_in_flight), writing: places(limits.max_mutating_in_flight) }
    }

    fn places(&self, user: &UserInfo, mutating: bool) -> Option<&Arc<Semaphore>> {
        let places = if mutating { &self.writing } else { &self.reading };
        // Upstream lets a superuser in only where no place is left; it makes no difference to anybody else.
        places.as_ref().filter(|_| !user.groups.iter().any(|group| group == MASTERS))
    }

    /// Whether there is a place now.
    pub(super) fn is_free(&self, user: &UserInfo, mutating: bool) -> bool {
        self.places(user, mutating).is_none_or(|places| places.available_permits() > 0)
    }

    /// A place; an error if there is none now.
    pub(super) fn take(&self, user: &UserInfo, mutating: bool) -> Result<Option<OwnedSemaphorePermit>, ()> {
        let Some(places) = self.places(user, mutating) else { return Ok(None) };
        Arc::clone(places).try_acquire_owned().map(Some).map_err(drop)
    }

    /// A place, as soon as there is one.
    pub(super) async fn wait(
        &self,
        user: &UserInfo,
        mutating: bool,
    ) -> Result<Option<OwnedSemaphorePermit>, ()> {
        let Some(places) = self.places(user, mutating) else { return Ok(None) };
        Arc::clone(places).acquire_owned().await.map(Some).map_err(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn so_many_at_once() {
        let limits = Limits { max_in_flight: 2, max_mutating_in_flight: 0, ..Limits::default() };
        let places = InFlight::new(&limits);
        let (user, mut master) = (UserInfo::default(), UserInfo::default());
        master.groups.push(MASTERS.into());
        let first = places.take(&user, false).unwrap();
        let second = places.take(&user, false).unwrap();
        assert!(first.is_some() && second.is_some() && places.take(&user, false).is_err());
        assert!(!places.is_free(&user, false) && places.is_free(&master, false));
        assert!(places.take(&master, false).unwrap().is_none(), "a superuser needs none");
        assert!(places.take(&user, true).unwrap().is_none(), "there is no limit");
        let (third, ()) = tokio::join!(places.wait(&user, false), async { drop(first) });
        assert!(third.unwrap().is_some());
    }
}
