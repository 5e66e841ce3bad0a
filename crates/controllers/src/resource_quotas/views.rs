//! The parts of objects that quotas count.

use std::marker::PhantomData;

use api::Status;
use client::{Cached, Identity, KubeObject};
use compact_str::CompactString as Text;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use objects::quota::Counted;

/// A type whose objects take more from quotas than a number.
pub(super) trait Countable: KubeObject {
    /// Returns the amounts that an object takes.
    fn counted(&self) -> Counted;
}

impl Countable for Pod {
    fn counted(&self) -> Counted {
        Counted::pod(self)
    }
}

impl Countable for Service {
    fn counted(&self) -> Counted {
        Counted::service(self)
    }
}

impl Countable for PersistentVolumeClaim {
    fn counted(&self) -> Counted {
        Counted::claim(self)
    }
}

impl Countable for ResourceClaim {
    fn counted(&self) -> Counted {
        Counted::device_claim(self)
    }
}

/// The names of an object.
#[derive(Debug, Clone, Default, PartialEq)]
struct Names {
    namespace: Text,
    name: Text,
    uid: Text,
    resource_version: Text,
}

impl Names {
    fn of<T: KubeObject>(object: &T) -> Self {
        Self {
            namespace: object.namespace().into(),
            name: object.name().into(),
            uid: object.uid().into(),
            resource_version: object.resource_version().into(),
        }
    }
}

/// An object of a type, as quotas see it.
#[derive(Debug)]
pub(super) struct Seen<T> {
    names: Names,
    pub(super) counted: Counted,
    of: PhantomData<fn() -> T>,
}

impl<T: Countable> Cached for Seen<T> {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        let object = T::from_json(json)?;
        Ok(Self { names: Names::of(&object), counted: object.counted(), of: PhantomData })
    }
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: &self.names.namespace,
            name: &self.names.name,
            uid: &self.names.uid,
            resource_version: &self.names.resource_version,
        }
    }
}

/// The extended resource that stands for a class of devices.
#[derive(Debug)]
pub(super) struct Class {
    names: Names,
    pub(super) resource: String,
}

impl Cached for Class {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        let class = <DeviceClass as client::FromJson>::from_json(json)?;
        let names = Names::of(&class);
        Ok(Self { names, resource: class.spec.extended_resource_name.unwrap_or_default() })
    }
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: &self.names.namespace,
            name: &self.names.name,
            uid: &self.names.uid,
            resource_version: &self.names.resource_version,
        }
    }
}
