//! A provider of credentials, as it is configured.

use std::time::Duration;

use serde::Deserialize;

/// The versions of what is asked and answered.
pub(super) const VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
];
/// A provider of credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Provider {
    /// The name of its program.
    pub(super) name: String,
    /// The images that it is asked for.
    pub(super) match_images: Vec<String>,
    /// How long its answers are kept if they do not say.
    default_cache_duration: Option<String>,
    /// The version of what is asked and answered.
    pub(super) api_version: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<Variable>,
    /// Which tokens of service accounts it gets, if it gets any.
    pub(super) token_attributes: Option<TokenAttributes>,
}

/// A variable of a program's environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
}

/// The tokens of service accounts that a provider gets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TokenAttributes {
    pub(super) service_account_token_audience: String,
    /// `ServiceAccount` or `Token`: for whom an answer is kept.
    pub(super) cache_type: String,
    pub(super) require_service_account: Option<bool>,
    pub(super) required_service_account_annotation_keys: Vec<String>,
    pub(super) optional_service_account_annotation_keys: Vec<String>,
}

impl Provider {
    /// How long its answers are kept if they do not say; none if the file does not say either, or no duration.
    pub(super) fn cache_duration(&self) -> Option<jiff::SignedDuration> {
        self.default_cache_duration.as_deref().and_then(api::time::parse_duration)
    }
    /// The text that is no duration, if that is one.
    pub(super) fn unreadable_duration(&self) -> Option<&str> {
        self.default_cache_duration.as_deref().filter(|_| self.cache_duration().is_none())
    }
    /// How long its answers are kept, of a file that was checked.
    pub(super) fn keeps(&self) -> Duration {
        self.cache_duration().and_then(|time| Duration::try_from(time).ok()).unwrap_or_default()
    }
}
