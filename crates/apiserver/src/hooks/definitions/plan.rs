//! The conditions that a definition should have, and the names that are accepted.

use api::Text;
use compact_str::format_compact;
use kinds::custom::{Approval, Names};
use serde_json::{Value, json};

use super::in_use::Used;
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

/// Plans a definition's status. `used` are the names that its group uses, its own accepted ones among them;
/// `is_built_in` says that a built-in resource has the definition's objects, and `may_establish` that nobody needs time
/// to serve it first.
pub(super) fn plan(known: &Known, used: &Used, is_built_in: bool, may_establish: bool) -> Plan {
    let (accepted, naming) = names(known, used, is_built_in);
    let mut conditions = Vec::new();
    if known.definition.names == known.accepted && known.condition("NamesAccepted").is_some() {
        // Upstream looks at names only if they are not those that were accepted.
    } else {
        conditions.push(naming.clone());
    }
    let is_accepted = naming.status == "True";
    if !known.is_established() {
        let established = match (is_accepted, may_establish) {
            (true, true) if known.has_bad_authorities() => condition(
                "Established",
                "False",
                "InvalidCABundle",
                "The conversion webhook CABundle is invalid",
            ),
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
fn names(known: &Known, used: &Used, is_built_in: bool) -> (Names, Condition) {
    let (wanted, has) = (&known.definition.names, &known.accepted);
    let mut accepted = has.clone();
    let mut conflict: Option<(&str, String)> = None;
    let in_use = |name: &str| format!("{name:?} is already in use");
    let mut check = |wanted: &Text, has: &mut Text, is_used: bool, reason: &'static str| {
        if wanted == has || !is_used {
            has.clone_from(wanted);
        } else {
            conflict = Some((reason, in_use(wanted)));
        }
    };
    // DIFFERENCE: upstream serves another version of a built-in resource, whose objects then stand elsewhere.
    let is_plural_used = is_built_in || used.has_resource(&wanted.plural);
    check(&wanted.plural, &mut accepted.plural, is_plural_used, "PluralConflict");
    check(&wanted.singular, &mut accepted.singular, used.has_resource(&wanted.singular), "SingularConflict");
    if wanted.short_names != has.short_names {
        let taken = wanted.short_names.iter().filter(|s| !has.short_names.contains(s));
        let taken: Vec<String> = taken.filter(|s| used.has_resource(s)).map(|s| in_use(s)).collect();
        match taken.as_slice() {
            [] => accepted.short_names.clone_from(&wanted.short_names),
            [one] => conflict = Some(("ShortNamesConflict", one.clone())),
            many => conflict = Some(("ShortNamesConflict", format!("[{}]", many.join(", ")))),
        }
    }
    let mut check = |wanted: &Text, has: &mut Text, reason: &'static str| {
        if wanted == has || !used.has_kind(wanted) {
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
    let approval = Approval::of(known.group(), known.approval.as_deref().unwrap_or_default())?;
    let (status, reason) = match &approval {
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Bypassed(_) => ("False", "UnapprovedAnnotation"),
        Approval::Approved(_) => ("True", "ApprovedAnnotation"),
        Approval::Invalid(_) => ("False", "InvalidAnnotation"),
    };
    let message = format_compact!("{approval}");
    Some(condition("KubernetesAPIApprovalPolicyConformant", status, reason, &message))
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
