//! The extenders of a configuration.

use std::collections::BTreeSet;

use api::field::{Errors, Path};
use api::names;
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};

/// `Extender`: an HTTP server that has a say in decisions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct Extender {
    pub url_prefix: String,
    pub filter_verb: String,
    pub preempt_verb: String,
    pub prioritize_verb: String,
    pub weight: i64,
    pub bind_verb: String,
    #[serde(rename = "enableHTTPS")]
    pub enable_https: bool,
    pub tls_config: Option<ExtenderTls>,
    pub http_timeout: String,
    pub node_cache_capable: bool,
    pub managed_resources: Vec<ManagedResource>,
    pub ignorable: bool,
}

/// `ExtenderTLSConfig`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct ExtenderTls {
    pub insecure: bool,
    pub server_name: String,
    pub cert_file: String,
    pub key_file: String,
    pub ca_file: String,
    pub cert_data: ByteString,
    pub key_data: ByteString,
    pub ca_data: ByteString,
}

/// `ExtenderManagedResource`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are upstream's")]
pub struct ManagedResource {
    pub name: String,
    pub ignored_by_scheduler: bool,
}

/// Checks extenders (upstream's `validateExtenders`).
pub(super) fn validate(errors: &mut Errors, at: &Path<'_>, all: &[Extender]) {
    let mut names = BTreeSet::new();
    for (i, extender) in all.iter().enumerate() {
        let at = at.index(i);
        if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
            let why = "must have a positive weight applied to it";
            errors.invalid(&at.field("weight"), extender.weight, why);
        }
        if !extender.http_timeout.is_empty() && api::time::parse_duration(&extender.http_timeout).is_none() {
            errors.invalid(&at.field("httpTimeout"), extender.http_timeout.as_str(), "must be a duration");
        }
        let resources = at.field("managedResources");
        for (j, resource) in extender.managed_resources.iter().enumerate() {
            let at = resources.index(j);
            let at = at.field("name");
            let why = names::qualified_name(&resource.name);
            if !why.is_empty() {
                errors.each(&at, &resource.name, why);
            } else if !is_extended(&resource.name) {
                errors.invalid(&at, resource.name.as_str(), "is an invalid extended resource name");
            }
            if !names.insert(resource.name.as_str()) {
                errors.invalid(&at, resource.name.as_str(), "duplicate extender managed resource name");
            }
        }
    }
    let binders = all.iter().filter(|e| !e.bind_verb.is_empty()).count();
    if binders > 1 {
        let found = format!("found {binders} extenders implementing bind");
        errors.invalid(at, found.as_str(), "only one extender can implement bind");
    }
}

/// Whether a resource is one that its vendor named (upstream's `IsExtendedResourceName`).
fn is_extended(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}
