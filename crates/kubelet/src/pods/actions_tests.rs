//! Upstream's cases (`TestComputePodActions` and its siblings for init containers and sidecars) as data.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::actions::{ProbeResults, compute_actions, sandbox_changed, should_start};
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

/// A case in short. `policy` is the Pod's, followed by those of containers (`c1=Never`) and by ephemeral containers (`+debug`).
/// `containers` names what the runtime has (`c1:run c2:0 s1:unknown`; a number is an exit code, `+changed` another
/// specification); `sandbox` is `ready`, `dead`, `noip` or `none`, with its attempt.
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
                c["livenessProbe"] = json!({"exec": {"command": ["true"]}});
            }
            c
        })
        .collect();
    let mut words = case.policy.split_whitespace();
    let policy = words.next().unwrap();
    let mut regular = ["c1", "c2", "c3"].map(|name| json!({"name": name, "image": "i"}));
    let mut ephemeral = Vec::new();
    for word in words {
        match word.split_once('=') {
            Some((name, own)) => {
                let of = regular.iter_mut().find(|c| c["name"] == name).unwrap();
                of["restartPolicy"] = json!(own);
            }
            None => ephemeral.push(json!({"name": word.trim_start_matches('+'), "image": "i"})),
        }
    }
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"restartPolicy": policy, "initContainers": inits, "containers": regular,
            "ephemeralContainers": ephemeral}
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
            "dead" => {
                results.unhealthy.push(name.into());
                results.startup.push((name.into(), true));
            }
            "other" => results.startup.push((name.into(), true)),
            "started" => results.startup.push((name.into(), true)),
            "stuck" => results.startup.push((name.into(), false)),
            _ => {}
        }
        let hash = spec::find_container(pod, name).map(|c| spec::container_hash(&c)).unwrap_or_default();
        status.containers.push(ContainerStatus {
            id: name.into(),
            name: name.into(),
            state,
            exit_code,
            hash: if matches!(mark, "changed" | "other") { hash + 1 } else { hash },
            ..ContainerStatus::default()
        });
    }
    (status, results)
}

fn check(case: &Case<'_>) {
    let pod = pod(case);
    let (status, results) = observed(case, &pod);
    let a = compute_actions(&pod, &status, &results, false);
    let mut got = Vec::new();
    if a.kill_pod {
        got.push("kill-pod".to_owned());
    }
    if a.create_sandbox {
        got.push(format!("sandbox/{}", a.attempt));
    }
    got.extend(a.to_kill.iter().map(|k| format!("kill:{}", k.name)));
    got.extend(a.ephemeral_to_start.iter().map(|i| format!("ephemeral:{i}")));
    got.extend(a.init_to_start.iter().map(|i| format!("init:{i}")));
    got.extend(a.to_start.iter().map(|i| format!("start:{i}")));
    assert_eq!(got.join(" "), case.want, "{}", case.what);
}

const ALL: &str = "c1:run c2:run c3:run";

/// The 6 cases of `TestPodSandboxChanged`. A sandbox is `ready` or `dead`, on the Pod's network with an address or none, or on
/// the host's.
#[test]
fn sandboxes_are_made_anew() {
    let check = |host: bool, sandboxes: &[&str], expected: (bool, u32, Option<&str>)| {
        let pod: Pod =
            serde_json::from_value(json!({"spec": {"hostNetwork": host, "containers": []}})).unwrap();
        let one = |(at, text): (usize, &&str)| SandboxStatus {
            id: format!("sandboxID{}", sandboxes.len() - at),
            attempt: u32::try_from(sandboxes.len() - at - 1).unwrap(),
            ready: text.starts_with("ready"),
            ips: if text.contains("noip") { vec![] } else { vec!["10.0.0.10".into()] },
            ..SandboxStatus::default()
        };
        let observed =
            PodStatus { sandboxes: sandboxes.iter().enumerate().map(one).collect(), ..PodStatus::default() };
        let (changed, attempt, id) = sandbox_changed(&pod, &observed);
        assert_eq!((changed, attempt, id.as_deref()), expected, "{sandboxes:?}");
    };
    check(false, &[], (true, 0, None));
    check(false, &["ready", "ready"], (true, 2, Some("sandboxID2")));
    check(false, &["dead", "dead"], (true, 2, Some("sandboxID2")));
    check(true, &["ready"], (true, 1, None));
    check(false, &["ready noip"], (true, 1, Some("sandboxID1")));
    check(false, &["ready"], (false, 0, Some("sandboxID1")));
}

