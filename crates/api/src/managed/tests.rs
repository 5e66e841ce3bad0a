//! Cases of upstream's merge and field manager tests, on built-in kinds.

use super::*;
use crate::codec::json;
use crate::schema::Gvk;
use crate::tree::Node;

const T0: &str = "2024-01-01T00:00:00Z";
const T1: &str = "2024-01-02T00:00:00Z";

fn any(text: &str) -> Node {
    crate::yaml::parse(text.as_bytes()).unwrap()
}

fn gvk(kind: &str) -> Gvk {
    match kind {
        "Deployment" => Gvk::new("apps", "v1", kind),
        _ => Gvk::new("", "v1", kind),
    }
}

fn root(kind: &str) -> crate::StructId {
    Schema::builtin().kind(&gvk(kind)).unwrap()
}

fn tree(kind: &str, text: &str) -> Struct {
    json::root_from_any(Schema::builtin(), root(kind), any(text)).unwrap().tree
}

fn writer<'a>(kind: &str, manager: &'a str, now: &'a str) -> Writer<'a> {
    Writer {
        schema: Schema::builtin(),
        api_version: if kind == "Deployment" { "apps/v1" } else { "v1" },
        subresource: "",
        manager,
        now,
        taken: Taken::All,
        versions: None,
    }
}

/// The managers, one a line: name, operation, version, subresource, time, fields.
fn shown(tree: &Struct) -> Vec<String> {
    let places = entries::Places::new(Schema::builtin(), tree.id).unwrap();
    places
        .read(tree)
        .unwrap()
        .iter()
        .map(|m| {
            let mut fields = Vec::new();
            json::encode_any(&m.fields.to_node(), &mut fields);
            format!(
                "{} {:?} {} {} {}",
                m.name,
                m.operation,
                m.subresource,
                m.time.as_deref().unwrap_or("-"),
                String::from_utf8(fields).unwrap()
            )
        })
        .collect()
}

fn text(tree: &Struct) -> String {
    let mut tree = tree.clone();
    entries::Places::new(Schema::builtin(), tree.id).unwrap().clear(&mut tree);
    let mut out = Vec::new();
    json::encode(Schema::builtin(), &tree, &mut out);
    String::from_utf8(out).unwrap()
}

const POD: &str = r#"{
  metadata: {name: p, namespace: d, labels: {app: x}, uid: u, creationTimestamp: "2024-01-01T00:00:00Z"},
  spec: {
    containers: [{name: c, image: i, imagePullPolicy: Always, ports: [{containerPort: 80, protocol: TCP}], resources: {},
      terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File,
      livenessProbe: {httpGet: {path: /, port: 80, scheme: HTTP}}}],
    dnsPolicy: ClusterFirst, restartPolicy: Always, schedulerName: default-scheduler, securityContext: {},
    terminationGracePeriodSeconds: 30, enableServiceLinks: true, tolerations: [{key: a}],
    volumes: [{name: v, emptyDir: {}}], nodeSelector: {a: b}}}"#;

#[test]
fn a_create_owns_everything() {
    let mut pod = tree("Pod", POD);
    writer("Pod", "kubectl-create", T0).update(None, &mut pod);
    assert_eq!(
        shown(&pod),
        [concat!(
            "kubectl-create Update  2024-01-01T00:00:00Z ",
            r#"{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"#,
            r#""f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"#,
            r#""f:livenessProbe":{".":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}}},"#,
            r#""f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"#,
            r#""f:containerPort":{},"f:protocol":{}}},"f:resources":{},"f:terminationMessagePath":{},"#,
            r#""f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"#,
            r#""f:nodeSelector":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"#,
            r#""f:terminationGracePeriodSeconds":{},"f:tolerations":{},"f:volumes":{".":{},"#,
            r#""k:{\"name\":\"v\"}":{".":{},"f:emptyDir":{},"f:name":{}}}}}"#,
        )]
    );
}

const CONFIG_MAP: &str = "{metadata: {name: c}, data: {a: '1', b: '2'}}";

fn created() -> Struct {
    let mut live = tree("ConfigMap", CONFIG_MAP);
    writer("ConfigMap", "first", T0).update(None, &mut live);
    live
}

