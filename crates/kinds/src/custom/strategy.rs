//! The rules of a definition's kind in one version.

use std::sync::{Arc, OnceLock};

use api::field::{Errors, Path};
use api::managed::{FieldSet, Taken};
use api::names::{self, name_subdomain, path_segment};
use api::schema::Gvk;
use api::status::FieldError;
use api::structural::Structural;
use api::view::View;
use api::{Map, Node, Schema, Struct, Text};
use jiff::Timestamp;

use super::definition::{Definition, ScalePaths, Version};
use super::json_path::JsonPath;
use super::object::{copy, values, values_mut, whole};
use super::rules::{self, Rules};
use super::table::Table;
use crate::columns::Row;
use crate::convert::NoConversion;
use crate::scale::{Scale, SelectorForm};
use crate::strategies::generic::set_generation;
use crate::strategy::{
    Ctx, Deletion, Deprecated, Facts, Grace, SelectableField, Storage, Strategy, Subresource,
};
use crate::validation::meta::{object_meta, object_meta_at, object_meta_update};

/// The rules of a definition's kind in one version.
pub struct CustomStrategy {
    facts: Facts,
    namespaced: bool,
    schema: Arc<Structural>,
    /// The rules of the subresource `status`, if it has one.
    status: Option<StatusRules>,
    scale: Option<ScalePaths>,
    selectable: Vec<Option<JsonPath>>,
    table: Table,
    /// The rules in the expression language, compiled when the first object comes.
    rules: Arc<OnceLock<Option<Rules>>>,
    kind: Gvk,
    /// The fields that writes of the object reset.
    reset: FieldSet,
    /// The fields that writes of the status reset.
    reset_by_status: FieldSet,
}

struct StatusRules {
    schema: Arc<Structural>,
    scale: Option<ScalePaths>,
    rules: Arc<OnceLock<Option<Rules>>>,
    kind: Gvk,
}

/// Asks the rules in the expression language about an object, unless errors were found that keep them from it.
fn ask_rules(
    c: &Ctx<'_>,
    errs: &mut Errors,
    (rules, kind, schema): (&OnceLock<Option<Rules>>, &Gvk, &Structural),
    new: &Struct,
    old: Option<&Struct>,
) {
    let Some(rules) = rules.get_or_init(|| Rules::of_stored(schema)) else { return };
    if let Some(why) = rules::blocked(errs) {
        errs.append_list(vec![why]);
        return;
    }
    let object = |tree: &Struct| {
        let meta = View::new(c.schema, tree).st("metadata");
        let names =
            ["generateName", "name"].into_iter().filter_map(|n| Some((n.into(), meta.get(n)?.clone())));
        let empty = Map::new();
        let values = values(c.schema, tree).unwrap_or(&empty);
        rules::object(values, &kind.api_version(), &kind.kind, Map::from_entries(names.collect()))
    };
    let (new, old) = (object(new), old.map(object));
    rules.validate(schema, errs, c.warn, &new, old.as_ref());
}

/// The path of a Scale's number as names: upstream splits it at each point.
fn path_names(path: &str) -> Vec<Text> {
    path.strip_prefix('.').unwrap_or(path).split('.').map(Text::from).collect()
}

fn field_set(names: &[&str]) -> FieldSet {
    let entries = names.iter().map(|name| (format!("f:{name}").into(), Node::Map(Map::new())));
    FieldSet::from_node(&Node::Map(Map::from_entries(entries.collect()))).unwrap_or_default()
}

