//! Upstream's cases of `TestMakeEnvironmentVariables`.
//!
//! Six of its 30 are left out: two of services that are not known yet, for which the Pod's worker waits (`start.rs`); the one
//! without a lister, which is a kubelet without an API server; `nil_enableServiceLinks`, which here means the API's default;
//! and the two of several addresses, which are cases of the downward API's fields.

use api::Status;
use client::{Call, Selection};
use component::Shutdown;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::config::Detection;
use crate::node::NodeView;
use crate::objects::Seen;
use crate::testing::{self, Answers};

/// An API server with upstream's Services, and one ConfigMap and one Secret with the same data if there are any.
struct Server(Option<Value>);

impl Answers for Server {
    fn answer(&self, call: &Call) -> Result<Value, Status> {
        let kind = match &*call.resource.plural {
            "configmaps" => "ConfigMap",
            "secrets" => "Secret",
            _ => return Err(testing::not_found()),
        };
        let data = self.0.as_ref().ok_or_else(testing::not_found)?;
        let encoded = |text: &Value| {
            use base64::Engine;
            let text = text.as_str().unwrap_or_default();
            Value::String(base64::engine::general_purpose::STANDARD.encode(text))
        };
        let data: serde_json::Map<String, Value> = data
            .as_object()
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), if kind == "Secret" { encoded(v) } else { v.clone() }))
            .collect();
        Ok(json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": &*call.name}, "data": data}))
    }

    fn list(&self, call: &Call) -> Result<Vec<Value>, Status> {
        if &*call.resource.plural != "services" {
            return Ok(Vec::new());
        }
        let one = |(name, namespace, address, port): &(&str, &str, &str, u16)| {
            json!({"metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}")},
                "spec": {"clusterIP": address, "ports": [{"port": port, "protocol": "TCP"}]}})
        };
        let all = [
            ("kubernetes", "default", "1.2.3.1", 8081),
            ("test", "test1", "1.2.3.3", 8083),
            ("kubernetes", "test2", "1.2.3.4", 8084),
            ("test", "test2", "1.2.3.5", 8085),
            ("headless", "test2", "None", 8085),
            ("without", "test2", "", 8085),
            ("not-special", "default", "1.2.3.8", 8088),
        ];
        Ok(all.iter().map(one).collect())
    }
}

/// The variables of a container in a namespace.
async fn environment(
    (namespace, links): (&str, bool),
    container: Value,
    data: Option<Value>,
) -> Result<BTreeMap<String, String>, String> {
    let client = testing::client(&Arc::new(Server(data)));
    let (shutdown, services) = (Shutdown::new(), Informer::new(&client, Selection::default()));
    services.start(&shutdown);
    services.synced().await;
    let seen = Seen {
        detection: Detection::Get,
        period: std::time::Duration::from_hours(1),
        node: NodeView::new("n", Informer::new(&client, Selection::default()), 1),
    };
    let objects = Objects::new(client, shutdown.clone(), Arc::new(|_| {}), seen);
    let sources = Sources::new(&Config::new("n"), services, objects);
    let mut container = container;
    container["name"] = json!("c");
    let spec = json!({"containers": [container], "enableServiceLinks": links, "serviceAccountName": "special",
        "nodeName": "node-name"});
    let meta = json!({"name": "dapi-test-pod-name", "namespace": namespace});
    let pod: Pod = serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap();
    let allocatable = objects::quantity::ResourceList::new();
    let ips = ["1.2.3.4".to_owned(), "fd00::6".to_owned()];
    let facts = Facts { pod: &pod, pod_ips: &ips, node_ips: &[], allocatable: &allocatable };
    let made = sources.environment(&facts, &spec::containers(&pod)[0]).await;
    shutdown.stop();
    let made = made.map_err(|error| error.to_string())?;
    Ok(made.iter().cloned().collect())
}

/// The variables of a Service with a port.
fn of_service(name: &str, address: &str, port: u16) -> Vec<(String, String)> {
    [
        ("SERVICE_HOST".to_owned(), address.to_owned()),
        ("SERVICE_PORT".to_owned(), port.to_string()),
        ("PORT".to_owned(), format!("tcp://{address}:{port}")),
        (format!("PORT_{port}_TCP"), format!("tcp://{address}:{port}")),
        (format!("PORT_{port}_TCP_PROTO"), "tcp".to_owned()),
        (format!("PORT_{port}_TCP_PORT"), port.to_string()),
        (format!("PORT_{port}_TCP_ADDR"), address.to_owned()),
    ]
    .map(|(end, value)| (format!("{name}_{end}"), value))
    .into()
}

