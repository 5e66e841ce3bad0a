//! Which requests a policy or a webhook is about: rules, selectors, equivalent resources (upstream:
//! `plugin/policy/matching`, `plugin/webhook/predicates`).

use std::sync::OnceLock;

use api::go::quote;
use api::names;
use api::selector::labels::{Operator, Requirement, Selector};
use api::view::View;
use api::{Gvk, Status, Struct, Text};
use serde::Deserialize;

use super::plugin::Env;
use super::versions::Equivalent;
use super::{AdmissionRequest, Operation};

/// `NamedRuleWithOperations`, and `RuleWithOperations`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rule {
    operations: Vec<Text>,
    api_groups: Vec<Text>,
    api_versions: Vec<Text>,
    resources: Vec<Text>,
    scope: Option<Text>,
    resource_names: Vec<Text>,
}

/// `metav1.LabelSelector`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LabelSelector {
    match_labels: std::collections::BTreeMap<Text, Text>,
    match_expressions: Vec<Expression>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Expression {
    key: Text,
    operator: Text,
    values: Vec<Text>,
}

/// `MatchResources`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MatchResources {
    pub(super) namespace_selector: Option<LabelSelector>,
    pub(super) object_selector: Option<LabelSelector>,
    pub(super) resource_rules: Vec<Rule>,
    exclude_resource_rules: Vec<Rule>,
    match_policy: Option<Text>,
}

impl LabelSelector {
    /// The selector, or upstream's text for an operator that there is not.
    pub(super) fn selector(&self) -> Result<Selector, String> {
        let mut requirements: Vec<Requirement> = self
            .match_labels
            .iter()
            .map(|(key, value)| Requirement {
                key: key.clone(),
                operator: Operator::Equals,
                values: vec![value.clone()],
            })
            .collect();
        for e in &self.match_expressions {
            let operator = match e.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("{} is not a valid label selector operator", quote(other))),
            };
            let mut values = e.values.clone();
            values.sort();
            requirements.push(Requirement { key: e.key.clone(), operator, values });
        }
        let wrong: Vec<String> = requirements.iter().flat_map(complaints).collect();
        match &wrong[..] {
            [] => {}
            [one] => return Err(one.clone()),
            all => return Err(format!("[{}]", all.join(", "))),
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Selector { requirements })
    }
}

/// Upstream's complaints about a requirement.
fn complaints(of: &Requirement) -> Vec<String> {
    let mut out = Vec::new();
    let key = names::qualified_name(&of.key);
    if !key.is_empty() {
        out.push(format!("key: Invalid value: {}: {}", quote(&of.key), key.join("; ")));
    }
    let values = || api::go::quote(&of.values.join(" "));
    match of.operator {
        Operator::In | Operator::NotIn if of.values.is_empty() => {
            out.push(
                "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty".into(),
            );
        }
        Operator::Exists | Operator::DoesNotExist if !of.values.is_empty() => out.push(format!(
            "values: Invalid value: [{}]: values set must be empty for exists and does not exist",
            values()
        )),
        _ => {}
    }
    for (i, value) in of.values.iter().enumerate() {
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            let (key, value) = (&of.key, quote(value));
            out.push(format!("values[{i}][{key}]: Invalid value: {value}: {}", wrong.join("; ")));
        }
    }
    out
}

/// The requests that somebody is asked about.
#[derive(Debug, Clone, Default)]
pub(super) struct Criteria {
    namespaces: Selection,
    objects: Selection,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    /// Whether no rules are all rules.
    any: bool,
    equivalent: bool,
}

#[derive(Debug, Clone)]
struct Selection(Result<Selector, String>);

impl Default for Selection {
    fn default() -> Self {
        Self(Ok(Selector::default()))
    }
}

impl Selection {
    fn new(of: Option<&LabelSelector>) -> Self {
        Self(of.map_or_else(|| Ok(Selector::default()), LabelSelector::selector))
    }
    fn get(&self) -> Result<&Selector, Status> {
        self.0.as_ref().map_err(Status::internal)
    }
}

/// The resource and kind by which a request is matched: its own, or equivalent ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Matched {
    pub(super) resource: Equivalent,
    /// Whether it is the request's own resource.
    pub(super) own: bool,
}

impl Criteria {
    /// The criteria of a policy or a binding.
    pub(super) fn of_policy(of: &MatchResources) -> Self {
        Self {
            namespaces: Selection::new(of.namespace_selector.as_ref()),
            objects: Selection::new(of.object_selector.as_ref()),
            rules: of.resource_rules.clone(),
            excluded: of.exclude_resource_rules.clone(),
            any: true,
            equivalent: of.match_policy.as_deref() == Some("Equivalent"),
        }
    }
    /// The criteria of a webhook, which without rules is asked about nothing.
    pub(super) fn of_webhook(
        namespaces: Option<&LabelSelector>,
        objects: Option<&LabelSelector>,
        rules: Vec<Rule>,
        match_policy: Option<&str>,
    ) -> Self {
        Self {
            namespaces: Selection::new(namespaces),
            objects: Selection::new(objects),
            rules,
            excluded: Vec::new(),
            any: false,
            equivalent: match_policy == Some("Equivalent"),
        }
    }
}

/// A request as rules and selectors see it. The facts that several criteria ask for are found once.
pub(super) struct Subject<'a> {
    env: &'a Env,
    request: &'a AdmissionRequest<'a>,
    object: Option<&'a Struct>,
    equivalents: OnceLock<Vec<Equivalent>>,
}

