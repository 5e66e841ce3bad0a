use k8s_openapi::api::apps::v1::StatefulSet;

use super::*;

/// The StatefulSet of upstream's tests of histories.
fn set(name: &str, labels: Value) -> StatefulSet {
    let value = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": {"kubernetes.io/change-cause": "x"}},
        "spec": {
            "replicas": 3, "serviceName": "governingsvc", "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{"name": "nginx", "image": "nginx", "resources": {},
                        "volumeMounts": [{"name": "datadir", "mountPath": "/tmp/"}, {"name": "home", "mountPath": "/home"}]}],
                    "volumes": [{"name": "home", "hostPath": {"path": "/tmp/home"}}],
                },
            },
        },
    });
    serde_json::from_value(value).unwrap()
}

fn template(set: &StatefulSet) -> PodTemplateSpec {
    set.spec.clone().unwrap().template
}

fn revision(set: &StatefulSet, number: i64, collisions: i32) -> ControllerRevision {
    let data = data_of(&template(set)).unwrap();
    let hash = hash(&data, Some(collisions));
    new(set, &template(set), data, number, (HASH, hash))
}

fn named(name: &str, number: i64, second: i64) -> Arc<ControllerRevision> {
    let time = jiff::Timestamp::from_second(second).unwrap().to_string();
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": time}, "revision": number,
            "data": {"spec": {"template": {"metadata": {"labels": {"n": name}}}}},
        }))
        .unwrap(),
    )
}

/// The values of FNV-1 that its authors publish.
#[test]
fn hashes() {
    let check = |text: &str, want: u32| assert_eq!(fnv(text.bytes()), want, "{text}");
    check("", 0x811c_9dc5);
    check("a", 0x050c_5d7e);
    check("foobar", 0x31f0_b262);
}

/// The hashes that upstream's own code gives this template.
#[test]
fn hashes_of_templates() {
    let template = json!({
        "metadata": {"labels": {"app": "web"}, "annotations": {"a": "<b> & c"}},
        "spec": {
            "containers": [{"name": "nginx", "image": "nginx:1.27", "resources": {"requests": {"cpu": "100m"}},
                "ports": [{"name": "web", "containerPort": 80, "protocol": "TCP"}],
                "volumeMounts": [{"name": "www", "mountPath": "/usr/share/nginx/html"}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent"}],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 10, "dnsPolicy": "ClusterFirst",
            "securityContext": {}, "schedulerName": "default-scheduler",
        },
    });
    let template: PodTemplateSpec = serde_json::from_value(template).unwrap();
    let data = data_of(&template).unwrap();
    assert_eq!(hash(&data, Some(0)), "744cc9bbdb");
    assert_eq!(hash(&data, Some(1)), "744cc9bbdc");
}

#[test]
fn what_is_left_of_histories() {
    let all: Vec<_> = (1..=5).map(|n| named(&n.to_string(), n, 0)).collect();
    let check = |limit: usize, used: &[&str], want: &[&str]| {
        let got = surplus(&all, limit, |name| used.contains(&name));
        let got: Vec<_> = got.iter().map(|r| r.metadata.name.as_deref().unwrap()).collect();
        assert_eq!(got, want, "{limit} {used:?}");
    };
    check(5, &[], &[]);
    check(2, &[], &["1", "2", "3"]);
    check(2, &["5", "1"], &["2"]);
    check(0, &["5"], &["1", "2", "3", "4"]);
    check(9, &["5"], &[]);
}

#[test]
fn go_escapes_what_html_would_read() {
    let check =
        |text: &str, want: &str| assert_eq!(encode(&json!({ "a": text })), format!("{{\"a\":\"{want}\"}}"));
    check("a<b>&c", r"a\u003cb\u003e\u0026c");
    check("\u{2028}\u{2029}", r"\u2028\u2029");
    check("\"\\/\n\r\t\u{8}\u{c}\u{1f}\u{7f}ä", "\\\"\\\\/\\n\\r\\t\\b\\f\\u001f\u{7f}ä");
}

#[test]
fn a_revision_gives_its_template_back() {
    let owner = set("web", json!({"foo": "bar"}));
    let made = revision(&owner, 1, 0);
    assert_eq!(template_of(&made).unwrap(), template(&owner));
    assert!(made.data.as_ref().unwrap().0["spec"]["template"]["$patch"] == "replace");
    let meta = &made.metadata;
    assert_eq!(meta.labels.as_ref().unwrap()["foo"], "bar");
    assert_eq!(meta.name.as_ref().unwrap(), &format!("web-{}", meta.labels.as_ref().unwrap()[HASH]));
    assert_eq!(meta.annotations, owner.metadata.annotations);
    assert_eq!(controller_of(meta).unwrap().uid, "web");
    let nothing = ControllerRevision { data: None, ..made };
    assert!(template_of(&nothing).is_err());
    let odd = ControllerRevision { data: Some(RawExtension(json!({"spec": {"template": 7}}))), ..nothing };
    assert!(template_of(&odd).is_err() && !holds(&odd, &json!({})));
}

#[test]
fn names() {
    assert_eq!(name("web", "abc"), "web-abc");
    assert_eq!(name(&"n".repeat(300), "abc"), format!("{}-abc", "n".repeat(223)));
    let collided = |n: i32| revision(&set("web", json!({"foo": "bar"})), 1, n).metadata.name;
    assert_ne!(collided(0), collided(1));
}

/// Upstream's cases of `TestFindEqualRevisions`, and what is done with the one that is found.
#[test]
fn the_revision_of_the_present_template() {
    let (foo, goo) = (set("ss1", json!({"foo": "bar"})), set("ss2", json!({"goo": "car"})));
    let (first, second) = (Arc::new(revision(&foo, 1, 0)), Arc::new(revision(&goo, 2, 0)));
    let check = |all: &[&Arc<ControllerRevision>], of: &StatefulSet, want: Present| {
        let all: Vec<_> = all.iter().map(|r| (*r).clone()).collect();
        assert_eq!(find(&all, &data_of(&template(of)).unwrap()), want);
    };
    check(&[], &foo, Present::New(1));
    check(&[&first], &foo, Present::Newest(first.clone()));
    check(&[&second], &foo, Present::New(3));
    check(&[&first, &second], &foo, Present::Again(first.clone(), 3));
    check(&[&first, &second], &goo, Present::Newest(second.clone()));
}

#[test]
fn fields_without_a_value_make_no_difference() {
    let owner = set("web", json!({"foo": "bar"}));
    let data = data_of(&template(&owner)).unwrap();
    let mut old = revision(&owner, 1, 0);
    let held = &mut old.data.as_mut().unwrap().0["spec"]["template"];
    held["metadata"]["creationTimestamp"] = Value::Null;
    assert!(holds(&old, &data));
    old.data.as_mut().unwrap().0["spec"]["template"]["spec"]["containers"][0]["image"] = "other".into();
    assert!(!holds(&old, &data));
}

/// Upstream's 3 cases of `TestStatefulSetCompatibility`: the revisions that versions 1.33 and 1.34 wrote of one template,
/// with their hashes. A set that was brought up to this version is not rolled out anew.
#[test]
fn revisions_of_older_versions() {
    let template = |created: bool| {
        let mut template = json!({"$patch": "replace",
            "metadata": {"annotations": {"test": "value"}, "labels": {"app": "foo"}},
            "spec": {"containers": [{"image": "test", "imagePullPolicy": "Always", "name": "test", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                "securityContext": {}, "terminationGracePeriodSeconds": 30}});
        if created {
            template["metadata"]["creationTimestamp"] = Value::Null;
        }
        json!({"spec": {"template": template}})
    };
    let revision = |created: bool, number: i64, name: &str| -> Arc<ControllerRevision> {
        let data = template(created);
        assert_eq!(format!("test-{}", hash(&data, Some(0))), name);
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name}, "revision": number, "data": data}))
                .unwrap(),
        )
    };
    let (old, new) = (revision(true, 1, "test-c77f6d978"), revision(false, 2, "test-776999688b"));
    let check = |all: &[&Arc<ControllerRevision>], want: &Arc<ControllerRevision>| {
        let all: Vec<_> = all.iter().map(|r| (*r).clone()).collect();
        let present = data_of(&template_of(&new).unwrap()).unwrap();
        assert_eq!(find(&all, &present), Present::Newest((*want).clone()));
    };
    check(&[&old], &old);
    check(&[&new], &new);
    check(&[&old, &new], &new);
}

