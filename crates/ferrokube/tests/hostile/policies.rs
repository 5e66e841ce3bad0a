//! Policies of somebody who means harm, or does not know better: others are served, and the policy can be taken away.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::Server;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn bind(server: &Server, name: &str, mut spec: Value, params: Option<Value>) -> Result<()> {
    spec["matchConstraints"] = json!({"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
    }]});
    server.create(
        &format!("{GROUP}/validatingadmissionpolicies"),
        &json!({"metadata": {"name": name}, "spec": spec}),
    )?;
    let mut binding = json!({"policyName": name, "validationActions": ["Deny"]});
    if let Some(params) = params {
        binding["paramRef"] = params;
    }
    let binding = json!({"metadata": {"name": name}, "spec": binding});
    server.create(&format!("{GROUP}/validatingadmissionpolicybindings"), &binding)?;
    Ok(())
}

/// Tries to make a ConfigMap; returns the code and the message.
fn try_create(server: &Server, name: &str) -> Result<(u16, String)> {
    let map = json!({"metadata": {"name": name}, "data": {"k": "v"}});
    let answer = server.request("POST", MAPS).json(&map).send()?;
    let message = answer.json()?["message"].as_str().unwrap_or_default().to_owned();
    Ok((answer.status, message))
}

fn unbind(server: &Server, name: &str) -> Result<()> {
    for plural in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
        server.request("DELETE", &format!("{GROUP}/{plural}/{name}")).send()?.expect(200)?;
    }
    Ok(())
}

#[test]
fn ten_thousand_expressions_hold_nobody_else_up() -> Result<()> {
    let server = Server::start(&[])?;
    let validations: Vec<Value> = (0..10_000)
        .map(|i| json!({"expression": format!("!has(object.data.k{i}) || object.data.k{i}.matches('^[a-z]*$')")}))
        .collect();
    bind(&server, "many", json!({"validations": validations}), None)?;
    let others = std::thread::scope(|scope| {
        let writer = scope.spawn(|| try_create(&server, "first"));
        // Others read meanwhile.
        let mut longest = Duration::ZERO;
        while !writer.is_finished() {
            let began = Instant::now();
            server.get("/api/v1/namespaces/default").send()?.expect(200)?;
            longest = longest.max(began.elapsed());
        }
        let (code, message) = writer.join().map_err(|_| anyhow::anyhow!("the writer ended"))??;
        ensure!(code == 201, "{code}: {message}");
        Ok(longest)
    })?;
    ensure!(others < Duration::from_secs(5), "somebody else waited for {others:?}");
    unbind(&server, "many")
}

#[test]
fn an_expression_beyond_its_budget_refuses_and_ends() -> Result<()> {
    let server = Server::start(&[])?;
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let mut costly = "true".to_owned();
    for depth in 0..8 {
        costly = format!("{ten}.all(v{depth}, {costly})");
    }
    bind(&server, "costly", json!({"validations": [{"expression": costly}]}), None)?;
    let (code, message) = try_create(&server, "a")?;
    ensure!(
        code == 422 && message.ends_with("operation cancelled: actual cost limit exceeded"),
        "{code}: {message}"
    );
    unbind(&server, "costly")?;
    // Variables that are built of each other, as deeply as a request has room for.
    let mut variables = vec![json!({"name": "v0", "expression": "1"})];
    variables.extend(
        (1..10_000).map(|i| json!({"name": format!("v{i}"), "expression": format!("variables.v{}", i - 1)})),
    );
    let deep = json!({"variables": variables, "validations": [{"expression": "variables.v9999 == 1"}]});
    bind(&server, "deep", deep, None)?;
    let (code, message) = try_create(&server, "a")?;
    ensure!(code == 422 && message.contains("is built of more than"), "{code}: {message}");
    unbind(&server, "deep")?;
    ensure!(try_create(&server, "a")?.0 == 201, "the policies are gone");
    Ok(())
}

#[test]
fn parameters_that_are_gone_refuse_what_the_policy_is_about_and_nothing_else() -> Result<()> {
    let server = Server::start(&[])?;
    let spec = json!({
        "paramKind": {"apiVersion": "limits.example.com/v1", "kind": "Limit"},
        "validations": [{"expression": "params.spec.most > 1"}],
    });
    bind(&server, "gone", spec, Some(json!({"name": "x", "parameterNotFoundAction": "Deny"})))?;
    let (code, message) = try_create(&server, "a")?;
    let text = "failed to configure policy: failed to find resource referenced by paramKind: 'limits.example.com/v1, Kind=Limit'";
    ensure!(code == 422 && message.ends_with(text), "{code}: {message}");
    let secret = json!({"metadata": {"name": "a"}});
    server.create("/api/v1/namespaces/default/secrets", &secret)?;
    unbind(&server, "gone")?;
    ensure!(try_create(&server, "a")?.0 == 201, "the policy is gone");
    Ok(())
}
