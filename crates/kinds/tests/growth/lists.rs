//! Each list and map of every kind, through every pure step of a request.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use api::codec::{json, proto};
use api::managed::{Taken, Writer};
use api::patch;
use api::resources::{ResourceInfo, builtin};
use api::schema::{Gvk, Type};
use api::{Gate, Node, Schema, Status, Struct, StructId};
use ferrokube_kinds as kinds;
use kinds::gated::Gated;
use kinds::validation::meta;
use kinds::{Ctx, Strategy, strategy};
use serde_json::{Value, json};

use super::measure::{Times, too_fast};
use super::sample::{Place, VARIANTS, Variant, fill, places, shown};

/// The number of entries at the first size.
const N: usize = 320;

/// An object of each kind that other tests recorded.
static RECORDED: LazyLock<BTreeMap<(String, String), Value>> = LazyLock::new(|| {
    let mut out = BTreeMap::new();
    for table in [
        include_str!("../data/edges.jsonl"),
        include_str!("../data/gates.jsonl"),
        include_str!("../data/columns.json"),
    ] {
        for row in table.lines().map(|l| l.parse::<Value>().unwrap()) {
            let object = &row["object"];
            let text = |f: &str| object[f].as_str().unwrap_or_default().to_owned();
            out.entry((text("apiVersion"), text("kind"))).or_insert_with(|| object.clone());
        }
    }
    out
});

static GATED: LazyLock<Gated> = LazyLock::new(|| {
    let off: Vec<Gate> = Gate::all().filter(|g| g.name().starts_with('P')).collect();
    Gated::new(Schema::builtin(), crate::support::all_but(&off))
});

struct Case {
    info: &'static ResourceInfo,
    kind: Gvk,
    root: StructId,
    place: Place,
    rules: Arc<dyn Strategy>,
}

/// Every list and map, each at the first kind in which it is.
fn cases() -> Vec<Case> {
    let schema = Schema::builtin();
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    // Pods come first: structs that templates share with them are looked at there.
    let (pods, others): (Vec<_>, Vec<_>) = builtin().iter().partition(|r| r.kind == "Pod");
    for info in pods.into_iter().chain(others) {
        let kind = Gvk::new(info.group, info.version, info.kind);
        let Some(root) = schema.kind(&kind) else { continue };
        let rules = strategy(info.group, info.resource);
        for place in places(schema, root, &mut seen) {
            out.push(Case { info, kind: kind.clone(), root, place, rules: Arc::clone(&rules) });
        }
    }
    out
}

impl Case {
    fn text(&self, n: usize, v: Variant, resource_version: &str) -> Vec<u8> {
        let schema = Schema::builtin();
        let known = (self.kind.api_version().to_string(), self.kind.kind.to_string());
        let mut object = RECORDED.get(&known).cloned().unwrap_or_else(|| json!({}));
        fill(schema, &mut object, &self.place, n, v);
        object["apiVersion"] = json!(self.kind.api_version().as_str());
        object["kind"] = json!(self.kind.kind.as_str());
        if object["metadata"]["name"].as_str().is_none() {
            object["metadata"]["name"] = json!("a");
        }
        if self.info.namespaced {
            object["metadata"]["namespace"] = json!("b");
        }
        object["metadata"]["resourceVersion"] = json!(resource_version);
        object.to_string().into_bytes()
    }

    /// The steps of a request that read the text of an object.
    fn read(&self, t: &mut Times, text: &[u8]) -> Option<Struct> {
        let schema = Schema::builtin();
        let mut tree = t.step("decode", || json::decode(schema, self.root, text)).ok()?.tree;
        t.step("default", || super::DEFAULTS.apply(schema, &mut tree));
        match &self.rules.facts().storage {
            Some(storage) if storage.kind != self.kind => {
                t.step("convert", || self.rules.convert(schema, tree, &self.kind, &storage.kind)).ok()
            }
            _ => Some(tree),
        }
    }

    fn rules_of_a_write(&self, t: &mut Times, new: &Struct, old: &Struct) {
        let schema = Schema::builtin();
        let warn = |_: String| {};
        let ctx = Ctx {
            schema,
            now: "2026-01-02T03:04:05Z",
            gates: crate::support::all_but(&[Gate::ImageVolumeWithDigest]),
            privileged: true,
            warn: &warn,
        };
        let rules = &self.rules;
        let mut found = Vec::new();
        let mut tree = new.clone();
        t.step("drop", || (*GATED).strip(&mut tree, Some(old)));
        let mut tree = new.clone();
        t.step("prepare a create", || rules.prepare_create(&ctx, &mut tree));
        found.push(t.step("validate a create", || rules.validate(&ctx, &tree)));
        found
            .push(t.step("check metadata", || meta::common_update(schema, &tree, old, self.info.namespaced)));
        t.step("warn of a create", || rules.warnings(&ctx, &tree, None));
        let mut tree = new.clone();
        t.step("prepare an update", || rules.prepare_update(&ctx, &mut tree, old));
        found.push(t.step("validate an update", || rules.validate_update(&ctx, &tree, old)));
        t.step("warn of an update", || rules.warnings(&ctx, &tree, Some(old)));
        for sub in self.info.subresources.iter().filter_map(|s| rules.subresource(s.name)) {
            let mut tree = new.clone();
            t.step("prepare a subresource", || sub.prepare_update(&ctx, &mut tree, old));
            found.push(t.step("validate a subresource", || sub.validate_update(&ctx, &tree, old)));
        }
        for errors in &found {
            t.step("make a Status", || Status::invalid("", "Thing", "a", errors).to_json());
        }
        t.step("select", || rules.field_values(schema, new, &mut Vec::new()));
        t.step("columns", || rules.row(schema, new, "2026-01-02T03:04:05Z".parse().unwrap()));
    }

