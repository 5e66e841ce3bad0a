//! Constraints: attributes that the devices of a claim have in common, or in which they differ.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{self as resource, DeviceAttribute, DeviceConstraint};

use super::stock::Slot;
use super::terms::DeviceId;

/// The values of an attribute, by device, as numbers.
pub(super) type Column = Arc<Vec<u32>>;
/// The number for a device that does not have the attribute.
pub(super) const MISSING: u32 = 0;
/// The number of a value of no known type. It is like no other.
pub(super) const UNKNOWN: u32 = 1;

/// The values of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Values {
    Ints(BTreeSet<i64>),
    Bools(BTreeSet<bool>),
    Strings(BTreeSet<String>),
    Versions(BTreeSet<String>),
    /// Of no type that is known.
    Unknown,
}

fn one<T: Ord>(value: T) -> BTreeSet<T> {
    BTreeSet::from([value])
}

impl Values {
    pub(super) fn of(attribute: &DeviceAttribute, lists: bool) -> Self {
        fn listed<T: Ord + Clone>(lists: bool, list: Option<&Vec<T>>) -> Option<BTreeSet<T>> {
            list.filter(|l| lists && !l.is_empty()).map(|l| l.iter().cloned().collect())
        }
        let DeviceAttribute { ints, bools, strings, versions, .. } = attribute;
        if let Some(all) = listed(lists, ints.as_ref()).or(attribute.int.map(one)) {
            return Self::Ints(all);
        }
        if let Some(all) = listed(lists, bools.as_ref()).or(attribute.bool.map(one)) {
            return Self::Bools(all);
        }
        if let Some(all) = listed(lists, strings.as_ref()).or(attribute.string.clone().map(one)) {
            return Self::Strings(all);
        }
        let version = listed(lists, versions.as_ref()).or(attribute.version.clone().map(one));
        version.map_or(Self::Unknown, Self::Versions)
    }

    /// The values that both have; `None` if there are none.
    fn common(&self, other: &Self) -> Option<Self> {
        fn both<T: Ord + Clone>(a: &BTreeSet<T>, b: &BTreeSet<T>) -> Option<BTreeSet<T>> {
            let common: BTreeSet<T> = a.intersection(b).cloned().collect();
            (!common.is_empty()).then_some(common)
        }
        match (self, other) {
            (Self::Ints(a), Self::Ints(b)) => both(a, b).map(Self::Ints),
            (Self::Bools(a), Self::Bools(b)) => both(a, b).map(Self::Bools),
            (Self::Strings(a), Self::Strings(b)) => both(a, b).map(Self::Strings),
            // A version has one form, so equal texts are equal versions.
            (Self::Versions(a), Self::Versions(b)) => both(a, b).map(Self::Versions),
            _ => None,
        }
    }
}

/// A constraint with what the devices say that were chosen, the last one last.
#[derive(Debug)]
pub(super) struct Constraint<'c> {
    requests: &'c [String],
    attribute: &'c str,
    distinct: bool,
    /// `None`: values are lists.
    column: Option<Column>,
    chosen: Vec<Values>,
    numbers: Vec<u32>,
}

/// The request that a device is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct For<'r> {
    pub(super) request: &'r str,
    /// The alternative, "" for none.
    pub(super) alternative: &'r str,
}

impl<'c> Constraint<'c> {
    /// A constraint; `column` has the values of an attribute, unless these are lists. `None`: of no kind that is known.
    pub(super) fn of(
        constraint: &'c DeviceConstraint,
        column: impl FnOnce(&str) -> Option<Column>,
    ) -> Option<Self> {
        let matching = constraint.match_attribute.as_deref();
        let attribute = matching.or(constraint.distinct_attribute.as_deref())?;
        let requests = constraint.requests.as_deref().unwrap_or_default();
        let (column, distinct) = (column(attribute), matching.is_none());
        Some(Self { requests, attribute, distinct, column, chosen: Vec::new(), numbers: Vec::new() })
    }

    fn concerns(&self, of: For<'_>) -> bool {
        let names = |name: &str| {
            let alternative = name.split_once('/');
            name == of.request
                || !of.alternative.is_empty() && alternative == Some((of.request, of.alternative))
        };
        self.requests.is_empty() || self.requests.iter().any(|name| names(name))
    }

    /// The values of an attribute, and that which the next device has to have.
    pub(super) fn wants(&self, of: For<'_>) -> Option<(&Column, u32)> {
        let column = self.column.as_ref().filter(|_| !self.distinct && self.concerns(of))?;
        Some((column, *self.numbers.last()?))
    }

    /// Takes a device in; `false` if it must not be chosen.
    ///
    /// DIFFERENCE: devices of one request differ from each other, too. Upstream remembers only the last of a request.
    pub(super) fn add(&mut self, of: For<'_>, slot: Slot, device: &resource::Device, id: &DeviceId) -> bool {
        if !self.concerns(of) {
            return true;
        }
        let Some(column) = &self.column else { return self.add_list(device, id) };
        let value = column.get(slot as usize).copied().unwrap_or(MISSING);
        let does = match (value, self.numbers.last()) {
            (MISSING, _) => false,
            (_, None) => true,
            (UNKNOWN, _) => false,
            (value, Some(_)) if self.distinct => !self.numbers.contains(&value),
            (value, Some(before)) => *before == value,
        };
        if does {
            self.numbers.push(value);
        }
        does
    }

    fn add_list(&mut self, device: &resource::Device, id: &DeviceId) -> bool {
        let Some(attribute) = lookup(device, id, self.attribute) else { return false };
        let values = Values::of(attribute, true);
        if self.distinct {
            let alike = self.chosen.iter().any(|other| other.common(&values).is_some());
            if alike || values == Values::Unknown {
                return false;
            }
            self.chosen.push(values);
            return true;
        }
        let common = match self.chosen.last() {
            None if values == Values::Unknown => None,
            None => Some(values),
            Some(before) => before.common(&values),
        };
        match common {
            Some(common) => {
                self.chosen.push(common);
                true
            }
            None => false,
        }
    }

    /// Takes the last device out again.
    pub(super) fn remove(&mut self, of: For<'_>) {
        if self.concerns(of) {
            self.chosen.pop();
            self.numbers.pop();
        }
    }
}

/// An attribute by its full name; those without a domain have the driver's.
pub(super) fn lookup<'d>(
    device: &'d resource::Device,
    id: &DeviceId,
    name: &str,
) -> Option<&'d DeviceAttribute> {
    let attributes = device.attributes.as_ref()?;
    if let Some(attribute) = attributes.get(name) {
        return Some(attribute);
    }
    let (domain, name) = name.split_once('/')?;
    if domain == id.driver { attributes.get(name) } else { None }
}
