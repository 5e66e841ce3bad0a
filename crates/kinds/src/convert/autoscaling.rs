//! HorizontalPodAutoscalers between version 1, which knows CPU utilization alone, and version 2. Annotations of version
//! 1 hold the fields that it lacks, so that nothing is lost on the way.

use api::codec::json;
use api::schema::Gvk;
use api::view::{Edit, View};
use api::{Map, Node, Schema, Struct, StructId};

use super::{NoConversion, renamed, root, same_fields};
use crate::validation::print;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const STATUSES: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// The sources of metrics: the type and its field.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
    ("External", "external"),
];

/// Converts a HorizontalPodAutoscaler.
pub(crate) fn convert(schema: &Schema, tree: Struct, from: &Gvk, to: &Gvk) -> Result<Struct, NoConversion> {
    match to.version.as_str() {
        "v1" => Ok(to_v1(schema, &tree, root(schema, from, to)?)),
        "v2" => Ok(to_v2(schema, &tree, root(schema, from, to)?)),
        _ => same_fields(schema, tree, from, to),
    }
}

/// Whether a metric is the resource metric on CPU by utilization, the only one that version 1 has.
fn is_cpu(metric: View<'_>) -> bool {
    let resource = metric.st("resource");
    metric.str("type") == "Resource" && resource.str("name") == "cpu"
}

fn by_utilization(metric: View<'_>) -> bool {
    is_cpu(metric) && metric.st("resource").st("target").has("averageUtilization")
}