/// The 30 cases of `TestShouldContainerBeRestarted`: each container by the policies `Never`, `OnFailure` and `Always`; none of
/// them starts in a Pod that is deleted.
#[test]
fn containers_that_start_again() {
    let seen = |name: &str, state, exit_code| ContainerStatus {
        name: name.into(),
        state,
        exit_code,
        ..ContainerStatus::default()
    };
    let observed = PodStatus {
        containers: vec![
            seen("alive", State::Running, 0),
            seen("succeed", State::Exited, 0),
            seen("failed", State::Exited, 1),
            seen("alive", State::Exited, 2),
            seen("unknown", State::Unknown, 0),
            seen("failed", State::Exited, 3),
        ],
        ..PodStatus::default()
    };
    for (name, expected) in [
        ("no-history", [true, true, true]),
        ("alive", [false, false, false]),
        ("succeed", [false, false, true]),
        ("failed", [false, true, true]),
        ("unknown", [true, true, true]),
    ] {
        for (policy, expected) in ["Never", "OnFailure", "Always"].into_iter().zip(expected) {
            for deleted in [false, true] {
                let at = deleted.then_some("2026-01-01T00:00:00Z");
                let pod: Pod = serde_json::from_value(json!({"metadata": {"deletionTimestamp": at},
                    "spec": {"restartPolicy": policy, "containers": [{"name": name}]}}))
                .unwrap();
                let got = should_start(&spec::containers(&pod)[0], &pod, &observed);
                assert_eq!(got, expected && !deleted, "{name} {policy} {deleted}");
            }
        }
    }
}

/// The 17 cases of `TestComputePodActions`, and 4 of probes and of Pods that end, by their own rules.
#[test]
fn containers() {
    let new = "start:0 start:1 start:2";
    let remade = &format!("kill-pod sandbox/1 {new}");
    let cases = [
        ("everything is good", "Always", "ready", ALL, ""),
        ("a new Pod", "Always", "none", "", &format!("kill-pod sandbox/0 {new}")),
        ("exited, Always", "Always", "ready", "c1:0 c2:111 c3:run", "start:0 start:1"),
        ("exited, OnFailure", "OnFailure", "ready", "c1:0 c2:111 c3:run", "start:1"),
        ("created, OnFailure", "OnFailure", "ready", "c1:0 c2:created c3:run", "start:1"),
        ("exited, Never", "Never", "ready", "c1:0 c2:111 c3:run", ""),
        ("sandbox dead, Always", "Always", "dead", ALL, remade),
        (
            "sandbox dead, OnFailure",
            "OnFailure",
            "dead",
            "c1:run c2:0 c3:run",
            "kill-pod sandbox/1 start:0 start:2",
        ),
        ("sandbox without address", "Always", "noip", ALL, remade),
        ("specification changed", "Always", "ready", "c1:run c2:run+changed c3:run", "kill:c2 start:1"),
        ("liveness failed", "Always", "ready", "c1:run c2:run+sick c3:run", "kill:c2 start:1"),
        ("startup failed", "Always", "ready", "c1:run c2:run+stuck c3:run", "kill:c2 start:1"),
        ("over, Never, sandbox dead", "Never", "dead/1", "c1:0 c2:0 c3:0", "kill-pod"),
        ("over, OnFailure, sandbox dead", "OnFailure", "dead/1", "c1:0 c2:0 c3:0", "kill-pod"),
        ("never made, Never, sandbox dead", "Never", "dead/2", "", &format!("kill-pod sandbox/3 {new}")),
        ("unknown, Never", "Never", "ready", "c1:run c2:unknown c3:run", "kill:c2 start:1"),
        ("created, Never", "Never", "ready", "c1:run c2:created c3:run", "start:1"),
        ("specification changed, Never", "Never", "ready", "c1:run c2:run+changed c3:run", "kill:c2 start:1"),
        ("liveness failed, Never", "Never", "ready", "c1:run c2:run+sick c3:run", "kill:c2"),
        ("all over, Never", "Never", "ready", "c1:0 c2:1 c3:0", "kill-pod"),
        ("all succeeded, OnFailure", "OnFailure", "ready", "c1:0 c2:0 c3:0", "kill-pod"),
    ];
    for (what, policy, sandbox, containers, want) in cases {
        check(&Case { what, policy, init: "", sandbox, containers, want });
    }
}