#[test]
fn updates() {
    let live = created();
    let first = r#"first Update  2024-01-01T00:00:00Z {"f:data":{".":{},"f:a":{},"f:b":{}}}"#;
    assert_eq!(shown(&live), [first]);
    // Nothing changed, so no entry changes. The client need not send managedFields back.
    let mut same = tree("ConfigMap", CONFIG_MAP);
    writer("ConfigMap", "second", T1).update(Some(&live), &mut same);
    assert_eq!(shown(&same), [first]);
    // A changed field goes to the manager that changed it, a removed one to nobody.
    let mut new = tree("ConfigMap", "{metadata: {name: c}, data: {a: '3', c: '4'}}");
    writer("ConfigMap", "second", T1).update(Some(&live), &mut new);
    assert_eq!(
        shown(&new),
        [
            r#"first Update  2024-01-01T00:00:00Z {"f:data":{}}"#,
            r#"second Update  2024-01-02T00:00:00Z {"f:data":{"f:a":{},"f:c":{}}}"#,
        ]
    );
    // The same manager writes again: one entry, a new time.
    let mut again = tree("ConfigMap", "{metadata: {name: c}, data: {a: '1', b: '2', c: '3'}}");
    writer("ConfigMap", "first", T1).update(Some(&live), &mut again);
    assert_eq!(
        shown(&again),
        [r#"first Update  2024-01-02T00:00:00Z {"f:data":{".":{},"f:a":{},"f:b":{},"f:c":{}}}"#]
    );
    // One empty entry forgets all managers; then the object is as if nobody tracked it.
    let mut reset = tree("ConfigMap", "{metadata: {name: c, managedFields: [{}]}, data: {a: '1'}}");
    writer("ConfigMap", "first", T1).update(Some(&live), &mut reset);
    assert!(shown(&reset).is_empty());
    let untracked = tree("ConfigMap", CONFIG_MAP);
    let mut new = tree("ConfigMap", "{metadata: {name: c}, data: {a: '9'}}");
    writer("ConfigMap", "first", T1).update(Some(&untracked), &mut new);
    assert!(shown(&new).is_empty());
}

#[test]
fn times_return_if_nothing_else_changed() {
    let live = created();
    let mut new = created();
    writer("ConfigMap", "first", T1).update(None, &mut new);
    keep_times(Schema::builtin(), &live, &mut new);
    assert_eq!(new, live);
    let mut other = tree("ConfigMap", "{metadata: {name: c}, data: {a: '1', b: '3'}}");
    writer("ConfigMap", "first", T1).update(Some(&live), &mut other);
    let before = other.clone();
    keep_times(Schema::builtin(), &live, &mut other);
    assert_eq!(other, before);
}

#[test]
fn old_updaters_are_merged() {
    let mut live = created();
    for i in 0..15 {
        let mut new = live.clone();
        let data = Schema::builtin().st(new.id).field("data").unwrap();
        if let Some(Node::Map(m)) = new.get_mut(data) {
            m.insert(format!("k{i:02}"), "v");
        }
        let name = format!("m{i:02}");
        writer("ConfigMap", &name, T1).update(Some(&live), &mut new);
        live = new;
    }
    let all = shown(&live);
    assert_eq!(all.len(), 10);
    assert_eq!(
        all[0],
        r#"ancient-changes Update  2024-01-02T00:00:00Z {"f:data":{".":{},"f:a":{},"f:b":{},"f:k00":{},"f:k01":{},"f:k02":{},"f:k03":{},"f:k04":{},"f:k05":{}}}"#
    );
}

#[test]
fn subresources_have_entries_of_their_own() {
    let live = tree("Pod", POD);
    let mut live = live;
    writer("Pod", "kubectl", T0).update(None, &mut live);
    let mut new = live.clone();
    let status = tree(
        "Pod",
        "{status: {phase: Running, conditions: [{type: Ready, status: 'True'}], podIP: 1.2.3.4}}",
    );
    let no = Schema::builtin().st(new.id).field("status").unwrap();
    new.set(no, status.get(no).cloned().unwrap());
    let reset = FieldSet::of_names(&[&["spec"]]);
    let w = Writer { subresource: "status", taken: Taken::AllBut(&reset), ..writer("Pod", "kubelet", T1) };
    w.update(Some(&live), &mut new);
    assert_eq!(
        shown(&new)[1],
        r#"kubelet Update status 2024-01-02T00:00:00Z {"f:status":{"f:conditions":{".":{},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:phase":{},"f:podIP":{}}}"#
    );
}

fn applied(
    kind: &str,
    manager: &str,
    live: Option<&Struct>,
    config: &str,
    force: bool,
) -> Result<Struct, String> {
    let w = writer(kind, manager, T1);
    w.apply(&gvk(kind), root(kind), live, any(config), force).map(|a| a.object).map_err(|e| e.to_string())
}

fn config(data: &str) -> String {
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c}}, data: {data}}}")
}

