//! Counters that the devices of a pool share.

use std::collections::BTreeMap;

use super::allocated::{Allocated, Amounts, count};
use super::pools::Pool;
use super::stock::Device;

/// The counters that are left of a pool, by set. They may be below zero.
pub(super) type Available = BTreeMap<String, Amounts>;

/// The counters that allocated devices leave.
pub(super) fn available(pool: &Pool<'_>, allocated: &Allocated) -> Available {
    let mut left: Available =
        pool.counters.iter().map(|(name, counters)| ((*name).to_owned(), (*counters).clone())).collect();
    let devices = pool.slices.iter().chain(&pool.others).flat_map(|slice| &slice.devices);
    for device in devices.filter(|d| !d.consumes.is_empty() && allocated.uses(&d.id)) {
        for (set, taken) in &device.consumes {
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
