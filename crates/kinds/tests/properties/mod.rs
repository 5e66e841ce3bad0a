//! Properties that hold for any definition, object and path. The fuzz targets in `fuzz/` run these, too.

use std::sync::{Arc, OnceLock};

use api::codec::json;
use api::schema::{CustomKind, Gvk};
use api::view::View;
use api::{FeatureGates, Map, Node, Schema};
use ferrokube_kinds::custom::{CustomStrategy, Definition, JsonPath};
use ferrokube_kinds::{Ctx, Strategy, strategy};
use jiff::Timestamp;

/// A property, and the name of its seeds and of its fuzz target.
pub type Property = (&'static str, fn(&[u8]));

/// All properties.
pub const ALL: [Property; 2] = [("definition", definitions), ("json_path", json_paths)];

/// The most errors that an answer shows, and one that tells of the rest.
const MOST_ERRORS: usize = 2_000;

/// The first line is the schema of a definition, the others are objects: whatever they are, they are refused or taken
/// with a bounded number of errors, pruning and defaulting change nothing a second time, and an object that is valid
/// stays so when nothing changes.
pub fn definitions(data: &[u8]) {
    let mut lines = data.split(|b| *b == b'\n');
    let Some(Ok(schema)) = lines.next().map(std::str::from_utf8) else { return };
    let text = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"xs.g.io"}},
        "spec":{{"group":"g.io","names":{{"plural":"xs","singular":"x","kind":"X","listKind":"XList"}},"scope":"Cluster",
        "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{schema}}}}}]}},
        "status":{{"storedVersions":["v1"]}}}}"#
    );
    let all = Schema::builtin();
    let of = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let Some(root) = all.kind(&of) else { panic!("there are definitions") };
    let Ok(decoded) = json::decode(all, root, text.as_bytes()) else { return };
    let warn = |_: String| {};
    let ctx = Ctx {
        schema: all,
        now: "2026-01-02T03:04:05Z",
        gates: FeatureGates::default(),
        privileged: true,
        warn: &warn,
    };
    let errs = strategy("apiextensions.k8s.io", "customresourcedefinitions").validate(&ctx, &decoded.tree);
    assert!(errs.len() <= MOST_ERRORS, "{} errors", errs.len());
    // One that is stored is read, whatever may be wrong with it.
    let definition = Definition::of(View::new(all, &decoded.tree));
    let Some(version) = definition.versions.first() else { return };
    let Some(root) = all.custom_root("g.io.v1.X", Arc::clone(&version.schema)) else { return };
    let kind = Gvk::new("g.io", "v1", "X");
    let own = CustomKind { kind: kind.clone(), number: 0, root: Arc::new(root) };
    let schema = all.with_custom([&own]);
    let strategy = CustomStrategy::new(&definition, version);
    let ctx = Ctx { schema: &schema, ..ctx };
    for object in lines {
        let Some(root) = schema.kind(&kind) else { return };
        let Ok(decoded) = json::decode(&schema, root, object) else { continue };
        let tree = decoded.tree;
        if let Some(rest) = &schema.st(root).rest
            && let Some(values) = tree.get(rest.field).and_then(Node::as_map)
        {
            let mut once = values.clone();
            version.schema.prune(&mut once);
            version.schema.apply_defaults(&mut once);
            let mut twice = once.clone();
            let unknown = version.schema.prune(&mut twice);
            version.schema.apply_defaults(&mut twice);
            if errs.is_empty() {
                assert!(unknown.is_empty(), "{unknown:?} are pruned later");
                assert_eq!(once, twice, "pruned and defaulted twice");
            }
        }
        let found = strategy.validate(&ctx, &tree);
        assert!(found.len() <= MOST_ERRORS, "{} errors", found.len());
        strategy.validate_update(&ctx, &tree, &tree);
        strategy.row(&schema, &tree, Timestamp::UNIX_EPOCH);
    }
}

/// Any path is refused, or finds a bounded number of values in any object.
pub fn json_paths(data: &[u8]) {
    static OBJECT: OnceLock<Map> = OnceLock::new();
    let object = OBJECT.get_or_init(|| {
        let text = br#"{"a":{"b":[{"t":"x","v":1},{"t":"y","v":2.5},null,[1,2,[3]]],"c.d":"e","f":{"g":true}},"n":3}"#;
        match json::decode_any(text) {
            Ok(Node::Map(map)) => map,
            other => panic!("{other:?} is no object"),
        }
    });
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(path) = JsonPath::parse(text) {
        let found = path.find(object);
        assert!(found.len() <= 100_000, "{} values", found.len());
    }
}
