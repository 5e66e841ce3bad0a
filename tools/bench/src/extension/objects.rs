//! Objects of a definition with fifty fields and three rules, beside ConfigMaps of the same size.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http::Method;
use serde_json::{Map, Value, json};

use super::{Measured, ROUNDS, WATCHERS, median};
use crate::requests::{JSON, MANY, Row, Run, make_namespace};
use crate::table::{Table, figure};
use crate::target::{Op, Target};

const GROUP: &str = "bench.example.com";
const FIELDS: u32 = 50;
/// The time that a definition may take to be served.
const SERVED_WITHIN: Duration = Duration::from_mins(1);

/// A resource that is measured.
struct Resource {
    path: String,
    object: fn(&str, u32) -> Value,
}

/// Measures both resources, and compares them.
pub(super) async fn measure(of: &Measured, count: u32) -> Result<String> {
    let pids = of.server.pids();
    let namespace = make_namespace(&of.target).await?;
    let definition = definition();
    of.target.call(Op::post(super::definitions::PATH, definition.to_string())).await?;
    let custom = format!("/apis/{GROUP}/v1/namespaces/{namespace}/widgets");
    served(&of.target, &custom).await?;
    let resources = [
        Resource { path: format!("/api/v1/namespaces/{namespace}/configmaps"), object: config_map },
        Resource { path: custom, object: widget },
    ];
    // By turns, since a machine's pace changes from minute to minute.
    let mut all: [Vec<Vec<Row>>; 2] = Default::default();
    for round in 0..ROUNDS {
        for (resource, rounds) in resources.iter().zip(&mut all) {
            let mut run = Run { who: of.who, target: Arc::clone(&of.target), pids: &pids, rows: Vec::new() };
            load(&mut run, resource, round, count.div_ceil(ROUNDS)).await?;
            rounds.push(run.rows);
        }
    }
    let mut table = Table::new(&[
        "operation (CPU µs of the server)",
        "ConfigMap",
        "custom resource",
        "ratio",
        "p50 ms",
        "p50 ms",
    ]);
    let [built_in, custom] = &all;
    for (place, operation) in built_in[0].iter().enumerate() {
        let of = |rounds: &[Vec<Row>], figure: fn(&Row) -> f64| {
            median(rounds.iter().map(|rows| figure(&rows[place])).collect())
        };
        let cpu = |row: &Row| row.cpu;
        let p50 = |row: &Row| row.p50.unwrap_or_default();
        let pairs = built_in.iter().zip(custom).map(|(one, other)| other[place].cpu / one[place].cpu);
        table.row([
            operation.name.to_owned(),
            figure(of(built_in, cpu)),
            figure(of(custom, cpu)),
            format!("{:.2}×", median(pairs.collect())),
            figure(of(built_in, p50)),
            figure(of(custom, p50)),
        ]);
    }
    Ok(format!(
        "{}: objects of {FIELDS} fields, {count} of each, medians of {ROUNDS} rounds by turns\n{table}",
        of.who
    ))
}

/// Waits until a resource can be listed.
pub(super) async fn served(target: &Target, path: &str) -> Result<()> {
    let began = Instant::now();
    while let Err(error) = target.call(Op::get(path)).await {
        if began.elapsed() > SERVED_WITHIN {
            bail!("{path} is not served: {error:#}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await; // the pace of asking
    }
    Ok(())
}

async fn load(run: &mut Run<'_>, resource: &Resource, round: u32, count: u32) -> Result<()> {
    let (path, object) = (resource.path.clone(), resource.object);
    let at = path.clone();
    run.phase("create", count, MANY, move |i| {
        Op::post(&at, object(&format!("o-{round}-{i}"), 0).to_string())
    })
    .await?;
    let at = path.clone();
    run.phase("get", 2 * count, MANY, move |i| Op::get(format!("{at}/o-{round}-{}", i % count))).await?;
    // A custom resource is updated from the version that its writer knows, so both are.
    let list = run.target.json(Op::get(&path)).await?;
    let known: HashMap<String, Value> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| {
            let of = &item["metadata"];
            Some((of["name"].as_str()?.to_owned(), of["resourceVersion"].clone()))
        })
        .collect();
    let at = path.clone();
    run.phase("update", count, MANY, move |i| {
        let name = format!("o-{round}-{i}");
        let mut object = object(&name, 1);
        object["metadata"]["resourceVersion"] = known.get(&name).cloned().unwrap_or_default();
        Op::with(Method::PUT, format!("{at}/{name}"), JSON, object.to_string())
    })
    .await?;
    let at = path.clone();
    run.phase("list", 15, 1, move |_| Op::get(&at)).await?;
    let written = |name: &str| object(&format!("{name}-{round}"), 0).to_string();
    run.fan_out("watch, one event to one watcher", &path, WATCHERS, written).await
}

fn value(i: u32, of: u32) -> String {
    format!("value-{i:02}-{of}")
}

fn config_map(name: &str, of: u32) -> Value {
    let data: Map<String, Value> =
        (0..FIELDS).map(|i| (format!("field{i:02}"), value(i, of).into())).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn widget(name: &str, of: u32) -> Value {
    let spec: Map<String, Value> =
        (0..FIELDS).map(|i| (format!("field{i:02}"), value(i, of).into())).collect();
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

fn definition() -> Value {
    let fields: Map<String, Value> =
        (0..FIELDS).map(|i| (format!("field{i:02}"), json!({"type": "string", "maxLength": 64}))).collect();
    let rules = json!([
        {"rule": "self.field00.startsWith('value-')", "message": "it is no value"},
        {"rule": "self.field01.size() <= 64 && self.field02 != self.field03"},
        {"rule": "self.field04 == oldSelf.field04 || self.field05 != ''"},
    ]);
    let spec = json!({"type": "object", "properties": fields, "x-kubernetes-validations": rules});
    super::definitions::of(GROUP, "Widget", &json!({"spec": spec}))
}
