//! Which devices a container gets. Pure.

use std::collections::BTreeSet;

/// Why a container gets no devices; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChooseError {
    /// It has some, but not as many as it asks for.
    #[error(
        "pod {} container {} changed request for resource {} from {has} to {required}",
        api::go::quote(&.of.pod),
        api::go::quote(&.of.container),
        api::go::quote(&.of.resource)
    )]
    Changed {
        /// The place of the devices.
        of: Box<Place>,
        /// How many it has.
        has: usize,
        /// How many it asks for.
        required: i64,
    },
    /// No plugin has the resource.
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    /// The plugin has no healthy ones.
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(String),
    /// Those that it has are not healthy.
    #[error("previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}")]
    Unhealthy(String),
    /// There are too few.
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {needed}, Available: {available}"
    )]
    TooFew {
        /// The resource.
        resource: String,
        /// How many are still needed.
        needed: i64,
        /// How many there are.
        available: usize,
    },
}

/// A resource of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The Pod's uid.
    pub(crate) pod: String,
    /// The container.
    pub(crate) container: String,
    /// The resource.
    pub(crate) resource: String,
}

/// The devices that there are of a resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stock<'a> {
    /// The healthy devices; none if no plugin ever had any.
    pub(super) healthy: Option<&'a BTreeSet<String>>,
    /// Those that containers have.
    pub(super) in_use: &'a BTreeSet<String>,
    /// Those that the container may take over from its Pod's.
    pub(super) reusable: &'a BTreeSet<String>,
    /// Those that are near to the NUMA nodes that the container's resources are to come from; none if any will do.
    pub(super) near: Option<Near<'a>>,
}

/// Devices by how near they are to some NUMA nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Near<'a> {
    /// Those near to one of them.
    pub(super) aligned: &'a BTreeSet<String>,
    /// Those near to others alone. All that are in neither are near to none.
    pub(super) unaligned: &'a BTreeSet<String>,
}

/// Devices that are taken until there are enough.
struct Taken {
    ids: BTreeSet<String>,
    needed: i64,
}

impl Taken {
    /// Takes what is still needed; answers whether nothing more is.
    fn take<'a>(&mut self, from: impl IntoIterator<Item = &'a String>) -> bool {
        for id in from {
            if self.needed > 0 && self.ids.insert(id.clone()) {
                self.needed -= 1;
            }
        }
        self.needed <= 0
    }
}

/// A plugin's word about which devices go together.
#[derive(Debug, Clone, Copy)]
pub(super) enum Preference<'a> {
    /// It is not asked.
    Never,
    /// It can be asked.
    Open,
    /// It was.
    Told(&'a BTreeSet<String>),
}

/// The next step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// There is nothing to do.
    Nothing,
    /// The plugin is to be asked for so many of these, those of the second set among them.
    Ask(BTreeSet<String>, BTreeSet<String>),
    /// These are the container's.
    Take(BTreeSet<String>),
}

/// Chooses devices for a container that asks for so many, and has `has` if it has any.
///
/// DIFFERENCE: of equal devices, those with the first names are taken; upstream's order is that of a hash table.
///
/// # Errors
/// There are not enough.
pub(super) fn choose(
    of: &Place,
    required: i64,
    has: Option<&BTreeSet<String>>,
    stock: Stock<'_>,
    preference: Preference<'_>,
) -> Result<Choice, ChooseError> {
    let resource = || of.resource.clone();
    let mut needed = required;
    if let Some(has) = has {
        needed -= i64::try_from(has.len()).unwrap_or(i64::MAX);
        if needed != 0 {
            return Err(ChooseError::Changed { of: Box::new(of.clone()), has: has.len(), required });
        }
    }
    let healthy = stock.healthy.ok_or_else(|| ChooseError::Unregistered(resource()))?;
    if healthy.is_empty() {
        return Err(ChooseError::NoneHealthy(resource()));
    }
    if has.is_some_and(|has| !has.is_subset(healthy)) {
        return Err(ChooseError::Unhealthy(resource()));
    }
    if needed <= 0 {
        return Ok(Choice::Nothing);
    }
    let mut taken = Taken { ids: BTreeSet::new(), needed };
    if taken.take(stock.reusable) {
        return Ok(Choice::Take(taken.ids));
    }
    let available: BTreeSet<String> = healthy - stock.in_use;
    if count(&available) < taken.needed {
        let (needed, available) = (taken.needed, available.len());
        return Err(ChooseError::TooFew { resource: resource(), needed, available });
    }
    let none = BTreeSet::new();
    let near = stock.near.unwrap_or(Near { aligned: &none, unaligned: &none });
    let aligned = &available & near.aligned;
    // All of them are taken if there are not more, whatever the plugin prefers.
    let from = if taken.needed < count(&aligned) {
        &aligned
    } else if taken.take(&aligned) {
        return Ok(Choice::Take(taken.ids));
    } else {
        &available
    };
    match preference {
        Preference::Open => return Ok(Choice::Ask(from | &taken.ids, taken.ids)),
        Preference::Told(preferred) => drop(taken.take(preferred.intersection(from))),
        Preference::Never => {}
    }
    taken.take(&aligned);
    taken.take(available.intersection(near.unaligned));
    taken.take(&available);
    Ok(Choice::Take(taken.ids))
}

