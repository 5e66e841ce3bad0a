//! CSR approver: a kubelet's client certificate is approved if RBAC lets the requester ask for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Status;
use client::{Client, Informer, Key};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use super::request::Request;
use super::{is_open, rules, with_condition};
use crate::host::{Controller, Host, Next, Wiring};

/// Upstream's approver.
pub(crate) struct Approving {
    client: Client,
    requests: Informer<CertificateSigningRequest>,
}

impl Controller for Approving {
    const NAME: &'static str = "certificatesigningrequest-approving-controller";
    const ALIASES: &'static [&'static str] = &["csrapproving"];
    const ACCOUNT: &'static str = "certificate-controller";
    const QUEUE: &'static str = "certificate";
    const WORKERS: usize = 5;
    type Key = Key;

    fn new(host: &Host<Key>) -> Self {
        Self { client: host.client(), requests: host.informer() }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.requests, false);
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(csr) = self.requests.get_key(&key).filter(|csr| is_open(csr)) else { return Ok(Next::Done) };
        let request = match Request::parse(&csr.spec.request.0) {
            Ok(request) => request,
            Err(error) => {
                tracing::debug!(%error, csr = %key, "unable to parse csr");
                return Ok(Next::Done);
            }
        };
        let permissions = rules::permissions(&csr, &request);
        for (subresource, message) in &permissions {
            if allowed(&self.client, &csr, subresource).await? {
                approve(&self.client, &csr, message).await?;
                return Ok(Next::Done);
            }
        }
        if permissions.is_empty() {
            return Ok(Next::Done);
        }
        // The permission may come: it is asked for again, and later each time.
        let tried: Vec<&str> = permissions.iter().map(|p| p.0).collect();
        let tried = tried.join(" ");
        Err(Status::internal(format_args!(
            "recognized csr {:?} as [{tried}] but subject access review was not approved",
            key.name
        )))
    }
}

/// Whether the requester may create a subresource of `certificatesigningrequests`, none of which exists.
pub(super) async fn allowed(
    client: &Client,
    csr: &CertificateSigningRequest,
    subresource: &str,
) -> Result<bool, Status> {
    let spec = &csr.spec;
    let extra = spec.extra.clone().map(|extra| extra.into_iter().collect::<BTreeMap<_, _>>());
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: spec.username.clone(),
            uid: spec.uid.clone(),
            groups: spec.groups.clone(),
            extra,
            resource_attributes: Some(ResourceAttributes {
                group: Some("certificates.k8s.io".to_owned()),
                resource: Some("certificatesigningrequests".to_owned()),
                subresource: Some(subresource.to_owned()),
                verb: Some("create".to_owned()),
                version: Some("*".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answer = client.api::<SubjectAccessReview>("").create(&review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Approves a request as it was looked at; one that changed since is looked at again.
pub(super) async fn approve(
    client: &Client,
    csr: &CertificateSigningRequest,
    message: &str,
) -> Result<(), Status> {
    let approved = with_condition(csr, "Approved", "AutoApproved", message);
    let api = client.api::<CertificateSigningRequest>("");
    match api.update_subresource("approval", &approved).await {
        Err(e) if !e.is_not_found() => Err(e),
        _ => Ok(()),
    }
}
