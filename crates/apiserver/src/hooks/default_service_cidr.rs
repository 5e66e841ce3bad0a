//! The default range of Service addresses: a ServiceCIDR with the ranges that are configured.

use std::sync::Arc;

use api::Status;
use client::Verb;
use client::events::{EventType, Recorder};
use client::{FromJson, Transport};
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};

use super::env::Env;
use super::kept_object::{Changes, KeptObject, failed};
use crate::allocate::{Allocators, Cidr, DEFAULT_RANGE};

/// The ranges that are configured.
fn configured(allocators: &Allocators) -> Vec<String> {
    allocators.cidrs().iter().map(Cidr::text).collect()
}

/// Makes it, and keeps it up from then on.
pub(super) async fn run(env: &Env) -> Result<(), Status> {
    let wanted = configured(&env.allocators);
    let range = KeptObject {
        group: "networking.k8s.io",
        plural: "servicecidrs",
        namespace: "",
        object: json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "ServiceCIDR",
            "metadata": {"name": DEFAULT_RANGE},
            "spec": {"cidrs": wanted},
        }),
        ours: &[],
    };
    let recorder = env.recorder("kubernetes-service-cidr-controller");
    let mut changes = Changes::of(&env.objects, &range);
    settle(&*env.transport, &range, &wanted, &env.objects.now(), &recorder).await?;
    let (objects, transport) = (Arc::clone(&env.objects), Arc::clone(&env.transport));
    let stop = env.shutdown.clone();
    env.shutdown.spawn(async move {
        let keep = async {
            loop {
                changes.next(&objects, &range).await;
                while let Err(error) = settle(&*transport, &range, &wanted, &objects.now(), &recorder).await {
                    failed(&range, &error).await;
                }
            }
        };
        stop.run(keep).await;
    });
    Ok(())
}

/// The next step for the default ServiceCIDR.
#[derive(Debug, PartialEq, Eq)]
enum RangeStep {
    Nothing,
    /// A second family was configured.
    Grow,
    /// Nobody has said yet that it is ready.
    Ready,
    /// Its state is for people to look at.
    Warn {
        reason: String,
        message: String,
    },
}

/// Compares it with the configured ranges, as upstream's controller of it does.
fn default_range(object: &Value, configured: &[String]) -> RangeStep {
    let has = object["spec"]["cidrs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let has = has.collect::<Vec<_>>();
    if configured.len() == 2 && has == [configured[0].as_str()] {
        return RangeStep::Grow;
    }
    if object["metadata"].get("deletionTimestamp").is_some() {
        return RangeStep::Nothing;
    }
    if has.iter().ne(configured) {
        let message = format!(
            "The default ServiceCIDR [{}] does not match the controller flag configurations [{}]",
            has.join(" "),
            configured.join(" ")
        );
        return RangeStep::Warn { reason: "KubernetesDefaultServiceCIDRInconsistent".into(), message };
    }
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let Some(ready) = conditions.find(|c| c["type"] == "Ready") else { return RangeStep::Ready };
    let text = |field: &str| ready[field].as_str().unwrap_or_default();
    match text("status") {
        "True" => RangeStep::Nothing,
        "False" => RangeStep::Warn {
            reason: text("reason").into(),
            message: format!("Configuration matches, but {}", text("message")),
        },
        _ => RangeStep::Ready,
    }
}

/// Keeps the default ServiceCIDR as it is configured, and says that it is ready or what is wrong with it.
async fn settle(
    transport: &dyn Transport,
    range: &KeptObject,
    configured: &[String],
    now: &str,
    recorder: &Recorder,
) -> Result<(), Status> {
    range.ensure(transport).await?;
    let bytes = transport.call(range.call(Verb::Get, "", None)).await?;
    let mut object = Value::from_json(&bytes)?;
    let subresource = match default_range(&object, configured) {
        RangeStep::Nothing => return Ok(()),
        RangeStep::Grow => {
            object["spec"]["cidrs"] = json!(configured);
            ""
        }
        RangeStep::Ready => {
            let conditions = json!([{
                "type": "Ready",
                "status": "True",
                "reason": "",
                "message": "Kubernetes default Service CIDR is ready",
                "lastTransitionTime": now,
            }]);
            object["status"]["conditions"] = conditions;
            "status"
        }
        RangeStep::Warn { reason, message } => {
            let about = ObjectReference {
                api_version: Some("networking.k8s.io/v1".into()),
                kind: Some("ServiceCIDR".into()),
                name: Some(DEFAULT_RANGE.into()),
                uid: object["metadata"]["uid"].as_str().map(str::to_owned),
                ..ObjectReference::default()
            };
            recorder.event_about(about, EventType::Warning, &reason, message);
            return Ok(());
        }
    };
    match transport.call(range.call(Verb::Update, subresource, Some(&object))).await {
        Err(e) if !e.is_conflict() => Err(e),
        // Another server was faster.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_range() {
        let check = |object: Value, configured: &[&str], expected: RangeStep| {
            let configured = configured.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>();
            assert_eq!(default_range(&object, &configured), expected, "{object}");
        };
        let (a, b) = ("10.0.0.0/16", "fd00::/112");
        let of = |cidrs: &[&str], ready: &str| {
            let condition = json!({"type": "Ready", "status": ready, "reason": "Why", "message": "because"});
            json!({"metadata": {}, "spec": {"cidrs": cidrs}, "status": {"conditions": [condition]}})
        };
        check(json!({"spec": {"cidrs": [a]}}), &[a], RangeStep::Ready);
        check(of(&[a], "Unknown"), &[a], RangeStep::Ready);
        check(of(&[a], "True"), &[a], RangeStep::Nothing);
        check(of(&[a], "True"), &[a, b], RangeStep::Grow);
        let not_ready =
            RangeStep::Warn { reason: "Why".into(), message: "Configuration matches, but because".into() };
        check(of(&[a], "False"), &[a], not_ready);
        let message = "The default ServiceCIDR [10.0.0.0/16 fd00::/112] does not match the controller flag \
                       configurations [10.0.0.0/16]";
        let other = |message: &str| RangeStep::Warn {
            reason: "KubernetesDefaultServiceCIDRInconsistent".into(),
            message: message.into(),
        };
        check(of(&[a, b], "True"), &[a], other(message));
        let mut going = of(&[b], "True");
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        check(going, &[a], RangeStep::Nothing);
    }
}
