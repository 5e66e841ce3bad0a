//! Compares rules that a user wants to grant with the rules that the user has.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use api::Text;

use super::{Rule, path_matches};
use crate::UserInfo;

/// The greatest number of parts of rules that are compared; rules with more cannot be granted.
///
/// DIFFERENCE: upstream has no limit, although one rule with 1,000 groups, resources and verbs has 1,000,000,000 parts.
const MOST_PARTS: usize = 50_000;
/// The greatest number of missing rules that a refusal shows.
const MOST_TOLD: usize = 1000;

/// Returns the parts of `wanted`, each with one verb and one target, that no rule of `owned` covers; `Err` if there are
/// too many parts to look at.
pub fn missing(owned: &[Rule], wanted: &[Rule]) -> Result<Vec<Rule>, String> {
    let parts = wanted.iter().fold(0usize, |n, rule| n.saturating_add(parts(rule)));
    if parts > MOST_PARTS {
        return Err(format!("the rules have {parts} parts, of which at most {MOST_PARTS} can be compared"));
    }
    Ok(wanted
        .iter()
        .flat_map(break_down)
        .filter(|part| !owned.iter().any(|rule| covers(rule, part)))
        .collect())
}

/// The number of parts of a rule.
fn parts(rule: &Rule) -> usize {
    let of_resources = [rule.api_groups.len(), rule.resources.len(), rule.resource_names.len().max(1)];
    let targets = of_resources.into_iter().fold(1, usize::saturating_mul);
    targets.saturating_add(rule.non_resource_urls.len()).saturating_mul(rule.verbs.len())
}

/// Makes upstream's text about rules that a user may not grant.
pub fn refusal(user: &UserInfo, missing: Vec<Rule>, resolution_errors: Option<&str>) -> String {
    let texts: BTreeSet<String> = compact(missing).iter().map(describe).collect();
    let more = texts.len().saturating_sub(MOST_TOLD);
    let mut text = format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        texts.into_iter().take(MOST_TOLD).collect::<Vec<_>>().join("\n")
    );
    if more > 0 {
        let _ = write!(text, "\nand {more} more");
    }
    if let Some(errors) = resolution_errors {
        // Writing to a string cannot fail.
        let _ = write!(text, "; resolution errors: [{errors}]");
    }
    text
}

fn break_down(rule: &Rule) -> Vec<Rule> {
    let mut parts = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let part = Rule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    ..Rule::default()
                };
                if rule.resource_names.is_empty() {
                    parts.push(part);
                } else {
                    parts.extend(
                        rule.resource_names
                            .iter()
                            .map(|n| Rule { resource_names: vec![n.clone()], ..part.clone() }),
                    );
                }
            }
        }
    }
    for url in &rule.non_resource_urls {
        for verb in &rule.verbs {
            parts.push(Rule {
                verbs: vec![verb.clone()],
                non_resource_urls: vec![url.clone()],
                ..Rule::default()
            });
        }
    }
    parts
}

fn holds(set: &[Text], wanted: &[Text]) -> bool {
    set.iter().any(|e| e == "*") || wanted.iter().all(|w| set.contains(w))
}

fn covers(owner: &Rule, part: &Rule) -> bool {
    let resource = |wanted: &Text| {
        owner.resources.iter().any(|r| {
            r == "*"
                || r == wanted
                || wanted.split_once('/').is_some_and(|(_, sub)| r.strip_prefix("*/") == Some(sub))
        })
    };
    let url = |wanted: &Text| owner.non_resource_urls.iter().any(|u| path_matches(u, wanted));
    holds(&owner.verbs, &part.verbs)
        && holds(&owner.api_groups, &part.api_groups)
        && part.resources.iter().all(resource)
        && part.non_resource_urls.iter().all(url)
        && (owner.resource_names.is_empty()
            || (!part.resource_names.is_empty()
                && part.resource_names.iter().all(|n| owner.resource_names.contains(n))))
}

/// Joins parts about the same resource into one rule with all their verbs.
fn compact(parts: Vec<Rule>) -> Vec<Rule> {
    let mut others = Vec::new();
    let mut simple = BTreeMap::new();
    for part in parts {
        if part.non_resource_urls.is_empty() {
            let key = (part.api_groups.clone(), part.resources.clone(), part.resource_names.clone());
            match simple.entry(key) {
                Entry::Occupied(mut rule) => {
                    let rule: &mut Rule = rule.get_mut();
                    rule.verbs.extend(part.verbs);
                }
                Entry::Vacant(slot) => drop(slot.insert(part)),
            }
        } else {
            others.push(part);
        }
    }
    others.extend(simple.into_values());
    others
}

fn quoted(list: &[Text]) -> String {
    list.iter().map(|t| format!("{t:?}")).collect::<Vec<_>>().join(" ")
}

fn describe(rule: &Rule) -> String {
    let parts = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let texts: Vec<String> = parts
        .iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(name, list)| format!("{name}:[{}]", quoted(list)))
        .collect();
    format!("{{{}}}", texts.join(", "))
}
