//! The surroundings of a Pod on its way to a node: its place among the bindings, and whether it is still there.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// A place among the bindings that are under way. There are only so many, so who waits long gives it up meanwhile.
#[derive(Debug)]
pub struct Place {
    all: Arc<Semaphore>,
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Place {
    /// A place that is held.
    pub fn new(all: Arc<Semaphore>, held: OwnedSemaphorePermit) -> Self {
        Self { all, held: Mutex::new(Some(held)) }
    }
    fn put(&self, held: Option<OwnedSemaphorePermit>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }
    /// Waits without the place, and takes it again.
    pub async fn without<F: Future>(&self, wait: F) -> F::Output {
        self.put(None);
        let output = wait.await;
        // It is never closed; if it were, nobody would be held up.
        self.put(self.all.clone().acquire_owned().await.ok());
        output
    }
}

/// Whether a Pod is gone while it is on its way.
#[derive(Debug, Clone, Default)]
pub struct Gone(Option<watch::Receiver<bool>>);

impl Gone {
    /// The sender of the news, and the news.
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (tx, rx) = watch::channel(false);
        (tx, Self(Some(rx)))
    }
    /// Waits until the Pod is gone; forever if nobody tells.
    pub async fn wait(&self) {
        if let Some(told) = &self.0
            && told.clone().wait_for(|gone| *gone).await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_holds_no_place() {
        let all = Arc::new(Semaphore::new(1));
        let place = Place::new(all.clone(), all.clone().try_acquire_owned().unwrap());
        assert_eq!(all.available_permits(), 0);
        place.without(async { assert_eq!(all.available_permits(), 1) }).await;
        assert_eq!(all.available_permits(), 0);
        drop(place);
        assert_eq!(all.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_pod_that_goes_is_told_of() {
        let (tell, gone) = Gone::new();
        let news = |gone: Gone| async move {
            tokio::select! { biased; () = gone.wait() => true, () = std::future::ready(()) => false }
        };
        assert!(!news(gone.clone()).await);
        tell.send_replace(true);
        assert!(news(gone.clone()).await);
        let (tell, other) = Gone::new();
        drop(tell);
        assert!(!news(other).await && !news(Gone::default()).await);
    }
}
