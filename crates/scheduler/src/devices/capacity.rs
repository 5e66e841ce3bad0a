//! Requests of capacities (upstream's `consumable_capacity.go`).

use std::collections::BTreeMap;

use api::quantity::Quantity;

use super::allocated::{Amounts, count};
use super::stock::{Bounds, Capacity, Policy};

/// This is what a request takes of a capacity: what it asks for, rounded up as the policy wants it, or all there is.
fn consumed(requested: Option<&Quantity>, capacity: &Capacity) -> Quantity {
    let policy = capacity.policy.as_ref();
    let Some(requested) = requested else {
        return policy.and_then(|p| p.default.as_ref()).unwrap_or(&capacity.amount).clone();
    };
    match policy {
        Some(Policy { range: Some(range), .. }) => in_range(requested, range),
        Some(Policy { values: Some(values), .. }) => {
            values.iter().find(|v| requested <= *v).unwrap_or(requested).clone()
        }
        _ => requested.clone(),
    }
}

fn in_range(requested: &Quantity, range: &Bounds) -> Quantity {
    if *requested < range.min {
        return range.min.clone();
    }
    let Some(step) = range.step.as_ref().map(Quantity::value).filter(|s| *s != 0) else {
        return requested.clone();
    };
    let min = range.min.value();
    let added = i128::from(requested.value()) - i128::from(min);
    let steps = added.div_euclid(step.into()) + i128::from(added.rem_euclid(step.into()) != 0);
    let value = i128::from(min) + i128::from(step) * steps;
    Quantity::from_bytes(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Whether the policy forbids an amount.
fn is_forbidden(amount: &Quantity, policy: &Policy) -> bool {
    if policy.default.as_ref() == Some(amount) {
        return false;
    }
    match (&policy.range, policy.values.as_deref().unwrap_or_default()) {
        (Some(range), _) => {
            let beyond = range.max.as_ref().is_some_and(|max| amount > max);
            let step = range.step.as_ref().map(Quantity::value).filter(|s| *s != 0);
            let between = step.is_some_and(|step| {
                (i128::from(amount.value()) - i128::from(range.min.value())) % i128::from(step) != 0
            });
            beyond || between
        }
        (None, []) => false,
        (None, values) => !values.contains(amount),
    }
}

/// This is what a request takes of all capacities of a device.
pub(super) fn all_consumed(requested: &Amounts, capacities: &BTreeMap<String, Capacity>) -> Amounts {
    capacities.iter().map(|(name, c)| (name.clone(), consumed(requested.get(name), c))).collect()
}

/// Whether a device has what a request asks for, beside what others have of it. One that has not even the capacity has
/// not.
pub(super) fn suffices(
    requested: &Amounts,
    capacities: &BTreeMap<String, Capacity>,
    others: [Option<&Amounts>; 2],
) -> bool {
    if requested.keys().any(|name| !capacities.contains_key(name)) {
        return false;
    }
    let mut taken = Amounts::new();
    others.into_iter().flatten().for_each(|other| count(&mut taken, other, true));
    capacities.iter().all(|(name, capacity)| {
        let wanted = consumed(requested.get(name), capacity);
        if capacity.policy.as_ref().is_some_and(|policy| is_forbidden(&wanted, policy)) {
            return false;
        }
        let mut sum = taken.get(name).cloned().unwrap_or_default();
        sum.add(&wanted);
        sum <= capacity.amount
    })
}
