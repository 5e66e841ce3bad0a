//! A request, or one of its alternatives.

use std::sync::Arc;

use api::quantity::Quantity;
use k8s_openapi::api::resource::v1::{
    CapacityRequirements, DeviceClass, DeviceRequest, DeviceSelector, DeviceSubRequest, DeviceToleration,
    ResourceClaim,
};

use super::allocated::Amounts;
use super::constraint::For;

/// This is what is asked for.
#[derive(Debug)]
pub(super) struct Request<'c> {
    pub(super) name: &'c str,
    /// The request whose alternative it is, "" for none.
    pub(super) parent: &'c str,
    pub(super) class_name: &'c str,
    pub(super) mode: &'c str,
    pub(super) count: i64,
    /// Whether an administrator asks, and whether anything is said of that.
    pub(super) admin: Option<bool>,
    pub(super) selectors: &'c [DeviceSelector],
    pub(super) tolerations: &'c [DeviceToleration],
    pub(super) capacity: Option<Amounts>,
}

fn amounts(capacity: Option<&CapacityRequirements>) -> Option<Amounts> {
    let said = capacity?.requests.iter().flatten();
    Some(said.map(|(name, q)| (name.clone(), Quantity::parse(&q.0).unwrap_or_default())).collect())
}

fn slice<T>(list: Option<&Vec<T>>) -> &[T] {
    list.map(Vec::as_slice).unwrap_or_default()
}

impl<'c> Request<'c> {
    /// A request's alternatives, or the request itself.
    pub(super) fn all(request: &'c DeviceRequest) -> Vec<Self> {
        let alternatives = slice(request.first_available.as_ref());
        if alternatives.is_empty() {
            return vec![Self::exactly(request)];
        }
        alternatives.iter().map(|sub| Self::alternative(request, sub)).collect()
    }

    fn exactly(request: &'c DeviceRequest) -> Self {
        let said = request.exactly.as_ref();
        Self {
            name: &request.name,
            parent: "",
            class_name: said.map(|e| e.device_class_name.as_str()).unwrap_or_default(),
            mode: said.and_then(|e| e.allocation_mode.as_deref()).unwrap_or_default(),
            count: said.and_then(|e| e.count).unwrap_or(0),
            admin: said.and_then(|e| e.admin_access),
            selectors: slice(said.and_then(|e| e.selectors.as_ref())),
            tolerations: slice(said.and_then(|e| e.tolerations.as_ref())),
            capacity: amounts(said.and_then(|e| e.capacity.as_ref())),
        }
    }

    fn alternative(request: &'c DeviceRequest, sub: &'c DeviceSubRequest) -> Self {
        Self {
            name: &sub.name,
            parent: &request.name,
            class_name: &sub.device_class_name,
            mode: sub.allocation_mode.as_deref().unwrap_or_default(),
            count: sub.count.unwrap_or(0),
            admin: None,
            selectors: slice(sub.selectors.as_ref()),
            tolerations: slice(sub.tolerations.as_ref()),
            capacity: amounts(sub.capacity.as_ref()),
        }
    }

    pub(super) fn is_admin(&self) -> bool {
        self.admin == Some(true)
    }
    pub(super) fn wants_all(&self) -> bool {
        self.mode == "All"
    }
    /// The name by which results and configurations refer to it.
    pub(super) fn full_name(&self) -> String {
        if self.parent.is_empty() { self.name.to_owned() } else { format!("{}/{}", self.parent, self.name) }
    }
    pub(super) fn as_for(&self) -> For<'c> {
        if self.parent.is_empty() {
            For { request: self.name, alternative: "" }
        } else {
            For { request: self.parent, alternative: self.name }
        }
    }
}

/// The requests of a claim.
pub(super) fn requests(claim: &ResourceClaim) -> &[DeviceRequest] {
    slice(claim.spec.devices.as_ref().and_then(|d| d.requests.as_ref()))
}

/// A request with what is known of it before the search.
#[derive(Debug)]
pub(super) struct Asked<'c, F> {
    pub(super) request: Request<'c>,
    pub(super) class: Arc<DeviceClass>,
    /// Its number among the requests of which something is known.
    pub(super) number: usize,
    /// How many devices it wants.
    pub(super) count: usize,
    /// The devices, if it wants all of them.
    pub(super) all: Vec<F>,
}
