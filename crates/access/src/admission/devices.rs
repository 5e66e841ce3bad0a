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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::Gvk;
    use serde_json::{Value, json};

    use super::super::OperationOptions;
    use super::super::tests::parse;
    use super::*;
    use crate::testing::{Alone, Fake};
    use crate::{Notes, RequestInfo, UserInfo};

    fn ask(
        kind: &str,
        (resource, subresource): (&str, &str),
        namespace: &str,
        (old, new): (Option<&Value>, &Value),
    ) -> Result<(), String> {
        let fake = Fake::default();
        for (name, value) in [("plain", ""), ("marked", "true"), ("unmarked", "false")] {
            let labels = if value.is_empty() { json!({}) } else { json!({LABEL: value}) };
            fake.put(("", "namespaces"), json!({"metadata": {"name": name, "labels": labels}}));
        }
        let (env, kind) = (Env::of(fake), Gvk::new(GROUP, "v1", kind));
        let (old, new) = (old.map(|o| parse(&kind, o)), parse(&kind, new));
        let (info, notes) = (RequestInfo { group: GROUP.into(), ..RequestInfo::default() }, Notes::default());
        let request = AdmissionRequest {
            user: &Arc::new(UserInfo::default()),
            info: &info,
            operation: if old.is_some() { Operation::Update } else { Operation::Create },
            kind: &kind,
            request_kind: &kind,
            versions: &Alone,
            resource,
            subresource,
            namespace,
            name: "c",
            old: old.as_ref(),
            dry_run: false,
            options: OperationOptions::default(),
            notes: &notes,
        };
        DeviceAdminAccess.validate(&env, &request, Some(&new)).map_err(|e| e.message)
    }

    /// Upstream's cases of admin access in the strategies of claims and templates.
    #[test]
    fn only_marked_namespaces_use_devices_of_others() {
        let request = |admin: Option<bool>| json!({"name": "r", "exactly": {"deviceClassName": "c", "adminAccess": admin}});
        let spec = |requests: Value| json!({"devices": {"requests": requests}});
        let claim = |requests: Value| json!({"metadata": {"name": "c"}, "spec": spec(requests)});
        let template = |requests: Value| json!({"metadata": {"name": "c"}, "spec": {"spec": spec(requests)}});
        let result = |admin: bool| json!({"request": "r", "driver": "d", "pool": "p", "device": "x", "adminAccess": admin});
        let allocated = |results: Value| {
            let mut claim = claim(json!([request(None)]));
            claim["status"] = json!({"allocation": {"devices": {"results": results}}});
            claim
        };
        let asks = json!([request(None), request(Some(false)), request(Some(true))]);
        let check = |kind, of, old: Option<&Value>, new: &Value, refused: Option<&str>| {
            for (namespace, marked) in
                [("plain", false), ("unmarked", false), ("absent", false), ("marked", true)]
            {
                let expected = refused.filter(|_| !marked).map(|field| {
                    format!("{kind}.{GROUP} \"c\" is invalid: {field}: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace")
                });
                assert_eq!(ask(kind, of, namespace, (old, new)).err(), expected, "{namespace} {new}");
            }
        };
        let (claims, templates) = (("resourceclaims", ""), ("resourceclaimtemplates", ""));
        let asked = Some("spec.devices.requests[2].adminAccess");
        check("ResourceClaim", claims, None, &claim(asks.clone()), asked);
        check("ResourceClaim", claims, None, &claim(json!([request(Some(false))])), None);
        check("ResourceClaim", claims, Some(&claim(asks.clone())), &claim(asks.clone()), None);
        check("ResourceClaimTemplate", templates, None, &template(asks), asked);
        check("ResourceClaimTemplate", templates, None, &template(json!([request(None)])), None);
        let status = ("resourceclaims", "status");
        let given = Some("status.allocation.devices.results[1].adminAccess");
        let (without, with) = (allocated(json!([])), allocated(json!([result(false), result(true)])));
        check("ResourceClaim", status, Some(&without), &with, given);
        check("ResourceClaim", status, Some(&with), &with, None);
        check("ResourceClaim", status, Some(&with), &without, None);
    }
}
