//! Policies and bindings as they are stored.

use api::Text;
use serde::Deserialize;

use crate::admission::expressions::Condition;
use crate::admission::matching::{LabelSelector, MatchResources};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Stored<S> {
    pub(super) metadata: Metadata,
    pub(super) spec: S,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) name: String,
}

/// The spec of both kinds of policies.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PolicySpec {
    pub(super) param_kind: Option<ParamKind>,
    pub(super) match_constraints: Option<MatchResources>,
    pub(super) validations: Vec<Validation>,
    pub(super) failure_policy: Option<String>,
    pub(super) audit_annotations: Vec<AuditAnnotation>,
    pub(super) match_conditions: Vec<Condition>,
    pub(super) variables: Vec<Variable>,
    pub(super) mutations: Vec<Mutation>,
    pub(super) reinvocation_policy: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ParamKind {
    pub(super) api_version: String,
    pub(super) kind: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Validation {
    pub(super) expression: String,
    pub(super) message: String,
    pub(super) reason: Option<String>,
    pub(super) message_expression: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AuditAnnotation {
    pub(super) key: String,
    pub(super) value_expression: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) expression: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Mutation {
    pub(super) apply_configuration: Option<Expression>,
    pub(super) json_patch: Option<Expression>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Expression {
    pub(super) expression: String,
}

/// The spec of both kinds of bindings.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BindingSpec {
    pub(super) policy_name: String,
    pub(super) param_ref: Option<ParamRef>,
    pub(super) match_resources: Option<MatchResources>,
    pub(super) validation_actions: Vec<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ParamRef {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) selector: Option<LabelSelector>,
    pub(super) parameter_not_found_action: Option<String>,
}
