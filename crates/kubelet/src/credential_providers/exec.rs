//! A provider's program: it reads a `CredentialProviderRequest` and writes a `CredentialProviderResponse`, in JSON.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::provider::Provider;
use crate::exit_status;

/// How long a program may take; upstream's.
const TIME: Duration = Duration::from_mins(1);
/// The most bytes of an answer.
const ANSWER: usize = 1 << 20;
/// The most bytes of a program's complaint that are told.
const COMPLAINT: usize = 4 << 10;

/// A provider's program with its arguments.
#[derive(Debug, Clone)]
pub(super) struct Program {
    name: String,
    path: PathBuf,
    version: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

/// The image that credentials are wanted for, and the account that wants them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) image: &'a str,
    /// The account's token, "" for none.
    pub(super) token: &'a str,
    pub(super) annotations: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    kind: &'static str,
    api_version: &'a str,
    image: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    service_account_token: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    service_account_annotations: &'a BTreeMap<String, String>,
}

/// A user and its password.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Login {
    pub(super) username: String,
    pub(super) password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("username", &self.username).finish_non_exhaustive()
    }
}

/// A program's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct Response {
    kind: String,
    api_version: String,
    /// `Image`, `Registry` or `Global`: for which images the answer is good.
    pub(super) cache_key_type: String,
    cache_duration: Option<String>,
    auth: Option<BTreeMap<String, Option<Login>>>,
}

impl Response {
    /// How long the answer may be kept; none if it does not say.
    pub(super) fn keep(&self) -> Option<Duration> {
        let text = self.cache_duration.as_deref()?;
        // It was read before; one that is negative is over.
        let time = api::time::parse_duration(text).unwrap_or_default();
        Some(Duration::try_from(time).unwrap_or_default())
    }
    /// The logins, by the places that they are for.
    pub(super) fn logins(&self) -> impl Iterator<Item = (&String, Login)> {
        self.auth.iter().flatten().map(|(place, login)| (place, login.clone().unwrap_or_default()))
    }
}

/// Why a program has no answer; upstream's words. None tells anything of an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExecError {
    #[error("error execing credential provider plugin {name} for image {image}: {why}: {complaint}")]
    Failed { name: String, image: String, why: String, complaint: String },
    #[error("error reading GVK from response: couldn't get version/kind; it is no JSON object that has them")]
    NoKind,
    #[error(
        "apiVersion from credential plugin response did not match expected apiVersion:{wanted}, actual apiVersion:{got}"
    )]
    OtherVersion { wanted: String, got: String },
    #[error("error decoding credential provider plugin response from stdout")]
    Undecodable,
}

impl Program {
    /// The program of a provider in a directory.
    pub(super) fn new(directory: &Path, provider: &Provider) -> Self {
        Self {
            name: provider.name.clone(),
            path: directory.join(&provider.name),
            version: provider.api_version.clone(),
            args: provider.args.clone(),
            env: provider.env.iter().map(|v| (v.name.clone(), v.value.clone())).collect(),
        }
    }

    /// Runs the program. It and what it began are killed if nobody waits any more, or after a minute.
    pub(super) async fn ask(&self, asked: Asked<'_>) -> Result<Response, ExecError> {
        let request = Request {
            kind: "CredentialProviderRequest",
            api_version: &self.version,
            image: asked.image,
            service_account_token: asked.token,
            service_account_annotations: asked.annotations,
        };
        let failed = |why: String, complaint: &[u8]| ExecError::Failed {
            name: self.name.clone(),
            image: asked.image.to_owned(),
            why,
            complaint: String::from_utf8_lossy(complaint).into_owned(),
        };
        let mut request = serde_json::to_vec(&request).map_err(|e| failed(e.to_string(), b""))?;
        request.push(b'\n');
        let mut complaint = Vec::new();
        let ran = tokio::time::timeout(TIME, self.run(&request, &mut complaint)).await;
        match ran {
            Err(_) => Err(failed("context deadline exceeded".into(), &complaint)),
            Ok(Err(error)) => Err(failed(error.to_string(), &complaint)),
            Ok(Ok((status, _))) if !status.success() => Err(failed(exit_status::told(status), &complaint)),
            Ok(Ok((_, answer))) => self.read(&answer),
        }
    }

