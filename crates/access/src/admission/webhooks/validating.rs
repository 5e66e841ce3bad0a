//! ValidatingAdmissionWebhook.

use std::sync::Arc;
use std::time::Instant;

use api::{Status, Struct};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::configuration::Hook;
use super::{Hooks, Invocation};
use crate::admission::matching::configures_admission;
use crate::admission::plugin::{Env, Plugin};
use crate::admission::{AdmissionConfig, AdmissionRequest};

/// Asks all webhooks at once whether a request may pass.
pub(in crate::admission) struct ValidatingWebhooks(Hooks);

impl ValidatingWebhooks {
    pub(in crate::admission) fn made(config: &AdmissionConfig) -> Result<Box<dyn Plugin>, String> {
        let resource = ("admissionregistration.k8s.io", "validatingwebhookconfigurations");
        let plugin = ("ValidatingAdmissionWebhook", resource);
        Ok(Box::new(Self(Hooks::new(plugin, ("validating", "validate"), config)?)))
    }

    async fn ask(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
        hooks: Arc<[Arc<Hook>]>,
    ) -> Result<(), Status> {
        let mut relevant = Vec::new();
        for (index, hook) in hooks.iter().enumerate() {
            relevant.extend(self.0.invocation(env, request, object, (index, hook)).await?);
        }
        let ask = async |i: usize, invocation: &Invocation<'_>| {
            let since = Instant::now();
            let outcome = self.0.ask(env, request, invocation).await;
            let failed_open = || format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{i}");
            self.0.settle((env, request), invocation, (outcome, since), failed_open).map(drop)
        };
        // Most requests have one webhook at most, which needs no set of calls.
        if let [one] = &relevant[..] {
            return ask(0, one).await;
        }
        let mut answers: FuturesUnordered<_> =
            relevant.iter().enumerate().map(|(i, invocation)| ask(i, invocation)).collect();
        let mut first = Ok(());
        // All are waited for, and the first refusal is told.
        while let Some(answer) = answers.next().await {
            if let (Ok(()), Err(status)) = (&first, answer) {
                first = Err(status);
            }
        }
        first
    }
}

impl Plugin for ValidatingWebhooks {
    fn validate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Struct>,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        if configures_admission(request.request_kind) {
            return None;
        }
        let hooks = self.0.configurations.hooks(&*env.reader);
        if hooks.is_empty() {
            return None;
        }
        Some(self.ask(env, request, object, hooks).boxed())
    }
}
