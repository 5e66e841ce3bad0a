//! Values that nest deeply: the code that reads them recurses, and a stack has an end.

use std::fmt::Write as _;

use anyhow::{Context, Result, anyhow, ensure};
use api::depth::{MAX_DEPTH, of_json};
use serde_json::json;
use testkit::{Answer, Request, Server, Signal, eventually};

use crate::hostile::alive::serves_others;

const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// JSON of so many lists in one another.
fn lists(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

/// A JSON object of this depth.
fn data(depth: usize) -> String {
    format!(r#"{{"x":{}}}"#, lists(depth - 1))
}

/// A ControllerRevision of this depth.
fn revision(name: &str, depth: usize) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{{"name":"{name}"}},"revision":1,"data":{}}}"#,
        data(depth - 1)
    )
}

/// An object of the core group whose `managedFields` have this depth.
fn managed(kind: &str, name: &str, depth: usize, rest: &str) -> String {
    let levels = depth - 5;
    let fields = r#"{"f:x":"#.repeat(levels) + "{}" + &"}".repeat(levels);
    format!(
        r#"{{"apiVersion":"v1","kind":"{kind}","metadata":{{"name":"{name}","managedFields":[{{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields},"manager":"deep","operation":"Update","time":"2026-01-01T00:00:00Z"}}]}}{rest}}}"#
    )
}

/// A field of a protobuf message.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut len = bytes.len();
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(bytes);
    out
}

/// A body in protobuf.
fn protobuf(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &meta), field(2, message)].concat()
}

/// [`revision`] in protobuf.
fn revision_protobuf(name: &str, depth: usize) -> Vec<u8> {
    let data = field(1, data(depth - 1).as_bytes());
    let message = [field(1, &field(1, name.as_bytes())), field(2, &data), vec![3 << 3, 1]].concat();
    protobuf("apps/v1", "ControllerRevision", &message)
}

/// A CustomResourceDefinition in protobuf, with so many schemas in one another.
fn definition_protobuf(schemas: usize) -> Vec<u8> {
    let mut schema = Vec::new();
    for _ in 0..schemas.min(3000) {
        // The field is `not`.
        schema = [vec![0xe2, 0x01], field(0, &schema)[1..].to_vec()].concat();
    }
    let validation = field(1, &schema);
    let version = [field(1, b"v1"), vec![2 << 3, 1, 3 << 3, 1], field(4, &validation)].concat();
    let names = [field(1, b"deeps"), field(2, b"deep"), field(4, b"Deep"), field(5, b"DeepList")].concat();
    let spec =
        [field(1, b"example.org"), field(3, &names), field(4, b"Namespaced"), field(7, &version)].concat();
    let message = [field(1, &field(1, b"deeps.example.org")), field(2, &spec)].concat();
    protobuf("apiextensions.k8s.io/v1", "CustomResourceDefinition", &message)
}

fn refused(what: &str, depth: usize, request: Request) -> Result<()> {
    let answer = request.send().with_context(|| format!("{what}, {depth} deep"))?;
    let (status, text) = (answer.status, answer.text());
    ensure!((400..500).contains(&status), "{what}, {depth} deep: {status}: {text:.300}");
    // Every form of a Status says that it is one.
    ensure!(text.contains("Status") && text.contains("Failure"), "{what}, {depth} deep: {text:.300}");
    Ok(())
}

