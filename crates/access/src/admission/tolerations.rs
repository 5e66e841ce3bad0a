//! DefaultTolerationSeconds: pods stay five minutes on a node that is not ready or not reachable.

use api::view::Edit;
use api::{Status, Struct};

use super::plugin::{Env, Plugin};
use super::service_account::append;
use super::{AdmissionRequest, Operation};

const SECONDS: i64 = 300;

#[derive(Default)]
pub(super) struct DefaultTolerationSeconds;

impl Plugin for DefaultTolerationSeconds {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if !matches!(request.operation, Operation::Create | Operation::Update) || !request.is("", "pods") {
            return Ok(());
        }
        let mut pod = Edit::new(env.schema, object);
        let Some(mut spec) = pod.make("spec") else { return Ok(()) };
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            let tolerated = spec.view().items("tolerations").any(|t| {
                matches!(t.str("key"), k if k == key || k.is_empty())
                    && matches!(t.str("effect"), "NoExecute" | "")
            });
            // Both tolerations are looked for before either is added; the ones added here have other keys.
            if !tolerated {
                append(&mut spec, "tolerations", |toleration| {
                    toleration.set("key", key);
                    toleration.set("operator", "Exists");
                    toleration.set("effect", "NoExecute");
                    toleration.set("tolerationSeconds", SECONDS);
                });
            }
        }
        Ok(())
    }
}
