//! One object in all its forms.

use serde_json::{Value, json};

use crate::api::{MAPS, map, names, pod, server};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

#[test]
fn json_yaml_and_protobuf() {
    let s = server();
    let made = s.create(MAPS, &map("a")).unwrap();
    let path = format!("{MAPS}/a");
    let yaml = s.get(&path).accept("application/yaml").send().unwrap().expect(200).unwrap();
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert!(yaml.text().contains("kind: ConfigMap\n"), "{}", yaml.text());
    let back =
        s.request("PUT", &path).body("application/yaml", yaml.body).send().unwrap().expect(200).unwrap();
    assert_eq!(back.json().unwrap(), made);
    let proto = s.get(&path).accept(PROTOBUF).send().unwrap().expect(200).unwrap();
    assert_eq!(proto.header("content-type"), PROTOBUF);
    assert!(proto.body.starts_with(b"k8s\0"));
    let back =
        s.request("PUT", &path).body(PROTOBUF, proto.body.clone()).send().unwrap().expect(200).unwrap();
    assert_eq!(back.json().unwrap(), made);
    let list = s.get(MAPS).accept(PROTOBUF).send().unwrap().expect(200).unwrap();
    assert!(list.body.starts_with(b"k8s\0") && list.body.windows(13).any(|w| w == b"ConfigMapList"));
    let missing = s.get(&format!("{MAPS}/none")).accept(PROTOBUF).send().unwrap().expect(404).unwrap();
    assert!(missing.body.starts_with(b"k8s\0"), "errors too");
    // JSON is the answer to any type, and to a request that names none.
    for accept in ["*/*", "application/*", "application/json", "text/html;q=0.1,application/json;q=0.9"] {
        assert_eq!(
            s.get(&path).accept(accept).send().unwrap().header("content-type"),
            "application/json",
            "{accept}"
        );
    }
    s.get(&path).accept("text/html").send().unwrap().expect(406).unwrap();
    let wrong = s.request("POST", MAPS).body("text/plain", "a: b").send().unwrap().expect(415).unwrap();
    assert!(
        wrong.text().contains("application/vnd.kubernetes.protobuf"),
        "it says what it takes: {}",
        wrong.text()
    );
    let pretty = s.get(&format!("{path}?pretty=true")).send().unwrap().text();
    assert!(pretty.contains("\n  \"kind\": \"ConfigMap\""), "{pretty}");
}

#[test]
fn computed_lists_in_every_form() {
    let s = server();
    let list = "/api/v1/componentstatuses";
    let of = |accept: &str| s.get(list).accept(accept).send().unwrap();
    // The order of the items is not defined.
    let sorted = |items: &Value, name: &str| {
        let mut all: Vec<_> = items.as_array().unwrap().iter().map(|i| i.pointer(name).cloned()).collect();
        all.sort_by_key(|n| n.as_ref().map(Value::to_string));
        all
    };
    let plain = of("application/json").expect(200).unwrap().json().unwrap();
    assert_eq!(plain["kind"], "ComponentStatusList");
    let names = sorted(&plain["items"], "/metadata/name");
    assert_eq!(names.len(), 3);
    let table = of(TABLE).expect(200).unwrap().json().unwrap();
    assert_eq!(table["columnDefinitions"][1]["name"], "Status");
    assert_eq!(sorted(&table["rows"], "/cells/0"), names);
    let partial = of(PARTIAL_LIST).expect(200).unwrap().json().unwrap();
    assert_eq!(partial["kind"], "PartialObjectMetadataList");
    assert_eq!(sorted(&partial["items"], "/metadata/name"), names);
    assert!(partial["items"].as_array().unwrap().iter().all(|i| i.get("conditions").is_none()));
    of(PARTIAL).expect(406).unwrap();
    assert!(of(PROTOBUF).expect(200).unwrap().body.starts_with(b"k8s\0"));
}

