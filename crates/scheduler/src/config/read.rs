//! Reading a configuration file, strictly.

use std::path::Path;

use api::codec::json;
use api::{FeatureGates, Node};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::args::PluginArgs;
use super::defaults;
use super::document::{Document, KIND, VERSION};
use super::validate::validate;

/// Reads a configuration file.
///
/// # Errors
/// If the scheduler cannot work by it, with upstream's reason.
pub fn read(file: &Path, gates: FeatureGates) -> Result<Document, String> {
    let text = std::fs::read(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    parse_for(&text, gates)
}

/// Validates a configuration that flags have changed.
///
/// # Errors
/// If the scheduler cannot work by it, with upstream's reason.
pub fn check(document: &Document, gates: FeatureGates) -> Result<(), String> {
    validate(document, gates)
}

/// Reads a configuration of JSON or YAML: it is decoded, completed and validated.
///
/// # Errors
/// If the scheduler cannot work by it, with upstream's reason.
pub fn parse(text: &[u8]) -> Result<Document, String> {
    parse_for(text, FeatureGates::default())
}

/// The same where these features are on.
///
/// # Errors
/// If the scheduler cannot work by it, with upstream's reason.
pub fn parse_for(text: &[u8], gates: FeatureGates) -> Result<Document, String> {
    let mut tree = api::yaml::parse(text).map_err(|e| e.to_string())?;
    let said =
        |tree: &Node, name: &str| tree.as_map().and_then(|m| m.get(name)).map_or("", Node::as_str).to_owned();
    let (kind, version) = (said(&tree, "kind"), said(&tree, "apiVersion"));
    if kind.is_empty() || version.is_empty() {
        let field = if kind.is_empty() { "Kind" } else { "apiVersion" };
        return Err(format!("Object '{field}' is missing in '{}'", written(&tree)));
    }
    if kind != KIND || version != VERSION {
        let [kind, version] = [kind, version].map(|t| api::go::quote(&t));
        return Err(format!("no kind {kind} is registered for version {version}"));
    }
    if let Some(map) = tree.as_map_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
    let mut unknown = Vec::new();
    let mut document: Document = decode(without_nulls(value_of(&tree)?), "", &mut unknown)?;
    if !unknown.is_empty() {
        let all: Vec<String> =
            unknown.iter().map(|path| format!("unknown field {}", api::go::quote(path))).collect();
        return Err(format!("strict decoding error: {}", all.join(", ")));
    }
    arguments(&mut document)?;
    defaults::complete(&mut document);
    defaults::complete_for(&mut document, gates);
    validate(&document, gates)?;
    Ok(document)
}

fn written(tree: &Node) -> String {
    let mut out = Vec::new();
    json::encode_any(tree, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn value_of(tree: &Node) -> Result<Value, String> {
    serde_json::from_str(&written(tree)).map_err(|e| e.to_string())
}

/// Upstream reads `null` as if the field were not there.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, v)| !v.is_null());
            Value::Object(kept.map(|(k, v)| (k, without_nulls(v))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// Decodes a value, and lists the fields that its type does not have.
fn decode<T: DeserializeOwned + Serialize>(
    value: Value,
    at: &str,
    unknown: &mut Vec<String>,
) -> Result<T, String> {
    let typed: T = serde_json::from_value(value.clone()).map_err(|e| e.to_string())?;
    let known = serde_json::to_value(&typed).map_err(|e| e.to_string())?;
    compare(&value, &known, at, unknown);
    Ok(typed)
}

/// Every field that was understood is written again, so the others are unknown.
fn compare(said: &Value, known: &Value, at: &str, unknown: &mut Vec<String>) {
    match (said, known) {
        (Value::Object(said), Value::Object(known)) => {
            for (key, value) in said {
                let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                match known.get(key) {
                    Some(other) => compare(value, other, &path, unknown),
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(said), Value::Array(known)) => {
            for (i, (value, other)) in said.iter().zip(known).enumerate() {
                compare(value, other, &format!("{at}[{i}]"), unknown);
            }
        }
        _ => {}
    }
}

/// Reads the arguments of the plugins of this crate by their types.
fn arguments(document: &mut Document) -> Result<(), String> {
    for (i, profile) in document.profiles.iter_mut().enumerate() {
        for (j, config) in profile.plugin_config.iter_mut().enumerate() {
            if matches!(PluginArgs::of(&config.name), PluginArgs::Other(_)) {
                continue;
            }
            let PluginArgs::Other(mut value) = std::mem::take(&mut config.args) else { continue };
            let about = format!("decoding .profiles[{i}].pluginConfig[{j}]");
            let kind = format!("{}Args", config.name);
            if let Some(fields) = value.as_object_mut() {
                let said = fields.remove("kind");
                let version = fields.remove("apiVersion");
                let said = said.as_ref().and_then(Value::as_str).unwrap_or(&kind);
                let version = version.as_ref().and_then(Value::as_str).unwrap_or(VERSION);
                let group = version.split('/').next().unwrap_or_default();
                if said != kind || version != VERSION {
                    return Err(format!(
                        "{about}: args for plugin {} were not of type {kind}.kubescheduler.config.k8s.io, got {said}.{group}",
                        config.name
                    ));
                }
            }
            let wrong = |e: String| format!("{about}: decoding args for plugin {}: {e}", config.name);
            let typed = PluginArgs::parse(&config.name, value.clone()).map_err(|e| wrong(e.to_string()))?;
            let known = serde_json::to_value(&typed).map_err(|e| wrong(e.to_string()))?;
            let mut unknown = Vec::new();
            compare(&value, &known, "", &mut unknown);
            if !unknown.is_empty() {
                let all: Vec<String> =
                    unknown.iter().map(|path| format!("unknown field {}", api::go::quote(path))).collect();
                return Err(format!(
                    "strict decoding error: {}",
                    wrong(format!("strict decoding error: {}", all.join(", ")))
                ));
            }
            config.args = typed;
        }
    }
    Ok(())
}
