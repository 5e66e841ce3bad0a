//! An APIService as it is known.

use access::reader::read;
use access::webhook::{Endpoint, Trust};
use api::{Object, Text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::aggregated::Priority;

/// The label of APIServices that the server keeps.
pub(super) const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// The type of the one condition.
pub(super) const AVAILABLE: &str = "Available";

/// The `spec` of an APIService.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) group: Text,
    pub(super) version: Text,
    pub(super) priority: Priority,
    /// The port of the Service that answers; none if this server does.
    pub(super) service: Option<Endpoint>,
    pub(super) trust: Trust,
}

/// The condition of an APIService.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) status: Text,
    pub(super) reason: Text,
    pub(super) message: String,
}

/// An APIService.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiService {
    pub(super) uid: Text,
    /// The value of [`MANAGED`].
    pub(super) managed: Option<Text>,
    pub(super) spec: Spec,
    pub(super) condition: Option<Condition>,
}

#[derive(Deserialize)]
struct Wire {
    spec: WireSpec,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    #[serde(default)]
    group: Text,
    version: Text,
    group_priority_minimum: i32,
    version_priority: i32,
    service: Option<WireService>,
    #[serde(default)]
    ca_bundle: String,
    #[serde(default, rename = "insecureSkipTLSVerify")]
    insecure: bool,
}

#[derive(Deserialize)]
struct WireService {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    port: Option<u16>,
}

#[derive(Deserialize, Default)]
struct WireStatus {
    #[serde(default)]
    conditions: Vec<WireCondition>,
}

#[derive(Deserialize)]
struct WireCondition {
    #[serde(rename = "type")]
    kind: Text,
    status: Text,
    #[serde(default)]
    reason: Text,
    #[serde(default)]
    message: String,
}

/// The port of a Service where nothing says another.
const HTTPS: u16 = 443;

impl ApiService {
    /// Reads a stored one; `None` if it is none.
    pub(super) fn of(object: &Object) -> Option<Self> {
        let Wire { spec, status } = read(object)?;
        let condition = status.conditions.into_iter().find(|c| c.kind == AVAILABLE);
        let endpoint =
            |s: WireService| Endpoint { namespace: s.namespace, name: s.name, port: s.port.unwrap_or(HTTPS) };
        let trust = if spec.insecure {
            Trust::Anybody
        } else {
            // It was checked when it was written.
            Trust::Authorities(STANDARD.decode(&spec.ca_bundle).unwrap_or_default())
        };
        Some(Self {
            uid: object.data.uid.clone(),
            managed: object.label(MANAGED).map(Text::from),
            spec: Spec {
                group: spec.group,
                version: spec.version,
                priority: Priority { group: spec.group_priority_minimum, version: spec.version_priority },
                service: spec.service.map(endpoint),
                trust,
            },
            condition: condition.map(|c| Condition {
                status: c.status,
                reason: c.reason,
                message: c.message,
            }),
        })
    }
    /// Whether its condition says that it is available.
    pub(super) fn is_available(&self) -> bool {
        self.condition.as_ref().is_some_and(|c| c.status == "True")
    }
}

impl Condition {
    /// A condition of a server that answers.
    pub(super) fn good(reason: &str, message: &str) -> Self {
        Self { status: "True".into(), reason: reason.into(), message: message.into() }
    }
    /// A condition of a server that does not.
    pub(super) fn bad(reason: &str, message: impl Into<String>) -> Self {
        Self { status: "False".into(), reason: reason.into(), message: message.into() }
    }
    /// The condition of what this server answers itself.
    pub(super) fn local() -> Self {
        Self::good("Local", "Local APIServices are always available")
    }
}
