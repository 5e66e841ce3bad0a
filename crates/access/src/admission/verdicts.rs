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
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        Err(env.forbidden(request, Some(object), DENIED))
    }

    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        Err(env.forbidden(request, object, DENIED))
    }
}
