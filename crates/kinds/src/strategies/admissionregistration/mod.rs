//! Webhook configurations and admission policies.

mod expressions;
mod policy;
mod rules;
mod webhook;

pub(super) use policy::{MUTATING_BINDING, MUTATING_POLICY, VALIDATING_BINDING, VALIDATING_POLICY};
pub(super) use webhook::{MUTATING_WEBHOOK, VALIDATING_WEBHOOK, client_config};

const GROUP: &str = "admissionregistration.k8s.io";
