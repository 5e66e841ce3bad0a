//! Containers that cannot start: their users read the same of the built-in container runtime and of containerd with
//! runc, at the same places.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use testkit::{Cluster, Image, Options, eventually};

/// A container that cannot start, and the words about it.
struct Case {
    name: &'static str,
    /// Fields of the container.
    container: Value,
    /// The reason in the container's status.
    reason: &'static str,
    /// The exit codes; none for a container that was never made.
    codes: &'static [i64],
    /// A part of the status's message, or of the log.
    said: &'static str,
    /// The part of an event; none if nothing failed in the kubelet's eyes.
    event: Option<&'static str>,
}

fn cases() -> Vec<Case> {
    let program = |name, program: &str, said, event| Case {
        name,
        container: json!({"command": [program]}),
        reason: "StartError",
        codes: &[128],
        said,
        event: Some(event),
    };
    let logged = |name, program: &str, said| Case {
        name,
        container: json!({"command": [program]}),
        reason: "Error",
        // DIFFERENCE: 255 is runc's code since version 1.2; older ones have 1.
        codes: &[255, 1],
        said,
        event: None,
    };
    vec![
        program(
            "missing",
            "nosuch",
            "unable to start container process: exec: \"nosuch\": executable file not found in $PATH",
            "OCI runtime create failed",
        ),
        program(
            "missing-path",
            "/no/such",
            "unable to start container process: exec: \"/no/such\": stat /no/such: no such file or directory",
            "exec: \"/no/such\": stat /no/such: no such file or directory",
        ),
        program("forbidden", "/etc/group", "exec: \"/etc/group\": permission denied", "permission denied"),
        // DIFFERENCE: the words after it are those of newer versions of runc: "is a directory".
        program(
            "directory",
            "/etc",
            "unable to start container process: exec: \"/etc\": ",
            "exec: \"/etc\": ",
        ),
        Case {
            container: json!({"command": ["true"], "workingDir": "/etc/passwd"}),
            ..program("directory-is-a-file", "true", "/etc/passwd", "not a directory")
        },
        Case {
            name: "root",
            // The image names no user.
            container: json!({"command": ["true"], "securityContext": {"runAsNonRoot": true}}),
            reason: "CreateContainerConfigError",
            codes: &[],
            said: "container has runAsNonRoot and image will run as root",
            event: Some("container has runAsNonRoot and image will run as root"),
        },
        Case {
            name: "user",
            container: json!({"image": "test.local/user:1", "command": ["true"]}),
            reason: "CreateContainerError",
            codes: &[],
            // DIFFERENCE: containerd does not say which one: "no users found".
            said: "no user",
            event: Some("no user"),
        },
        logged("format", "/bin/text", "exec /bin/text: exec format error"),
        logged("interpreter", "/bin/noint", "exec /bin/noint: no such file or directory"),
    ]
}

fn check(c: &Cluster, case: &Case) -> Result<()> {
    let name = case.name;
    let status = eventually(&format!("{name}: its end"), || {
        let state = c.get("pod", name)?["status"]["containerStatuses"][0]["state"].clone();
        let waits = case.codes.is_empty() && state["waiting"]["reason"] == case.reason;
        Ok(if waits { Some(state["waiting"].clone()) } else { state.get("terminated").cloned() })
    })?;
    assert_eq!(status["reason"], case.reason, "{name}: {status}");
    match status["exitCode"].as_i64() {
        Some(code) => assert!(case.codes.contains(&code), "{name}: {status}"),
        None => assert!(case.codes.is_empty(), "{name}: {status}"),
    }
    let message = status["message"].as_str().unwrap_or_default();
    let Some(event) = case.event else {
        assert_eq!(c.kubectl(&["logs", name])?.trim_end(), case.said, "{name}");
        return Ok(());
    };
    assert!(message.contains(case.said), "{name}: {message}");
    let described = eventually(&format!("{name}: its event"), || {
        let text = c.kubectl(&["describe", "pod", name])?;
        Ok(text.contains("Warning  Failed").then_some(text))
    })?;
    let line = described.lines().find(|l| l.contains("Failed") && l.contains("Error: "));
    let line = line.with_context(|| described.clone())?;
    assert!(line.contains(event), "{name}: {line}");
    // The kubelet made the container, or could not.
    let made = described.contains("Container created") || described.contains("Created container");
    assert_eq!(made, !case.codes.is_empty(), "{name}: {described}");
    eprintln!("{name}: {message}");
    Ok(())
}

fn run(name: &str, containerd: bool) -> Result<()> {
    let mut image = Image::busybox("test.local/app:1")?;
    image.texts.push(("bin/text".into(), "nonsense\n".into(), 0o755));
    image.texts.push(("bin/noint".into(), "#!/no/such\n".into(), 0o755));
    let mut user = Image::busybox("test.local/user:1")?;
    user.config["User"] = "nosuch".into();
    let c = Cluster::start(name, Options { images: vec![image, user], containerd, ..Options::default() })?;
    let cases = cases();
    let pods: Vec<String> = cases
        .iter()
        .map(|case| {
            let mut container = json!({"name": "c", "image": "test.local/app:1", "imagePullPolicy": "Never"});
            for (key, value) in case.container.as_object().into_iter().flatten() {
                container[key] = value.clone();
            }
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": case.name},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            });
            pod.to_string()
        })
        .collect();
    c.apply(&pods.join("\n---\n"))?;
    for case in &cases {
        check(&c, case)?;
    }
    Ok(())
}

#[test]
fn containers_that_cannot_start() -> Result<()> {
    run("start-errors", false)
}

#[test]
fn containers_that_cannot_start_on_containerd() -> Result<()> {
    run("start-errors-containerd", true)
}
