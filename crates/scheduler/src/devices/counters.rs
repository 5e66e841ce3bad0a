//! Counters that the devices of a pool share.

use super::allocated::{Available, count};
use super::reach::View;
use super::stock::{Device, Stock};
use super::usage::Usage;

/// The counters that allocated devices leave.
pub(super) fn available(view: &View, stock: &Stock, usage: &Usage) -> Available {
    let mut left = view.counters.clone();
    for slot in view.devices(stock).filter(|slot| usage.uses(*slot, stock.name_of(*slot))) {
        for (set, taken) in stock.device(slot).into_iter().flat_map(|device| &device.consumes) {
            let Some(left) = left.get_mut(set) else { continue };
            for (name, taken) in taken {
                if let Some(left) = left.get_mut(name) {
                    left.sub(taken);
                }
            }
        }
    }
    left
}

/// Counts what a device takes.
pub(super) fn take(taken: &mut Available, device: &Device, more: bool) {
    for (set, amounts) in &device.consumes {
        count(taken.entry(set.clone()).or_default(), amounts, more);
    }
}

/// Whether there is no less than is taken.
pub(super) fn suffice(left: &Available, taken: &Available) -> bool {
    left.iter().all(|(set, left)| {
        let taken = taken.get(set);
        left.iter().all(|(name, left)| match taken.and_then(|t| t.get(name)) {
            Some(taken) => left >= taken,
            None => left.sign() >= 0,
        })
    })
}