fn text(schema: &Schema, node: &Node) -> String {
    let any = match node {
        Node::Struct(s) => json::to_any(schema, s),
        other => other.clone(),
    };
    let mut out = Vec::new();
    json::encode_any(&any, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// A JSON object of the present fields, in their order.
fn object(fields: &[(&str, Option<String>)]) -> String {
    let all: Vec<String> =
        fields.iter().filter_map(|(k, v)| v.as_ref().map(|v| format!("{k:?}:{v}"))).collect();
    format!("{{{}}}", all.join(","))
}

/// A field as JSON, if it is present.
fn given(v: View<'_>, field: &str) -> Option<String> {
    v.get(field).map(|n| text(v.schema, n))
}

fn or_zero(v: Option<String>) -> Option<String> {
    Some(v.unwrap_or_else(|| "\"0\"".into()))
}

fn or_empty(v: Option<String>) -> Option<String> {
    Some(v.unwrap_or_else(|| "\"\"".into()))
}

/// A metric of version 2 as version 1 writes it; `values` is the struct with its values, `spec` tells whether they are
/// wanted ones.
fn metric(m: View<'_>, spec: bool) -> String {
    let prefix = if spec { "target" } else { "current" };
    let name = |what: &str| format!("{prefix}{what}");
    let (value_key, average_key, utilization_key) =
        (name("Value"), name("AverageValue"), name("AverageUtilization"));
    let mut fields = vec![("type", or_empty(given(m, "type")))];
    for (_, field) in SOURCES {
        let Some(s) = m.opt(field) else { continue };
        let values = s.st(prefix);
        let (value, average) = (given(values, "value"), given(values, "averageValue"));
        let utilization = given(values, "averageUtilization");
        let of = if s.knows("metric") { s.st("metric") } else { View::empty(s.schema) };
        let (metric_name, selector) = (or_empty(given(of, "name")), given(of, "selector"));
        let resource_average = if spec { average.clone() } else { or_zero(average.clone()) };
        let source = match field {
            "object" => {
                let target = s.st("describedObject");
                let target = object(&[
                    ("kind", or_empty(given(target, "kind"))),
                    ("name", or_empty(given(target, "name"))),
                    ("apiVersion", given(target, "apiVersion")),
                ]);
                object(&[
                    ("target", Some(target)),
                    ("metricName", metric_name),
                    (&value_key, or_zero(value)),
                    ("selector", selector),
                    ("averageValue", average),
                ])
            }
            "pods" => object(&[
                ("metricName", metric_name),
                (&average_key, or_zero(average)),
                ("selector", selector),
            ]),
            "external" => object(&[
                ("metricName", metric_name),
                ("metricSelector", selector),
                (&value_key, if spec { value } else { or_zero(value) }),
                (&average_key, average),
            ]),
            _ => object(&[
                ("name", or_empty(given(s, "name"))),
                (&utilization_key, utilization),
                (&average_key, resource_average),
                (
                    "container",
                    if field == "containerResource" { or_empty(given(s, "container")) } else { None },
                ),
            ]),
        };
        fields.push((field, Some(source)));
    }
    object(&fields)
}

fn condition(c: View<'_>) -> String {
    object(&[
        ("type", or_empty(given(c, "type"))),
        ("status", or_empty(given(c, "status"))),
        ("lastTransitionTime", Some(given(c, "lastTransitionTime").unwrap_or_else(|| "null".into()))),
        ("reason", given(c, "reason")),
        ("message", given(c, "message")),
    ])
}

fn list(all: impl Iterator<Item = String>) -> Option<String> {
    let all: Vec<String> = all.collect();
    (!all.is_empty()).then(|| format!("[{}]", all.join(",")))
}

/// Takes out the annotations that only this conversion writes.
fn drop_annotations(e: &mut Edit<'_>) {
    let Some(mut meta) = e.at("metadata") else { return };
    let Some(notes) = meta.get_mut("annotations").and_then(Node::as_map_mut) else { return };
    for key in [METRICS, STATUSES, CONDITIONS, BEHAVIOR] {
        notes.remove(key);
    }
    if notes.is_empty() {
        meta.remove("annotations");
    }
}

fn to_v1(schema: &Schema, tree: &Struct, root: StructId) -> Struct {
    let mut out = renamed(schema, tree, root, &|name| name.to_owned());
    let view = View::new(schema, tree);
    let (spec, status) = (view.st("spec"), view.st("status"));
    let target = spec
        .items("metrics")
        .find(|m| is_cpu(*m))
        .and_then(|m| m.st("resource").st("target").opt_int("averageUtilization"));
    let current = status
        .items("currentMetrics")
        .find(|m| is_cpu(*m))
        .and_then(|m| m.st("resource").st("current").opt_int("averageUtilization"));
    let notes = [
        (METRICS, list(spec.items("metrics").filter(|m| !by_utilization(*m)).map(|m| metric(m, true)))),
        (STATUSES, list(status.items("currentMetrics").map(|m| metric(m, false)))),
        (BEHAVIOR, spec.opt("behavior").and_then(|b| b.raw()).map(|b| print::internal(schema, b))),
        (CONDITIONS, list(status.items("conditions").map(condition))),
    ];
    let mut edit = Edit::new(schema, &mut out);
    drop_annotations(&mut edit);
    if let Some(target) = target
        && let Some(mut spec) = edit.make("spec")
    {
        spec.set("targetCPUUtilizationPercentage", target);
    }
    if let Some(current) = current
        && let Some(mut status) = edit.make("status")
    {
        status.set("currentCPUUtilizationPercentage", current);
    }
    for (key, value) in notes {
        if let Some(value) = value
            && let Some(mut meta) = edit.make("metadata")
            && let Some(map) = meta.make_map("annotations")
        {
            map.insert(key, value);
        }
    }
    out
}

/// A map of the present entries.
fn map_of(entries: Vec<(&str, Option<Node>)>) -> Node {
    let mut map =
        Map::from_entries(entries.into_iter().filter_map(|(k, v)| v.map(|v| (k.into(), v))).collect());
    map.sort();
    Node::Map(map)
}

/// A metric of version 2 from the form of version 1.
fn metric_from(m: &Map, spec: bool) -> Node {
    let prefix = if spec { "target" } else { "current" };
    let mut out = vec![("type", m.get("type").cloned())];
    for (_, field) in SOURCES {
        let Some(s) = m.get(field).and_then(Node::as_map) else { continue };
        let get = |k: &str| s.get(k).filter(|n| !matches!(n, Node::Null)).cloned();
        let value = get(&format!("{prefix}Value"));
        let average = match field {
            "object" => get("averageValue"),
            _ => get(&format!("{prefix}AverageValue")),
        };
        let utilization = get(&format!("{prefix}AverageUtilization"));
        let ty = match field {
            "object" if average.is_none() => "Value",
            "external" if value.is_some() => "Value",
            "resource" | "containerResource" if utilization.is_some() => "Utilization",
            _ => "AverageValue",
        };
        let values = map_of(vec![
            ("type", spec.then(|| Node::from(ty))),
            ("value", value),
            ("averageValue", average),
            ("averageUtilization", utilization),
        ]);
        let of_resource = matches!(field, "resource" | "containerResource");
        let identifier = (!of_resource).then(|| {
            let selector = get(if field == "external" { "metricSelector" } else { "selector" });
            map_of(vec![("name", get("metricName")), ("selector", selector)])
        });
        let source = map_of(vec![
            ("describedObject", get("target")),
            ("metric", identifier),
            ("name", if of_resource { get("name") } else { None }),
            ("container", get("container")),
            (prefix, Some(values)),
        ]);
        out.push((field, Some(source)));
    }
    map_of(out)
}

/// Turns keys with Go's field names into JSON names.
fn json_names(node: Node) -> Node {
    match node {
        Node::Map(m) => {
            let mut map = Map::from_entries(
                m.into_entries()
                    .into_iter()
                    .map(|(k, v)| {
                        let mut name = k.to_string();
                        if let Some(first) = name.get_mut(..1) {
                            first.make_ascii_lowercase();
                        }
                        (name.into(), json_names(v))
                    })
                    .collect(),
            );
            map.sort();
            Node::Map(map)
        }
        Node::List(l) => Node::List(l.into_iter().map(json_names).collect()),
        other => other,
    }
}

fn to_v2(schema: &Schema, tree: &Struct, root: StructId) -> Struct {
    let mut out = renamed(schema, tree, root, &|name| name.to_owned());
    let view = View::new(schema, tree);
    let target = view.st("spec").opt_int("targetCPUUtilizationPercentage");
    let current = view.st("status").opt_int("currentCPUUtilizationPercentage");
    let note = |key: &str| {
        let text = view.st("metadata").map("annotations")?.get(key)?.as_str();
        json::decode_any(text.as_bytes()).ok()
    };
    let metrics_of = |key: &str, spec: bool| match note(key)? {
        Node::List(l) => {
            Some(l.iter().filter_map(Node::as_map).map(|m| metric_from(m, spec)).collect::<Vec<_>>())
        }
        _ => None,
    };
    let (wanted, measured) = (metrics_of(METRICS, true), metrics_of(STATUSES, false));
    let (conditions, behavior) = (note(CONDITIONS), note(BEHAVIOR).map(json_names));
    let mut edit = Edit::new(schema, &mut out);
    drop_annotations(&mut edit);
    let cpu = |values: &str, n: i64| {
        let mut v = vec![("averageUtilization", Some(Node::Int(n)))];
        if values == "target" {
            v.push(("type", Some(Node::from("Utilization"))));
        }
        let resource = map_of(vec![("name", Some(Node::from("cpu"))), (values, Some(map_of(v)))]);
        map_of(vec![("type", Some(Node::from("Resource"))), ("resource", Some(resource))])
    };
    // An annotation that cannot be read counts as absent.
    let put = |e: &mut Edit<'_>, field: &str, value: Node| {
        if let Some(ty) = e.view().type_of(field)
            && let Ok((Some(node), _)) = json::from_any(schema, ty, value)
        {
            e.set(field, node);
        }
    };
    if let Some(mut spec) = edit.make("spec") {
        let mut all = wanted.unwrap_or_default();
        all.extend(target.map(|n| cpu("target", n)));
        if !all.is_empty() {
            put(&mut spec, "metrics", Node::List(all));
        }
        if let Some(b) = behavior {
            put(&mut spec, "behavior", b);
            if spec.view().st("behavior").is_empty() {
                spec.remove("behavior");
            }
        }
    }
    let measured =
        measured.or_else(|| current.map(|n| vec![cpu("current", n)])).filter(|all| !all.is_empty());
    let conditions = conditions.filter(|c| !c.as_list().is_empty());
    for (field, all) in [("currentMetrics", measured.map(Node::List)), ("conditions", conditions)] {
        if let Some(all) = all
            && let Some(mut status) = edit.make("status")
        {
            put(&mut status, field, all);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use api::schema::Gvk;

    use super::*;

    /// Through version 1 and back, nothing of an autoscaler is lost.
    #[test]
    fn round_trip() {
        let schema = Schema::builtin();
        let v2 = schema.kind(&Gvk::new("autoscaling", "v2", "HorizontalPodAutoscaler")).unwrap();
        let v1 = schema.kind(&Gvk::new("autoscaling", "v1", "HorizontalPodAutoscaler")).unwrap();
        let check = |body: &str| {
            let tree =
                json::root_from_any(schema, v2, json::decode_any(body.as_bytes()).unwrap()).unwrap().tree;
            let there = to_v1(schema, &tree, v1);
            assert_eq!(to_v2(schema, &there, v2), tree, "{body}");
        };
        check(
            r#"{"metadata":{"name":"a"},"spec":{"maxReplicas":3,"metrics":[
            {"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":7}}}]}}"#,
        );
        check(
            r#"{"metadata":{"name":"a","annotations":{"k":"v"}},"spec":{"maxReplicas":3,"metrics":[
            {"type":"Pods","pods":{"metric":{"name":"rps","selector":{"matchLabels":{"a":"b"}}},
                "target":{"type":"AverageValue","averageValue":"10"}}},
            {"type":"External","external":{"metric":{"name":"q"},"target":{"type":"Value","value":"5"}}},
            {"type":"Object","object":{"describedObject":{"kind":"Ingress","name":"i","apiVersion":"networking.k8s.io/v1"},
                "metric":{"name":"hits"},"target":{"type":"Value","value":"2k"}}},
            {"type":"ContainerResource","containerResource":{"name":"memory","container":"c",
                "target":{"type":"AverageValue","averageValue":"1Gi"}}}],
            "behavior":{"scaleUp":{"stabilizationWindowSeconds":10,"selectPolicy":"Max",
                "policies":[{"type":"Pods","value":2,"periodSeconds":20}]}}},
            "status":{"currentMetrics":[{"type":"Resource","resource":{"name":"cpu",
                "current":{"averageUtilization":3,"averageValue":"30m"}}}],
                "conditions":[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z",
                    "reason":"R","message":"m"}]}}"#,
        );
    }
}
