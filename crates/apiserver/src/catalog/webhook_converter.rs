//! The conversion of a definition's objects by a webhook: `ConversionReview`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use access::webhook::{ClientConfig, Document, Network, Webhooks};
use api::go::quote;
use api::{Map, Node, Text};
use futures::FutureExt;
use futures::future::BoxFuture;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::conversion::LIMIT;
use super::converter::{Converter, NotConverted};

const GROUP: &str = "apiextensions.k8s.io";
const KIND: &str = "ConversionReview";
/// The versions of reviews.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Upstream's bounds of the calls' seconds.
const SECONDS: [f64; 15] =
    [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    result: &'static str,
    failure_type: &'static str,
}

/// The labels of one conversion.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Converted {
    crd_name: String,
    from_version: String,
    to_version: String,
    succeeded: &'static str,
}

/// Upstream's bounds of the conversions' seconds: from a millisecond, doubled fourteen times.
const CONVERTED_SECONDS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

/// The parts that all conversion webhooks share: the client, and its metrics.
pub(crate) struct ConversionWebhooks {
    client: Webhooks,
    network: Arc<Network>,
    requests: Family<Labels, Counter<u64, AtomicU64>>,
    seconds: Family<Labels, Histogram, fn() -> Histogram>,
    converted: Family<Converted, Histogram, fn() -> Histogram>,
}

impl ConversionWebhooks {
    pub(crate) fn new(network: Arc<Network>) -> Self {
        let seconds = Family::new_with_constructor((|| Histogram::new(SECONDS)) as fn() -> Histogram);
        let converted =
            Family::new_with_constructor((|| Histogram::new(CONVERTED_SECONDS)) as fn() -> Histogram);
        Self { client: Webhooks::default(), network, requests: Family::default(), seconds, converted }
    }
    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_conversion_webhook_request",
            "[ALPHA] Counter for conversion webhook requests with success/failure and failure error type",
            self.requests.clone(),
        );
        registry.register(
            "apiserver_conversion_webhook_duration_seconds",
            "[ALPHA] Conversion webhook request latency",
            self.seconds.clone(),
        );
        registry.register(
            "apiserver_crd_conversion_webhook_duration_seconds",
            "[ALPHA] CRD webhook conversion duration in seconds",
            self.converted.clone(),
        );
    }
    fn observe(&self, since: Instant, failure_type: &'static str) {
        let labels =
            Labels { result: if failure_type.is_empty() { "success" } else { "failure" }, failure_type };
        self.seconds.get_or_create(&labels).observe(since.elapsed().as_secs_f64());
        self.requests.get_or_create(&labels).inc();
    }
}

/// A definition's webhook.
pub(crate) struct WebhookConverter {
    /// The definition's name.
    name: Text,
    shared: Arc<ConversionWebhooks>,
    config: Arc<ClientConfig>,
    /// The first version of reviews that both know.
    version: Option<&'static str>,
}

impl WebhookConverter {
    /// The converter of a definition's `spec.conversion.webhook`; `name` is the definition's.
    pub(crate) fn new(
        name: Text,
        shared: Arc<ConversionWebhooks>,
        client_config: &str,
        review_versions: &[Text],
    ) -> Result<Self, String> {
        let config = serde_json::from_str(client_config).map_err(|e| e.to_string())?;
        let known = |version: &Text| VERSIONS.into_iter().find(|v| *v == version.as_str());
        Ok(Self { name, shared, config: Arc::new(config), version: review_versions.iter().find_map(known) })
    }
}

/// The text of a review that asks for a conversion.
fn review(version: &str, uid: &str, objects: &[Node], to: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024 * objects.len() + 512);
    let text = |s: &str, out: &mut Vec<u8>| api::codec::json::write_string(s, out);
    out.extend_from_slice(format!("{{\"kind\":\"{KIND}\",\"apiVersion\":\"{GROUP}/{version}\",").as_bytes());
    out.extend_from_slice(b"\"request\":{\"uid\":");
    text(uid, &mut out);
    out.extend_from_slice(b",\"desiredAPIVersion\":");
    text(to, &mut out);
    out.extend_from_slice(b",\"objects\":[");
    for (i, object) in objects.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        api::codec::json::encode_any(object, &mut out);
    }
    // Upstream sends an empty response along.
    out.extend_from_slice(
        b"]},\"response\":{\"uid\":\"\",\"convertedObjects\":null,\"result\":{\"metadata\":{}}}}",
    );
    out
}

/// The objects of a review's answer, or upstream's error.
fn answered(version: &str, uid: &str, document: Document) -> Result<Vec<Node>, String> {
    let Document { api_version, kind, mut content } = document;
    let response = match content.remove("response") {
        None | Some(Node::Null) => None,
        Some(Node::Map(response)) => Some(response),
        Some(_) => return Err("json: cannot unmarshal into Go struct field ConversionReview.response".into()),
    };
    let is_v1 = version == "v1";
    if is_v1 && (api_version != format!("{GROUP}/v1") || kind != KIND) {
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        return Err(format!(
            "expected webhook response of {GROUP}/v1, Kind={KIND}, got {group}/{version}, Kind={kind}"
        ));
    }
    let mut response = response.ok_or("no response provided")?;
    let text = |map: &Map, key: &str| map.get(key).map_or(String::new(), |n| n.as_str().to_owned());
    let got = text(&response, "uid");
    if is_v1 && got != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(&got)));
    }
    let result = response.get("result").and_then(Node::as_map).cloned().unwrap_or_default();
    let status = text(&result, "status");
    if status != "Success" {
        let message = text(&result, "message");
        if !message.is_empty() {
            return Err(message);
        }
        return Err(format!("response.result.status was '{status}', not 'Success'"));
    }
    match response.remove("convertedObjects") {
        None | Some(Node::Null) => Ok(Vec::new()),
        Some(Node::List(objects)) => Ok(objects),
        Some(_) => {
            Err("json: cannot unmarshal into Go struct field ConversionResponse.convertedObjects".into())
        }
    }
}

