//! The share of a policy, and that of a webhook, in a write.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use http::Method;
use serde_json::json;
use testkit::{Reply, Webhook};

use super::{Measured, ROUNDS, median};
use crate::requests::{MANY, Row, Run};
use crate::table::{Table, figure};
use crate::target::Op;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const NAMESPACE: &str = "bench-policy";

/// The creates without anything, with a policy that lets them pass, and with a webhook that does.
const NAMES: [&str; 3] =
    ["create ConfigMap", "the same with a policy of two expressions", "the same with a webhook"];

/// Measures creates without a policy, with one that lets them pass, and with a webhook in its place that does: `count`
/// of each, in several rounds, of which the medians count.
pub(super) async fn measure(of: &Measured, count: u32) -> Result<String> {
    let pids = of.server.pids();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    of.target.call(Op::post("/api/v1/namespaces", namespace.to_string())).await?;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "bench"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
            }]},
            "validations": [
                {"expression": "!object.metadata.name.startsWith('refused')", "message": "it is in force"},
                {"expression": "object.data.all(k, k.size() < 100)"},
            ],
        },
    });
    of.target.call(Op::post(format!("{GROUP}/validatingadmissionpolicies"), policy.to_string())).await?;
    let mut run = Run { who: of.who, target: Arc::clone(&of.target), pids: &pids, rows: Vec::new() };
    let each = count.div_ceil(ROUNDS);
    for round in 0..ROUNDS {
        create(&mut run, NAMES[0], format!("without-{round}"), each).await?;
        bind(of, round).await?;
        create(&mut run, NAMES[1], format!("with-{round}"), each).await?;
        remove(of, "validatingadmissionpolicybindings").await?;
        let hook = webhook(of, round).await?;
        create(&mut run, NAMES[2], format!("asked-{round}"), each).await?;
        ensure!(hook.asked().len() >= usize::try_from(each)?, "the webhook was not asked");
        remove(of, "validatingwebhookconfigurations").await?;
    }
    let mut table = Table::new(&["operation", "ops/s", "p50 ms", "CPU µs/op", "more"]);
    let of_name = |name: &str, figure: &dyn Fn(&Row) -> f64| {
        median(run.rows.iter().filter(|row| row.name == name).map(figure).collect())
    };
    // A round's own difference, since the next round may go at another pace.
    let more = |place: usize| {
        median(run.rows.chunks(NAMES.len()).map(|round| round[place].cpu - round[0].cpu).collect())
    };
    for (place, name) in NAMES.into_iter().enumerate() {
        table.row([
            name.to_owned(),
            figure(of_name(name, &|row| row.rate)),
            figure(of_name(name, &|row| row.p50.unwrap_or_default())),
            figure(of_name(name, &|row| row.cpu)),
            format!("{:+.1} µs", more(place)),
        ]);
    }
    Ok(format!("{}: {count} creates, {MANY} at once, medians of {ROUNDS} rounds\n{table}", of.who))
}

/// Binds the policy, and waits until it is in force.
async fn bind(of: &Measured, round: u32) -> Result<()> {
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "bench"},
        "spec": {"policyName": "bench", "validationActions": ["Deny"]},
    });
    of.target
        .call(Op::post(format!("{GROUP}/validatingadmissionpolicybindings"), binding.to_string()))
        .await?;
    let began = Instant::now();
    // A create that the policy refuses shows that it is in force.
    while of.target.call(op(&format!("refused-{round}-{}", began.elapsed().as_nanos()))).await.is_ok() {
        ensure!(began.elapsed() < Duration::from_mins(1), "the policy is not in force");
        tokio::time::sleep(Duration::from_millis(20)).await; // the pace of asking
    }
    Ok(())
}

/// Removes one of the objects named `bench`.
async fn remove(of: &Measured, plural: &str) -> Result<()> {
    of.target
        .call(Op::with(Method::DELETE, format!("{GROUP}/{plural}/bench"), "", Bytes::new()))
        .await
        .map(drop)
}

/// Configures a webhook that lets everything pass, and waits until it is asked.
async fn webhook(of: &Measured, round: u32) -> Result<Webhook> {
    let hook = Webhook::start(|question| {
        let uid = &question.body["request"]["uid"];
        Reply::Json(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": uid, "allowed": true},
        }))
    })?;
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "bench"},
        "webhooks": [{
            "name": "bench.example.com", "clientConfig": hook.client_config("/"), "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        }],
    });
    of.target
        .call(Op::post(format!("{GROUP}/validatingwebhookconfigurations"), configuration.to_string()))
        .await?;
    let began = Instant::now();
    while hook.asked().is_empty() {
        ensure!(began.elapsed() < Duration::from_mins(1), "the webhook is not asked");
        of.target.call(op(&format!("first-{round}-{}", began.elapsed().as_nanos()))).await?;
    }
    Ok(hook)
}

async fn create(run: &mut Run<'_>, name: &'static str, prefix: String, count: u32) -> Result<()> {
    run.phase(name, count, MANY, move |i| op(&format!("{prefix}-{i}"))).await
}

fn op(name: &str) -> Op {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value", "other": "value"},
    });
    Op::post(format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), object.to_string())
}
