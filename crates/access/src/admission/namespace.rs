//! NamespaceLifecycle: no object is made in a namespace that does not exist or is being deleted.

use api::{Status, Struct};

use super::plugin::{Env, Plugin, with_cause};
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
            let status = env.forbidden(request, Some(object), why);
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
