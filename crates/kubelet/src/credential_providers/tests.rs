//! Providers that are real programs, and an API server that has one account.

use std::path::Path;

use api::Status;
use client::{Call, Verb};
use serde_json::{Value, json};

use super::exec::tests::script;
use super::*;
use crate::testing::{self, Answers};

/// An API server that has one account, and gives tokens of it; it notes what is asked for.
#[derive(Default)]
struct OneAccount(Mutex<Vec<Value>>);

impl Answers for OneAccount {
    fn answer(&self, call: &Call) -> Result<Value, Status> {
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let asked = json!({"name": &*call.name, "namespace": &*call.namespace, "subresource": &*call.subresource,
            "uid": body["metadata"]["uid"], "spec": body["spec"]});
        self.0.lock().push(asked);
        match (call.verb, &*call.name) {
            (Verb::Get, "robot") => Ok(json!({"metadata": {"name": "robot", "namespace": "n", "uid": "u1",
                "annotations": {"a/required": "r", "a/optional": "o", "a/other": "x"}}})),
            (Verb::Create, "robot") => Ok(json!({"metadata": {}, "spec": {"audiences": []},
                "status": {"token": "tok", "expirationTimestamp": "2999-01-01T00:00:00Z"}})),
            _ => Err(testing::not_found()),
        }
    }
}

/// A program that counts its runs in the file `runs` and answers with these fields.
fn counting(directory: &Path, name: &str, fields: &str) {
    let runs = directory.join("runs");
    let lines = format!(
        "read -r request\necho \"$request\" >> {}\nsleep 0.05\necho '{{\"kind\":\"CredentialProviderResponse\",\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\",{fields}}}'",
        runs.display()
    );
    script(directory, name, &lines);
}

fn runs(directory: &Path) -> usize {
    std::fs::read_to_string(directory.join("runs")).unwrap_or_default().lines().count()
}

/// The providers of a directory, each with its name, images and further fields.
fn providers(directory: &Path, all: &Value, standalone: bool) -> (Providers, Arc<OneAccount>) {
    let mut all = all.clone();
    for provider in all.as_array_mut().unwrap() {
        provider["apiVersion"] = json!("credentialprovider.kubelet.k8s.io/v1");
        provider["defaultCacheDuration"] = json!("0s");
    }
    let file = json!({"kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1", "providers": all});
    let config = directory.join("config.json");
    std::fs::write(&config, file.to_string()).unwrap();
    let configured = CredentialProviders::read(&config, directory, true).unwrap();
    let server = Arc::new(OneAccount::default());
    let client = testing::client(&server);
    (Providers::new(&configured, &client, Clock::system(), standalone, Metrics::default()), server)
}

fn pod(account: &str) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "pod-uid"},
        "spec": {"serviceAccountName": account, "containers": []}}))
    .unwrap()
}

/// The places of what is given for an image.
async fn places(providers: &Providers, account: &str, image: &str) -> Vec<String> {
    let all = providers.credentials(&pod(account), image).await;
    all.into_iter().flat_map(|p| p.logins).map(|(place, _, _)| place).collect()
}

#[tokio::test]
async fn answers_are_kept_as_they_say() {
    let auth = "\"auth\":{\"r.test\":{\"username\":\"u\",\"password\":\"p\"}}";
    for (kind, keep, images, want) in [
        ("Image", "\"cacheDuration\":\"1h\",", ["r.test/a", "r.test/a", "r.test/b"], 2),
        ("Registry", "\"cacheDuration\":\"1h\",", ["r.test/a", "r.test/b", "s.test/a"], 2),
        ("Global", "\"cacheDuration\":\"1h\",", ["r.test/a", "r.test/b", "s.test/a"], 1),
        ("Image", "\"cacheDuration\":\"0s\",", ["r.test/a", "r.test/a", "r.test/a"], 3),
        ("Image", "\"cacheDuration\":\"-1h\",", ["r.test/a", "r.test/a", "r.test/a"], 3),
        ("Image", "", ["r.test/a", "r.test/a", "r.test/a"], 3),
        ("Pod", "\"cacheDuration\":\"1h\",", ["r.test/a", "r.test/a", "r.test/a"], 3),
    ] {
        let dir = tempfile::tempdir().unwrap();
        counting(dir.path(), "p", &format!("\"cacheKeyType\":\"{kind}\",{keep}{auth}"));
        let (providers, _) = providers(dir.path(), &json!([{"name": "p", "matchImages": ["*.test"]}]), false);
        for image in images {
            let places = places(&providers, "", image).await;
            assert_eq!(places.len(), usize::from(kind != "Pod"), "{kind} {keep}");
        }
        assert_eq!(runs(dir.path()), want, "{kind} {keep}");
    }
}

