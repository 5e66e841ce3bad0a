//! NamespaceLifecycle: no object is made in a namespace that does not exist or is being deleted. NamespaceExists:
//! nothing is written there either. NamespaceAutoProvision makes namespaces that are needed.

use api::{Status, Struct};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;

use super::plugin::{Env, Plugin, with_cause};
use super::reinvocation::Reinvocation;
use super::{AdmissionRequest, Operation};
use crate::reader::ResourceName;

const NAMESPACES: ResourceName = ("", "namespaces");
/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

#[derive(Default)]
pub(super) struct NamespaceLifecycle;

impl Plugin for NamespaceLifecycle {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        let info = request.info;
        if request.namespace.is_empty()
            || !matches!(request.operation, Operation::Create | Operation::Update)
            || info.group.is_empty() && request.resource == "namespaces"
            // Reviews of access are let through: a refusal would tell whether the namespace exists.
            || info.group == "authorization.k8s.io" && request.resource == "localsubjectaccessreviews"
        {
            return Ok(());
        }
        let Some(namespace) = env.reader.get(NAMESPACES, "", request.namespace) else {
            return Err(Status::not_found("", "namespaces", request.namespace));
        };
        if request.operation == Operation::Create && namespace.data.deleting {
            let name = request.namespace;
            let why =
                format!("unable to create new content in namespace {name} because it is being terminated");
            let status = request.forbidden(Some(object), why);
            let message = format!("namespace {name} is being terminated");
            return Err(with_cause(status, "NamespaceTerminating", message, "metadata.namespace"));
        }
        Ok(())
    }

    fn validate(
        &self,
        _env: &Env,
        request: &AdmissionRequest<'_>,
        _object: Option<&Struct>,
    ) -> Result<(), Status> {
        if request.operation == Operation::Delete
            && request.is("", "namespaces")
            && IMMORTAL.contains(&request.name)
        {
            return Err(Status::forbidden(
                "",
                "namespaces",
                request.name,
                "this namespace may not be deleted",
            ));
        }
        Ok(())
    }
}

/// Whether a request is about something in a namespace.
fn is_inside(request: &AdmissionRequest<'_>) -> bool {
    let is_namespace = request.kind.group.is_empty() && request.kind.kind == "Namespace";
    !request.namespace.is_empty() && !is_namespace
}

#[derive(Default)]
pub(super) struct NamespaceExists;

impl Plugin for NamespaceExists {
    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        _object: Option<&Struct>,
    ) -> Result<(), Status> {
        if request.operation == Operation::Connect
            || !is_inside(request)
            || env.reader.get(NAMESPACES, "", request.namespace).is_some()
        {
            return Ok(());
        }
        Err(Status::not_found("", "namespaces", request.namespace))
    }
}

#[derive(Default)]
pub(super) struct NamespaceAutoProvision;

impl Plugin for NamespaceAutoProvision {
    fn mutate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: &'a mut Struct,
        _: &'a mut Reinvocation,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        if request.operation != Operation::Create
            || request.dry_run
            || !is_inside(request)
            || env.reader.get(NAMESPACES, "", request.namespace).is_some()
        {
            return None;
        }
        let provide = async move {
            let mut namespace = Namespace::default();
            namespace.metadata.name = Some(request.namespace.to_owned());
            let api = env.loopback.client()?.api::<Namespace>("");
            match api.create(&namespace).await {
                Err(e) if !e.is_already_exists() => Err(request.forbidden(Some(object), e.message)),
                _ => Ok(()),
            }
        };
        Some(provide.boxed())
    }
}
