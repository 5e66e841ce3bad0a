//! Users of kubeconfigs with real programs for their credentials: of webhooks, and of components that ask an API server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{Client, Config, Kubeconfig, Remote};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};
use testkit::{Answer, Question, Reply, Server, Webhook};

use crate::api::{MAPS, map, server};

/// A program that gives what a file beside it says, counts its runs and keeps its question.
fn plugin(dir: &Path, status: &Value) -> PathBuf {
    let document =
        json!({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": status});
    fs::write(dir.join("status"), document.to_string()).unwrap();
    let file = dir.join("plugin");
    let text = format!(
        "#!/bin/sh\ncd {}\necho run >> runs\nprintf %s \"$KUBERNETES_EXEC_INFO\" > question\n[ -f fails ] && exit 7\ncat status\n",
        dir.display()
    );
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

fn runs(dir: &Path) -> usize {
    fs::read_to_string(dir.join("runs")).unwrap_or_default().lines().count()
}

fn reviewed(question: &Question) -> Reply {
    let uid = &question.body["request"]["uid"];
    let response = json!({"uid": uid, "allowed": true});
    Reply::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

/// A server whose validating webhooks have the users of a kubeconfig.
fn with_users(dir: &Path, users: &Value) -> Server {
    fs::write(dir.join("hooks"), json!({"users": users}).to_string()).unwrap();
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": dir.join("hooks"),
        }}],
    });
    fs::write(dir.join("admission"), configuration.to_string()).unwrap();
    Server::start(&[&format!("--admission-control-config-file={}", dir.join("admission").display())]).unwrap()
}

fn configure(s: &Server, client_config: &Value) {
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": "default"}});
    let of = json!({
        "name": "a.example.com", "clientConfig": client_config, "rules": [rule], "sideEffects": "None",
        "namespaceSelector": selector, "admissionReviewVersions": ["v1"],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    s.create(path, &json!({"metadata": {"name": "a"}, "webhooks": [of]})).unwrap();
}

fn create(s: &Server, name: &str) -> Answer {
    s.request("POST", MAPS).json(&map(name)).send().unwrap()
}

fn headers(question: &Question, name: &str) -> Vec<String> {
    question.header(name).map(str::to_owned).collect()
}

#[test]
fn a_program_gives_the_credentials_of_a_webhook() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let program = plugin(at, &json!({"token": "old"}));
    let exec = json!({
        "command": program, "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "provideClusterInfo": true, "args": null, "env": null,
    });
    let user = json!({
        "exec": exec, "as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"x/Y": ["z"]},
    });
    let s = with_users(at, &json!([{"name": "127.0.0.1:*", "user": {}}, {"name": "*", "user": user}]));
    // It refuses the token that it gets first.
    let hook = Webhook::start(|question| match headers(question, "authorization")[..] {
        [ref one] if one == "Bearer old" => Reply::Raw(401, Vec::new(), Vec::new()),
        _ => reviewed(question),
    });
    let hook = hook.unwrap();
    configure(&s, &hook.client_config("/x"));
    create(&s, "a").expect(500).unwrap();
    assert_eq!(runs(at), 2, "once for the token, and once since that was refused");
    fs::write(at.join("fails"), "").unwrap();
    create(&s, "a").expect(500).unwrap();
    let asked = hook.asked();
    assert_eq!(headers(&asked[0], "authorization"), ["Bearer old"]);
    assert_eq!(headers(&asked[0], "impersonate-user"), ["jane"]);
    assert_eq!(headers(&asked[0], "impersonate-uid"), ["7"]);
    assert_eq!(headers(&asked[0], "impersonate-group"), ["a", "b"]);
    assert_eq!(headers(&asked[0], "impersonate-extra-x%2fy"), ["z"]);
    let question: Value = serde_json::from_slice(&fs::read(at.join("question")).unwrap()).unwrap();
    let cluster = json!({
        "server": format!("https://{}", hook.address()), "certificate-authority-data": hook.bundle(), "config": null,
    });
    assert_eq!(question["spec"], json!({"interactive": false, "cluster": cluster}));

    // The program says something else now, and is asked since the server refused once more.
    fs::remove_file(at.join("fails")).unwrap();
    plugin(at, &json!({"token": "new"}));
    create(&s, "a").expect(500).unwrap();
    create(&s, "a").expect(201).unwrap();
    let before = runs(at);
    create(&s, "b").expect(201).unwrap();
    assert_eq!(runs(at), before, "what it gave is kept");
    assert_eq!(headers(hook.asked().last().unwrap(), "authorization"), ["Bearer new"]);
}

#[test]
fn failures_of_a_program_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let program = plugin(dir.path(), &json!({"token": "a"}));
    fs::write(dir.path().join("fails"), "").unwrap();
    let exec = |version: &str| json!({"command": program, "apiVersion": version, "interactiveMode": "Never"});
    let check = |user: &Value, expected: &str| {
        let s = with_users(dir.path(), &json!([{"name": "*", "user": user}]));
        let hook = Webhook::start(reviewed).unwrap();
        configure(&s, &hook.client_config("/x"));
        let told = create(&s, "a").expect(500).unwrap().json().unwrap();
        let url = format!("https://{}/x?timeout=10s", hook.address());
        let expected = format!(
            "Internal error occurred: failed calling webhook \"a.example.com\": {}",
            expected.replace("URL", &url)
        );
        assert_eq!(told["message"], expected);
        assert_eq!(hook.asked().len(), 0);
    };
    let failed = format!(
        "failed to call webhook: Post \"URL\": getting credentials: exec: executable {} failed with exit code 7",
        program.display()
    );
    check(&json!({"exec": exec("client.authentication.k8s.io/v1")}), &failed);
    check(
        &json!({"exec": exec("client.authentication.k8s.io/v2")}),
        "failed to call webhook: could not get REST client: exec plugin: invalid apiVersion \"client.authentication.k8s.io/v2\"",
    );
}

