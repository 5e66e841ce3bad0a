//! The answers of the APIs of metrics: resource metrics, custom metrics, external metrics.

use std::collections::BTreeMap;

use api::{Status, time};
use client::{Call, Client, FromJson, Resource, Verb};
use compact_str::CompactString as Text;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::calculator::{PodMetric, PodMetrics};
use super::targets::{Answer, Question};
use crate::discovery::{Preferred, find_scaled, preferred_version};

/// The window of a custom metric that tells none; upstream's.
const WINDOW: SignedDuration = SignedDuration::from_secs(60);
/// The versions of custom metrics, the newest first.
const CUSTOM_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
const CUSTOM: &str = "custom.metrics.k8s.io";

client::from_json!(PodUse, CustomValues, ExternalValue);

/// The use of resources by a Pod.
#[derive(Debug, Deserialize)]
struct PodUse {
    metadata: Named,
    #[serde(default)]
    timestamp: Option<Time>,
    #[serde(default)]
    window: String,
    #[serde(default)]
    containers: Vec<ContainerUse>,
}

#[derive(Debug, Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct ContainerUse {
    name: String,
    #[serde(default)]
    usage: BTreeMap<String, Quantity>,
}

#[derive(Debug, Deserialize)]
struct CustomValues {
    #[serde(default)]
    items: Vec<CustomValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomValue {
    described_object: Named,
    #[serde(default)]
    timestamp: Option<Time>,
    /// `windowSeconds` of v1beta2; v1beta1 calls it `window`.
    #[serde(default, alias = "window")]
    window_seconds: Option<i64>,
    value: Quantity,
}

#[derive(Debug, Deserialize)]
struct ExternalValue {
    value: Quantity,
}

fn milli(quantity: &Quantity) -> i64 {
    objects::quantity::milli(Some(quantity))
}

fn at(time: Option<Time>) -> Timestamp {
    time.map_or(Timestamp::UNIX_EPOCH, |t| t.0)
}

/// The APIs of metrics, as a controller asks them.
pub(super) struct Source {
    pub(super) client: Client,
}

impl Source {
    /// Asks; `selector` is that of the target's Pods. The error is upstream's.
    pub(super) async fn ask(
        &self,
        question: &Question<'_>,
        namespace: &str,
        selector: &str,
    ) -> Result<Answer, String> {
        let from =
            |api: &str, e: Status| format!("unable to fetch metrics from {api} metrics API: {}", e.message);
        match question {
            Question::Resource { container, resource } => {
                let of = self.uses(namespace, selector).await.map_err(|e| from("resource", e))?;
                if of.is_empty() {
                    return Err("no metrics returned from resource metrics API".to_owned());
                }
                Ok(Answer::Pods(used(of, container, resource)))
            }
            Question::Pods { metric, labels } => {
                let of = self.custom_of_pods(namespace, metric, selector, labels).await;
                let of = of.map_err(|e| from("custom", e))?;
                if of.is_empty() {
                    return Err("no metrics returned from custom metrics API".to_owned());
                }
                Ok(Answer::Pods(values(of)))
            }
            Question::Object { metric, labels, of } => {
                let values = self.custom_of_object(namespace, metric, of, labels).await;
                let values = values.map_err(|e| from("custom", e))?;
                let [value] = values.as_slice() else {
                    let text = format!(
                        "the custom metrics API server returned {} results when we asked for exactly one",
                        values.len()
                    );
                    return Err(from("custom", Status::failure(500, "", text)));
                };
                Ok(Answer::One(milli(&value.value)))
            }
            Question::External { metric, labels } => {
                let values =
                    self.external(namespace, metric, labels).await.map_err(|e| from("external", e))?;
                if values.is_empty() {
                    return Err("no metrics returned from external metrics API".to_owned());
                }
                Ok(Answer::Several(values.iter().map(|v| milli(&v.value)).collect()))
            }
        }
    }

    /// The use of resources by the Pods of a selector.
    async fn uses(&self, namespace: &str, selector: &str) -> Result<Vec<PodUse>, Status> {
        let pods = resource("metrics.k8s.io", "v1beta1", "pods");
        let call = call(Verb::List, pods, (namespace, "", ""), &[("labelSelector", selector)]);
        self.list(call).await
    }

    async fn external(
        &self,
        namespace: &str,
        metric: &str,
        labels: &str,
    ) -> Result<Vec<ExternalValue>, Status> {
        let of = resource("external.metrics.k8s.io", "v1beta1", metric);
        self.list(call(Verb::List, of, (namespace, "", ""), &[("labelSelector", labels)])).await
    }

    async fn list<T: FromJson>(&self, call: Call) -> Result<Vec<T>, Status> {
        let answer = self.client.transport().list(call).await?;
        answer.items.iter().map(|item| T::from_json(item)).collect()
    }

    async fn custom_of_pods(
        &self,
        namespace: &str,
        metric: &str,
        selector: &str,
        labels: &str,
    ) -> Result<Vec<CustomValue>, Status> {
        let of = self.custom("pods").await?;
        let query = [("labelSelector", selector), ("metricLabelSelector", labels)];
        self.custom_values(call(Verb::Get, of, (namespace, "*", metric), &query)).await
    }

