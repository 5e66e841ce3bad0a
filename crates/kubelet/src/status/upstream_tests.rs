//! Upstream's tables of statuses: `kubelet_pods_test.go`, `kubelet_test.go`, `status/generate_test.go` and
//! `status/status_manager_test.go`.

use std::collections::HashMap;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{ContainerStatus as ApiContainer, Pod, PodStatus, ResourceRequirements};
use serde_json::{Value, json};

use super::generate::{self, Failure, Inputs, Waiting, generate, phase, terminate};
use crate::pods::observed::{self, ContainerStatus, ImageVolume, SandboxStatus, State};
use crate::pods::restart_all;
use crate::probes::Kind;

/// Containers by their names; those with `*` are sidecars.
fn container(text: &str) -> Value {
    let mut made = json!({"name": text.trim_end_matches('*')});
    if text.ends_with('*') {
        made["restartPolicy"] = json!("Always");
    }
    made
}

/// A Pod with a restart policy; of its containers those beyond `b` are init containers.
fn pod(policy: &str, containers: &str) -> Pod {
    let (init, regular): (Vec<_>, Vec<_>) =
        containers.split_whitespace().partition(|name| *name > "b" && name.len() < 3);
    let list = |names: Vec<&str>| names.into_iter().map(container).collect::<Vec<_>>();
    made(json!({"restartPolicy": policy, "initContainers": list(init), "containers": list(regular)}))
}

fn made(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}))
        .unwrap()
}

/// A container in the API: `run`, `started`, an exit code, `wait`, or `wait/CODE` with the code of the run before; `gone` is
/// one that was removed because all containers are restarted.
fn api(text: &str) -> ApiContainer {
    let (name, state) = text.split_once(':').unwrap();
    let ended = |code: &str| json!({"terminated": {"exitCode": code.parse::<i32>().unwrap()}});
    let mut status = json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0});
    match state.split_once('/').unwrap_or((state, "")) {
        ("run", _) => status["state"] = json!({"running": {}}),
        ("started", _) => {
            status["state"] = json!({"running": {}});
            status["started"] = json!(true);
        }
        ("gone", _) => {
            status["state"] = json!({"waiting": {"reason": restart_all::REASON}});
            status["lastState"] = json!({"terminated": {"reason": restart_all::REASON, "exitCode": 137}});
        }
        ("wait", before) => {
            status["state"] = json!({"waiting": {}});
            if !before.is_empty() {
                status["lastState"] = ended(before);
            }
        }
        (code, _) => status["state"] = ended(code),
    }
    serde_json::from_value(status).unwrap()
}

/// The 70 cases of upstream's eight `TestPodPhase…` about the Pod's own restart policy. The last columns say whether the
/// Pod is to run no more, whether a container of its present sandbox was made, and the phase.
#[test]
fn phases_by_the_policy_of_the_pod() {
    let check = |policy: &str, containers: &str, statuses: &str, more: &str, expected: &str| {
        let pod = pod(policy, containers);
        let all: Vec<_> = statuses.split_whitespace().map(api).collect();
        let got = phase(&pod, &all, &all, more.contains("terminal"), more.contains("began"));
        assert_eq!(got, expected, "{policy} [{containers}] {statuses} {more}");
    };
    for (policy, containers, statuses, more, expected) in [
        ("Always", "a b", "", "", "Pending"),
        ("Always", "a b", "a:run b:run", "", "Running"),
        ("Always", "a b", "a:0 b:0", "", "Running"),
        ("Always", "a b", "a:0 b:0", "+terminal", "Succeeded"),
        ("Always", "a b", "a:0 b:-1", "+terminal", "Failed"),
        ("Always", "a b", "a:run b:0", "", "Running"),
        ("Always", "a b", "a:run", "", "Pending"),
        ("Always", "a b", "a:run b:wait", "", "Pending"),
        ("Always", "a b", "a:run b:wait/0", "", "Running"),
        ("Always", "x a b", "", "", "Pending"),
        ("Always", "x a b", "x:run", "", "Pending"),
        ("Always", "x a b", "x:-1", "", "Pending"),
        ("Always", "x a b", "x:wait/0", "", "Pending"),
        ("Always", "x a b", "x:wait/-1", "", "Pending"),
        ("Always", "x a b", "x:wait", "", "Pending"),
        ("Always", "x a b", "x:0 a:run b:run", "", "Running"),
        ("Always", "x* a b", "", "", "Pending"),
        ("Always", "x* a b", "x:run", "", "Pending"),
        ("Always", "x* a b", "x:0", "", "Pending"),
        ("Always", "x* a b", "x:wait/0", "", "Pending"),
        ("Always", "x* a b", "x:wait/-1", "", "Pending"),
        ("Always", "x* a b", "x:wait", "", "Pending"),
        ("Always", "x* a b", "x:started a:run", "+began", "Pending"),
        ("Always", "x* a b", "x:started a:run b:run", "+began", "Running"),
        ("Always", "x* a b", "x:run a:run b:run", "+began", "Running"),
        ("Always", "x* a b", "x:0 a:run b:run", "+began", "Running"),
        ("Always", "x* a b", "x:wait/0 a:run b:run", "+began", "Running"),
        ("Always", "x* a b", "x:-1 a:0 b:0", "+terminal+began", "Succeeded"),
        ("Always", "x* a b", "x:0 a:0 b:0", "+terminal+began", "Succeeded"),
        ("Always", "x* a b", "x:run a:run b:run", "", "Pending"),
        ("Always", "x y* a", "x:run y:run a:run", "", "Pending"),
        ("Always", "x y* a", "x:run y:run a:0", "", "Pending"),
        ("Always", "x y* a", "x:0 y:run a:0", "", "Pending"),
        ("Always", "x y* a", "x:0 y:run a:0", "+began", "Running"),
        ("Always", "x y* a", "x:0 y:run a:run", "+began", "Running"),
        ("Never", "a b", "", "", "Pending"),
        ("Never", "a b", "a:run b:run", "", "Running"),
        ("Never", "a b", "a:0 b:0", "", "Succeeded"),
        ("Never", "a b", "a:-1 b:-1", "", "Failed"),
        ("Never", "a b", "a:run b:0", "", "Running"),
        ("Never", "a b", "a:run", "", "Pending"),
        ("Never", "a b", "a:run b:wait", "", "Pending"),
        ("Never", "x a b", "", "", "Pending"),
        ("Never", "x a b", "x:run", "", "Pending"),
        ("Never", "x a b", "x:-1", "", "Failed"),
        ("Never", "x a b", "x:wait/0", "", "Pending"),
        ("Never", "x a b", "x:wait/-1", "", "Failed"),
        ("Never", "x a b", "x:wait", "", "Pending"),
        ("Never", "x a b", "x:0 a:run b:run", "", "Running"),
        ("Never", "x* a b", "", "", "Pending"),
        ("Never", "x* a b", "x:run", "", "Pending"),
        ("Never", "x* a b", "x:0", "", "Pending"),
        ("Never", "x* a b", "x:wait/0", "", "Pending"),
        ("Never", "x* a b", "x:wait/-1", "", "Pending"),
        ("Never", "x* a b", "x:wait", "", "Pending"),
        ("Never", "x* a b", "x:started a:run", "+began", "Pending"),
        ("Never", "x* a b", "x:started a:0 b:0", "+began", "Running"),
        ("Never", "x* a b", "x:run a:0 b:0", "+began", "Running"),
        ("Never", "x* a b", "x:0 a:0 b:0", "+began", "Succeeded"),
        ("Never", "x* a b", "x:-1 a:0 b:0", "+began", "Succeeded"),
        ("Never", "x* a b", "x:wait/0 a:0 b:0", "+began", "Succeeded"),
        ("Never", "x* a b", "x:wait/-1 a:0 b:0", "+began", "Succeeded"),
        ("OnFailure", "a b", "", "", "Pending"),
        ("OnFailure", "a b", "a:run b:run", "", "Running"),
        ("OnFailure", "a b", "a:0 b:0", "", "Succeeded"),
        ("OnFailure", "a b", "a:-1 b:-1", "", "Running"),
        ("OnFailure", "a b", "a:run b:0", "", "Running"),
        ("OnFailure", "a b", "a:run", "", "Pending"),
        ("OnFailure", "a b", "a:run b:wait", "", "Pending"),
        ("OnFailure", "a b", "a:run b:wait/0", "", "Running"),
    ] {
        check(policy, containers, statuses, more, expected);
    }
}

