//! Cleaner of PodCertificateRequests: each is removed some time after it was made, decided or not (upstream:
//! `pkg/controller/certificates/cleaner`).

use std::sync::Arc;
use std::time::Duration;

use api::{Gate, Status};
use client::{Client, Informer, Key};
use component::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1beta1::PodCertificateRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};

use crate::host::{Controller, Host, Next, Shared, Wiring};

/// Upstream's times.
const PERIOD: Duration = Duration::from_mins(5);
const LIFE: SignedDuration = SignedDuration::from_mins(15);

/// The cleaner.
pub(crate) struct PodCleaner {
    client: Client,
    clock: Clock,
    requests: Informer<PodCertificateRequest>,
}

impl Controller for PodCleaner {
    const NAME: &'static str = "podcertificaterequest-cleaner-controller";
    const ACCOUNT: &'static str = "podcertificaterequestcleaner";
    const QUEUE: &'static str = "podcertificaterequest_cleaner";
    type Key = Key;

    fn wanted(shared: &Shared) -> bool {
        shared.config.gates.enabled(Gate::PodCertificateRequest)
    }

    fn new(host: &Host<Key>) -> Self {
        Self { client: host.client(), clock: host.clock(), requests: host.informer() }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        // The one key stands for a look at all requests.
        wiring.queue().add(Key::new("", ""));
    }

    async fn sync(&self, _: Key) -> Result<Next, Status> {
        let now = self.clock.now();
        for request in self.requests.list().iter().filter(|r| is_over(r, now)) {
            let meta = &request.metadata;
            let api = self.client.api::<PodCertificateRequest>(meta.namespace.as_deref().unwrap_or_default());
            let uid = Preconditions { uid: meta.uid.clone(), ..Preconditions::default() };
            let options = DeleteOptions { preconditions: Some(uid), ..DeleteOptions::default() };
            let name = meta.name.as_deref().unwrap_or_default();
            match api.delete(name, Some(&options)).await {
                Err(e) if !e.is_not_found() && !e.is_conflict() => {
                    tracing::warn!(error = e.message, name, "unable to delete PodCertificateRequest");
                }
                _ => {}
            }
        }
        Ok(Next::After(PERIOD))
    }
}

/// Whether a request has had its time.
fn is_over(request: &PodCertificateRequest, now: Timestamp) -> bool {
    request.metadata.creation_timestamp.as_ref().is_some_and(|made| now.duration_since(made.0) >= LIFE)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    /// Upstream's 4 cases of `TestPCRCleaner`: whether a decision was made makes no difference.
    #[test]
    fn requests_have_their_time() {
        let check = |made: &str, over: bool| {
            let mut request = PodCertificateRequest::default();
            request.metadata.creation_timestamp = Some(Time(made.parse().unwrap()));
            assert_eq!(is_over(&request, "2025-01-01T00:30:00Z".parse().unwrap()), over, "{made}");
        };
        check("2025-01-01T00:15:01Z", false);
        check("2025-01-01T00:14:59Z", true);
        check("2025-01-01T00:15:00Z", true);
        assert!(!is_over(&PodCertificateRequest::default(), Timestamp::now()));
    }
}
