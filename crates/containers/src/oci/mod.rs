//! Containers that another OCI runtime makes, a program such as runc: it gets a bundle, and is told to create, start,
//! change and delete. The shim makes the program's process, so that the container's becomes the shim's child, and then
//! takes it: ends, streams, logs and terminals are as those of other containers.

mod bundle;
mod make;

use std::path::{Path, PathBuf};
use std::time::Duration;

use oci_spec::runtime::LinuxResources;
use serde::Deserialize;
use tokio::process::Command;

pub(crate) use self::bundle::Bundle;
pub(crate) use self::make::{check, create, exec};
use crate::cgroups::is_scope;
use crate::error::{Doing, Error, Result};
use crate::programs::{self, PATH};
use crate::records::{ContainerRecord, Directory};
use crate::spec::OciRuntime;

/// The time that a command of a runtime may take.
const LIMIT: Duration = Duration::from_mins(2);

/// A container of another OCI runtime.
#[derive(Debug, Clone)]
pub(crate) struct Outer {
    runtime: OciRuntime,
    /// The directory in which the runtime keeps its state.
    root: PathBuf,
    id: String,
    /// Whether its cgroup is a scope of systemd's.
    systemd: bool,
    pub(crate) bundle: Bundle,
}

/// The part of a runtime's answer to `state` that is read.
#[derive(Debug, Deserialize)]
struct State {
    status: String,
}

impl Outer {
    /// The container of a record, if another runtime made it.
    pub(crate) fn of(directory: &Directory, record: &ContainerRecord) -> Option<Self> {
        let runtime = record.runtime.clone()?;
        let (root, id) = (directory.0.join("oci"), record.id.clone());
        let systemd = record.cgroup.as_deref().is_some_and(is_scope);
        let bundle = Bundle::of(directory, &id);
        Some(Self { runtime, root, id, systemd, bundle })
    }

    /// The arguments of a command, those that all commands have first. `log` is the file for errors.
    fn arguments(&self, log: Option<&Path>, rest: &[&str]) -> Vec<String> {
        let mut all = vec![self.runtime.program.display().to_string()];
        all.extend(self.runtime.arguments.iter().cloned());
        all.extend(["--root".to_owned(), self.root.display().to_string()]);
        if self.systemd {
            all.push("--systemd-cgroup".to_owned());
        }
        if let Some(log) = log {
            all.extend(["--log".to_owned(), log.display().to_string()]);
            all.extend(["--log-format".to_owned(), "json".to_owned()]);
        }
        all.extend(rest.iter().map(ToString::to_string));
        all
    }

    /// Runs a command; its output.
    async fn call(&self, rest: &[&str], input: &[u8]) -> Result<Vec<u8>> {
        let verb = rest.first().copied().unwrap_or_default();
        let all = self.arguments(None, rest);
        let mut command = Command::new(&self.runtime.program);
        command.args(&all[1..]).env_clear().env("PATH", PATH).current_dir("/");
        let deed = || format!("run {} {verb}", self.runtime.program.display());
        let ended = programs::run(command, input, LIMIT).await.doing(deed)?;
        if ended.status.success() {
            return Ok(ended.output);
        }
        let said = told(&String::from_utf8_lossy(&ended.errors));
        let text =
            said.unwrap_or_else(|| format!("{} {verb}: {}", self.runtime.program.display(), ended.status));
        Err(Error::Step { text, errno: 0 })
    }

    /// Starts a container that was created.
    pub(crate) async fn start(&self) -> Result<()> {
        self.call(&["start", &self.id], &[]).await.map(|_| ())
    }

    /// Sends its first process a signal.
    pub(crate) async fn kill(&self, signal: i32) -> Result<()> {
        self.call(&["kill", &self.id, &signal.to_string()], &[]).await.map(|_| ())
    }

    /// Changes its limits.
    pub(crate) async fn update(&self, resources: &LinuxResources) -> Result<()> {
        let text = serde_json::to_vec(resources).doing(|| "write the limits of a container")?;
        self.call(&["update", "--resources", "-", &self.id], &text).await.map(|_| ())
    }

