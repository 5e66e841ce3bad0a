//! The content of a CustomResourceDefinition.

use std::sync::Arc;

use api::Text;
use api::field::{Errors, Path};
use api::structural::Structural;
use api::view::View;

use super::compile;
use crate::strategies::{is_structural, structural_faults};
use crate::validation::authorities::no_authorities;

/// The names of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// The plural name, as paths have it.
    pub plural: Text,
    /// The singular name.
    pub singular: Text,
    /// The kind.
    pub kind: Text,
    /// The kind of lists.
    pub list_kind: Text,
    /// Short names for kubectl.
    pub short_names: Vec<Text>,
    /// Groups of resources for kubectl, such as `all`.
    pub categories: Vec<Text>,
}

impl Names {
    /// The names in `spec.names` or `status.acceptedNames`.
    pub fn of(names: View<'_>) -> Self {
        let texts = |name: &str| names.strs(name).map(Text::from).collect();
        Self {
            plural: names.str("plural").into(),
            singular: names.str("singular").into(),
            kind: names.str("kind").into(),
            list_kind: names.str("listKind").into(),
            short_names: texts("shortNames"),
            categories: texts("categories"),
        }
    }
}

/// The paths of the numbers of a kind's Scale, as names from the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// The wanted number of replicas, as the definition writes the path.
    pub spec_replicas: Text,
    /// The actual number of replicas.
    pub status_replicas: Text,
    /// The selector of the replicas' Pods, a string.
    pub selector: Option<Text>,
}

/// A column of kubectl's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PrinterColumn {
    pub(super) name: Text,
    pub(super) kind: Text,
    pub(super) format: Text,
    pub(super) description: Text,
    pub(super) priority: i32,
    pub(super) path: Text,
}

/// A version of a definition.
#[derive(Debug, Clone)]
pub struct Version {
    /// Its name.
    pub name: Text,
    /// Whether it is served.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// The Warning with every answer, for a version that goes.
    pub deprecated: Option<Text>,
    /// The schema of its objects.
    pub schema: Arc<Structural>,
    /// Whether clients are told the schema: those that are not structural are of no use to them.
    pub told: bool,
    /// Whether it has the subresource `status`.
    pub status: bool,
    /// The places of its Scale, if it has one.
    pub scale: Option<ScalePaths>,
    /// The paths of selectable fields.
    pub selectable: Vec<Text>,
    pub(super) columns: Vec<PrinterColumn>,
}

/// The way in which objects get from one version to another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Conversion {
    /// Only the API version changes.
    #[default]
    None,
    /// Somebody is asked.
    Webhook {
        /// `spec.conversion.webhook.clientConfig`, as JSON.
        client_config: String,
        /// The versions of `ConversionReview` that the webhook understands, best first.
        review_versions: Vec<Text>,
        /// Whether its `caBundle` names no authorities.
        bad_authorities: bool,
    },
}

/// A definition, read.
#[derive(Debug, Clone)]
pub struct Definition {
    /// The group.
    pub group: Text,
    /// The names that it asks for.
    pub names: Names,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// The versions, in the order of preference: as `kubectl` sorts versions.
    pub versions: Vec<Version>,
    /// The names of the versions, in the order in which the definition has them.
    pub order: Vec<Text>,
    /// How objects get from version to version.
    pub conversion: Conversion,
    /// Whether fields that no schema names are kept, as was possible once (`spec.preserveUnknownFields`).
    pub keeps_unknown: bool,
    /// Why its schemas are not structural, in upstream's words; nothing if they are.
    pub faults: Vec<String>,
}

