//! Answers that are mostly there at once.

use futures::FutureExt;
use futures::future::BoxFuture;

/// An answer that is there, or one that must be waited for: who can answer from memory pays for no future.
pub enum Eventual<'a, T> {
    /// It is there.
    Now(T),
    /// Somebody else must be asked.
    Later(BoxFuture<'a, T>),
}

impl<'a, T> Eventual<'a, T> {
    /// An answer that must be waited for.
    pub fn later(answer: impl Future<Output = T> + Send + 'a) -> Self {
        Self::Later(answer.boxed())
    }
    /// The answer, when it is there.
    pub async fn get(self) -> T {
        match self {
            Self::Now(answer) => answer,
            Self::Later(answer) => answer.await,
        }
    }
}
