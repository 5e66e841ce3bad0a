//! The failure that ends the process.

use std::sync::Arc;

use anyhow::anyhow;
use tokio::sync::watch;

/// The first failure of a part that everything else needs.
#[derive(Clone)]
pub(crate) struct Failure(Arc<watch::Sender<Option<String>>>);

impl Default for Failure {
    fn default() -> Self {
        Self(Arc::new(watch::channel(None).0))
    }
}

impl Failure {
    /// Reports a failure.
    pub(crate) fn report(&self, why: String) {
        self.0.send_if_modified(|was| {
            let first = was.is_none();
            if first {
                *was = Some(why);
            }
            first
        });
    }
    /// Resolves once a failure was reported.
    pub(crate) async fn wait(&self) -> anyhow::Error {
        let mut failure = self.0.subscribe();
        match failure.wait_for(Option::is_some).await.map(|why| why.clone()) {
            Ok(why) => anyhow!(why.unwrap_or_default()),
            Err(_) => std::future::pending().await,
        }
    }
}
