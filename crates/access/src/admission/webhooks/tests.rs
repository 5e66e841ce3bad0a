//! The chain with webhooks that answer over HTTPS.

use std::sync::Arc;

use api::{FeatureGates, Gvk, Schema, Status};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use component::Clock;
use serde_json::{Value, json};
use testkit::{Question, Reply, Webhook};

use crate::admission::{
    Admission, AdmissionConfig, AdmissionRequest, Chain, DeleteOptions, Operation, OperationOptions,
};
use crate::auth::UnionAuthorizer;
use crate::testing::{Alone, Fake};
use crate::webhook::Network;
use crate::{Notes, Query, RequestInfo, UserInfo};

/// Configurations of one webhook each, and the chain that asks them.
struct World {
    chain: Chain,
    hook: Webhook,
}

/// Makes a chain with hooks: the kind of each, its name, and what is special about it.
fn world(
    hooks: &[(&str, &str, Value)],
    answer: impl Fn(&Question) -> Reply + Send + Sync + 'static,
) -> World {
    let (fake, hook) = (Fake::default(), Webhook::start(answer).unwrap());
    fake.put(("", "namespaces"), json!({"metadata": {"name": "ns"}}));
    for (kind, name, special) in hooks {
        let mut of = json!({
            "name": format!("{name}.example.com"),
            "clientConfig": hook.client_config(&format!("/{name}")),
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 1,
        });
        of.as_object_mut().unwrap().extend(special.as_object().unwrap().clone());
        let resource = match *kind {
            "mutating" => "mutatingwebhookconfigurations",
            _ => "validatingwebhookconfigurations",
        };
        let object = json!({"metadata": {"name": name}, "webhooks": [of]});
        fake.put(("admissionregistration.k8s.io", resource), object);
    }
    let reader: Arc<Fake> = Arc::new(fake);
    let network = Arc::new(Network::new(Arc::<Fake>::clone(&reader), |_| true));
    let authorizer = Arc::new(UnionAuthorizer::new(&[], Arc::default(), Arc::default()));
    let gates = (FeatureGates::default(), Clock::system());
    let config = AdmissionConfig::default();
    let chain =
        Chain::new(Schema::builtin(), (reader, network), authorizer, gates, &[], &[], &config).unwrap();
    World { chain, hook }
}

/// The end of a request: its object, the warnings and the annotations.
struct Done {
    object: Result<Value, Status>,
    warnings: Vec<String>,
    annotations: Vec<(String, String)>,
}

impl World {
    /// Asks the chain about a ConfigMap, or about an object of another kind.
    async fn ask_about(&self, kind: &Gvk, resource: &str, operation: Operation, dry_run: bool) -> Done {
        let schema = Schema::builtin();
        let object = json!({"metadata": {"name": "a", "namespace": "ns"}, "data": {"k": "v"}});
        let root = schema.kind(kind).unwrap();
        let mut tree = api::codec::json::decode(schema, root, object.to_string().as_bytes()).unwrap().tree;
        let (user, notes) =
            (Arc::new(UserInfo { name: "me".into(), ..UserInfo::default() }), Notes::default());
        let info = RequestInfo {
            group: kind.group.clone(),
            version: kind.version.clone(),
            ..RequestInfo::default()
        };
        let old = tree.clone();
        let (query, deletion) = (Query::parse("fieldManager=m"), DeleteOptions::default());
        let is_deletion = operation == Operation::Delete;
        let request = AdmissionRequest {
            user: &user,
            info: &info,
            operation,
            kind,
            request_kind: kind,
            versions: &Alone,
            resource,
            subresource: "",
            namespace: "ns",
            name: "a",
            old: is_deletion.then_some(&old),
            dry_run,
            options: if is_deletion {
                OperationOptions::delete(&deletion)
            } else {
                OperationOptions::of(operation, &query)
            },
            notes: &notes,
        };
        let asked = async {
            if is_deletion {
                return self.chain.validate(&request, None).await;
            }
            self.chain.mutate(&request, &mut tree).await?;
            self.chain.validate(&request, Some(&tree)).await
        };
        let asked = asked.await;
        let mut text = Vec::new();
        api::codec::json::encode(schema, &tree, &mut text);
        let object = asked.map(|()| serde_json::from_slice(&text).unwrap());
        Done { object, warnings: notes.take_warnings(), annotations: notes.annotations() }
    }

