//! Keeps track of the calls under way that change something.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic::Status;

/// The state of the calls.
#[derive(Debug, Default)]
struct State {
    /// The number of calls under way, by owner.
    under_way: HashMap<Arc<str>, usize>,
    /// Whether no more calls may begin.
    closed: bool,
}

/// The calls under way of all owners that share a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls(Arc<watch::Sender<State>>);

/// Counts a call as long as it lives.
struct UnderWay {
    calls: Calls,
    owner: Arc<str>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.calls.0.send_modify(|state| {
            if let Some(count) = state.under_way.get_mut(&self.owner) {
                *count -= 1;
                if *count == 0 {
                    state.under_way.remove(&self.owner);
                }
            }
        });
    }
}

impl Calls {
    /// Lets a call that changes something run to its end, at most until `limit`, also when nobody waits for it any
    /// more: a runtime leaves half of its work behind if the call is given up midway.
    pub(crate) async fn finish<T, F>(&self, owner: Arc<str>, limit: Duration, call: F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let mut open = false;
        self.0.send_if_modified(|state| {
            open = !state.closed;
            if open {
                *state.under_way.entry(owner.clone()).or_default() += 1;
            }
            open
        });
        if !open {
            return Err(Status::cancelled("the kubelet is shutting down"));
        }
        let counted = UnderWay { calls: self.clone(), owner };
        let work: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
            let result = limited(limit, call).await;
            drop(counted);
            result
        });
        tokio::spawn(work).await.unwrap_or_else(|error| Err(Status::internal(error.to_string())))
    }

    /// Resolves once no call of an owner is under way.
    pub(crate) async fn idle(&self, owner: &str) {
        // The sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|state| !state.under_way.contains_key(owner)).await;
    }

    /// Lets no more calls begin; resolves once none is under way.
    pub(crate) async fn close(&self) {
        self.0.send_modify(|state| state.closed = true);
        let _ = self.0.subscribe().wait_for(|state| state.under_way.is_empty()).await;
    }
}

/// Gives a call up after `limit`, with the status that Go's gRPC has for it.
pub(crate) async fn limited<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    tokio::time::timeout(limit, call)
        .await
        .unwrap_or_else(|_| Err(Status::deadline_exceeded("context deadline exceeded")))
}
