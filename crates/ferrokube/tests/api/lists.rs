//! Lists: the state that they show, the part of it, and the pages.

use serde_json::{Value, json};
use testkit::{Server, eventually};

use crate::api::{MAPS, map, names, pod, server, version};

fn list(s: &Server, query: &str) -> Value {
    s.get(&format!("{MAPS}{query}")).send().unwrap().expect(200).unwrap().json().unwrap()
}

fn refused(s: &Server, query: &str, status: u16) -> String {
    let answer = s.get(&format!("{MAPS}{query}")).send().unwrap().expect(status).unwrap();
    answer.json().unwrap()["message"].as_str().unwrap().to_owned()
}

fn filled(s: &Server) -> Vec<Value> {
    ["a", "b", "c", "d", "e"].map(|name| s.create(MAPS, &map(name)).unwrap()).to_vec()
}

#[test]
fn of_which_state() {
    let s = server();
    let made = filled(&s);
    let (second, last) = (version(&made[1]), version(&made[4]));
    let gone = s.request("DELETE", &format!("{MAPS}/a")).send().unwrap().expect(200).unwrap();
    assert_eq!(gone.json().unwrap()["status"], "Success");
    for (query, expected) in [
        (String::new(), "bcde"),
        ("?resourceVersion=0".into(), "bcde"),
        (format!("?resourceVersion={second}"), "bcde"),
        (format!("?resourceVersion={second}&resourceVersionMatch=NotOlderThan"), "bcde"),
        (format!("?resourceVersion={second}&resourceVersionMatch=Exact"), "ab"),
        (format!("?resourceVersion={last}&resourceVersionMatch=Exact"), "abcde"),
        // With a limit, a revision means exactly that one.
        (format!("?resourceVersion={last}&limit=3"), "abc"),
        (format!("?resourceVersion={last}&limit=2&resourceVersionMatch=NotOlderThan"), "bc"),
    ] {
        let list = list(&s, &query);
        let found = names(&list).into_iter().filter(|n| n.len() == 1).collect::<String>();
        assert_eq!(found, expected, "{query}");
    }
    assert_eq!(version(&list(&s, &format!("?resourceVersion={second}&resourceVersionMatch=Exact"))), second);
}

#[test]
fn what_makes_no_sense() {
    let s = server();
    let made = s.create(MAPS, &map("a")).unwrap();
    let now = version(&made);
    for (query, expected) in [
        (
            format!("?resourceVersion={now}&resourceVersionMatch=Never"),
            "resourceVersionMatch: Unsupported value: \"Never\": supported values: \"Exact\", \"NotOlderThan\"",
        ),
        (
            "?resourceVersionMatch=Exact".into(),
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "?resourceVersion=0&resourceVersionMatch=Exact".into(),
            "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        (
            "?sendInitialEvents=true".into(),
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ),
    ] {
        let message = refused(&s, &query, 422);
        assert!(message.contains(expected), "{query}: {message}");
    }
    for (query, expected) in [
        ("?continue=nonsense", "continue key is not valid"),
        ("?labelSelector=a%20in", "unable to parse requirement"),
        (
            "?fieldSelector=data=x",
            "\"data\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("?resourceVersion=x", "Invalid value"),
        ("?limit=many", "invalid syntax"),
    ] {
        let message = refused(&s, query, 400);
        assert!(message.contains(expected), "{query}: {message}");
    }
}

#[test]
fn the_future_is_waited_for_and_then_said_to_be_too_far() {
    let s = server();
    let answer = s.get(&format!("{MAPS}?resourceVersion=999999")).send().unwrap().expect(504).unwrap();
    assert_eq!(answer.header("retry-after"), "1");
    let status = answer.json().unwrap();
    assert_eq!(status["reason"], "Timeout");
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .starts_with("Timeout: Too large resource version: 999999, current: ")
    );
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
}