    async fn run(&self, request: &[u8], complaint: &mut Vec<u8>) -> io::Result<(ExitStatus, Vec<u8>)> {
        let child = Command::new(&self.path)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let mut group = Group(child);
        let child = &mut group.0;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async move {
            if let Some(mut stdin) = stdin {
                // A program that does not want to know is not asked to.
                let _ = stdin.write_all(request).await;
            }
            Ok(())
        };
        let read = async {
            let answer = match stdout {
                Some(stdout) => at_most(stdout, ANSWER).await?,
                None => Vec::new(),
            };
            if answer.len() > ANSWER {
                return Err(io::Error::other(format!("its answer has more than {ANSWER} bytes")));
            }
            Ok(answer)
        };
        let hear = async {
            if let Some(mut stderr) = stderr {
                let _ = (&mut stderr).take(COMPLAINT as u64).read_to_end(complaint).await;
                // A program that complains on must not wait for a reader.
                let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
            }
            Ok(())
        };
        let ((), answer, ()) = tokio::try_join!(write, read, hear)?;
        Ok((child.wait().await?, answer))
    }

    /// Reads an answer.
    fn read(&self, answer: &[u8]) -> Result<Response, ExecError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind {
            #[serde(default)]
            api_version: String,
        }
        let kind: Kind = serde_json::from_slice(answer).map_err(|_| ExecError::NoKind)?;
        if kind.api_version != self.version {
            return Err(ExecError::OtherVersion { wanted: self.version.clone(), got: kind.api_version });
        }
        let response: Response = serde_json::from_slice(answer).map_err(|_| ExecError::Undecodable)?;
        let timed = response.cache_duration.as_deref().is_none_or(|t| api::time::parse_duration(t).is_some());
        if response.kind != "CredentialProviderResponse" || !timed {
            return Err(ExecError::Undecodable);
        }
        Ok(response)
    }
}

/// Reads one byte more than the limit at most.
async fn at_most(from: impl AsyncRead + Unpin, limit: usize) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    from.take(limit as u64 + 1).read_to_end(&mut all).await?;
    Ok(all)
}

