//! Writing a configuration, as upstream's `--write-config-to` and `/configz` have it.

use serde_json::{Map, Value};

use super::args::PluginArgs;
use super::document::{Document, KIND, VERSION};

/// A configuration with its version, without what says nothing. [`read::parse`](super::read::parse) reads the same.
///
/// # Errors
/// A value has no form in JSON, as an infinite number.
pub fn value(document: &Document) -> Result<Value, String> {
    let mut whole = serde_json::to_value(document).map_err(|e| e.to_string())?;
    prune(&mut whole);
    named(&mut whole, KIND);
    for (i, profile) in document.profiles.iter().enumerate() {
        for (j, config) in profile.plugin_config.iter().enumerate() {
            let at = format!("/profiles/{i}/pluginConfig/{j}");
            let Some(Value::Object(written)) = whole.pointer_mut(&at) else { continue };
            if !matches!(config.args, PluginArgs::Other(_)) {
                named(
                    written.entry("args").or_insert_with(|| Map::new().into()),
                    &format!("{}Args", config.name),
                );
            }
        }
    }
    Ok(whole)
}

/// The same as YAML.
///
/// # Errors
/// A value has no form in it.
pub fn yaml(document: &Document) -> Result<String, String> {
    let text = value(document)?.to_string();
    Ok(api::yaml::emit(&api::yaml::parse(text.as_bytes()).map_err(|e| e.to_string())?))
}

/// Gives an object its version and kind.
fn named(object: &mut Value, kind: &str) {
    if let Value::Object(fields) = object {
        fields.insert("apiVersion".to_owned(), VERSION.into());
        fields.insert("kind".to_owned(), kind.into());
    }
}

/// Leaves out what upstream leaves out: nothing, empty lists, and the weights of plugins that do not score.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            let is_plugin = fields.len() == 2 && fields.contains_key("name");
            fields.retain(|key, value| {
                let says_nothing = value.is_null()
                    || value.as_array().is_some_and(Vec::is_empty)
                    || key == "weight" && is_plugin && *value == 0;
                !says_nothing
            });
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::{defaults, read};
    use super::*;

    /// A configuration that is written and read again is the same.
    fn check(fields: &str, has: &[&str]) {
        let text = format!("apiVersion: {VERSION}\nkind: {KIND}\n{fields}\n");
        let document = read::parse(text.as_bytes()).unwrap();
        let written = yaml(&document).unwrap();
        assert_eq!(read::parse(written.as_bytes()).as_ref(), Ok(&document), "{written}");
        for line in has {
            assert!(written.contains(line), "{line:?} in {written}");
        }
        assert!(!written.contains("null") && !written.contains("[]"), "{written}");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let usual = [
            "apiVersion: kubescheduler.config.k8s.io/v1\n",
            "kind: KubeSchedulerConfiguration\n",
            "  leaseDuration: 15s\n",
            "  schedulerName: default-scheduler\n",
            "kind: DefaultPreemptionArgs\n",
            "name: TaintToleration\n",
            "weight: 3\n",
        ];
        check("", &usual);
        check("leaderElection: {leaderElect: false, leaseDuration: 1m}", &["  leaderElect: false\n"]);
        check(
            "profiles: [{schedulerName: a, pluginConfig: [{name: Mine, args: {a: 1}}]}, {schedulerName: b}]",
            &["schedulerName: b\n", "name: Mine\n"],
        );
        check(
            "extenders: [{urlPrefix: 'http://a', filterVerb: f, weight: 0, httpTimeout: 2s}]",
            &["urlPrefix: http://a\n"],
        );
        let mut document = Document::default();
        defaults::complete(&mut document);
        assert_eq!(value(&document).unwrap()["parallelism"], 16);
    }
}
