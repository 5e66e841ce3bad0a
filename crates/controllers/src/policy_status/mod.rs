//! The status of ValidatingAdmissionPolicies: what is wrong with the types of their expressions (upstream:
//! `pkg/controller/validatingadmissionpolicystatus`).
//!
//! Types come from the server's OpenAPI documents, which have those of definitions, too.

mod check;
mod schemas;

use std::sync::Arc;

use api::Status;
use client::{Cached, Client, Identity, Informer, Key, Patch, Resource};
use compact_str::CompactString as Text;
use serde::Deserialize;
use serde_json::json;

use self::check::{Spec, warnings};
use self::schemas::Schemas;
use crate::config::Config;
use crate::host::{Controller, Host, Next, Wiring};
use client::Selection;

/// A policy, as far as its types go.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Policy {
    metadata: Metadata,
    spec: Spec,
    status: Observed,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Text,
    uid: Text,
    resource_version: Text,
    generation: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Observed {
    observed_generation: i64,
}

client::from_json!(Policy);

impl Cached for Policy {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        client::FromJson::from_json(json)
    }
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: "",
            name: &self.metadata.name,
            uid: &self.metadata.uid,
            resource_version: &self.metadata.resource_version,
        }
    }
}

fn resource() -> Resource {
    Resource {
        group: "admissionregistration.k8s.io".into(),
        version: "v1".into(),
        plural: "validatingadmissionpolicies".into(),
    }
}

/// The controller of the status of ValidatingAdmissionPolicies.
pub(crate) struct PolicyStatus {
    client: Client,
    policies: Informer<Policy>,
}

impl Controller for PolicyStatus {
    const NAME: &'static str = "validatingadmissionpolicy-status-controller";
    const ALIASES: &'static [&'static str] = &["validatingadmissionpolicy-status"];
    const ACCOUNT: &'static str = "validatingadmissionpolicy-status-controller";
    const QUEUE: &'static str = "validatingadmissionpolicy-status";
    type Key = Key;

    fn workers(config: &Config) -> usize {
        config.workers.policies
    }

    fn new(host: &Host<Self::Key>) -> Self {
        Self { client: host.client(), policies: host.select(resource(), Selection::default()) }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.policies, false);
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(policy) = self.policies.get_key(&key) else { return Ok(Next::Done) };
        if policy.metadata.generation <= policy.status.observed_generation {
            return Ok(Next::Done);
        }
        let mut schemas = Schemas::new(&self.client);
        let types = schemas.matched(&policy.spec).await?;
        let params = match policy.spec.params() {
            Some(kind) => schemas.of_kind(&kind).await?,
            None => None,
        };
        let warnings: Vec<_> = warnings(&policy.spec, &types, params.as_ref())
            .into_iter()
            .map(|(field, warning)| json!({"fieldRef": field, "warning": warning}))
            .collect();
        let checking = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            // DIFFERENCE: upstream may tell the next policy of this name what it has found out about the last one.
            "metadata": {"name": key.name, "uid": policy.metadata.uid},
            "status": {"observedGeneration": policy.metadata.generation, "typeChecking": checking},
        });
        let policies = self.client.resource::<Policy>(resource(), "");
        policies.patch_subresource(&key.name, "status", &Patch::Apply { object, force: true }).await?;
        Ok(Next::Done)
    }
}
