//! The JSON of typed objects.
//!
//! Each type is decoded and encoded by one function, which is compiled here and nowhere else. The decoder of a Pod
//! is more than 100 KiB of machine code; a generic function would be compiled again in each crate that calls it.

use api::Status;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::skim::Skim;

/// A type that answers of the API server are decoded into. [`from_json!`](crate::from_json) implements it.
pub trait FromJson: Sized + Send + 'static {
    /// Decodes an object.
    ///
    /// # Errors
    /// An internal error (code 500) if the text does not fit the type: the server is at fault then.
    fn from_json(json: &[u8]) -> Result<Self, Status>;
}

/// A type that requests are encoded from.
pub trait ToJson: Sync {
    /// Encodes an object.
    ///
    /// # Errors
    /// A bad request (code 400) if it has no JSON.
    fn to_json(&self) -> Result<Bytes, Status>;
}

/// Implements [`FromJson`] for types that serde can decode.
#[macro_export]
macro_rules! from_json {
    ($($type:ty),* $(,)?) => {$(
        impl $crate::FromJson for $type {
            #[inline(never)]
            fn from_json(json: &[u8]) -> Result<Self, api::Status> {
                $crate::json::parse(json)
            }
        }
    )*};
}

macro_rules! both_ways {
    ($($type:ty),* $(,)?) => {
        from_json!($($type),*);
        $(impl ToJson for $type {
            #[inline(never)]
            fn to_json(&self) -> Result<Bytes, Status> {
                write(self)
            }
        })*
    };
}

/// The types of k8s-openapi that components use. A type that is missing is one more line.
mod types {
    use k8s_openapi::api::apiserverinternal::v1alpha1 as internal;
    use k8s_openapi::api::apps::v1 as apps;
    use k8s_openapi::api::authentication::v1 as authentication;
    use k8s_openapi::api::authorization::v1 as authorization;
    use k8s_openapi::api::autoscaling::v1 as autoscaling;
    use k8s_openapi::api::autoscaling::v2 as autoscaling_v2;
    use k8s_openapi::api::batch::v1 as batch;
    use k8s_openapi::api::certificates::{v1 as certificates, v1beta1 as certificates_v1beta1};
    use k8s_openapi::api::coordination::v1 as coordination;
    use k8s_openapi::api::core::v1 as core;
    use k8s_openapi::api::discovery::v1 as discovery;
    use k8s_openapi::api::networking::v1 as networking;
    use k8s_openapi::api::node::v1 as node;
    use k8s_openapi::api::policy::v1 as policy;
    use k8s_openapi::api::rbac::v1 as rbac;
    use k8s_openapi::api::resource::{
        v1 as resource, v1alpha3 as resource_v1alpha3, v1beta2 as resource_v1beta2,
    };
    use k8s_openapi::api::scheduling::v1alpha2 as scheduling;
    use k8s_openapi::api::storage::v1 as storage;
    use k8s_openapi::api::storagemigration::v1beta1 as storage_migration;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

    use super::{Bytes, FromJson, Status, ToJson, Value, parse, set_times, value, write};

    both_ways!(
        apps::DaemonSet,
        apps::Deployment,
        apps::ReplicaSet,
        apps::StatefulSet,
        authentication::TokenRequest,
        authentication::TokenReview,
        authorization::SubjectAccessReview,
        autoscaling::Scale,
        autoscaling_v2::HorizontalPodAutoscaler,
        batch::CronJob,
        batch::Job,
        certificates::CertificateSigningRequest,
        certificates_v1beta1::ClusterTrustBundle,
        certificates_v1beta1::PodCertificateRequest,
        coordination::Lease,
        core::ConfigMap,
        core::Endpoints,
        core::Event,
        core::LimitRange,
        core::Namespace,
        core::Node,
        core::PersistentVolume,
        core::PersistentVolumeClaim,
        core::Pod,
        core::PodTemplateSpec,
        core::ReplicationController,
        core::ResourceQuota,
        core::Secret,
        core::Service,
        core::ServiceAccount,
        discovery::EndpointSlice,
        internal::StorageVersion,
        networking::IPAddress,
        networking::NetworkPolicy,
        networking::ServiceCIDR,
        node::RuntimeClass,
        policy::PodDisruptionBudget,
        rbac::ClusterRole,
        rbac::ClusterRoleBinding,
        rbac::Role,
        rbac::RoleBinding,
        resource::DeviceClass,
        resource::ResourceClaim,
        resource::ResourceClaimTemplate,
        resource::ResourceSlice,
        resource_v1alpha3::ResourcePoolStatusRequest,
        resource_v1beta2::DeviceTaintRule,
        scheduling::PodGroup,
        scheduling::Workload,
        storage::CSIDriver,
        storage::CSINode,
        storage::CSIStorageCapacity,
        storage::StorageClass,
        storage::VolumeAttachment,
        storage::VolumeAttributesClass,
        storage_migration::StorageVersionMigration,
    );

    macro_rules! written_only {
        ($($type:ty),* $(,)?) => {$(
            impl ToJson for $type {
                #[inline(never)]
                fn to_json(&self) -> Result<Bytes, Status> {
                    write(self)
                }
            }
        )*};
    }
    written_only!(apps::ControllerRevision, core::Binding, policy::Eviction, meta::DeleteOptions, Value);

    /// Its data is any object, which may nest deeper than serde_json's decoder goes.
    impl FromJson for apps::ControllerRevision {
        #[inline(never)]
        fn from_json(json: &[u8]) -> Result<Self, Status> {
            use serde::Deserialize;
            let deep = || {
                let mut value = value(json)?;
                set_times(&mut value);
                Self::deserialize(value).ok()
            };
            parse(json).or_else(|error| deep().ok_or(error))
        }
    }