fn all(own: &[(&str, &str)], services: &[Vec<(String, String)>]) -> BTreeMap<String, String> {
    let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    own.chain(services.iter().flatten().cloned()).collect()
}

#[tokio::test]
async fn services_of_a_pod() {
    let check = async |of: (&str, bool), own: &[(&str, &str)], services: &[Vec<(String, String)>]| {
        let env: Vec<Value> = own.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let got = environment(of, json!({"env": env}), None).await.unwrap();
        assert_eq!(got, all(own, services), "{of:?}");
    };
    let api = || of_service("KUBERNETES", "1.2.3.1", 8081);
    let test = || of_service("TEST", "1.2.3.3", 8083);
    let own = [("FOO", "BAR"), ("TEST_SERVICE_HOST", "1.2.3.3"), ("TEST_SERVICE_PORT", "8083")];
    check(("test1", false), &own, &[api()]).await;
    check(("test1", false), &[("FOO", "BAZ")], &[api()]).await;
    check(("test1", true), &[("FOO", "BAZ")], &[test(), api()]).await;
    check(("test2", false), &[("FOO", "ZAP")], &[api()]).await;
    let own_api = of_service("KUBERNETES", "1.2.3.4", 8084);
    check(("test2", true), &[("FOO", "ZAP")], &[of_service("TEST", "1.2.3.5", 8085), own_api]).await;
    check(("default", false), &[], &[api()]).await;
    check(("default", true), &[], &[of_service("NOT_SPECIAL", "1.2.3.8", 8088), api()]).await;
}

#[tokio::test]
async fn references_and_fields() {
    let api = || of_service("KUBERNETES", "1.2.3.1", 8081);
    let check = async |links: bool, env: &[(&str, &str)], expected: &[(&str, &str)]| {
        let one = |(name, value): &(&str, &str)| match value.strip_prefix('@') {
            Some(path) => json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}),
            None => json!({"name": name, "value": value}),
        };
        let env: Vec<Value> = env.iter().map(one).collect();
        let got = environment(("test1", links), json!({"env": env}), None).await.unwrap();
        let services = if links { vec![of_service("TEST", "1.2.3.3", 8083), api()] } else { vec![api()] };
        assert_eq!(got, all(expected, &services));
    };
    check(
        false,
        &[
            ("POD_NAME", "@metadata.name"),
            ("POD_NAMESPACE", "@metadata.namespace"),
            ("POD_NODE_NAME", "@spec.nodeName"),
            ("POD_SERVICE_ACCOUNT_NAME", "@spec.serviceAccountName"),
            ("POD_IP", "@status.podIP"),
            ("POD_IPS", "@status.podIPs"),
        ],
        &[
            ("POD_NAME", "dapi-test-pod-name"),
            ("POD_NAMESPACE", "test1"),
            ("POD_NODE_NAME", "node-name"),
            ("POD_SERVICE_ACCOUNT_NAME", "special"),
            ("POD_IP", "1.2.3.4"),
            ("POD_IPS", "1.2.3.4,fd00::6"),
        ],
    )
    .await;
    let env = [
        ("TEST_LITERAL", "test-test-test"),
        ("POD_NAME", "@metadata.name"),
        ("OUT_OF_ORDER_TEST", "$(OUT_OF_ORDER_TARGET)"),
        ("OUT_OF_ORDER_TARGET", "FOO"),
        ("EMPTY_VAR", ""),
        ("EMPTY_TEST", "foo-$(EMPTY_VAR)"),
        ("POD_NAME_TEST2", "test2-$(POD_NAME)"),
        ("POD_NAME_TEST3", "$(POD_NAME_TEST2)-3"),
        ("LITERAL_TEST", "literal-$(TEST_LITERAL)"),
        ("SERVICE_VAR_TEST", "$(TEST_SERVICE_HOST):$(TEST_SERVICE_PORT)"),
        ("TEST_UNDEFINED", "$(UNDEFINED_VAR)"),
    ];
    let expected = |service: &'static str| {
        [
            ("TEST_LITERAL", "test-test-test"),
            ("POD_NAME", "dapi-test-pod-name"),
            ("OUT_OF_ORDER_TEST", "$(OUT_OF_ORDER_TARGET)"),
            ("OUT_OF_ORDER_TARGET", "FOO"),
            ("EMPTY_VAR", ""),
            ("EMPTY_TEST", "foo-"),
            ("POD_NAME_TEST2", "test2-dapi-test-pod-name"),
            ("POD_NAME_TEST3", "test2-dapi-test-pod-name-3"),
            ("LITERAL_TEST", "literal-test-test-test"),
            ("SERVICE_VAR_TEST", service),
            ("TEST_UNDEFINED", "$(UNDEFINED_VAR)"),
        ]
    };
    check(false, &env, &expected("$(TEST_SERVICE_HOST):$(TEST_SERVICE_PORT)")).await;
    check(true, &env, &expected("1.2.3.3:8083")).await;
}

