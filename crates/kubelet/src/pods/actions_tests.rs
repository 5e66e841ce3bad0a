//! Upstream's cases (`TestComputePodActions` and its siblings for init containers and sidecars) as data.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::actions::{ProbeResults, compute_actions};
use super::observed::{ContainerStatus, PodStatus, SandboxStatus, State};
use super::spec;

/// Containers that failed a probe, and those whose startup probe succeeded.
#[derive(Default)]
struct Results {
    unhealthy: Vec<String>,
    startup: Vec<(String, bool)>,
}

impl ProbeResults for Results {
    fn liveness(&self, id: &str) -> Option<bool> {
        self.unhealthy.iter().any(|u| u == id).then_some(false)
    }
    fn startup(&self, id: &str) -> Option<bool> {
        self.startup.iter().find(|(i, _)| i == id).map(|(_, ok)| *ok)
    }
}

/// A case in short. `containers` names what the runtime has (`c1:run c2:0 s1:unknown`; a number is an
/// exit code, `+changed` another specification); `sandbox` is `ready`, `dead`, `noip` or `none`, with its attempt.
struct Case<'a> {
    what: &'a str,
    policy: &'a str,
    init: &'a str,
    sandbox: &'a str,
    containers: &'a str,
    want: &'a str,
}

fn pod(case: &Case<'_>) -> Pod {
    let inits: Vec<_> = case
        .init
        .split_whitespace()
        .map(|name| {
            let mut c = json!({"name": name.trim_end_matches('*'), "image": "i"});
            if name.starts_with('s') {
                c["restartPolicy"] = json!("Always");
            }
            if name.ends_with('*') {
                c["startupProbe"] = json!({"exec": {"command": ["true"]}});
            }
            c
        })
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"restartPolicy": case.policy, "initContainers": inits, "containers": [
            {"name": "c1", "image": "i"}, {"name": "c2", "image": "i"}, {"name": "c3", "image": "i"}]}
    }))
    .unwrap()
}

fn observed(case: &Case<'_>, pod: &Pod) -> (PodStatus, Results) {
    let mut status = PodStatus::default();
    let mut results = Results::default();
    if case.sandbox != "none" {
        let (kind, attempt) = case.sandbox.split_once('/').unwrap_or((case.sandbox, "0"));
        status.sandboxes.push(SandboxStatus {
            id: "box".into(),
            ready: kind != "dead",
            attempt: attempt.parse().unwrap(),
            ips: if kind == "noip" { Vec::new() } else { vec!["10.0.0.1".into()] },
            ..SandboxStatus::default()
        });
    }
    for item in case.containers.split_whitespace() {
        let (item, mark) = item.split_once('+').unwrap_or((item, ""));
        let (name, state) = item.split_once(':').unwrap();
        let (state, exit_code) = match state {
            "run" => (State::Running, 0),
            "created" => (State::Created, 0),
            "unknown" => (State::Unknown, 0),
            code => (State::Exited, code.parse().unwrap()),
        };
        match mark {
            "sick" => results.unhealthy.push(name.into()),
            "started" => results.startup.push((name.into(), true)),
            "stuck" => results.startup.push((name.into(), false)),
            _ => {}
        }
        let hash = spec::container_hash(&spec::find_container(pod, name).unwrap());
        status.containers.push(ContainerStatus {
            id: name.into(),
            name: name.into(),
            state,
            exit_code,
            hash: if mark == "changed" { hash + 1 } else { hash },
            ..ContainerStatus::default()
        });
    }
    (status, results)
}

fn check(case: &Case<'_>) {
    let pod = pod(case);
    let (status, results) = observed(case, &pod);
    let a = compute_actions(&pod, &status, &results);
    let mut got = Vec::new();
    if a.kill_pod {
        got.push("kill-pod".to_owned());
    }
    if a.create_sandbox {
        got.push(format!("sandbox/{}", a.attempt));
    }
    got.extend(a.to_kill.iter().map(|k| format!("kill:{}", k.name)));
    got.extend(a.init_to_start.iter().map(|i| format!("init:{i}")));
    got.extend(a.to_start.iter().map(|i| format!("start:{i}")));
    assert_eq!(got.join(" "), case.want, "{}", case.what);
}

const ALL: &str = "c1:run c2:run c3:run";

