//! Messages: upstream's 8 cases of `TestEvictionMessage`.

use serde_json::{Value, json};
use std::fmt::Write as _;

use super::super::limits::exceeded;
use super::super::message::why;
use super::super::observe::Observations;
use super::{bytes, pod, seen, stats, threshold};
use crate::stats::usage::Usage;
use crate::stats::{Container, PodStats};

/// Containers by name and request (`*` before the name of a sidecar); what containers use; those that are blamed.
fn check(
    of_pod: Option<(&str, &str)>,
    init: &[(&str, &str)],
    containers: &[(&str, &str)],
    used: &[(&str, &str)],
    blamed: &[&str],
) {
    let container = |(name, request): &(&str, &str)| {
        let requests: Value = if request.is_empty() { json!({}) } else { json!({"memory": request}) };
        let mut value = json!({"name": name.trim_start_matches('*'), "resources": {"requests": requests}});
        if name.starts_with('*') {
            value["restartPolicy"] = "Always".into();
        }
        value
    };
    let mut value = json!({
        "metadata": {"name": "pod-eviction-message"},
        "spec": {
            "containers": containers.iter().map(container).collect::<Vec<_>>(),
            "initContainers": init.iter().map(container).collect::<Vec<_>>(),
            "ephemeralContainers": [{"name": "ephemeral1"}],
        },
    });
    if let Some((request, _)) = of_pod {
        value["spec"]["resources"] = json!({"requests": {"memory": request}});
    }
    let usage = |text: &str| Usage { working_set: Some(bytes(text)), ..Usage::default() };
    let all = used.iter().map(|(name, text)| Container {
        name: (*name).to_owned(),
        usage: usage(text),
        ..Container::default()
    });
    let found = PodStats {
        containers: all.collect(),
        usage: usage(of_pod.map_or("1Mi", |(_, used)| used)),
        ..PodStats::default()
    };
    let pod = serde_json::from_value(value).unwrap();
    let got = why("memory", &pod, Some(&found), &[], &Observations::new());
    let mut message = "The node was low on resource: memory. ".to_owned();
    if let Some((request, used)) = of_pod {
        let _ = write!(
            message,
            "Pod pod-eviction-message was using {used}, request is {request}, has larger consumption of memory. "
        );
        assert_eq!(got.annotations["offending_pod"], "pod-eviction-message");
        assert_eq!(got.annotations["offending_pod_usage"], used);
    }
    let mut usages = Vec::new();
    for name in blamed {
        let used = used.iter().find(|(of, _)| of == name).unwrap().1;
        let mut all = init.iter().chain(containers);
        let request = all.find(|(of, _)| of.trim_start_matches('*') == *name).unwrap().1;
        let request = if request.is_empty() { "0" } else { request };
        let _ = write!(
            message,
            "Container {name} was using {used}, request is {request}, has larger consumption of memory. "
        );
        usages.push(used);
    }
    assert_eq!(got.message, message);
    assert_eq!(got.annotations["offending_containers"], blamed.join(","));
    assert_eq!(got.annotations["offending_containers_usage"], usages.join(","));
    assert_eq!(got.annotations["starved_resource"], "memory");
}

#[test]
fn messages_blame_containers_above_their_request() {
    let first = [("init1", "100Mi"), ("*side1", "200Mi")];
    let one = [("regular1", "200Mi")];
    check(None, &first, &one, &[("side1", "150Mi"), ("regular1", "100Mi")], &[]);
    let inits = [("init1", "100Mi"), ("*side1", "200Mi"), ("init2", "150Mi")];
    check(None, &inits, &one, &[("init1", "150Mi")], &["init1"]);
    let sides = [("init1", "100Mi"), ("*side1", "200Mi"), ("*side2", "200Mi")];
    check(None, &sides, &one, &[("side1", "250Mi"), ("side2", "150Mi"), ("regular1", "200Mi")], &["side1"]);
    let two = [("regular1", "200Mi"), ("regular2", "300Mi")];
    check(
        None,
        &first,
        &two,
        &[("side1", "200Mi"), ("regular1", "250Mi"), ("regular2", "250Mi")],
        &["regular1"],
    );
    check(None, &first, &one, &[("side1", "200Mi"), ("regular1", "150Mi"), ("ephemeral1", "250Mi")], &[]);
    check(
        None,
        &[("init1", "100Mi"), ("*side1", ""), ("*side2", "300Mi")],
        &[("regular1", "")],
        &[("side1", "250Mi"), ("side2", "250Mi"), ("regular1", "200Mi")],
        &["side1", "regular1"],
    );
    check(
        None,
        &[
            ("init1", "100Mi"),
            ("init2", "100Mi"),
            ("init3", "100Mi"),
            ("*side1", "100Mi"),
            ("*side2", "200Mi"),
            ("*side3", "300Mi"),
        ],
        &[("regular1", "300Mi"), ("regular2", "200Mi"), ("regular3", "100Mi")],
        &[
            ("side1", "150Mi"),
            ("side2", "250Mi"),
            ("side3", "250Mi"),
            ("regular1", "50Mi"),
            ("regular2", "250Mi"),
            ("regular3", "400Mi"),
        ],
        &["side1", "side2", "regular2", "regular3"],
    );
    check(
        Some(("250Mi", "600Mi")),
        &[],
        &[("regular1", ""), ("regular2", "")],
        &[("regular1", "250Mi"), ("regular2", "350Mi")],
        &["regular1", "regular2"],
    );
}

