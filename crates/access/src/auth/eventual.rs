//! Answers that mostly need no waiting.

use futures::FutureExt;
use futures::future::BoxFuture;

/// An answer that is ready, or one that must be waited for: an answer from memory pays for no future.
pub enum Eventual<'a, T> {
    /// The answer is ready.
    Now(T),
    /// The answer must be waited for.
    Later(BoxFuture<'a, T>),
}

impl<'a, T> Eventual<'a, T> {
    /// Makes an answer that must be waited for.
    pub fn later(answer: impl Future<Output = T> + Send + 'a) -> Self {
        Self::Later(answer.boxed())
    }
    /// Returns the answer as soon as it is ready.
    pub async fn get(self) -> T {
        match self {
            Self::Now(answer) => answer,
            Self::Later(answer) => answer.await,
        }
    }
}
