//! `ferrokube image`: the same answers while the node runs, through its runtime, and while it does not, from its store.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use testkit::registry::Registry;
use testkit::{Cluster, Image, Options, Signal};

const TOOLS: &str = "test.local/tools:1";

/// Runs `ferrokube image` in the directory that holds the data directory, so that its name is relative.
fn image(dir: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new(testkit::binary());
    let out = command.arg("image").args(args).args(["--data-dir", "data"]).current_dir(dir).output()?;
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    ensure!(out.status.success(), "{said}");
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The names in a list.
fn names(list: &str) -> Vec<&str> {
    list.lines().filter_map(|line| line.split('\t').next()).collect()
}

#[test]
fn images_are_listed_moved_and_removed_with_and_without_the_node() -> Result<()> {
    let images = vec![Image::busybox(TOOLS)?];
    let mut c = Cluster::start("images", Options { images, ..Options::default() })?;
    let dir = c.data_dir().parent().map(Path::to_owned).unwrap_or_default();
    let archive = |name: &str| dir.join(name).display().to_string();
    let run = |args: &[&str]| image(&dir, args);
    let all_verbs = |kept: &str, extra: &str| {
        assert!(names(&run(&["list"])?).contains(&TOOLS));
        let extra_archive = archive("extra.tar");
        Image::busybox(extra)?.write(Path::new(&extra_archive))?;
        assert_eq!(run(&["import", &extra_archive])?.trim(), extra);
        assert!(names(&run(&["list"])?).contains(&extra));
        let kept = &archive(kept);
        run(&["export", extra, "--output", kept])?;
        run(&["rm", extra])?;
        assert!(!names(&run(&["list"])?).contains(&extra));
        let again = run(&["rm", extra]).unwrap_err().to_string();
        assert!(again.contains(&format!("there is no image {extra}")), "{again}");
        assert_eq!(run(&["import", kept])?.trim(), extra, "what was exported can be imported");
        let missing = run(&["import", "/no/such"]).unwrap_err().to_string();
        assert!(missing.contains("/no/such can't be read"), "{missing}");
        let damaged = archive("damaged.tar");
        std::fs::write(&damaged, [0x7f; 3000])?;
        let why = run(&["import", &damaged]).unwrap_err().to_string();
        assert!(why.contains(&format!("{damaged} can't be imported")), "{why}");
        Ok::<(), anyhow::Error>(())
    };

    all_verbs("a.tar", "test.local/a:1")?;
    c.stop_ferrokube(Signal::TERM)?;
    all_verbs("b.tar", "test.local/b:1")?;
    assert!(
        names(&run(&["list"])?).contains(&"test.local/a:1"),
        "what came in through the runtime is in its store"
    );

    let registry = Registry::start()?;
    registry.push_image(&Image::busybox("unused")?, "team/app", "2")?;
    let name = format!("{}/team/app:2", registry.host());
    assert!(run(&["pull", &name])?.starts_with("sha256:"));
    assert!(names(&run(&["list"])?).contains(&name.as_str()));
    let unknown = run(&["pull", &format!("{}/team/other:1", registry.host())]).unwrap_err().to_string();
    assert!(unknown.contains("not found"), "{unknown}");

    c.start_ferrokube()?;
    c.wait_ready()?;
    c.kubectl(&[
        "run",
        "pulled",
        &format!("--image={name}"),
        "--image-pull-policy=Never",
        "--",
        "sleep",
        "1000",
    ])?;
    c.kubectl(&["wait", "--for=condition=Ready", "pod/pulled", "--timeout=60s"])?;
    Ok(())
}