    async fn ask(&self, operation: Operation) -> Done {
        self.ask_about(&Gvk::new("", "v1", "ConfigMap"), "configmaps", operation, false).await
    }

    /// The webhooks that were asked, in order.
    fn asked(&self) -> Vec<String> {
        let name = |q: &Question| q.path.split('?').next().unwrap_or_default().trim_matches('/').to_owned();
        self.hook.asked().iter().map(name).collect()
    }
}

fn answer(question: &Question, response: Value) -> Reply {
    let mut response = response;
    response["uid"] = question.body["request"]["uid"].clone();
    let (version, kind) = (&question.body["apiVersion"], &question.body["kind"]);
    Reply::Json(json!({"apiVersion": version, "kind": kind, "response": response}))
}

fn allowed(question: &Question) -> Reply {
    answer(question, json!({"allowed": true}))
}

fn patched(question: &Question, patch: Value) -> Reply {
    let patch = STANDARD.encode(patch.to_string());
    answer(question, json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"}))
}

#[tokio::test]
async fn patches_are_made_in_order_and_webhooks_asked_again() {
    let again = || json!({"reinvocationPolicy": "IfNeeded"});
    let hooks = [
        ("mutating", "a-again", again()),
        ("mutating", "a-once", json!({})),
        ("mutating", "b-changes", json!({})),
        ("mutating", "c-again", again()),
        ("validating", "d-looks", json!({})),
    ];
    let world = world(&hooks, |q| {
        if q.path.starts_with("/b-changes") {
            return patched(q, json!([{"op": "add", "path": "/data/b", "value": "1"}]));
        }
        allowed(q)
    });
    let done = world.ask(Operation::Create).await;
    assert_eq!(done.object.unwrap()["data"], json!({"k": "v", "b": "1"}));
    assert_eq!(world.asked(), ["a-again", "a-once", "b-changes", "c-again", "a-again", "d-looks"]);
    assert_eq!(world.hook.connections(), 2 + 3, "each webhook keeps its connection");
    let mutated = |n: usize| {
        let key = format!("mutation.webhook.admission.k8s.io/round_0_index_{n}");
        let note = done.annotations.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone()).unwrap();
        serde_json::from_str::<Value>(&note).unwrap()
    };
    assert_eq!(
        mutated(1),
        json!({"configuration": "a-once", "webhook": "a-once.example.com", "mutated": false})
    );
    assert_eq!(mutated(2)["mutated"], true);
    let asked = world.hook.asked();
    let last = &asked[5].body["request"];
    assert_eq!(last["object"]["data"]["b"], "1");
    assert_eq!(
        last["options"],
        json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "m"})
    );
    assert_eq!((&last["userInfo"]["username"], &last["oldObject"]), (&json!("me"), &Value::Null));
}

/// A webhook that does wrong.
type Evil = fn(&Question) -> Reply;

#[tokio::test]
async fn refusals_and_failures() {
    let check = async |policy: &str, evil: Evil, expected: Result<(), (u16, &str)>| {
        for kind in ["mutating", "validating"] {
            let world = world(&[(kind, "h", json!({"failurePolicy": policy}))], evil);
            let got = world.ask(Operation::Create).await.object.map(drop);
            match (got, expected) {
                (Err(got), Err((code, text))) => {
                    assert!(got.code == code && got.message.contains(text), "{kind}: {got:?}");
                }
                (got, expected) => assert_eq!(got.is_ok(), expected.is_ok(), "{kind}: {got:?}"),
            }
        }
    };
    let calling = "failed calling webhook \"h.example.com\": ";
    let failed = |why: &str| format!("{calling}failed to call webhook: {why}");
    let denied =
        |q: &Question| answer(q, json!({"allowed": false, "status": {"message": "no", "code": 418}}));
    for policy in ["Fail", "Ignore"] {
        check(policy, denied, Err((418, "admission webhook \"h.example.com\" denied the request: no"))).await;
        check(policy, allowed, Ok(())).await;
    }
    let evils: [(Evil, String); 5] = [
        (|_| Reply::Hang, "context deadline exceeded".into()),
        (|_| Reply::Close, "EOF".into()),
        (|_| Reply::Raw(500, vec![], b"oops".to_vec()), failed("an error on the server (\"oops\")")),
        (
            |_| Reply::Raw(307, vec!["Location: https://127.0.0.1:1/".into()], vec![]),
            failed("the server responded with the status code 307"),
        ),
        (
            |q| {
                Reply::Json(
                    json!({"apiVersion": q.body["apiVersion"], "kind": "AdmissionReview", "response": {"uid": "x"}}),
                )
            },
            format!("{calling}received invalid webhook response: expected response.uid="),
        ),
    ];
    for (evil, text) in evils {
        check("Fail", evil, Err((500, &text))).await;
        check("Ignore", evil, Ok(())).await;
    }
    let nonsense = |q: &Question| patched(q, json!([{"op": "replace", "path": "/metadata", "value": 7}]));
    let world = world(&[("mutating", "h", json!({}))], nonsense);
    assert_eq!(world.ask(Operation::Create).await.object.unwrap_err().code, 500);
}