#[test]
fn applies() {
    let a = applied("ConfigMap", "a", None, &config("{x: '1', w: '2'}"), false).unwrap();
    assert_eq!(shown(&a), [r#"a Apply  2024-01-02T00:00:00Z {"f:data":{"f:w":{},"f:x":{}}}"#]);
    // The same value is shared, another one conflicts.
    let b = applied("ConfigMap", "b", Some(&a), &config("{x: '1', z: '3'}"), false).unwrap();
    assert_eq!(text(&b), r#"{"metadata":{"name":"c"},"data":{"w":"2","x":"1","z":"3"}}"#);
    assert_eq!(
        applied("ConfigMap", "b", Some(&a), &config("{x: '9'}"), false).unwrap_err(),
        r#"Apply failed with 1 conflict: conflict with "a": .data.x"#
    );
    assert_eq!(
        applied("ConfigMap", "c", Some(&b), &config("{x: '9', w: '9'}"), false).unwrap_err(),
        "Apply failed with 3 conflicts: conflicts with \"a\":\n- .data.w\n- .data.x\nconflicts with \"b\":\n- .data.x"
    );
    // By force the fields change their manager.
    let c = applied("ConfigMap", "c", Some(&b), &config("{x: '9'}"), true).unwrap();
    assert_eq!(
        shown(&c),
        [
            r#"a Apply  2024-01-02T00:00:00Z {"f:data":{"f:w":{}}}"#,
            r#"b Apply  2024-01-02T00:00:00Z {"f:data":{"f:z":{}}}"#,
            r#"c Apply  2024-01-02T00:00:00Z {"f:data":{"f:x":{}}}"#,
        ]
    );
    // A field that is not applied any more goes, unless another manager has it.
    let b = applied("ConfigMap", "b", Some(&b), &config("{}"), false).unwrap();
    assert_eq!(text(&b), r#"{"metadata":{"name":"c"},"data":{"w":"2","x":"1"}}"#);
}

#[test]
fn applies_over_what_nobody_tracked() {
    let live = tree("ConfigMap", CONFIG_MAP);
    let new = applied("ConfigMap", "a", Some(&live), &config("{a: '1'}"), false).unwrap();
    assert_eq!(
        shown(&new),
        [
            r#"a Apply  - {"f:data":{"f:a":{}}}"#,
            r#"before-first-apply Update  2024-01-02T00:00:00Z {"f:data":{".":{},"f:a":{},"f:b":{}}}"#,
        ]
    );
    assert_eq!(
        applied("ConfigMap", "a", Some(&live), &config("{a: '7'}"), false).unwrap_err(),
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a"#
    );
    // An updater's fields stay when an applier gives them up.
    let given_up = applied("ConfigMap", "a", Some(&new), &config("{}"), false).unwrap();
    assert_eq!(text(&given_up), r#"{"metadata":{"name":"c"},"data":{"a":"1","b":"2"}}"#);
}

fn deployment(spec: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d, namespace: ns}}, spec: {{selector: {{matchLabels: {{a: b}}}}, {spec}}}}}"
    )
}

