//! The restart of all containers of a Pod because one of them ended with a code for which a rule says so.
//!
//! The Pod's condition [`CONDITION`] is true from that end until the last container is gone from the runtime. Then the Pod
//! starts anew in the sandbox that it has, with the volumes that it has.

use k8s_openapi::api::core::v1::{Container, ContainerStatus as ApiContainer, Pod, PodStatus as ApiStatus};

use super::observed::{PodStatus, State};
use super::spec;

/// The type of the condition.
pub(crate) const CONDITION: &str = "AllContainersRestarting";
/// The reason of a container's state that was removed for it.
pub(crate) const REASON: &str = "RestartingAllContainers";
/// The message of such a state.
pub(crate) const REMOVED: &str = "The container is removed because RestartAllContainers in place";

/// A container to remove from the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reset {
    /// CRI id.
    pub(crate) id: String,
    /// Whether it is stopped first.
    pub(crate) kill: bool,
}

fn all(pod: &Pod) -> impl Iterator<Item = &Container> {
    spec::init_containers(pod).iter().chain(spec::containers(pod))
}

/// Whether the container's end with this code restarts all containers.
fn triggers(container: &Container, exit_code: i32) -> bool {
    spec::matching_rule(container, exit_code).is_some_and(|rule| rule.action == "RestartAllContainers")
}

/// Whether any container's end may restart all.
pub(crate) fn may_happen(pod: &Pod) -> bool {
    all(pod)
        .any(|c| c.restart_policy_rules.iter().flatten().any(|rule| rule.action == "RestartAllContainers"))
}

/// Whether a status says that all containers are being restarted.
pub(crate) fn is_under_way(status: &ApiStatus) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == CONDITION && c.status == "True")
}

/// Whether all containers are to be restarted: the status before says so, or a container has ended accordingly.
pub(crate) fn is_due(pod: &Pod, observed: &PodStatus, old: &ApiStatus) -> bool {
    let known = |name: &str| -> Option<i32> {
        let lists = [old.init_container_statuses.as_ref(), old.container_statuses.as_ref()];
        let of = |s: &&ApiContainer| s.name == name;
        let status = lists.into_iter().flatten().flatten().find(of)?;
        Some(status.state.as_ref()?.terminated.as_ref()?.exit_code)
    };
    let ended = |c: &Container| {
        let seen = observed.container(&c.name).filter(|s| s.state == State::Exited);
        seen.is_some_and(|s| triggers(c, s.exit_code) || known(&c.name).is_some_and(|code| triggers(c, code)))
    };
    is_under_way(old) || all(pod).any(ended)
}

/// Whether no container is left in the runtime.
pub(crate) fn is_cleaned_up(pod: &Pod, observed: &PodStatus) -> bool {
    all(pod).all(|c| observed.container(&c.name).is_none())
}

