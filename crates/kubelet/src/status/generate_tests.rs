//! Phases and conditions, after upstream's `TestPodPhase*` and `TestGenerate*` cases.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{Pod, PodStatus, ResourceRequirements};
use serde_json::{Value, json};

use super::generate::{Inputs, Waiting, generate, terminate};
use crate::pods::observed::{self, ContainerStatus, SandboxStatus, State};
use crate::pods::pod_level::Figures;
use crate::probes::Kind;

fn pod(policy: &str, init: &Value, containers: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 3},
        "spec": {"restartPolicy": policy, "initContainers": init, "containers": containers}}))
    .unwrap()
}

/// `name:run`, `name:EXIT-CODE`.
fn seen(containers: &str) -> observed::PodStatus {
    observed::PodStatus {
        sandboxes: vec![SandboxStatus {
            id: "s".into(),
            ready: true,
            ips: vec!["10.0.0.9".into()],
            ..SandboxStatus::default()
        }],
        containers: containers
            .split_whitespace()
            .map(|item| {
                let (name, state) = item.split_once(':').unwrap();
                let running = state == "run";
                ContainerStatus {
                    id: format!("id-{name}"),
                    sandbox_id: "s".into(),
                    name: name.into(),
                    state: if running { State::Running } else { State::Exited },
                    exit_code: state.parse().unwrap_or(0),
                    ..ContainerStatus::default()
                }
            })
            .collect(),
        ..observed::PodStatus::default()
    }
}

fn status(
    pod: &Pod,
    seen: &observed::PodStatus,
    waiting: &Waiting,
    old: &PodStatus,
    probe: &dyn Fn(Kind, &str) -> Option<bool>,
) -> PodStatus {
    status_when(false, pod, seen, waiting, old, probe)
}

fn status_when(
    terminal: bool,
    pod: &Pod,
    seen: &observed::PodStatus,
    waiting: &Waiting,
    old: &PodStatus,
    probe: &dyn Fn(Kind, &str) -> Option<bool>,
) -> PodStatus {
    generate(&Inputs { observed: seen, waiting, probe, terminal, ..inputs(pod, old) })
}

