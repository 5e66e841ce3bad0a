//! Many definitions: the time until all are served, and what they cost.

use std::time::Instant;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::Measured;
use super::objects::served;
use crate::process;
use crate::table::{Table, figure};
use crate::target::{Op, Target};

/// The path of definitions.
pub(super) const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FIELDS: u32 = 300;
/// The number of definitions in a group.
const IN_GROUP: u32 = 10;

/// Applies definitions until all are established, in discovery and in OpenAPI; then one more.
pub(super) async fn measure(of: &Measured, count: u32) -> Result<String> {
    let pids = of.server.pids();
    let before = process::memory(&pids)?;
    // One more is too little to be measured alone: the kernel counts CPU time in hundredths of a second.
    const MORE: u32 = 20;
    let mut definitions: Vec<String> = (0..count + MORE).map(definition).collect();
    let more = definitions.split_off(count as usize);
    let (cpu, began) = (process::cpu(&pids)?, Instant::now());
    eprintln!("bench: {}: {count} definitions", of.who);
    for definition in definitions {
        of.target.call(Op::post(PATH, definition)).await?;
    }
    for i in 0..count {
        // A group's document tells of all its kinds.
        is_served(&of.target, i, i % IN_GROUP == 0).await?;
    }
    let (seconds, spent) = (began.elapsed().as_secs_f64(), process::cpu(&pids)? - cpu);
    let after = process::memory(&pids)?;
    let (cpu, began) = (process::cpu(&pids)?, Instant::now());
    for (i, definition) in (count..).zip(more) {
        of.target.call(Op::post(PATH, definition)).await?;
        is_served(&of.target, i, true).await?;
    }
    let one = f64::from(MORE);
    let (more, more_spent) = (began.elapsed().as_secs_f64() / one, (process::cpu(&pids)? - cpu) / one);
    let mut table = Table::new(&["definitions of 300 fields", "s", "CPU s", "RSS before, MiB", "RSS after"]);
    table.row([
        format!("{count} until all are served"),
        figure(seconds),
        figure(spent),
        figure(before.rss),
        figure(after.rss),
    ]);
    table.row(["one more".to_owned(), format!("{more:.4}"), format!("{more_spent:.4}")]);
    Ok(format!("{}\n{table}", of.who))
}

/// Waits until a definition's resource can be listed, discovered, and read about in OpenAPI if that is asked.
async fn is_served(target: &Target, i: u32, documented: bool) -> Result<()> {
    let (group, kind) = names(i);
    let plural = format!("{}s", kind.to_lowercase());
    served(target, &format!("/apis/{group}/v1/{plural}")).await?;
    let document = (format!("/openapi/v3/apis/{group}/v1"), format!("/{plural}/{{name}}"));
    for (path, wanted) in
        [Some((format!("/apis/{group}/v1"), format!("\"{plural}\""))), documented.then_some(document)]
            .into_iter()
            .flatten()
    {
        let began = Instant::now();
        loop {
            if target.text(&path).await.is_ok_and(|text| text.contains(&wanted)) {
                break;
            }
            anyhow::ensure!(began.elapsed().as_secs() < 300, "{path} lacks {wanted}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await; // the pace of asking
        }
    }
    Ok(())
}

fn names(i: u32) -> (String, String) {
    (format!("g{}.example.org", i / IN_GROUP), format!("Kind{i}"))
}

/// A definition, as JSON.
fn definition(i: u32) -> String {
    let (group, kind) = names(i);
    let fields: Map<String, Value> = (0..FIELDS)
        .map(|f| {
            let field = match f % 3 {
                0 => json!({"type": "string", "description": "a text that says something"}),
                1 => json!({"type": "integer", "minimum": 0}),
                _ => json!({"type": "array", "items": {"type": "string"}}),
            };
            (format!("field{f:03}"), field)
        })
        .collect();
    let spec = json!({"spec": {"type": "object", "properties": fields}});
    of(&group, &kind, &spec).to_string()
}

/// A definition of one version.
pub(super) fn of(group: &str, kind: &str, properties: &Value) -> Value {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": singular},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
            }],
        },
    })
}