/// Upstream's 6 cases of `TestPodPhaseWithContainerRestartPolicy` and 3 of its sibling for init containers.
#[test]
fn phases_by_the_policies_of_containers() {
    let check =
        |policy: &str, init: &[(&str, &str)], regular: &[(&str, &str)], statuses: &str, expected: &str| {
            let list = |of: &[(&str, &str)]| -> Vec<Value> {
                let one = |(name, own): &(&str, &str)| match *own {
                    "" => json!({"name": name}),
                    own => json!({"name": name, "restartPolicy": own}),
                };
                of.iter().map(one).collect()
            };
            let pod = made(
                json!({"restartPolicy": policy, "initContainers": list(init), "containers": list(regular)}),
            );
            let all: Vec<_> = statuses.split_whitespace().map(api).collect();
            assert_eq!(phase(&pod, &all, &all, false, true), expected, "{policy} {init:?} {regular:?}");
        };
    let c = ("c", "");
    check("Always", &[], &[("f", "Never")], "f:-1", "Failed");
    check("Always", &[], &[("f", "OnFailure")], "f:-1", "Running");
    check("Always", &[], &[("f", "Always")], "f:-1", "Running");
    check("Never", &[], &[("a", "Always"), ("b", "")], "a:0 b:-1", "Running");
    check("Always", &[], &[("a", "Never"), ("b", "OnFailure")], "a:-1 b:0", "Failed");
    check("Always", &[], &[("a", "Never"), ("b", "OnFailure")], "a:0 b:0", "Succeeded");
    check("Always", &[("f", "Never")], &[c], "f:-1", "Failed");
    check("Never", &[("f", "OnFailure")], &[c], "f:-1", "Pending");
    check("Never", &[("f", "Always")], &[c], "f:-1", "Pending");
}

/// A container whose end with code 42 restarts all containers of its Pod.
fn with_rule(name: &str, policy: &str) -> Value {
    let codes = json!({"operator": "In", "values": [42]});
    json!({"name": name, "restartPolicy": policy,
        "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": codes}]})
}

/// Upstream's 15 cases of `TestPodPhaseWithRestartAllContainers`. The container with the rule is `c`, with `*` as a sidecar.
#[test]
fn phases_while_all_containers_restart() {
    let check = |init: &str, regular: &str, statuses: &str, expected: &str| {
        let one = |name: &str| match name {
            "c" => with_rule("c", "Never"),
            "c*" => with_rule("c", "Always"),
            name => json!({"name": name}),
        };
        let list = |of: &str| of.split_whitespace().map(one).collect::<Vec<_>>();
        let spec =
            json!({"restartPolicy": "Never", "initContainers": list(init), "containers": list(regular)});
        let all: Vec<_> = statuses.split_whitespace().map(api).collect();
        let got = phase(&made(spec), &all, &all, false, true);
        assert_eq!(got, expected, "[{init}] {regular} {statuses}");
    };
    check("", "c", "c:42", "Running");
    check("c", "", "c:42 r:wait", "Pending");
    check("c*", "r", "c:42 r:wait", "Pending");
    check("c* i", "r", "c:42 i:wait r:wait", "Pending");
    check("", "c", "c:gone", "Running");
    check("c", "", "c:gone r:wait", "Pending");
    check("c*", "r", "c:gone r:wait", "Pending");
    check("c* i", "r", "c:gone i:gone r:wait", "Pending");
    check("i", "c", "i:0 c:gone", "Running");
    check("i", "c", "i:-1 c:gone", "Failed");
    check("c", "r", "c:42 r:wait", "Pending");
    check("c", "r", "c:0 r:wait", "Pending");
    check("c*", "r", "c:gone r:gone", "Running");
    check("c*", "r", "c:run r:gone", "Running");
    check("c* i", "r", "c:run i:gone r:wait", "Pending");
    // Other containers that were killed with it do not fail the Pod either.
    check("i", "c r", "i:gone c:gone r:gone", "Running");
}

/// Upstream's 6 cases of `TestGenerateAllContainersRestartingCondition`: whether the condition was there, then its status,
/// reason and message.
#[test]
fn a_condition_tells_that_all_containers_restart() {
    let pod = made(json!({"containers": [{"name": "c"}, with_rule("trigger", "Never")]}));
    let condition = |status: &str| json!({"type": "AllContainersRestarting", "status": status});
    let check = |seen: &str, was: bool, phase: &str, expected: Value| {
        let list = if was { json!([condition("True")]) } else { json!([]) };
        let old = serde_json::from_value(json!({"conditions": list})).unwrap();
        let got = generate::restarting(&pod, &observed(seen), &old, phase);
        assert_eq!(serde_json::to_value(&got).unwrap(), expected, "{seen} {was} {phase}");
    };
    let mut due = condition("True");
    due["reason"] = json!("RestartAllContainersStarted");
    due["message"] = json!("container exited with restart policy rule");
    let over = |reason: &str| json!({"type": "AllContainersRestarting", "status": "False", "reason": reason});
    check("", false, "Pending", condition("False"));
    check("", false, "Failed", over("PodFailed"));
    check("", false, "Succeeded", over("PodCompleted"));
    check("c:run trigger:42", false, "Running", due.clone());
    check("c:0 trigger:42", true, "Running", due);
    check("", true, "Pending", condition("False"));
}