/// The 5 cases of `TestComputePodActionsWithContainerRestartRules`.
#[test]
fn containers_with_policies_of_their_own() {
    let cases = [
        ("Always", "Never c1=Always c2=Always", "ready", "c1:0 c2:111 c3:run", "start:0 start:1"),
        ("OnFailure", "Never c1=OnFailure c2=OnFailure", "ready", "c1:0 c2:111 c3:run", "start:1"),
        ("created", "Never c1=OnFailure c2=OnFailure", "ready", "c1:0 c2:created c3:run", "start:1"),
        ("Never", "Always c1=Never c2=Never", "ready", "c1:0 c2:111 c3:run", ""),
        ("dead", "Always c2=OnFailure", "dead", "c1:run c2:0 c3:run", "kill-pod sandbox/1 start:0 start:2"),
    ];
    for (what, policy, sandbox, containers, want) in cases {
        check(&Case { what, policy, init: "", sandbox, containers, want });
    }
}

/// 15 of the 18 cases of `TestComputePodActionsWithInitContainers`, whose others are about resizes, and 4 more.
#[test]
fn init_containers() {
    let done = "i1:0 i2:0 i3:0";
    let cases = [
        ("the last is done: start the containers", "Always", "ready", done, "start:0 start:1 start:2"),
        ("a sandbox alone", "Always", "ready", "", "init:0"),
        ("the last runs: wait", "Always", "ready", "i1:0 i2:0 i3:run", ""),
        ("sandbox dead: from the first again", "Always", "dead", done, "kill-pod sandbox/1 init:0"),
        ("the last failed, Always", "Always", "ready", "i1:0 i2:0 i3:137", "init:2"),
        ("the last failed, OnFailure", "OnFailure", "ready", "i1:0 i2:0 i3:137", "init:2"),
        ("the last failed, Never", "Never", "ready", "i1:0 i2:0 i3:137", "kill-pod"),
        ("the last is unknown, Always", "Always", "ready", "i1:0 i2:0 i3:unknown", "kill:i3 init:2"),
        ("the last is unknown, OnFailure", "OnFailure", "ready", "i1:0 i2:0 i3:unknown", "kill:i3 init:2"),
        ("the last is unknown, Never", "Never", "ready", "i1:0 i2:0 i3:unknown", "kill-pod"),
        ("sandbox dead, Never", "Never", "dead", done, "kill-pod"),
        ("sandbox dead, Never, nothing there", "Never", "dead", "", "kill-pod sandbox/1 init:0"),
        ("sandbox dead, OnFailure", "OnFailure", "dead", "i1:0 i2:0 i3:137", "kill-pod sandbox/1 init:0"),
        ("those before are gone", "Always", "ready", "i3:run", ""),
        ("the last was made only", "Always", "ready", "i1:0 i2:0 i3:created", "init:2"),
        ("a new Pod", "Always", "none", "", "kill-pod sandbox/0 init:0"),
        ("init containers gone, containers run", "Always", "ready", ALL, ""),
        ("the second is next", "Always", "ready", "i1:0", "init:1"),
        ("all over, Never, sandbox dead", "Never", "dead/1", "i1:0 i2:0 i3:0 c1:0 c2:0 c3:0", "kill-pod"),
    ];
    for (what, policy, sandbox, containers, want) in cases {
        check(&Case { what, policy, init: "i1 i2 i3", sandbox, containers, want });
    }
}

/// The 9 cases of `TestComputePodActionsWithInitAndEphemeralContainers`.
#[test]
fn ephemeral_containers() {
    let (one, two) = ("Always +debug", "Always +debug +debug2");
    let whole = |debug: &str| format!("{ALL} i1:0 {debug}");
    let (usual, none) = (whole("debug:run"), whole(""));
    let cases = [
        ("all run", one, "ready", usual.as_str(), ""),
        ("none runs", one, "ready", &none, "ephemeral:0"),
        ("a second one", two, "ready", &usual, "ephemeral:1"),
        ("one has ended", one, "ready", &whole("debug:0"), ""),
        ("an init container runs", one, "ready", "i1:run", "ephemeral:0"),
        (
            "sandbox dead, init failed",
            "OnFailure +debug",
            "dead",
            "i1:137 debug:run",
            "kill-pod sandbox/1 init:0",
        ),
        ("sandbox dead", one, "dead", &usual, "kill-pod sandbox/1 init:0"),
        ("the others are over", "Never +debug", "ready", "c1:0 c2:0 c3:0 i1:0 debug:run", "kill-pod"),
        ("one is unknown", "Never +debug", "ready", &whole("debug:unknown"), ""),
    ];
    for (what, policy, sandbox, containers, want) in cases {
        check(&Case { what, policy, init: "i1", sandbox, containers, want });
    }
}