    impl FromJson for Value {
        #[inline(never)]
        fn from_json(json: &[u8]) -> Result<Self, Status> {
            value(json).ok_or_else(|| Status::internal("unable to decode an answer: it is no JSON"))
        }
    }
}

/// Decodes a type, for implementations of [`FromJson`]. It is compiled anew for each type: everybody else calls
/// [`FromJson::from_json`].
///
/// # Errors
/// An internal error if the text does not fit the type.
pub fn parse<R: DeserializeOwned>(json: &[u8]) -> Result<R, Status> {
    serde_json::from_slice(json).or_else(|error| {
        // From text again, not from the value: that would be a second decoder for each type.
        repaired(json)
            .and_then(|text| serde_json::from_slice(&text).ok())
            .ok_or_else(|| Status::internal(format_args!("unable to decode an answer: {error}")))
    })
}

fn write<B: Serialize>(body: &B) -> Result<Bytes, Status> {
    serde_json::to_vec(body)
        .map(Bytes::from)
        .map_err(|e| Status::bad_request(format!("unable to encode the request: {e}")))
}

/// The text with times that the types can hold, and without `managedFields`. On the wire a required time that nobody
/// set is `null`.
fn repaired(json: &[u8]) -> Option<Vec<u8>> {
    let mut value = value(&Skim::new(json).json)?;
    set_times(&mut value);
    serde_json::to_vec(&value).ok()
}

/// Any JSON that nests no deeper than [`api::depth::MAX_DEPTH`], or does not but for its `managedFields`; serde_json's
/// own decoder stops at 128.
fn value(json: &[u8]) -> Option<Value> {
    let deep = |json: &[u8]| api::codec::json::decode_any(json).ok().map(of_node);
    serde_json::from_slice(json).ok().or_else(|| deep(json)).or_else(|| deep(&Skim::new(json).json))
}

fn of_node(node: api::Node) -> Value {
    use api::Node;
    match node {
        Node::Bool(b) => b.into(),
        Node::Int(i) => i.into(),
        Node::Float(f) => f.into(),
        Node::Str(s) => Value::String(s.into()),
        Node::List(list) => list.into_iter().map(of_node).collect(),
        Node::Map(map) => {
            map.into_entries().into_iter().map(|(k, v)| (String::from(k), of_node(v))).collect()
        }
        // Text that is decoded without a schema has neither structs nor raw parts.
        Node::Null | Node::Struct(_) | Node::Raw(_) => Value::Null,
    }
}

/// Puts Go's zero time, which upstream reads a `null` as, in the place of times that are `null`.
fn set_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if value.is_null() && (name.ends_with("Time") || name.ends_with("Timestamp")) {
                    *value = Value::from("0001-01-01T00:00:00Z");
                } else {
                    set_times(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(set_times),
        _ => {}
    }
}

/// Reads a field that may be `null`, which is as good as absent; for `#[serde(deserialize_with)]`.
///
/// # Errors
/// The value is of another form.
pub fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ControllerRevision;
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    #[test]
    fn a_time_that_nobody_set_is_the_zero_time() {
        let node = |time: &str| {
            let condition = format!(r#"{{"type":"Ready","status":"True","lastHeartbeatTime":{time}}}"#);
            Node::from_json(
                format!(r#"{{"metadata":{{}},"status":{{"conditions":[{condition}]}}}}"#).as_bytes(),
            )
        };
        assert!(node("null").unwrap().status.is_some());
        assert!(node("7").is_err());
        let taint = br#"{"metadata":{},"involvedObject":{},"count":null,"eventTime":null}"#;
        assert!(k8s_openapi::api::core::v1::Event::from_json(taint).is_ok());
        let cidr = br#"{"metadata":{},"status":{"conditions":[{"type":"Ready","status":"True","reason":"r","message":"","lastTransitionTime":null}]}}"#;
        let cidr = k8s_openapi::api::networking::v1::ServiceCIDR::from_json(cidr).unwrap();
        let condition = cidr.status.unwrap().conditions.unwrap().remove(0);
        assert_eq!(condition.last_transition_time.0.to_string(), "0001-01-01T00:00:00Z");
        assert!(Node::from_json(br#"{"metadata":7}"#).is_err());
    }

    #[test]
    fn answers_may_nest_as_deeply_as_the_server_stores() {
        let check = |depth: usize| {
            let data = r#"{"a":"#.repeat(depth - 2) + "[1.5,true,\"x\"]" + &"}".repeat(depth - 2);
            let body = format!(r#"{{"metadata":{{"creationTimestamp":null}},"revision":7,"data":{data}}}"#);
            assert_eq!(api::depth::of_json(body.as_bytes()), depth);
            let read = ControllerRevision::from_json(body.as_bytes()).ok()?;
            assert_eq!(serde_json::to_string(&read.data).unwrap(), data);
            Some(read.revision)
        };
        for depth in [127, 128, 129, api::depth::MAX_DEPTH] {
            assert_eq!(check(depth), Some(7), "{depth}");
        }
        assert_eq!(check(api::depth::MAX_DEPTH + 1), None);
        let fields = "[".repeat(100_000) + &"]".repeat(100_000);
        let body = format!(r#"{{"metadata":{{"managedFields":{fields},"name":"a"}},"revision":7}}"#);
        let name = |metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| metadata.name;
        let revision = ControllerRevision::from_json(body.as_bytes()).unwrap();
        assert_eq!(name(revision.metadata).as_deref(), Some("a"));
        assert_eq!(name(Node::from_json(body.as_bytes()).unwrap().metadata).as_deref(), Some("a"));
    }
}