impl Definition {
    /// Reads a definition.
    pub fn of(definition: View<'_>) -> Self {
        let spec = definition.st("spec");
        let names = Names::of(spec.st("names"));
        let group = spec.str("group");
        let keeps_unknown = spec.bool("preserveUnknownFields");
        let mut versions: Vec<Version> = spec.items("versions").map(|v| version(v, keeps_unknown)).collect();
        versions.sort_by(|a, b| api::version_order::compare(&a.name, &b.name));
        warn_of_deprecated(&mut versions, group, &names.kind);
        let conversion = spec.st("conversion");
        let conversion = match conversion.str("strategy") {
            "Webhook" => {
                let webhook = conversion.st("webhook");
                let client_config = webhook.st("clientConfig");
                let config = client_config.raw().map_or_else(Vec::new, |raw| {
                    let mut out = Vec::new();
                    api::codec::json::encode(definition.schema, raw, &mut out);
                    out
                });
                Conversion::Webhook {
                    bad_authorities: no_authorities(client_config.str("caBundle")).is_some(),
                    client_config: String::from_utf8_lossy(&config).into_owned(),
                    review_versions: webhook.strs("conversionReviewVersions").map(Text::from).collect(),
                }
            }
            _ => Conversion::None,
        };
        Self {
            group: group.into(),
            names,
            namespaced: spec.str("scope") == "Namespaced",
            versions,
            order: spec.items("versions").map(|v| v.str("name").into()).collect(),
            conversion,
            keeps_unknown,
            faults: if keeps_unknown { faults(spec) } else { Vec::new() },
        }
    }
    /// The version in which objects are stored.
    pub fn storage(&self) -> Option<&Version> {
        self.versions.iter().find(|v| v.storage)
    }
}

/// Why a definition that keeps unknown fields is not structural. Upstream takes no other whose schemas are not.
fn faults(spec: View<'_>) -> Vec<String> {
    let mut errs = Errors::new();
    let at = Path::root("spec");
    errs.invalid(&at.field("preserveUnknownFields"), true, "must be false");
    let versions_at = at.field("versions");
    for (i, version) in spec.items("versions").enumerate() {
        let Some(schema) = version.st("schema").opt("openAPIV3Schema") else { continue };
        let at = versions_at.index(i);
        let at = at.field("schema");
        structural_faults(&mut errs, &at.field("openAPIV3Schema"), schema);
    }
    errs.0.iter().map(ToString::to_string).collect()
}

/// Gives deprecated versions that say nothing themselves a Warning: it names the preferred version that is better.
fn warn_of_deprecated(versions: &mut [Version], group: &str, kind: &str) {
    let current = versions.iter().filter(|v| v.served && v.deprecated.is_none());
    let best = current.map(|v| v.name.clone()).next();
    for version in versions {
        let Some(warning) = version.deprecated.as_mut().filter(|text| text.is_empty()) else { continue };
        let name = &version.name;
        *warning = format!("{group}/{name} {kind} is deprecated").into();
        let better = best.as_ref().filter(|best| api::version_order::compare(best, name).is_lt());
        if let Some(better) = better {
            warning.push_str(&format!("; use {group}/{better} {kind}"));
        }
    }
}

fn version(v: View<'_>, keeps_unknown: bool) -> Version {
    let schema = v.st("schema").st("openAPIV3Schema");
    let mut schema = compile::structural(schema);
    if keeps_unknown {
        schema = schema.keeping_unknown();
    }
    let subresources = v.st("subresources");
    let scale = subresources.opt("scale").map(|s| ScalePaths {
        spec_replicas: s.str("specReplicasPath").into(),
        status_replicas: s.str("statusReplicasPath").into(),
        selector: s.opt_str("labelSelectorPath").filter(|p| !p.is_empty()).map(Text::from),
    });
    let columns = v
        .items("additionalPrinterColumns")
        .map(|c| PrinterColumn {
            name: c.str("name").into(),
            kind: c.str("type").into(),
            format: c.str("format").into(),
            description: c.str("description").into(),
            priority: i32::try_from(c.int("priority")).unwrap_or_default(),
            path: c.str("jsonPath").into(),
        })
        .collect();
    // An empty text stands for one that is still to be made.
    let warning = Text::from(v.opt_str("deprecationWarning").unwrap_or_default());
    Version {
        name: v.str("name").into(),
        served: v.bool("served"),
        storage: v.bool("storage"),
        told: !keeps_unknown || is_structural(v.st("schema").st("openAPIV3Schema")),
        deprecated: v.bool("deprecated").then_some(warning),
        schema: Arc::new(schema),
        status: subresources.as_written("status").is_some(),
        scale,
        selectable: v.items("selectableFields").map(|f| f.str("jsonPath").into()).collect(),
        columns,
    }
}
