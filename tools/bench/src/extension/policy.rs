//! The share of a policy, and that of a webhook, in a write.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use http::Method;
use serde_json::json;
use testkit::{Reply, Webhook};

use super::Measured;
use crate::requests::{MANY, Run};
use crate::table::{Table, figure};
use crate::target::Op;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const NAMESPACE: &str = "bench-policy";

/// Measures creates without a policy, with one that lets them pass, and with a webhook in its place that does.
pub(super) async fn measure(of: &Measured, count: u32) -> Result<String> {
    let pids = of.server.pids();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    of.target.call(Op::post("/api/v1/namespaces", namespace.to_string())).await?;
    let mut run = Run { who: of.who, target: Arc::clone(&of.target), pids: &pids, rows: Vec::new() };
    create(&mut run, "create ConfigMap", "without", count).await?;
    for (plural, object) in [
        (
            "validatingadmissionpolicies",
            json!({
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
            }),
        ),
        (
            "validatingadmissionpolicybindings",
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": "bench"},
                "spec": {"policyName": "bench", "validationActions": ["Deny"]},
            }),
        ),
    ] {
        of.target.call(Op::post(format!("{GROUP}/{plural}"), object.to_string())).await?;
    }
    let began = Instant::now();
    // A create that the policy refuses shows that it is in force.
    while of.target.call(op(&format!("refused-{}", began.elapsed().as_nanos()))).await.is_ok() {
        ensure!(began.elapsed() < Duration::from_mins(1), "the policy is not in force");
        tokio::time::sleep(Duration::from_millis(20)).await; // the pace of asking
    }
    create(&mut run, "the same with a policy of two expressions", "with", count).await?;
    let hook = webhook(of).await?;
    create(&mut run, "the same with a webhook", "asked", count).await?;
    ensure!(hook.asked().len() >= usize::try_from(count)?, "the webhook was not asked");
    let mut table = Table::new(&["operation", "ops/s", "p50 ms", "CPU µs/op", "more"]);
    let first = run.rows.first().map(|row| row.cpu).unwrap_or_default();
    for row in &run.rows {
        let median = row.p50.map(figure).unwrap_or_default();
        table.row([
            row.name.to_owned(),
            figure(row.rate),
            median,
            figure(row.cpu),
            format!("{:+.1} µs", row.cpu - first),
        ]);
    }
    Ok(format!("{}: {count} creates, {MANY} at once\n{table}", of.who))
}

/// Puts a webhook that lets everything pass in the policy's place, and waits until it is asked.
async fn webhook(of: &Measured) -> Result<Webhook> {
    let binding = format!("{GROUP}/validatingadmissionpolicybindings/bench");
    of.target.call(Op::with(Method::DELETE, binding, "", Bytes::new())).await?;
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
        of.target.call(op(&format!("first-{}", began.elapsed().as_nanos()))).await?;
    }
    Ok(hook)
}

async fn create(run: &mut Run<'_>, name: &'static str, prefix: &'static str, count: u32) -> Result<()> {
    run.phase(name, count, MANY, move |i| op(&format!("{prefix}-{i}"))).await
}

fn op(name: &str) -> Op {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value", "other": "value"},
    });
    Op::post(format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), object.to_string())
}
