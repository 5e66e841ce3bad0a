//! The plugin's name and settings, and the names of claims in its texts.

use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use tokio::time::Instant;

use crate::devices::Features;

/// The plugin's name.
pub const NAME: &str = "DynamicResources";

/// How the plugin works.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) features: Features,
    /// Whether classes stand for extended resources.
    pub(super) extended: bool,
    /// Whether Pods share the claims of their PodGroups.
    pub(super) by_group: bool,
    /// How long a search may take.
    pub(super) filter_timeout: Option<Duration>,
    /// How long devices may take to be attached.
    pub(super) binding_timeout: Duration,
}

/// A claim as upstream's texts name it.
pub(super) fn named(claim: &ResourceClaim) -> String {
    let meta = &claim.metadata;
    let [namespace, name] = [&meta.namespace, &meta.name].map(|t| t.as_deref().unwrap_or_default());
    format!("{namespace}/{name}")
}

/// When a search that begins now has to end.
pub(super) fn deadline(settings: Settings) -> Option<Instant> {
    settings.filter_timeout.map(|timeout| Instant::now() + timeout)
}
