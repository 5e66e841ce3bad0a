//! Executes plugins.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

use super::result::failure;

/// The longest output that is read, in bytes.
const LONGEST: u64 = 4 << 20;
/// The time that a plugin may take.
const LIMIT: Duration = Duration::from_mins(3);

/// The variables that a plugin gets besides its configuration.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    pub(super) command: &'static str,
    pub(super) container: String,
    pub(super) netns: String,
    pub(super) interface: String,
    pub(super) arguments: String,
}

/// Finds a plugin in the directories.
fn find(kind: &str, directories: &[PathBuf]) -> Result<PathBuf, String> {
    let places = directories.iter().map(|dir| dir.join(kind));
    places.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let shown: Vec<String> = directories.iter().map(|dir| dir.display().to_string()).collect();
        format!("failed to find plugin {kind:?} in path [{}]", shown.join(" "))
    })
}

/// Executes a plugin; its result, null if it printed none.
pub(super) async fn execute(
    kind: &str,
    directories: &[PathBuf],
    environment: &Environment,
    input: &Value,
) -> Result<Value, String> {
    let program = find(kind, directories)?;
    let done = timeout(LIMIT, run(&program, directories, environment, input)).await;
    let (success, output, errors) = match done {
        Err(_) => return Err(format!("plugin type={kind:?} did not end in {} s", LIMIT.as_secs())),
        Ok(done) => {
            done.map_err(|error| format!("plugin {} cannot be executed: {error}", program.display()))?
        }
    };
    if !success {
        return Err(failure(kind, environment.command, &output, &errors));
    }
    if output.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&output)
        .map_err(|error| format!("the result of plugin type={kind:?} cannot be read: {error}"))
}

async fn run(
    program: &Path,
    directories: &[PathBuf],
    environment: &Environment,
    input: &Value,
) -> std::io::Result<(bool, Vec<u8>, Vec<u8>)> {
    let path = std::env::join_paths(directories).unwrap_or_default();
    let mut child = Command::new(program)
        .env("CNI_COMMAND", environment.command)
        .env("CNI_CONTAINERID", &environment.container)
        .env("CNI_NETNS", &environment.netns)
        .env("CNI_IFNAME", &environment.interface)
        .env("CNI_ARGS", &environment.arguments)
        .env("CNI_PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let text = serde_json::to_vec(input)?;
    let stdin = child.stdin.take();
    let write = async {
        if let Some(mut stdin) = stdin {
            // A plugin that does not read says why in its result.
            let _ = stdin.write_all(&text).await;
        }
    };
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read = async {
        if let Some(stdout) = stdout {
            stdout.take(LONGEST).read_to_end(&mut output).await?;
        }
        std::io::Result::Ok(())
    };
    let read_errors = async {
        if let Some(stderr) = stderr {
            stderr.take(LONGEST).read_to_end(&mut errors).await?;
        }
        std::io::Result::Ok(())
    };
    let ((), out, err) = tokio::join!(write, read, read_errors);
    out.and(err)?;
    let status = child.wait().await?;
    Ok((status.success(), output, errors))
}
