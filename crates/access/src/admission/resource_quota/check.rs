//! Whether one request fits the quotas of its namespace (upstream's `CheckRequest`).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ResourceQuota, ScopedResourceSelectorRequirement};
use objects::quota::{self, Counted, DeviceClasses, Kind, Usage};

use super::config::LimitedResource;

/// A quota, with its amounts as numbers.
#[derive(Debug, Clone)]
pub(super) struct Quota {
    pub(super) object: ResourceQuota,
    pub(super) name: String,
    scopes: Vec<ScopedResourceSelectorRequirement>,
    /// The limits that the controller has seen.
    hard: Usage,
    pub(super) used: Usage,
}

impl Quota {
    /// Reads a quota.
    pub(super) fn new(object: ResourceQuota) -> Self {
        let amounts = object.status.as_ref();
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            scopes: object.spec.as_ref().map(quota::scopes).unwrap_or_default(),
            hard: quota::read(amounts.and_then(|s| s.hard.as_ref())),
            used: quota::read(amounts.and_then(|s| s.used.as_ref())),
            object,
        }
    }

    fn has(&self, object: &Counted) -> bool {
        object.is_in_all(&self.scopes)
    }

    /// The amounts that requests of a kind may change.
    fn restricts(&self, ask: &Ask) -> Vec<&str> {
        self.hard.keys().map(String::as_str).filter(|name| ask.kind.counts(name, &ask.devices)).collect()
    }
}

/// An object, and what it takes.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) counted: Counted,
    pub(super) usage: Usage,
}

/// A request, as quotas see it.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) kind: Kind,
    pub(super) devices: DeviceClasses,
    pub(super) new: Taken,
    pub(super) old: Option<Taken>,
    pub(super) update: bool,
    /// Whether more may be taken than a quota allows, since it was taken already.
    pub(super) may_exceed: bool,
}

/// The reason for which a request does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The request is forbidden.
    Forbidden(String),
    /// Upstream's error without a reason.
    Failed(String),
}

/// Checks a request against the quotas of its namespace. Returns the quotas that it changes, by their place, with what
/// is used then.
pub(super) fn check(
    quotas: &[Quota],
    ask: &Ask,
    limited: &[LimitedResource],
) -> Result<Vec<(usize, Usage)>, Refusal> {
    let concerned = concerned(quotas, ask)?;
    if let Some((name, _)) = ask.new.usage.iter().find(|(_, amount)| amount.sign() < 0) {
        return Err(Refusal::Forbidden(format!("quota usage is negative for resource(s): {name}")));
    }
    if ask.update && ask.old.is_none() {
        let why = "unable to get previous usage since prior version of object was not found";
        return Err(Refusal::Forbidden(why.to_owned()));
    }
    let (whole, difference) = (nonzero(&ask.new.usage), difference(ask));
    // An object that comes into a quota's scopes counts there as a whole.
    let part = |quota: &Quota| match &ask.old {
        Some(old) if !quota.has(&old.counted) => &whole,
        _ => &difference,
    };
    let changed: Vec<(usize, &Usage)> =
        concerned.iter().map(|i| (*i, part(&quotas[*i]))).filter(|(_, usage)| !usage.is_empty()).collect();
    if changed.is_empty() && (!concerned.is_empty() || difference.is_empty()) {
        return Ok(Vec::new());
    }
    covered(quotas, &concerned, ask, limited)?;
    changed.into_iter().map(|(i, usage)| Ok((i, fits(&quotas[i], ask, usage)?))).collect()
}