#[test]
fn copies_into_themselves_end_no_process() -> Result<()> {
    let server = Server::start(&[])?;
    let base = MAX_DEPTH - 10;
    let object = format!("{REVISIONS}/copied");
    server
        .request("POST", REVISIONS)
        .body("application/json", revision("copied", base))
        .send()?
        .expect(201)?;
    let before = server.get(&object).send()?.expect(200)?.body;
    // The pointer leads into the innermost of so many lists.
    let pointer = |lists: usize| format!("/data/x{}/-", "/0".repeat(lists - 1));
    let inner = base - 2;
    // Each copy makes the value twice as deep: the last goes into the middle of the one that the first ones made.
    let doubling =
        (0..9).map(|i| format!(r#"{{"op":"copy","from":"/data/x","path":"{}"}}"#, pointer(inner << i)));
    // These copies go into the node that was the innermost one at first.
    let into_itself =
        std::iter::repeat_n(format!(r#"{{"op":"copy","from":"/data","path":"{}"}}"#, pointer(inner)), 9);
    let moves = [
        format!(r#"{{"op":"add","path":"/metadata/annotations","value":{}}}"#, lists(20)),
        format!(r#"{{"op":"move","from":"/metadata/annotations","path":"{}"}}"#, pointer(inner)),
    ];
    let add = [format!(r#"{{"op":"add","path":"{}","value":{}}}"#, pointer(inner), lists(12))];
    let replace = [
        format!(r#"{{"op":"add","path":"{}","value":1}}"#, pointer(inner)),
        format!(r#"{{"op":"replace","path":"{}","value":{}}}"#, pointer(inner).replace('-', "0"), lists(12)),
    ];
    let doubling: Vec<_> = doubling.collect();
    let into_itself: Vec<_> = into_itself.collect();
    for (what, operations) in [
        ("doubling", &doubling[..]),
        ("into itself", &into_itself[..]),
        ("move", &moves[..]),
        ("add", &add[..]),
        ("replace", &replace[..]),
    ] {
        for query in ["", "?dryRun=All"] {
            let patch = format!("[{}]", operations.join(","));
            let request = server.request("PATCH", &format!("{object}{query}"));
            refused(what, base, request.body("application/json-patch+json", patch))?;
        }
        serves_others(&server)?;
    }
    assert_eq!(server.get(&object).send()?.expect(200)?.body, before);
    server.request("DELETE", &object).send()?.expect(200)?;
    Ok(())
}

/// A request for every way by which an object or options come in, with a value that nests so deeply.
fn ways_in(server: &Server, depth: usize) -> Vec<(String, Request)> {
    let json = "application/json";
    let deep = lists(depth - 1);
    let object = format!("{REVISIONS}/base");
    // The object has an unknown field.
    let unknown = |kind: &str, version: &str| {
        format!(r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"base"}},"x":{deep}}}"#)
    };
    let pods = "/api/v1/namespaces/default/pods";
    let mut all = Vec::new();
    for query in ["", "?dryRun=All"] {
        let at = |path: &str| format!("{path}{query}");
        let mut add = |what: &str, method: &str, path: &str, kind: &str, body: Vec<u8>| {
            all.push((format!("{what}{query}"), server.request(method, path).body(kind, body)));
        };
        add("create", "POST", &at(REVISIONS), json, revision("new", depth).into());
        add("create from YAML", "POST", &at(REVISIONS), "application/yaml", revision("new", depth).into());
        let mut block = "apiVersion: apps/v1\nkind: ControllerRevision\nmetadata: {name: new}\nrevision: 1\ndata:\n  x:\n  ".to_owned();
        let _ = writeln!(block, "{}x", "- ".repeat(depth - 2));
        add("create from YAML's blocks", "POST", &at(REVISIONS), "application/yaml", block.into());
        add("create from protobuf", "POST", &at(REVISIONS), PROTOBUF, revision_protobuf("new", depth));
        add(
            "create with managedFields",
            "POST",
            &at(CONFIG_MAPS),
            json,
            managed("ConfigMap", "new", depth, "").into(),
        );
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        add("create messages", "POST", &at(definitions), PROTOBUF, definition_protobuf(depth));
        add("create what is dropped", "POST", &at(CONFIG_MAPS), json, unknown("ConfigMap", "v1").into());
        add("update", "PUT", &at(&object), json, revision("base", depth).into());
        add("update from YAML", "PUT", &at(&object), "application/yaml", revision("base", depth).into());
        add("update from protobuf", "PUT", &at(&object), PROTOBUF, revision_protobuf("base", depth));
        let merge = format!(r#"{{"data":{}}}"#, data(depth - 1));
        add("merge patch", "PATCH", &at(&object), "application/merge-patch+json", merge.clone().into());
        let strategic = "application/strategic-merge-patch+json";
        add("strategic patch", "PATCH", &at(&object), strategic, merge.into());
        for op in ["add", "replace", "test"] {
            let patch = format!(r#"[{{"op":"{op}","path":"/data","value":{}}}]"#, data(depth - 1));
            add(
                &format!("JSON patch: {op}"),
                "PATCH",
                &at(&object),
                "application/json-patch+json",
                patch.into(),
            );
        }
        let apply = |path: &str| {
            format!("{path}{}fieldManager=me&force=true", if query.is_empty() { "?" } else { "&" })
        };
        let applied = "application/apply-patch+yaml";
        add("apply", "PATCH", &apply(&at(&object)), applied, revision("base", depth).into());
        add(
            "apply a new one",
            "PATCH",
            &apply(&at(&format!("{REVISIONS}/new"))),
            applied,
            revision("new", depth).into(),
        );
        add("delete", "DELETE", &at(&object), json, unknown("DeleteOptions", "v1").into());
        add("delete collection", "DELETE", &at(REVISIONS), json, unknown("DeleteOptions", "v1").into());
        add(
            "eviction",
            "POST",
            &at(&format!("{pods}/base/eviction")),
            json,
            unknown("Eviction", "policy/v1").into(),
        );
        add("binding", "POST", &at(&format!("{pods}/base/binding")), json, unknown("Binding", "v1").into());
        add("status", "PUT", &at(&format!("{pods}/base/status")), json, unknown("Pod", "v1").into());
        let scale = "/apis/apps/v1/namespaces/default/deployments/base/scale";
        add("scale", "PUT", &at(scale), json, unknown("Scale", "autoscaling/v1").into());
        let scaled = format!(r#"{{"spec":{{"replicas":1}},"x":{deep}}}"#);
        add("scale by a patch", "PATCH", &at(scale), "application/merge-patch+json", scaled.into());
        let token = "/api/v1/namespaces/default/serviceaccounts/default/token";
        add("token", "POST", &at(token), json, unknown("TokenRequest", "authentication.k8s.io/v1").into());
        let finalize = "/api/v1/namespaces/default/finalize";
        add("finalize", "PUT", &at(finalize), json, unknown("Namespace", "v1").into());
        let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let kind = unknown("SelfSubjectAccessReview", "authorization.k8s.io/v1");
        add("review", "POST", &at(review), json, kind.into());
    }
    all
}

#[test]
fn nothing_deeper_than_the_limit_comes_in() -> Result<()> {
    let server = Server::start(&[])?;
    server.request("POST", REVISIONS).body("application/json", revision("base", 3)).send()?.expect(201)?;
    server.create(
        "/apis/apps/v1/namespaces/default/deployments",
        &json!({"metadata": {"name": "base"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        }}),
    )?;
    for depth in [MAX_DEPTH + 1, 10 * MAX_DEPTH, 100_000] {
        for (what, request) in ways_in(&server, depth) {
            refused(&what, depth, request)?;
        }
        // An anchor's value stands in an anchor's value: the text is not deep.
        let mut yaml = format!(
            "apiVersion: apps/v1\nkind: ControllerRevision\nmetadata: {{name: new}}\nrevision: 1\nx0: &x0 {}\n",
            lists(MAX_DEPTH / 2)
        );
        for i in 1..=depth / MAX_DEPTH * 2 + 2 {
            let (open, close) = ("[".repeat(MAX_DEPTH / 2), "]".repeat(MAX_DEPTH / 2));
            let _ = writeln!(yaml, "x{i}: &x{i} {open}*x{}{close}", i - 1);
        }
        let aliases = server.request("POST", REVISIONS).body("application/yaml", yaml);
        refused("aliases", depth, aliases)?;
        serves_others(&server)?;
    }
    // No request stored anything.
    let names = server.kubectl(&["get", "controllerrevisions", "-o", "name"])?;
    assert_eq!(names, "controllerrevision.apps/base\n");
    Ok(())
}

/// Checks that the whole of a value is in an answer, by its deepest part.
fn has_all(what: &str, answer: &Answer, innermost: &str) -> Result<()> {
    ensure!(answer.status == 200, "{what}: {}: {:.300}", answer.status, answer.text());
    let text = answer.text().replace([' ', '\n'], "");
    ensure!(text.contains(innermost), "{what}: {:.300}", answer.text());
    Ok(())
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Reads an object of the greatest depth in every form, alone and in a list.
fn read_in_every_form(server: &Server, collection: &str, name: &str, innermost: &str) -> Result<()> {
    for path in [format!("{collection}/{name}"), collection.to_owned()] {
        let get = |query: &str, accept: &str| server.get(&format!("{path}{query}")).accept(accept).send();
        has_all("JSON", &get("", "application/json")?, innermost)?;
        has_all("indented", &get("?pretty=true", "application/json")?, innermost)?;
        has_all("protobuf", &get("", PROTOBUF)?, innermost)?;
        let yaml = get("", "application/yaml")?;
        has_all("YAML", &yaml, if innermost.starts_with('[') { "[]" } else { "f:x:{}" })?;
        ensure!(yaml.text().contains(name), "YAML: {:.300}", yaml.text());
        has_all("Table", &get("?includeObject=Object", TABLE)?, innermost)?;
        for accept in [TABLE, "application/yaml;as=Table;v=v1;g=meta.k8s.io"] {
            has_all("Table of metadata", &get("", accept)?, name)?;
        }
        let partial = if path == collection { "PartialObjectMetadataList" } else { "PartialObjectMetadata" };
        for form in ["json", "yaml", "vnd.kubernetes.protobuf"] {
            let accept = format!("application/{form};as={partial};v=v1;g=meta.k8s.io");
            has_all(&accept, &get("", &accept)?, name)?;
        }
    }
    let watch = |accept: &str| {
        let path = format!("{collection}?watch=true&includeObject=Object&fieldSelector=metadata.name={name}");
        server.get(&path).accept(accept).stream()
    };
    for accept in ["application/json", TABLE] {
        let event = watch(accept)?.line()?.context("no event")?;
        ensure!(event.contains(innermost) && event.contains("ADDED"), "{accept}: {event:.300}");
    }
    let mut watch = watch(&format!("{PROTOBUF};stream=watch"))?;
    let length = u32::from_be_bytes(watch.bytes(4)?.try_into().map_err(|_| anyhow!("four bytes"))?);
    let event = String::from_utf8_lossy(&watch.bytes(length as usize)?).into_owned();
    ensure!(event.contains(innermost) && event.contains("ADDED"), "protobuf: {event:.300}");
    Ok(())
}

#[test]
fn the_deepest_object_is_like_any_other() -> Result<()> {
    let server = Server::start(&[])?;
    let levels = MAX_DEPTH - 5;
    let fields = r#"{"f:x":"#.repeat(levels) + "{}" + &"}".repeat(levels);
    for (collection, body, innermost) in [
        (REVISIONS, revision("deep", MAX_DEPTH), lists(MAX_DEPTH - 2)),
        (CONFIG_MAPS, managed("ConfigMap", "deep", MAX_DEPTH, ""), fields),
    ] {
        assert_eq!(of_json(body.as_bytes()), MAX_DEPTH);
        let object = format!("{collection}/deep");
        let create = |query: &str| {
            server
                .request("POST", &format!("{collection}{query}"))
                .body("application/json", body.clone())
                .send()
        };
        create("?dryRun=All")?.expect(201)?;
        create("")?.expect(201)?;
        read_in_every_form(&server, collection, "deep", &innermost)?;
        for (kind, patch) in [
            ("merge", json!({"metadata": {"labels": {"merge": "x"}}})),
            ("strategic-merge", json!({"metadata": {"labels": {"strategic": "x"}}})),
            ("json", json!([{"op": "add", "path": "/metadata/labels/json", "value": "x"}])),
        ] {
            server.patch(&object, kind, &patch).send()?.expect(200)?;
        }
        let config = if collection == REVISIONS {
            revision("deep", MAX_DEPTH)
        } else {
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep"},"data":{"a":"b"}}"#.to_owned()
        };
        server
            .request("PATCH", &format!("{object}?fieldManager=me&force=true"))
            .body("application/apply-patch+yaml", config)
            .send()?
            .expect(200)?;
        let current = server.get(&object).send()?.expect(200)?;
        has_all("as it was changed", &current, &innermost)?;
        let changed = current.text().replace(r#""merge":"x""#, r#""merge":"y""#);
        server.request("PUT", &object).body("application/json", changed).send()?.expect(200)?;
        read_in_every_form(&server, collection, "deep", &innermost)?;
        server.request("DELETE", &object).send()?.expect(200)?;
        server.get(&object).send()?.expect(404)?;
    }
    // The write is in protobuf, with an answer of every form.
    for accept in ["application/json", "application/yaml", PROTOBUF, TABLE] {
        let made = server.request("POST", REVISIONS).accept(accept);
        made.body(PROTOBUF, revision_protobuf("made", MAX_DEPTH)).send()?.expect(201)?;
        server.request("DELETE", REVISIONS).send()?.expect(200)?;
    }
    serves_others(&server)
}

/// The deepest definition that validation allows is stored and read.
#[test]
fn the_deepest_definition_is_like_any_other() -> Result<()> {
    let server = Server::start(&[])?;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let object = format!("{definitions}/deeps.example.org");
    let definition = |levels: usize| {
        let schema = r#"{"type":"object","properties":{"p":"#.repeat(levels)
            + r#"{"type":"object"}"#
            + &"}}".repeat(levels);
        let names = r#"{"plural":"deeps","kind":"Deep"}"#;
        let body = format!(
            r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"deeps.example.org"}},"spec":{{"group":"example.org","scope":"Namespaced","names":{names},"versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#
        );
        (body, schema)
    };
    let levels = (MAX_DEPTH - of_json(definition(0).0.as_bytes())) / 2;
    refused(
        "create",
        levels + 1,
        server.request("POST", definitions).body("application/json", definition(levels + 1).0),
    )?;
    let (body, schema) = definition(levels);
    assert_eq!(of_json(body.as_bytes()), MAX_DEPTH);
    server.request("POST", definitions).body("application/json", body.clone()).send()?.expect(201)?;
    for path in [&object, definitions] {
        has_all("JSON", &server.get(path).send()?, &schema)?;
        for accept in ["application/yaml", PROTOBUF, TABLE] {
            has_all(accept, &server.get(path).accept(accept).send()?, "deeps.example.org")?;
        }
    }
    // An object that came as protobuf goes back as protobuf.
    let message = server.get(&object).accept(PROTOBUF).send()?.expect(200)?.body;
    server.request("PUT", &object).body(PROTOBUF, message).send()?.expect(200)?;
    for (kind, patch) in [
        ("merge", json!({"metadata": {"labels": {"merge": "x"}}})),
        ("strategic-merge", json!({"metadata": {"labels": {"strategic": "x"}}})),
        ("json", json!([{"op": "add", "path": "/metadata/labels/json", "value": "x"}])),
    ] {
        server.patch(&object, kind, &patch).send()?.expect(200)?;
    }
    let apply = server.request("PATCH", &format!("{object}?fieldManager=me&force=true"));
    apply.body("application/apply-patch+yaml", body).send()?.expect(200)?;
    has_all("as it was changed", &server.get(&object).send()?, &schema)?;
    server.request("DELETE", &object).send()?.expect(200)?;
    serves_others(&server)
}

/// Makes objects with every odd value that is still allowed.
fn odd(server: &Server) -> Result<()> {
    let pods = "/api/v1/namespaces/default/pods";
    let post = |path: &str, body: String| -> Result<Answer> {
        let answer = server.request("POST", path).body("application/json", body).send()?;
        ensure!(answer.status < 500, "{}", answer.text());
        Ok(answer)
    };
    let spec = r#","spec":{"containers":[{"name":"c","image":"i"}]}"#;
    let replicas = r#","spec":{"replicas":1,"selector":{"matchLabels":{"odd":"x"}},"template":{"metadata":{"labels":{"odd":"x"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}"#;
    let deployment = managed("Deployment", "odd", MAX_DEPTH, replicas).replacen("v1", "apps/v1", 1);
    for (path, kind, body) in [
        (pods, "Pod", managed("Pod", "odd-200", 205, spec)),
        (pods, "Pod", managed("Pod", "odd-deepest", MAX_DEPTH, spec)),
        ("/api/v1/nodes", "Node", managed("Node", "odd", MAX_DEPTH, "")),
        ("/api/v1/namespaces", "Namespace", managed("Namespace", "odd", MAX_DEPTH, "")),
        (
            "/api/v1/namespaces/default/serviceaccounts",
            "ServiceAccount",
            managed("ServiceAccount", "odd", MAX_DEPTH, ""),
        ),
        (
            "/api/v1/namespaces/default/services",
            "Service",
            managed("Service", "odd", MAX_DEPTH, r#","spec":{"selector":{"odd":"x"},"ports":[{"port":1}]}"#),
        ),
        ("/apis/apps/v1/namespaces/default/deployments", "Deployment", deployment),
        (REVISIONS, "ControllerRevision", revision("odd", MAX_DEPTH)),
    ] {
        post(path, body)?.expect(201).context(kind)?;
    }
    let huge = "x".repeat(250 << 10);
    let pod = |name: &str, metadata: &str, container: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}"{metadata}}},"spec":{{"containers":[{{"name":"c","image":"i"{container}}}]}}}}"#
        )
    };
    for (name, metadata, container) in [
        ("huge", format!(r#","annotations":{{"a":"{huge}"}}"#).as_str(), ""),
        (
            "amounts",
            "",
            r#","resources":{"requests":{"cpu":"9E","memory":"9E","example.org/x":"9E"},"limits":{"cpu":"9E","memory":"9E","example.org/x":"9E"}}"#,
        ),
        ("great-amounts", "", r#","resources":{"requests":{"cpu":"1e99999"}}"#),
        ("small-amounts", "", r#","resources":{"requests":{"cpu":"1n","memory":"0.1m"}}"#),
        (
            "dates",
            r#","creationTimestamp":"2026-01-01T00:00:00.123456789+23:59","managedFields":[{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{},"manager":"m","operation":"Update","time":"0001-01-01T00:00:00.999999999Z"}]"#,
            "",
        ),
        (
            "ports",
            "",
            r#","ports":[{"containerPort":65535,"hostPort":65535}],"livenessProbe":{"httpGet":{"port":"nobodys-name"}}"#,
        ),
    ] {
        post(pods, pod(name, metadata, container))?.expect(201).context(name.to_owned())?;
    }
    // A value that does not fit is refused, and not kept in any form.
    for container in [
        r#","livenessProbe":{"httpGet":{"port":2147483648}}"#,
        r#","livenessProbe":{"httpGet":{"port":9223372036854775808}}"#,
        r#","ports":[{"containerPort":1e3}]"#,
        r#","imagePullPolicy":"Sometimes""#,
        r#","terminationMessagePolicy":7"#,
    ] {
        let answer = post(pods, pod("refused", "", container))?;
        ensure!((400..500).contains(&answer.status), "{container}: {}", answer.status);
    }
    // A status holds whatever its writer sends.
    for (name, status) in [
        (
            "huge",
            r#"{"phase":"Odd","conditions":[{"type":"Odd","status":"Odd","lastTransitionTime":null}],"qosClass":"Odd"}"#,
        ),
        ("amounts", r#"{"startTime":"9999-12-31T23:59:59.999999999Z","podIP":"not an address"}"#),
        ("dates", r#"{"startTime":"0000-01-01T00:00:00Z"}"#),
    ] {
        let status = format!(r#"{{"status":{status}}}"#);
        let patch = server.request("PATCH", &format!("{pods}/{name}/status"));
        let answer = patch.body("application/merge-patch+json", status).send()?;
        ensure!(answer.status < 500, "{name}: {}", answer.text());
    }
    let node = r#"{"status":{"capacity":{"cpu":"9E","memory":"9E","pods":"9E"},"allocatable":{"cpu":"9E","memory":"9E","pods":"9E"},"conditions":[{"type":"Ready","status":"Odd","lastHeartbeatTime":null,"lastTransitionTime":null}]}}"#;
    let patch =
        server.request("PATCH", "/api/v1/nodes/odd/status").body("application/merge-patch+json", node);
    let answer = patch.send()?;
    ensure!(answer.status < 500, "{}", answer.text());
    Ok(())
}

/// Waits until the scheduler looked at a Pod, and until a Deployment has its Pods.
fn all_parts_go_on(server: &Server, name: &str) -> Result<()> {
    server.create(
        "/api/v1/namespaces/default/pods",
        &json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    )?;
    eventually("the scheduler's word", || {
        let pod =
            server.get(&format!("/api/v1/namespaces/default/pods/{name}")).send()?.expect(200)?.json()?;
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions.iter().any(|c| c["type"] == "PodScheduled").then_some(()))
    })?;
    server.create(
        "/apis/apps/v1/namespaces/default/deployments",
        &json!({"metadata": {"name": name}, "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        }}),
    )?;
    eventually("the Deployment's Pods", || {
        let path = format!("/api/v1/namespaces/default/pods?labelSelector=app={name}");
        let pods = server.get(&path).send()?.expect(200)?.json()?;
        Ok((pods["items"].as_array().is_some_and(|i| i.len() == 2)).then_some(()))
    })
}

#[test]
fn odd_objects_stop_no_component() -> Result<()> {
    let mut server = Server::start_as("server", &[])?;
    all_parts_go_on(&server, "before")?;
    odd(&server)?;
    all_parts_go_on(&server, "after")?;
    // The scheduler and controllers look at the odd objects, too.
    for name in ["odd-200", "odd-deepest", "amounts"] {
        eventually("the scheduler's word", || {
            let path = format!("/api/v1/namespaces/default/pods/{name}");
            Ok(server.get(&path).send()?.expect(200)?.text().contains("PodScheduled").then_some(()))
        })
        .context(name)?;
    }
    eventually("the odd Deployment's Pod", || {
        let pods =
            server.get("/api/v1/namespaces/default/pods?labelSelector=odd=x").send()?.expect(200)?.json()?;
        Ok((pods["items"].as_array().is_some_and(|i| i.len() == 1)).then_some(()))
    })?;
    // The odd Roles are looked at, too.
    let role = r#","rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["list"]}]"#;
    let binding = r#","roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"odd"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"odd"}]"#;
    for (plural, kind, rest) in
        [("clusterroles", "ClusterRole", role), ("clusterrolebindings", "ClusterRoleBinding", binding)]
    {
        let body = managed(kind, "odd", MAX_DEPTH, rest).replacen("v1", "rbac.authorization.k8s.io/v1", 1);
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{plural}");
        server.request("POST", &path).body("application/json", body).send()?.expect(201)?;
    }
    eventually("the odd user's right", || {
        let list = server.get(CONFIG_MAPS).header("Impersonate-User", "odd").send()?;
        Ok((list.status == 200).then_some(()))
    })?;
    // The code that reads the whole state at a start goes on, too.
    server.restart()?;
    all_parts_go_on(&server, "again")?;
    server.request("DELETE", "/api/v1/namespaces/odd").send()?.expect(200)?;
    eventually("the odd namespace's end", || {
        Ok((server.get("/api/v1/namespaces/odd").send()?.status == 404).then_some(()))
    })
}

/// Puts a value that cannot be read any more into the store of a stopped server, in the place of an object's bytes.
fn plant(server: &Server, group: &str, plural: &str, namespace: &str, name: &str, body: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = component::Shutdown::new();
        let store = storage::Store::open(storage::StoreConfig::new(server.path("data/store")), &shutdown)?;
        let spec = storage::ResourceSpec { group: group.into(), plural: plural.into(), indexed: Vec::new() };
        let resource = store.register(spec);
        let old = store.get(resource, namespace, name).context("nothing is there")?;
        let rv_at = body.find(r#""resourceVersion":""#).context("no place")? + r#""resourceVersion":""#.len();
        let object =
            api::NewObject { body: body.to_owned().into(), rv_at: u32::try_from(rv_at)?, ..old.data.clone() };
        store.commit(storage::Write::Update { resource, object, expect: old.revision, ttl: None }).await?;
        store.close().await;
        shutdown.finish().await;
        Ok(())
    })
}

#[test]
fn what_an_older_version_stored_too_deep_can_be_deleted() -> Result<()> {
    let gate = "--feature-gates=AllowUnsafeMalformedObjectDeletion=true";
    let mut server = Server::start_as("server", &[gate])?;
    server.create("/api/v1/namespaces", &json!({"metadata": {"name": "old"}}))?;
    let collection = "/apis/apps/v1/namespaces/old/controllerrevisions";
    let object = format!("{collection}/bad");
    for name in ["bad", "good"] {
        server.request("POST", collection).body("application/json", revision(name, 5)).send()?.expect(201)?;
    }
    server.stop(Signal::TERM)?;
    let deep = data(MAX_DEPTH * 4);
    let body = format!(
        r#"{{"metadata":{{"name":"bad","namespace":"old","uid":"u","resourceVersion":"","creationTimestamp":null}},"data":{deep},"revision":1}}"#
    );
    plant(&server, "apps", "controllerrevisions", "old", "bad", &body)?;
    server.restart()?;

    // A JSON list is made from bytes, and goes on.
    let list = server.get(collection).send()?.expect(200)?.text();
    ensure!(list.contains("\"bad\"") && list.contains("\"good\""), "{list:.300}");
    has_all("GET", &server.get(&object).send()?, &deep)?;
    let table = server.get(collection).accept(TABLE).send()?.expect(200)?.text();
    ensure!(table.contains("\"bad\"") && table.contains("\"good\""), "{table:.300}");
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    has_all("metadata", &server.get(collection).accept(partial).send()?, "good")?;
    // Requests that have to read the value fail and name it.
    let key = "/controllerrevisions/old/bad";
    let says_so = |what: &str, answer: Answer| -> Result<()> {
        ensure!(
            answer.status == 500 && answer.text().contains(key),
            "{what}: {}: {:.500}",
            answer.status,
            answer.text()
        );
        Ok(())
    };
    says_so("list in protobuf", server.get(collection).accept(PROTOBUF).send()?)?;
    says_so("protobuf", server.get(&object).accept(PROTOBUF).send()?)?;
    says_so("patch", server.patch(&object, "merge", &json!({"metadata": {"labels": {"a": "b"}}})).send()?)?;
    says_so("delete", server.request("DELETE", &object).send()?)?;
    let option = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "ignoreStoreReadErrorWithClusterBreakingPotential": true,
    });
    // Only a value that cannot be read is deleted without being read.
    server.request("DELETE", &format!("{collection}/good")).json(&option).send()?.expect(422)?;

    // A namespace with such a value tells why it stays.
    server.request("DELETE", "/api/v1/namespaces/old").send()?.expect(200)?;
    eventually("the namespace's word", || {
        let namespace = server.get("/api/v1/namespaces/old").send()?.expect(200)?.text();
        Ok((namespace.contains("NamespaceDeletionContentFailure") && namespace.contains(key)).then_some(()))
    })?;
    server.request("DELETE", &object).json(&option).send()?.expect(200)?;
    eventually("the namespace's end", || {
        Ok((server.get("/api/v1/namespaces/old").send()?.status == 404).then_some(()))
    })
}
