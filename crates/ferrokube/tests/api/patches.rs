//! Every kind of patch.

use serde_json::{Value, json};
use testkit::Server;

use crate::api::{MAPS, map, pod, server, version};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]},
            },
        },
    })
}

fn patched(s: &Server, path: &str, kind: &str, patch: &Value) -> Value {
    s.patch(path, kind, patch).send().unwrap().expect(200).unwrap().json().unwrap()
}

#[test]
fn json_patches() {
    let s = server();
    s.create(MAPS, &map("a")).unwrap();
    let path = format!("{MAPS}/a");
    let ops = json!([
        {"op": "test", "path": "/data/k", "value": "v"},
        {"op": "add", "path": "/data/l-m", "value": "new"},
        {"op": "move", "from": "/data/k", "path": "/data/n"},
        {"op": "copy", "from": "/data/n", "path": "/data/o"},
        {"op": "remove", "path": "/data/n"},
    ]);
    assert_eq!(patched(&s, &path, "json", &ops)["data"], json!({"l-m": "new", "o": "v"}));
    let refused = |ops: Value, status: u16| {
        s.patch(&path, "json", &ops).send().unwrap().expect(status).unwrap().json().unwrap()
    };
    let failed = refused(json!([{"op": "test", "path": "/data/o", "value": "w"}]), 422);
    assert_eq!(failed["message"], "the server rejected our request due to an error in our request");
    refused(json!([{"op": "remove", "path": "/data/none"}]), 422);
    refused(json!([{"op": "jump", "path": "/data/o"}]), 422);
    refused(json!({"op": "add"}), 400);
    let many = Value::Array(vec![json!({"op": "add", "path": "/data/x", "value": "y"}); 10_001]);
    assert!(refused(many, 413)["message"].as_str().unwrap().contains("10001"));
}

