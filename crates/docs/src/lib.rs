//! Descriptions of the API's types and fields, as `kubectl explain` shows them.
//!
//! The descriptions are upstream's prose, taken at build time from the schemas of k8s-openapi and kept compressed in
//! the binary. This is a crate of its own, so that no other crate waits for that. It depends on no other crate of the
//! workspace.

use std::io::Read;
use std::sync::OnceLock;

/// The descriptions as the binary has them: blocks of records, each packed by itself.
pub const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.z"));
/// A line for each block: the definition and the field of its first record, and its size as it is packed.
const BLOCKS: &str = include_str!(concat!(env!("OUT_DIR"), "/blocks.tsv"));

/// The descriptions. A block is unpacked when one of its texts is asked for; what was unpacked is dropped with this.
#[derive(Debug)]
pub struct Docs {
    blocks: Vec<Block>,
}

/// A run of records, by definition and field.
#[derive(Debug)]
struct Block {
    first: (&'static str, &'static str),
    packed: &'static [u8],
    unpacked: OnceLock<Unpacked>,
}

#[derive(Debug)]
struct Unpacked {
    text: String,
    records: Vec<Record>,
}

/// The places of a record's parts in a block's text: where the first begins, and where each ends.
#[derive(Debug, Clone, Copy)]
struct Record {
    start: usize,
    definition: usize,
    field: usize,
    end: usize,
}

impl Block {
    fn unpacked(&self) -> &Unpacked {
        self.unpacked.get_or_init(|| {
            let mut text = String::new();
            // Written by the build script: it unpacks. Without descriptions the documents are still right.
            if flate2::read::ZlibDecoder::new(self.packed).read_to_string(&mut text).is_err() {
                text.clear();
            }
            let mut records = Vec::new();
            let mut start = 0;
            for record in text.split_terminator('\x1e') {
                let mut parts = record.splitn(3, '\x1f').map(str::len);
                if let (Some(definition), Some(field), Some(_)) = (parts.next(), parts.next(), parts.next()) {
                    let definition = start + definition;
                    let field = definition + 1 + field;
                    records.push(Record { start, definition, field, end: start + record.len() });
                }
                start += record.len() + 1;
            }
            Unpacked { text, records }
        })
    }
}

impl Unpacked {
    /// The definition and the field of a record.
    fn name(&self, at: Record) -> (&str, &str) {
        let part = |from, to| self.text.get(from..to).unwrap_or_default();
        (part(at.start, at.definition), part(at.definition + 1, at.field))
    }
    /// The text of a record.
    fn text(&self, at: Record) -> Option<&str> {
        self.text.get(at.field + 1..at.end)
    }
}

impl Docs {
    /// The descriptions, all still packed.
    pub fn load() -> Self {
        let mut start = 0;
        let block = |line: &'static str| {
            let mut parts = line.split('\t');
            let (definition, field, size) = (parts.next()?, parts.next()?, parts.next()?);
            let end = start + size.parse::<usize>().ok()?;
            let packed = PACKED.get(start..end)?;
            start = end;
            Some(Block { first: (definition, field), packed, unpacked: OnceLock::new() })
        };
        Self { blocks: BLOCKS.lines().filter_map(block).collect() }
    }

    /// The description of a definition (`io.k8s.api.core.v1.Pod`), or of one of its fields.
    pub fn get(&self, definition: &str, field: Option<&str>) -> Option<&str> {
        let wanted = (definition, field.unwrap_or_default());
        let after = self.blocks.partition_point(|block| block.first <= wanted);
        let block = self.blocks.get(after.checked_sub(1)?)?.unpacked();
        let at = block.records.binary_search_by(|at| block.name(*at).cmp(&wanted)).ok()?;
        block.text(*block.records.get(at)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_found() {
        let docs = Docs::load();
        let mut count = 0;
        for block in &docs.blocks {
            let unpacked = block.unpacked();
            assert_eq!(unpacked.name(unpacked.records[0]), block.first);
            for at in &unpacked.records {
                let (definition, field) = unpacked.name(*at);
                let text = docs.get(definition, Some(field));
                assert!(text.is_some() && text == unpacked.text(*at), "{definition} {field}");
                count += 1;
            }
        }
        assert!(count > 1000, "{count}");
        assert_eq!(docs.blocks.iter().map(|block| block.packed.len()).sum::<usize>(), PACKED.len());
    }

    #[test]
    fn few_texts_unpack_little() {
        let docs = Docs::load();
        docs.get("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", Some("labels"));
        assert_eq!(docs.blocks.iter().filter(|block| block.unpacked.get().is_some()).count(), 1);
    }

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
        assert_eq!(docs.get("", None), None);
        assert_eq!(docs.get("zzz", None), None);
        let policy = docs.get("io.k8s.api.core.v1.PodSpec", Some("restartPolicy")).unwrap();
        assert!(policy.starts_with("Restart policy") && policy.ends_with("\n - `\"OnFailure\"`"), "{policy}");
    }
}
