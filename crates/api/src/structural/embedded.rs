//! Objects of the API within a custom resource (`x-kubernetes-embedded-resource`).

use std::fmt::Write;

use super::{Additional, PartId, Structural};
use crate::codec::json;
use crate::field::{Errors, Path, Raw};
use crate::go::scalar_json;
use crate::names;
use crate::schema::{Schema, Type, TypeId};
use crate::tree::{Map, Node, Struct};

/// Where `metadata` has its type in a schema.
fn meta_type(schema: &Schema) -> Option<TypeId> {
    let id = schema.named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")?;
    schema.type_of_struct(id)
}

/// The check of the metadata of an embedded object: the errors are put into the list, below the path.
pub(super) type CheckMeta<'a> = &'a dyn Fn(&mut Errors, &Path<'_>, &Struct);

impl Structural {
    /// Brings the metadata of embedded objects into the form of `ObjectMeta`: what that has no field for is dropped.
    /// Metadata that is malformed stays, for validation.
    pub fn coerce_embedded(&self, schema: &Schema, object: &mut Map) -> Vec<String> {
        let mut unknown = Vec::new();
        if let Some(ty) = meta_type(schema) {
            self.coerce_entries(schema, ty, object, self.root(), &mut String::new(), &mut unknown);
        }
        unknown
    }

    fn coerce_entries(
        &self,
        schema: &Schema,
        ty: TypeId,
        object: &mut Map,
        id: PartId,
        path: &mut String,
        unknown: &mut Vec<String>,
    ) {
        let part = self.part(id);
        // The root's own metadata is none of its values.
        if part.embedded
            && let Some(meta) = object.get_mut("metadata")
            && let Ok((Some(Node::Struct(tree)), strict)) = json::from_any(schema, ty, meta.clone())
        {
            *meta = json::to_any(schema, &tree);
            let prefix = if path.is_empty() { "metadata".to_owned() } else { format!("{path}.metadata") };
            for text in strict {
                if let Some(field) = text.strip_prefix("unknown field \"").and_then(|t| t.strip_suffix('"')) {
                    unknown.push(format!("{prefix}.{field}"));
                }
            }
        }
        let mut properties = part.cursor();
        for (name, value) in object.iter_mut() {
            let ((Some(below), _) | (None, Additional::Part(below))) =
                (properties.find(name), part.additional)
            else {
                continue;
            };
            if !self.within(below).embedded {
                continue;
            }
            let length = path.len();
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name);
            self.coerce_value(schema, ty, value, below, path, unknown);
            path.truncate(length);
        }
    }

    fn coerce_value(
        &self,
        schema: &Schema,
        ty: TypeId,
        value: &mut Node,
        id: PartId,
        path: &mut String,
        unknown: &mut Vec<String>,
    ) {
        match value {
            Node::Map(map) => self.coerce_entries(schema, ty, map, id, path, unknown),
            Node::List(list) => {
                let Some(items) = self.part(id).items else { return };
                for (i, item) in list.iter_mut().enumerate() {
                    let length = path.len();
                    // Writing to a String does not fail.
                    let _ = write!(path, "[{i}]");
                    self.coerce_value(schema, ty, item, items, path, unknown);
                    path.truncate(length);
                }
            }
            _ => {}
        }
    }

    /// Whether an object of the API may stand somewhere within.
    pub fn has_embedded(&self) -> bool {
        self.part(self.root()).below().any(|id| self.within(id).embedded)
    }

    /// Checks that embedded objects have a kind, an API version and good metadata.
    pub fn check_embedded(&self, schema: &Schema, errs: &mut Errors, object: &Map, check: CheckMeta<'_>) {
        if let Some(ty) = meta_type(schema).filter(|_| self.has_embedded()) {
            self.embedded_of_map(
                &Context { schema, ty, check: Some(check) },
                errs,
                None,
                self.root(),
                object,
            );
        }
    }

    /// Like [`Structural::check_embedded`], for a value that stands at a path. Without a check of metadata, only the
    /// types of an object's own fields are looked at.
    pub fn check_embedded_at(
        &self,
        schema: &Schema,
        errs: &mut Errors,
        at: &Path<'_>,
        id: PartId,
        value: &Node,
        check: Option<CheckMeta<'_>>,
    ) {
        if let Some(ty) = meta_type(schema) {
            self.embedded_of(&Context { schema, ty, check }, errs, at, id, value);
        }
    }

    fn embedded_of_map(
        &self,
        c: &Context<'_>,
        errs: &mut Errors,
        at: Option<&Path<'_>>,
        id: PartId,
        object: &Map,
    ) {
        let part = self.part(id);
        if let Some(at) = at.filter(|_| part.embedded) {
            c.check(errs, at, object);
        }
        let mut properties = part.cursor();
        for (name, value) in object.iter() {
            let (id, is_key) = match (properties.find(name), part.additional) {
                (Some(id), _) => (id, false),
                (None, Additional::Part(id)) => (id, true),
                _ => continue,
            };
            if !self.within(id).embedded {
                continue;
            }
            let path = match at {
                None => Path::root(name),
                Some(at) if is_key => at.key(name),
                Some(at) => at.field(name),
            };
            self.embedded_of(c, errs, &path, id, value);
        }
    }

    fn embedded_of(&self, c: &Context<'_>, errs: &mut Errors, at: &Path<'_>, id: PartId, value: &Node) {
        match value {
            Node::Map(map) => self.embedded_of_map(c, errs, Some(at), id, map),
            Node::List(list) => {
                let Some(items) = self.part(id).items else { return };
                for (i, item) in list.iter().enumerate() {
                    self.embedded_of(c, errs, &at.index(i), items, item);
                }
            }
            _ => {}
        }
    }
}