/// Upstream's 7 cases of `TestConvertToAPIContainerStatuses` about restarts of all containers.
#[test]
fn containers_that_were_removed_wait_for_their_restart() {
    let check = |seen: &str, old: &[(&str, i32)], expected: &[&str]| {
        let pod = made(json!({"restartPolicy": "Always", "containers": [{"name": "a"}, {"name": "b"}]}));
        let statuses = old.iter().map(|(text, count)| with_restarts(api(text), *count)).collect();
        let mut old = PodStatus { container_statuses: Some(statuses), ..PodStatus::default() };
        old.conditions =
            serde_json::from_value(json!([{"type": restart_all::CONDITION, "status": "True"}])).unwrap();
        let got = status(&pod, &observed(seen), &Given { old, ..Given::default() });
        assert_eq!(words(got.container_statuses.as_ref()), expected, "{seen}");
    };
    let gone = |name: &str| format!("{name}: wait RestartingAllContainers < RestartingAllContainers 137 #1");
    let (a, b) = (gone("a"), gone("b"));
    let ended = ("b:42", 0);
    check("a:run b:42", &[("a:run", 0), ("b:run", 0)], &["a: run <  #0", "b: 42 <  #0"]);
    check("a:137", &[("a:run", 0), ended], &["a: 137 <  #0", &b]);
    check("", &[("a:137", 0), ended], &[&a, &b]);
    check("", &[("a:run", 0), ended], &[&a, &b]);
    check("a:run@new", &[("a:gone", 1), ended], &["a: run < RestartingAllContainers 137 #1", &b]);
    check("a:0", &[("a:run", 1), ended], &["a: 0 <  #1", &b]);
    check("a:1", &[("a:run", 1), ended], &["a: 1 <  #1", &b]);
    // They wait for their turn then, and were restarted once.
    check(
        "",
        &[("a:gone", 1), ("b:gone", 1)],
        &[
            "a: wait ContainerCreating < RestartingAllContainers 137 #1",
            "b: wait ContainerCreating < RestartingAllContainers 137 #1",
        ],
    );
}

/// A container in the runtime: `run`, `unknown`, `created` or an exit code; then, after `@`, its id.
fn seen(text: &str) -> ContainerStatus {
    let (text, id) = text.split_once('@').unwrap_or((text, ""));
    let (name, state) = text.split_once(':').unwrap();
    let (state, exit_code) = match state {
        "run" => (State::Running, 0),
        "unknown" => (State::Unknown, 0),
        "created" => (State::Created, 0),
        code => (State::Exited, code.parse().unwrap()),
    };
    let id = if id.is_empty() { format!("id-{name}") } else { id.to_owned() };
    ContainerStatus { id, name: name.into(), state, exit_code, sandbox_id: "s".into(), ..Default::default() }
}

fn ready_sandbox() -> SandboxStatus {
    SandboxStatus { id: "s".into(), ready: true, ips: vec!["10.0.0.10".into()], ..Default::default() }
}

fn observed(containers: &str) -> observed::PodStatus {
    observed::PodStatus {
        containers: containers.split_whitespace().map(seen).collect(),
        ..observed::PodStatus::default()
    }
}

/// All that a status is made of but the Pod and what the runtime has.
#[derive(Default)]
struct Given {
    waiting: Waiting,
    old: PodStatus,
    terminal: bool,
    failed: Option<Failure>,
    node_ips: Vec<&'static str>,
}

fn status(pod: &Pod, observed: &observed::PodStatus, given: &Given) -> PodStatus {
    probed(pod, observed, given, &|_, _| None)
}

/// The status where the probes of containers say this.
fn probed(
    pod: &Pod,
    observed: &observed::PodStatus,
    given: &Given,
    probe: &dyn Fn(Kind, &str) -> Option<bool>,
) -> PodStatus {
    let node_ips: Vec<_> = given.node_ips.iter().map(|ip| ip.parse().unwrap()).collect();
    generate(&Inputs {
        pod,
        observed,
        probe,
        terminal: given.terminal,
        failed: given.failed.as_ref(),
        node_ips: &node_ips,
        ..inputs(&given.waiting, &given.old)
    })
}

/// The facts that a status is made of, where nothing is known but these.
fn inputs<'a>(waiting: &'a Waiting, old: &'a PodStatus) -> Inputs<'a> {
    static NOBODY: LazyLock<Pod> = LazyLock::new(Pod::default);
    static NOTHING: LazyLock<observed::PodStatus> = LazyLock::new(observed::PodStatus::default);
    static NONE: LazyLock<HashMap<String, ResourceRequirements>> = LazyLock::new(HashMap::new);
    Inputs {
        pod: &NOBODY,
        observed: &NOTHING,
        waiting,
        probe: &|_, _| None,
        old,
        terminal: false,
        pending: None,
        failed: None,
        node_ips: &[],
        runtime: "test",
        recursive_read_only: false,
        actuated: &NONE,
        actuated_whole: None,
        tells_whole: true,
        resize_error: None,
        resizing: None,
        restarts_all: true,
        tells_stop_signals: true,
        now: jiff::Timestamp::from_second(100).unwrap(),
    }
}

/// A container's state in a word: `run`, an exit code (`unknown` for that of one which was lost), `wait`; then reason and
/// message if they are told.
fn word(state: Option<&k8s_openapi::api::core::v1::ContainerState>) -> String {
    let Some(state) = state else { return String::new() };
    if state.running.is_some() {
        return "run".into();
    }
    if let Some(t) = &state.terminated {
        let reason = t.reason.as_deref().unwrap_or_default();
        return match reason {
            "ContainerStatusUnknown" => format!("unknown {}", t.exit_code),
            "" => t.exit_code.to_string(),
            reason => format!("{reason} {}", t.exit_code),
        };
    }
    match &state.waiting {
        Some(w) => format!("wait {}", w.reason.as_deref().unwrap_or_default()).trim_end().to_owned(),
        None => String::new(),
    }
}

/// Containers in short: name, state, `<` and the state before, `#` and the restarts.
fn words(list: Option<&Vec<ApiContainer>>) -> Vec<String> {
    let one = |s: &ApiContainer| {
        format!(
            "{}: {} < {} #{}",
            s.name,
            word(s.state.as_ref()),
            word(s.last_state.as_ref()),
            s.restart_count
        )
    };
    list.into_iter().flatten().map(one).collect()
}

fn with_restarts(mut status: ApiContainer, count: i32) -> ApiContainer {
    status.restart_count = count;
    status
}

