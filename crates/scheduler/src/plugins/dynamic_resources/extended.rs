//! Extended resources that devices stand for: one claim for all of a Pod (upstream's `extendeddynamicresources.go`).

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::{Container, ContainerExtendedResourceRequest, Pod};
use k8s_openapi::api::resource::v1::{DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use objects::claims::{CLASS_PREFIX, EXTENDED};
use objects::pod::is_sidecar;

use super::settings::NAME;
use crate::cache::NodeInfo;
use crate::framework::verdict::Rejection;
use crate::inventory::{Objects, allocation};
use crate::pod::PodInfo;

/// The name of the claim as long as it is not written. No claim of the API can have it.
const IN_MEMORY: &str = "<extended-resources>";

/// Whether a resource may stand for devices.
pub(super) fn is_name(name: &str) -> bool {
    let extended = name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.");
    extended || name.starts_with(CLASS_PREFIX)
}

/// Whether a claim is not written yet.
pub(super) fn is_in_memory(claim: &ResourceClaim) -> bool {
    claim.metadata.name.as_deref() == Some(IN_MEMORY)
}

fn requests(claim: &ResourceClaim) -> Option<&Vec<DeviceRequest>> {
    claim.spec.devices.as_ref()?.requests.as_ref()
}

/// Whether a claim asks for anything.
pub(super) fn asks(claim: &ResourceClaim) -> bool {
    requests(claim).is_some()
}

/// The claim for a Pod's extended resources: that of an earlier turn, or a new one; `None` if no device stands for any.
pub(super) fn claim(pod: &PodInfo, known: &Objects) -> Option<Arc<ResourceClaim>> {
    let mut wanted = pod.requests.fit.scalar.iter().filter(|(name, n)| **n != 0 && is_name(name));
    wanted.find(|(name, _)| known.class_of(name).is_some())?;
    let is_its = |claim: &&Arc<ResourceClaim>| {
        let meta = &claim.metadata;
        let marked = meta.annotations.as_ref().and_then(|a| a.get(EXTENDED)).is_some_and(|v| v == "true");
        let mut owners = meta.owner_references.iter().flatten();
        marked && owners.any(|o| o.controller == Some(true) && o.name == pod.name() && o.uid == pod.uid())
    };
    let in_namespace =
        |claim: &&Arc<ResourceClaim>| claim.metadata.namespace.as_deref() == Some(pod.namespace());
    if let Some(claim) = known.made_for(pod.uid()).filter(in_namespace).find(is_its) {
        return Some(claim.clone());
    }
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name().to_owned(),
        uid: pod.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let metadata = ObjectMeta {
        namespace: Some(pod.namespace().to_owned()),
        name: Some(IN_MEMORY.to_owned()),
        // It is in flight under this one.
        uid: Some(uuid::Uuid::new_v4().to_string()),
        generate_name: Some(format!("{}-extended-resources-", pod.name())),
        owner_references: Some(vec![owner]),
        annotations: Some([(EXTENDED.to_owned(), "true".to_owned())].into()),
        ..ObjectMeta::default()
    };
    Some(Arc::new(ResourceClaim { metadata, ..ResourceClaim::default() }))
}

/// The resources of a Pod that a node does not offer itself, and that devices stand for.
pub(super) fn from_devices<'p>(
    claim: &ResourceClaim,
    pod: &'p PodInfo,
    node: &NodeInfo,
    known: &Objects,
) -> Result<BTreeSet<&'p str>, Rejection> {
    if asks(claim) {
        // It is from an earlier turn, and has to go first.
        return Err(Rejection::lasting(NAME, "cannot schedule extended resource claim"));
    }
    let mut devices = BTreeSet::new();
    for (name, amount) in &pod.requests.fit.scalar {
        if *amount == 0 || !is_name(name) {
            continue;
        }
        let offered = node.allocatable.scalar.get(name);
        if offered.is_none_or(|n| *n == 0) && known.class_of(name).is_some() {
            devices.insert(name.as_str());
        } else if offered.is_none() {
            return Err(Rejection::lasting(NAME, "cannot fit resource"));
        }
    }
    Ok(devices)
}

/// The claim with requests for those resources, and which container has which.
#[derive(Debug, Clone, Default)]
pub(super) struct Special {
    /// `None`: there are none, or it has its devices.
    pub(super) claim: Option<ResourceClaim>,
    pub(super) mappings: Vec<ContainerExtendedResourceRequest>,
    /// This is what it and the Pod's other claims ask for, once it is known.
    pub(super) sort: OnceLock<Arc<str>>,
}