#[test]
fn a_program_gives_the_credentials_of_a_component() {
    let s = server();
    let dir = tempfile::tempdir().unwrap();
    let admin = Kubeconfig::read(&s.path("kubeconfig")).unwrap();
    let (cluster, user) = (&admin.clusters[0].cluster, &admin.users[0].user);
    let text = |data: &[u8], file: &Path| {
        let bytes = if data.is_empty() { fs::read(file).unwrap() } else { data.to_vec() };
        String::from_utf8(bytes).unwrap()
    };
    let status = json!({
        "clientCertificateData": text(&user.client_certificate_data, &user.client_certificate),
        "clientKeyData": text(&user.client_key_data, &user.client_key),
    });
    let program = plugin(dir.path(), &status);
    let authority = dir.path().join("ca");
    fs::write(&authority, text(&cluster.certificate_authority_data, &cluster.certificate_authority)).unwrap();
    let list = |user: Value| {
        let mut user = user;
        user["exec"] = json!({"command": program, "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "IfAvailable"});
        let config = json!({
            "clusters": [{"name": "c", "cluster": {"server": cluster.server, "certificate-authority": authority}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        });
        let file = dir.path().join("config");
        fs::write(&file, config.to_string()).unwrap();
        let remote = Remote::new(Config::from_kubeconfig(&file, None).unwrap()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let api = Client::new(Arc::new(remote), "test").api::<Namespace>("");
        runtime.block_on(api.get("default")).map(drop).map_err(|status| (status.code, status.message))
    };
    list(json!({})).unwrap();
    let (code, message) = list(json!({"as": "jane", "as-groups": ["system:authenticated"]})).unwrap_err();
    assert_eq!(code, 403);
    assert!(message.contains("User \"jane\" cannot get resource \"namespaces\""), "{message}");
    assert_eq!(runs(dir.path()), 2);
    fs::write(dir.path().join("fails"), "").unwrap();
    let (_, message) = list(json!({})).unwrap_err();
    let told = format!("getting credentials: exec: executable {} failed with exit code 7", program.display());
    assert!(message.contains(&told), "{message}");
}
