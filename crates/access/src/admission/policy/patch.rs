//! The patches that mutations make (upstream: `policy/mutating/patch`).

use api::managed::merge_configuration;
use api::patch::{JsonPatch, PatchError};
use api::schema::Gvk;
use api::{Map, Node};
use cel::{Made, RUNTIME_BUDGET, Type, Value};

use super::stored::Mutation;
use crate::admission::Versions;
use crate::admission::expressions::{Expression, Scope};

/// A mutation that is ready.
pub(super) enum Patch {
    /// A configuration that is applied.
    Apply(Expression),
    /// JSON patches.
    Json(Expression),
}

/// The reason for which an object is not patched, in upstream's words.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unpatched {
    /// The policy is at fault.
    Failed(String),
    /// The object would be none of its kind, which is a 500.
    Internal(String),
}

impl From<String> for Unpatched {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl Patch {
    /// Compiles a mutation.
    pub(super) fn new(env: &cel::Environment, of: &Mutation) -> Option<Self> {
        let compiled = |text: &str, wanted| Expression::new(env, text, &[wanted]);
        if let Some(apply) = &of.apply_configuration {
            return Some(Self::Apply(compiled(&apply.expression, Type::object("Object"))));
        }
        let patches = of.json_patch.as_ref()?;
        Some(Self::Json(compiled(&patches.expression, Type::list(Type::object("JSONPatch")))))
    }
    /// The expression.
    pub(super) fn expression(&self) -> &Expression {
        match self {
            Self::Apply(expression) | Self::Json(expression) => expression,
        }
    }
    /// The object after the mutation, as clients see it; it has its defaults.
    pub(super) async fn patched(
        &self,
        scope: &Scope<'_>,
        versions: &dyn Versions,
        kind: &Gvk,
        object: &Node,
    ) -> Result<Node, Unpatched> {
        let expression = self.expression();
        if let Err(why) = &expression.program {
            return Err(Unpatched::Failed(why.clone()));
        }
        let mut left = RUNTIME_BUDGET;
        let value = scope.evaluate(expression, &mut left).await.map_err(|end| end.to_string())?.value?;
        let tree = match self {
            Self::Apply(_) => {
                let Value::Object(made) = &value else {
                    let name = value.type_name();
                    return Err(format!(
                        "unsupported return type from ApplyConfiguration expression: {name}"
                    )
                    .into());
                };
                check_names(&value)?;
                let configuration = fields(made)?;
                let merged = merged(versions, kind, object.clone(), configuration)
                    .map_err(|why| format!("error applying patch: {why}"))?;
                versions.tree(kind, merged, false)?
            }
            Self::Json(_) => match operations(&value)?.apply(object.clone()) {
                Ok(patched) => versions.tree(kind, patched, true).map_err(Unpatched::Internal)?,
                // A test that does not hold leaves the object as it is.
                Err(PatchError::NotApplicable(why)) if why.ends_with("test failed") => {
                    return Ok(object.clone());
                }
                Err(why) => return Err(format!("JSON Patch: {why}").into()),
            },
        };
        Ok(versions.value(kind, &tree))
    }
}

/// Merges a configuration into an object with its kind and API version.
fn merged(versions: &dyn Versions, kind: &Gvk, object: Node, configuration: Node) -> Result<Node, String> {
    let schema = versions.schema();
    let root = schema.kind(kind).ok_or_else(|| format!("unknown kind {}", kind.kind))?;
    let bare = |mut node: Node| {
        if let Some(map) = node.as_map_mut() {
            map.remove("kind");
            map.remove("apiVersion");
        }
        node
    };
    merge_configuration(schema, root, bare(object), bare(configuration))
}

/// Checks that objects have the types of the fields in which they are.
fn check_names(value: &Value<'_>) -> Result<(), String> {
    let mut wrong = Vec::new();
    let path = match value {
        Value::Object(made) => made.type_name.to_string(),
        _ => String::new(),
    };
    names(value, &path, &mut wrong);
    if wrong.is_empty() { Ok(()) } else { Err(format!("type mismatch: {}", wrong.join("\n"))) }
}

fn names(value: &Value<'_>, path: &str, wrong: &mut Vec<String>) {
    match value {
        Value::Object(made) => {
            if *made.type_name != *path {
                wrong.push(format!(
                    "unexpected type name \"{}\", expected \"{path}\", which matches field name path from root Object type",
                    made.type_name
                ));
            }
            for (field, value) in &made.fields {
                names(value, &format!("{path}.{field}"), wrong);
            }
        }
        Value::List(items) => items.iter().for_each(|item| names(item, path, wrong)),
        Value::Map(entries) => entries.iter().for_each(|(_, value)| names(value, path, wrong)),
        _ => {}
    }
}

/// The operations of a list of `JSONPatch`.
fn operations(value: &Value<'_>) -> Result<JsonPatch, String> {
    let items =
        value.items().map_err(|_| "type mismatch: JSONPatchType.expression should evaluate to array")?;
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        let Value::Object(made) = item else {
            return Err(
                "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".into()
            );
        };
        let mut operation = Map::default();
        operation.insert("op", "");
        operation.insert("path", "");
        for (name, value) in &made.fields {
            let key = name.to_string();
            match &**name {
                "value" => {
                    if matches!(value, Value::Object(_)) {
                        check_names(value)?;
                    }
                    let value = node(value).map_err(|why| {
                        format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}")
                    })?;
                    operation.insert(key, value);
                }
                _ => match value {
                    Value::String(text) if &**name == "from" && text.is_empty() => {}
                    Value::String(text) => {
                        operation.insert(key, &**text);
                    }
                    other => {
                        let found = other.type_name();
                        return Err(format!("unexpected type {found} for JSONPatchType '{name}' field"));
                    }
                },
            }
        }
        all.push(Node::Map(operation));
    }
    JsonPatch::from_node(Node::List(all)).map_err(|why| format!("JSON Patch: {why}"))
}