/// Upstream's cases of `TestSortControllerRevisions`.
#[test]
fn the_order_of_revisions() {
    let check = |given: &[(&str, i64, i64)], want: &[&str]| {
        let mut all: Vec<_> = given.iter().map(|(name, n, time)| named(name, *n, *time)).collect();
        sort(&mut all);
        let got: Vec<_> = all.iter().map(|r| r.metadata.name.as_deref().unwrap()).collect();
        assert_eq!(got, want);
    };
    check(&[("b", 2, 0), ("a", 1, 0), ("c", 3, 0)], &["a", "b", "c"]);
    check(&[("a", 1, 0), ("b", 2, 0), ("c", 3, 0)], &["a", "b", "c"]);
    check(&[("c", 3, 0), ("b", 2, 0), ("a", 1, 0)], &["a", "b", "c"]);
    check(&[("c", 3, 0), ("e", 3, 1), ("d", 3, 1), ("b", 2, 0), ("a", 1, 0)], &["a", "b", "c", "d", "e"]);
    check(&[], &[]);
}

/// Upstream's cases of `TestCreateApplyRevision` and `TestRollingUpdateApplyRevision`: a revision gives back the template of
/// which it was made, and the annotations are the owner's present ones.
#[test]
fn templates_come_back() {
    let mut owner = set("foo", json!({"foo": "bar"}));
    let first = revision(&owner, 1, 0);
    let before = template(&owner);
    let container = &mut owner.spec.as_mut().unwrap().template.spec.as_mut().unwrap().containers[0];
    container.env = serde_json::from_value(json!([{"name": "foo", "value": "bar"}])).unwrap();
    owner.metadata.annotations = Some([("foo".to_owned(), "bar".to_owned())].into());
    let second = revision(&owner, 2, 0);
    assert_eq!(template_of(&first).unwrap(), before);
    assert_eq!(template_of(&second).unwrap(), template(&owner));
    owner.spec.as_mut().unwrap().template = template_of(&first).unwrap();
    let restored = revision(&owner, 2, 0);
    assert_eq!((&restored.data, &restored.metadata.name), (&first.data, &first.metadata.name));
    assert!(holds(&first, &restored.data.clone().unwrap().0));
    assert_eq!(restored.metadata.annotations.unwrap()["foo"], "bar");
}
