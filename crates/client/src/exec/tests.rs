//! Real programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair};

use super::*;
use crate::kubeconfig::Variable;

const V1: &str = "client.authentication.k8s.io/v1";

/// A script that counts its runs in a file before it does what it is told.
fn script(dir: &Path, text: &str) -> PathBuf {
    let file = dir.join("plugin");
    fs::write(&file, format!("#!/bin/sh\necho run >> {}/runs\n{text}\n", dir.display())).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

fn runs(dir: &Path) -> usize {
    fs::read_to_string(dir.join("runs")).unwrap_or_default().lines().count()
}

fn exec(command: &Path) -> Exec {
    Exec {
        command: command.to_string_lossy().into_owned(),
        api_version: V1.into(),
        interactive_mode: "Never".into(),
        ..Exec::default()
    }
}

fn says(status: &str) -> String {
    format!(
        "printf %s '{{\"kind\": \"ExecCredential\", \"apiVersion\": \"{V1}\", \"status\": {{{status}}}}}'"
    )
}

async fn token(plugin: &Arc<Plugin>) -> Result<String, String> {
    let given = plugin.credentials().await?;
    Ok(given.bearer.map(|b| b.to_str().unwrap().to_owned()).unwrap_or_default())
}

#[tokio::test]
async fn a_program_is_asked_once() {
    let dir = tempfile::tempdir().unwrap();
    // It gives back its arguments, its own variable, and the question.
    let text = "echo \"$KUBERNETES_EXEC_INFO\" > question\n"
        .replace("question", &format!("{}/question", dir.path().display()))
        + &says("\"token\": \"'$1-$OWN'\"");
    let mut asked = exec(&script(dir.path(), &text));
    asked.args = vec!["a".into()];
    asked.env = vec![Variable { name: "OWN".into(), value: "b".into() }];
    asked.provide_cluster_info = true;
    let cluster = serde_json::json!({"server": "https://s", "config": null});
    let plugin = Arc::new(Plugin::new(&asked, Some(cluster.clone())).unwrap());
    let both = tokio::join!(token(&plugin), token(&plugin));
    assert_eq!(both, (Ok("Bearer a-b".to_owned()), Ok("Bearer a-b".to_owned())));
    assert_eq!(runs(dir.path()), 1);
    let question: Value = serde_json::from_slice(&fs::read(dir.path().join("question")).unwrap()).unwrap();
    let wanted = serde_json::json!({"kind": "ExecCredential", "apiVersion": V1, "spec": {"cluster": cluster, "interactive": false}});
    assert_eq!(question, wanted);

    // A server refuses what was given: asked once more, however many hear of it.
    let given = plugin.credentials().await.unwrap();
    plugin.refused(&given).await;
    plugin.refused(&given).await;
    assert_eq!(runs(dir.path()), 2);
}

#[tokio::test]
async fn credentials_end() {
    let dir = tempfile::tempdir().unwrap();
    let check = async |end: &str, expected: usize| {
        let _ = fs::remove_file(dir.path().join("runs"));
        let status = format!("\"token\": \"a\", \"expirationTimestamp\": \"{end}\"");
        let plugin = Arc::new(Plugin::new(&exec(&script(dir.path(), &says(&status))), None).unwrap());
        for _ in 0..3 {
            token(&plugin).await.unwrap();
        }
        assert_eq!(runs(dir.path()), expected, "{end}");
    };
    check("2006-01-02T15:04:05Z", 3).await;
    check("9000-01-02T15:04:05Z", 1).await;
}

#[tokio::test]
async fn certificates_take_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let pair = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    let status = |(chain, key): &(String, String)| {
        let value = serde_json::json!({"clientCertificateData": chain, "clientKeyData": key});
        says(value.to_string().trim_matches(['{', '}']))
    };
    let (one, other) = (pair("one"), pair("other"));
    let asked = exec(&script(dir.path(), &status(&one)));
    let plugin = Arc::new(Plugin::new(&asked, None).unwrap());
    let given = plugin.credentials().await.unwrap();
    assert!(given.bearer.is_none());
    let held = || plugin.certificate().held().unwrap().cert[0].clone();
    let (first, version) = (held(), plugin.certificate().version());
    plugin.refused(&given).await;
    assert_eq!((held(), plugin.certificate().version()), (first.clone(), version), "the same one again");
    script(dir.path(), &status(&other));
    let given = plugin.credentials().await.unwrap();
    plugin.refused(&given).await;
    assert_ne!(held(), first);
    // A certificate that does not fit leaves the old one in place.
    script(dir.path(), &status(&(one.0.clone(), other.1.clone())));
    let error = plugin.renew(&mut *plugin.held.lock().await).await.unwrap_err();
    assert!(error.starts_with("failed parsing client key/certificate: "), "{error}");
    assert_ne!(held(), first);
    script(dir.path(), &says("\"token\": \"a\""));
    let given = plugin.credentials().await.unwrap();
    plugin.refused(&given).await;
    assert!(!plugin.certificate().is_there());
}

