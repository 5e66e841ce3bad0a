//! Documents of OpenAPI v3 for servers that know v2 alone: the same, as far as v3 can say it (`openapiconv`).

use serde_json::{Map, Value, json};

/// The beginnings of references in either version.
const REFERENCES: [(&str, &str); 2] =
    [("#/definitions/", "#/components/schemas/"), ("#/parameters/", "#/components/parameters/")];

/// The fields of a parameter that v3 has in its schema.
const OF_SCHEMA: [&str; 10] = [
    "type",
    "format",
    "items",
    "default",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "uniqueItems",
    "maxLength",
];

/// The methods of a path.
const METHODS: [&str; 7] = ["delete", "get", "head", "options", "patch", "post", "put"];

/// The document of v3 that says what one of v2 says; nothing that is no document comes out.
pub(super) fn v3(v2: &Value) -> Value {
    let part = |name: &str| v2.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
    let shared = part("parameters");
    let schemas = part("definitions");
    let paths: Map<String, Value> =
        part("paths").into_iter().map(|(path, item)| (path, path_item(&item, &shared))).collect();
    let mut made = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": schemas},
    });
    rewrite(&mut made);
    made
}

/// Rewrites references.
fn rewrite(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(to) if key == "$ref" => {
                        let new = REFERENCES
                            .iter()
                            .find_map(|(old, new)| to.strip_prefix(old).map(|rest| format!("{new}{rest}")));
                        if let Some(new) = new {
                            *to = new;
                        }
                    }
                    other => rewrite(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(rewrite),
        _ => {}
    }
}

/// The parameters of a list, those that are shared in place of what refers to them.
fn resolved<'v>(of: &'v Value, shared: &'v Map<String, Value>) -> impl Iterator<Item = &'v Value> {
    let all = of.get("parameters").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(move |parameter| match parameter.get("$ref").and_then(Value::as_str) {
        Some(reference) => shared.get(reference.strip_prefix("#/parameters/")?),
        None => Some(parameter),
    })
}

fn is_body(parameter: &Value) -> bool {
    parameter.get("in").is_some_and(|place| place == "body")
}

fn path_item(item: &Value, shared: &Map<String, Value>) -> Value {
    let mut made = Map::new();
    let parameters: Vec<Value> = resolved(item, shared).filter(|p| !is_body(p)).map(parameter).collect();
    if !parameters.is_empty() {
        made.insert("parameters".into(), parameters.into());
    }
    for (key, value) in item.as_object().into_iter().flatten() {
        if METHODS.contains(&key.as_str()) {
            made.insert(key.clone(), operation(value, shared));
        } else if key.starts_with("x-") {
            made.insert(key.clone(), value.clone());
        }
    }
    Value::Object(made)
}

fn parameter(v2: &Value) -> Value {
    let (mut made, mut schema) = (Map::new(), Map::new());
    for (key, value) in v2.as_object().into_iter().flatten() {
        let into = if OF_SCHEMA.contains(&key.as_str()) { &mut schema } else { &mut made };
        into.insert(key.clone(), value.clone());
    }
    if !schema.is_empty() {
        made.insert("schema".into(), schema.into());
    }
    Value::Object(made)
}

/// A schema in each of some media types.
fn content(schema: Option<&Value>, types: Option<&Value>) -> Option<Value> {
    let schema = schema?;
    let types = types.and_then(Value::as_array)?.iter().filter_map(Value::as_str);
    Some(Value::Object(types.map(|t| (t.to_owned(), json!({"schema": schema}))).collect()))
}

fn operation(v2: &Value, shared: &Map<String, Value>) -> Value {
    let mut made = Map::new();
    for (key, value) in v2.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "parameters" | "responses" | "consumes" | "produces" | "schemes") {
            made.insert(key.clone(), value.clone());
        }
    }
    let (bodies, others): (Vec<_>, Vec<_>) = resolved(v2, shared).partition(|p| is_body(p));
    if !others.is_empty() {
        made.insert("parameters".into(), others.into_iter().map(parameter).collect());
    }
    if let Some(body) = bodies.first() {
        let mut request = Map::new();
        request.extend(
            ["description", "required"]
                .iter()
                .filter_map(|key| Some(((*key).to_owned(), body.get(*key)?.clone()))),
        );
        if let Some(content) = content(body.get("schema"), v2.get("consumes")) {
            request.insert("content".into(), content);
        }
        made.insert("requestBody".into(), request.into());
    }
    let responses = v2.get("responses").and_then(Value::as_object).into_iter().flatten();
    let responses = responses.map(|(code, response)| {
        let mut shown =
            json!({"description": response.get("description").cloned().unwrap_or_else(|| "".into())});
        if let Some(content) = content(response.get("schema"), v2.get("produces")) {
            shown["content"] = content;
        }
        (code.clone(), shown)
    });
    made.insert("responses".into(), Value::Object(responses.collect()));
    Value::Object(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_v2_says() {
        let v2 = json!({
            "paths": {"/apis/w.example/v1/fishes": {
                "parameters": [{"$ref": "#/parameters/pretty"}],
                "post": {
                    "operationId": "createFish", "consumes": ["*/*"], "produces": ["application/json"],
                    "x-kubernetes-action": "post",
                    "parameters": [{"in": "body", "name": "body", "required": true, "schema": {"$ref": "#/definitions/Fish"}}],
                    "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/Fish"}}},
                },
            }},
            "definitions": {"Fish": {"properties": {"fin": {"$ref": "#/definitions/Fin"}}}, "Fin": {}},
            "parameters": {"pretty": {"name": "pretty", "in": "query", "type": "string", "uniqueItems": true}},
        });
        let schema = json!({"schema": {"$ref": "#/components/schemas/Fish"}});
        let want = json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "unversioned"},
            "paths": {"/apis/w.example/v1/fishes": {
                "parameters": [{"name": "pretty", "in": "query", "schema": {"type": "string", "uniqueItems": true}}],
                "post": {
                    "operationId": "createFish", "x-kubernetes-action": "post",
                    "requestBody": {"required": true, "content": {"*/*": schema}},
                    "responses": {"200": {"description": "OK", "content": {"application/json": schema}}},
                },
            }},
            "components": {"schemas": {
                "Fish": {"properties": {"fin": {"$ref": "#/components/schemas/Fin"}}}, "Fin": {},
            }},
        });
        assert_eq!(v3(&v2), want);
        assert_eq!(v3(&json!([]))["paths"], json!({}));
        assert_eq!(v3(&json!({"paths": {"/x": 7}}))["paths"], json!({"/x": {}}));
    }
}
