//! Definitions that are large or odd, or change all the time, cost themselves and nobody else.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use testkit::{Server, eventually};

use crate::hostile::alive::serves_others;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUP: &str = "evil.example.com";

/// A definition whose `spec` has this schema.
fn definition(kind: &str, spec: &Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": spec},
            }}}],
        },
    })
}

fn objects(kind: &str) -> String {
    format!("/apis/{GROUP}/v1/namespaces/default/{}s", kind.to_lowercase())
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Makes a definition, and waits until it is served.
fn defined(server: &Server, kind: &str, spec: &Value) -> Result<()> {
    server.create(DEFINITIONS, &definition(kind, spec)).with_context(|| kind.to_owned())?;
    eventually("the definition is served", || {
        Ok((server.get(&objects(kind)).send()?.status == 200).then_some(()))
    })
}

fn properties(names: impl Iterator<Item = String>, of: &Value) -> Value {
    let all: Map<String, Value> = names.map(|name| (name, of.clone())).collect();
    json!({"type": "object", "properties": all})
}

/// The refusal of an object.
fn refusal(server: &Server, kind: &str, spec: &Value) -> Result<String> {
    let answer =
        server.request("POST", &objects(kind)).json(&object(kind, "bad", spec)).send()?.expect(422)?;
    Ok(answer.json()?["message"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_large_one_is_like_any_other() -> Result<()> {
    let server = Server::start(&[])?;
    let text = json!({"type": "string"});

    // Names that are as alike as can be: of one length, with the same beginning and the same end.
    let name = |i: usize| format!("property{i:05}property");
    defined(&server, "Alike", &properties((0..10_000).map(name), &text))?;
    let values: Map<String, Value> = (0..10_000).map(|i| (name(i), json!("x"))).collect();
    server.create(&objects("Alike"), &object("Alike", "all", &json!(values)))?;
    let stored = server.get(&format!("{}/all", objects("Alike"))).send()?.expect(200)?.json()?;
    ensure!(stored["spec"].as_object().map(Map::len) == Some(10_000));
    let why = refusal(&server, "Alike", &json!({name(9_999): 1}))?;
    ensure!(why.contains("property09999property"), "{why}");

    // As large as a body may be, and a little larger.
    let described = |bytes: usize| json!({"type": "string", "description": "d".repeat(bytes)});
    let names = || (0..29).map(|i| format!("p{i}"));
    defined(&server, "Large", &properties(names(), &described(100_000)))?;
    server.create(&objects("Large"), &object("Large", "one", &json!({"p1": "x"})))?;
    let larger = definition("Larger", &properties(names(), &described(110_000)));
    server.request("POST", DEFINITIONS).json(&larger).send()?.expect(413)?;
    server.get(&format!("/openapi/v3/apis/{GROUP}/v1")).send()?.expect(200)?;
    serves_others(&server)
}

#[test]
fn patterns_and_rules_end_in_time() -> Result<()> {
    let server = Server::start(&[])?;
    // A pattern for which others need a time that doubles with each letter.
    let spec =
        json!({"type": "object", "properties": {"p": {"type": "string", "pattern": "^(a+)+(b|(c|d)+)*$"}}});
    defined(&server, "Pattern", &spec)?;
    let why = refusal(&server, "Pattern", &json!({"p": format!("{}!", "a".repeat(100_000))}))?;
    ensure!(why.contains("should match"), "{}", &why[why.len().saturating_sub(300)..]);
    server.create(&objects("Pattern"), &object("Pattern", "good", &json!({"p": "a".repeat(100_000)})))?;
    // A pattern that grows when it is compiled is refused with its definition, as upstream's is.
    let spec = json!({"type": "object", "properties": {"p": {"type": "string", "pattern": "((a{1000}){1000}){1000}"}}});
    let refused = server.request("POST", DEFINITIONS).json(&definition("Grow", &spec)).send()?.expect(422)?;
    let why = refused.json()?["message"].as_str().unwrap_or_default().to_owned();
    ensure!(why.contains("must be a valid regular expression, but isn't: error parsing regexp"), "{why}");
    // Rules that cost too much are refused by their estimate.
    let rule = json!([{"rule": "self.a.all(x, self.a.all(y, self.a.all(z, x == y && y == z)))"}]);
    let list = json!({"type": "array", "items": {"type": "string"}});
    let spec = json!({"type": "object", "properties": {"a": list}, "x-kubernetes-validations": rule});
    let refused =
        server.request("POST", DEFINITIONS).json(&definition("Costly", &spec)).send()?.expect(422)?;
    let why = refused.json()?["message"].as_str().unwrap_or_default().to_owned();
    ensure!(why.contains("estimated rule cost exceeds budget"), "{why}");
    serves_others(&server)
}

#[test]
fn one_that_changes_all_the_time_loses_no_object() -> Result<()> {
    const CHANGES: usize = 100;
    let server = Server::start(&[])?;
    let schema =
        |turn: usize| properties((0..=turn % 7).map(|i| format!("p{i}")), &json!({"type": "string"}));
    defined(&server, "Changing", &schema(0))?;
    let path = format!("{DEFINITIONS}/changings.{GROUP}");
    let done = AtomicBool::new(false);
    let (server, done) = (&server, &done);
    let made = std::thread::scope(|scope| -> Result<BTreeSet<String>> {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                scope.spawn(move || -> Result<BTreeSet<String>> {
                    let mut made = BTreeSet::new();
                    while !done.load(Ordering::Relaxed) {
                        let name = format!("o-{writer}-{}", made.len());
                        let body = object("Changing", &name, &json!({"p0": name}));
                        server.request("POST", &objects("Changing")).json(&body).send()?.expect(201)?;
                        made.insert(name);
                    }
                    Ok(made)
                })
            })
            .collect();
        let changes = || -> Result<()> {
            for turn in 1..=CHANGES {
                let versions = definition("Changing", &schema(turn))["spec"]["versions"].clone();
                let patch = json!({"spec": {"versions": versions}});
                server.patch(&path, "merge", &patch).send()?.expect(200)?;
            }
            Ok(())
        };
        let changed = changes();
        done.store(true, Ordering::Relaxed);
        let mut all = BTreeSet::new();
        for writer in writers {
            all.extend(writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??);
        }
        changed?;
        Ok(all)
    })?;
    let list = server.get(&objects("Changing")).send()?.expect(200)?.json()?;
    let stored: BTreeSet<String> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|item| item["spec"]["p0"] == item["metadata"]["name"])
        .filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned))
        .collect();
    ensure!(!made.is_empty() && stored == made, "{} of {} are there", stored.len(), made.len());
    serves_others(server)
}
