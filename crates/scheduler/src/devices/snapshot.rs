//! The devices, the use of them, and what is known of both.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::allocated::Allocated;
use super::known::Known;
use super::stock::{Slice, Stock};
use super::terms::DeviceId;
use super::usage::Usage;

/// All slices with the use of their devices, at one time. A clone is cheap, and shares what is known.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(super) stock: Arc<Stock>,
    pub(super) usage: Arc<Usage>,
    known: Arc<Mutex<Known>>,
}

impl Snapshot {
    /// Of these slices, nothing is known yet.
    pub fn new(slices: impl IntoIterator<Item = Arc<Slice>>, allocated: &Allocated) -> Self {
        let stock = Stock::new(slices);
        let usage = Usage::new(&stock, allocated);
        Self { stock: Arc::new(stock), usage: Arc::new(usage), known: Arc::default() }
    }
    /// Takes over the use of one device.
    pub fn update(&mut self, allocated: &Allocated, id: &DeviceId) {
        if self.usage.differs(&self.stock, allocated, id) {
            Arc::make_mut(&mut self.usage).update(&self.stock, allocated, id);
        }
    }
    /// Whether the slices are the same.
    pub fn has_slices_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.stock, &other.stock)
    }
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
