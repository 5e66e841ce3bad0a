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

impl<'a, T: Send + 'a, E: Send + 'a> Eventual<'a, Result<T, E>> {
    /// Goes on with what succeeded: at once, if the answer is ready.
    pub fn and_then<U: Send + 'a>(
        self,
        next: impl FnOnce(T) -> Eventual<'a, Result<U, E>> + Send + 'a,
    ) -> Eventual<'a, Result<U, E>> {
        match self {
            Self::Now(Ok(answer)) => next(answer),
            Self::Now(Err(error)) => Eventual::Now(Err(error)),
            Self::Later(answer) => Eventual::later(async move { next(answer.await?).get().await }),
        }
    }
}
