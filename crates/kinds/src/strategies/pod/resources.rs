//! Rules of the resources that containers and pods ask for.

use std::collections::{BTreeSet, HashMap, HashSet};

use api::Gate;
use api::field::{Errors, NEGATIVE, Path, Typed};
use api::names;
use api::quantity::{milli, nano, value};
use api::view::View;

use super::options::Options;
use crate::resources::{self, PodTotals, is_huge_page};
use crate::strategy::Ctx;

/// The owner of resources.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// A container's, or a pod's overhead.
    Container,
    /// The pod's own.
    Pod,
}

/// Checks an amount: it is not negative, and whole where the resource is counted.
pub(crate) fn quantity_value(errs: &mut Errors, at: &Path<'_>, resource: &str, q: &str) {
    if nano(q) < 0 {
        errs.invalid(at, q, NEGATIVE);
    }
    if resources::is_integer(resource) && milli(q) % 1000 != 0 {
        errs.invalid(at, q, "must be an integer");
    }
}

fn page_size(name: &str) -> Option<i64> {
    let size = value(name.strip_prefix("hugepages-")?);
    (size > 0).then_some(size)
}

/// Whether an amount of huge pages is a multiple of the page; true for other resources.
pub(super) fn is_divisible(name: &str, q: &str) -> bool {
    !is_huge_page(name) || page_size(name).is_some_and(|size| value(q) % size == 0)
}

/// Checks that an amount of huge pages is one of whole pages.
pub(crate) fn divisible_huge_pages(errs: &mut Errors, at: &Path<'_>, name: &str, q: &str) {
    if !is_divisible(name, q) {
        errs.invalid(at, q, format!("{q} is not positive integer multiple of {name}"));
    }
}

/// Checks a resource's name; returns whether it is well formed.
pub(crate) fn resource_name(errs: &mut Errors, at: &Path<'_>, name: &str) -> bool {
    let bad = names::qualified_name(name);
    if !bad.is_empty() {
        errs.each_typed(at, name, bad);
        return false;
    }
    if !name.contains('/') && !resources::is_standard(name) {
        errs.invalid(at, Typed(name), "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

/// Checks a resource's name as containers may use it.
pub(crate) fn container_resource_name(errs: &mut Errors, at: &Path<'_>, name: &str) {
    name_for(errs, at, name, Whose::Container);
}

fn name_for(errs: &mut Errors, at: &Path<'_>, name: &str, whose: Whose) {
    let good = resource_name(errs, at, name);
    match whose {
        Whose::Container if !name.contains('/') => {
            if !resources::is_standard_container(name) {
                errs.invalid(at, Typed(name), "must be a standard resource for containers");
            }
        }
        Whose::Container => {
            if !resources::is_native(name) && !resources::is_extended(name) {
                errs.invalid(at, Typed(name), "doesn't follow extended resource name standard");
            }
        }
        Whose::Pod => {
            if good && !resources::is_pod_level(name) {
                errs.not_supported(at, name, &["cpu", "hugepages-", "memory"]);
            }
        }
    }
}

/// Checks requests and limits.
pub(crate) fn requirements(
    errs: &mut Errors,
    at: &Path<'_>,
    r: View<'_>,
    whose: Whose,
    claims: Option<&Claims<'_>>,
    o: &Options<'_>,
) {
    let (lim_at, req_at) = (at.field("limits"), at.field("requests"));
    let (mut compute, mut huge) = (false, false);
    let mut amount = |errs: &mut Errors, at: &Path<'_>, name: &str, q: &str| {
        name_for(errs, at, name, whose);
        quantity_value(errs, at, name, q);
        compute |= name == "cpu" || name == "memory";
        huge |= is_huge_page(name);
    };
    let divisible = |errs: &mut Errors, at: &Path<'_>, name: &str, q: &str| {
        if !o.indivisible_huge_pages {
            divisible_huge_pages(errs, at, name, q);
        }
    };
    for (name, q) in r.texts("limits") {
        let at = lim_at.key(name);
        amount(errs, &at, name, q);
        divisible(errs, &at, name, q);
    }
    let limits = r.map("limits");
    for (name, q) in r.texts("requests") {
        let at = req_at.key(name);
        amount(errs, &at, name, q);
        match limits.and_then(|m| m.get(name)).map(api::Node::as_str) {
            Some(l) if nano(q) != nano(l) && !resources::is_overcommit_allowed(name) => {
                errs.invalid(&req_at, q, format!("must be equal to {name} limit of {l}"));
            }
            Some(l) if nano(q) > nano(l) => {
                errs.invalid(&req_at, q, format!("must be less than or equal to {name} limit of {l}"));
            }
            Some(_) => {}
            None => {
                if !resources::is_overcommit_allowed(name) {
                    errs.required(&lim_at, "Limit must be set for non overcommitable resources");
                }
            }
        }
        divisible(errs, &at, name, q);
    }
    if huge && !compute {
        errs.forbidden(at, "HugePages require cpu or memory");
    }
    claim_names(errs, &at.field("claims"), r, claims.unwrap_or(&Claims::default()));
}

/// The names of the claims that a pod declares.
#[derive(Default)]
pub(crate) struct Claims<'a> {
    names: BTreeSet<&'a str>,
}

impl<'a> Claims<'a> {
    pub(super) fn of(spec: View<'a>) -> Self {
        let names = spec.items("resourceClaims").map(|c| c.str("name")).filter(|n| !n.is_empty());
        Self { names: names.collect() }
    }
    fn listed(&self) -> String {
        if self.names.is_empty() {
            return " which is empty".into();
        }
        let all: Vec<&str> = self.names.iter().copied().collect();
        format!(": {}", all.join(", "))
    }
}