/// The 25 cases of `TestComputePodActionsWithRestartableInitContainers`; `s2` and `s3` have probes, and 5 more with other
/// containers between sidecars.
#[test]
fn sidecars() {
    let all = "s1:run s2:run+started s3:run+started";
    let three = "s1 s2* s3*";
    let every = "start:0 start:1 start:2";
    let in_ready = [
        ("all started", "Always", all, every.to_owned()),
        ("a sandbox alone", "Always", "", "init:0".into()),
        ("the last was made only", "Always", "s1:run s2:run+started s3:created", "init:2".into()),
        ("the first runs", "Always", "s1:run", "init:1".into()),
        ("its liveness was not asked yet", "Always", "s1:run s2:run+started", "init:2".into()),
        ("its liveness is being asked", "Always", "s1:run s2:run+started", "init:2".into()),
        ("it is alive", "Always", "s1:run s2:run+started", "init:2".into()),
        ("it is not alive", "Always", "s1:run s2:run+started s3:run+dead", format!("kill:s3 init:2 {every}")),
        ("its start was not asked yet", "Always", "s1:run s2:run", String::new()),
        ("its start is being asked", "Always", "s1:run s2:run", String::new()),
        ("it has started", "Always", "s1:run s2:run+started", "init:2".into()),
        ("it did not start", "Always", "s1:run s2:run+started s3:run+stuck", "kill:s3 init:2".into()),
        (
            "its specification changed",
            "Always",
            "s1:run s2:run+started s3:run+other",
            format!("kill:s3 init:2 {every}"),
        ),
        ("the first and the last ended", "Always", "s1:0 s2:run+started s3:0", "init:0 init:2".into()),
        ("the first ended", "Always", "s1:0 s2:run+started s3:run+started", format!("init:0 {every}")),
        ("the last failed, Never", "Never", "s1:run s2:run+started s3:137", "init:2".into()),
        ("the last is unknown, Never", "Never", "s1:run s2:run+started s3:unknown", "kill:s3 init:2".into()),
        (
            "the last failed, containers run, Never",
            "Never",
            "s1:run s2:run+started s3:137 c1:run c2:run c3:run",
            "init:2".into(),
        ),
        (
            "containers over: sidecars do not keep the Pod",
            "Never",
            "s1:run s2:run+started s3:run+started c1:0 c2:0 c3:0",
            "kill-pod".into(),
        ),
        ("those before are gone", "Always", "s3:run+started", format!("init:0 init:1 {every}")),
    ];
    for (what, policy, containers, want) in in_ready {
        check(&Case { what, policy, init: three, sandbox: "ready", containers, want: &want });
    }
    let remade = "kill-pod sandbox/1 init:0";
    let failed = "s1:run s2:run+started s3:137";
    for (what, policy, sandbox, containers, want) in [
        ("the last failed, Never", "Never", "dead", failed, "kill-pod"),
        ("nothing there, Never", "Never", "dead", "", remade),
        ("the last failed, OnFailure", "OnFailure", "dead", failed, remade),
        ("the last failed, Always", "Always", "dead", failed, remade),
    ] {
        check(&Case { what, policy, init: three, sandbox, containers, want });
    }
    for (what, init, policy, containers, want) in [
        ("init container between", "s1 i2 s3", "Always", "s1:run", "init:1"),
        ("init container between is done", "s1 i2 s3", "Always", "s1:run i2:0", "init:2"),
        ("sidecar ends while an init container runs", "s1 i2 s3", "Always", "s1:1 i2:run", "init:0"),
        ("one ended, Never", "s1 s2 s3", "Never", "s1:run s2:1 s3:run c1:run c2:run c3:run", "init:1"),
        ("one is gone, containers run", "s1 s2 s3", "Always", "s1:run s3:run c1:run c2:run c3:run", "init:1"),
    ] {
        check(&Case { what, policy, init, sandbox: "ready", containers, want });
    }
}

/// Upstream's 6 cases of `TestIsInitContainerFailed`.
#[test]
fn init_containers_that_failed() {
    let check = |state: State, exit_code: i32, reason: &str, expected: bool| {
        let status =
            ContainerStatus { state, exit_code, reason: reason.into(), ..ContainerStatus::default() };
        assert_eq!(super::actions::init_failed(&status), expected, "{status:?}");
    };
    check(State::Exited, 1, "", true);
    check(State::Unknown, 0, "", true);
    check(State::Exited, 0, "OOMKilled", true);
    check(State::Exited, 0, "", false);
    check(State::Running, 0, "", false);
    check(State::Created, 0, "", false);
}