/// Upstream's 6 cases of `TestConvertToAPIContainerStatuses` that are not about restarts of all containers.
#[test]
fn containers_keep_their_past() {
    let check = |pod: &Pod, seen: &str, old: Vec<ApiContainer>, expected: &[&str]| {
        let old = PodStatus { container_statuses: Some(old), ..PodStatus::default() };
        let got = status(pod, &observed(seen), &Given { old, ..Given::default() });
        let init = pod.spec.as_ref().unwrap().init_containers.as_ref().is_some_and(|l| !l.is_empty());
        let list = if init { &got.init_container_statuses } else { &got.container_statuses };
        assert_eq!(words(list.as_ref()), expected, "{seen}");
    };
    let two = pod("Always", "a b");
    let mut deleted = two.clone();
    deleted.metadata.deletion_timestamp = Some(generate::time(jiff::Timestamp::from_second(1).unwrap()));
    let ran = || vec![api("a:run"), api("b:run")];
    let lost = |restarts: i32| {
        ["a", "b"].map(|name| format!("{name}: wait ContainerCreating < unknown 137 #{restarts}"))
    };
    check(&deleted, "", ran(), &lost(0).each_ref().map(String::as_str));
    check(&two, "", ran(), &lost(1).each_ref().map(String::as_str));
    let failed = || ["a:-1", "b:-1"].map(|s| with_restarts(api(s), 5)).to_vec();
    check(&two, "", failed(), &["a: -1 <  #5", "b: -1 <  #5"]);
    check(&two, "a:run b:run", failed(), &["a: run < -1 #6", "b: run < -1 #6"]);
    check(&pod("Always", "i a"), "a:run", vec![], &["i: Completed 0 <  #0"]);
    check(&pod("Always", "i* a"), "a:run", vec![], &["i: wait PodInitializing <  #0"]);
}

/// Upstream's 16 cases of `TestConvertToAPIContainerStatusesForResources`: the container's state, what it was given of the node,
/// what was given to it if that is something else, what the runtime tells, and what is told then. The runtime tells nothing
/// where it has what the container was given.
#[test]
fn containers_tell_what_they_have() {
    let check =
        |state: &str, allocated: Value, given: Option<Value>, runtime: Option<[i64; 2]>, expected: &Value| {
            let pod = made(json!({"containers": [{"name": "a", "resources": allocated}]}));
            let mut observed = observed(&format!("a:{state}"));
            observed.containers[0].resources = runtime.map(|[cpu_shares, cpu_quota]| {
                cri::runtime::LinuxContainerResources { cpu_shares, cpu_quota, ..Default::default() }
            });
            let given = given.as_ref().unwrap_or(&allocated).clone();
            let actuated = HashMap::from([("id-a".to_owned(), serde_json::from_value(given).unwrap())]);
            let old = PodStatus::default();
            let waiting = Waiting::new();
            let got = generate(&Inputs {
                pod: &pod,
                observed: &observed,
                actuated: &actuated,
                ..inputs(&waiting, &old)
            });
            let got = got.container_statuses.unwrap().remove(0);
            assert_eq!(&serde_json::to_value(&got.resources).unwrap(), expected, "{allocated}");
            let requests = allocated["requests"].as_object().filter(|r| !r.is_empty());
            assert_eq!(
                serde_json::to_value(&got.allocated_resources).unwrap(),
                requests.map_or(Value::Null, |r| json!(r))
            );
        };
    let (one, two) = (json!({"cpu": "1", "memory": "1Gi"}), json!({"cpu": "2", "memory": "2Gi"}));
    let both = |list: &Value| json!({"limits": list, "requests": list});
    let with = |list: &Value, more: &[(&str, &str)]| {
        let mut list = list.clone();
        for (name, amount) in more {
            list[name] = json!(amount);
        }
        list
    };
    let disk = [("ephemeral-storage", "2Gi"), ("storage", "2Gi")];
    let extended = [("dummy.io/dummy", "1")];
    let (one_disk, two_disk) = (with(&one, &disk), with(&two, &disk));
    let same = |state: &str, resources: Value| check(state, resources.clone(), None, None, &resources);
    same("run", both(&one));
    same("run", both(&one));
    let memory = json!({"requests": {"memory": "100M"}});
    check("run", memory.clone(), None, Some([2, 0]), &memory);
    let least = json!({"requests": {"memory": "100M", "cpu": "1m"}, "limits": {"cpu": "5m"}});
    check("run", least.clone(), None, Some([2, 1000]), &least);
    for _ in ["guaranteed", "burstable", "without an old status"] {
        same("run", both(&one_disk));
    }
    same("run", json!({}));
    same("run", json!({"requests": with(&json!({"cpu": "0", "memory": "0"}), &extended)}));
    same("run", json!({"requests": with(&one, &extended)}));
    same("run", json!({"requests": with(&one_disk, &extended)}));
    same("run", both(&with(&one, &extended)));
    same("created", both(&one_disk));
    same("run", both(&one_disk));
    check("0", both(&two_disk), Some(both(&one_disk)), None, &both(&two_disk));
    check(
        "run",
        both(&two_disk),
        Some(both(&one_disk)),
        None,
        &both(&with(&two_disk, &[("cpu", "1"), ("memory", "1Gi")])),
    );
}

/// Upstream's 2 cases of `TestConvertToAPIContainerStatusesWithImageVolumeDigest`, and what was reported before of an image
/// that the runtime does not know any more.
#[test]
fn mounts_tell_which_image_they_show() {
    let image = "sha256:abcd1234567890abcdef1234567890abcdef1234567890abcdef1234567890abcd";
    let (name, path) = ("image-volume", "/mock/path");
    let check = |mounts: Value, seen: &[(&str, Option<&str>)], old: Value, expected: Value| {
        let pod = made(json!({"containers": [{"name": "a", "volumeMounts": mounts}],
            "volumes": [{"name": name, "image": {"reference": "registry.k8s.io/example:1.2.3"}}]}));
        let mut observed = observed("a:run");
        let volume = |(path, id): &(&str, Option<&str>)| ImageVolume {
            container_path: (*path).into(),
            id: id.map(str::to_owned),
            ..ImageVolume::default()
        };
        observed.containers[0].image_volumes = seen.iter().map(volume).collect();
        let mut before = api("a:run");
        before.volume_mounts = serde_json::from_value(old).unwrap();
        let old = PodStatus { container_statuses: Some(vec![before]), ..PodStatus::default() };
        let got = status(&pod, &observed, &Given { old, ..Given::default() });
        let got = got.container_statuses.unwrap().remove(0).volume_mounts;
        assert_eq!(serde_json::to_value(got).unwrap(), expected, "{seen:?}");
    };
    let mount = json!({"name": name, "mountPath": path});
    let with_image = json!({"name": name, "mountPath": path, "volumeStatus": {"image": {"imageRef": image}}});
    let known = [(path, Some(image))];
    check(json!([mount]), &known, json!([mount]), json!([with_image]));
    check(json!(null), &[], json!(null), json!(null));
    check(json!([mount]), &[(path, None)], json!([with_image]), json!([with_image]));
    check(json!([mount]), &[(path, None)], json!([mount]), json!([mount]));
    let relative = json!({"name": name, "mountPath": "mock/path"});
    let mut expected = with_image.clone();
    expected["mountPath"] = json!("mock/path");
    check(
        json!([relative, {"name": "other", "mountPath": "/other"}]),
        &known,
        json!(null),
        json!([expected, {"name": "other", "mountPath": "/other"}]),
    );
}