#[test]
fn merge_patches() {
    let s = server();
    s.create(DEPLOYMENTS, &deployment("d")).unwrap();
    let path = format!("{DEPLOYMENTS}/d");
    let containers = json!({"spec": {"template": {"spec": {"containers": [{"name": "e", "image": "k"}]}}}});
    let after = patched(&s, &path, "merge", &containers);
    assert_eq!(
        after["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(),
        1,
        "lists are replaced"
    );
    let after = patched(&s, &path, "merge", &json!({"spec": {"replicas": null}}));
    assert_eq!(after["spec"]["replicas"], 1, "a removed field gets its default again");
    let kept = patched(&s, &path, "merge", &json!({}));
    assert_eq!(version(&kept), version(&after));
    s.patch(&path, "merge", &json!([1])).send().unwrap().expect(400).unwrap();
    let other = json!({"metadata": {"resourceVersion": "1"}});
    assert_eq!(s.patch(&path, "merge", &other).send().unwrap().status, 409);
    let none = s.request("PATCH", &path).body("application/text", "{}").send().unwrap().expect(415).unwrap();
    assert_eq!(none.json().unwrap()["message"], "415: Unsupported Media Type");
}

#[test]
fn strategic_patches() {
    let s = server();
    s.create(DEPLOYMENTS, &deployment("d")).unwrap();
    let path = format!("{DEPLOYMENTS}/d");
    let spec = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let names = |d: &Value| {
        let containers = d["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        containers
            .iter()
            .map(|c| format!("{}={}", c["name"].as_str().unwrap(), c["image"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    let merged = patched(&s, &path, "strategic-merge", &spec(json!([{"name": "d", "image": "new"}])));
    assert_eq!(names(&merged), ["c=i", "d=new"], "merged by name");
    let removed = patched(&s, &path, "strategic-merge", &spec(json!([{"name": "c", "$patch": "delete"}])));
    assert_eq!(names(&removed), ["d=new"]);
    let replaced = spec(json!([{"name": "z", "image": "z"}, {"$patch": "replace"}]));
    assert_eq!(names(&patched(&s, &path, "strategic-merge", &replaced)), ["z=z"]);
    let ordered = json!({"spec": {"template": {"spec": {
        "$setElementOrder/containers": [{"name": "y"}, {"name": "z"}],
        "containers": [{"name": "y", "image": "y"}],
    }}}});
    assert_eq!(names(&patched(&s, &path, "strategic-merge", &ordered)), ["y=y", "z=z"]);
    let recreate = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    assert_eq!(
        patched(&s, &path, "strategic-merge", &recreate)["spec"]["strategy"],
        json!({"type": "Recreate"})
    );
    // DIFFERENCE: upstream's answer has the code 500, for a mistake of the caller.
    let bad = spec(json!([{"image": "nameless"}]));
    s.patch(&path, "strategic-merge", &bad).send().unwrap().expect(400).unwrap();
}

#[test]
fn applied_by_several() {
    let s = server();
    let path = format!("{DEPLOYMENTS}/d");
    let by = |manager: &str| format!("{path}?fieldManager={manager}");
    let mut mine = deployment("d");
    mine["spec"]["replicas"] = 2.into();
    let made = s.patch(&by("me"), "apply", &mine).send().unwrap().expect(201).unwrap().json().unwrap();
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "me");
    assert_eq!(made["metadata"]["managedFields"][0]["operation"], "Apply");
    let again = s.patch(&by("me"), "apply", &mine).send().unwrap().expect(200).unwrap().json().unwrap();
    assert_eq!(version(&again), version(&made), "to apply the same changes nothing");
    let theirs = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 5}});
    let conflict = s.patch(&by("you"), "apply", &theirs).send().unwrap().expect(409).unwrap().json().unwrap();
    assert_eq!(conflict["message"], "Apply failed with 1 conflict: conflict with \"me\": .spec.replicas");
    assert_eq!(conflict["details"]["causes"][0]["reason"], "FieldManagerConflict");
    let forced =
        s.patch(&format!("{}&force=true", by("you")), "apply", &theirs).send().unwrap().expect(200).unwrap();
    assert_eq!(forced.json().unwrap()["spec"]["replicas"], 5);
    // A field that its manager no longer applies and nobody else manages goes; fields of other managers stay.
    mine["spec"].as_object_mut().unwrap().remove("replicas");
    mine["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().pop();
    let after = s.patch(&by("me"), "apply", &mine).send().unwrap().expect(200).unwrap().json().unwrap();
    assert_eq!(after["spec"]["replicas"], 5);
    assert_eq!(after["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 9}});
    let at = format!("{path}/scale?fieldManager=scaler");
    s.patch(&at, "apply", &scale).send().unwrap().expect(409).unwrap();
    s.patch(&format!("{at}&force=true"), "apply", &scale).send().unwrap().expect(200).unwrap();
    let fields = s.get(&path).send().unwrap().json().unwrap()["metadata"]["managedFields"].clone();
    let scaler = fields.as_array().unwrap().iter().find(|f| f["manager"] == "scaler").unwrap();
    assert_eq!(scaler["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    s.patch(&path, "apply", &theirs).send().unwrap().expect(422).unwrap();
    // DIFFERENCE: upstream's answer has the code 500, for a mistake of the caller.
    let mut unknown = theirs.clone();
    unknown["spec"]["nothing"] = 1.into();
    let refused = s.patch(&by("you"), "apply", &unknown).send().unwrap().expect(400).unwrap();
    assert!(refused.text().contains("spec.nothing"), "{}", refused.text());
}

#[test]
fn managed_fields_of_updates() {
    let s = server();
    s.create(&format!("{MAPS}?fieldManager=first"), &map("a")).unwrap();
    let path = format!("{MAPS}/a");
    let after = patched(&s, &format!("{path}?fieldManager=second"), "merge", &json!({"data": {"l": "w"}}));
    let fields = after["metadata"]["managedFields"].as_array().unwrap();
    let of = |manager: &str| fields.iter().find(|f| f["manager"] == manager).unwrap();
    assert_eq!(of("first")["operation"], "Update");
    assert_eq!(of("first")["fieldsV1"], json!({"f:data": {".": {}, "f:k": {}}}));
    assert_eq!(of("second")["fieldsV1"], json!({"f:data": {"f:l": {}}}));
    let cleared = patched(&s, &path, "merge", &json!({"metadata": {"managedFields": [{}]}}));
    assert!(cleared["metadata"].get("managedFields").is_none());
}

#[test]
fn kubectl_applies_both_ways() {
    let s = server();
    let file = s.path("d.json");
    let mut d = deployment("d");
    d["spec"]["replicas"] = 3.into();
    let file_name = file.display().to_string();
    let apply = |d: &Value, more: &[&str]| {
        std::fs::write(&file, d.to_string()).unwrap();
        s.kubectl(&[&["apply", "-f", &file_name], more].concat())
    };
    assert_eq!(apply(&d, &[]).unwrap(), "deployment.apps/d created\n");
    assert_eq!(apply(&d, &[]).unwrap(), "deployment.apps/d unchanged\n");
    d["spec"]["replicas"] = 4.into();
    d["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().pop();
    assert_eq!(apply(&d, &[]).unwrap(), "deployment.apps/d configured\n");
    let live = s.get(&format!("{DEPLOYMENTS}/d")).send().unwrap().json().unwrap();
    assert_eq!(live["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
    let diff = s.kubectl_command(&["diff", "-f", &file_name]).output().unwrap();
    assert!(diff.status.success(), "{diff:?}");
    // Fields that the client applied on its own side are taken over, and those that are left out later go.
    assert_eq!(apply(&d, &["--server-side"]).unwrap(), "deployment.apps/d serverside-applied\n");
    d["spec"].as_object_mut().unwrap().remove("replicas");
    apply(&d, &["--server-side"]).unwrap();
    let live = s.get(&format!("{DEPLOYMENTS}/d")).send().unwrap().json().unwrap();
    assert_eq!(live["spec"]["replicas"], 1);
    let managers = live["metadata"]["managedFields"].as_array().unwrap().iter();
    let client_side = managers.filter(|f| f["manager"] == "kubectl-client-side-apply");
    assert_eq!(client_side.count(), 0, "{live}");
}

#[test]
fn kubectl_edits_in_every_way() {
    let s = server();
    s.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))
        .unwrap();
    s.create("/api/v1/namespaces/default/pods", &pod("p")).unwrap();
    for (args, expected) in [
        (&["label", "pod", "p", "x=y"][..], "pod/p labeled\n"),
        (&["label", "pod", "p", "x-"], "pod/p unlabeled\n"),
        (&["annotate", "pod", "p", "x=y"], "pod/p annotated\n"),
        (&["set", "image", "pod/p", "c=other"], "pod/p image updated\n"),
        (&["patch", "pod", "p", "-p", r#"{"metadata":{"labels":{"z":"1"}}}"#], "pod/p patched\n"),
        (
            &["patch", "pod", "p", "--type=json", "-p", r#"[{"op":"remove","path":"/metadata/labels/z"}]"#],
            "pod/p patched\n",
        ),
        (
            &["patch", "pod", "p", "-p", r#"{"metadata":{"labels":{"app":"p"}}}"#],
            "pod/p patched (no change)\n",
        ),
    ] {
        assert_eq!(s.kubectl(args).unwrap(), expected, "{args:?}");
    }
    let edit =
        s.kubectl_command(&["edit", "pod", "p"]).env("KUBE_EDITOR", "sed -i s/app:.p/app:\\ q/").output();
    let out = edit.unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "pod/p edited\n", "{out:?}");
}

/// The annotations of DaemonSets and Deployments for which upstream's internal types have fields.
#[test]
fn annotations_that_are_numbers() {
    const GENERATION: &str = "deprecated.daemonset.template.generation";
    const ROLLBACK: &str = "deprecated.deployment.rollback.to";
    let s = server();
    let daemons = DEPLOYMENTS.replace("deployments", "daemonsets");
    let daemon_set = |value: &str| {
        let mut made = deployment("d");
        made["kind"] = "DaemonSet".into();
        made["metadata"]["annotations"] = json!({GENERATION: value});
        made
    };
    let why = "strconv.ParseInt: parsing \"x\": invalid syntax";
    let refused = |request: testkit::Request, code: u16| -> String {
        let status: Value = request.send().unwrap().expect(code).unwrap().json().unwrap();
        status["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        refused(s.request("POST", &daemons).json(&daemon_set("x")), 400),
        format!("DaemonSet in version \"v1\" cannot be handled as a DaemonSet: {why}")
    );
    let made = s.create(&daemons, &daemon_set("007")).unwrap();
    assert_eq!(made["metadata"]["annotations"][GENERATION], "7");
    let path = format!("{daemons}/d");
    let patch = json!({"metadata": {"annotations": {GENERATION: "x"}}});
    assert!(refused(s.patch(&path, "merge", &patch), 422).ends_with(why));
    assert_eq!(refused(s.patch(&path, "strategic-merge", &patch), 500), why);
    assert_eq!(
        refused(s.patch(&format!("{path}?fieldManager=m&force=true"), "apply", &daemon_set("x")), 500),
        format!("failed to convert to unversioned (/d; apps/v1, Kind=DaemonSet): {why}")
    );
    // An update of the status does not change the annotation.
    let patch = json!({"metadata": {"annotations": {GENERATION: "9"}}, "status": {"numberReady": 1}});
    let after = patched(&s, &format!("{path}/status"), "merge", &patch);
    assert_eq!(after["metadata"]["annotations"][GENERATION], "7");

    let mut back = deployment("d");
    back["metadata"]["annotations"] = json!({ROLLBACK: "x"});
    assert_eq!(
        refused(s.request("POST", DEPLOYMENTS).json(&back), 400),
        format!(
            "Deployment in version \"v1\" cannot be handled as a Deployment: failed to parse \
             annotation[{ROLLBACK}]=x as int64: {why}"
        )
    );
    back["metadata"]["annotations"] = json!({ROLLBACK: "", "kept": "y"});
    let made = s.create(DEPLOYMENTS, &back).unwrap();
    assert_eq!(made["metadata"]["annotations"], json!({"kept": "y"}));
}

/// Go's zero time is a time, also where a time is optional.
#[test]
fn zero_times() {
    let s = server();
    s.create(MAPS, &map("a")).unwrap();
    let path = format!("{MAPS}/a");
    let zero = "0001-01-01T00:00:00Z";
    let deleted = json!({"metadata": {"deletionTimestamp": zero}});
    let status: Value =
        s.patch(&path, "merge", &deleted).send().unwrap().expect(422).unwrap().json().unwrap();
    assert_eq!(
        status["message"],
        "ConfigMap \"a\" is invalid: metadata.deletionTimestamp: Invalid value: null: field is immutable"
    );
    let mut with_template = deployment("z");
    with_template["spec"]["template"]["metadata"]["deletionTimestamp"] = zero.into();
    let made = s.create(DEPLOYMENTS, &with_template).unwrap();
    let metadata = &made["spec"]["template"]["metadata"];
    assert_eq!(
        (metadata.get("deletionTimestamp"), metadata.get("creationTimestamp")),
        (Some(&Value::Null), None)
    );
}