    async fn custom_of_object(
        &self,
        namespace: &str,
        metric: &str,
        of: &CrossVersionObjectReference,
        labels: &str,
    ) -> Result<Vec<CustomValue>, Status> {
        let api_version = of.api_version.as_deref().unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let query = [("metricLabelSelector", labels)];
        if of.kind == "Namespace" && group.is_empty() {
            // Nobody gets at another namespace than the autoscaler's, whatever the reference says.
            let metrics = self.custom("metrics").await?;
            return self.custom_values(call(Verb::Get, metrics, (namespace, metric, ""), &query)).await;
        }
        let Some(found) = find_scaled(&self.client, group, version, &of.kind).await? else {
            let kind = if group.is_empty() { of.kind.clone() } else { format!("{}.{group}", of.kind) };
            let why = format!(
                "unable to map kind {kind} to resource: no matches for kind {} in group {}",
                api::go::quote(&of.kind),
                api::go::quote(group)
            );
            return Err(Status::failure(500, "", why));
        };
        let plural = &found.resource.plural;
        let name = if group.is_empty() { plural.to_string() } else { format!("{plural}.{group}") };
        let of_object = self.custom(&name).await?;
        self.custom_values(call(Verb::Get, of_object, (namespace, &of.name, metric), &query)).await
    }

    async fn custom_values(&self, call: Call) -> Result<Vec<CustomValue>, Status> {
        let answer = self.client.transport().call(call).await?;
        Ok(CustomValues::from_json(&answer)?.items)
    }

