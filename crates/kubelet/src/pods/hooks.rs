//! Lifecycle hooks of containers.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, LifecycleHandler, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::addresses::Addresses;
use super::spec;
use crate::metrics::{self, Metrics};
use crate::probes::check::{self, HttpError, HttpTarget, PortError};
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
    #[error(
        "HTTP lifecycle hook ({path}) for Container {container:?} in Pod {pod:?} failed - error: {error}"
    )]
    Http { path: String, container: String, pod: String, error: Box<RequestError> },
    /// It is none that is run; `tcpSocket` is in the API for no use.
    #[error("Cannot run handler: invalid handler: {0}")]
    Invalid(String),
}

/// Why the request of a hook failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("context deadline exceeded")]
    TimedOut,
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
        let requested = request(runtime, addresses, recorder, (pod, container), action).await;
        return requested.map_err(|error| HookError::Http {
            path: action.path.clone().unwrap_or_default(),
            container: container.name.clone(),
            pod: spec::full_name(pod),
            error: Box::new(error),
        });
    }
    if let Some(sleep) = &hook.sleep {
        let mut ends_early = Early(Some(&runtime.metrics));
        tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
        ends_early.0 = None;
        return Ok(());
    }
    Err(HookError::Invalid(go_text(hook)))
}

/// A hook that is not run, as Go prints it.
fn go_text(hook: &LifecycleHandler) -> String {
    let tcp = hook.tcp_socket.as_ref().map_or_else(
        || "nil".to_owned(),
        |action| {
            let port = match &action.port {
                IntOrString::Int(port) => format!("{{0 {port} }}"),
                IntOrString::String(name) => format!("{{1 0 {name}}}"),
            };
            format!("&TCPSocketAction{{Port:{port},Host:{},}}", action.host.as_deref().unwrap_or_default())
        },
    );
    format!("&LifecycleHandler{{Exec:nil,HTTPGet:nil,TCPSocket:{tcp},Sleep:nil,}}")
}

/// Makes the request of a hook.
async fn request(
    runtime: &Runtime,
    addresses: &Addresses,
    recorder: &PodRecorder,
    (pod, container): (&Pod, &Container),
    action: &HTTPGetAction,
) -> Result<(), RequestError> {
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
    match answer {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(RequestError::TimedOut),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A hook of a kind that is not run fails, with Go's words for it, as upstream's `TestRunHandlerNil` has it.
    #[test]
    fn hooks_that_are_not_run() {
        let check = |hook: Value, expected: &str| {
            let error = HookError::Invalid(go_text(&serde_json::from_value(hook).unwrap()));
            let expected = format!(
                "Cannot run handler: invalid handler: &LifecycleHandler{{Exec:nil,HTTPGet:nil,TCPSocket:{expected},Sleep:nil,}}"
            );
            assert_eq!(error.to_string(), expected);
        };
        check(json!({}), "nil");
        check(json!({"tcpSocket": {"port": 8080}}), "&TCPSocketAction{Port:{0 8080 },Host:,}");
        check(
            json!({"tcpSocket": {"port": "http", "host": "h"}}),
            "&TCPSocketAction{Port:{1 0 http},Host:h,}",
        );
    }

    #[test]
    fn requests_that_fail() {
        let error = HookError::Http {
            path: "/bar".into(),
            container: "containerFoo".into(),
            pod: "podFoo_nsFoo(u)".into(),
            error: Box::new(RequestError::TimedOut),
        };
        let expected = "HTTP lifecycle hook (/bar) for Container \"containerFoo\" in Pod \"podFoo_nsFoo(u)\" failed - error: context deadline exceeded";
        assert_eq!(error.to_string(), expected);
    }
}
