//! Authentication and reviews as the pipe calls them.

use std::sync::Arc;

use api::{Gvk, Schema, Struct};
use component::Clock;
use http::Request;
use http::request::Parts;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::node::NodeAuthorizer;
use super::rbac::{Binding, Change, RbacIndex, Role, RoleRef, Rule, Subject};
use super::token::{Bound, Claims, Ref, TokenService};
use super::*;
use crate::UserInfo;
use crate::notes::Notes;
use crate::pki::{Authority, Profile};
use crate::reader::Reader;
use crate::testing::Fake;

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

struct World {
    authenticator: UnionAuthenticator,
    reviews: Reviews,
    tokens: Arc<TokenService>,
    ca: Authority,
    start: Timestamp,
}

fn world() -> World {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = Clock::from(start);
    let fake = Fake::default();
    let meta =
        |namespace: &str, name: &str, uid: &str| json!({ "namespace": namespace, "name": name, "uid": uid });
    fake.put(("", "serviceaccounts"), json!({ "metadata": meta("a", "robot", "u1") }));
    fake.put(("", "nodes"), json!({ "metadata": meta("", "n", "u3") }));
    fake.put(
        ("", "pods"),
        json!({
            "metadata": meta("a", "p", "u2"),
            "spec": { "nodeName": "n", "serviceAccountName": "robot" },
        }),
    );
    let reader: Arc<dyn Reader> = Arc::new(fake);
    let rbac = RbacIndex::default();
    rbac.apply([
        Change::Role(
            "".into(),
            "view".into(),
            Some(Role { rules: vec![Rule::resources(&["get"], "", &["pods"])] }),
        ),
        Change::Binding(
            "".into(),
            "bob".into(),
            Some(Binding {
                name: "bob".into(),
                namespace: "".into(),
                subjects: vec![Subject { kind: "User".into(), name: "bob".into(), ..Subject::default() }],
                role_ref: RoleRef { kind: "ClusterRole".into(), name: "view".into(), api_group: "".into() },
            }),
        ),
    ]);
    let modes = vec![AuthorizationMode::Node, AuthorizationMode::Rbac];
    let authorizer =
        Arc::new(UnionAuthorizer::new(&modes, Arc::new(NodeAuthorizer::default()), Arc::new(rbac)));
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let signer = SigningKey::from_pem(&key).unwrap();
    let tokens = Arc::new(TokenService::new(&[ISSUER], vec![ISSUER.into()], signer, vec![], reader.clone()));
    let ca = Authority::generate("kubernetes", start).unwrap();
    let config = AuthenticationConfig {
        client_ca: super::Authorities::new(vec![ca.certificate()]).unwrap(),
        front_proxies: None,
        anonymous: true,
        clock,
    };
    let bearers = Arc::new(BearerTokens::new(tokens.clone(), clock));
    World {
        authenticator: UnionAuthenticator::new(config, bearers.clone(), authorizer.clone()),
        reviews: Reviews::new(
            Schema::builtin(),
            authorizer,
            bearers,
            reader,
            clock,
            0,
            Some(super::nobody()),
        ),
        tokens,
        ca,
        start,
    }
}

fn request(token: &str) -> Parts {
    let mut request = Request::builder().uri("/api");
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.body(()).unwrap().into_parts().0
}

fn robot(world: &World) -> String {
    let account = Ref { name: "robot".into(), uid: "u1".into() };
    let claims = Claims::new(ISSUER, "a", account, Bound::No, vec![ISSUER.into()], world.start, 600, None);
    world.tokens.sign(&claims).unwrap()
}

