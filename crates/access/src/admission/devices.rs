//! DeviceAdminAccess: only claims in namespaces that an administrator marked use devices that others use.

use api::status::{FieldError, FieldErrorKind};
use api::view::View;
use api::{Status, Struct};

use super::plugin::{Env, Plugin};
use super::{AdmissionRequest, Operation};

const GROUP: &str = "resource.k8s.io";
const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Refuses administrators' access to devices in other namespaces. Upstream does this in the validation of claims and
/// templates; it cannot be turned off.
#[derive(Default)]
pub(super) struct DeviceAdminAccess;

/// The index of the first request for administrators' access.
fn asked<'a>(mut list: impl Iterator<Item = View<'a>>) -> Option<usize> {
    list.position(|v| v.bool("adminAccess"))
}

impl Plugin for DeviceAdminAccess {
    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let Some(object) = object.map(|o| env.view(o)) else { return Ok(()) };
        let create = request.operation == Operation::Create;
        let requests = |spec: View<'_>| {
            let i = asked(spec.st("devices").items("requests").map(|r| r.st("exactly")))?;
            Some(format!("spec.devices.requests[{i}].adminAccess"))
        };
        let results = |claim: View<'_>| {
            let i = asked(claim.st("status").st("allocation").st("devices").items("results"))?;
            Some(format!("status.allocation.devices.results[{i}].adminAccess"))
        };
        let field = if create && request.is(GROUP, "resourceclaims") {
            requests(object.st("spec"))
        } else if create && request.is(GROUP, "resourceclaimtemplates") {
            requests(object.st("spec").st("spec"))
        } else if request.is_with(GROUP, "resourceclaims", "status") {
            let had = request.old.and_then(|o| results(env.view(o)));
            results(object).filter(|_| had.is_none())
        } else {
            None
        };
        let Some(field) = field else { return Ok(()) };
        let namespace = env.reader.get(("", "namespaces"), "", request.namespace);
        if namespace.is_some_and(|n| n.data.labels.iter().any(|(k, v)| k == LABEL && v == "true")) {
            return Ok(());
        }
        let error = FieldError {
            kind: FieldErrorKind::Forbidden,
            field,
            value: None,
            detail: format!(
                "admin access to devices requires the `{LABEL}: true` label on the containing namespace"
            ),
        };
        Err(Status::invalid(GROUP, &request.kind.kind, request.name, &[error]))
    }
}
