//! The conditions that a definition should have, and the names that are accepted.

use std::collections::HashSet;

use api::Text;
use compact_str::format_compact;
use kinds::custom::Names;
use serde_json::{Value, json};

use super::state::{Condition, Known};

/// The wanted content of a definition's status.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The names that are accepted.
    pub(super) accepted: Names,
    /// The conditions that must be there; others stay as they are.
    conditions: Vec<Condition>,
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition { kind: kind.into(), status: status.into(), reason: reason.into(), message: message.into() }
}

/// Plans a definition's status. `of_group` are all definitions of its group, itself among them; `may_establish` says
/// that nobody needs time to serve it first.
pub(super) fn plan<'k>(
    known: &Known,
    of_group: impl Iterator<Item = &'k Known>,
    may_establish: bool,
) -> Plan {
    let (accepted, naming) = names(known, of_group);
    let mut conditions = Vec::new();
    if known.definition.names == known.accepted && known.condition("NamesAccepted").is_some() {
        // Upstream looks at names only if they are not those that were accepted.
    } else {
        conditions.push(naming.clone());
    }
    let is_accepted = naming.status == "True";
    if !known.is_established() {
        let established = match (is_accepted, may_establish) {
            (true, true) => condition(
                "Established",
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
            ),
            (true, false) => {
                condition("Established", "False", "Installing", "the initial names have been accepted")
            }
            (false, _) => condition("Established", "False", "NotAccepted", "not all names are accepted"),
        };
        conditions.push(established);
    }
    if known.keeps_unknown {
        let message = "spec.preserveUnknownFields: Invalid value: true: must be false";
        conditions.push(condition("NonStructuralSchema", "True", "Violations", message));
    }
    conditions.extend(approval(known));
    Plan { accepted, conditions }
}

/// The names that are accepted, and the condition about them.
fn names<'k>(known: &Known, of_group: impl Iterator<Item = &'k Known>) -> (Names, Condition) {
    let (mut resources, mut kinds): (HashSet<&str>, HashSet<&str>) = Default::default();
    for other in of_group {
        let of = &other.accepted;
        resources.extend([of.plural.as_str(), &of.singular]);
        resources.extend(of.short_names.iter().map(Text::as_str));
        kinds.extend([of.kind.as_str(), &of.list_kind]);
    }
    let (wanted, has) = (&known.definition.names, &known.accepted);
    let mut accepted = has.clone();
    let mut conflict: Option<(&str, String)> = None;
    let is_free = |wanted: &str, has: &str, used: &HashSet<&str>| wanted == has || !used.contains(wanted);
    let in_use = |name: &str| format!("{name:?} is already in use");
    let mut check = |wanted: &Text, has: &mut Text, used: &HashSet<&str>, reason: &'static str| {
        if is_free(wanted, has, used) {
            has.clone_from(wanted);
        } else {
            conflict = Some((reason, in_use(wanted)));
        }
    };
    check(&wanted.plural, &mut accepted.plural, &resources, "PluralConflict");
    check(&wanted.singular, &mut accepted.singular, &resources, "SingularConflict");
    if wanted.short_names != has.short_names {
        let taken = wanted.short_names.iter().filter(|s| !has.short_names.contains(s));
        let taken: Vec<String> =
            taken.filter(|s| resources.contains(s.as_str())).map(|s| in_use(s)).collect();
        match taken.as_slice() {
            [] => accepted.short_names.clone_from(&wanted.short_names),
            [one] => conflict = Some(("ShortNamesConflict", one.clone())),
            many => conflict = Some(("ShortNamesConflict", format!("[{}]", many.join(", ")))),
        }
    }
    let mut check = |wanted: &Text, has: &mut Text, reason: &'static str| {
        if is_free(wanted, has, &kinds) {
            has.clone_from(wanted);
        } else {
            conflict = Some((reason, in_use(wanted)));
        }
    };
    check(&wanted.kind, &mut accepted.kind, "KindConflict");
    check(&wanted.list_kind, &mut accepted.list_kind, "ListKindConflict");
    accepted.categories.clone_from(&wanted.categories);
    let naming = match conflict {
        Some((reason, message)) => condition("NamesAccepted", "False", reason, &message),
        None => condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
    };
    (accepted, naming)
}

/// The condition of definitions in groups of the community: the annotation names who approved them.
fn approval(known: &Known) -> Option<Condition> {
    const KIND: &str = "KubernetesAPIApprovalPolicyConformant";
    let group = known.group();
    let is_community = group == "k8s.io"
        || group == "kubernetes.io"
        || group.ends_with(".k8s.io")
        || group.ends_with(".kubernetes.io");
    if !is_community {
        return None;
    }
    let text = known.approval.as_deref().unwrap_or_default();
    let is_url = text.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.split('/').next().unwrap_or_default().is_empty()
    });
    Some(match text {
        "" => condition(
            KIND,
            "False",
            "MissingAnnotation",
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
        ),
        text if text.starts_with("unapproved") => {
            let message = format_compact!("not approved: {text:?}");
            condition(KIND, "False", "UnapprovedAnnotation", &message)
        }
        text if is_url => {
            let message = format_compact!("approved in {text}");
            condition(KIND, "True", "ApprovedAnnotation", &message)
        }
        text => {
            let message = format_compact!(
                "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111; got {text:?}"
            );
            condition(KIND, "False", "InvalidAnnotation", &message)
        }
    })
}

impl Plan {
    /// Whether the names are accepted, so that the definition may be served.
    pub(super) fn accepts_names(&self) -> bool {
        !self.conditions.iter().any(|c| c.kind == "NamesAccepted" && c.status == "False")
            && self.conditions.iter().any(|c| c.kind == "Established" && c.status == "True")
    }
    /// Whether a definition's status says something else.
    pub(super) fn differs(&self, known: &Known) -> bool {
        self.accepted != known.accepted || self.conditions.iter().any(|c| known.condition(&c.kind) != Some(c))
    }
    /// Writes the plan into a definition's status.
    pub(super) fn apply(&self, object: &mut Value, now: &str) {
        let n = &self.accepted;
        let mut names = json!({"plural": n.plural.as_str(), "kind": n.kind.as_str()});
        for (field, value) in [("singular", &n.singular), ("listKind", &n.list_kind)] {
            if !value.is_empty() {
                names[field] = value.as_str().into();
            }
        }
        for (field, all) in [("shortNames", &n.short_names), ("categories", &n.categories)] {
            if !all.is_empty() {
                names[field] = all.iter().map(Text::as_str).collect();
            }
        }
        object["status"]["acceptedNames"] = names;
        for c in &self.conditions {
            set_condition(object, c, now);
        }
    }
}

/// Sets a condition in a definition's status; the time is that of the last change of its status.
pub(super) fn set_condition(object: &mut Value, c: &Condition, now: &str) {
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(all) = object["status"]["conditions"].as_array_mut() else { return };
    let found = all.iter_mut().find(|o| o["type"] == c.kind.as_str());
    let was = found.as_ref().map(|o| (o["status"].clone(), o["lastTransitionTime"].clone()));
    let time = match was {
        Some((status, time)) if status == c.status.as_str() => time,
        _ => now.into(),
    };
    let next = json!({
        "type": c.kind.as_str(),
        "status": c.status.as_str(),
        "lastTransitionTime": time,
        "reason": c.reason.as_str(),
        "message": c.message.as_str(),
    });
    match found {
        Some(found) => *found = next,
        None => all.push(next),
    }
}