impl CustomStrategy {
    /// The rules of a version.
    pub fn new(definition: &Definition, version: &Version) -> Self {
        let table = Table::new(&version.columns);
        let scale = version.scale.as_ref().map(|s| Scale {
            replicas: path_names(&s.spec_replicas),
            status_replicas: path_names(&s.status_replicas),
            selector: s.selector.as_deref().map(path_names).unwrap_or_default(),
            form: SelectorForm::Text,
        });
        let fields = version.selectable.iter().map(|path| SelectableField {
            path: path.strip_prefix('.').unwrap_or(path).into(),
            indexed: false,
        });
        let kind = Gvk::new(&definition.group, &version.name, &definition.names.kind);
        let path = format!("{}/{}", definition.group, definition.names.plural);
        let facts = Facts {
            fields: fields.collect(),
            fields_by_version: true,
            columns: table.columns.clone(),
            deletion: Deletion::USUAL,
            storage: Some(Storage {
                path: path.into(),
                form: crate::strategy::Form::Json,
                ..Storage::of(&kind, "")
            }),
            deprecated: version
                .deprecated
                .iter()
                .map(|warning| Deprecated {
                    version: version.name.clone(),
                    warning: warning.clone(),
                    removed: Text::default(),
                })
                .collect(),
            scale,
            ..Facts::default()
        };
        let rules = Arc::default();
        Self {
            facts,
            namespaced: definition.namespaced,
            schema: Arc::clone(&version.schema),
            status: version.status.then(|| StatusRules {
                schema: Arc::clone(&version.schema),
                scale: version.scale.clone(),
                rules: Arc::clone(&rules),
                kind: kind.clone(),
            }),
            scale: version.scale.clone(),
            selectable: version.selectable.iter().map(|path| JsonPath::parse(path).ok()).collect(),
            table,
            rules,
            kind,
            reset: if version.status { field_set(&["status"]) } else { FieldSet::default() },
            reset_by_status: field_set(&["metadata", "spec"]),
        }
    }

    fn check_values(&self, c: &Ctx<'_>, errs: &mut Errors, new: &Struct, old: Option<&Struct>) {
        let empty = Map::new();
        let object = values(c.schema, new).unwrap_or(&empty);
        let before = old.and_then(|old| values(c.schema, old));
        let meta = View::new(c.schema, new).st("metadata");
        let names =
            ["name", "generateName"].into_iter().filter_map(|n| Some((n.into(), meta.get(n)?.clone())));
        if old.is_none() {
            self.schema.validate_meta(errs, &Node::Map(Map::from_entries(names.collect())));
        }
        self.schema.validate(errs, object, before);
        if let Some(scale) = &self.scale {
            check_replicas(errs, object, &scale.spec_replicas);
            check_scale_status(errs, object, scale);
        }
        self.schema.check_embedded(c.schema, errs, object, &|errs, at, meta| {
            embedded_meta(c.schema, errs, at, meta);
        });
        check_lists(&self.schema, errs, object, before);
    }
}

/// Lists that are sets or maps are checked unless they were wrong before.
fn check_lists(schema: &Structural, errs: &mut Errors, object: &Map, before: Option<&Map>) {
    let was_wrong = before.is_some_and(|before| {
        let mut old = Errors::new();
        schema.check_lists(&mut old, before);
        !old.is_empty()
    });
    if !was_wrong {
        schema.check_lists(errs, object);
    }
}

/// Checks the metadata of an embedded object; a name is not required.
pub(crate) fn embedded_meta(schema: &Schema, errs: &mut Errors, at: &Path<'_>, meta: &Struct) {
    let mut meta = meta.clone();
    let view = View::new(schema, &meta);
    let namespaced = !view.str("namespace").is_empty();
    if view.str("name").is_empty()
        && let Some(no) = schema.field(meta.id, "name")
    {
        meta.set(no, "fakename");
    }
    object_meta_at(errs, at, View::new(schema, &meta), namespaced, path_segment);
}

/// The value at the names of a path, or the words about what is in its way.
fn at_names<'a>(object: &'a Map, path: &str) -> Result<Option<&'a Node>, String> {
    let names = path_names(path);
    let mut at = object;
    for (i, name) in names.iter().enumerate() {
        let Some(found) = at.get(name) else { return Ok(None) };
        if i + 1 == names.len() {
            return Ok(Some(found));
        }
        match found {
            Node::Map(map) => at = map,
            Node::Null => return Ok(None),
            other => {
                let place: Vec<&str> = names[..i + 2].iter().map(Text::as_str).collect();
                return Err(unlike(&format!(".{}", place.join(".")), other, "map[string]interface{}"));
            }
        }
    }
    Ok(None)
}

