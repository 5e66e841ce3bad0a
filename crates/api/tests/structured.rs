//! Cases of upstream's test of merging (`structured-merge-diff`, `merge/*_test.go`): applies and updates one after the
//! other, the resulting object, and who manages which of its fields.
//!
//! These cases are left out: those on several versions with different fields, those without a schema, those whose maps
//! hold null, which typed maps do not, and those in which one manager both applies and updates: in managedFields these
//! are two entries.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where it can't go on")]

use std::collections::{BTreeMap, HashMap};

use ferrokube_api::codec::json;
use ferrokube_api::managed::{ApplyError, Taken, Writer};
use ferrokube_api::schema::{AnyKind, Field, ListKind, StructType};
use ferrokube_api::{FieldNo, Gvk, Node, Schema, Struct, StructId, Type, TypeId};
use serde_json::{Value, json as value};

/// Makes a schema of this crate from a schema of that library.
#[derive(Default)]
struct Builder<'a> {
    named: BTreeMap<&'a str, &'a Value>,
    made: BTreeMap<&'a str, TypeId>,
    types: Vec<Type>,
    structs: Vec<StructType>,
}

impl<'a> Builder<'a> {
    fn push(&mut self, ty: Type) -> TypeId {
        self.types.push(ty);
        TypeId(self.types.len() as u32 - 1)
    }
    fn list(&mut self, of: TypeId, kind: ListKind) -> TypeId {
        self.push(Type::List { of, kind })
    }
    fn field(json: &str, ty: TypeId) -> Field {
        Field {
            json: json.into(),
            proto: 0,
            proto_in: smallvec::SmallVec::new(),
            ty,
            pointer: true,
            omitempty: true,
            required: false,
            default: None,
            values: Vec::new(),
            patch: ferrokube_api::schema::PatchStrategy::default(),
            gates: smallvec::SmallVec::new(),
            mark: None,
        }
    }
    fn structure(&mut self, name: &str, fields: Vec<Field>) -> TypeId {
        self.structs.push(StructType {
            name: name.into(),
            fields,
            atomic: false,
            kind: name == "root",
            union: None,
            by_json: Vec::new(),
            message: Vec::new(),
            names: ferrokube_api::schema::NameIndex::default(),
            rest: None,
        });
        self.push(Type::Struct(StructId::unmarked(self.structs.len() - 1)))
    }
    fn ty(&mut self, spec: &'a Value) -> TypeId {
        if let Some(name) = spec["namedType"].as_str() {
            if let Some(id) = self.made.get(name) {
                return *id;
            }
            // The type may hold itself.
            let id = self.push(Type::Bool);
            self.made.insert(name, id);
            let made = self.ty(self.named[name]);
            self.types[id.0 as usize] = self.types[made.0 as usize].clone();
            return id;
        }
        if let Some(scalar) = spec["scalar"].as_str() {
            return self.push(match scalar {
                "string" => Type::String,
                "boolean" => Type::Bool,
                "numeric" => Type::Int64,
                other => panic!("{other}"),
            });
        }
        if let Some(list) = spec.get("list") {
            let of = self.ty(&list["elementType"]);
            let kind = match (list["elementRelationship"].as_str(), &self.types[of.0 as usize]) {
                (Some("associative"), Type::Struct(id)) => {
                    let st = &self.structs[id.place()];
                    let number = |k: &Value| st.fields.iter().position(|f| f.json == k.as_str().unwrap());
                    let keys = list["keys"].as_array().unwrap().iter();
                    ListKind::Map(keys.map(|k| FieldNo(number(k).unwrap() as u16)).collect())
                }
                (Some("associative"), _) => ListKind::Set,
                _ => ListKind::Atomic,
            };
            return self.list(of, kind);
        }
        let map = &spec["map"];
        if let Some(fields) = map["fields"].as_array() {
            let fields = self.fields(fields);
            return self.structure("part", fields);
        }
        let of = self.ty(&map["elementType"]);
        self.push(Type::Map { of, atomic: map["elementRelationship"] == "atomic" })
    }
    fn fields(&mut self, fields: &'a [Value]) -> Vec<Field> {
        let mut out = Vec::new();
        for f in fields {
            let name = f["name"].as_str().unwrap();
            let ty = if name == "float" { self.push(Type::Float64) } else { self.ty(&f["type"]) };
            out.push(Self::field(name, ty));
        }
        out
    }
    /// The root has the metadata of an object besides its fields.
    fn build(mut self, root: &str) -> (Schema, StructId) {
        let text = self.push(Type::String);
        let fields_v1 = self.push(Type::Any(AnyKind::FieldsV1));
        let names = ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];
        let entry = names.map(|n| Self::field(n, if n == "fieldsV1" { fields_v1 } else { text })).to_vec();
        let entry = self.structure("entry", entry);
        let entries = self.list(entry, ListKind::Atomic);
        let notes = self.push(Type::Map { of: text, atomic: false });
        let metadata = vec![
            Self::field("name", text),
            Self::field("annotations", notes),
            Self::field("managedFields", entries),
        ];
        let metadata = self.structure("metadata", metadata);
        let mut fields = vec![
            Self::field("kind", text),
            Self::field("apiVersion", text),
            Self::field("metadata", metadata),
        ];
        let spec = self.named[root];
        fields.extend(self.fields(spec["map"]["fields"].as_array().unwrap()));
        self.structure("root", fields);
        let schema = Schema::new(self.types, self.structs, HashMap::new());
        let root = schema.named("root").unwrap();
        (schema, root)
    }
}

