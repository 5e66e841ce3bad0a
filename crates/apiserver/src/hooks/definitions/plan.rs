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
    /// Whether the condition that it is not structural must not be there.
    is_structural: bool,
}

const NON_STRUCTURAL: &str = "NonStructuralSchema";

/// Errors as upstream's `NewAggregate` prints them: each once.
fn aggregate(errors: &[String]) -> String {
    let mut all: Vec<&str> = Vec::with_capacity(errors.len());
    for error in errors {
        if !all.contains(&error.as_str()) {
            all.push(error);
        }
    }
    match all.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
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
    let faults = &known.definition.faults;
    if !faults.is_empty() {
        conditions.push(condition(NON_STRUCTURAL, "True", "Violations", &aggregate(faults)));
    }
    conditions.extend(approval(known));
    Plan { accepted, conditions, is_structural: faults.is_empty() }
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
        if taken.is_empty() {
            accepted.short_names.clone_from(&wanted.short_names);
        } else {
            conflict = Some(("ShortNamesConflict", aggregate(&taken)));
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
        self.accepted != known.accepted
            || self.conditions.iter().any(|c| known.condition(&c.kind) != Some(c))
            || self.is_structural && known.condition(NON_STRUCTURAL).is_some()
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
        if let Some(all) = object["status"]["conditions"].as_array_mut().filter(|_| self.is_structural) {
            all.retain(|c| c["type"] != NON_STRUCTURAL);
        }
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

#[cfg(test)]
mod tests {
    use super::super::in_use::InUse;
    use super::super::state::of_json;
    use super::*;

    fn names(of: &[&str; 4], short: &[&str]) -> Value {
        let [plural, singular, kind, list] = of;
        json!({"plural": plural, "singular": singular, "kind": kind, "listKind": list, "shortNames": short})
    }

    fn definition(names: &Value) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "x", "uid": "u"},
            "spec": {
                "group": "g.io",
                "scope": "Cluster",
                "names": names,
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
            "status": {},
        })
    }

    /// The status of a definition among others, as upstream's controllers leave it.
    fn planned(object: &Value, others: &[Value], may_establish: bool) -> Value {
        let known = of_json(object);
        let mut in_use = InUse::default();
        in_use.add(&known);
        for other in others {
            in_use.add(&of_json(other));
        }
        let plan = plan(&known, in_use.of("g.io"), false, may_establish);
        let mut object = object.clone();
        plan.apply(&mut object, "2026-01-01T00:00:00Z");
        object["status"].clone()
    }

    fn shown(status: &Value) -> Vec<String> {
        let text = |c: &Value, field: &str| c[field].as_str().unwrap().to_owned();
        let line = |c: &Value| ["type", "status", "reason", "message"].map(|f| text(c, f)).join("|");
        status["conditions"].as_array().unwrap().iter().map(line).collect()
    }

    const OWN: [&str; 4] = ["as", "a", "A", "AList"];
    const NONE: &str = "NamesAccepted|True|NoConflicts|no conflicts found";
    const NOT: &str = "Established|False|NotAccepted|not all names are accepted";

    /// Upstream's `TestSync` of its controller of names.
    #[test]
    fn names_are_given_once() {
        let check = |taken: &[&str; 4], short: &[&str], conflict: &str, accepted: Value| {
            let own = definition(&names(&OWN, &["s", "t"]));
            let mut other = definition(&Value::Null);
            other["status"]["acceptedNames"] = names(taken, short);
            let status = planned(&own, &[other], true);
            assert_eq!(shown(&status), [conflict, NOT]);
            assert_eq!(status["acceptedNames"], accepted, "{conflict}");
        };
        let without = |gone: &str| {
            let mut all = names(&OWN, &["s", "t"]);
            if gone == "plural" || gone == "kind" {
                all[gone] = json!("");
            } else {
                all.as_object_mut().unwrap().remove(gone);
            }
            all
        };
        let refused =
            |reason: &str, name: &str| format!("NamesAccepted|False|{reason}|\"{name}\" is already in use");
        // A name of a resource is taken by any of another's: its plural, its singular, its short ones.
        for taken in [["as", "", "", ""], ["", "as", "", ""]] {
            check(&taken, &[], &refused("PluralConflict", "as"), without("plural"));
        }
        check(&["", "", "", ""], &["a"], &refused("SingularConflict", "a"), without("singular"));
        check(&["s", "", "", ""], &[], &refused("ShortNamesConflict", "s"), without("shortNames"));
        let both = r#"NamesAccepted|False|ShortNamesConflict|["s" is already in use, "t" is already in use]"#;
        check(&["s", "t", "", ""], &[], both, without("shortNames"));
        check(&["", "", "", "A"], &[], &refused("KindConflict", "A"), without("kind"));
        check(&["", "", "AList", ""], &[], &refused("ListKindConflict", "AList"), without("listKind"));
        // Names that are free again are given away; the definition waits for other servers, or is established.
        let own = definition(&names(&OWN, &[]));
        let waits = "Established|False|Installing|the initial names have been accepted";
        assert_eq!(shown(&planned(&own, &[], false)), [NONE, waits]);
        let good = "Established|True|InitialNamesAccepted|the initial names have been accepted";
        assert_eq!(shown(&planned(&own, &[], true)), [NONE, good]);
        // An established definition stays so while a new name of it is not accepted.
        let mut own = definition(&names(&["as", "a", "A", "Taken"], &[]));
        own["status"] = planned(&definition(&names(&OWN, &[])), &[], true);
        let mut other = definition(&Value::Null);
        other["status"]["acceptedNames"] = names(&["", "", "", "Taken"], &[]);
        let status = planned(&own, &[other], true);
        assert_eq!(shown(&status), [refused("ListKindConflict", "Taken").as_str(), good]);
        assert_eq!(status["acceptedNames"]["listKind"], "AList");
    }

    /// Upstream's `Test_calculateCondition` of its controller of schemas: the condition goes with the fault.
    #[test]
    fn old_definitions_are_marked() {
        let mut own = definition(&names(&OWN, &[]));
        own["spec"]["preserveUnknownFields"] = json!(true);
        let status = planned(&own, &[], true);
        let marked = "NonStructuralSchema|True|Violations|spec.preserveUnknownFields: Invalid value: true: must be false";
        assert_eq!(shown(&status)[2..], [marked]);
        own["status"] = status.clone();
        assert!(!plan(&of_json(&own), InUse::default().of("g.io"), false, true).differs(&of_json(&own)));
        own["spec"]["preserveUnknownFields"] = json!(false);
        let known = of_json(&own);
        let next = plan(&known, InUse::default().of("g.io"), false, true);
        assert!(next.differs(&known));
        next.apply(&mut own, "2026-01-01T00:00:01Z");
        assert_eq!(shown(&own["status"]), shown(&status)[..2]);
        assert!(!plan(&of_json(&own), InUse::default().of("g.io"), false, true).differs(&of_json(&own)));
    }

    /// Upstream's `TestCalculateCondition` of its controller of approvals.
    #[test]
    fn groups_of_the_community_need_approval() {
        let check = |text: Option<&str>, expected: &str| {
            let mut own = definition(&names(&OWN, &[]));
            own["spec"]["group"] = json!("x.k8s.io");
            if let Some(text) = text {
                own["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": text});
            }
            let found = shown(&planned(&own, &[], true)).pop().unwrap();
            assert_eq!(found, format!("KubernetesAPIApprovalPolicyConformant|{expected}"));
        };
        const ASKED: &str = r#"protected groups must have approval annotation "api-approved.kubernetes.io""#;
        const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
        check(None, &format!("False|MissingAnnotation|{ASKED}, {SEE}"));
        let how = r#" with either a URL or a reason starting with "unapproved""#;
        check(Some("who knows"), &format!("False|InvalidAnnotation|{ASKED}{how}, {SEE}"));
        let why = r#"False|UnapprovedAnnotation|not approved: "unapproved, not yet""#;
        check(Some("unapproved, not yet"), why);
        check(Some("https://x.y/1"), "True|ApprovedAnnotation|approved in https://x.y/1");
    }
}
