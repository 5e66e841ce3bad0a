//! DenyServiceExternalIPs: no Service takes an address that the cluster did not give it.

use api::{Status, Struct};

use super::plugin::{Env, Plugin};
use super::{AdmissionRequest, Operation};

#[derive(Default)]
pub(super) struct DenyServiceExternalIps;

impl Plugin for DenyServiceExternalIps {
    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        if !matches!(request.operation, Operation::Create | Operation::Update) || !request.is("", "services")
        {
            return Ok(());
        }
        let addresses = |service| env.view(service).st("spec").strs("externalIPs");
        let old: std::collections::HashSet<&str> = request.old.map(addresses).into_iter().flatten().collect();
        if addresses(object).all(|address| old.contains(address)) {
            return Ok(());
        }
        Err(request.forbidden(Some(object), "Use of external IPs is denied by admission control"))
    }
}
