//! Hooks: each is run at its moment, in its place, and told of the container; one that fails says so.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Place, spec, until, wait};

/// A hook that runs a script with the moment's name as `$0` and a file of notes as `$1`; its input is the state.
fn hook(script: &str, moment: &str, notes: &Path) -> Value {
    json!([{"path": "/bin/sh", "args": ["sh", "-c", script, moment, notes], "env": ["WORD=given"]}])
}

#[tokio::test(flavor = "multi_thread")]
async fn each_hook_has_its_moment_and_place() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let notes = place.directory.path().join("notes");
    // The moment, the state of the container, the network, and a variable.
    let script = "read -r state; \
        status=$(echo \"$state\" | sed 's/.*\"status\":\"\\([a-z]*\\)\".*/\\1/'); \
        echo \"$0 $status $(readlink /proc/self/ns/net) $WORD\" >> \"$1\"";
    // The container's file systems are below its bundle, and what is mounted there stays.
    let inside = format!(
        "{script}; root=$(echo \"$state\" | sed 's/.*\"bundle\":\"\\([^\"]*\\)\".*/\\1/')/rootfs; \
         test -e $root/proc/self/status && test -c $root/dev/null && echo seen >> \"$1\"; \
         grep -q '\"path\":\"'$root'\"' ${{root%/rootfs}}/config.json && echo described >> \"$1\"; \
         echo made > $root/tmp/made; mkdir $root/var/mounted; mount -t tmpfs hook $root/var/mounted; \
         echo there > $root/var/mounted/file"
    );
    let command =
        "cat /tmp/made /var/mounted/file; cat /state; awk '$5 == \"/\"' /proc/self/mountinfo | wc -l; ls /";
    let mut container = place.container("c", &["sh", "-c", command]);
    container.spec = spec(&["sh", "-c", command], |s| {
        s["hooks"] = json!({
            "prestart": hook(script, "prestart", &notes),
            "createRuntime": hook(script, "createRuntime", &notes),
            "createContainer": hook(&inside, "createContainer", &notes),
            "startContainer": [{"path": "/bin/sh", "args": ["sh", "-c", "cat > /state; echo >> /state"]}],
            "poststart": hook(script, "poststart", &notes),
            "poststop": hook(script, "poststop", &notes),
        });
        s["annotations"] = json!({"a": "b"});
    });
    let made = sandbox.create(container).await.unwrap();
    assert_eq!(fs::read_to_string(&notes).unwrap().lines().count(), 5);
    made.start().await.unwrap();
    assert_eq!(wait(&made).await.code, 0);
    until("the output", || place.output("c").contains("tmp")).await;
    let output = place.output("c");
    let mut lines = output.lines();
    assert_eq!((lines.next(), lines.next()), (Some("made"), Some("there")), "{output}");
    let state: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!((&state["status"], &state["pid"], &state["id"]), (&json!("created"), &json!(1), &json!("c")));
    assert_eq!(state["annotations"], json!({"a": "b"}));
    assert_eq!(lines.next(), Some("1"), "the host's file systems are gone: {output}");
    sandbox.delete("c").await.unwrap();
    let host = fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    let own = fs::read_link(sandbox.netns()).unwrap().display().to_string();
    let expected = format!(
        "prestart creating {host} given\ncreateRuntime creating {host} given\n\
         createContainer creating {own} given\nseen\ndescribed\npoststart running {host} given\n\
         poststop stopped {host} given\n"
    );
    assert_eq!(fs::read_to_string(&notes).unwrap(), expected);
    assert_nothing_left(&place);
    place.end().await;
}

/// No bundle and no mount of one is left.
fn assert_nothing_left(place: &Place) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let below = place.directory.path().display().to_string();
    assert!(!mounts.lines().any(|l| l.contains(&below)), "{mounts}");
    let bundles = place.directory.path().join("pods/one/bundles");
    assert_eq!(fs::read_dir(bundles).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_that_fail_are_told_and_leave_nothing() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let notes = place.directory.path().join("notes");
    let check = async |moment: &str, hook: Value, expected: &str| {
        let mut container = place.container("c", &["sleep", "1000"]);
        container.spec = spec(&["sleep", "1000"], |s| {
            s["hooks"] = json!({
                moment: [hook],
                "poststop": [{"path": "/bin/sh", "args": ["sh", "-c", "echo stop >> \"$0\"", notes]}],
            });
        });
        let error = match sandbox.create(container).await {
            Err(e) => e,
            Ok(container) => {
                let error = container.start().await.unwrap_err();
                wait(&container).await;
                sandbox.delete("c").await.unwrap();
                error
            }
        };
        let said = error.to_string();
        assert!(said.starts_with(expected), "{said}");
        assert!(sandbox.containers().is_empty());
        assert_eq!(fs::read_to_string(&notes).unwrap(), "stop\n", "{moment}");
        fs::remove_file(&notes).unwrap();
        assert_nothing_left(&place);
    };
    let script = |text: &str| json!({"path": "/bin/sh", "args": ["sh", "-c", text]});
    for moment in ["prestart", "createRuntime", "poststart"] {
        let words = format!("error running {moment} hook #0: exit status: 3, stdout: out, stderr: err");
        check(moment, script("echo out; echo err >&2; exit 3"), &words).await;
    }
    let words = "error running createContainer hook #0: exit status 3, stderr: err";
    check("createContainer", script("echo err >&2; exit 3"), words).await;
    check("startContainer", script("exit 3"), "error running startContainer hook #0: exit status 3").await;
    check("startContainer", script("kill -9 $$"), "error running startContainer hook #0: signal 9").await;
    let missing = json!({"path": "/no/such"});
    check("createRuntime", missing.clone(), "error running createRuntime hook #0: exec /no/such: ").await;
    check("createContainer", missing.clone(), "error running createContainer hook #0: exec: \"/no/such\": ")
        .await;
    check("startContainer", missing, "error running startContainer hook #0: exit status 127").await;
    for moment in ["createRuntime", "createContainer", "startContainer", "poststart"] {
        let slow = json!({"path": "/bin/sleep", "args": ["sleep", "1000"], "timeout": 1});
        let words = format!("error running {moment} hook #0: hook ran past specified timeout");
        check(moment, slow, &words).await;
    }
    place.end().await;
}
