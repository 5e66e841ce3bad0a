//! One call of a webhook, and what came of it.

use std::time::Instant;

use api::Status;
use api::go::quote;

use super::configuration::SideEffects;
use super::review::{self, Response, Wire};
use super::{Hooks, Invocation};
use crate::admission::AdmissionRequest;
use crate::admission::plugin::Env;
use crate::webhook::{CallError, Document};

/// Why a webhook does not let a request pass.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It was not asked, or gave no answer that can be used; the request may go on nevertheless. With upstream's reason
    /// and the code in its metrics.
    Failed(String, u16),
    /// It refused.
    Rejected(Status),
    /// Its answer cannot be followed.
    Other(Status),
}

impl Hooks {
    /// Asks a webhook. Its warnings and annotations are taken, whatever it says.
    pub(super) async fn ask(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        invocation: &Invocation<'_>,
    ) -> Result<Response, Refusal> {
        let hook = &invocation.hook;
        if request.dry_run {
            match hook.side_effects {
                SideEffects::NoneInDryRun => {}
                SideEffects::Unsaid => return Err(Refusal::Failed("Webhook SideEffects is nil".into(), 400)),
                SideEffects::Some => {
                    let why = format!("admission webhook {} does not support dry run", quote(&hook.name));
                    return Err(Refusal::Other(Status::bad_request(why)));
                }
            }
        }
        let Some(version) = hook.version else {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(Refusal::Failed(why.into(), 400));
        };
        let uid = uuid::Uuid::new_v4().to_string();
        let body = review::text(version, &uid, request, &invocation.matched, &invocation.versioned);
        let answer = async {
            let body = self.client.post(&env.network, &hook.client, body.into(), hook.timeout).await?;
            let other = if version == "v1" { "v1beta1" } else { "v1" };
            let document = Document::read(&body, (review::GROUP, version), other, review::KIND)?;
            let wire = Wire::of(&document).map_err(|why| CallError::Failed(why.into()))?;
            Ok((document, wire))
        };
        let (document, wire) = answer.await.map_err(|error| {
            if let CallError::Failed(failure) = &error
                && let Some(defect) = failure.defect
            {
                let (key, reason) = defect.annotation(&hook.client.host());
                request.annotate(&key, reason);
            }
            let code = if let CallError::Status(status) = &error { status.code } else { 503 };
            Refusal::Failed(format!("failed to call webhook: {error}"), code)
        })?;
        let response = review::verify(version, &uid, self.is_mutating(), &document, wire);
        let mut response = response
            .map_err(|why| Refusal::Failed(format!("received invalid webhook response: {why}"), 503))?;
        for (key, value) in &response.annotations {
            request.annotate(&format!("{}/{key}", hook.name), value);
        }
        for warning in std::mem::take(&mut response.warnings) {
            request.warn(warning);
        }
        if !response.allowed {
            return Err(Refusal::Rejected(review::refusal(&hook.name, response.result)));
        }
        Ok(response)
    }

    fn is_mutating(&self) -> bool {
        self.step == "admit"
    }

    /// Counts what came of a call, and says whether the request goes on: a refusal is the answer to the request.
    /// `failed_open` is the annotation of a call that failed without consequence.
    pub(super) fn settle<T>(
        &self,
        (env, request): (&Env, &AdmissionRequest<'_>),
        invocation: &Invocation<'_>,
        (outcome, since): (Result<T, Refusal>, Instant),
        failed_open: impl Fn() -> String,
    ) -> Result<Option<T>, Status> {
        let (hook, operation) = (&invocation.hook, request.operation.name());
        let observe = |code: u16, rejected: bool| {
            env.webhooks.observe(&hook.name, self.step, operation, (code, rejected), since.elapsed());
        };
        let reject = |error: &'static str, code: u16| {
            env.webhooks.reject(&hook.name, self.step, operation, error, code);
            observe(code, true);
        };
        match outcome {
            Ok(done) => {
                observe(200, false);
                Ok(Some(done))
            }
            Err(Refusal::Failed(why, code)) => {
                let why = format!("failed calling webhook {}: {why}", quote(&hook.name));
                if hook.ignores_failures {
                    observe(code, false);
                    env.webhooks.fail_open(&hook.name, self.step);
                    tracing::warn!(webhook = hook.name, why, "a webhook did not answer; the request goes on");
                    request.annotate(&failed_open(), &hook.name);
                    return Ok(None);
                }
                reject("calling_webhook_error", code);
                tracing::warn!(webhook = hook.name, why, "a webhook did not answer; the request is refused");
                Err(Status::internal(why))
            }
            Err(Refusal::Rejected(status)) => {
                reject("no_error", status.code);
                Err(status)
            }
            Err(Refusal::Other(status)) => {
                reject("apiserver_internal_error", 0);
                Err(status)
            }
        }
    }
}

/// The identity of a webhook among all.
pub(super) fn identity(invocation: &Invocation<'_>) -> String {
    let hook = &invocation.hook;
    format!("{}/{}/{}", hook.configuration, hook.name, invocation.index)
}