#[test]
fn as_tables() {
    let s = server();
    s.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))
        .unwrap();
    let pods = "/api/v1/namespaces/default/pods";
    s.create(pods, &pod("p")).unwrap();
    let answer = s.get(pods).accept(TABLE).send().unwrap().expect(200).unwrap();
    assert_eq!(answer.header("content-type"), "application/json");
    let table = answer.json().unwrap();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let of_claims = s.get(claims).accept(TABLE).send().unwrap().expect(200).unwrap().json().unwrap();
    assert_eq!(
        of_claims["columnDefinitions"][1]["description"],
        "phase represents the current phase of PersistentVolumeClaim.",
        "without the values that OpenAPI adds"
    );
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let columns =
        columns.map(|c| (c["name"].as_str().unwrap(), c["priority"].as_i64().unwrap())).collect::<Vec<_>>();
    assert_eq!(
        columns,
        [
            ("Name", 0),
            ("Ready", 0),
            ("Status", 0),
            ("Restarts", 0),
            ("Age", 0),
            ("IP", 1),
            ("Node", 1),
            ("Nominated Node", 1),
            ("Readiness Gates", 1)
        ]
    );
    let row = &table["rows"][0];
    assert_eq!(
        row["cells"].as_array().unwrap()[..4],
        [json!("p"), json!("0/1"), json!("Pending"), json!("0")]
    );
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    let with = |include: &str| {
        let path = format!("{pods}?includeObject={include}");
        s.get(&path).accept(TABLE).send().unwrap().expect(200).unwrap().json().unwrap()
    };
    assert!(with("None")["rows"][0]["object"].is_null());
    assert_eq!(with("Object")["rows"][0]["object"]["kind"], "Pod");
    s.get(&format!("{pods}?includeObject=Some")).accept(TABLE).send().unwrap().expect(400).unwrap();
    let printed = s.kubectl(&["get", "pods", "-o", "wide"]).unwrap();
    assert!(printed.starts_with("NAME   READY   STATUS    RESTARTS   AGE   IP       NODE"), "{printed}");
    // A client names the older form after the newer one.
    let many = format!("{},{TABLE},application/json", TABLE.replace("v=v1;", "v=v1beta1;"));
    assert_eq!(s.get(pods).accept(&many).send().unwrap().json().unwrap()["kind"], "Table");
}

#[test]
fn metadata_alone() {
    let s = server();
    s.create(MAPS, &map("a")).unwrap();
    let one =
        s.get(&format!("{MAPS}/a")).accept(PARTIAL).send().unwrap().expect(200).unwrap().json().unwrap();
    assert_eq!((&one["kind"], one.get("data")), (&json!("PartialObjectMetadata"), None));
    let list = s.get(MAPS).accept(PARTIAL_LIST).send().unwrap().expect(200).unwrap().json().unwrap();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert!(names(&list).contains(&"a"));
    assert!(list["items"][0].get("data").is_none());
    let proto = PARTIAL.replace("json", "vnd.kubernetes.protobuf");
    let one = s.get(&format!("{MAPS}/a")).accept(&proto).send().unwrap().expect(200).unwrap();
    assert!(one.body.windows(21).any(|w| w == b"PartialObjectMetadata"));
    // A single object is no list, and a list no single object.
    s.get(&format!("{MAPS}/a")).accept(PARTIAL_LIST).send().unwrap().expect(406).unwrap();
    s.get(MAPS).accept(PARTIAL).send().unwrap().expect(406).unwrap();
}

#[test]
fn compressed_where_it_pays() {
    let s = server();
    for i in 0..40 {
        let mut map = map(&format!("m{i}"));
        map["data"]["k"] = "x".repeat(5000).into();
        s.create(MAPS, &map).unwrap();
    }
    let zipped = s.get(MAPS).header("Accept-Encoding", "gzip").send().unwrap().expect(200).unwrap();
    assert_eq!((zipped.header("content-encoding"), zipped.header("vary")), ("gzip", "Accept-Encoding"));
    assert!(zipped.body.len() < 50_000);
    let plain = s.get(MAPS).send().unwrap();
    assert_eq!(plain.header("content-encoding"), "");
    let unzipped = s.get(MAPS).decoded().send().unwrap();
    assert_eq!(unzipped.json().unwrap(), plain.json().unwrap());
    let small = s.get(&format!("{MAPS}/m0?limit=1")).header("Accept-Encoding", "gzip").send().unwrap();
    assert_eq!(small.header("content-encoding"), "", "a small one is faster plain");
}

#[test]
fn headers_of_every_answer() {
    let s = server();
    let answer = s.get(MAPS).send().unwrap();
    assert_eq!(answer.header("cache-control"), "no-cache, private");
    assert!(answer.header("audit-id").len() == 36);
    let named = s.get(MAPS).header("Audit-ID", "mine").send().unwrap();
    assert_eq!(named.header("audit-id"), "mine");
    let old = s.get("/api/v1/componentstatuses").send().unwrap().expect(200).unwrap();
    assert_eq!(old.header("warning"), "299 - \"v1 ComponentStatus is deprecated in v1.19+\"");
    s.request("POST", &format!("{MAPS}/a")).json(&map("a")).send().unwrap().expect(405).unwrap();
    s.request("TRACE", MAPS).send().unwrap().expect(405).unwrap();
    s.get("/nothing").send().unwrap().expect(404).unwrap();
    let head = s.request("HEAD", MAPS).send().unwrap().expect(405).unwrap();
    assert!(head.body.is_empty(), "{head:?}");
}