/// The signal by which a container is stopped is told as the runtime knows it.
#[test]
fn containers_tell_their_stop_signal() {
    let mut observed = observed("a:run");
    observed.containers[0].stop_signal = Some("SIGUSR1".into());
    let got = status(&pod("Always", "a"), &observed, &Given::default());
    assert_eq!(got.container_statuses.unwrap()[0].stop_signal.as_deref(), Some("SIGUSR1"));
}

/// Restart counts never fall, whatever the runtime still has.
#[test]
fn restarts_are_counted_on() {
    let check = |seen_as: &str, runtime: u32, old: &str, before: i32, expected: i32| {
        let mut observed = observed(seen_as);
        observed.containers.iter_mut().for_each(|c| c.restart_count = runtime);
        let mut was = with_restarts(api(old), before);
        was.container_id = Some("test://id-a".into());
        let old = PodStatus { container_statuses: Some(vec![was]), ..PodStatus::default() };
        let got = status(&pod("Always", "a"), &observed, &Given { old, ..Given::default() });
        assert_eq!(got.container_statuses.unwrap()[0].restart_count, expected, "{seen_as} {runtime}");
    };
    check("a:run", 3, "a:1", 2, 3);
    check("a:run", 0, "a:run", 4, 4);
    check("a:1", 0, "a:run", 4, 4);
    check("a:unknown", 4, "a:run", 4, 5);
    check("a:unknown", 4, "a:137", 5, 5);
    check("a:run", 7, "a:wait", 2, 7);
}

/// Upstream's 4 cases of `TestGenerateAPIPodStatusWithReasonCache`, each for containers and for init containers.
#[test]
fn containers_wait_with_the_reason_of_their_last_start() {
    let check =
        |names: &[&str], seen: &str, old: Vec<ApiContainer>, expected: &[&str], of_init: Option<&[&str]>| {
            let fails = || ("test-error".to_owned(), String::new());
            let waiting = Waiting::from(["with-reason", "succeed"].map(|name| (name.to_owned(), fails())));
            for init in [false, true] {
                let list: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
                let place = if init { "initContainers" } else { "containers" };
                let mut spec = json!({"restartPolicy": "OnFailure", "containers": []});
                spec[place] = json!(list);
                let mut before = PodStatus::default();
                let to =
                    if init { &mut before.init_container_statuses } else { &mut before.container_statuses };
                *to = Some(old.clone());
                let given = Given { waiting: waiting.clone(), old: before, ..Given::default() };
                let got = status(&made(spec), &observed(seen), &given);
                let got = if init { got.init_container_statuses } else { got.container_statuses };
                let expected = if init { of_init.unwrap_or(expected) } else { expected };
                assert_eq!(words(got.as_ref()), expected, "{seen} {init}");
            }
        };
    let mut recorded = api("with-old-record:wait/0");
    recorded.state = None;
    check(
        &["with-old-record", "without-old-record"],
        "",
        vec![recorded],
        &[
            "with-old-record: wait ContainerCreating < 0 #0",
            "without-old-record: wait ContainerCreating <  #0",
        ],
        Some(&[
            "with-old-record: wait PodInitializing < 0 #0",
            "without-old-record: wait PodInitializing <  #0",
        ]),
    );
    check(&["running"], "running:run running:1", vec![], &["running: run < 1 #0"], None);
    check(
        &["succeed", "with-reason", "without-reason"],
        "without-reason:1 with-reason:2 without-reason:3 with-reason:4 succeed:0 succeed:5",
        vec![],
        &["succeed: 0 < 5 #0", "with-reason: wait test-error < 2 #0", "without-reason: 1 < 3 #0"],
        None,
    );
    check(
        &["unknown"],
        "unknown:unknown unknown:run",
        vec![api("unknown:run")],
        &["unknown: unknown 137 < run #1"],
        None,
    );
}

/// Upstream's 3 cases of `TestGenerateAPIPodStatusWithDifferentRestartPolicies` for containers and init containers, and the
/// 5 of `TestGenerateAPIPodStatusWithContainerRestartPolicies`.
#[test]
fn containers_wait_if_they_are_to_be_restarted() {
    let check = |spec: Value, expected: &[&str]| {
        let fails = || ("test-error".to_owned(), String::new());
        let waiting = Waiting::from(["succeed", "failed"].map(|name| (name.to_owned(), fails())));
        let seen = observed("succeed:0 failed:1 succeed:2 failed:3");
        let got = status(&made(spec.clone()), &seen, &Given { waiting, ..Given::default() });
        let got = got.init_container_statuses.or(got.container_statuses);
        assert_eq!(words(got.as_ref()), expected, "{spec}");
    };
    let of_pod = |policy: &str, init: bool, expected: &[&str]| {
        let both = json!([{"name": "failed"}, {"name": "succeed"}]);
        let (init, regular) = if init { (both, json!([])) } else { (json!([]), both) };
        check(json!({"restartPolicy": policy, "initContainers": init, "containers": regular}), expected);
    };
    let (failed, succeeded) = ("failed: wait test-error < 1 #0", "succeed: 0 < 2 #0");
    for init in [false, true] {
        of_pod("Never", init, &["failed: 1 < 3 #0", succeeded]);
        of_pod("OnFailure", init, &[failed, succeeded]);
    }
    of_pod("Always", false, &[failed, "succeed: wait test-error < 0 #0"]);
    of_pod("Always", true, &[failed, succeeded]);

    let of_container = |containers: Value, expected: &[&str]| {
        check(json!({"restartPolicy": "Always", "containers": containers}), expected);
    };
    let rule = |code: i32| {
        json!([{"name": "failed", "restartPolicy": "Never", "restartPolicyRules": [
            {"action": "Restart", "exitCodes": {"operator": "In", "values": [code]}}]}])
    };
    of_container(rule(1), &[failed]);
    of_container(rule(2), &["failed: 1 < 3 #0"]);
    let both = |policy: &str| json!([{"name": "succeed", "restartPolicy": policy}, {"name": "failed", "restartPolicy": policy}]);
    of_container(both("Never"), &["failed: 1 < 3 #0", succeeded]);
    of_container(both("OnFailure"), &[failed, succeeded]);
    of_container(both("Always"), &[failed, "succeed: wait test-error < 0 #0"]);
}