fn unlike(path: &str, value: &Node, expected: &str) -> String {
    let (shown, is) = (api::go::plain(value), go_type(value));
    format!("{path} accessor error: {shown} is of the type {is}, expected {expected}")
}

fn check_replicas(errs: &mut Errors, object: &Map, path: &str) {
    let number = match at_names(object, path) {
        Ok(None) => return,
        Ok(Some(Node::Int(i))) => *i,
        Ok(Some(other)) => {
            return errs.invalid(&Path::root(path), 0_i64, unlike(path, other, "int64"));
        }
        Err(why) => return errs.invalid(&Path::root(path), 0_i64, why),
    };
    if number < 0 {
        errs.invalid(&Path::root(path), number, "should be a non-negative integer");
    } else if number > i64::from(i32::MAX) {
        errs.invalid(&Path::root(path), number, format!("should be less than or equal to {}", i32::MAX));
    }
}

fn check_scale_status(errs: &mut Errors, object: &Map, scale: &ScalePaths) {
    check_replicas(errs, object, &scale.status_replicas);
    let Some(path) = &scale.selector else { return };
    let why = match at_names(object, path) {
        Ok(None | Some(Node::Str(_))) => return,
        Ok(Some(other)) => unlike(path, other, "string"),
        Err(why) => why,
    };
    errs.invalid(&Path::root(path), "", why);
}

fn go_value(node: &Node) -> String {
    match node {
        Node::Str(s) => s.to_string(),
        other => api::go::scalar_json(other),
    }
}

fn go_type(node: &Node) -> &'static str {
    match node {
        Node::Null => "<nil>",
        Node::Bool(_) => "bool",
        Node::Int(_) => "int64",
        Node::Float(_) => "float64",
        Node::Str(_) => "string",
        Node::List(_) => "[]interface {}",
        Node::Map(_) | Node::Struct(_) | Node::Raw(_) => "map[string]interface {}",
    }
}

impl Strategy for CustomStrategy {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn prepare_create(&self, c: &Ctx<'_>, new: &mut Struct) {
        if self.status.is_some()
            && let Some(values) = values_mut(c.schema, new)
        {
            values.remove("status");
        }
        set_generation(&mut api::view::Edit::new(c.schema, new), 1);
    }

    fn validate(&self, c: &Ctx<'_>, new: &Struct) -> Vec<FieldError> {
        let mut errs = Errors::new();
        object_meta(&mut errs, View::new(c.schema, new).st("metadata"), self.namespaced, name_subdomain);
        self.check_values(c, &mut errs, new, None);
        ask_rules(c, &mut errs, (&self.rules, &self.kind, &self.schema), new, None);
        errs.0
    }