struct Context<'a> {
    schema: &'a Schema,
    ty: TypeId,
    /// `None` looks at types alone.
    check: Option<CheckMeta<'a>>,
}

impl Context<'_> {
    fn check(&self, errs: &mut Errors, at: &Path<'_>, object: &Map) {
        self.name(errs, &at.field("apiVersion"), object.get("apiVersion"), |v| {
            (v.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {v}"))
        });
        self.name(errs, &at.field("kind"), object.get("kind"), |v| {
            let wrong = names::dns1035_label(&v.to_lowercase());
            (!wrong.is_empty())
                .then(|| format!("may have mixed case, but should otherwise match: {}", wrong.join(",")))
        });
        let Some(meta) = object.get("metadata") else { return };
        let path = at.field("metadata");
        match json::from_any(self.schema, self.ty, meta.clone()) {
            Ok((Some(Node::Struct(tree)), _)) => {
                if let Some(check) = self.check {
                    check(errs, &path, &tree);
                }
            }
            Ok(_) => {}
            Err(e) => errs.invalid(&path, Raw(scalar_json(meta)), e.to_string()),
        }
    }

    fn name(
        &self,
        errs: &mut Errors,
        at: &Path<'_>,
        value: Option<&Node>,
        wrong: impl Fn(&str) -> Option<String>,
    ) {
        match value {
            Some(Node::Str(_)) | None if self.check.is_none() => {}
            None => errs.required(at, ""),
            Some(Node::Str(s)) if s.is_empty() => errs.invalid(at, "", "must not be empty"),
            Some(Node::Str(s)) => {
                if let Some(why) = wrong(s) {
                    errs.invalid(at, s.as_str(), why);
                }
            }
            Some(other) => errs.invalid(at, Raw(scalar_json(other)), "must be a string"),
        }
    }
}

impl Schema {
    /// A type that is a struct.
    fn type_of_struct(&self, id: crate::StructId) -> Option<TypeId> {
        let count = u32::try_from(self.type_count()).ok()?;
        (0..count).map(TypeId).find(|ty| *self.ty(*ty) == Type::Struct(id))
    }
}