#[test]
fn containers() {
    let cases = [
        ("everything is good", "Always", "ready", ALL, ""),
        ("a new Pod", "Always", "none", "", "kill-pod sandbox/0 start:0 start:1 start:2"),
        ("exited, Always", "Always", "ready", "c1:0 c2:111 c3:run", "start:0 start:1"),
        ("exited, OnFailure", "OnFailure", "ready", "c1:0 c2:111 c3:run", "start:1"),
        ("created, OnFailure", "OnFailure", "ready", "c1:0 c2:created c3:run", "start:1"),
        ("exited, Never", "Never", "ready", "c1:0 c2:111 c3:run", ""),
        ("sandbox dead, Always", "Always", "dead", ALL, "kill-pod sandbox/1 start:0 start:1 start:2"),
        (
            "sandbox dead, OnFailure",
            "OnFailure",
            "dead",
            "c1:run c2:0 c3:run",
            "kill-pod sandbox/1 start:0 start:2",
        ),
        ("sandbox without address", "Always", "noip", ALL, "kill-pod sandbox/1 start:0 start:1 start:2"),
        ("specification changed", "Always", "ready", "c1:run c2:run+changed c3:run", "kill:c2 start:1"),
        ("specification changed, Never", "Never", "ready", "c1:run c2:run+changed c3:run", "kill:c2 start:1"),
        ("liveness failed", "Always", "ready", "c1:run c2:run+sick c3:run", "kill:c2 start:1"),
        ("liveness failed, Never", "Never", "ready", "c1:run c2:run+sick c3:run", "kill:c2"),
        ("startup failed", "Always", "ready", "c1:run c2:run+stuck c3:run", "kill:c2 start:1"),
        ("over, Never, sandbox dead", "Never", "dead/1", "c1:0 c2:0 c3:0", "kill-pod"),
        ("over, OnFailure, sandbox dead", "OnFailure", "dead/1", "c1:0 c2:0 c3:0", "kill-pod"),
        (
            "never made, Never, sandbox dead",
            "Never",
            "dead/1",
            "",
            "kill-pod sandbox/2 start:0 start:1 start:2",
        ),
        ("unknown", "Always", "ready", "c1:run c2:unknown c3:run", "kill:c2 start:1"),
        ("all over, Never", "Never", "ready", "c1:0 c2:1 c3:0", "kill-pod"),
        ("all succeeded, OnFailure", "OnFailure", "ready", "c1:0 c2:0 c3:0", "kill-pod"),
    ];
    for (what, policy, sandbox, containers, want) in cases {
        check(&Case { what, policy, init: "", sandbox, containers, want });
    }
}

#[test]
fn init_containers() {
    let cases = [
        (
            "the last is done: start the containers",
            "Always",
            "ready",
            "i1:0 i2:0 i3:0",
            "start:0 start:1 start:2",
        ),
        ("the last failed, Always", "Always", "ready", "i1:0 i2:0 i3:111", "init:2"),
        ("the last failed, OnFailure", "OnFailure", "ready", "i1:0 i2:0 i3:111", "init:2"),
        ("the last failed, Never", "Never", "ready", "i1:0 i2:0 i3:111", "kill-pod"),
        (
            "sandbox dead: from the first again",
            "Always",
            "dead",
            "i1:0 i2:0 i3:0",
            "kill-pod sandbox/1 init:0",
        ),
        ("one runs: wait", "Always", "ready", "i1:0 i2:run", ""),
        ("one was made only", "Always", "ready", "i1:created", "init:0"),
        ("one is unknown, Always", "Always", "ready", "i1:0 i2:0 i3:unknown", "kill:i3 init:2"),
        ("one is unknown, Never", "Never", "ready", "i1:0 i2:0 i3:unknown", "kill-pod"),
        ("a new Pod", "Always", "none", "", "kill-pod sandbox/0 init:0"),
        ("a sandbox alone", "Always", "ready", "", "init:0"),
        ("init containers gone, containers run", "Always", "ready", ALL, ""),
        ("the second is next", "Always", "ready", "i1:0", "init:1"),
        ("all over, Never, sandbox dead", "Never", "dead/1", "i1:0 i2:0 i3:0 c1:0 c2:0 c3:0", "kill-pod"),
    ];
    for (what, policy, sandbox, containers, want) in cases {
        check(&Case { what, policy, init: "i1 i2 i3", sandbox, containers, want });
    }
}

#[test]
fn sidecars() {
    let cases = [
        ("a sandbox alone", "s1 s2 s3", "Always", "", "init:0"),
        ("the first runs", "s1 s2 s3", "Always", "s1:run", "init:1"),
        ("all run", "s1 s2 s3", "Always", "s1:run s2:run s3:run", "start:0 start:1 start:2"),
        ("the last ended", "s1 s2 s3", "Always", "s1:run s2:run s3:0", "init:2"),
        ("one ended, Never", "s1 s2 s3", "Never", "s1:run s2:1 s3:run c1:run c2:run c3:run", "init:1"),
        ("one is gone, containers run", "s1 s2 s3", "Always", "s1:run s3:run c1:run c2:run c3:run", "init:1"),
        ("one is sick", "s1l s2 s3", "Always", "s1l:run s2:run s3:run c1:run c2:run c3:run", ""),
        ("not started yet", "s1* s2 s3", "Always", "s1:run", ""),
        ("started", "s1* s2 s3", "Always", "s1:run+started", "init:1"),
        ("startup failed", "s1* s2 s3", "Always", "s1:run+stuck", "kill:s1 init:0"),
        (
            "specification changed",
            "s1 s2 s3",
            "Always",
            "s1:run+changed s2:run s3:run c1:run c2:run c3:run",
            "kill:s1 init:0",
        ),
        (
            "containers over: sidecars do not keep the Pod",
            "s1 s2 s3",
            "Never",
            "s1:run s2:0 s3:run c1:0 c2:0 c3:0",
            "kill-pod",
        ),
        ("init container between", "s1 i2 s3", "Always", "s1:run", "init:1"),
        ("init container between is done", "s1 i2 s3", "Always", "s1:run i2:0", "init:2"),
        ("sidecar ends while an init container runs", "s1 i2 s3", "Always", "s1:1 i2:run", "init:0"),
    ];
    for (what, init, policy, containers, want) in cases {
        check(&Case { what, policy, init, sandbox: "ready", containers, want });
    }
}