#[tokio::test]
async fn failures() {
    let dir = tempfile::tempdir().unwrap();
    let check = async |exec: Exec, expected: &str| {
        let mut plugin = Plugin::new(&exec, None).unwrap();
        plugin.patience[0] = Duration::from_millis(300);
        let told = token(&Arc::new(plugin)).await.unwrap_err();
        assert!(told.contains(expected), "{told}");
    };
    let of = |text: &str| exec(&script(dir.path(), text));
    let shown = dir.path().join("plugin").display().to_string();
    check(of("exit 73"), &format!("exec: executable {shown} failed with exit code 73")).await;
    check(of("kill -9 $$"), "failed with exit code -1").await;
    check(of("echo '{}'"), "decoding stdout: Object 'Kind' is missing").await;
    check(of("head -c 2000000 /dev/zero"), &format!("exec: executable {shown} wrote too much")).await;
    check(of("exec sleep 1000"), "did not end within").await;
    check(of(&says("\"token\": \"a\\nb\"")), "invalid header field value").await;
    check(exec(Path::new("/none/there")), "exec: fork/exec /none/there: no such file or directory").await;
    let mut missing = exec(Path::new("does not exist"));
    missing.install_hint = "some install hint\u{1b}".into();
    let told = format!("exec: executable does not exist not found{}\n\nsome install hintU+001B", hint::HELP);
    check(missing.clone(), &told).await;
    missing.interactive_mode = String::new();
    check(missing, "exec plugin cannot support interactive mode: unknown interactiveMode: \"\"").await;
}

#[test]
fn those_who_ask_for_the_same_have_one_program() {
    let plugins = Plugins::default();
    let mut asked = exec(Path::new("x"));
    let [one, other] = ["a", "b"].map(|s| Some(Value::from(s)));
    let first = plugins.of(&asked, one.clone()).unwrap();
    assert!(
        Arc::ptr_eq(&first, &plugins.of(&asked, other.clone()).unwrap()),
        "it is not told of the cluster"
    );
    asked.provide_cluster_info = true;
    let second = plugins.of(&asked, one).unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(!Arc::ptr_eq(&second, &plugins.of(&asked, other).unwrap()));
    drop((first, second));
    asked.api_version = "v9".into();
    assert!(plugins.of(&asked, None).is_err());
    assert!(plugins.0.lock().is_empty());
}

#[tokio::test]
async fn a_program_runs_on_if_nobody_waits() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    // It waits for the word to go on.
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("go")).status().unwrap();
    assert!(made.success());
    let text = format!("read go < {at}/go\n{}", says("\"token\": \"a\""));
    let plugin = Arc::new(Plugin::new(&exec(&script(dir.path(), &text)), None).unwrap());
    let hasty = tokio::time::timeout(Duration::from_millis(50), plugin.credentials()).await;
    assert!(hasty.is_err());
    let patient = token(&plugin);
    let go = tokio::fs::write(dir.path().join("go"), "go\n");
    let (given, written) = tokio::join!(patient, go);
    written.unwrap();
    assert_eq!((given.unwrap().as_str(), runs(dir.path())), ("Bearer a", 1));
}