impl<'a> Subject<'a> {
    /// A request with its new object.
    pub(super) fn new(env: &'a Env, request: &'a AdmissionRequest<'a>, object: Option<&'a Struct>) -> Self {
        Self { env, request, object, equivalents: OnceLock::new() }
    }
    /// Whether the criteria hold, and for which of the equivalent resources.
    ///
    /// # Errors
    /// The namespace is not there, a selector is wrong, or an equivalent resource has no kind.
    pub(super) fn matched(&self, by: &Criteria) -> Result<Option<Matched>, Status> {
        // A selector that cannot be asked counts only if the request is meant by the rest.
        let in_namespace = self.in_namespace(by);
        if matches!(in_namespace, Ok(false)) {
            return Ok(None);
        }
        let selected = self.is_selected(by);
        if matches!(selected, Ok(false)) {
            return Ok(None);
        }
        if !by.excluded.is_empty() && self.find(&by.excluded, by.equivalent).is_some() {
            return Ok(None);
        }
        let found = if by.any && by.rules.is_empty() {
            Some(self.own())
        } else {
            self.find(&by.rules, by.equivalent)
        };
        let Some(found) = found else { return Ok(None) };
        in_namespace?;
        selected?;
        Ok(Some(found))
    }

    fn own(&self) -> Matched {
        let (info, request) = (self.request.info, self.request);
        let resource = Equivalent {
            group: info.group.clone(),
            version: info.version.clone(),
            resource: request.resource.into(),
            kind: request.request_kind.clone(),
        };
        Matched { resource, own: true }
    }

    fn find(&self, rules: &[Rule], equivalent: bool) -> Option<Matched> {
        let (request, info) = (self.request, self.request.info);
        let named = |rule: &Rule| {
            rule.resource_names.is_empty() || rule.resource_names.iter().any(|n| n == request.name)
        };
        let own = [&*info.group, &*info.version, request.resource];
        if rules.iter().any(|rule| rule.holds(request, own) && named(rule)) {
            return Some(self.own());
        }
        if !equivalent {
            return None;
        }
        let others = self.equivalents.get_or_init(|| {
            let mut all = request.versions.equivalents();
            all.retain(|e| [&*e.group, &*e.version, &*e.resource] != own);
            all
        });
        rules.iter().find_map(|rule| {
            let holds = |e: &&Equivalent| rule.holds(request, [&*e.group, &*e.version, &*e.resource]);
            let found = others.iter().find(|e| holds(e) && named(rule))?;
            Some(Matched { resource: found.clone(), own: false })
        })
    }

    /// Whether the request's namespace is selected. Requests about the cluster's objects always are; namespaces are by
    /// their own labels.
    fn in_namespace(&self, by: &Criteria) -> Result<bool, Status> {
        let request = self.request;
        let is_namespace = request.resource == "namespaces";
        if request.namespace.is_empty() && !is_namespace {
            return Ok(true);
        }
        let selector = by.namespaces.get()?;
        if selector.is_empty() {
            return Ok(true);
        }
        let is_written = matches!(request.operation, Operation::Create | Operation::Update);
        if is_namespace && request.subresource.is_empty() && is_written {
            return Ok(self.object.is_some_and(|object| self.has_labels(object, selector)));
        }
        let namespace = self.env.reader.get(("", "namespaces"), "", request.namespace);
        let namespace = namespace.ok_or_else(|| Status::not_found("", "namespaces", request.namespace))?;
        Ok(selector.matches(|key| namespace.label(key)))
    }

    /// Whether the object or its former state is selected.
    fn is_selected(&self, by: &Criteria) -> Result<bool, Status> {
        let selector = by.objects.get()?;
        let mut states = self.object.into_iter().chain(self.request.old);
        Ok(selector.is_empty() || states.any(|object| self.has_labels(object, selector)))
    }

    /// Whether labels of an object are selected; those of what has no metadata never are.
    fn has_labels(&self, object: &Struct, selector: &Selector) -> bool {
        let view = View::new(self.request.versions.schema(), object);
        if !view.knows("metadata") {
            return false;
        }
        let labels = view.st("metadata");
        let labels = labels.map("labels");
        selector.matches(|key| labels.and_then(|l| l.get(key)).map(api::Node::as_str))
    }
}

impl Rule {
    /// Whether the rule is about a request, taken for one for a group, version and resource.
    fn holds(&self, request: &AdmissionRequest<'_>, [group, version, resource]: [&str; 3]) -> bool {
        let any = |items: &[Text], wanted: &str| items.iter().any(|i| i == "*" || i == wanted);
        any(&self.operations, request.operation.name())
            && any(&self.api_groups, group)
            && any(&self.api_versions, version)
            && self.resources.iter().any(|of| {
                let (main, sub) = of.split_once('/').unwrap_or((of, ""));
                (main == "*" || main == resource) && (sub == "*" || sub == request.subresource)
            })
            && {
                // The namespace of a namespace is itself, though it is an object of the cluster.
                let of_cluster =
                    request.namespace.is_empty() || [group, version, resource] == ["", "v1", "namespaces"];
                match self.scope.as_deref() {
                    None | Some("*") => true,
                    Some("Namespaced") => !of_cluster,
                    Some("Cluster") => of_cluster,
                    Some(_) => false,
                }
            }
    }
}

/// The kinds that configure admission: no webhook is asked about them, since it could keep itself from being mended.
pub(super) fn configures_admission(kind: &Gvk) -> bool {
    const KINDS: [&str; 6] = [
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    ];
    kind.group == "admissionregistration.k8s.io" && KINDS.contains(&&*kind.kind)
}