#[test]
fn in_pages() {
    let s = server();
    filled(&s);
    let of_ours = "?labelSelector=!kept&fieldSelector=metadata.name!=kube-root-ca.crt";
    let first = list(&s, &format!("{of_ours}&limit=2"));
    assert_eq!(names(&first), ["a", "b"]);
    assert!(first["metadata"].get("remainingItemCount").is_none(), "with a selector nobody counts the rest");
    let plain = list(&s, "?limit=2");
    assert!(plain["metadata"]["remainingItemCount"].as_i64().unwrap() >= 3);
    let token = first["metadata"]["continue"].as_str().unwrap();
    s.request("DELETE", &format!("{MAPS}/d")).send().unwrap().expect(200).unwrap();
    s.create(MAPS, &map("f")).unwrap();
    let second = list(&s, &format!("{of_ours}&limit=2&continue={token}"));
    assert_eq!((names(&second), version(&second)), (vec!["c", "d"], version(&first)), "pages show one state");
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = list(&s, &format!("{of_ours}&limit=2&continue={token}"));
    assert_eq!(names(&third), ["e"]);
    assert!(third["metadata"].get("continue").is_none());
    let message = refused(&s, &format!("?limit=2&continue={token}&resourceVersion=1"), 400);
    assert!(message.contains("specifying resource version is not allowed when using continue"), "{message}");
    let all = s.kubectl(&["get", "configmaps", "--chunk-size=2", "-o", "name", "-l", "!kept"]).unwrap();
    assert!(all.contains("configmap/a\nconfigmap/b\nconfigmap/c\nconfigmap/e\nconfigmap/f\n"), "{all}");
}

#[test]
fn what_was_compacted_goes_on_from_now() {
    let s = Server::start(&["--etcd-compaction-interval=1s"]).unwrap();
    filled(&s);
    let first = list(&s, "?limit=2");
    let token = first["metadata"]["continue"].as_str().unwrap();
    let gone = eventually("a compaction", || {
        s.create(MAPS, &json!({"metadata": {"generateName": "later-"}}))?;
        let answer = s.get(&format!("{MAPS}?limit=2&continue={token}")).send()?;
        Ok((answer.status == 410).then_some(answer))
    });
    let status = gone.unwrap().json().unwrap();
    assert_eq!(status["reason"], "Expired");
    let fresh = status["metadata"]["continue"].as_str().unwrap();
    let rest = list(&s, &format!("?continue={fresh}"));
    assert_eq!(&names(&rest)[..3], ["c", "d", "e"]);
    assert!(rest["items"].as_array().unwrap().len() > 3, "later objects are seen too");
    let old = version(&first);
    let answer = s.get(&format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact")).send().unwrap();
    answer.expect(410).unwrap();
    // DIFFERENCE: upstream's watch cache may still know events that etcd has forgotten.
    let mut watch = s.get(&format!("{MAPS}?watch=true&resourceVersion={old}")).stream().unwrap();
    let event = watch.json().unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(watch.line().unwrap(), None, "it ends with that");
}

#[test]
fn by_labels_and_fields() {
    let s = server();
    let pods = "/api/v1/namespaces/default/pods";
    s.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))
        .unwrap();
    for (name, node) in [("a", "n1"), ("b", "n2"), ("c", "")] {
        let mut pod = pod(name);
        if !node.is_empty() {
            pod["spec"]["nodeName"] = node.into();
        }
        s.create(pods, &pod).unwrap();
    }
    let check = |query: &str, expected: &[&str]| {
        let list = s.get(&format!("{pods}?{query}")).send().unwrap().expect(200).unwrap().json().unwrap();
        assert_eq!(names(&list), expected, "{query}");
    };
    check("labelSelector=app%20in%20(a,c)", &["a", "c"]);
    check("labelSelector=app!=a,app", &["b", "c"]);
    check("labelSelector=!app", &[]);
    check("fieldSelector=spec.nodeName=n2", &["b"]);
    check("fieldSelector=spec.nodeName=", &["c"]);
    check("fieldSelector=spec.nodeName!=n1,status.phase=Pending", &["b", "c"]);
    check("fieldSelector=metadata.name=a,metadata.namespace=default", &["a"]);
    check("fieldSelector=metadata.name=a,metadata.name=b", &[]);
    check("fieldSelector=spec.restartPolicy=Never", &[]);
    check(
        "fieldSelector=spec.schedulerName=default-scheduler,spec.serviceAccountName=default",
        &["a", "b", "c"],
    );
    check("fieldSelector=spec.hostNetwork=false", &["a", "b", "c"]);
    let all = s.get("/api/v1/pods?fieldSelector=spec.nodeName=n1").send().unwrap().json().unwrap();
    assert_eq!(names(&all), ["a"]);
    s.get(&format!("{pods}?fieldSelector=spec.image=i")).send().unwrap().expect(400).unwrap();
}