    fn canonicalize(&self, _: &Ctx<'_>, _: &mut Struct) {}

    fn prepare_update(&self, c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
        if self.status.is_some() {
            copy(c.schema, new, old, "status");
        }
        if values(c.schema, new) != values(c.schema, old) {
            let generation = View::new(c.schema, old).st("metadata").int("generation");
            set_generation(&mut api::view::Edit::new(c.schema, new), generation + 1);
        }
    }

    fn validate_update(&self, c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError> {
        let mut errs = Errors::new();
        let (n, o) = (View::new(c.schema, new).st("metadata"), View::new(c.schema, old).st("metadata"));
        object_meta_update(&mut errs, n, o);
        self.check_values(c, &mut errs, new, Some(old));
        ask_rules(c, &mut errs, (&self.rules, &self.kind, &self.schema), new, Some(old));
        errs.0
    }

    fn warnings(&self, c: &Ctx<'_>, new: &Struct, old: Option<&Struct>) -> Vec<String> {
        let of = |tree: &Struct| -> Vec<String> {
            View::new(c.schema, tree).st("metadata").strs("finalizers").map(str::to_owned).collect()
        };
        let before = old.map(of).unwrap_or_default();
        let mut added: Vec<String> = of(new).into_iter().filter(|f| !before.contains(f)).collect();
        added.sort_unstable();
        added.dedup();
        added.iter().flat_map(|f| finalizer_warnings(f)).collect()
    }

    fn subresource(&self, name: &str) -> Option<&dyn Subresource> {
        match (name, &self.status) {
            ("status", Some(rules)) => Some(rules),
            _ => None,
        }
    }

    fn taken(&self, subresource: &str) -> Taken<'_> {
        match subresource {
            "status" => Taken::AllBut(&self.reset_by_status),
            "" if self.status.is_some() => Taken::AllBut(&self.reset),
            _ => Taken::All,
        }
    }

    fn field_values(&self, schema: &Schema, object: &Struct, out: &mut Vec<Text>) {
        let whole = whole(schema, object);
        out.extend(self.selectable.iter().map(|path| {
            match path.as_ref().and_then(|p| p.find(&whole).first().copied()) {
                None | Some(Node::Null) => Text::default(),
                Some(value) => go_value(value).into(),
            }
        }));
    }

    fn row(&self, schema: &Schema, object: &Struct, now: Timestamp) -> Row {
        let empty = Map::new();
        self.table.row(schema, object, values(schema, object).unwrap_or(&empty), now)
    }

    fn grace(&self, _: &Schema, _: &Struct) -> Option<Grace> {
        None
    }

    fn is_held(&self, _: &Schema, _: &Struct) -> bool {
        false
    }

    fn convert(&self, schema: &Schema, tree: Struct, from: &Gvk, to: &Gvk) -> Result<Struct, NoConversion> {
        let root = schema.kind(to).ok_or_else(|| NoConversion::between(from, to))?;
        let mut tree = tree;
        // All versions have the same fields: those of every object, and the values of the definition.
        tree.id = root;
        if let Some(rest) = &schema.st(root).rest
            && let Some(values) = tree.get_mut(rest.field).and_then(Node::as_map_mut)
        {
            rest.values.prune(values);
        }
        Ok(tree)
    }

    fn settle(&self, _: &Schema, _: &mut Struct) -> Result<(), String> {
        Ok(())
    }
}

impl Subresource for StatusRules {
    fn prepare_update(&self, c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
        let status = values(c.schema, new).and_then(|v| v.get("status")).cloned();
        let managed = View::new(c.schema, new).st("metadata").get("managedFields").cloned();
        *new = old.clone();
        if let Some(mut meta) = api::view::Edit::new(c.schema, new).make("metadata") {
            meta.put("managedFields", managed);
        }
        let Some(values) = values_mut(c.schema, new) else { return };
        match status {
            Some(status) => {
                values.insert("status", status);
            }
            None => {
                values.remove("status");
            }
        }
    }

    fn validate_update(&self, c: &Ctx<'_>, new: &Struct, old: &Struct) -> Vec<FieldError> {
        let mut errs = Errors::new();
        let (n, o) = (View::new(c.schema, new).st("metadata"), View::new(c.schema, old).st("metadata"));
        object_meta_update(&mut errs, n, o);
        let empty = Map::new();
        let object = values(c.schema, new).unwrap_or(&empty);
        let before = values(c.schema, old);
        if let (Some(status), Some(part)) =
            (object.get("status"), self.schema.part(self.schema.root()).property("status"))
        {
            let before = before.and_then(|b| b.get("status"));
            self.schema.validate_at(&mut errs, &Path::root("status"), part, status, before);
        }
        if let Some(scale) = &self.scale {
            check_scale_status(&mut errs, object, scale);
        }
        check_lists(&self.schema, &mut errs, object, before);
        ask_rules(c, &mut errs, (&self.rules, &self.kind, &self.schema), new, Some(old));
        errs.0
    }
}

/// Upstream's warnings about a finalizer's name.
fn finalizer_warnings(finalizer: &str) -> Vec<String> {
    const STANDARD: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];
    let about = |what: &str| format!("metadata.finalizers: {}: {what}", api::go::quote(finalizer));
    let mut out: Vec<String> = names::qualified_name(finalizer).iter().map(|e| about(e)).collect();
    if !finalizer.contains('/') && !STANDARD.contains(&finalizer) {
        out.push(about(if finalizer.contains('.') {
            "prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers"
        } else {
            "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
        }));
    }
    out
}
