//! The protocols that a node's plugins speak, and the services that the kubelet offers them: registration, device
//! plugins, dynamic resource allocation, the node's resources, and the container storage interface. Each of these modules
//! has the messages, the clients and the servers of one version, generated from `proto/` by `cargo xtask protocols`.
//! `flex` calls the programs that drivers of FlexVolumes are.
//!
//! The crate depends on `component`, which runs programs. It knows no Pods and decides nothing.

mod authority;
pub mod flex;
pub mod socket;

/// Defines a module of generated code.
macro_rules! protocol {
    ($(#[doc = $doc:literal] $name:ident = $file:literal;)*) => {$(
        #[doc = $doc]
        #[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
        pub mod $name {
            include!(concat!("../generated/", $file));
        }
    )*};
}

protocol! {
    /// How a plugin tells of itself: `pluginregistration`, which is version 1.
    registration = "registration.rs";
    /// Device plugins and their registration: `v1beta1`.
    device = "device.rs";
    /// The pod resources API: `v1`.
    resources = "resources.rs";
    /// The pod resources API: `v1alpha1`.
    resources_v1alpha1 = "resources_v1alpha1.rs";
    /// Plugins for dynamic resource allocation: `v1`.
    dra = "dra.rs";
    /// Plugins for dynamic resource allocation: `v1beta1`.
    dra_v1beta1 = "dra_v1beta1.rs";
    /// The health of allocated devices: `v1alpha1`.
    dra_health = "dra_health.rs";
    /// The container storage interface: `csi.v1`. Requests may hold secrets: they must not be logged.
    csi = "csi.rs";
}
