//! Amounts, and the bounds that an item of a range sets to them.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use api::view::View;
use k8s_openapi::api::core::v1::LimitRangeItem;
use objects::quantity::ResourceList;

/// The greatest amount of units that is compared in thousandths; upstream's `MaxMilliValue`.
const MAX_MILLI: i64 = i64::MAX / 1000;

type List = BTreeMap<String, Quantity>;

/// The amounts that a container, a Pod or a claim asks for.
#[derive(Debug, Default)]
pub(super) struct Amounts {
    requests: List,
    limits: List,
}

fn list(resources: &View<'_>, field: &str) -> List {
    let parsed = |(name, text): (&str, &str)| Some((name.to_owned(), Quantity::parse(text).ok()?));
    resources.texts(field).filter_map(parsed).collect()
}

fn add(to: &mut List, more: &List) {
    for (name, amount) in more {
        match to.get_mut(name) {
            Some(sum) => sum.add(amount),
            None => drop(to.insert(name.clone(), amount.clone())),
        }
    }
}

fn raise(to: &mut List, other: &List) {
    for (name, amount) in other {
        if to.get(name).is_none_or(|has| amount > has) {
            to.insert(name.clone(), amount.clone());
        }
    }
}

impl Amounts {
    /// The amounts of `resources`.
    pub(super) fn of(resources: &View<'_>) -> Self {
        Self { requests: list(resources, "requests"), limits: list(resources, "limits") }
    }

    /// The amounts of a Pod as a whole, by its wishes alone and without its overhead.
    pub(super) fn of_pod(spec: &View<'_>) -> Self {
        Self { requests: sum(spec, "requests"), limits: sum(spec, "limits") }
    }
}

/// Sums a field of a Pod's containers, or of its init containers where they need more at a time; what the Pod says of
/// CPU and memory as a whole counts instead.
fn sum(spec: &View<'_>, field: &str) -> List {
    let mut total = List::new();
    for container in spec.items("containers") {
        add(&mut total, &list(&container.st("resources"), field));
    }
    let (mut sidecars, mut peak) = (List::new(), List::new());
    for container in spec.items("initContainers") {
        let mut own = list(&container.st("resources"), field);
        if container.str("restartPolicy") == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut peak, &sidecars);
        } else {
            add(&mut own, &sidecars);
            raise(&mut peak, &own);
        }
    }
    raise(&mut total, &peak);
    let whole = list(&spec.st("resources"), field);
    total.extend(whole.into_iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory")));
    total
}

/// An amount that is there, or none.
#[derive(Clone, Copy)]
struct Given<'a>(Option<&'a Quantity>);

impl Given<'_> {
    fn units(self) -> i64 {
        self.0.map_or(0, Quantity::wrapped_value)
    }
    fn milli(self) -> i64 {
        self.0.map_or(0, Quantity::wrapped_milli_value)
    }
}

/// One resource's bound, with the request and the limit that it is compared with.
struct Bound<'a> {
    kind: &'a str,
    name: &'a str,
    bound: Quantity,
    request: Option<&'a Quantity>,
    limit: Option<&'a Quantity>,
}

impl Bound<'_> {
    /// The request, the limit and the bound in thousandths, or in units if one of them is too large for that.
    fn values(&self) -> (i64, i64, i64) {
        let all = [Given(self.request), Given(self.limit), Given(Some(&self.bound))];
        let fine = all.iter().all(|given| given.units() <= MAX_MILLI);
        let [request, limit, bound] = all.map(|given| if fine { given.milli() } else { given.units() });
        (request, limit, bound)
    }

    fn minimum(&self) -> Option<String> {
        let (request, limit, bound) = self.values();
        let text = format!("minimum {} usage per {} is {}", self.name, self.kind, self.bound);
        match (self.request, self.limit) {
            (None, _) => Some(format!("{text}.  No request is specified")),
            (Some(given), _) if request < bound => Some(format!("{text}, but request is {given}")),
            (_, Some(given)) if limit < bound => Some(format!("{text}, but limit is {given}")),
            _ => None,
        }
    }

    fn maximum(&self) -> Option<String> {
        let (request, limit, bound) = self.values();
        let text = format!("maximum {} usage per {} is {}", self.name, self.kind, self.bound);
        match (self.limit, self.request) {
            (None, _) => Some(format!("{text}.  No limit is specified")),
            (Some(given), _) if limit > bound => Some(format!("{text}, but limit is {given}")),
            (_, Some(given)) if request > bound => Some(format!("{text}, but request is {given}")),
            _ => None,
        }
    }

    fn maximum_request(&self) -> Option<String> {
        let (request, _, bound) = self.values();
        let text = format!("maximum {} usage per {} is {}", self.name, self.kind, self.bound);
        match self.request {
            None => Some(format!("{text}.  No request is specified")),
            Some(given) if request > bound => Some(format!("{text}, but request is {given}")),
            Some(_) => None,
        }
    }

    fn ratio(&self) -> Option<String> {
        let (request, limit, _) = self.values();
        let text = format!("{} max limit to request ratio per {} is {}", self.name, self.kind, self.bound);
        if request == 0 {
            return Some(format!("{text}, but no request is specified or request is 0"));
        }
        if limit == 0 {
            return Some(format!("{text}, but no limit is specified or limit is 0"));
        }
        let ratio = limit as f64 / request as f64;
        let given = Given(Some(&self.bound));
        let exceeds = if given.units() <= MAX_MILLI {
            ratio * 1000.0 > given.milli() as f64
        } else {
            ratio > given.units() as f64
        };
        exceeds.then(|| format!("{text}, but provided ratio is {ratio:.6}"))
    }
}

fn each<'a>(
    item: &'a LimitRangeItem,
    bounds: Option<&'a ResourceList>,
    amounts: &'a Amounts,
) -> impl Iterator<Item = Bound<'a>> {
    bounds.into_iter().flatten().filter_map(|(name, bound)| {
        Some(Bound {
            kind: &item.type_,
            name,
            bound: Quantity::parse(&bound.0).ok()?,
            request: amounts.requests.get(name),
            limit: amounts.limits.get(name),
        })
    })
}

/// Checks the amounts of a container or a Pod.
pub(super) fn check(item: &LimitRangeItem, amounts: &Amounts) -> Vec<String> {
    let minima = each(item, item.min.as_ref(), amounts).filter_map(|bound| bound.minimum());
    let maxima = each(item, item.max.as_ref(), amounts).filter_map(|bound| bound.maximum());
    let ratios = each(item, item.max_limit_request_ratio.as_ref(), amounts).filter_map(|bound| bound.ratio());
    minima.chain(maxima).chain(ratios).collect()
}

/// Checks the amounts of a claim, which has requests alone.
pub(super) fn check_claim(item: &LimitRangeItem, amounts: &Amounts) -> Vec<String> {
    let amounts = Amounts { requests: amounts.requests.clone(), limits: List::new() };
    let minima = each(item, item.min.as_ref(), &amounts).filter_map(|bound| bound.minimum());
    let maxima = each(item, item.max.as_ref(), &amounts).filter_map(|bound| bound.maximum_request());
    minima.chain(maxima).collect()
}