/// Upstream's `TestGenerateAPIPodStatusWithSortedContainers`.
#[test]
fn containers_are_in_the_order_of_their_names() {
    let names: Vec<String> = (0..10).map(|n| format!("{n}container")).collect();
    let spec: Vec<Value> = names.iter().rev().map(|name| json!({"name": name})).collect();
    let got = status(&made(json!({"containers": spec})), &observed(""), &Given::default());
    let got: Vec<String> = got.container_statuses.unwrap().into_iter().map(|s| s.name).collect();
    assert_eq!(got, names);
}

/// Upstream's cases of `Test_generateAPIPodStatus` about phases: 7 of its 18, of which 2 differ in an old field only. The
/// rest are about resources of whole Pods. There, containers that wait count as ready, which no real probe says.
#[test]
fn phases_do_not_go_back() {
    struct Case<'a> {
        policy: &'a str,
        api: &'a str,
        seen: Option<&'a str>,
        old: (&'a str, &'a str),
        reason: &'a str,
        terminal: bool,
        expected: (&'a str, &'a str, &'a str),
    }
    let check = |case: &Case<'_>| {
        let mut pod = pod(case.policy, "a b");
        pod.status = Some(PodStatus { phase: Some(case.api.into()), ..PodStatus::default() });
        let old = PodStatus {
            phase: Some(case.old.0.into()),
            reason: Some(case.reason.to_owned()).filter(|r| !r.is_empty()),
            container_statuses: Some(case.old.1.split_whitespace().map(api).collect()),
            ..PodStatus::default()
        };
        let mut observed = observed(case.seen.unwrap_or_default());
        observed.sandboxes.extend(case.seen.map(|_| ready_sandbox()));
        let got = status(&pod, &observed, &Given { old, terminal: case.terminal, ..Given::default() });
        let conditions = got.conditions.iter().flatten();
        let ready: Vec<_> =
            conditions.filter(|c| c.type_ == "Ready").filter_map(|c| c.reason.clone()).collect();
        let expected = (case.expected.0.to_owned(), case.expected.1.to_owned(), case.expected.2.to_owned());
        let of = |text: Option<String>| text.unwrap_or_default();
        assert_eq!((of(got.phase), of(got.reason), ready.concat()), expected, "{case:?}", case = case.seen);
    };
    let run = "a:run b:run";
    let base = Case {
        policy: "Always",
        api: "",
        seen: Some(""),
        old: ("", run),
        reason: "",
        terminal: false,
        expected: ("", "", ""),
    };
    check(&Case { terminal: true, expected: ("Failed", "", "PodFailed"), ..base });
    check(&Case { expected: ("Running", "", "ContainersNotReady"), ..base });
    check(&Case { api: "Succeeded", seen: None, expected: ("Pending", "", "PodCompleted"), ..base });
    check(&Case {
        api: "Running",
        seen: None,
        old: ("Succeeded", run),
        reason: "Test",
        expected: ("Succeeded", "Test", "PodCompleted"),
        ..base
    });
    check(&Case {
        policy: "Never",
        api: "Running",
        seen: None,
        old: ("Succeeded", "a:0 b:0"),
        reason: "Test",
        expected: ("Succeeded", "Test", "PodCompleted"),
        ..base
    });
    check(&Case {
        api: "Running",
        old: ("", "a:wait b:wait"),
        expected: ("Pending", "", "ContainersNotReady"),
        ..base
    });
    check(&Case {
        api: "Running",
        seen: Some("b:run"),
        old: ("Pending", "a:wait b:run"),
        reason: "Test",
        expected: ("Pending", "Test", "ContainersNotReady"),
        ..base
    });
    check(&Case {
        api: "Pending",
        seen: Some("a:run b:run"),
        old: ("Pending", run),
        reason: "Test",
        expected: ("Running", "", ""),
        ..base
    });
}

/// Upstream's 3 cases of `TestMergePodStatus` in which a Pod fails, with and without containers that may still run, and its
/// 2 of a Pod that is disrupted. DIFFERENCE: conditions of others come from the API's Pod here, not from the last status.
#[test]
fn a_pod_has_not_failed_before_all_of_it_has_ended() {
    let check = |terminal: bool, expected: (&str, Option<&str>, Option<&str>, bool)| {
        let old = PodStatus {
            phase: Some("Running".into()),
            reason: Some("Unknown".into()),
            message: Some("Message".into()),
            ..PodStatus::default()
        };
        let why = Failure {
            reason: "Evicted".into(),
            message: "Was Evicted".into(),
            disruption: Some("text".into()),
            keeps_success: false,
        };
        let given = Given { old, terminal, failed: Some(why), ..Given::default() };
        let mut observed = observed(if terminal { "a:137" } else { "a:run" });
        observed.sandboxes.push(ready_sandbox());
        let got = status(&pod("Always", "a"), &observed, &given);
        let of = |kind: &str| got.conditions.iter().flatten().find(|c| c.type_ == kind);
        assert_eq!(of("Ready").unwrap().reason.as_deref(), Some("PodFailed"));
        assert_eq!(
            (
                got.phase.as_deref().unwrap(),
                got.reason.as_deref(),
                got.message.as_deref(),
                of("DisruptionTarget").is_some()
            ),
            expected
        );
    };
    check(false, ("Running", Some("Unknown"), Some("Message"), false));
    check(true, ("Failed", Some("Evicted"), Some("Was Evicted"), true));
}

/// Upstream's 8 cases of `TestGenerateAPIPodStatusHostNetworkPodIPs`, and the 6 of addresses that change. The node's
/// addresses are chosen before; the last column has all that the runtime reports, in the order of the node's families.
#[test]
fn pods_on_the_hosts_network_have_the_nodes_addresses() {
    let check = |node: &[&'static str], runtime: &[&str], expected: &[&str]| {
        let mut pod = pod("Always", "a");
        pod.spec.get_or_insert_default().host_network = Some(true);
        let ips = runtime.iter().map(|ip| (*ip).to_owned()).collect();
        let sandbox = SandboxStatus { ips, host_network: true, ..ready_sandbox() };
        let observed = observed::PodStatus { sandboxes: vec![sandbox], ..observed::PodStatus::default() };
        let got = status(&pod, &observed, &Given { node_ips: node.to_vec(), ..Given::default() });
        let ips: Vec<String> = got.pod_ips.into_iter().flatten().map(|ip| ip.ip).collect();
        assert_eq!(ips, expected, "{node:?} {runtime:?}");
        assert_eq!(got.pod_ip.as_deref(), expected.first().copied());
        assert_eq!(got.host_ip.as_deref(), node.first().copied());
    };
    let (v4, v6) = ("10.0.0.1", "fd01::1234");
    for _ in
        ["simple", "an external address beside it", "in a cluster with both families", "many of a family"]
    {
        check(&[v4], &[], &[v4]);
    }
    check(&[v4, v6], &[], &[v4, v6]);
    check(&[v4, v6], &["192.168.0.1"], &["192.168.0.1", v6]);
    check(&[v4, v6], &["192.168.0.1", "2001:db8::2"], &["192.168.0.1", "2001:db8::2"]);

    let (old4, old6) = ("10.0.0.1", "2001:db8::2");
    check(&["1.1.1.1"], &[old4], &[old4]);
    check(&["1.1.1.1", old6], &[old4, old6], &[old4, old6]);
    check(&[old4, "2001:db8:1:2:3::2"], &[old4, old6], &[old4, old6]);
    check(&["1.1.1.1", "2001:db8:1:2:3::2"], &[old4, old6], &[old4, old6]);
    check(&[old4, old6], &[old4], &[old4, old6]);
    check(&[old4, old6], &[old6], &[old6]);
}