/// The containers to remove, in order: those that ended accordingly are the last ones, so that it is known until the end
/// why.
pub(super) fn to_reset(pod: &Pod, observed: &PodStatus) -> Vec<Reset> {
    let (mut victims, mut sources) = (Vec::new(), Vec::new());
    for c in spec::containers(pod).iter().chain(spec::init_containers(pod)) {
        for status in observed.named(&c.name) {
            let ended = status.state == State::Exited;
            let list = if ended && triggers(c, status.exit_code) { &mut sources } else { &mut victims };
            list.push(Reset { id: status.id.clone(), kill: !ended });
        }
    }
    victims.append(&mut sources);
    victims
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pods::actions::{PodActions, ProbeResults, compute_actions};
    use crate::pods::observed::{ContainerStatus, SandboxStatus};

    struct Sound;

    impl ProbeResults for Sound {
        fn liveness(&self, _: &str) -> Option<bool> {
            None
        }
        fn startup(&self, _: &str) -> Option<bool> {
            None
        }
    }

    /// Containers by their names: with `*` as sidecars, with `!` as those whose exit code 1 restarts all.
    fn pod(init: &str, regular: &str) -> Pod {
        let list = |text: &str| -> Vec<Value> {
            let one = |word: &str| {
                let mut c = json!({"name": word.trim_end_matches(['*', '!']), "image": "i"});
                if word.contains('*') {
                    c["restartPolicy"] = json!("Always");
                }
                if word.contains('!') {
                    c["restartPolicy"] = json!(if word.contains('*') { "Always" } else { "Never" });
                    c["restartPolicyRules"] = json!([
                        {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
                }
                c
            };
            text.split_whitespace().map(one).collect()
        };
        serde_json::from_value(json!({"spec": {"initContainers": list(init), "containers": list(regular)}}))
            .unwrap()
    }

    /// Containers as `NAME:run` or `NAME:CODE`, each with an id after `@` if it is not its name.
    fn observed(text: &str) -> PodStatus {
        let one = |word: &str| {
            let (name, state) = word.split_once(':').unwrap();
            let (state, id) = state.split_once('@').unwrap_or((state, name));
            let exit_code = state.parse().unwrap_or(0);
            let state = if state == "run" { State::Running } else { State::Exited };
            ContainerStatus { id: id.into(), name: name.into(), state, exit_code, ..Default::default() }
        };
        let sandbox =
            SandboxStatus { id: "s".into(), ready: true, ips: vec!["10.0.0.1".into()], ..Default::default() };
        PodStatus {
            sandboxes: vec![sandbox],
            containers: text.split_whitespace().map(one).collect(),
            ..PodStatus::default()
        }
    }

    /// Upstream's 10 cases of `TestComputePodActionsForRestartAllContainers`: ids in the order of their removal, with `+` if
    /// they are stopped first; or the containers that are started.
    #[test]
    fn all_containers_go_before_they_come_again() {
        let check = |init: &str, regular: &str, seen: &str, restarting: bool, expected: &str| {
            let (pod, observed) = (pod(init, regular), observed(seen));
            let got = compute_actions(&pod, &observed, &Sound, restarting);
            let mut words: Vec<String> =
                got.to_reset.iter().map(|r| format!("{}{}", r.id, if r.kill { "+" } else { "" })).collect();
            words.extend(got.init_to_start.iter().map(|i| format!("init:{i}")));
            words.extend(got.to_start.iter().map(|i| format!("start:{i}")));
            assert_eq!(words.join(" "), expected, "{init} {regular} {seen}");
            let (sandbox_id, to_reset) = (Some("s".to_owned()), got.to_reset.clone());
            if restarting {
                assert_eq!(got, PodActions { sandbox_id, to_reset, ..PodActions::default() });
            }
        };
        let (three, run) = ("c1 c2 c3", "c1:run c2:run c3:run");
        let (inits, sidecars) = ("i1 i2 i3", "s1* s2* s3*");
        check("", three, run, false, "");
        check("", three, run, true, "c1+ c2+ c3+");
        check(inits, three, "i1:0 i2:0 i3:0", true, "i1 i2 i3");
        check(sidecars, three, "s1:run s2:run s3:run", true, "s1+ s2+ s3+");
        check("i1 i2* i3!", three, "i1:0 i2:run i3:1", true, "i1 i2+ i3");
        check("s1* s2* s3*!", three, "s1:run s2:run s3:1 c1:run", true, "c1+ s1+ s2+ s3");
        let all = "s1:run s2:run s3:run c1:run c2:run c3:1";
        check(sidecars, "c1 c2 c3!", all, true, "c1+ c2+ s1+ s2+ s3+ c3");
        let past = "c1:run c2:run c3:1 c1:99@p1 c2:99@p2 c3:99@p3";
        check("", "c1 c2 c3!", past, true, "c1+ p1 c2+ p2 p3 c3");
        check(inits, three, "", false, "init:0");
        check("", three, "", false, "start:0 start:1 start:2");
    }

    /// Upstream's 5 cases of `TestShouldAllContainersRestart`, and what the API knows of containers that ended.
    #[test]
    fn an_end_restarts_all() {
        let check = |init: &str, regular: &str, seen: &str, old: Value, expected: bool| {
            let old: ApiStatus = serde_json::from_value(old.clone()).unwrap();
            assert_eq!(is_due(&pod(init, regular), &observed(seen), &old), expected, "{init} {seen}");
        };
        let none = || json!({});
        let condition = |status: &str| json!({"conditions": [{"type": CONDITION, "status": status}]});
        check("", "c", "c:run", condition("True"), true);
        check("", "c", "c:run", condition("False"), false);
        check("", "c!", "c:1", none(), true);
        check("i!", "", "i:1", none(), true);
        check("i*!", "", "i:1", none(), true);
        check("", "c", "c:1", none(), false);
        check("", "c!", "c:2", none(), false);
        let ended = json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": {"exitCode": 1}}}]});
        check("", "c!", "c:2", ended.clone(), true);
        check("", "c!", "c:run", ended.clone(), false);
        check("", "c!", "", ended, false);
    }

    /// The first rule that is about a code counts.
    #[test]
    fn the_first_rule_counts() {
        let rule = |action: &str, operator: &str, code: i32| json!({"action": action, "exitCodes": {"operator": operator, "values": [code]}});
        let check = |rules: Value, code: i32, expected: bool| {
            let c: Container =
                serde_json::from_value(json!({"name": "c", "restartPolicyRules": rules})).unwrap();
            assert_eq!(triggers(&c, code), expected, "{rules} {code}");
        };
        let (one, all) = ("Restart", "RestartAllContainers");
        check(json!([rule(one, "In", 1), rule(all, "In", 1)]), 1, false);
        check(json!([rule(one, "In", 2), rule(all, "In", 1)]), 1, true);
        check(json!([rule(all, "NotIn", 1)]), 1, false);
        check(json!([rule(all, "NotIn", 1)]), 2, true);
        check(json!([rule(all, "Never", 1)]), 1, false);
        check(json!([]), 1, false);
    }
}