impl Special {
    pub(super) fn of(
        claim: &ResourceClaim,
        pod: &PodInfo,
        devices: &BTreeSet<&str>,
        known: &Objects,
        alone: bool,
    ) -> Self {
        if alone && devices.is_empty() || allocation(claim).is_some() {
            return Self::default();
        }
        let class = |resource: &str| known.class_of(resource).and_then(|class| class.metadata.name.clone());
        let (requests, mappings) = requests_for(pod.whole(), devices, class);
        let mut claim = claim.clone();
        let requests = (!requests.is_empty()).then_some(requests);
        claim.spec.devices = Some(DeviceClaim { requests, ..DeviceClaim::default() });
        Self { claim: Some(claim), mappings, sort: OnceLock::new() }
    }
}

/// A container's request for a resource, beside those of others that it can use, as they are there when it has ended.
fn request_of(
    (index, container): (usize, &Container),
    resource: &str,
    class: &str,
    reusable: &[Option<DeviceRequest>],
) -> (Option<DeviceRequest>, Vec<ContainerExtendedResourceRequest>) {
    let mut mappings = Vec::new();
    let all = container.resources.as_ref().and_then(|r| r.requests.as_ref());
    let wanted = all.and_then(|all| all.get(resource)).map_or(0, |q| objects::quantity::value(Some(q)));
    if wanted == 0 {
        return (None, mappings);
    }
    let mapping = |request: &str| ContainerExtendedResourceRequest {
        container_name: container.name.clone(),
        resource_name: resource.to_owned(),
        request_name: request.to_owned(),
    };
    let mut sum = 0;
    for request in reusable.iter().flatten() {
        sum += request.exactly.as_ref().and_then(|e| e.count).unwrap_or(0);
        mappings.push(mapping(&request.name));
        if sum >= wanted {
            return (None, mappings);
        }
    }
    let place = all.into_iter().flatten().position(|(name, _)| name == resource).unwrap_or(0);
    let name = format!("container-{index}-request-{place}");
    mappings.push(mapping(&name));
    let exactly = ExactDeviceRequest {
        device_class_name: class.to_owned(),
        allocation_mode: Some("ExactCount".to_owned()),
        count: Some(wanted - sum),
        ..ExactDeviceRequest::default()
    };
    (Some(DeviceRequest { name, exactly: Some(exactly), first_available: None }), mappings)
}

fn count(request: &DeviceRequest) -> i64 {
    request.exactly.as_ref().and_then(|e| e.count).unwrap_or(0)
}

/// The requests for resources that devices stand for, and which container has which. Init containers that end before the
/// others begin share what they need.
pub(super) fn requests_for(
    pod: &Pod,
    resources: &BTreeSet<&str>,
    class: impl Fn(&str) -> Option<String>,
) -> (Vec<DeviceRequest>, Vec<ContainerExtendedResourceRequest>) {
    let Some(spec) = &pod.spec else { return Default::default() };
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let containers: Vec<&Container> = init.iter().chain(&spec.containers).collect();
    let is_short = |i: usize| i < init.len() && !is_sidecar(containers[i]);
    let (mut requests, mut mappings) = (Vec::new(), Vec::new());
    for resource in resources {
        let Some(class) = class(resource) else { continue };
        let mut long: Vec<Option<DeviceRequest>> = vec![None; containers.len()];
        for i in (0..containers.len()).filter(|i| !is_short(*i)) {
            let (request, mapped) = request_of((i, containers[i]), resource, &class, &[]);
            long[i] = request;
            mappings.extend(mapped);
        }
        let mut largest: Option<DeviceRequest> = None;
        let (mut short_names, mut short) = (BTreeSet::new(), Vec::new());
        for i in (0..containers.len()).filter(|i| is_short(*i)) {
            let (request, mapped) = request_of((i, containers[i]), resource, &class, &long[i..]);
            short.extend(mapped);
            let Some(request) = request else { continue };
            short_names.insert(request.name.clone());
            if largest.as_ref().is_none_or(|l| count(l) < count(&request)) {
                largest = Some(request);
            }
        }
        if let Some(largest) = &largest {
            for mapping in short.iter_mut().filter(|m| short_names.contains(&m.request_name)) {
                mapping.request_name.clone_from(&largest.name);
            }
        }
        mappings.extend(short);
        requests.extend(largest);
        requests.extend(long.into_iter().flatten());
    }
    requests.sort_by(|a, b| a.name.cmp(&b.name));
    (requests, mappings)
}
