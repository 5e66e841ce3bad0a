//! The places between two changes of the machine, at which a test lets the process die.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts steps; after the last that is allowed every further one fails, as if the process were gone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps(Option<Arc<AtomicUsize>>);

impl Steps {
    /// Dies after this many steps.
    #[cfg(test)]
    pub(crate) fn dying_after(steps: usize) -> Self {
        Self(Some(Arc::new(AtomicUsize::new(steps))))
    }

    /// Whether no step is left.
    #[cfg(test)]
    pub(crate) fn dead(&self) -> bool {
        self.0.as_ref().is_some_and(|left| left.load(Ordering::Relaxed) == 0)
    }

    /// Begins a step.
    pub(crate) fn next(&self) -> io::Result<()> {
        let Some(left) = &self.0 else { return Ok(()) };
        let less = |left: usize| left.checked_sub(1);
        match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other("the process is gone")),
        }
    }
}
