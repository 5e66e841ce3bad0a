//! PersistentVolumeClaimResize: a claim grows only if its class allows it.

use api::quantity;
use api::view::View;
use api::{Status, Struct};
use serde::Deserialize;

use super::plugin::{Env, Plugin};
use super::{AdmissionRequest, Operation};
use crate::reader::read;

#[derive(Default)]
pub(super) struct PersistentVolumeClaimResize;

fn size(claim: &View<'_>) -> i128 {
    let requests = claim.st("spec").st("resources").map("requests");
    quantity::nano(requests.map_or("", |r| r.str("storage")))
}

fn class<'a>(claim: &View<'a>) -> &'a str {
    let annotations = claim.st("metadata").map("annotations");
    match annotations.and_then(|a| a.get("volume.beta.kubernetes.io/storage-class")) {
        Some(class) => class.as_str(),
        None => claim.st("spec").str("storageClassName"),
    }
}

impl Plugin for PersistentVolumeClaimResize {
    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let (Some(object), Some(old)) = (object, request.old) else { return Ok(()) };
        if request.operation != Operation::Update || !request.is("", "persistentvolumeclaims") {
            return Ok(());
        }
        let (new, old) = (env.view(object), env.view(old));
        if size(&new) <= size(&old) {
            return Ok(());
        }
        if old.st("status").str("phase") != "Bound" {
            let why = "Only bound persistent volume claims can be expanded";
            return Err(request.forbidden(Some(object), why));
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Class {
            allow_volume_expansion: bool,
        }
        let name = class(&new);
        let allowed = !name.is_empty()
            && name == class(&old)
            && env
                .reader
                .get(("storage.k8s.io", "storageclasses"), "", name)
                .and_then(|c| read::<Class>(&c))
                .is_some_and(|c| c.allow_volume_expansion);
        if allowed {
            return Ok(());
        }
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
        Err(request.forbidden(Some(object), why))
    }
}