#[tokio::test]
async fn a_failure_that_is_ignored_is_noted() {
    let ignore = || json!({"failurePolicy": "Ignore"});
    let world = world(&[("mutating", "m", ignore()), ("validating", "v", ignore())], |_| Reply::Close);
    let done = world.ask(Operation::Update).await;
    assert!(done.object.is_ok());
    for key in ["mutation", "validating"] {
        let key = format!("failed-open.{key}.webhook.admission.k8s.io/round_0_index_0");
        assert!(done.annotations.iter().any(|(k, _)| *k == key), "{key}: {:?}", done.annotations);
    }
}

#[tokio::test]
async fn deletions_and_dry_runs() {
    let world =
        world(&[("mutating", "m", json!({})), ("validating", "v", json!({"sideEffects": "Some"}))], |q| {
            answer(q, json!({"allowed": true, "warnings": ["mind"], "auditAnnotations": {"k": "v"}}))
        });
    let done = world.ask(Operation::Delete).await;
    assert!(done.object.is_ok());
    assert_eq!(world.asked(), ["m", "v"]);
    assert_eq!(done.warnings, ["mind"]);
    assert!(
        done.annotations.contains(&("v.example.com/k".to_owned(), "v".to_owned())),
        "{:?}",
        done.annotations
    );
    let request = world.hook.asked()[0].body["request"].clone();
    assert_eq!((&request["object"], &request["oldObject"]["data"]["k"]), (&Value::Null, &json!("v")));
    assert_eq!(request["options"]["kind"], "DeleteOptions");
    let kind = Gvk::new("", "v1", "ConfigMap");
    let dry = world.ask_about(&kind, "configmaps", Operation::Create, true).await.object.unwrap_err();
    assert_eq!(
        (dry.code, dry.message.as_str()),
        (400, "admission webhook \"v.example.com\" does not support dry run")
    );
}

#[tokio::test]
async fn conditions_and_exempt_kinds() {
    let conditions = |expression: &str| json!({"matchConditions": [{"name": "c", "expression": expression}]});
    let denied = |q: &Question| answer(q, json!({"allowed": false}));
    let check = async |expression: &str, expected: Result<(), &str>| {
        for kind in ["mutating", "validating"] {
            let world = world(&[(kind, "h", conditions(expression))], denied);
            let got = world.ask(Operation::Create).await.object.map(drop).map_err(|e| e.message);
            match (&got, expected) {
                (Err(got), Err(text)) => assert!(got.contains(text), "{got}"),
                (got, expected) => assert_eq!(got.is_ok(), expected.is_ok(), "{expression}: {got:?}"),
            }
        }
    };
    check("request.userInfo.username == 'me'", Err("denied the request")).await;
    check("request.userInfo.username != 'me'", Ok(())).await;
    check("object.data.k == 'w'", Ok(())).await;
    check("object.data.gone == 'w'", Err("no such key: gone")).await;
    let world = world(&[("mutating", "m", json!({})), ("validating", "v", json!({}))], denied);
    let kind = Gvk::new("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration");
    let done = world.ask_about(&kind, "validatingwebhookconfigurations", Operation::Update, false).await;
    assert!(done.object.is_ok(), "{:?}", done.object);
    assert!(world.asked().is_empty());
}
