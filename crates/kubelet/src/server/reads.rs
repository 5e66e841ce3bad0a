//! Answers that only tell: of the kubelet, its Pods, and the use of resources.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use serving::answer::typed;
use serving::{Body, Failure};

use super::health::Health;
use super::metrics;
use super::query::Query;
use super::served::Served;
use crate::stats::summary::summary;

/// Answers what tells of the kubelet and the use of resources; none for another path.
pub(super) async fn read(
    served: &Served,
    health: &Health,
    parts: &[&str],
    query: &Query,
) -> Option<Result<Response<Body>, Failure>> {
    Some(match parts {
        ["healthz"] => Ok(health.answer(query.get("verbose").is_some())),
        ["healthz", check] => health.one(check).ok_or_else(Failure::not_found),
        ["metrics"] => metrics_answer(metrics::own(served).await),
        ["metrics", "resource"] => {
            let stats = served.collector.collect().await;
            metrics_answer(metrics::resource(stats.as_ref().ok()))
        }
        ["metrics", "cadvisor"] => metrics_answer(served.collector.cadvisor.page().await),
        ["metrics", "slis"] => metrics_answer(health.slis()),
        ["metrics", "probes"] => metrics_answer(metrics::probes(served)),
        _ => return None,
    })
}

/// Answers what tells of Pods; none for another path.
pub(super) async fn read_pods(
    served: &Served,
    parts: &[&str],
    query: &Query,
) -> Option<Result<Response<Body>, Failure>> {
    Some(match parts {
        ["pods"] => Ok(pod_list(&served.pods.pods())),
        ["stats", "summary"] => match served.collector.collect().await {
            Ok(stats) => {
                let only = query.bool("only_cpu_and_memory");
                json_answer(&summary(&stats, &served.config.node_name, only))
            }
            Err(status) => Err(runtime_failure(status)),
        },
        _ => return None,
    })
}

/// The methods that a path has; none for a path that is not there.
pub(super) fn methods(parts: &[&str]) -> Option<&'static [Method]> {
    Some(match parts {
        ["exec" | "attach", _, _, _] | ["exec" | "attach", _, _, _, _] => &[Method::GET, Method::POST],
        ["portForward", _, _] | ["portForward", _, _, _] => &[Method::GET, Method::POST],
        ["run", _, _, _] | ["run", _, _, _, _] => &[Method::POST],
        ["stats", "summary"] => &[Method::GET, Method::POST],
        ["pods" | "runningpods"] | ["runningpods", ""] | ["containerLogs", _, _, _] | ["logs", ..] => {
            &[Method::GET]
        }
        _ => return None,
    })
}

fn pod_list(pods: &[Arc<Pod>]) -> Response<Body> {
    let mut out = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#.to_vec();
    for (i, pod) in pods.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        // Typed objects always encode.
        out.extend(serde_json::to_vec(pod.as_ref()).unwrap_or_default());
    }
    out.extend_from_slice(b"]}");
    typed(out, "application/json")
}

pub(super) fn json_answer(value: &serde_json::Value) -> Result<Response<Body>, Failure> {
    Ok(typed(value.to_string().into_bytes(), "application/json"))
}

fn metrics_answer(page: impl Into<Bytes>) -> Result<Response<Body>, Failure> {
    Ok(typed(page, component::metrics::CONTENT_TYPE))
}

/// The answer for an error of the runtime.
pub(super) fn runtime_failure(status: tonic::Status) -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, status.message())
}
