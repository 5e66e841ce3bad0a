//! The documents of OpenAPI. None is made before somebody asks for it, and none has to be made for its hash.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use api::Text;
use api::openapi::{CustomKinds, CustomResource, Part, v3_paths, v3_protobuf};
use api::resources::ResourceInfo;
use bytes::Bytes;
use parking_lot::Mutex;
use sha2::{Digest, Sha512};

use super::definitions::Definitions;
use super::pieces::{DocumentPart, Piece, join};
use crate::aggregated::{Services, Specification, merged};
use crate::version::BUILD;

/// Makes the documents of OpenAPI, of the resources that are served.
pub trait Documents: Send + Sync + 'static {
    /// The whole of v2: as JSON, or as protobuf (`openapi.v2.Document`).
    fn v2(&self, rows: &[ResourceInfo], custom: &CustomKinds, protobuf: bool) -> Bytes;
    /// The v3 document of a path (`api/v1`, `apis/apps/v1`, `version`, …): as JSON, or as protobuf
    /// (`openapi.v3.Document`).
    fn v3(&self, rows: &[ResourceInfo], custom: &CustomKinds, path: &str, protobuf: bool) -> Option<Bytes>;
    /// A definition's part of the v3 document of its group version, as JSON.
    fn v3_part(&self, resource: &CustomResource) -> Part;
    /// The text around the parts of the v3 document of a group version that only definitions have: before their paths,
    /// between those and their schemas, after those. `refers` has the built-in schemas to which the parts refer.
    fn v3_frame(&self, group_version: (&str, &str), refers: &BTreeSet<Text>) -> [Vec<u8>; 3];
    /// The sources of all documents besides the resources.
    fn sources(&self) -> Vec<&'static [u8]>;
    /// The descriptions of some fields of definitions; "" for a field without one.
    fn describe(&self, fields: &[(&str, &str)]) -> Vec<String>;
}

/// No documents: what a server has whose clients do not ask.
pub struct NoDocuments;

impl Documents for NoDocuments {
    fn v2(&self, _: &[ResourceInfo], _: &CustomKinds, _: bool) -> Bytes {
        Bytes::new()
    }
    fn v3(&self, _: &[ResourceInfo], _: &CustomKinds, _: &str, _: bool) -> Option<Bytes> {
        None
    }
    fn v3_part(&self, _: &CustomResource) -> Part {
        Part { paths: Vec::new(), schemas: Vec::new(), refers: BTreeSet::new() }
    }
    fn v3_frame(&self, _: (&str, &str), _: &BTreeSet<Text>) -> [Vec<u8>; 3] {
        Default::default()
    }
    fn sources(&self) -> Vec<&'static [u8]> {
        Vec::new()
    }
    fn describe(&self, fields: &[(&str, &str)]) -> Vec<String> {
        vec![String::new(); fields.len()]
    }
}

/// A document, in one of its forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Document {
    /// All of v2.
    V2 {
        /// As protobuf rather than JSON.
        protobuf: bool,
    },
    /// One of v3.
    V3 {
        /// Its path.
        path: String,
        /// As protobuf rather than JSON.
        protobuf: bool,
    },
}

/// The text around the parts of a group version's document.
struct Frame {
    group_version: (Text, Text),
    refers: BTreeSet<Text>,
    pieces: [Piece; 3],
}

/// The frames that were used last: clients read a document again whenever one of its definitions changes.
type Frames = Mutex<VecDeque<Arc<Frame>>>;
/// The number of those.
const FRAMES: usize = 16;

/// The documents of a catalog.
pub(crate) struct OpenApi {
    documents: Arc<dyn Documents>,
    rows: Arc<[ResourceInfo]>,
    definitions: Definitions,
    services: Arc<Services>,
    sources: Arc<OnceLock<Sha512>>,
    frames: Arc<Frames>,
    /// The body of `/openapi/v3`.
    index: OnceLock<Bytes>,
}

