//! Lifecycle hooks of containers.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};

use super::addresses::Addresses;
use super::spec;
use crate::metrics::{self, Metrics};
use crate::probes::check::{self, HttpError, HttpTarget, Outcome, PortError};
use crate::recorder::PodRecorder;
use crate::runtime::{CallError, Runtime};

/// The longest that a hook without a limit of its own may take.
const FOREVER: Duration = Duration::from_hours(87600);
/// How long an HTTP hook may take; upstream's client has this limit.
const HTTP_LIMIT: Duration = Duration::from_secs(30);

/// Why a hook failed; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
    #[error(
        "Exec lifecycle hook ([{command}]) for Container {container:?} in Pod {pod:?} failed - error: {error}, message: {output:?}"
    )]
    Exec { command: String, container: String, pod: String, error: Box<CommandError>, output: String },
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("context deadline exceeded")]
    TimedOut,
    #[error("{0}")]
    Tcp(String),
    #[error("cannot run handler: unknown handler")]
    Unknown,
}

/// Why the command of a hook failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("timed out")]
    TimedOut,
    #[error(transparent)]
    Call(CallError),
    #[error("command '{command}' exited with {code}: {said}")]
    Exited { command: String, code: i32, said: String },
}

/// Runs a hook of a container. Dropping the future gives it up.
///
/// # Errors
/// Upstream's text; it may hold what the hook printed and belongs into no Event.
pub(crate) async fn run(
    runtime: &Runtime,
    addresses: &Addresses,
    recorder: &PodRecorder,
    pod: &Pod,
    container: &Container,
    id: &str,
    hook: &LifecycleHandler,
) -> Result<(), HookError> {
    if let Some(exec) = &hook.exec {
        let command = exec.command.as_deref().unwrap_or_default();
        return run_command(runtime, id, command).await.map_err(|(error, output)| HookError::Exec {
            command: command.join(" "),
            container: container.name.clone(),
            pod: spec::full_name(pod),
            error: Box::new(error),
            output,
        });
    }
    if let Some(action) = &hook.http_get {
        let ip = addresses.of(pod).unwrap_or_default();
        let agent = "kube-lifecycle/1.36";
        let mut target = HttpTarget::new(action, container, &ip, agent)?;
        let mut answer = tokio::time::timeout(HTTP_LIMIT, check::request(&target)).await;
        // Hooks once ignored the scheme: a server without TLS must still be reached.
        if matches!(&answer, Ok(Err(error)) if error.is_in_the_clear()) {
            target.scheme = "http".into();
            target.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
            let again = tokio::time::timeout(HTTP_LIMIT, check::request(&target)).await;
            if matches!(again, Ok(Ok(_))) {
                runtime.metrics.count(&metrics::LIFECYCLE_HANDLER_HTTP_FALLBACKS_TOTAL, &[]);
                let message = format!(
                    "request to HTTPS lifecycle hook {} got HTTP response, retry with HTTP succeeded",
                    target.authority()
                );
                recorder.pod(pod, "Warning", "LifecycleHTTPFallback", message);
                answer = again;
            }
        }
        return match answer {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(HookError::TimedOut),
        };
    }
    if let Some(action) = &hook.tcp_socket {
        let ip = addresses.of(pod).unwrap_or_default();
        let host = action.host.as_deref().filter(|h| !h.is_empty()).unwrap_or(&ip);
        return match check::tcp(host, check::port(&action.port, container)?, HTTP_LIMIT).await {
            Outcome::Failure(why) | Outcome::Error(why) => Err(HookError::Tcp(why)),
            Outcome::Success | Outcome::Warning(_) => Ok(()),
        };
    }
    if let Some(sleep) = &hook.sleep {
        let mut ends_early = Early(Some(&runtime.metrics));
        tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
        ends_early.0 = None;
        return Ok(());
    }
    Err(HookError::Unknown)
}

/// Counts a sleep that is given up before its end.
struct Early<'a>(Option<&'a Metrics>);

impl Drop for Early<'_> {
    fn drop(&mut self) {
        if let Some(metrics) = self.0 {
            metrics.count(&metrics::SLEEP_ACTION_TERMINATED_EARLY_TOTAL, &[]);
        }
    }
}

/// Runs a command in a container; what it printed with the error.
async fn run_command(runtime: &Runtime, id: &str, command: &[String]) -> Result<(), (CommandError, String)> {
    // A limit of 0 is none.
    let request =
        cri::runtime::ExecSyncRequest { container_id: id.to_owned(), cmd: command.to_vec(), timeout: 0 };
    match tokio::time::timeout(FOREVER, runtime.service().exec_sync(request)).await {
        Err(_) => Err((CommandError::TimedOut, String::new())),
        Ok(Err(status)) => Err((CommandError::Call(status.into()), String::new())),
        Ok(Ok(answer)) => {
            let answer = answer.into_inner();
            if answer.exit_code == 0 {
                return Ok(());
            }
            let mut output = String::from_utf8_lossy(&answer.stdout).into_owned();
            output.push_str(&String::from_utf8_lossy(&answer.stderr));
            let command = command.join(" ");
            let said = output.trim_end().to_owned();
            Err((CommandError::Exited { command, code: answer.exit_code, said }, output))
        }
    }
}