fn nonzero(usage: &Usage) -> Usage {
    usage.iter().filter(|(_, amount)| !amount.is_zero()).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// The amounts by which the request takes more than before.
fn difference(ask: &Ask) -> Usage {
    match &ask.old {
        Some(old) if ask.update => quota::less(&ask.new.usage, &old.usage),
        _ => nonzero(&ask.new.usage),
    }
}

/// Finds the quotas that count a request's object.
fn concerned(quotas: &[Quota], ask: &Ask) -> Result<Vec<usize>, Refusal> {
    let mut concerned = Vec::new();
    for (i, quota) in quotas.iter().enumerate() {
        let restricted = quota.restricts(ask);
        if restricted.is_empty() || !quota.has(&ask.new.counted) {
            continue;
        }
        let name = &quota.name;
        if let Err(why) = ask.new.counted.says_enough(restricted.iter().copied()) {
            return Err(Refusal::Forbidden(format!("failed quota: {name}: {why}")));
        }
        if restricted.iter().any(|name| !quota.used.contains_key(*name)) {
            let resources = restricted.join(",");
            return Err(Refusal::Forbidden(format!(
                "status unknown for quota: {name}, resources: {resources}"
            )));
        }
        concerned.push(i);
    }
    Ok(concerned)
}

/// Checks that there are quotas for what nobody may take without one.
fn covered(
    quotas: &[Quota],
    concerned: &[usize],
    ask: &Ask,
    limited: &[LimitedResource],
) -> Result<(), Refusal> {
    let (group, plural) = ask.kind.resource();
    let restricted: BTreeSet<&str> = concerned.iter().flat_map(|i| quotas[*i].restricts(ask)).collect();
    let mut bare: BTreeSet<&str> = BTreeSet::new();
    for limited in limited.iter().filter(|l| l.group == group && l.resource == plural) {
        let taken =
            ask.new.usage.iter().filter(|(_, amount)| amount.sign() > 0).map(|(name, _)| name.as_str());
        let named =
            taken.filter(|name| limited.match_contains.iter().any(|part| name.contains(part.as_str())));
        bare.extend(named.filter(|name| !restricted.contains(name)));
    }
    if !bare.is_empty() {
        let bare: Vec<&str> = bare.into_iter().collect();
        return Err(Refusal::Forbidden(format!("insufficient quota to consume: {}", bare.join(","))));
    }
    let object = &ask.new.counted;
    let scopes: Vec<&str> = quotas
        .iter()
        .flat_map(|quota| quota.scopes.iter().filter(|scope| object.is_in(scope)))
        .map(|scope| scope.scope_name.as_str())
        .collect();
    // As upstream's do, the scopes of every limited resource count, whichever resource the request is about.
    let bare: Vec<String> = limited
        .iter()
        .flat_map(|l| &l.match_scopes)
        .filter(|scope| object.is_in(scope) && !scopes.contains(&scope.scope_name.as_str()))
        .map(|scope| {
            let values = scope.values.as_deref().unwrap_or_default();
            format!("{{{} {} [{}]}}", scope.scope_name, scope.operator, values.join(" "))
        })
        .collect();
    if bare.is_empty() {
        return Ok(());
    }
    Err(Refusal::Failed(format!("insufficient quota to match these scopes: [{}]", bare.join(" "))))
}

/// Adds to what is used of a quota, if that fits.
fn fits(quota: &Quota, ask: &Ask, usage: &Usage) -> Result<Usage, Refusal> {
    let requested: Usage = usage
        .iter()
        .filter(|(name, _)| quota.hard.contains_key(*name))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let mut used = quota.used.clone();
    quota::add(&mut used, &requested);
    let exceeded: Vec<&String> =
        requested.keys().filter(|name| used.get(*name) > quota.hard.get(*name)).collect();
    if ask.may_exceed || exceeded.is_empty() {
        return Ok(used);
    }
    let shown = |of: &Usage| {
        let each: Vec<String> =
            exceeded.iter().filter_map(|name| Some(format!("{name}={}", of.get(*name)?))).collect();
        each.join(",")
    };
    Err(Refusal::Forbidden(format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        quota.name,
        shown(&requested),
        shown(&quota.used),
        shown(&quota.hard)
    )))
}