    /// The steps of the rules, for a write that reverses the order.
    fn rules_at(&self, n: usize, v: Variant, t: &mut Times) {
        let Some(old) = self.read(t, &self.text(n, v, "1")) else { return };
        let mut new = old.clone();
        turn_around(&mut new);
        self.rules_of_a_write(t, &new, &old);
    }

    /// The properties of the place that matter to steps which know only the schema.
    fn form(&self) -> String {
        let schema = Schema::builtin();
        let (id, no) = self.place[self.place.len() - 1];
        let f = schema.st(id).at(no);
        let of = match schema.ty(f.ty) {
            Type::List { of, kind } => format!("{kind:?} {:?}", std::mem::discriminant(schema.ty(*of))),
            ty => format!("{:?}", std::mem::discriminant(ty)),
        };
        format!("{of} {:?} {:?} {}", f.patch, f.mark, f.pointer)
    }

    /// The steps that know only the schema.
    fn forms_at(&self, n: usize, v: Variant, t: &mut Times) {
        let schema = Schema::builtin();
        let Ok(decoded) = json::decode(schema, self.root, &self.text(n, v, "1")) else { return };
        let (old, mut new) = (decoded.tree.clone(), decoded.tree);
        turn_around(&mut new);
        t.step("encode", || json::encode(schema, &new, &mut Vec::new()));
        let message = t.step("encode protobuf", || proto::encode_message(schema, &new));
        t.step("decode protobuf", || proto::decode_message(schema, self.root, &message)).unwrap();
        let (before, after) = (json::to_any(schema, &old), json::to_any(schema, &new));
        let _ = t.step("from a value", || json::root_from_any(schema, self.root, after.clone()));
        t.step("merge", || patch::merge(before.clone(), after.clone()));
        let _ = t.step("merge strategically", || {
            patch::strategic(schema, self.root, before.clone(), after.clone())
        });
        let writer = |manager| Writer {
            schema,
            api_version: "v1",
            subresource: "",
            manager,
            now: "2026-01-02T03:04:05Z",
            taken: Taken::All,
            versions: None,
        };
        let kind = Gvk::new("", "v1", "Thing");
        let config = |node: &Node| {
            let mut m = node.as_map().unwrap().clone();
            m.insert("apiVersion", "v1");
            m.insert("kind", "Thing");
            if let Some(meta) = m.get_mut("metadata").and_then(Node::as_map_mut) {
                meta.remove("managedFields");
            }
            Node::Map(m)
        };
        let Ok(one) =
            t.step("apply", || writer("one").apply(&kind, self.root, Some(&old), config(&before), false))
        else {
            return;
        };
        let _ = t.step("apply again", || {
            writer("one").apply(&kind, self.root, Some(&one.object), config(&after), false)
        });
        let _ = t.step("conflict", || {
            writer("two").apply(&kind, self.root, Some(&one.object), config(&after), false)
        });
        let mut changed = one.object.clone();
        turn_around(&mut changed);
        t.step("update managers", || writer("three").update(Some(&one.object), &mut changed));
    }
}

/// Reverses the order of the longest list.
fn turn_around(tree: &mut Struct) {
    fn find(node: &mut Node) {
        match node {
            Node::List(l) if l.len() > 16 => l.reverse(),
            Node::List(l) => l.iter_mut().for_each(find),
            Node::Map(m) => m.iter_mut().for_each(|(_, n)| find(n)),
            Node::Struct(s) => turn_around(s),
            _ => {}
        }
    }
    tree.iter_mut().for_each(|(_, n)| find(n));
}

fn part_of_all(part: u64, parts: u64) {
    let schema = Schema::builtin();
    let mut wrong = Vec::new();
    let mut forms = HashSet::new();
    for case in cases() {
        let new_form = forms.insert(case.form());
        let name = format!("{} {}", case.kind.kind, shown(schema, &case.place));
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        if hasher.finish() % parts != part {
            continue;
        }
        for v in VARIANTS {
            let what = format!("{name} ({v:?})");
            wrong.extend(too_fast(&what, N, &|n, t| case.rules_at(n, v, t)));
            if new_form && v == Variant::Distinct {
                wrong.extend(too_fast(&what, N / 2, &|n, t| case.forms_at(n, v, t)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} steps grow too fast:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_list_first_part() {
    part_of_all(0, 3);
}

#[test]
fn every_list_second_part() {
    part_of_all(1, 3);
}

#[test]
fn every_list_third_part() {
    part_of_all(2, 3);
}

#[test]
fn the_walk_finds_the_lists() {
    let schema = Schema::builtin();
    let all: HashSet<String> =
        cases().iter().map(|c| format!("{} {}", c.kind.kind, shown(schema, &c.place))).collect();
    for known in [
        "Pod metadata.ownerReferences",
        "Pod metadata.labels",
        "Pod spec.containers.ports",
        "Pod spec.containers.resources.claims",
        "Role rules.verbs",
        "NetworkPolicy spec.ingress.from.ipBlock.except",
        "EndpointSlice endpoints.addresses",
        "Ingress spec.rules.http.paths",
    ] {
        assert!(all.iter().any(|n| n == known || n.replace("ClusterRole", "Role") == known), "{known}");
    }
    assert!(all.len() > 450, "{}", all.len());
}