fn count(ids: &BTreeSet<String>) -> i64 {
    i64::try_from(ids.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(ToString::to_string).collect()
    }

    struct Case<'a> {
        required: i64,
        has: Option<&'a [&'a str]>,
        healthy: Option<&'a [&'a str]>,
        in_use: &'a [&'a str],
        reusable: &'a [&'a str],
    }

    const PLAIN: Case<'static> =
        Case { required: 1, has: None, healthy: Some(&["a", "b", "c"]), in_use: &[], reusable: &[] };

    fn chosen(case: &Case<'_>, preference: Preference<'_>) -> Result<Choice, String> {
        let place = Place { pod: "u".into(), container: "c".into(), resource: "example.com/dev".into() };
        let healthy = case.healthy.map(ids);
        let (in_use, reusable) = (ids(case.in_use), ids(case.reusable));
        let stock = Stock { healthy: healthy.as_ref(), in_use: &in_use, reusable: &reusable, near: None };
        let got = choose(&place, case.required, case.has.map(ids).as_ref(), stock, preference);
        got.map_err(|e| e.to_string())
    }

    /// Upstream's cases of `TestPodContainerDeviceAllocation`, `TestDevicesToAllocateConflictWithUpdateAllocatedDevices`
    /// and `TestResetExtendedResource` that are about the choice, and its texts.
    #[test]
    fn devices_are_chosen() {
        let check = |case: Case<'_>, expected: Result<&[&str], &str>| {
            let expected =
                expected.map(|all| if all.is_empty() { Choice::Nothing } else { Choice::Take(ids(all)) });
            assert_eq!(chosen(&case, Preference::Never), expected.map_err(str::to_owned));
        };
        check(PLAIN, Ok(&["a"]));
        check(Case { required: 3, ..PLAIN }, Ok(&["a", "b", "c"]));
        check(Case { required: 2, in_use: &["a"], ..PLAIN }, Ok(&["b", "c"]));
        check(Case { required: 0, ..PLAIN }, Ok(&[]));
        check(Case { required: 1, has: Some(&["b"]), in_use: &["b"], ..PLAIN }, Ok(&[]));
        check(Case { required: 1, reusable: &["c"], in_use: &["c"], ..PLAIN }, Ok(&["c"]));
        check(Case { required: 2, reusable: &["c"], in_use: &["a", "c"], ..PLAIN }, Ok(&["b", "c"]));
        check(
            Case { required: 2, in_use: &["a", "b"], ..PLAIN },
            Err("requested number of devices unavailable for example.com/dev. Requested: 2, Available: 1"),
        );
        check(
            Case { required: 4, reusable: &["a"], in_use: &["a", "b"], ..PLAIN },
            Err("requested number of devices unavailable for example.com/dev. Requested: 3, Available: 1"),
        );
        check(Case { healthy: None, ..PLAIN }, Err("cannot allocate unregistered device example.com/dev"));
        check(
            Case { healthy: Some(&[]), ..PLAIN },
            Err("no healthy devices present; cannot allocate unhealthy devices example.com/dev"),
        );
        check(
            Case { has: Some(&["z"]), ..PLAIN },
            Err(
                "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/dev",
            ),
        );
        check(
            Case { required: 2, has: Some(&["a"]), ..PLAIN },
            Err("pod \"u\" container \"c\" changed request for resource \"example.com/dev\" from 1 to 2"),
        );
    }

    /// Upstream's cases of `TestGetPreferredAllocationParameters`, in part.
    #[test]
    fn plugins_are_asked_what_they_prefer() {
        let ask = |case: &Case<'_>, available: &[&str], included: &[&str]| {
            let expected = Choice::Ask(ids(available), ids(included));
            assert_eq!(chosen(case, Preference::Open), Ok(expected));
        };
        ask(&PLAIN, &["a", "b", "c"], &[]);
        ask(&Case { in_use: &["a"], ..PLAIN }, &["b", "c"], &[]);
        let takes_over = Case {
            required: 2,
            in_use: &["a", "c"],
            reusable: &["c"],
            healthy: Some(&["a", "b", "c", "d"]),
            ..PLAIN
        };
        ask(&takes_over, &["b", "c", "d"], &["c"]);
        assert_eq!(
            chosen(&Case { reusable: &["c"], ..PLAIN }, Preference::Open),
            Ok(Choice::Take(ids(&["c"]))),
            "there is nothing left to prefer"
        );
        let told = |case: &Case<'_>, preferred: &[&str], expected: &[&str]| {
            let preferred = ids(preferred);
            let got = chosen(case, Preference::Told(&preferred));
            assert_eq!(got, Ok(Choice::Take(ids(expected))), "{preferred:?}");
        };
        told(&PLAIN, &["b"], &["b"]);
        told(&PLAIN, &["b", "c"], &["b"]);
        told(&PLAIN, &[], &["a"]);
        told(&PLAIN, &["x", "y"], &["a"]);
        told(&Case { in_use: &["b"], ..PLAIN }, &["b"], &["a"]);
        told(&Case { required: 2, ..PLAIN }, &["c"], &["a", "c"]);
        told(&takes_over, &["d", "c"], &["c", "d"]);
    }
}