fn claim_names(errs: &mut Errors, at: &Path<'_>, r: View<'_>, pod_claims: &Claims<'_>) {
    let mut seen: HashSet<String> = HashSet::new();
    // The number of times that a claim was named with a request.
    let mut parts: HashMap<&str, usize> = HashMap::new();
    for (i, c) in r.items("claims").enumerate() {
        let at = at.index(i);
        let (name, request) = (c.str("name"), c.str("request"));
        if name.is_empty() {
            errs.required(&at, "");
            continue;
        }
        if seen.contains(name) {
            errs.duplicate(&at, name);
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                errs.each(&at.field("request"), request, names::dns1123_label(request));
                key = format!("{name}/{request}");
            }
            if seen.contains(&key) {
                errs.duplicate(&at, key.as_str());
            } else if request.is_empty() {
                for _ in 0..parts.get(name).copied().unwrap_or(0) {
                    errs.duplicate(&at, name);
                }
            }
            if let Some((of, _)) = key.split_once('/') {
                *parts.entry(&name[..of.len()]).or_default() += 1;
            }
            seen.insert(key);
        }
        if !pod_claims.names.contains(name) {
            errs.not_found_in(&at, name, || {
                format!("must be one of the names in pod.spec.resourceClaims{}", pod_claims.listed())
            });
        }
    }
}

/// Checks the resources of the pod as a whole.
pub(super) fn pod_level(
    errs: &mut Errors,
    spec_at: &Path<'_>,
    spec: View<'_>,
    claims: &Claims<'_>,
    o: &Options<'_>,
) {
    let Some(r) = spec.opt("resources") else { return };
    let at = spec_at.field("resources");
    if spec.st("os").str("name") == "windows" {
        errs.forbidden(&at, "may not be set for a windows pod");
        return;
    }
    if r.as_written("claims").is_some() {
        errs.forbidden(&at.field("claims"), "claims may not be set for Resources at pod-level");
    }
    requirements(errs, &at, r, Whose::Pod, Some(claims), o);
    let req_at = at.field("requests");
    for (name, sum) in PodTotals::of(spec, "requests").iter() {
        if let Some(q) = r.map("requests").and_then(|m| m.get(name)).map(api::Node::as_str)
            && nano(&sum) > nano(q)
        {
            errs.invalid(
                &req_at.key(name),
                q,
                format!("must be greater than or equal to aggregate container requests of {sum}"),
            );
        }
    }
    let lim_at = at.field("limits");
    for (name, sum) in PodTotals::of(spec, "limits").iter().filter(|(n, _)| is_huge_page(n)) {
        if let Some(q) = r.map("limits").and_then(|m| m.get(name)).map(api::Node::as_str)
            && nano(&sum) > nano(q)
        {
            errs.invalid(
                &lim_at.key(name),
                q,
                format!("must be greater than or equal to aggregate container limits of {sum}"),
            );
        }
    }
    let containers = at.field("containers");
    for (i, c) in spec.items("containers").enumerate() {
        for (name, q) in c.st("resources").texts("limits") {
            if let Some(l) = r.map("limits").and_then(|m| m.get(name)).map(api::Node::as_str)
                && nano(q) > nano(l)
            {
                let at = containers.index(i);
                let at = at.key(name);
                errs.invalid(
                    &at.field("limits"),
                    q,
                    format!("must be less than or equal to pod limits of {l}"),
                );
            }
        }
    }
}

/// The quality of service class of a pod.
pub(crate) fn qos_class(c: &Ctx<'_>, spec: View<'_>) -> &'static str {
    let mut requests: Vec<(&str, i128)> = Vec::new();
    let mut limits: Vec<(&str, i128)> = Vec::new();
    let mut guaranteed = true;
    fn add<'a>(sums: &mut Vec<(&'a str, i128)>, name: &'a str, n: i128) {
        match sums.iter_mut().find(|(k, _)| *k == name) {
            Some(s) => s.1 = s.1.saturating_add(n),
            None => sums.push((name, n)),
        }
    }
    let compute = |name: &str| name == "cpu" || name == "memory";
    let of_pod = spec.opt("resources").filter(|_| c.gates.enabled(Gate::PodLevelResources));
    if let Some(r) = of_pod {
        for (k, q) in r.texts("requests").filter(|(k, q)| compute(k) && nano(q) > 0) {
            add(&mut requests, k, nano(q));
        }
        let mut found = 0;
        for (k, q) in r.texts("limits").filter(|(k, q)| compute(k) && nano(q) > 0) {
            add(&mut limits, k, nano(q));
            found += 1;
        }
        guaranteed = found == 2 || r.len("limits") == 0;
    } else {
        for c in spec.items("containers").chain(spec.items("initContainers")) {
            let r = c.st("resources");
            for (k, q) in r.texts("requests").filter(|(k, q)| compute(k) && nano(q) > 0) {
                add(&mut requests, k, nano(q));
            }
            let mut found = 0;
            for (k, q) in r.texts("limits").filter(|(k, q)| compute(k) && nano(q) > 0) {
                add(&mut limits, k, nano(q));
                found += 1;
            }
            guaranteed &= found == 2;
        }
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let equal = requests.len() == limits.len()
        && requests.iter().all(|(k, n)| limits.iter().any(|(l, m)| l == k && m == n));
    if guaranteed && equal { "Guaranteed" } else { "Burstable" }
}