fn node(value: &Value) -> Node {
    json::decode_any(value.to_string().as_bytes()).unwrap()
}

/// The object without its metadata, and the fields of its managers.
fn shown(schema: &Schema, tree: &Struct) -> (Value, BTreeMap<String, Value>) {
    let mut text = Vec::new();
    json::encode(schema, tree, &mut text);
    let mut object: Value = serde_json::from_slice(&text).unwrap();
    let map = object.as_object_mut().unwrap();
    let metadata = map.remove("metadata").unwrap_or_default();
    map.remove("kind");
    map.remove("apiVersion");
    let entries = metadata["managedFields"].as_array().cloned().unwrap_or_default();
    let managed = entries
        .iter()
        .map(|e| (e["manager"].as_str().unwrap().to_owned(), e["fieldsV1"].clone()))
        .filter(|(_, fields)| *fields != value!({}))
        .collect();
    (object, managed)
}

fn run(schema: &Schema, root: StructId, case: &Value) -> Result<Option<Struct>, String> {
    let mut live: Option<Struct> = None;
    for op in case["ops"].as_array().unwrap() {
        let (version, manager) = (op["version"].as_str().unwrap(), op["manager"].as_str().unwrap());
        let writer = Writer {
            schema,
            api_version: version,
            subresource: "",
            manager,
            now: "2024-01-01T00:00:00Z",
            taken: Taken::All,
            versions: None,
        };
        let mut object = op["object"].as_object().cloned().unwrap_or_default();
        if op["op"] == "Update" {
            let new = json::root_from_any(schema, root, node(&Value::Object(object))).unwrap();
            let mut new = new.tree;
            writer.update(live.as_ref(), &mut new);
            live = Some(new);
            continue;
        }
        for (key, text) in [("apiVersion", version), ("kind", "Type")] {
            object.insert(key.into(), text.into());
        }
        object.insert("metadata".into(), value!({}));
        let kind = Gvk::new("", version, "Type");
        let force = op["op"] == "ForceApply";
        let config = node(&Value::Object(object));
        match writer.apply(&kind, root, live.as_ref(), config, force) {
            Ok(applied) if op.get("conflicts").is_none() => live = Some(applied.object),
            Err(ApplyError::Conflicts(_)) if op.get("conflicts").is_some() => {}
            other => return Err(format!("{op}: {other:?}")),
        }
    }
    Ok(live)
}

#[test]
fn upstream_cases() {
    let data: Value = serde_json::from_str(include_str!("data/structured.json")).unwrap();
    let schemas: BTreeMap<&str, (Schema, StructId)> = data["schemas"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, spec)| {
            let types = spec["types"].as_array().unwrap().iter();
            let named = types.map(|t| (t["name"].as_str().unwrap(), t)).collect();
            let builder = Builder { named, ..Builder::default() };
            (name.as_str(), builder.build(spec["root"].as_str().unwrap()))
        })
        .collect();
    let cases = data["cases"].as_array().unwrap();
    let mut wrong = Vec::new();
    for case in cases {
        let (schema, root) = &schemas[case["schema"].as_str().unwrap()];
        match run(schema, *root, case) {
            Err(e) => wrong.push(format!("{}: {e}", case["name"])),
            Ok(live) => {
                let (object, managed) = live.map(|l| shown(schema, &l)).unwrap_or_default();
                if case.get("object").is_some_and(|e| *e != object) {
                    wrong.push(format!("{}: object {}\n  got {object}", case["name"], case["object"]));
                }
                let expected: Option<BTreeMap<String, Value>> =
                    case.get("managed").map(|m| serde_json::from_value(m.clone()).unwrap());
                if expected.as_ref().is_some_and(|e| *e != managed) {
                    wrong.push(format!("{}: managed {expected:?}\n  got {managed:?}", case["name"]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