/// Statuses as upstream's tests of conditions have them: `ready`, `not`, `started`, `notstarted` or a state.
fn shown(text: &str) -> ApiContainer {
    let (name, state) = text.split_once(':').unwrap();
    let bare = |more: Value| {
        let mut all = json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    };
    match state {
        "ready" => bare(json!({"ready": true})),
        "not" => bare(json!({})),
        "started" => bare(json!({"started": true})),
        "notstarted" => bare(json!({"started": false})),
        _ => api(text),
    }
}

/// 10 of upstream's 11 cases of `TestGenerateContainersReadyCondition` and 13 of the 14 of `TestGeneratePodReadyCondition`;
/// the other two have no list of statuses at all, which cannot be here. The same for `TestGeneratePodInitializedCondition`:
/// 10 of 11.
#[test]
fn conditions_of_containers() {
    let check = |spec: Value, gates: &str, phase: &str, statuses: &str, expected: &str| {
        let pod = made(spec);
        let all: Vec<_> = statuses.split_whitespace().map(shown).collect();
        let all: Vec<_> = all.iter().collect();
        let gates: Vec<_> = gates
            .split_whitespace()
            .map(|gate| {
                let (kind, status) = gate.split_once('=').unwrap();
                serde_json::from_value(json!({"type": kind, "status": status})).unwrap()
            })
            .collect();
        let got = generate::ready(&pod, &all, &gates, phase);
        let text = |reason: Option<String>| reason.map(|r| format!(" {r}")).unwrap_or_default();
        assert_eq!(
            format!("{}{}{}", got.status, text(got.reason), text(got.message)),
            expected,
            "{statuses}"
        );
        if gates.is_empty() && pod.spec.as_ref().is_some_and(|s| s.readiness_gates.is_none()) {
            let got = generate::containers_ready(&pod, &all, phase, "ContainersReady");
            assert_eq!(format!("{}{}{}", got.status, text(got.reason), text(got.message)), expected);
        }
    };
    let regular = |names: &[&str]| json!({"containers": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()});
    let sidecars = |names: &[&str]| {
        let init: Vec<_> =
            names.iter().map(|name| json!({"name": name, "restartPolicy": "Always"})).collect();
        json!({"initContainers": init, "containers": [{"name": "regular"}]})
    };
    let not = |text: &str| format!("False ContainersNotReady containers with {text}");
    let run = "Running";
    check(regular(&[]), "", run, "", "True");
    check(regular(&["1234"]), "", run, "", &not("unknown status: [1234]"));
    check(regular(&["1234", "5678"]), "", run, "1234:ready 5678:ready", "True");
    check(regular(&["1234", "5678"]), "", run, "1234:ready", &not("unknown status: [5678]"));
    check(regular(&["1234", "5678"]), "", run, "1234:ready 5678:not", &not("unready status: [5678]"));
    check(regular(&["1234"]), "", "Succeeded", "1234:not", "False PodCompleted");
    check(sidecars(&["s1"]), "", run, "regular:ready", &not("unknown status: [s1]"));
    check(sidecars(&["s1", "s2"]), "", run, "s1:ready s2:ready regular:ready", "True");
    check(sidecars(&["s1", "s2"]), "", run, "s1:ready regular:ready", &not("unknown status: [s2]"));
    check(sidecars(&["s1", "s2"]), "", run, "s1:ready s2:not regular:ready", &not("unready status: [s2]"));

    let gated = |names: &[&str], containers: Value| {
        let gates: Vec<_> = names.iter().map(|name| json!({"conditionType": name})).collect();
        json!({"readinessGates": gates, "containers": containers})
    };
    let missing = |gate: &str| {
        format!(
            "False ReadinessGatesNotReady corresponding condition of pod readiness gate \"{gate}\" does not exist."
        )
    };
    let closed = |gate: &str| {
        format!(
            "False ReadinessGatesNotReady the status of pod readiness gate \"{gate}\" is not \"True\", but False"
        )
    };
    let (one, two) = (["gate1"], ["gate1", "gate2"]);
    check(gated(&one, json!([])), "", run, "", &missing("gate1"));
    check(gated(&one, json!([])), "gate1=False", run, "", &closed("gate1"));
    check(gated(&one, json!([])), "gate1=True", run, "", "True");
    check(gated(&two, json!([])), "gate1=True", run, "", &missing("gate2"));
    check(gated(&two, json!([])), "gate1=True gate2=False", run, "", &closed("gate2"));
    check(gated(&two, json!([])), "gate1=True gate2=True", run, "", "True");
    let not_ready = not("unready status: [1234]");
    check(gated(&one, json!([{"name": "1234"}])), "gate1=True", run, "1234:not", &not_ready);

    let initialized = |init: &[&str], phase: &str, statuses: &str, expected: &str| {
        let init: Vec<_> = init.iter().map(|name| container(name)).collect();
        let pod = made(json!({"initContainers": init, "containers": [{"name": "regular"}]}));
        let all: Vec<_> = statuses.split_whitespace().map(shown).collect();
        let all: Vec<_> = all.iter().collect();
        let got = generate::initialized(&pod, &all, &PodStatus::default(), phase);
        let reason = got.reason.map(|r| format!(" {r}")).unwrap_or_default();
        assert_eq!(format!("{}{reason}", got.status), expected, "{init:?} {statuses}");
    };
    let not = "False ContainersNotInitialized";
    initialized(&[], run, "", "True");
    initialized(&["1234"], run, "", not);
    initialized(&["1234", "5678"], run, "1234:ready 5678:ready", "True");
    initialized(&["1234", "5678"], run, "1234:ready", not);
    initialized(&["1234", "5678"], run, "1234:ready 5678:not", not);
    initialized(&["1234"], "Succeeded", "1234:ready", "True PodCompleted");
    initialized(&["1234*"], "Pending", "1234:notstarted", not);
    initialized(&["1234*"], run, "1234:started", "True");
    initialized(&["1234*"], run, "1234:notstarted regular:run", "True");
    initialized(&["1234"], run, "1234:wait regular:0", "True");
}