impl OpenApi {
    /// Of the resources that are served.
    pub(crate) fn new(documents: Arc<dyn Documents>, rows: Vec<ResourceInfo>) -> Self {
        let (definitions, services) = Default::default();
        Self {
            documents,
            rows: rows.into(),
            definitions,
            services,
            sources: Arc::default(),
            frames: Arc::default(),
            index: OnceLock::new(),
        }
    }
    /// The documents with those of definitions.
    pub(crate) fn with_definitions(&self, definitions: Definitions) -> Self {
        Self {
            documents: Arc::clone(&self.documents),
            rows: Arc::clone(&self.rows),
            definitions,
            services: Arc::clone(&self.services),
            sources: Arc::clone(&self.sources),
            frames: Arc::clone(&self.frames),
            index: OnceLock::new(),
        }
    }
    /// The documents with those of other servers.
    pub(crate) fn with_services(&self, services: Arc<Services>) -> Self {
        Self {
            documents: Arc::clone(&self.documents),
            rows: Arc::clone(&self.rows),
            definitions: self.definitions.clone(),
            services,
            sources: Arc::clone(&self.sources),
            frames: Arc::clone(&self.frames),
            index: OnceLock::new(),
        }
    }
    /// Makes a document; `None` if there is none of its path.
    pub(crate) fn make(&self, document: &Document) -> Option<Bytes> {
        match document {
            Document::V2 { protobuf } => Some(self.v2(*protobuf)),
            Document::V3 { path, protobuf } => match self.converted(path) {
                None => self.documents.v3(&self.rows, &self.shown(document), path, *protobuf),
                Some(part) if *protobuf => v3_protobuf(&part.converted()?).map(Bytes::from),
                Some(part) => part.converted().map(Bytes::from),
            },
        }
    }
    /// The v3 document of a group version that only definitions have, as JSON in gzip; `None` for others. Only the parts
    /// of definitions that are new have to be made.
    pub(crate) fn joined(&self, path: &str) -> Option<Bytes> {
        let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
        let built_in = self.rows.iter().any(|row| row.group == group && row.version == version);
        if built_in || self.converted(path).is_some() {
            return None;
        }
        let mut parts = Vec::new();
        for resource in self.definitions.of_group(group) {
            let Some(shown) = resource.shown().find(|shown| shown.version == version) else { continue };
            parts.push(resource.part(version, || {
                let Part { paths, schemas, refers } = self.documents.v3_part(&shown);
                DocumentPart { paths: Piece::new(&paths), schemas: Piece::new(&schemas), refers }
            }));
        }
        if parts.is_empty() {
            return None;
        }
        let refers = parts.iter().flat_map(|part| part.refers.iter().cloned()).collect();
        let frame = self.frame((group, version), refers);
        let [before, between, after] = &frame.pieces;
        let paths = parts.iter().map(|part| &part.paths);
        let schemas = parts.iter().map(|part| &part.schemas);
        Some(join([before].into_iter().chain(paths).chain([between]).chain(schemas).chain([after])))
    }
    fn frame(&self, (group, version): (&str, &str), refers: BTreeSet<Text>) -> Arc<Frame> {
        let mut frames = self.frames.lock();
        let known = frames.iter().position(|frame| {
            frame.group_version.0 == group && frame.group_version.1 == version && frame.refers == refers
        });
        let frame = known.and_then(|at| frames.remove(at)).unwrap_or_else(|| {
            let texts = self.documents.v3_frame((group, version), &refers);
            let pieces = texts.map(|text| Piece::new(&text));
            Arc::new(Frame { group_version: (group.into(), version.into()), refers, pieces })
        });
        frames.push_front(Arc::clone(&frame));
        frames.truncate(FRAMES);
        frame
    }
    /// The kinds of definitions that a document shows.
    fn shown(&self, document: &Document) -> CustomKinds {
        CustomKinds::new(match document {
            Document::V2 { .. } => self.definitions.iter().flat_map(|r| r.shown()).collect(),
            Document::V3 { path, .. } => {
                let mut names = path.strip_prefix("apis/").into_iter().flat_map(|rest| rest.split('/'));
                let (group, version) = (names.next().unwrap_or_default(), names.next());
                let of_group = self.definitions.of_group(group).flat_map(|r| r.shown());
                of_group.filter(|r| version.is_none_or(|version| r.version == version)).collect()
            }
        })
    }
    /// The part of v2 of another server, of which a document of v3 is made.
    fn converted(&self, path: &str) -> Option<&Specification> {
        let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
        self.services.find(group, version)?.converted()
    }
    /// The whole of v2, with the parts of other servers.
    fn v2(&self, protobuf: bool) -> Bytes {
        let custom = self.shown(&Document::V2 { protobuf });
        let mut parts = self.services.elsewhere().filter_map(|e| e.v2.as_deref()).peekable();
        if parts.peek().is_none() {
            return self.documents.v2(&self.rows, &custom, protobuf);
        }
        let own = self.documents.v2(&self.rows, &custom, false);
        let all = merged(&own, parts).map(Bytes::from).unwrap_or(own);
        if !protobuf {
            return all;
        }
        let packed = api::openapi::v2_protobuf_of(&all).map(Bytes::from);
        packed.unwrap_or_else(|| self.documents.v2(&self.rows, &custom, true))
    }
    /// The hash of a document, by all that it is made of: another hash is another document. The forms of a document
    /// of v3 have one hash, which also stands in its address.
    pub(crate) fn hash(&self, document: &Document) -> String {
        if let Document::V3 { path, .. } = document
            && let Some(part) = self.converted(path)
        {
            return part.hash.clone();
        }
        let sources = self.sources.get_or_init(|| {
            let mut digest = Sha512::new_with_prefix(BUILD.version);
            for source in self.documents.sources() {
                digest.update((source.len() as u64).to_be_bytes());
                digest.update(source);
            }
            digest
        });
        let (name, of_document): (String, &dyn Fn(&&ResourceInfo) -> bool) = match document {
            Document::V2 { protobuf } => (format!("v2 {protobuf}"), &|_| true),
            Document::V3 { path, .. } => (format!("v3 {path}"), &|row| concerns(path, row)),
        };
        let mut made_of = name;
        for row in self.rows.iter().filter(of_document) {
            // Writing to a string cannot fail.
            let _ = write!(made_of, "\n{row:?}");
        }
        for r in self.shown(document).resources() {
            let _ = write!(made_of, "\n{} {} {} {}", r.group, r.version, r.plural, r.hash);
        }
        if matches!(document, Document::V2 { .. }) {
            for part in self.services.elsewhere().filter_map(|e| e.v2.as_ref()) {
                made_of.push('\n');
                made_of.push_str(&part.hash);
            }
        }
        format!("{:X}", sources.clone().chain_update(made_of).finalize())
    }
    /// The body of `/openapi/v3`: every document with its address.
    pub(crate) fn index(&self) -> Bytes {
        let index = self.index.get_or_init(|| {
            let entry = |path: String| {
                let hash = self.hash(&Document::V3 { path: path.clone(), protobuf: false });
                format!("\"{path}\":{{\"serverRelativeURL\":\"/openapi/v3/{path}?hash={hash}\"}}")
            };
            let custom = self.shown(&Document::V2 { protobuf: false });
            let mut all: BTreeMap<String, String> =
                v3_paths(&self.rows, &custom).into_iter().map(|path| (path.clone(), entry(path))).collect();
            for other in self.services.elsewhere() {
                let path = format!("apis/{}/{}", other.group, other.version);
                let Some(hash) = &other.v3 else {
                    if other.converted().is_some() {
                        all.insert(path.clone(), entry(path));
                    }
                    continue;
                };
                let query = if hash.is_empty() { String::new() } else { format!("?hash={hash}") };
                let entry = format!("\"{path}\":{{\"serverRelativeURL\":\"/openapi/v3/{path}{query}\"}}");
                all.insert(path, entry);
            }
            let entries: Vec<String> = all.into_values().collect();
            Bytes::from(format!("{{\"paths\":{{{}}}}}", entries.join(",")))
        });
        index.clone()
    }
    /// Whether there is a document of v3 of this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        let of_definitions = || match path.split('/').collect::<Vec<_>>()[..] {
            ["apis", group, version] => {
                let mut all = self.definitions.of_group(group).flat_map(|r| &r.entries);
                all.any(|r| r.version == version)
            }
            ["apis", group] => self.definitions.of_group(group).any(|r| !r.entries.is_empty()),
            _ => false,
        };
        let built_in = || v3_paths(&self.rows, &CustomKinds::default()).iter().any(|known| known == path);
        self.converted(path).is_some() || of_definitions() || built_in()
    }
}