#[tokio::test]
async fn callers() {
    let world = world();
    let stranger = Authority::generate("kubernetes", world.start).unwrap();
    let profile = Profile::client("ann", Some("admins"));
    let good = world.ca.issue(&profile, world.start).unwrap().certificate();
    let foreign = stranger.issue(&profile, world.start).unwrap().certificate();
    let late =
        world.ca.issue(&profile, world.start - SignedDuration::from_hours(366 * 24)).unwrap().certificate();
    let serving = Profile::serving("ann", Some("admins"), vec!["localhost".into()], vec![]);
    let serving = world.ca.issue(&serving, world.start).unwrap().certificate();
    let token = robot(&world);
    let cases = [
        ("", None, Some("system:anonymous system:unauthenticated")),
        ("", Some(good.clone()), Some("ann admins,system:authenticated")),
        ("junk", Some(good), Some("ann admins,system:authenticated")),
        ("", Some(foreign.clone()), None),
        ("", Some(late), None),
        ("", Some(serving), None),
        ("junk", None, None),
        (
            token.as_str(),
            None,
            Some(
                "system:serviceaccount:a:robot system:serviceaccounts,system:serviceaccounts:a,system:authenticated",
            ),
        ),
        (
            token.as_str(),
            Some(foreign),
            Some(
                "system:serviceaccount:a:robot system:serviceaccounts,system:serviceaccounts:a,system:authenticated",
            ),
        ),
    ];
    for (i, (token, certificate, want)) in cases.into_iter().enumerate() {
        let chain: Option<Vec<_>> = certificate.map(|c| vec![c]);
        // Twice: the second result comes from the cache.
        for _ in 0..2 {
            let got = world
                .authenticator
                .authenticate(&request(token), chain.as_deref(), &Notes::default())
                .get()
                .await;
            let got = got.map(|u| format!("{} {}", u.name, u.groups.join(","))).map_err(|s| s.code);
            assert_eq!(got.as_deref(), want.ok_or(&401), "case {i}");
        }
    }
}

fn parse(group: &str, kind: &str, json: Value) -> Struct {
    let schema = Schema::builtin();
    let root = schema.kind(&Gvk::new(group, "v1", kind)).unwrap();
    api::codec::json::decode(schema, root, json.to_string().as_bytes()).unwrap().tree
}

fn print(tree: &Struct) -> Value {
    let mut out = Vec::new();
    api::codec::json::encode(Schema::builtin(), tree, &mut out);
    serde_json::from_slice(&out).unwrap()
}

async fn review(world: &World, kind: &str, json: Value) -> Result<Value, String> {
    let group = if matches!(kind, "TokenReview" | "SelfSubjectReview") {
        "authentication.k8s.io"
    } else {
        "authorization.k8s.io"
    };
    let mut tree = parse(group, kind, json);
    let caller = Arc::new(UserInfo { name: "bob".into(), groups: vec!["g".into()], ..UserInfo::default() });
    let resource = format!("{}s", kind.to_lowercase());
    let notes = Notes::default();
    world.reviews.review(&resource, &caller, "", &mut tree, &notes).await.map_err(|s| s.message)?;
    Ok(print(&tree)["status"].clone())
}

#[tokio::test]
async fn reviews() {
    let world = world();
    let attributes = |verb: &str| json!({ "verb": verb, "resource": "pods", "namespace": "a" });
    let reason = "RBAC: allowed by ClusterRoleBinding \"bob\" of ClusterRole \"view\" to User \"bob\"";
    let cases = [
        ("TokenReview", json!({ "token": "junk" }), json!({ "user": {}, "error": "invalid bearer token" })),
        (
            "TokenReview",
            json!({ "token": " ", "audiences": ["x"] }),
            json!({
                "authenticated": true,
                "user": { "username": "system:anonymous", "groups": ["system:unauthenticated"] },
                "audiences": ["x"],
            }),
        ),
        ("SelfSubjectReview", Value::Null, json!({ "userInfo": { "username": "bob", "groups": ["g"] } })),
        (
            "SelfSubjectAccessReview",
            json!({ "resourceAttributes": attributes("get") }),
            json!({ "allowed": true, "reason": reason }),
        ),
        (
            "SelfSubjectAccessReview",
            json!({ "resourceAttributes": attributes("list") }),
            json!({ "allowed": false }),
        ),
        (
            "SubjectAccessReview",
            json!({ "user": "eve", "resourceAttributes": attributes("get") }),
            json!({ "allowed": false }),
        ),
        (
            "SubjectAccessReview",
            json!({ "groups": ["system:masters"], "nonResourceAttributes": { "verb": "get", "path": "/metrics" } }),
            json!({ "allowed": true }),
        ),
        (
            "SelfSubjectRulesReview",
            json!({ "namespace": "a" }),
            json!({
                "resourceRules": [{ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] }], "nonResourceRules": [], "incomplete": false,
            }),
        ),
    ];
    for (kind, spec, want) in cases {
        let body = if spec.is_null() { json!({}) } else { json!({ "spec": spec }) };
        assert_eq!(review(&world, kind, body.clone()).await, Ok(want), "{kind} {body}");
    }
    let status = review(
        &world,
        "TokenReview",
        json!({ "spec": { "token": robot(&world), "audiences": [ISSUER, "x"] } }),
    )
    .await
    .unwrap();
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!([ISSUER])));
    assert_eq!(status["user"]["username"], "system:serviceaccount:a:robot");
    assert_eq!(
        review(&world, "SubjectAccessReview", json!({ "spec": { "user": "eve" } })).await,
        Err(".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified".into())
    );
}

