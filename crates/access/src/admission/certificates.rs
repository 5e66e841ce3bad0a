//! CertificateApproval, CertificateSigning, CertificateSubjectRestriction and ClusterTrustBundleAttest.

use api::status::{FieldError, FieldErrorKind};
use api::view::{View, same};
use api::{Status, Struct};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::subject::{Subject, subject};
use futures::FutureExt;
use futures::future::BoxFuture;
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use super::escalation::only_collection_fields;
use super::plugin::{Env, Plugin};
use super::{AdmissionRequest, Operation};
use crate::auth::Access;

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// The subject of a CertificateSigningRequest's `spec.request`; upstream's text if there is none.
pub(super) fn subject_of(csr: &View<'_>) -> Result<Subject, String> {
    const NOT_PEM: &str = "PEM block type must be CERTIFICATE REQUEST";
    let pem = STANDARD.decode(csr.st("spec").str("request")).map_err(|e| e.to_string())?;
    let der = CertificateSigningRequestDer::from_pem_slice(&pem).map_err(|_| NOT_PEM.to_owned())?;
    requested(&der)
}

/// The subject of a request's DER.
pub(crate) fn requested(der: &[u8]) -> Result<Subject, String> {
    let (rest, request) = X509CertificationRequest::from_der(der).map_err(|e| e.to_string())?;
    if !rest.is_empty() {
        return Err("asn1: syntax error: trailing data".into());
    }
    subject(request.certification_request_info.subject.as_raw()).map_err(|e| e.to_string())
}

/// Refuses with `why` unless the caller may do `verb` for a signer, by its name or by its domain.
fn require<'a>(
    env: &'a Env,
    request: &'a AdmissionRequest<'a>,
    verb: &'static str,
    signer: &'a str,
    why: impl FnOnce() -> Status + Send + 'a,
) -> Option<BoxFuture<'a, Result<(), Status>>> {
    let allowed = async move |name: &str| {
        let access =
            Access { is_resource: true, verb, group: GROUP, resource: "signers", name, ..Access::default() };
        env.authorizer.allows(request.user, &access).await
    };
    let check = async move {
        let domain = signer.split('/').next().unwrap_or_default();
        if allowed(signer).await || allowed(&format!("{domain}/*")).await { Ok(()) } else { Err(why()) }
    };
    Some(check.boxed())
}

/// Refuses approvals by a caller that may not approve requests for the signer.
#[derive(Default)]
pub(super) struct CertificateApproval;

impl Plugin for CertificateApproval {
    fn validate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Struct>,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        let old = request.old?;
        if request.operation != Operation::Update || !request.is_with(GROUP, REQUESTS, "approval") {
            return None;
        }
        let signer = env.view(old).st("spec").str("signerName");
        require(env, request, "approve", signer, move || {
            let why = format!("user not permitted to approve requests with signerName {signer:?}");
            request.forbidden(object, why)
        })
    }
}

/// Refuses certificates and conditions from a caller that may not sign for the signer.
#[derive(Default)]
pub(super) struct CertificateSigning;

impl Plugin for CertificateSigning {
    fn validate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Struct>,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        let (Some(old), Some(new)) = (request.old, object) else { return None };
        if request.operation != Operation::Update || !request.is_with(GROUP, REQUESTS, "status") {
            return None;
        }
        let (before, after) = (env.view(old).st("status"), env.view(new).st("status"));
        let unchanged = |field: &str| same(before.get(field), after.get(field));
        let signer = env.view(old).st("spec").str("signerName");
        if unchanged("certificate") && unchanged("conditions") {
            return None;
        }
        require(env, request, "sign", signer, move || {
            let why = format!("user not permitted to sign requests with signerName {signer:?}");
            request.forbidden(object, why)
        })
    }
}

/// Refuses requests for certificates that would make their subject a superuser.
#[derive(Default)]
pub(super) struct CertificateSubjectRestriction;

impl Plugin for CertificateSubjectRestriction {
    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let Some(csr) = object.map(|o| env.view(o)) else { return Ok(()) };
        if request.operation != Operation::Create
            || !request.is(GROUP, REQUESTS)
            || csr.st("spec").str("signerName") != CLIENT_SIGNER
        {
            return Ok(());
        }
        let why = match subject_of(&csr) {
            Err(error) => format!("failed to parse CSR: {error}"),
            Ok(subject) if subject.organizations.iter().any(|o| o == "system:masters") => {
                format!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed")
            }
            Ok(_) => return Ok(()),
        };
        Err(request.forbidden(object, why))
    }
}

/// Refuses a signer's trust anchors from a caller that may not attest for the signer.
#[derive(Default)]
pub(super) struct ClusterTrustBundleAttest;

impl Plugin for ClusterTrustBundleAttest {
    fn validate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Struct>,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        let new = object?;
        if !request.is(GROUP, "clustertrustbundles") {
            return None;
        }
        let signer = env.view(new).st("spec").str("signerName");
        let collected = request.operation == Operation::Update
            && request.old.is_some_and(|old| only_collection_fields(env, new, old));
        if signer.is_empty() || collected {
            return None;
        }
        require(env, request, "attest", signer, move || {
            let why = format!("user not permitted to attest for signerName {signer:?}");
            request.forbidden(object, why)
        })
    }
}

/// Refuses answers to a PodCertificateRequest from a caller that may not sign for its signer. Upstream does this in the
/// validation of the request's status; it cannot be turned off.
#[derive(Default)]
pub(super) struct PodCertificateSigning;

impl Plugin for PodCertificateSigning {
    fn validate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Struct>,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        let (Some(old), Some(new)) = (request.old, object) else { return None };
        if !request.is_with(GROUP, "podcertificaterequests", "status")
            || same(env.view(old).get("status"), env.view(new).get("status"))
        {
            return None;
        }
        let signer = env.view(old).st("spec").str("signerName");
        require(env, request, "sign", signer, move || {
            let user = &request.user.name;
            let error = FieldError {
                kind: FieldErrorKind::Forbidden,
                field: "spec.signerName".into(),
                value: None,
                detail: format!("User {user:?} is not permitted to \"sign\" for signer {signer:?}"),
            };
            Status::invalid(GROUP, "PodCertificateRequest", request.name, &[error])
        })
    }
}
