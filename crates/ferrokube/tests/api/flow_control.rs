//! API priority and fairness on the wire.

use std::collections::BTreeMap;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use testkit::{Answer, Server, eventually};

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

/// The uids of flow schema and priority level that an answer to a GET of a path has, asked as a user.
fn sorted(server: &Server, user: &str, path: &str) -> Result<(u16, String, String)> {
    let request = server.get(path).header("Impersonate-User", user);
    let answer = request.header("Impersonate-Group", "system:authenticated").send()?;
    let header = |name| answer.header(name).to_owned();
    let (schema, level) =
        (header("x-kubernetes-pf-flowschema-uid"), header("x-kubernetes-pf-prioritylevel-uid"));
    Ok((answer.status, schema, level))
}

fn metric(server: &Server, start: &str) -> Result<Option<f64>> {
    let metrics = server.get("/metrics").send()?.expect(200)?.text();
    let line = metrics.lines().find_map(|line| line.strip_prefix(start));
    line.map(|value| value.trim().parse().context("a number")).transpose()
}

/// Makes a priority level of one seat and its flow schema, for the user `noxu`; their uids, the schema's first.
fn make(server: &Server) -> Result<(String, String)> {
    let level = server.create(
        &format!("{GROUP}/prioritylevelconfigurations"),
        &json!({
            "metadata": {"name": "test-level"},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"},
            }},
        }),
    )?;
    let schema = server.create(
        &format!("{GROUP}/flowschemas"),
        &json!({
            "metadata": {"name": "test-schema"},
            "spec": {
                "matchingPrecedence": 1000,
                "priorityLevelConfiguration": {"name": "test-level"},
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [{
                    "subjects": [{"kind": "User", "user": {"name": "noxu"}}],
                    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                    "resourceRules": [{
                        "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true,
                        "namespaces": ["*"],
                    }],
                }],
            },
        }),
    )?;
    let uid = |object: &serde_json::Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    Ok((uid(&schema), uid(&level)))
}

/// Has `noxu` write more at once than it has seats for; an answer to a write that found none.
fn overload(server: &Server) -> Result<Answer> {
    let data: BTreeMap<String, &str> = (0..100_000).map(|n| (format!("k{n}"), "v")).collect();
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "large"}, "data": data});
    let body = map.to_string();
    let write = || -> Result<Answer> {
        let request = server.request("POST", "/api/v1/namespaces/default/configmaps?dryRun=All");
        let request = request.header("Impersonate-User", "noxu").body("application/json", body.clone());
        request.header("Impersonate-Group", "system:authenticated").send()
    };
    eventually("a request for which there is no seat", || {
        let answers = thread::scope(|scope| {
            let all: Vec<_> = (0..6).map(|_| scope.spawn(write)).collect();
            let joined = all.into_iter().map(|one| one.join().unwrap_or_else(|_| bail!("a client panicked")));
            joined.collect::<Result<Vec<Answer>>>()
        })?;
        let served = answers.iter().any(|answer| answer.status == 201);
        Ok(answers.into_iter().find(|answer| served && answer.status == 429))
    })
}

/// Looks at what the pages about flow control show.
fn look_at_pages(server: &Server) -> Result<()> {
    let page = |name: &str| -> Result<String> {
        let path = format!("/debug/api_priority_and_fairness/{name}");
        Ok(server.get(&path).send()?.expect(200)?.text())
    };
    let levels = page("dump_priority_levels")?;
    ensure!(levels.starts_with("PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, "), "{levels}");
    ensure!(levels.lines().any(|line| line.starts_with("test-level,")), "{levels}");
    ensure!(
        page("dump_queues")?.lines().any(|line| line.starts_with("workload-low,") && line.contains(" 127,"))
    );
    let requests = page("dump_requests?includeRequestDetails=1")?;
    let own_path = "/debug/api_priority_and_fairness/dump_requests";
    ensure!(
        requests.lines().any(|line| line.starts_with("exempt,") && line.contains(own_path)),
        "{requests}"
    );
    Ok(())
}

#[test]
fn requests_are_sorted_in_by_what_the_cluster_has() -> Result<()> {
    // Of these, a level of one share among 246 has one seat.
    let server = Server::start(&["--max-requests-inflight=40", "--max-mutating-requests-inflight=20"])?;
    let (schema, level) = make(&server)?;
    let own = (200, schema, level);
    eventually("the schema", || Ok((sorted(&server, "noxu", "/version")? == own).then_some(())))?;
    let other = sorted(&server, "foo", "/version")?;
    ensure!(!other.1.is_empty() && !other.2.is_empty() && other.1 != own.1 && other.2 != own.2, "{other:?}");
    let seats = "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"test-level\"}";
    ensure!(metric(&server, seats)? == Some(1.0));
    let dispatched = "apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"test-schema\",priority_level=\"test-level\"}";
    ensure!(metric(&server, dispatched)?.is_some_and(|count| count >= 1.0));
    // The level has one seat, and these writes are long work.
    server.kubectl(&[
        "create",
        "clusterrolebinding",
        "noxu",
        "--clusterrole=cluster-admin",
        "--user=noxu",
    ])?;
    let refused = overload(&server)?;
    ensure!(refused.text() == "Too many requests, please try again later.\n");
    ensure!(refused.header("x-kubernetes-pf-flowschema-uid") == own.1);
    let after = refused.header("retry-after");
    ensure!(after.parse::<u64>()? >= 1, "{after}");
    let rejected = "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"test-schema\",priority_level=\"test-level\",reason=\"concurrency-limit\"}";
    ensure!(metric(&server, rejected)?.is_some_and(|count| count >= 1.0));
    ensure!(sorted(&server, "foo", "/version")?.0 == 200, "others have seats");

    look_at_pages(&server)?;
    server.request("DELETE", &format!("{GROUP}/flowschemas/test-schema")).send()?.expect(200)?;
    server
        .request("DELETE", &format!("{GROUP}/prioritylevelconfigurations/test-level"))
        .send()?
        .expect(200)?;
    eventually("the other schema", || {
        Ok((sorted(&server, "noxu", "/version")? == other && metric(&server, seats)?.is_none()).then_some(()))
    })
}

#[test]
fn without_fairness_nothing_is_sorted_in() -> Result<()> {
    let server = Server::start(&["--enable-priority-and-fairness=false"])?;
    ensure!(sorted(&server, "foo", "/version")? == (200, String::new(), String::new()));
    server.get("/debug/api_priority_and_fairness/dump_queues").send()?.expect(404)?;
    ensure!(metric(&server, "apiserver_current_inflight_requests{request_kind=\"readOnly\"}")?.is_some());
    Ok(())
}