fn fields(made: &Made<'_>) -> Result<Node, String> {
    let mut map = Map::default();
    for (name, value) in &made.fields {
        map.insert(name.to_string(), node(value)?);
    }
    Ok(Node::Map(map))
}

/// A value as JSON.
fn node(value: &Value<'_>) -> Result<Node, String> {
    let number = |d: f64| match d {
        // JSON has one kind of numbers.
        d if d.fract() == 0.0 && d.abs() < 1e15 => Node::Int(d as i64),
        d => Node::Float(d),
    };
    Ok(match value {
        Value::Null => Node::Null,
        Value::Bool(b) => Node::Bool(*b),
        Value::Int(i) => Node::Int(*i),
        Value::Uint(u) => i64::try_from(*u).map_or(Node::Float(*u as f64), Node::Int),
        Value::Double(d) if d.is_finite() => number(*d),
        Value::String(s) => Node::Str((&**s).into()),
        Value::Object(made) => return fields(made),
        Value::Optional(Some(value)) => return node(value),
        Value::Timestamp(_) | Value::Duration(_) => {
            Node::Str(value.to_text().ok_or_else(|| unconvertible(value))?.into())
        }
        Value::Bytes(bytes) => {
            use base64::Engine;
            Node::Str(base64::engine::general_purpose::STANDARD.encode(bytes).into())
        }
        value if value.is_list() => {
            let items = value.items().map_err(|e| e.to_string())?;
            Node::List(items.iter().map(node).collect::<Result<_, _>>()?)
        }
        value if value.is_map() => {
            let mut map = Map::default();
            for key in value.keys() {
                let Value::String(name) = &key else {
                    let (shown, found) = (cel::literal(&key), key.type_name());
                    return Err(format!("map key {shown} is of type {found}, not string"));
                };
                let entry = value.entry(&key).map_err(|e| e.to_string())?;
                map.insert(&**name, entry.as_ref().map_or(Ok(Node::Null), node)?);
            }
            Node::Map(map)
        }
        other => return Err(unconvertible(other)),
    })
}

fn unconvertible(value: &Value<'_>) -> String {
    format!("unsupported conversion of {} to JSON", value.type_name())
}
