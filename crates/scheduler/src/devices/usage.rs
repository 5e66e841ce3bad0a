//! The devices that claims have, by the numbers that devices have in a [`Stock`]: it is kept true with every claim that
//! gets devices or gives them back.

use std::collections::HashMap;
use std::sync::Arc;

use super::allocated::{Allocated, Amounts};
use super::bits::Bits;
use super::stock::{Name, Slot, Stock};
use super::terms::DeviceId;

/// The devices in use. A clone is cheap.
#[derive(Debug, Clone, Default)]
pub(super) struct Usage {
    version: u64,
    /// Devices that one claim has for itself.
    whole: Bits,
    /// This is what claims have of devices that they share.
    shared: HashMap<Name, Arc<Amounts>>,
}

impl Usage {
    /// The use of the devices of a stock.
    pub(super) fn new(stock: &Stock, allocated: &Allocated) -> Self {
        let mut usage = Self::default();
        for id in allocated.ids() {
            usage.set(stock, allocated, id);
        }
        // Nobody has looked yet.
        usage.version = stock.forget_changes();
        usage
    }

    fn set(&mut self, stock: &Stock, allocated: &Allocated, id: &DeviceId) -> Option<Name> {
        let name = stock.name(id)?;
        let has = allocated.has(id);
        stock.slots(name).for_each(|slot| self.whole.set(slot, has));
        match allocated.consumed(id) {
            Some(amounts) => drop(self.shared.insert(name, Arc::new(amounts.clone()))),
            None => drop(self.shared.remove(&name)),
        }
        Some(name)
    }

    /// Whether the use of one device is another one than is known.
    pub(super) fn differs(&self, stock: &Stock, allocated: &Allocated, id: &DeviceId) -> bool {
        stock.name(id).is_some_and(|name| {
            let has = allocated.has(id);
            stock.slots(name).any(|slot| self.whole.has(slot) != has)
                || self.consumed(name) != allocated.consumed(id)
        })
    }
    /// Takes over the use of one device that has changed.
    pub(super) fn update(&mut self, stock: &Stock, allocated: &Allocated, id: &DeviceId) {
        if let Some(name) = self.set(stock, allocated, id) {
            self.version = stock.changed(name);
        }
    }

    /// How many changes there were.
    pub(super) fn version(&self) -> u64 {
        self.version
    }
    /// The devices that one claim has for itself.
    pub(super) fn whole(&self) -> &Bits {
        &self.whole
    }
    /// Whether a claim has the device for itself.
    pub(super) fn has(&self, slot: Slot) -> bool {
        self.whole.has(slot)
    }
    /// Whether any claim has the device, or a part of it.
    pub(super) fn uses(&self, slot: Slot, name: Name) -> bool {
        self.has(slot) || self.shared.contains_key(&name)
    }
    /// The amounts that claims have of a device's capacities.
    pub(super) fn consumed(&self, name: Name) -> Option<&Amounts> {
        self.shared.get(&name).map(|amounts| &**amounts)
    }
}
