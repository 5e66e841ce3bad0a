//! Hooks of containers: programs of the host (or, at the start, of the container) that are told of its life. A
//! container with hooks has a bundle on the host, because hooks look for its root there.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use oci_spec::runtime::{Hook, Hooks, Spec};
use serde::Serialize;
use tokio::process::Command;

use crate::error::{Doing, Error, Result};
use crate::programs::{self, PATH};
use crate::shim::wire::hook;

/// The time of a hook that says none. DIFFERENCE: others wait for ever.
const LIMIT: Duration = Duration::from_mins(2);
/// The longest output of a hook that is told, in bytes.
pub(crate) const TOLD: usize = 4096;

/// A moment in a container's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    Prestart,
    CreateRuntime,
    CreateContainer,
    StartContainer,
    Poststart,
    Poststop,
}

impl Moment {
    /// The name, as the specification has it.
    fn name(self) -> &'static str {
        match self {
            Self::Prestart => "prestart",
            Self::CreateRuntime => "createRuntime",
            Self::CreateContainer => "createContainer",
            Self::StartContainer => "startContainer",
            Self::Poststart => "poststart",
            Self::Poststop => "poststop",
        }
    }
    /// The state of the container at that moment.
    fn status(self) -> &'static str {
        match self {
            Self::Prestart | Self::CreateRuntime | Self::CreateContainer => "creating",
            Self::StartContainer => "created",
            Self::Poststart => "running",
            Self::Poststop => "stopped",
        }
    }
    #[allow(deprecated, reason = "devices still describe the oldest kind of hook")]
    fn of(self, hooks: &Hooks) -> &[Hook] {
        let all = match self {
            Self::Prestart => hooks.prestart(),
            Self::CreateRuntime => hooks.create_runtime(),
            Self::CreateContainer => hooks.create_container(),
            Self::StartContainer => hooks.start_container(),
            Self::Poststart => hooks.poststart(),
            Self::Poststop => hooks.poststop(),
        };
        all.as_deref().unwrap_or_default()
    }
}

/// The hooks of a moment.
pub(crate) fn of(spec: &Spec, moment: Moment) -> &[Hook] {
    spec.hooks().as_ref().map_or(&[], |hooks| moment.of(hooks))
}

/// Whether a container has hooks at all.
pub(crate) fn any(spec: &Spec) -> bool {
    use Moment as M;
    [M::Prestart, M::CreateRuntime, M::CreateContainer, M::StartContainer, M::Poststart, M::Poststop]
        .iter()
        .any(|moment| !of(spec, *moment).is_empty())
}

/// Refuses hooks that cannot be run.
pub(crate) fn check(spec: &Spec) -> Result<()> {
    use Moment as M;
    for moment in
        [M::Prestart, M::CreateRuntime, M::CreateContainer, M::StartContainer, M::Poststart, M::Poststop]
    {
        let all = of(spec, moment);
        let name = moment.name();
        if all.len() > hook::MOST as usize {
            return Err(Error::Invalid(format!("there are more than {} {name} hooks", hook::MOST)));
        }
        for one in all {
            let texts = one.args().iter().flatten().chain(one.env().iter().flatten());
            if !one.path().is_absolute() || texts.clone().any(|t| t.contains('\0')) {
                let path = one.path().display();
                return Err(Error::Invalid(format!("{path} is no {name} hook: its path must be absolute")));
            }
            if one.timeout().is_some_and(|seconds| seconds <= 0) {
                return Err(Error::Invalid(format!(
                    "the timeout of a {name} hook must be greater than zero"
                )));
            }
        }
    }
    Ok(())
}

/// The state of a container that hooks read.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct State<'a> {
    oci_version: &'a str,
    id: &'a str,
    status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    bundle: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a HashMap<String, String>>,
}

/// A container whose hooks are run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Of<'a> {
    pub(crate) id: &'a str,
    pub(crate) spec: &'a Spec,
    pub(crate) bundle: &'a Path,
}

impl Of<'_> {
    pub(crate) fn state(&self, moment: Moment, pid: Option<i32>) -> Result<Vec<u8>> {
        let state = State {
            oci_version: self.spec.version(),
            id: self.id,
            status: moment.status(),
            pid,
            bundle: self.bundle.display().to_string(),
            annotations: self.spec.annotations().as_ref(),
        };
        serde_json::to_vec(&state).doing(|| "write the state of a container")
    }

    /// The state around the process's number, which only the process itself knows as the container does.
    pub(crate) fn state_at_start(&self) -> Result<(String, String)> {
        // No text of JSON has this byte.
        const NUMBER: i32 = -1_234_567_890;
        let state = String::from_utf8(self.state(Moment::StartContainer, Some(NUMBER))?);
        let state = state.map_err(std::io::Error::other).doing(|| "write the state of a container")?;
        let mark = format!("\"pid\":{NUMBER},");
        let (head, tail) = state.split_once(&mark).unwrap_or((&state, ""));
        Ok((format!("{head}\"pid\":"), format!(",{tail}")))
    }

    /// Runs the hooks of a moment on the host, one after the other. The first one that fails is the last.
    pub(crate) async fn run(&self, moment: Moment, pid: Option<i32>) -> Result<()> {
        let hooks = of(self.spec, moment);
        if hooks.is_empty() {
            return Ok(());
        }
        let state = self.state(moment, pid)?;
        for (place, one) in hooks.iter().enumerate() {
            let mut command = Command::new(one.path());
            let args = one.args().as_deref().unwrap_or_default();
            if let Some((name, rest)) = args.split_first() {
                command.arg0(name).args(rest);
            }
            command.env_clear().current_dir("/");
            for variable in environment(one) {
                let (name, value) = variable.split_once('=').unwrap_or((&variable, ""));
                command.env(name, value);
            }
            let failed = |why: String| fault(moment, place, &why);
            match programs::run(command, &state, limit(one)).await {
                Ok(ended) if ended.status.success() => {}
                Ok(ended) => {
                    let (out, err) = (told(&ended.output), told(&ended.errors));
                    return Err(failed(format!("{}, stdout: {out}, stderr: {err}", ended.status)));
                }
                Err(e) if e.kind() == std::io::ErrorKind::TimedOut => {
                    return Err(failed(format!("hook ran past specified timeout of {:?}", limit(one))));
                }
                Err(e) => return Err(failed(format!("exec {}: {e}", one.path().display()))),
            }
        }
        Ok(())
    }
}

