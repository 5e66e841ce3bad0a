//! Typed views of the built-in kinds' trees, and the numbers of their structs and fields.
//!
//! Written by `cargo xtask schema` together with the description that the numbers index.

pub mod admission_v1;
pub mod admissionregistration_v1;
pub mod admissionregistration_v1beta1;
pub mod apiextensions_v1;
pub mod apiregistration_v1;
pub mod apiserverinternal_v1alpha1;
pub mod apps_v1;
pub mod authentication_v1;
pub mod authorization_v1;
pub mod autoscaling_v1;
pub mod autoscaling_v2;
pub mod batch_v1;
pub mod certificates_v1;
pub mod certificates_v1beta1;
pub mod coordination_v1;
pub mod coordination_v1beta1;
pub mod core_v1;
pub mod discovery_v1;
pub mod events_v1;
pub mod flowcontrol_v1;
pub mod meta_v1;
pub mod networking_v1;
pub mod node_v1;
pub mod policy_v1;
pub mod rbac_v1;
pub mod resource_v1;
pub mod resource_v1alpha3;
pub mod scheduling_v1;
pub mod scheduling_v1alpha2;
pub mod storage_v1;
pub mod storagemigration_v1beta1;