/// A program with the processes that it began, which do not outlive it.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // Nothing has its number while nobody has waited for it.
        if let Some(group) = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::provider::VERSIONS;
    use super::*;

    /// A program of a shell's lines.
    pub(in super::super) fn script(directory: &Path, name: &str, lines: &str) {
        let path = directory.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    }

    async fn ask(lines: &str, asked: Asked<'_>) -> Result<Response, ExecError> {
        let dir = tempfile::tempdir().unwrap();
        script(dir.path(), "p", lines);
        let env = vec![("KIND".to_owned(), "CredentialProviderResponse".to_owned())];
        let program = Program {
            name: "p".into(),
            path: dir.path().join("p"),
            version: VERSIONS[0].into(),
            args: vec!["one".into(), "two words".into()],
            env,
        };
        program.ask(asked).await
    }

    fn image(annotations: &BTreeMap<String, String>) -> Asked<'_> {
        Asked { image: "r.test/a", token: "", annotations }
    }

    #[tokio::test]
    async fn a_program_is_asked_as_upstream_asks() {
        let annotations = BTreeMap::from([("a/b".to_owned(), "c".to_owned())]);
        // It answers with what it was asked as the user, and its arguments as the password.
        let lines = r#"read -r request
user=$(printf %s "$request" | sed 's/"/\\"/g')
printf '{"kind":"%s","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Image","cacheDuration":"1m30s","auth":{"r.test":{"username":"%s","password":"%s %s"}}}' "$KIND" "$user" "$#" "$2"
echo noise >&2"#;
        let asked = Asked { image: "r.test/a", token: "t", annotations: &annotations };
        let got = ask(lines, asked).await.unwrap();
        assert_eq!((got.cache_key_type.as_str(), got.keep()), ("Image", Some(Duration::from_secs(90))));
        let (place, login) = got.logins().next().unwrap();
        let request = r#"{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"r.test/a","serviceAccountToken":"t","serviceAccountAnnotations":{"a/b":"c"}}"#;
        assert_eq!(
            (place.as_str(), login.username.as_str(), login.password.as_str()),
            ("r.test", request, "2 two words")
        );
        let got = ask(lines, image(&BTreeMap::new())).await.unwrap();
        let request = r#"{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"r.test/a"}"#;
        assert_eq!(got.logins().next().unwrap().1.username, request);
        assert_eq!(
            format!("{:?}", Login { username: "u".into(), password: "p".into() }),
            "Login { username: \"u\", .. }"
        );
    }

    #[tokio::test]
    async fn bad_answers_are_errors() {
        let none = BTreeMap::new();
        let head = "error execing credential provider plugin p for image r.test/a: ";
        for (lines, want) in [
            ("echo no >&2; exit 3".to_owned(), format!("{head}exit status 3: no\n")),
            ("kill -9 $$".to_owned(), format!("{head}signal: killed: ")),
            (
                "head -c 2000000 /dev/zero".to_owned(),
                format!("{head}its answer has more than {ANSWER} bytes: "),
            ),
            ("head -c 9000 /dev/zero | tr '\\0' x >&2; exit 1".to_owned(), format!("{head}exit status 1: {}", "x".repeat(COMPLAINT))),
            ("echo '{'".to_owned(), ExecError::NoKind.to_string()),
            (
                "echo '{\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1beta1\"}'".to_owned(),
                "apiVersion from credential plugin response did not match expected apiVersion:credentialprovider.kubelet.k8s.io/v1, actual apiVersion:credentialprovider.kubelet.k8s.io/v1beta1".to_owned(),
            ),
        ] {
            assert_eq!(ask(&lines, image(&none)).await.unwrap_err().to_string(), want, "{lines}");
        }
        for fields in [
            "\"kind\":\"Other\"",
            "\"kind\":\"CredentialProviderResponse\",\"more\":1",
            "\"kind\":\"CredentialProviderResponse\",\"cacheDuration\":\"often\"",
            "\"kind\":\"CredentialProviderResponse\",\"auth\":{\"a\":{\"user\":\"secret\"}}",
        ] {
            let lines = format!("echo '{{\"apiVersion\":\"{}\",{fields}}}'", VERSIONS[0]);
            assert_eq!(ask(&lines, image(&none)).await, Err(ExecError::Undecodable), "{fields}");
        }
    }

    /// The clock stands still while a program runs, and goes on at once where nothing else is to be done.
    #[tokio::test(start_paused = true)]
    async fn a_program_has_a_minute() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let lines = format!("sleep 1000 & echo $$ $! > {}; wait", pids.display());
        let began = tokio::time::Instant::now();
        let none = BTreeMap::new();
        let asking = ask(&lines, image(&none));
        // The paused clock must not run out before the program has begun.
        let begun = async {
            while std::fs::read_to_string(&pids).unwrap_or_default().trim().is_empty() {
                tokio::task::spawn_blocking(std::thread::yield_now).await.unwrap();
            }
        };
        let (answer, ()) = tokio::join!(asking, begun);
        let error = answer.unwrap_err().to_string();
        assert!(error.contains(": context deadline exceeded: "), "{error}");
        assert_eq!(began.elapsed(), TIME);
        let text = std::fs::read_to_string(&pids).unwrap();
        for pid in text.split_whitespace() {
            let ended = || {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                stat.is_empty() || stat.contains(") Z ")
            };
            while !ended() {
                std::thread::yield_now();
            }
        }
    }
}
