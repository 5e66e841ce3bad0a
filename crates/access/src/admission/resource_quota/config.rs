//! The plugin's configuration: the resources that nobody may take without a quota.

use k8s_openapi::api::core::v1::ScopedResourceSelectorRequirement;
use serde::Deserialize;

use crate::admission::config::{self, Unknown};

const KINDS: [(&str, &[&str]); 2] = [
    ("ResourceQuotaConfiguration", &["apiserver.config.k8s.io/v1"]),
    ("Configuration", &["resourcequota.admission.k8s.io/v1beta1", "resourcequota.admission.k8s.io/v1alpha1"]),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    limited_resources: Option<Vec<Entry>>,
    #[serde(flatten)]
    unknown: Unknown,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    api_group: Option<String>,
    #[serde(default)]
    resource: Option<String>,
    #[serde(default)]
    match_contains: Option<Vec<String>>,
    #[serde(default)]
    match_scopes: Option<Vec<ScopedResourceSelectorRequirement>>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// A resource that nobody may take without a quota.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LimitedResource {
    pub(super) group: String,
    pub(super) resource: String,
    /// Parts of the names under which its amounts count.
    pub(super) match_contains: Vec<String>,
    /// Scopes in which its objects may not be without a quota.
    pub(super) match_scopes: Vec<ScopedResourceSelectorRequirement>,
}

/// Reads a document; without one nothing is limited.
pub(super) fn parse(text: Option<&[u8]>) -> Result<Vec<LimitedResource>, String> {
    let failed = |why: String| format!("couldn't init admission plugin \"ResourceQuota\": {why}");
    let Some(text) = text else { return Ok(Vec::new()) };
    let read = |(kind, versions): (&str, &[&str])| config::document::<Document>(text, kind, versions);
    let document = read(KINDS[0]).or_else(|why| read(KINDS[1]).map_err(|_| why)).map_err(failed)?;
    let entries = document.limited_resources.unwrap_or_default();
    let mut unknown: Vec<String> = document.unknown.into_keys().collect();
    for (i, entry) in entries.iter().enumerate() {
        unknown.extend(entry.unknown.keys().map(|key| format!("limitedResources[{i}].{key}")));
    }
    config::strict(&unknown).map_err(failed)?;
    let limited: Vec<LimitedResource> = entries
        .into_iter()
        .map(|entry| LimitedResource {
            group: entry.api_group.unwrap_or_default(),
            resource: entry.resource.unwrap_or_default(),
            match_contains: entry.match_contains.unwrap_or_default(),
            match_scopes: entry.match_scopes.unwrap_or_default(),
        })
        .collect();
    let nameless = limited.iter().enumerate().filter(|(_, l)| l.resource.is_empty());
    let errors: Vec<String> =
        nameless.map(|(i, _)| format!("limitedResources[{i}].resource: Required value")).collect();
    match errors.as_slice() {
        [] => Ok(limited),
        [one] => Err(failed(one.clone())),
        many => Err(failed(format!("[{}]", many.join(", ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases of `TestLoadConfiguration` and `TestValidateConfiguration`.
    #[test]
    fn documents() {
        let fails = |text: &str, want: &str| {
            let why = parse(Some(text.as_bytes())).unwrap_err();
            assert!(why.contains(want), "{text}: {why}");
        };
        let head = "kind: ResourceQuotaConfiguration\napiVersion: apiserver.config.k8s.io/v1\n";
        fails("", "'Kind' is missing");
        fails(r#"{"kind":"Unknown","apiVersion":"v1"}"#, r#"no kind "Unknown" is registered"#);
        fails(&format!("{head}limitedResources:\n- {{resource: a, resource: a}}"), "already set in map");
        fails(&format!("{head}limitedResources:\n- {{resource: a, foo: b}}"), "strict decoding error");
        fails(
            &format!("{head}limitedResources: [{{}}]"),
            "couldn't init admission plugin \"ResourceQuota\": limitedResources[0].resource: Required value",
        );
        let limited = "limitedResources:
- apiGroup: ''
  resource: persistentvolumeclaims
  matchContains: [.storageclass.storage.k8s.io/requests.storage]
- apiGroup: ''
  resource: pods
  matchScopes:
  - {scopeName: PriorityClass, operator: In, values: [cluster-services]}
";
        let old = |version: &str| {
            format!("kind: Configuration\napiVersion: resourcequota.admission.k8s.io/{version}\n")
        };
        for head in [head.to_owned(), old("v1beta1"), old("v1alpha1")] {
            let read = parse(Some(format!("{head}{limited}").as_bytes())).unwrap();
            let shown: Vec<(&str, &[String], usize)> =
                read.iter().map(|l| (&*l.resource, &*l.match_contains, l.match_scopes.len())).collect();
            let storage = [".storageclass.storage.k8s.io/requests.storage".to_owned()];
            assert_eq!(shown, [("persistentvolumeclaims", &storage[..], 0), ("pods", &[][..], 1)]);
        }
        assert_eq!(parse(None), Ok(Vec::new()));
    }
}