#[test]
fn messages_tell_the_threshold() {
    let check = |resource: &str, stated: &str, at: (&str, &str, &str), expected: &str| {
        let got = why(resource, &pod("p", 0, &json!({})), None, &[threshold(stated)], &seen(&[at]));
        assert_eq!(got.message, format!("The node was low on resource: {resource}. {expected}"));
        assert!(got.annotations.is_empty());
    };
    check(
        "memory",
        "memory.available 1Gi",
        ("memory.available", "1500Mi", "3Gi"),
        "Threshold quantity: 1Gi, available: 1500Mi. ",
    );
    check(
        "ephemeral-storage",
        "nodefs.available 50%",
        ("nodefs.available", "1536Mi", "4Gi"),
        "Threshold quantity: 2Gi, available: 1536Mi. ",
    );
    check(
        "pids",
        "pid.available 1200",
        ("pid.available", "500", "1000"),
        "Threshold quantity: 1200, available: 500. ",
    );
    check("inodes", "memory.available 1Gi", ("memory.available", "1Mi", "3Gi"), "");
    let found = stats("p", "0", 0, Some(["150Mi", "50Mi", "50Mi"]));
    let got = why(
        "ephemeral-storage",
        &pod("p", 0, &json!({"ephemeral-storage": "100Mi"})),
        Some(&found),
        &[],
        &seen(&[]),
    );
    assert_eq!(
        got.message,
        "The node was low on resource: ephemeral-storage. Container p was using 200Mi, request is 100Mi, has larger consumption of ephemeral-storage. "
    );
}

/// Upstream's 3 Pods of `TestStorageLimitEvictions`, and the edges of each limit.
#[test]
fn limits_of_local_storage() {
    let check = |limit: &str,
                 size: &str,
                 disk: [&str; 3],
                 dedicated: bool,
                 expected: Option<(&str, &str)>| {
        let mut value = json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "p"}], "volumes": [{"name": "local-volume", "emptyDir": {}}]},
        });
        if !limit.is_empty() {
            value["spec"]["containers"][0]["resources"] = json!({"limits": {"ephemeral-storage": limit}});
        }
        if !size.is_empty() {
            value["spec"]["volumes"][0]["emptyDir"] = json!({"sizeLimit": size});
        }
        let pod = serde_json::from_value(value).unwrap();
        let got = exceeded(&pod, &stats("p", "0", 0, Some(disk)), dedicated);
        let got = got.as_ref().map(|e| (e.signal, e.message.as_str()));
        assert_eq!(got, expected, "{limit} {size} {disk:?}");
    };
    let volume =
        ("emptydirfs.limit", "Usage of EmptyDir volume \"local-volume\" exceeds the limit \"100Mi\". ");
    check("", "", ["1Gi", "1Gi", "1Gi"], false, None);
    check("", "100Mi", ["0", "0", "200Mi"], false, Some(volume));
    check("", "100Mi", ["0", "0", "100Mi"], false, None);
    check("", "0", ["0", "0", "200Mi"], false, None);
    let of_pod = (
        "ephemeralpodfs.limit",
        "Pod ephemeral local storage usage exceeds the total limit of containers 300Mi. ",
    );
    check("300Mi", "", ["200Mi", "101Mi", "0"], false, Some(of_pod));
    check("300Mi", "", ["200Mi", "100Mi", "0"], false, None);
    check("300Mi", "", ["200Mi", "50Mi", "51Mi"], true, Some(of_pod));
    let decimal = "Pod ephemeral local storage usage exceeds the total limit of containers 100M. ";
    check("100M", "", ["100Mi", "0", "0"], false, Some(("ephemeralpodfs.limit", decimal)));

    // Of several containers, one alone may be above its own.
    let value = json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [
            {"name": "p", "resources": {"limits": {"ephemeral-storage": "100Mi"}}},
            {"name": "other", "resources": {"limits": {"ephemeral-storage": "1Gi"}}},
        ]},
    });
    let pod = serde_json::from_value(value).unwrap();
    let found = stats("p", "0", 0, Some(["90Mi", "20Mi", "0"]));
    let got = exceeded(&pod, &found, false).unwrap();
    assert_eq!(got.signal, "ephemeralcontainerfs.limit");
    assert_eq!(got.message, "Container p exceeded its local ephemeral storage limit \"100Mi\". ");
    assert_eq!(exceeded(&pod, &found, true), None, "the layer lies elsewhere");
}