pub(crate) fn environment(one: &Hook) -> Vec<String> {
    let env = one.env().clone().unwrap_or_default();
    if env.iter().any(|v| v.starts_with("PATH=")) {
        env
    } else {
        [env, vec![format!("PATH={PATH}")]].concat()
    }
}

/// The time that a hook may take.
pub(crate) fn limit(one: &Hook) -> Duration {
    one.timeout().and_then(|seconds| u64::try_from(seconds).ok()).map_or(LIMIT, Duration::from_secs)
}

pub(crate) fn told(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(TOLD)]).trim_end().to_owned()
}

/// The error of a hook that failed, in runc's words.
pub(crate) fn fault(moment: Moment, place: usize, why: &str) -> Error {
    Error::Step { text: format!("error running {} hook #{place}: {why}", moment.name()), errno: 0 }
}

/// The error of a hook that the shim ran: its failed place, and how it ended.
pub(crate) fn at_start(place: u32, how: u32) -> Option<Error> {
    let index = hook::FIRST.checked_sub(place).filter(|index| *index <= hook::MOST)?;
    let why = match how {
        hook::LATE => "hook ran past specified timeout".to_owned(),
        how if how >= hook::SIGNAL => format!("signal {}", how - hook::SIGNAL),
        how => format!("exit status {}", how.saturating_sub(hook::CODE)),
    };
    Some(fault(Moment::StartContainer, index as usize, &why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(hooks: serde_json::Value) -> Spec {
        serde_json::from_value(
            json!({"ociVersion": "1.2.0", "annotations": {"a": "\"pid\":1,"}, "hooks": hooks}),
        )
        .unwrap()
    }

    #[test]
    fn hooks_that_cannot_be_run() {
        let check = |hooks: serde_json::Value, expected: Option<&str>| {
            let found = check(&spec(hooks)).err().map(|e| e.to_string());
            assert_eq!(found.as_deref(), expected);
        };
        check(json!({}), None);
        check(json!({"prestart": [{"path": "/a", "timeout": 1}]}), None);
        let absolute = "a is no poststop hook: its path must be absolute";
        check(json!({"poststop": [{"path": "a"}]}), Some(absolute));
        let time = "the timeout of a createContainer hook must be greater than zero";
        check(json!({"createContainer": [{"path": "/a", "timeout": 0}]}), Some(time));
        let many: Vec<_> = (0..257).map(|_| json!({"path": "/a"})).collect();
        check(json!({"startContainer": many}), Some("there are more than 256 startContainer hooks"));
    }

    #[test]
    fn states_that_hooks_read() {
        let spec = spec(json!({}));
        let of = Of { id: "c", spec: &spec, bundle: Path::new("/b") };
        let read = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
        assert_eq!(
            read(&of.state(Moment::Prestart, Some(7)).unwrap()),
            json!({"ociVersion": "1.2.0", "id": "c", "status": "creating", "pid": 7, "bundle": "/b",
                "annotations": {"a": "\"pid\":1,"}})
        );
        let stopped = read(&of.state(Moment::Poststop, None).unwrap());
        assert_eq!((&stopped["status"], stopped.get("pid")), (&json!("stopped"), None));
        let (head, tail) = of.state_at_start().unwrap();
        let started = read(format!("{head}1{tail}").as_bytes());
        assert_eq!(
            (&started["status"], &started["pid"], &started["id"]),
            (&json!("created"), &json!(1), &json!("c"))
        );
    }

    #[test]
    fn failures_that_the_shim_tells() {
        let check = |place: u32, how: u32, expected: Option<&str>| {
            let found = at_start(place, how).map(|e| e.to_string());
            assert_eq!(found, expected.map(|e| format!("error running startContainer hook #{e}")));
        };
        check(3, 2, None);
        check(hook::FIRST, hook::CODE + 4, Some("0: exit status 4"));
        check(hook::FIRST - 2, hook::SIGNAL + 9, Some("2: signal 9"));
        check(hook::FIRST, hook::LATE, Some("0: hook ran past specified timeout"));
    }
}