    /// A resource of custom metrics, in the version that the server prefers.
    async fn custom(&self, plural: &str) -> Result<Resource, Status> {
        let version = preferred_version(&self.client, CUSTOM, &CUSTOM_VERSIONS).await?;
        let why = |text: String| Status::failure(500, "", text);
        match version {
            Preferred::Unserved => Err(why(format!("no custom metrics API ({CUSTOM}) registered"))),
            Preferred::Unknown => Err(why("no known available metric versions found".to_owned())),
            Preferred::Version(version) => Ok(resource(CUSTOM, &version, plural)),
        }
    }
}

fn resource(group: &str, version: &str, plural: &str) -> Resource {
    Resource { group: group.into(), version: version.into(), plural: plural.into() }
}

/// A request about a name and a subresource in a namespace.
fn call(
    verb: Verb,
    resource: Resource,
    (namespace, name, subresource): (&str, &str, &str),
    query: &[(&'static str, &str)],
) -> Call {
    let query = query.iter().filter(|(_, value)| !value.is_empty());
    let mut call = Call::new(verb, resource, namespace, name, subresource);
    call.query = query.map(|(key, value)| (Text::const_new(key), (*value).to_owned())).collect();
    call
}

/// The use of a resource, of those Pods of which all that is asked for was measured.
fn used(pods: Vec<PodUse>, container: &str, resource: &str) -> PodMetrics {
    let of_pod = |pod: &PodUse| -> Option<i64> {
        if container.is_empty() {
            if pod.containers.is_empty() {
                return None;
            }
            return pod
                .containers
                .iter()
                .try_fold(0_i64, |sum, c| Some(sum.saturating_add(milli(c.usage.get(resource)?))));
        }
        let of = pod.containers.iter().find(|c| c.name == container)?;
        of.usage.get(resource).map(milli)
    };
    let metric = |pod: PodUse| {
        let value = of_pod(&pod)?;
        let window = time::parse_duration(&pod.window).unwrap_or_default();
        Some((Text::from(pod.metadata.name), PodMetric { at: at(pod.timestamp), window, value }))
    };
    pods.into_iter().filter_map(metric).collect()
}

/// The values of Pods.
fn values(of: Vec<CustomValue>) -> PodMetrics {
    let metric = |value: CustomValue| {
        let window = value.window_seconds.map_or(WINDOW, SignedDuration::from_secs);
        let metric = PodMetric { at: at(value.timestamp), window, value: milli(&value.value) };
        (Text::from(value.described_object.name), metric)
    };
    of.into_iter().map(metric).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pods(of: &Value) -> Vec<PodUse> {
        let all = of.as_array().unwrap();
        all.iter().map(|pod| PodUse::from_json(pod.to_string().as_bytes()).unwrap()).collect()
    }

    /// Upstream's cases of the client of resource metrics.
    #[test]
    fn uses() {
        let container = |name: &str, cpu: &str| json!({"name": name, "usage": {"cpu": cpu, "memory": "1Mi"}});
        let pod = |name: &str, containers: Value| {
            json!({"metadata": {"name": name}, "timestamp": "2026-01-01T00:00:00Z",
            "window": "30s", "containers": containers})
        };
        let all = json!([
            pod("two", json!([container("a", "300m"), container("b", "5000000n")])),
            pod("none", json!([])),
            pod("partly", json!([container("a", "1"), {"name": "b", "usage": {"memory": "1"}}])),
        ]);
        let check = |of: &str, resource: &str, want: &[(&str, i64)]| {
            let got = used(pods(&all), of, resource);
            let got: Vec<(&str, i64)> = got.iter().map(|(name, m)| (name.as_str(), m.value)).collect();
            assert_eq!(got, want, "{of} {resource}");
        };
        check("", "cpu", &[("two", 305)]);
        check("a", "cpu", &[("partly", 1000), ("two", 300)]);
        check("b", "cpu", &[("two", 5)]);
        check("c", "cpu", &[]);
        check("b", "memory", &[("partly", 1000), ("two", 1_048_576_000)]);
        let metric = used(pods(&all), "", "cpu")["two"];
        assert_eq!(
            (metric.window, metric.at.to_string().as_str()),
            (SignedDuration::from_secs(30), "2026-01-01T00:00:00Z")
        );
    }

    /// Upstream's `TestRESTClientPodCPU`, `TestRESTClientContainerCPU`, `TestRESTClientPodCPUEmptyMetricsForOnePod`,
    /// `TestRESTClientContainerCPUEmptyMetricsForOnePod` and
    /// `TestRESTClientContainerCPUEmptyMetricsForOnePodReturnsOnlyFoundContainer`: the use of the containers of Pods, and the
    /// Pods of which it is known what they use. Lists without values (`TestRESTClientPodCPUEmptyMetrics`,
    /// `TestRESTClientQpsEmptyMetrics`, `TestRESTClientExternalEmptyMetrics`), `TestRESTClientSingleObject` and
    /// `TestRESTClientExternal` need an API of metrics: the simulation asks one.
    #[test]
    fn uses_of_containers() {
        let check = |pods: &[&[(&str, i64)]], container: &str, want: &[(&str, i64)]| {
            let of = |(i, all): (usize, &&[(&str, i64)])| {
                let all: Vec<Value> = all
                    .iter()
                    .map(|(name, cpu)| json!({"name": name, "usage": {"cpu": format!("{cpu}m"), "memory": "1Mi"}}))
                    .collect();
                json!({"metadata": {"name": format!("p{i}")}, "timestamp": "2026-01-01T00:01:00Z", "window": "30s",
                    "containers": all})
            };
            let all: Vec<Value> = pods.iter().enumerate().map(of).collect();
            let got = used(self::pods(&json!(all)), container, "cpu");
            assert!(got.values().all(|m| m.window == SignedDuration::from_secs(30)), "{got:?}");
            let got: Vec<(&str, i64)> = got.iter().map(|(name, m)| (name.as_str(), m.value)).collect();
            assert_eq!(got, want, "{pods:?} {container:?}");
        };
        let same = [("p0", 5000), ("p1", 5000), ("p2", 5000)];
        check(&[&[("test", 5000)][..]; 3], "", &same);
        check(&[&[("test-1", 5000), ("test-2", 500)][..]; 3], "test-1", &same);
        let partly: &[&[(&str, i64)]] = &[&[("test-1", 100)], &[("test-1", 300), ("test-2", 400)], &[]];
        check(partly, "", &[("p0", 100), ("p1", 700)]);
        check(partly, "test-1", &[("p0", 100), ("p1", 300)]);
        check(partly, "test-2", &[("p1", 400)]);
    }

    /// Upstream's `TestRESTClientQPS` and `TestRESTClientQpsSumEqualZero`.
    #[test]
    fn values_of_pods() {
        let check = |levels: [i64; 3]| {
            let item = |(i, level): (usize, &i64)| {
                json!({"describedObject": {"kind": "Pod", "name": format!("p{i}")}, "metric": {"name": "qps"},
                    "timestamp": "2026-01-01T00:01:00Z", "value": format!("{level}m")})
            };
            let items: Vec<Value> = levels.iter().enumerate().map(item).collect();
            let text = json!({ "items": items }).to_string();
            let got = values(CustomValues::from_json(text.as_bytes()).unwrap().items);
            assert!(got.values().all(|m| m.window == WINDOW && m.at.as_second() == 1_767_225_660), "{got:?}");
            assert!(got.values().map(|m| m.value).eq(levels), "{got:?}");
        };
        check([10_000, 20_000, 10_000]);
        check([0, 0, 0]);
    }

    #[test]
    fn custom_values() {
        let check = |item: Value, window: i64, milli: i64| {
            let text = json!({ "items": [item] }).to_string();
            let got = values(CustomValues::from_json(text.as_bytes()).unwrap().items);
            assert_eq!((got["p"].window.as_secs(), got["p"].value), (window, milli));
        };
        let object = json!({"kind": "Pod", "name": "p"});
        check(json!({"describedObject": object, "metric": {"name": "m"}, "value": "1500m"}), 60, 1500);
        check(json!({"describedObject": object, "windowSeconds": 10, "value": "2"}), 10, 2000);
        check(json!({"describedObject": object, "metricName": "m", "window": 20, "value": "2"}), 20, 2000);
    }
}
