//! AlwaysAdmit and AlwaysDeny: plugins that look at nothing.

use api::{Status, Struct};

use super::AdmissionRequest;
use super::plugin::{Env, Plugin};

/// Refuses nothing.
#[derive(Default)]
pub(super) struct AlwaysAdmit;

impl Plugin for AlwaysAdmit {}

/// Refuses everything.
#[derive(Default)]
pub(super) struct AlwaysDeny;

const DENIED: &str = "admission control is denying all modifications";

impl Plugin for AlwaysDeny {
    fn mutate(&self, _: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        Err(request.forbidden(Some(object), DENIED))
    }

    fn validate(
        &self,
        _: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        Err(request.forbidden(object, DENIED))
    }
}