    /// Whether the runtime has not started the container yet.
    pub(crate) async fn is_created(&self) -> Result<bool> {
        let answer = self.call(&["state", &self.id], &[]).await?;
        let state: State =
            serde_json::from_slice(&answer).doing(|| "read the answer of a runtime to \"state\"")?;
        Ok(state.status == "created" || state.status == "creating")
    }

    /// Removes the container with its process, and its bundle. One that the runtime does not know is removed.
    pub(crate) async fn delete(&self) -> Result<()> {
        if self.root.join(&self.id).exists() || !self.root.is_dir() {
            self.call(&["delete", "--force", &self.id], &[]).await?;
        } else if let Err(e) = self.call(&["delete", "--force", &self.id], &[]).await {
            // It has no state by this name, so that there is nothing to be deleted.
            tracing::debug!(container = self.id, "{e}");
        }
        self.bundle.remove()
    }
}

/// The reason in a runtime's words: the last message of its log, or its last line.
fn told(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Line {
        #[serde(default)]
        level: String,
        msg: String,
    }
    let lines = text.lines().rev().filter(|l| !l.trim().is_empty());
    let mut last = None;
    for line in lines {
        match serde_json::from_str::<Line>(line) {
            Ok(line) if matches!(line.level.as_str(), "" | "error" | "fatal") => {
                last = Some(line.msg);
                break;
            }
            Ok(_) => {}
            Err(_) => {
                last = Some(line.trim().to_owned());
                break;
            }
        }
    }
    // Callers say the rest themselves.
    const START: &str = "unable to start container process: ";
    last.map(|text| match text.split_once(START) {
        Some((_, reason)) => reason.to_owned(),
        None => text,
    })
}

/// The abilities of an OCI runtime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OciFeatures {
    /// Whether mounts can be read-only with everything below them.
    pub recursive_read_only_mounts: bool,
    /// Whether mounts can be mapped, so that containers may have user namespaces.
    pub user_namespaces: bool,
}

impl OciRuntime {
    /// Asks the runtime what it can do.
    ///
    /// # Errors
    /// The program cannot be executed, or does not know the question.
    pub async fn features(&self) -> Result<OciFeatures> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg("features").env_clear().env("PATH", PATH).current_dir("/");
        let deed = || format!("run {} features", self.program.display());
        let ended = programs::run(command, &[], LIMIT).await.doing(deed)?;
        if !ended.status.success() {
            let said = told(&String::from_utf8_lossy(&ended.errors)).unwrap_or_default();
            return Err(Error::Invalid(format!("{} features: {said}", self.program.display())));
        }
        features(&ended.output).doing(|| format!("read the features of {}", self.program.display()))
    }
}

fn features(text: &[u8]) -> serde_json::Result<OciFeatures> {
    let value: serde_json::Value = serde_json::from_slice(text)?;
    let options = value["mountOptions"].as_array();
    Ok(OciFeatures {
        recursive_read_only_mounts: options.is_some_and(|all| all.iter().any(|o| o == "rro")),
        user_namespaces: value["linux"]["mountExtensions"]["idmap"]["enabled"] == true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons() {
        let check =
            |text: &str, expected: Option<&str>| assert_eq!(told(text).as_deref(), expected, "{text}");
        check("", None);
        check("\n", None);
        check("container does not exist\n", Some("container does not exist"));
        check(
            "{\"level\":\"info\",\"msg\":\"a\"}\n{\"level\":\"error\",\"msg\":\"runc create failed: unable to start container process: exec: \\\"x\\\": not found\"}\n{\"level\":\"debug\",\"msg\":\"b\"}\n",
            Some("exec: \"x\": not found"),
        );
        check("time=\"t\" level=error msg=\"unable to start container process: no\"", Some("no\""));
    }

    #[test]
    fn features_of_a_runtime() {
        let check = |text: &str, expected: [bool; 2]| {
            let found = features(text.as_bytes()).unwrap();
            assert_eq!([found.recursive_read_only_mounts, found.user_namespaces], expected, "{text}");
        };
        check("{}", [false, false]);
        check(
            r#"{"mountOptions":["ro","rro"],"linux":{"mountExtensions":{"idmap":{"enabled":true}}}}"#,
            [true, true],
        );
        check(r#"{"mountOptions":["ro"],"linux":{"mountExtensions":{"idmap":{}}}}"#, [false, false]);
        assert!(features(b"no").is_err());
    }
}