impl Converter for WebhookConverter {
    fn convert(&self, objects: &[Node], to: &str) -> BoxFuture<'static, Result<Vec<Node>, NotConverted>> {
        let Some(version) = self.version else {
            let why = NotConverted("no supported conversion review versions".into());
            return std::future::ready(Err(why)).boxed();
        };
        let uid = uuid::Uuid::new_v4().to_string();
        let body = review(version, &uid, objects, to);
        let (shared, config, count) = (Arc::clone(&self.shared), Arc::clone(&self.config), objects.len());
        let version_of = |api: &str| api.rsplit('/').next().unwrap_or_default().to_owned();
        let from = objects.first().and_then(Node::as_map).and_then(|object| object.get("apiVersion"));
        let labels = Converted {
            crd_name: self.name.to_string(),
            from_version: version_of(from.map_or("", Node::as_str)),
            to_version: version_of(to),
            succeeded: "true",
        };
        async move {
            let since = Instant::now();
            let all = shared.clone();
            let counted = |outcome: &Result<Vec<Node>, NotConverted>| {
                let done = outcome.as_ref().is_ok_and(|objects| objects.len() == count);
                let labels = Converted { succeeded: if done { "true" } else { "false" }, ..labels };
                all.converted.get_or_create(&labels).observe(since.elapsed().as_secs_f64());
            };
            let outcome = async {
                let answer = async {
                    let body = shared.client.post(&shared.network, &config, body.into(), LIMIT).await?;
                    let other = if version == "v1" { "v1beta1" } else { "v1" };
                    Document::read(&body, (GROUP, version), other, KIND)
                };
                let document = answer.await.map_err(|e| {
                    shared.observe(since, "conversion_webhook_call_failure");
                    NotConverted(e.to_string())
                })?;
                let objects = answered(version, &uid, document).map_err(|why| {
                    shared.observe(since, "conversion_webhook_malformed_response_failure");
                    NotConverted(why)
                })?;
                let partial = objects.len() != count;
                shared
                    .observe(since, if partial { "conversion_webhook_partial_response_failure" } else { "" });
                Ok(objects)
            };
            let outcome = outcome.await;
            counted(&outcome);
            outcome
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Upstream's `TestGetConvertedObjectsFromResponse`.
    #[test]
    fn answers() {
        let check = |version: &str, answer: Value, expected: Result<usize, &str>| {
            let body = answer.to_string();
            let other = if version == "v1" { "v1beta1" } else { "v1" };
            let got =
                Document::read(body.as_bytes(), (GROUP, version), other, KIND).map_err(|e| e.to_string());
            let got = got.and_then(|document| answered(version, "abc", document)).map(|all| all.len());
            assert_eq!(got.as_ref().map_err(String::as_str), expected.as_ref().map_err(|e| *e), "{answer}");
        };
        let review = |version: &str, response: Value| json!({"apiVersion": format!("{GROUP}/{version}"), "kind": KIND, "response": response});
        let objects = json!([{"a": 1}, {"b": 2}]);
        let success = json!({"uid": "abc", "result": {"status": "Success"}, "convertedObjects": objects});
        check("v1", review("v1", success.clone()), Ok(2));
        check("v1beta1", review("v1beta1", success.clone()), Ok(2));
        check("v1beta1", json!({ "response": success }), Ok(2));
        check(
            "v1",
            json!({ "response": success }),
            Err("expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind="),
        );
        for version in VERSIONS {
            check(version, review(version, Value::Null), Err("no response provided"));
            let silent = json!({"uid": "abc"});
            check(version, review(version, silent), Err("response.result.status was '', not 'Success'"));
            let failed = json!({"uid": "abc", "result": {"status": "Failure"}});
            check(
                version,
                review(version, failed),
                Err("response.result.status was 'Failure', not 'Success'"),
            );
            let said = json!({"uid": "abc", "result": {"status": "Failure", "message": "some message"}});
            check(version, review(version, said), Err("some message"));
        }
        let other = json!({"uid": "xyz", "result": {"status": "Success"}});
        check("v1", review("v1", other.clone()), Err("expected response.uid=\"abc\", got \"xyz\""));
        check("v1beta1", review("v1beta1", other), Ok(0));
    }

    #[test]
    fn questions() {
        let object = api::codec::json::decode_any(br#"{"kind":"Thing","apiVersion":"e/v1"}"#).unwrap();
        let asked: Value =
            serde_json::from_slice(&review("v1", "abc", &[object.clone(), object], "e/v2")).unwrap();
        assert_eq!(asked["request"]["uid"], "abc");
        assert_eq!(asked["request"]["desiredAPIVersion"], "e/v2");
        assert_eq!(asked["request"]["objects"][1], json!({"kind": "Thing", "apiVersion": "e/v1"}));
    }
}