/// Whether a resource stands in a document of v3. Of a group's own document, and of those of no group, all decide.
fn concerns(path: &str, row: &ResourceInfo) -> bool {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["api", version] => row.group.is_empty() && row.version == version,
        ["apis", group, version] => row.group == group && row.version == version,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Documents that are made of one text.
    struct Of(&'static str);

    impl Documents for Of {
        fn v2(&self, _: &[ResourceInfo], _: &CustomKinds, _: bool) -> Bytes {
            self.0.into()
        }
        fn v3(&self, _: &[ResourceInfo], _: &CustomKinds, _: &str, _: bool) -> Option<Bytes> {
            Some(self.0.into())
        }
        fn v3_part(&self, of: &CustomResource) -> Part {
            let paths = format!(" {}", of.kind).into();
            Part { paths, schemas: vec![b'.'], refers: BTreeSet::from([of.kind.clone()]) }
        }
        fn v3_frame(&self, of: (&str, &str), refers: &BTreeSet<Text>) -> [Vec<u8>; 3] {
            [format!("{of:?} {refers:?}").into(), b" ".into(), b"!".into()]
        }
        fn sources(&self) -> Vec<&'static [u8]> {
            vec![self.0.as_bytes()]
        }
        fn describe(&self, _: &[(&str, &str)]) -> Vec<String> {
            Vec::new()
        }
    }

    #[test]
    fn another_hash_is_another_document() {
        let rows = |gone: &str| -> Vec<ResourceInfo> {
            let all = api::resources::builtin().iter().filter(|r| r.served_by_default && r.resource != gone);
            all.cloned().collect()
        };
        let hash = |text, gone, path: &str, protobuf| {
            let of = OpenApi::new(Arc::new(Of(text)), rows(gone));
            match path {
                "v2" => of.hash(&Document::V2 { protobuf }),
                path => of.hash(&Document::V3 { path: path.into(), protobuf }),
            }
        };
        let apps = hash("a", "", "apis/apps/v1", false);
        assert_eq!(hash("a", "", "apis/apps/v1", true), apps, "one hash for both forms");
        assert_eq!(hash("a", "jobs", "apis/apps/v1", false), apps, "another group's resource");
        assert_ne!(hash("a", "deployments", "apis/apps/v1", false), apps);
        assert_ne!(hash("b", "", "apis/apps/v1", false), apps);
        assert_ne!(hash("a", "", "apis/batch/v1", false), apps);
        assert_ne!(hash("a", "", "v2", false), hash("a", "", "v2", true), "two tags for two forms");
        assert_ne!(hash("a", "", "v2", false), hash("a", "jobs", "v2", false));
    }
}