#[test]
fn lists_merge_by_key() {
    let pods = |containers: &str| deployment(&format!("template: {{spec: {{containers: {containers}}}}}"));
    let a =
        applied("Deployment", "a", None, &pods("[{name: x, image: i}, {name: w, image: i}]"), false).unwrap();
    let b = applied("Deployment", "b", Some(&a), &pods("[{name: z, image: j}, {name: x, tty: true}]"), false)
        .unwrap();
    let names = |t: &Struct| {
        let text = text(t);
        ["x", "w", "z"].map(|n| text.find(&format!("\"name\":\"{n}\""))).to_vec()
    };
    let at = names(&b);
    assert!(at[2] < at[0] && at[0] < at[1], "{}", text(&b));
    let a = applied("Deployment", "a", Some(&b), &pods("[{name: x, image: i}]"), false).unwrap();
    assert_eq!(names(&a)[1], None, "{}", text(&a));
    assert!(text(&a).contains(r#""image":"i""#) && text(&a).contains(r#""tty":true"#));
    // An explicit zero is managed although the object does not hold it.
    let zero = applied("Deployment", "a", None, &pods("[{name: x, image: i, tty: false}]"), false).unwrap();
    assert!(shown(&zero)[0].contains(r#""f:tty":{}"#));
}

#[test]
fn a_key_without_a_value_has_its_default() {
    let config = deployment("template: {spec: {containers: [{image: x}]}}");
    let new = applied("Deployment", "a", None, &config, false).unwrap();
    assert!(shown(&new)[0].contains(r#""k:{\"name\":\"\"}":{".":{},"f:image":{}}"#), "{:?}", shown(&new));
}

#[test]
fn bad_configurations() {
    for (config, error) in [
        (
            deployment("replicas: three"),
            "failed to create typed patch object (ns/d; apps/v1, Kind=Deployment): .spec.replicas: expected numeric (int or float), got string",
        ),
        (
            deployment("foo: 1"),
            "failed to create typed patch object (ns/d; apps/v1, Kind=Deployment): .spec.foo: field not declared in schema",
        ),
        (
            deployment("template: {spec: {containers: [{name: x}, {name: x}]}}"),
            "failed to create typed patch object (ns/d; apps/v1, Kind=Deployment): .spec.template.spec.containers: duplicate entries for key [name=\"x\"]",
        ),
        ("{apiVersion: v1, kind: Pod}".into(), "invalid object type: /v1, Kind=Pod"),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {managedFields: []}}".into(),
            "metadata.managedFields must be nil",
        ),
    ] {
        assert_eq!(applied("Deployment", "a", None, &config, false).unwrap_err(), error);
    }
}

#[test]
fn kubectl_takes_over_what_it_applied_on_its_own_side() {
    let last = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"ns"},"spec":{"replicas":3,"paused":true}}"#;
    let mut live = tree(
        "Deployment",
        &format!(
            "{{metadata: {{name: d, namespace: ns, annotations: {{{LAST_APPLIED}: '{last}'}}}}, spec: {{replicas: 3, paused: true, selector: {{matchLabels: {{a: b}}}}}}}}"
        ),
    );
    writer("Deployment", "kubectl-client-side-apply", T0).update(None, &mut live);
    let new = applied("Deployment", "kubectl", Some(&live), &deployment("replicas: 5"), false).unwrap();
    assert!(text(&new).contains("\"replicas\":5"), "{}", text(&new));
    assert!(text(&new).contains(r#"\"replicas\":5"#), "{}", text(&new));
    // Fields that kubectl did not apply do not hinder it; under another name the same write conflicts.
    assert_eq!(
        applied(
            "Deployment",
            "kubectl",
            Some(&live),
            &deployment("minReadySeconds: 0, progressDeadlineSeconds: 1, replicas: 5"),
            false
        )
        .map(|_| ()),
        Ok(())
    );
    assert_eq!(
        applied("Deployment", "other", Some(&live), &deployment("replicas: 5"), false).unwrap_err(),
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using apps/v1: .spec.replicas"
    );
}

#[test]
fn a_live_object_with_duplicates_is_tolerated() {
    let mut live = tree(
        "Pod",
        "{metadata: {name: p}, spec: {containers: [{name: c, env: [{name: A, value: '1'}, {name: A, value: '2'}]}]}}",
    );
    writer("Pod", "u", T0).update(None, &mut live);
    assert!(shown(&live)[0].contains(r#""f:env":{".":{},"k:{\"name\":\"A\"}":{}}"#), "{:?}", shown(&live));
    let config = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, env: [{name: B, value: '3'}]}]}}";
    let new = applied("Pod", "a", Some(&live), config, false).unwrap();
    assert!(
        text(&new).contains(
            r#""env":[{"name":"A","value":"1"},{"name":"A","value":"2"},{"name":"B","value":"3"}]"#
        ),
        "{}",
        text(&new)
    );
    let config = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, env: [{name: A, value: '3'}]}]}}";
    assert_eq!(
        applied("Pod", "a", Some(&live), config, false).unwrap_err(),
        "Apply failed with 1 conflict: conflict with \"u\" using v1: .spec.containers[name=\"c\"].env[name=\"A\"]"
    );
}

#[test]
fn names_of_managers() {
    for (agent, name) in [("kubectl/v1.36.4 (linux/amd64)", "kubectl"), ("a\u{7}b c/1", "ab c"), ("", "")] {
        assert_eq!(manager_of_agent(agent), name);
    }
    assert_eq!(manager_of_agent(&"ü".repeat(100)).len(), 128);
}
