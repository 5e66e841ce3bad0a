//! ResourceQuota: no namespace takes more than its quotas allow.
//!
//! The amounts that a request takes are reserved in `status.used` of its namespace's quotas before its object is
//! stored. The requests of a namespace that wait are checked together and reserved for by one write of a quota
//! ([`queue`]), under the resourceVersion that was read, so that several servers give nothing twice. The controller of
//! quotas lowers what a request reserved that failed later.

mod check;
mod config;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use api::{Status, Struct};
use client::FromJson;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use objects::quota::{Counted, DeviceClasses, Kind, Usage};

use self::check::{Ask, Taken};
use self::config::LimitedResource;
use self::queue::{QUOTAS, Queue, Request, Stock};
use super::plugin::{Env, Plugin};
use super::{AdmissionConfig, AdmissionRequest, Operation};
use crate::reader::ResourceName;

const CLASSES: ResourceName = ("resource.k8s.io", "deviceclasses");

/// The plugin.
pub(super) struct ResourceQuota {
    limited: Arc<[LimitedResource]>,
    queue: Queue,
}

impl ResourceQuota {
    /// Makes the plugin from its configuration.
    pub(super) fn made(config: &AdmissionConfig) -> Result<Box<dyn Plugin>, String> {
        let limited = config::parse(config.of("ResourceQuota"))?;
        Ok(Box::new(Self { limited: limited.into(), queue: Queue::default() }))
    }
}

impl Plugin for ResourceQuota {
    fn validate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Struct>,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        let object = object?;
        if request.namespace.is_empty()
            || request.operation == Operation::Create && request.is("", "namespaces")
        {
            return None;
        }
        let kind = Kind::of(&request.info.group, request.resource);
        if kind.is_ignored() || !handles(env, &kind, request, object) {
            return None;
        }
        if self.limited.is_empty() && env.reader.list(QUOTAS, request.namespace).is_empty() {
            return None;
        }
        let ask = match ask(env, kind, request, object) {
            Ok(ask) => ask,
            Err(status) => return Some(std::future::ready(Err(status)).boxed()),
        };
        let stock = Stock {
            reader: env.reader.clone(),
            loopback: env.loopback.clone(),
            limited: self.limited.clone(),
            namespace: request.namespace.into(),
        };
        let asked = Request {
            ask,
            dry_run: request.dry_run,
            group: request.info.group.clone(),
            resource: request.resource.into(),
            name: request.shown_name(Some(object)).into(),
        };
        Some(self.queue.check(stock, asked).boxed())
    }
}

/// Whether a request may change what is taken from quotas; upstream's `Handles` of each evaluator.
fn handles(env: &Env, kind: &Kind, request: &AdmissionRequest<'_>, object: &Struct) -> bool {
    let (create, update) = (request.operation == Operation::Create, request.operation == Operation::Update);
    match (kind, request.subresource) {
        (Kind::Pods, "") => {
            let limited = |pod: &Struct| {
                env.view(pod).st("spec").opt_int("activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0)
            };
            create || update && request.old.is_some_and(|old| limited(old) != limited(object))
        }
        (Kind::Pods, "resize") | (Kind::Claims, "status") => update,
        (Kind::Services | Kind::Claims | Kind::DeviceClaims, "") => create || update,
        (Kind::Other(..), "") => create,
        _ => false,
    }
}

fn ask(env: &Env, kind: Kind, request: &AdmissionRequest<'_>, object: &Struct) -> Result<Ask, Status> {
    let devices = if kind == Kind::DeviceClaims { device_classes(env) } else { DeviceClasses::default() };
    let taken = |object: &Struct| taken(env, &kind, request.namespace, object, &devices);
    let new = taken(object)?;
    let old = request.old.map(taken).transpose()?;
    Ok(Ask {
        new,
        old,
        update: request.operation == Operation::Update,
        may_exceed: request.subresource == "status",
        kind,
        devices,
    })
}

fn taken(
    env: &Env,
    kind: &Kind,
    namespace: &str,
    object: &Struct,
    devices: &DeviceClasses,
) -> Result<Taken, Status> {
    let counted = match kind {
        Kind::Pods => Counted::pod(&typed::<Pod>(env, object)?),
        Kind::Services => Counted::service(&typed::<Service>(env, object)?),
        Kind::Claims => Counted::claim(&typed::<PersistentVolumeClaim>(env, object)?),
        Kind::DeviceClaims => Counted::device_claim(&typed::<ResourceClaim>(env, object)?),
        Kind::Other(..) => Counted::number(kind),
    };
    let usage = if *kind == Kind::DeviceClaims {
        let name = env.view(object).st("metadata").str("name");
        counted.usage_of_devices(devices, usage_of_pod(env, namespace, &counted, name).as_ref())
    } else {
        counted.usage(env.clock.now())
    };
    Ok(Taken { counted, usage })
}

/// Decodes a tree into its typed object.
fn typed<T: FromJson>(env: &Env, object: &Struct) -> Result<T, Status> {
    let mut json = Vec::new();
    api::codec::json::encode(env.schema, object, &mut json);
    T::from_json(&json)
}

fn device_classes(env: &Env) -> DeviceClasses {
    let mut classes = DeviceClasses::default();
    for object in env.reader.list(CLASSES, "") {
        if let Ok(class) = DeviceClass::from_json(&object.data.body) {
            classes
                .insert(&object.data.name, class.spec.extended_resource_name.as_deref().unwrap_or_default());
        }
    }
    classes
}

/// Returns the amounts of the Pod for whose extended resources a claim of devices stands.
///
/// DIFFERENCE: of several claims that all say to stand for a Pod that names none of them, upstream takes the oldest,
/// and here each is taken until the controller counts.
fn usage_of_pod(env: &Env, namespace: &str, claim: &Counted, name: &str) -> Option<Usage> {
    let (pod, uid) = claim.stands_for()?;
    let object = env.reader.get(("", "pods"), namespace, pod).filter(|pod| pod.data.uid == uid)?;
    let pod = Counted::pod(&Pod::from_json(&object.data.body).ok()?);
    pod.may_be_stood_for_by(name).then(|| pod.usage(env.clock.now()))
}