#[tokio::test]
async fn token_requests() {
    let mut world = world();
    let account = parse(
        "",
        "ServiceAccount",
        json!({ "metadata": { "namespace": "a", "name": "robot", "uid": "u1" } }),
    );
    let ask = |spec: Value| -> Result<Value, String> {
        let mut tree = parse("authentication.k8s.io", "TokenRequest", json!({ "spec": spec }));
        let caller = Arc::new(UserInfo::default());
        world.reviews.issue_token(&caller, &account, &mut tree).map_err(|s| s.message)?;
        Ok(print(&tree))
    };
    let pod = |name: &str, uid: &str| json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid });
    let made = ask(json!({ "expirationSeconds": 3607, "boundObjectRef": pod("p", "u2") })).unwrap();
    assert_eq!(made["spec"]["audiences"], json!([ISSUER]));
    assert_eq!(made["status"]["expirationTimestamp"], "2026-01-01T01:00:07Z");
    let token = made["status"]["token"].as_str().unwrap();
    let claims = claims_of(&made);
    let second = world.start.as_second();
    assert_eq!(claims.kubernetes.warnafter, Some(second + 3607));
    assert_eq!(claims.exp, second + 365 * 24 * 60 * 60, "clients that never read the file again go on");
    assert_eq!(claims.kubernetes.node, Some(Ref { name: "n".into(), uid: "u3".into() }));
    assert!(world.authenticator.authenticate(&request(token), None, &Notes::default()).get().await.is_ok());
    let refused = [
        (
            json!({ "expirationSeconds": 1 }),
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
        ),
        (json!({ "boundObjectRef": pod("q", "") }), "pods \"q\" not found"),
        (
            json!({ "boundObjectRef": pod("p", "u9") }),
            "Operation cannot be fulfilled on Pod \"p\": the UID in the bound object reference (u9) does not match the UID in record. The object might have been deleted and then recreated",
        ),
        (
            json!({ "boundObjectRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" } }),
            "cannot bind token to object of type apps/v1, Kind=Deployment",
        ),
    ];
    for (spec, want) in refused {
        assert_eq!(ask(spec).map(|_| ()), Err(want.into()));
    }
    world.reviews = world.reviews.extending(false);
    let spec = json!({ "expirationSeconds": 3607, "boundObjectRef": pod("p", "u2") });
    let mut tree = parse("authentication.k8s.io", "TokenRequest", json!({ "spec": spec }));
    world.reviews.issue_token(&Arc::default(), &account, &mut tree).unwrap();
    let claims = claims_of(&print(&tree));
    assert_eq!((claims.kubernetes.warnafter, claims.exp), (None, second + 3607), "as long as was asked for");
}

/// The claims of the token in an answer.
fn claims_of(made: &Value) -> Claims {
    let token = made["status"]["token"].as_str().unwrap();
    let payload = base64::Engine::decode(
        &base64::engine::general_purpose::URL_SAFE_NO_PAD,
        token.split('.').nth(1).unwrap(),
    );
    serde_json::from_slice(&payload.unwrap()).unwrap()
}