#[tokio::test]
async fn those_are_asked_whose_image_it_is_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let fields = |place: &str| {
        format!(
            "\"cacheKeyType\":\"Image\",\"auth\":{{\"{place}\":{{\"username\":\"u\",\"password\":\"p\"}}}}"
        )
    };
    counting(dir.path(), "a", &fields("a.test"));
    counting(dir.path(), "b", &fields("b.test"));
    script(dir.path(), "bad", "echo no >&2; exit 1");
    let all = json!([
        {"name": "a", "matchImages": ["a.test/x", "o.test"]},
        {"name": "bad", "matchImages": ["*.test"]},
        {"name": "b", "matchImages": ["b.test:5000", "o.test"]},
    ]);
    let (providers, _) = providers(dir.path(), &all, false);
    assert_eq!(places(&providers, "", "a.test/x/y").await, ["a.test"]);
    assert!(places(&providers, "", "a.test/z").await.is_empty());
    assert_eq!(places(&providers, "", "b.test:5000/z").await, ["b.test"]);
    assert!(places(&providers, "", "b.test/z").await.is_empty());
    assert_eq!(places(&providers, "", "o.test/z").await, ["a.test", "b.test"], "in their order");
    let before = runs(dir.path());
    let many = join_all((0..5).map(|_| places(&providers, "", "a.test/x"))).await;
    assert!(many.iter().all(|one| one == &["a.test"]));
    assert_eq!(runs(dir.path()) - before, 1, "at the same time they are one call");
    let mut page = component::metrics::Page::default();
    providers.metrics.write(&mut page);
    let text = page.text();
    for line in [
        "kubelet_credential_provider_plugin_errors_total{plugin_name=\"bad\"} 5",
        "kubelet_credential_provider_plugin_duration_count{plugin_name=\"a\"} 3",
        "kubelet_credential_provider_config_info{hash=\"sha256:",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn accounts_show_their_tokens() {
    let fields = |password: &str| {
        format!(
            "\"cacheKeyType\":\"Image\",\"cacheDuration\":\"1h\",\"auth\":{{\"r.test\":{{\"username\":\"u\",\"password\":\"{password}\"}}}}"
        )
    };
    let tokens = |cache: &str, required: bool, keys: &[&str]| {
        json!([{"name": "p", "matchImages": ["r.test"], "tokenAttributes": {
            "serviceAccountTokenAudience": "aud", "cacheType": cache, "requireServiceAccount": required,
            "requiredServiceAccountAnnotationKeys": keys,
            "optionalServiceAccountAnnotationKeys": ["a/optional", "a/missing"]}}])
    };
    let dir = tempfile::tempdir().unwrap();
    counting(dir.path(), "p", &fields("p"));
    let (with, server) = providers(dir.path(), &tokens("ServiceAccount", true, &["a/required"]), false);
    let got = with.credentials(&pod("robot"), "r.test/a").await;
    let account = Account { namespace: "n".into(), name: "robot".into(), uid: "u1".into() };
    assert_eq!(got[0].account, Some(account));
    let request: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("runs")).unwrap()).unwrap();
    assert_eq!(request["serviceAccountToken"], "tok");
    assert_eq!(request["serviceAccountAnnotations"], json!({"a/required": "r", "a/optional": "o"}));
    let asked = server.0.lock()[1].clone();
    assert_eq!(asked["uid"], "u1");
    assert_eq!(
        asked["spec"],
        json!({"audiences": ["aud"], "expirationSeconds": 3600, "boundObjectRef":
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-uid"}})
    );
    with.credentials(&pod("robot"), "r.test/a").await;
    assert_eq!(runs(dir.path()), 1, "the account's answer is kept");
    assert!(with.credentials(&pod(""), "r.test/a").await.is_empty(), "an account is required");
    assert!(with.credentials(&pod("nobody"), "r.test/a").await.is_empty(), "it is not there");

    let (with, _) = providers(dir.path(), &tokens("Token", false, &[]), false);
    assert_eq!(with.credentials(&pod(""), "r.test/a").await[0].account, None, "without an account");
    let (with, _) = providers(dir.path(), &tokens("Token", true, &["a/none"]), false);
    assert!(with.credentials(&pod("robot"), "r.test/a").await.is_empty(), "an annotation is required");
    let (with, _) = providers(dir.path(), &tokens("Token", true, &[]), true);
    assert!(with.credentials(&pod("robot"), "r.test/a").await.is_empty(), "there is no API server");

    counting(dir.path(), "p", &fields("tok"));
    let (with, _) = providers(dir.path(), &tokens("ServiceAccount", true, &[]), false);
    assert!(with.credentials(&pod("robot"), "r.test/a").await.is_empty(), "the token is no password");
    let (with, _) = providers(dir.path(), &tokens("Token", true, &[]), false);
    assert_eq!(with.credentials(&pod("robot"), "r.test/a").await[0].logins[0].2, "tok");
}