/// A Pod that was initialized stays so, though its sidecars start again.
#[test]
fn initialized_once_is_initialized() {
    let of = |status: &str| {
        let old = json!({"conditions": [{"type": "Initialized", "status": status}]});
        let old: PodStatus = serde_json::from_value(old).unwrap();
        let got = generate::initialized(&pod("Always", "x* a"), &[], &old, "Running");
        (got.status, got.reason)
    };
    assert_eq!(of("True"), ("True".into(), None));
    assert_eq!(of("False"), ("False".into(), Some("ContainersNotInitialized".into())));
}

/// Upstream's 4 cases of `TestGeneratePodReadyToStartContainersCondition`.
#[test]
fn ready_to_start_containers() {
    let check = |sandbox: Option<SandboxStatus>, expected: &str| {
        let observed = observed::PodStatus { sandboxes: sandbox.into_iter().collect(), ..Default::default() };
        let got = status(&pod("Always", "a"), &observed, &Given::default());
        let got = got.conditions.into_iter().flatten().find(|c| c.type_ == "PodReadyToStartContainers");
        assert_eq!(got.unwrap().status, expected);
    };
    check(None, "False");
    check(Some(SandboxStatus { ready: false, ..ready_sandbox() }), "False");
    check(Some(SandboxStatus { ips: vec![], ..ready_sandbox() }), "False");
    check(Some(ready_sandbox()), "True");
}

/// Upstream's 14 cases of `TestTerminatePod_DefaultUnknownStatus`, the 6 of `TestTerminatePod_EnsurePodPhaseIsTerminal`, and
/// `TestTerminatePod` and `TestTerminatePodWaiting`. A container without a state is `none`.
#[test]
fn a_pod_that_ended_has_no_containers_that_may_run() {
    let list = |text: &str| -> Option<Vec<ApiContainer>> {
        let one = |text: &str| {
            let mut status = api(&text.replace(":none", ":wait"));
            if text.contains(":none") {
                status.state = None;
            }
            status
        };
        Some(text.split_whitespace().map(one).collect::<Vec<_>>()).filter(|l| !l.is_empty())
    };
    let check = |phase: &str, init: &str, regular: &str, expected: &str| {
        let names = |of: &str| -> Vec<Value> {
            of.split_whitespace().map(|c| json!({"name": c.split(':').next().unwrap()})).collect()
        };
        let pod = made(
            json!({"restartPolicy": "Never", "initContainers": names(init), "containers": names(regular)}),
        );
        let old = PodStatus {
            phase: Some(phase.into()),
            init_container_statuses: list(init),
            container_statuses: list(regular),
            ..PodStatus::default()
        };
        let got = terminate(old, &pod);
        let states =
            got.init_container_statuses.iter().flatten().chain(got.container_statuses.iter().flatten());
        let mut text = vec![got.phase.clone().unwrap_or_default()];
        text.extend(states.map(|s| match word(s.state.as_ref()).as_str() {
            "unknown 137" => "lost".to_owned(),
            other => other.to_owned(),
        }));
        assert_eq!(text.join(" "), expected, "{phase} [{init}] [{regular}]");
    };
    check("Failed", "", "", "Failed");
    check("Running", "", "", "Failed");
    check("Running", "", "a:2", "Failed 2");
    check("Running", "", "a:wait/2", "Failed lost");
    check("Running", "", "a:wait", "Failed lost");
    check("Pending", "i:wait", "a:wait", "Failed lost wait");
    check("Pending", "i:wait j:wait", "a:wait", "Failed lost wait wait");
    check("Pending", "i:wait j:wait k:1 l:wait", "a:wait", "Failed lost lost 1 wait wait");
    check("Pending", "i:wait j:wait k:1", "a:wait", "Failed lost lost 1 wait");
    check("Running", "i:wait j:wait k:0", "a:wait", "Failed lost lost 0 lost");
    check("Running", "i:wait j:wait k:wait/0", "a:wait", "Failed lost lost lost lost");
    check("Running", "i:wait", "a:run", "Failed lost lost");
    check("Running", "i:wait", "a:0", "Failed lost 0");
    check("Running", "i:wait", "a:wait/0", "Failed lost lost");
    for phase in ["Pending", "Running", "Unknown", "SomeUnknownPhase"] {
        check(phase, "", "", "Failed");
    }
    check("Succeeded", "", "", "Succeeded");
    check("Failed", "", "", "Failed");
    check("Failed", "i:none j:0 k:3", "a:none b:2 c:0", "Failed lost 0 3 lost 2 0");
    check("Failed", "i:none j:0 k:wait", "a:none b:2 c:wait", "Failed lost 0 wait lost 2 lost");
}

/// Upstream's 7 containers of `TestUpdatePodStatus`, and its 3 of `TestUpdatePodStatusWithInitContainers`, as init containers
/// and as sidecars: whether they have started, and whether they are ready.
#[test]
fn probes_tell_of_containers() {
    let probe = |kind: Kind, id: &str| match (kind, id) {
        (Kind::Readiness, "id-ready" | "id-ended") | (Kind::Startup, "id-started") => Some(true),
        (Kind::Readiness, "id-unready") => Some(false),
        _ => None,
    };
    let check = |pod: &Pod, containers: &str, expected: &[(&str, bool, bool)]| {
        let got = probed(pod, &observed(containers), &Given::default(), &probe);
        let all = got.init_container_statuses.iter().flatten().chain(got.container_statuses.iter().flatten());
        let all: Vec<_> = all.map(|s| (s.name.as_str(), s.started == Some(true), s.ready)).collect();
        assert_eq!(all, expected);
    };
    let with = |name: &str, probe: &str| {
        let mut container = json!({"name": name});
        if !probe.is_empty() {
            container[probe] = json!({});
        }
        container
    };
    let (readiness, startup) = ("readinessProbe", "startupProbe");
    let regular = [
        with("unprobed", ""),
        with("ready", readiness),
        with("pending", readiness),
        with("unready", readiness),
        with("unstarted", startup),
        with("started", startup),
        with("ended", readiness),
    ];
    check(
        &made(json!({"containers": regular})),
        "unprobed:run ready:run pending:run unready:run unstarted:run started:run ended:0",
        &[
            ("ended", false, false),
            ("pending", true, false),
            ("ready", true, true),
            ("started", true, true),
            ("unprobed", true, true),
            ("unready", true, false),
            ("unstarted", false, false),
        ],
    );
    let init = [with("unstarted", startup), with("started", startup), with("ended", "")];
    let seen = "unstarted:run started:run ended:0";
    let expected = [("unstarted", false, false), ("started", true, false), ("ended", false, true)];
    check(&made(json!({"initContainers": init, "containers": []})), seen, &expected);
    let sidecars = init.map(|mut container| {
        container["restartPolicy"] = json!("Always");
        container
    });
    let expected = [("unstarted", false, false), ("started", true, true), ("ended", false, false)];
    check(&made(json!({"initContainers": sidecars, "containers": []})), seen, &expected);
}
