//! Descriptions of the API's types and fields, as `kubectl explain` shows them.
//!
//! The descriptions are upstream's prose, taken at build time from the schemas of k8s-openapi and kept compressed in
//! the binary. This is a crate of its own, so that no other crate waits for that. It depends on no other crate of the
//! workspace.

use std::collections::HashMap;
use std::io::Read;

/// The descriptions as the binary has them.
pub const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.z"));

/// The descriptions, unpacked. About 2 MB: made when OpenAPI documents are, and dropped after.
#[derive(Debug)]
pub struct Docs {
    text: String,
    /// The place of the text of a definition and field.
    at: HashMap<(Box<str>, Box<str>), (usize, usize)>,
}

impl Docs {
    /// Unpacks the descriptions.
    pub fn load() -> Self {
        let mut text = String::new();
        // Written by the build script: it unpacks. Without descriptions the documents are still right.
        if flate2::read::ZlibDecoder::new(PACKED).read_to_string(&mut text).is_err() {
            text.clear();
        }
        let mut at = HashMap::new();
        let mut start = 0;
        for record in text.split_terminator('\x1e') {
            let mut parts = record.splitn(3, '\x1f');
            if let (Some(definition), Some(field), Some(description)) =
                (parts.next(), parts.next(), parts.next())
            {
                let end = start + record.len();
                at.insert((definition.into(), field.into()), (end - description.len(), end));
            }
            start += record.len() + 1;
        }
        Self { text, at }
    }

    /// The description of a definition (`io.k8s.api.core.v1.Pod`), or of one of its fields.
    pub fn get(&self, definition: &str, field: Option<&str>) -> Option<&str> {
        let (start, end) = *self.at.get(&(definition.into(), field.unwrap_or_default().into()))?;
        self.text.get(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_and_fields() {
        let docs = Docs::load();
        for (definition, field) in [
            ("io.k8s.api.core.v1.Pod", None),
            ("io.k8s.api.core.v1.PodSpec", Some("containers")),
            ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", Some("labels")),
            ("io.k8s.api.apps.v1.DeploymentSpec", Some("replicas")),
            ("io.k8s.api.core.v1.PodList", None),
            ("io.k8s.api.core.v1.PodList", Some("kind")),
            ("io.k8s.apimachinery.pkg.apis.meta.v1.ListOptions", Some("limit")),
        ] {
            assert!(docs.get(definition, field).is_some_and(|t| t.len() > 10), "{definition} {field:?}");
        }
        assert_eq!(docs.get("io.k8s.api.core.v1.PodSpec", Some("none")), None);
        let policy = docs.get("io.k8s.api.core.v1.PodSpec", Some("restartPolicy")).unwrap();
        assert!(policy.starts_with("Restart policy") && policy.ends_with("\n - `\"OnFailure\"`"), "{policy}");
    }
}