/// The facts that a status is made of, where nothing is known but the Pod.
fn inputs<'a>(pod: &'a Pod, old: &'a PodStatus) -> Inputs<'a> {
    static NOBODY: LazyLock<observed::PodStatus> = LazyLock::new(observed::PodStatus::default);
    static NOTHING: LazyLock<Waiting> = LazyLock::new(Waiting::new);
    static NONE: LazyLock<HashMap<String, ResourceRequirements>> = LazyLock::new(HashMap::new);
    static NODE: LazyLock<[std::net::IpAddr; 1]> = LazyLock::new(|| ["192.0.2.1".parse().unwrap()]);
    Inputs {
        pod,
        observed: &NOBODY,
        waiting: &NOTHING,
        probe: &|_, _| None,
        old,
        terminal: false,
        pending: None,
        failed: None,
        node_ips: &*NODE,
        runtime: "containerd",
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

#[test]
fn phases() {
    let two = json!([{"name": "a"}, {"name": "b"}]);
    let init = json!([{"name": "i"}]);
    let none = json!([]);
    for (policy, init, containers, want) in [
        ("Always", &none, "", "Pending"),
        ("Always", &none, "a:run b:run", "Running"),
        ("Always", &none, "a:run", "Pending"),
        ("Always", &none, "a:0 b:0", "Running"),
        ("Always", &none, "a:run b:1", "Running"),
        ("Never", &none, "a:run b:run", "Running"),
        ("Never", &none, "a:0 b:0", "Succeeded"),
        ("Never", &none, "a:1 b:0", "Failed"),
        ("Never", &none, "a:run b:1", "Running"),
        ("OnFailure", &none, "a:0 b:0", "Succeeded"),
        ("OnFailure", &none, "a:1 b:0", "Running"),
        ("Always", &init, "", "Pending"),
        ("Always", &init, "i:run", "Pending"),
        ("Always", &init, "i:1", "Pending"),
        ("Never", &init, "i:1", "Failed"),
        ("Never", &init, "i:0", "Pending"),
        ("Never", &init, "i:0 a:run b:run", "Running"),
        ("Never", &init, "i:0 a:0 b:0", "Succeeded"),
    ] {
        let p = pod(policy, init, &two);
        let phase = |terminal| {
            let old = PodStatus { phase: Some("Pending".into()), ..PodStatus::default() };
            status_when(terminal, &p, &seen(containers), &Waiting::new(), &old, &|_, _| None).phase
        };
        if matches!(want, "Succeeded" | "Failed") {
            assert_eq!(
                phase(false).as_deref(),
                Some("Pending"),
                "{policy} {containers}: its sandbox is there"
            );
            assert_eq!(phase(true).as_deref(), Some(want), "{policy} {containers}");
        } else {
            assert_eq!(phase(false).as_deref(), Some(want), "{policy} {containers}");
        }
    }
}

#[test]
fn conditions() {
    let p = pod(
        "Always",
        &json!([{"name": "i"}]),
        &json!([{"name": "a", "readinessProbe": {}}, {"name": "b", "startupProbe": {}}]),
    );
    let check = |containers: &str, ready_probe: Option<bool>, startup: Option<bool>, want: &str| {
        let probe = |kind, _: &str| if kind == Kind::Readiness { ready_probe } else { startup };
        let got = status(&p, &seen(containers), &Waiting::new(), &PodStatus::default(), &probe);
        let text: Vec<String> = got
            .conditions
            .unwrap()
            .iter()
            .map(|c| {
                assert_eq!(c.observed_generation, Some(3));
                let reason = c
                    .reason
                    .as_deref()
                    .map(|r| format!("({r}: {})", c.message.as_deref().unwrap_or_default()));
                format!("{}={}{}", c.type_, c.status, reason.unwrap_or_default())
            })
            .collect();
        assert_eq!(text.join(" "), want, "{containers}");
    };
    let tail = "PodScheduled=True";
    check(
        "",
        None,
        None,
        &format!(
            "PodReadyToStartContainers=True Initialized=False(ContainersNotInitialized: containers with incomplete status: [i]) Ready=False(ContainersNotReady: containers with unready status: [a b]) ContainersReady=False(ContainersNotReady: containers with unready status: [a b]) {tail}"
        ),
    );
    check(
        "i:0 a:run b:run",
        Some(true),
        Some(true),
        &format!("PodReadyToStartContainers=True Initialized=True Ready=True ContainersReady=True {tail}"),
    );
    check(
        "i:0 a:run b:run",
        Some(false),
        Some(true),
        &format!(
            "PodReadyToStartContainers=True Initialized=True Ready=False(ContainersNotReady: containers with unready status: [a]) ContainersReady=False(ContainersNotReady: containers with unready status: [a]) {tail}"
        ),
    );
    check(
        "i:0 a:run b:run",
        Some(true),
        None,
        &format!(
            "PodReadyToStartContainers=True Initialized=True Ready=False(ContainersNotReady: containers with unready status: [b]) ContainersReady=False(ContainersNotReady: containers with unready status: [b]) {tail}"
        ),
    );
}

#[test]
fn waiting_and_the_past() {
    let p = pod("Always", &json!([]), &json!([{"name": "a"}]));
    let waits = Waiting::from([("a".to_owned(), ("CrashLoopBackOff".to_owned(), "back-off".to_owned()))]);
    let got = status(&p, &seen("a:1"), &waits, &PodStatus::default(), &|_, _| None);
    let c = &got.container_statuses.as_ref().unwrap()[0];
    assert_eq!(
        c.state.as_ref().unwrap().waiting.as_ref().unwrap().reason.as_deref(),
        Some("CrashLoopBackOff")
    );
    assert_eq!(c.last_state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 1);
    assert_eq!(c.container_id.as_deref(), Some("containerd://id-a"));
    assert_eq!(
        (got.phase.as_deref(), got.pod_ip.as_deref(), got.host_ip.as_deref()),
        (Some("Running"), Some("10.0.0.9"), Some("192.0.2.1"))
    );

    // It ran, and the runtime has nothing of it any more.
    let ran = status(&p, &seen("a:run"), &Waiting::new(), &PodStatus::default(), &|_, _| None);
    let lost = status(&p, &observed::PodStatus::default(), &Waiting::new(), &ran, &|_, _| None);
    let c = &lost.container_statuses.as_ref().unwrap()[0];
    assert_eq!(
        c.last_state.as_ref().unwrap().terminated.as_ref().unwrap().reason.as_deref(),
        Some("ContainerStatusUnknown")
    );
    assert_eq!(c.restart_count, 1);
    assert_eq!(lost.pod_ip.as_deref(), Some("10.0.0.9"), "the address is kept");
    let ended = terminate(lost, &p);
    assert_eq!(ended.phase.as_deref(), Some("Failed"));
    assert_eq!(
        ended.container_statuses.unwrap()[0].state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code,
        137
    );
}

#[test]
fn nothing_leads_out_of_a_final_phase() {
    let p = pod("Never", &json!([]), &json!([{"name": "a"}]));
    let old =
        PodStatus { phase: Some("Failed".into()), reason: Some("Evicted".into()), ..PodStatus::default() };
    let got = status(&p, &seen("a:0"), &Waiting::new(), &old, &|_, _| None);
    assert_eq!((got.phase.as_deref(), got.reason.as_deref()), (Some("Failed"), Some("Evicted")));
}

#[test]
fn a_resize_is_in_progress_until_the_container_has_its_resources() {
    let cpu = |cpu| json!({"limits": {"cpu": cpu}});
    let p = pod("Always", &json!([]), &json!([{"name": "a", "resources": cpu("2")}]));
    let given = |cpu_given| serde_json::from_value(cpu(cpu_given)).unwrap();
    for (containers, actuated, error, resizing, want) in [
        ("a:run", "2", None, None, None),
        ("a:run", "1", None, None, Some((None, None, Some(3)))),
        // A newer generation does not count as under way before its turn.
        ("a:run", "1", None, Some(2), Some((None, None, Some(2)))),
        ("a:run", "1", Some("no"), Some(2), Some((Some("Error"), Some("no"), Some(2)))),
        ("a:0", "1", None, None, None),
    ] {
        let got = generate(&Inputs {
            observed: &seen(containers),
            actuated: &[("id-a".to_owned(), given(actuated))].into(),
            resize_error: error,
            resizing,
            ..inputs(&p, &PodStatus::default())
        });
        let conditions = got.conditions.unwrap();
        let resize = conditions.iter().find(|c| c.type_ == "PodResizeInProgress");
        let got = resize.map(|c| (c.reason.as_deref(), c.message.as_deref(), c.observed_generation));
        assert_eq!(got, want, "{containers} {actuated}");
    }
}

#[test]
fn messages_do_not_outgrow_a_status() {
    let count = 40;
    let list: Vec<Value> = (0..count).map(|n| json!({"name": format!("c{n}")})).collect();
    let p = pod("Always", &json!([]), &json!(list));
    let mut containers = String::new();
    for n in 0..count {
        let _ = write!(containers, "c{n}:1 ");
    }
    let mut observed = seen(&containers);
    observed.containers.iter_mut().for_each(|c| c.message = "\u{fc}".repeat(2048));
    let waiting: Waiting = (0..count)
        .map(|n| (format!("c{n}"), ("RunContainerError".to_owned(), "\u{fc}".repeat(100_000))))
        .collect();
    let got = status(&p, &observed, &waiting, &PodStatus::default(), &|_, _| None);
    for c in got.container_statuses.unwrap() {
        let waits = c.state.unwrap().waiting.unwrap().message.unwrap();
        let ended = c.last_state.unwrap().terminated.unwrap().message.unwrap();
        assert_eq!((waits.len(), ended.len()), (((64 << 10) / count) & !1, ((12 << 10) / count) & !1));
    }
}

/// This thread's time on a processor, in nanoseconds: what else the machine does is not in it.
fn on_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Twice the containers are about twice the work, not four times: the best of a few runs counts.
#[test]
fn the_work_grows_with_the_containers() {
    use crate::pods::actions;
    struct Sound;
    impl actions::ProbeResults for Sound {
        fn liveness(&self, _: &str) -> Option<bool> {
            Some(true)
        }
        fn startup(&self, _: &str) -> Option<bool> {
            Some(true)
        }
    }
    let took = |count: usize| -> u64 {
        let list: Vec<Value> = (0..count).map(|n| json!({"name": format!("container-{n}")})).collect();
        let p = pod("Always", &json!([]), &json!(list));
        let mut containers = String::new();
        for n in 0..count {
            let _ = write!(containers, "container-{n}:run ");
        }
        (0..5)
            .map(|_| {
                let observed = seen(&containers);
                let began = on_cpu();
                let old = status(&p, &observed, &Waiting::new(), &PodStatus::default(), &|_, _| None);
                let new = status(&p, &observed, &Waiting::new(), &old, &|_, _| None);
                assert!(crate::status::patch::difference(&old, &new).is_none());
                let _ = actions::compute_actions(&p, &observed, &Sound, false);
                on_cpu() - began
            })
            .min()
            .unwrap()
    };
    // Four times as many: an exponent of 1.5 is a factor of 8. A neighbour that takes the caches away may spoil one pair
    // of sizes; work that grows faster spoils each.
    let spoilt: Vec<_> = [1500, 2000, 2500]
        .into_iter()
        .map(|count| (took(count), took(4 * count)))
        .take_while(|(few, many)| *many >= few * 8)
        .collect();
    assert!(spoilt.len() < 3, "{spoilt:?}");
}

/// Upstream's 24 cases of `TestIsPodResizeInProgress`. Containers are `ALLOCATED/ACTUATED`, `.` for one that is not running;
/// resources are requests and limits of cpu and memory as `CPU:CPU:MEMORY:MEMORY`; `i` and `s` are init containers and sidecars.
#[test]
fn a_resize_is_under_way_until_all_have_their_resources() {
    fn resources(text: &str) -> ResourceRequirements {
        let mut made = json!({"requests": {}, "limits": {}});
        let places = [("requests", "cpu"), ("limits", "cpu"), ("requests", "memory"), ("limits", "memory")];
        for (amount, (list, name)) in text.split(':').zip(places) {
            if !amount.is_empty() {
                made[list][name] =
                    json!(if name == "cpu" { format!("{amount}m") } else { amount.to_owned() });
            }
        }
        serde_json::from_value(made).unwrap()
    }
    let check = |whole: &str, containers: &str, tells_whole: bool, expected: bool| {
        let mut lists = [Vec::new(), Vec::new()];
        let mut actuated = HashMap::new();
        let mut observed = seen("");
        for (at, word) in containers.split_whitespace().enumerate() {
            let (name, init) = (format!("c{at}"), word.starts_with(['i', 's']));
            let (allocated, given) = word.trim_start_matches(['i', 's']).split_once('/').unwrap();
            let mut c = json!({"name": name, "resources": resources(allocated)});
            if word.starts_with('s') {
                c["restartPolicy"] = json!("Always");
            }
            lists[usize::from(!init)].push(c);
            if given != "." {
                let id = format!("id-{name}");
                observed.containers.extend(seen(&format!("{name}:run")).containers);
                if given != "?" {
                    actuated.insert(id, resources(given));
                }
            }
        }
        let mut spec = json!({"initContainers": lists[0], "containers": lists[1]});
        let (allocated, given) = whole.split_once('/').unwrap_or_default();
        if !whole.is_empty() {
            spec["resources"] = json!(resources(allocated));
        }
        let given = Some(resources(given)).filter(|_| !whole.ends_with('/') && !whole.is_empty());
        let pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        let old = PodStatus::default();
        let got = generate(&Inputs {
            observed: &observed,
            actuated: &actuated,
            actuated_whole: given.as_ref(),
            tells_whole,
            ..inputs(&pod, &old)
        });
        let is = got.conditions.unwrap().iter().any(|c| c.type_ == "PodResizeInProgress");
        assert_eq!(is, expected, "{whole} {containers}");
    };
    let (same, limited) = ("100:100:100:100/100:100:100:100", "100:200:100:200");
    check("", same, true, false);
    check("", "100:100:100:100/.", true, false);
    for (other, differs) in [
        ("150:200:100:200", true),
        ("100:300:100:200", true),
        ("100:200:150:200", true),
        ("150:200:150:200", true),
        ("100:200:100:300", true),
        (limited, false),
    ] {
        check("", &format!("{limited}/{other}"), true, differs);
    }
    check("", &format!("{limited}/."), true, false);
    let fine = format!("{limited}/{limited}");
    check("", &format!("i{limited}/? {fine}"), true, false);
    check("", &format!("s{fine} {fine}"), true, false);
    check("", &format!("s{limited}/200:200:100:200 {fine}"), true, true);
    check("", &format!("i{limited}/? {fine} {limited}/. {limited}/200:200:100:200"), true, true);
    check("", "s100:200/100:200 ::100:200/::100:200 200::100/200::100", true, false);
    check("", "/", true, false);
    check("", "100/100", true, false);
    check("", "100/500", true, true);
    check("100/100", "/", false, false);
    check("200/100", "/", true, true);
    check("200/100", "/", false, false);
    check("100/100", "100/50", false, true);
    check("100/100", "100/50", true, true);
    check("::100/::200", "::100/::100", true, true);
    check("200/", "100/.", true, false);
    // A container without a limit of its own has the Pod's.
    check("100:300/100:300", "100/100:300", true, false);
    check("100:400/100:400", "100/100:300", true, true);
}

#[test]
fn a_status_tells_of_the_whole_pod() {
    let check = |phase: &str, given: Value, cgroup: Option<Figures>, tells_whole: bool, expected: Value| {
        let resources = json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}});
        let pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "status": {"phase": phase},
            "spec": {"containers": [{"name": "a"}], "resources": resources}}))
        .unwrap();
        let given: Option<ResourceRequirements> = serde_json::from_value(given).unwrap();
        let observed = observed::PodStatus { cgroup, ..seen("a:run") };
        let old = PodStatus::default();
        let got = generate(&Inputs {
            observed: &observed,
            actuated_whole: given.as_ref(),
            tells_whole,
            ..inputs(&pod, &old)
        });
        let got = serde_json::to_value(&got).unwrap();
        let got = json!([
            got["resources"]["requests"]["cpu"],
            got["resources"]["limits"],
            got["allocatedResources"]
        ]);
        assert_eq!(got, expected, "{phase} {given:?}");
    };
    let wanted = || json!(["500m", {"cpu": "1", "memory": "1Gi"}, {"cpu": "500m"}]);
    let has = |part: u64, quota: i64, memory: i64| {
        let (quota, memory) = (Some(quota), Some(memory));
        Some(Figures { part, unified: false, quota, period: 100_000, memory, page: 4096 })
    };
    check("Pending", json!(null), None, true, wanted());
    check("Pending", json!(null), has(2, 1000, 4096), true, wanted());
    check("Running", json!(null), has(512, 100_000, 1 << 30), true, wanted());
    let before = json!({"requests": {"cpu": "250m"}, "limits": {"cpu": "500m", "memory": "512Mi"}});
    let shown = json!(["250m", {"cpu": "500m", "memory": "512Mi"}, {"cpu": "500m"}]);
    check("Running", before, has(256, 50_000, 512 << 20), true, shown.clone());
    // A kubelet that does not know it tells what the kernel has.
    check("Running", json!(null), has(256, 50_000, 512 << 20), true, shown);
    check("Running", json!(null), has(512, 100_000, 1 << 30), false, json!([null, null, null]));
}
