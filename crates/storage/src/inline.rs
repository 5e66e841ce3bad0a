//! The writer of simulations: each write is a batch, made by its caller.

use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::backend::Backend;
use crate::engine::View;
use crate::store::{Write, WriteError};
use crate::writer::{Answer, Start, Work};

/// A writer without a thread, for simulations: while a thread works, a paused clock would go on to the next timer.
/// Expired objects are removed with the next write.
pub(crate) struct InlineWriter(Mutex<Option<Work>>);

impl InlineWriter {
    /// A writer that works when it is called.
    pub(crate) fn new(start: Start) -> Self {
        Self(Mutex::new(Some(Work::new(start))))
    }

    fn write(&self, write: Write) -> Answer {
        self.0.lock().as_mut().ok_or(WriteError::Closed)?.one(write)
    }
}

impl Backend for InlineWriter {
    fn commit(&self, write: Write) -> BoxFuture<'_, Answer> {
        Box::pin(std::future::ready(self.write(write)))
    }

    fn view(&self) -> BoxFuture<'_, Result<View, WriteError>> {
        let view = self.0.lock().as_ref().map(Work::view).ok_or(WriteError::Closed);
        Box::pin(std::future::ready(view))
    }

    fn healthy(&self) -> Result<(), String> {
        if self.0.lock().is_some() { Ok(()) } else { Err("the store is closed".into()) }
    }

    fn nudge(&self) {}

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        if let Some(mut work) = self.0.lock().take() {
            work.close();
        }
        Box::pin(std::future::ready(()))
    }
}
