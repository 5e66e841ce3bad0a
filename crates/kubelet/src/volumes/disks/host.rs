//! The host's programs, and the places where its kernel tells of devices.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use component::program;
use tokio::process::Command;
use tokio::time::timeout;

use crate::exit_status;

/// The directories of administrators' programs, which the kubelet's own `$PATH` may lack.
const SYSTEM: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// How long a program may take. DIFFERENCE: upstream waits for as long as it takes; here a program that hangs is ended, and
/// the next attempt starts anew.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);
/// How much of a program's words an error has, in bytes.
const WORDS: usize = 4096;

/// The machine.
#[derive(Debug, Clone)]
pub(super) struct Host {
    /// Where its programs are looked for.
    pub(super) path: Vec<PathBuf>,
    /// The directory with `dev` and `sys`.
    pub(super) root: PathBuf,
}

/// Why a program of the host did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// It is not there; upstream's text.
    #[error("exec: {0:?}: executable file not found in $PATH")]
    Missing(String),
    /// It cannot be started.
    #[error("{program}: {source}")]
    Start {
        /// Its name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// It did not end.
    #[error("{program} did not end within {} s", .limit.as_secs())]
    Late {
        /// Its name.
        program: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// It failed.
    #[error("{why}")]
    Failed {
        /// Its exit code; none if a signal ended it.
        code: Option<i32>,
        /// Its end, in Go's words.
        why: String,
        /// Its words.
        output: String,
    },
}

impl RunError {
    /// The exit code of a program that ended with one.
    pub(super) fn code(&self) -> Option<i32> {
        if let Self::Failed { code, .. } = self { *code } else { None }
    }

    /// The words of a program that failed.
    pub(super) fn output(&self) -> &str {
        if let Self::Failed { output, .. } = self { output } else { "" }
    }
}

impl Host {
    /// This machine.
    pub(super) fn system() -> Self {
        let own = env::var_os("PATH").unwrap_or_default();
        let path = env::split_paths(&own).chain(SYSTEM.iter().map(PathBuf::from));
        Self { path: path.filter(|dir| dir.is_absolute()).collect(), root: PathBuf::from("/") }
    }

    /// Where a path of the machine is.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn find(&self, program: &str) -> Result<PathBuf, RunError> {
        let found = self.path.iter().map(|dir| dir.join(program)).find(|path| path.is_file());
        found.ok_or_else(|| RunError::Missing(program.to_owned()))
    }

    /// Runs a program. Answers its words.
    ///
    /// # Errors
    /// It is missing, fails, or does not end.
    pub(super) async fn run(&self, program: &str, arguments: &[&str]) -> Result<String, RunError> {
        self.run_for(PATIENCE, program, arguments).await
    }

    /// Runs a program that may take so long.
    ///
    /// # Errors
    /// It is missing, fails, or does not end.
    pub(super) async fn run_for(
        &self,
        limit: Duration,
        name: &str,
        arguments: &[&str],
    ) -> Result<String, RunError> {
        let mut command = Command::new(self.find(name)?);
        let ended = timeout(limit, program::run(command.args(arguments))).await;
        let ended = ended.map_err(|_| RunError::Late { program: name.to_owned(), limit })?;
        let ended = ended.map_err(|source| RunError::Start { program: name.to_owned(), source })?;
        let output = [ended.stdout, ended.stderr].concat();
        if ended.status.success() {
            return Ok(String::from_utf8_lossy(&output).into_owned());
        }
        let output = String::from_utf8_lossy(&output[..output.len().min(WORDS)]).into_owned();
        Err(RunError::Failed { code: ended.status.code(), why: exit_status::told(ended.status), output })
    }
}

/// The name of a device: the last part of its path.
pub(super) fn device_name(path: &Path) -> &str {
    path.file_name().and_then(|n| n.to_str()).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A host below a directory, with scripts in the place of some of its programs; the others are the real ones.
    pub(in super::super) fn host(dir: &Path, scripts: &[(&str, &str)]) -> Host {
        let programs = dir.join("bin");
        fs::create_dir_all(&programs).unwrap();
        for (name, script) in scripts {
            let path = programs.join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut path = vec![programs];
        path.extend(Host::system().path);
        Host { path, root: dir.join("root") }
    }

    #[tokio::test]
    async fn programs() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path(), &[("p", "echo \"$@\"; echo why >&2; exit 3"), ("q", "kill -9 $$")]);
        let failed = host.run("p", &["a", "b c"]).await.unwrap_err();
        assert_eq!((failed.code(), failed.output()), (Some(3), "a b c\nwhy\n"));
        assert_eq!(failed.to_string(), "exit status 3");
        assert_eq!(host.run("q", &[]).await.unwrap_err().to_string(), "signal: killed");
        assert_eq!(host.run("echo", &["x"]).await.unwrap(), "x\n");
        let none = Host { path: vec![dir.path().join("none")], ..host };
        let missing = "exec: \"iscsiadm\": executable file not found in $PATH";
        assert_eq!(none.run("iscsiadm", &[]).await.unwrap_err().to_string(), missing);
    }
}