#[tokio::test]
async fn objects_that_become_variables() {
    type Expected<'a> = Result<&'a [(&'a str, &'a str)], &'a str>;
    let check = async |container: &dyn Fn(&str) -> Value, data: Option<Value>, expected: Expected<'_>| {
        for kind in ["configMap", "secret"] {
            let made = container(kind);
            let got = environment(("test1", false), made.clone(), data.clone()).await;
            let api = of_service("KUBERNETES", "1.2.3.1", 8081);
            match expected {
                Ok(own) => assert_eq!(got, Ok(all(own, &[api])), "{made}"),
                Err(why) => {
                    let why = why.replace("KIND", if kind == "secret" { "Secret" } else { "ConfigMap" });
                    assert!(got.as_ref().is_err_and(|error| error.contains(&why)), "{made}: {got:?}");
                }
            }
        }
    };
    let key = |kind: &str, key: &str, optional: bool| {
        let of = json!({"name": "o", "key": key, "optional": optional});
        json!({"env": [{"name": "POD_NAME", "valueFrom": {format!("{kind}KeyRef"): of}}]})
    };
    let data = || Some(json!({"key": "value"}));
    check(&|kind| key(kind, "key", true), None, Ok(&[])).await;
    check(&|kind| key(kind, "other", true), data(), Ok(&[])).await;
    check(&|kind| key(kind, "key", false), data(), Ok(&[("POD_NAME", "value")])).await;
    check(&|kind| key(kind, "other", false), data(), Err("couldn't find key other in KIND test1/o")).await;
    check(&|kind| key(kind, "key", false), None, Err("not found")).await;
    let from = |kind: &str, prefixes: &[&str], optional: bool| {
        let one = |prefix: &&str| json!({"prefix": prefix, format!("{kind}Ref"): {"name": "o", "optional": optional}});
        let env = json!([{"name": "TEST_LITERAL", "value": "test-test-test"},
            {"name": "EXPANSION_TEST", "value": "$(REPLACE_ME)"}, {"name": "DUPE_TEST", "value": "ENV_VAR"}]);
        json!({"envFrom": prefixes.iter().map(one).collect::<Vec<_>>(), "env": env})
    };
    let two = || Some(json!({"REPLACE_ME": "FROM_OBJECT", "DUPE_TEST": "OBJECT"}));
    let own =
        [("TEST_LITERAL", "test-test-test"), ("DUPE_TEST", "ENV_VAR"), ("EXPANSION_TEST", "FROM_OBJECT")];
    let with = |more: &[(&'static str, &'static str)]| own.iter().chain(more).copied().collect::<Vec<_>>();
    let plain = ("REPLACE_ME", "FROM_OBJECT");
    let expected = with(&[plain, ("p_REPLACE_ME", "FROM_OBJECT"), ("p_DUPE_TEST", "OBJECT")]);
    check(&|kind| from(kind, &["", "p_"], false), two(), Ok(&expected)).await;
    let expected = with(&[plain, ("1_REPLACE_ME", "FROM_OBJECT"), ("1_DUPE_TEST", "OBJECT")]);
    check(&|kind| from(kind, &["", "1_"], false), two(), Ok(&expected)).await;
    check(&|kind| from(kind, &[""], false), None, Err("not found")).await;
    let none = [own[0], own[1], ("EXPANSION_TEST", "$(REPLACE_ME)")];
    check(&|kind| from(kind, &[""], true), None, Ok(&none)).await;
    let odd =
        [own[0], own[1], ("EXPANSION_TEST", "$(REPLACE_ME)"), ("p_1234", "abc"), ("p_1234.name", "abc")];
    let keys = Some(json!({"1234": "abc", "1234.name": "abc"}));
    check(&|kind| from(kind, &["p_"], false), keys, Ok(&odd)).await;
}
