//! Lifecycle hooks of containers.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};

use super::addresses::Addresses;
use super::spec;
use crate::probes::check::{self, HttpTarget, Outcome};
use crate::runtime::Runtime;

/// The longest that a hook without a limit of its own may take.
const FOREVER: Duration = Duration::from_hours(87600);
/// How long an HTTP hook may take; upstream's client has this limit.
const HTTP_LIMIT: Duration = Duration::from_secs(30);

/// Runs a hook of a container. Dropping the future gives it up.
///
/// # Errors
/// Upstream's text; it may hold what the hook printed and belongs into no Event.
pub(crate) async fn run(
    runtime: &Runtime,
    addresses: &Addresses,
    pod: &Pod,
    container: &Container,
    id: &str,
    hook: &LifecycleHandler,
) -> Result<(), String> {
    if let Some(exec) = &hook.exec {
        let command = exec.command.as_deref().unwrap_or_default();
        // A limit of 0 is none.
        let request =
            cri::runtime::ExecSyncRequest { container_id: id.to_owned(), cmd: command.to_vec(), timeout: 0 };
        let failed = |why: String, output: &str| {
            format!(
                "Exec lifecycle hook ([{}]) for Container {:?} in Pod {:?} failed - error: {why}, message: {output:?}",
                command.join(" "),
                container.name,
                spec::full_name(pod)
            )
        };
        let answer = tokio::time::timeout(FOREVER, runtime.service().exec_sync(request)).await;
        return match answer {
            Err(_) => Err(failed("timed out".into(), "")),
            Ok(Err(status)) => Err(failed(crate::runtime::error_text(&status), "")),
            Ok(Ok(answer)) => {
                let answer = answer.into_inner();
                if answer.exit_code == 0 {
                    return Ok(());
                }
                let mut output = String::from_utf8_lossy(&answer.stdout).into_owned();
                output.push_str(&String::from_utf8_lossy(&answer.stderr));
                Err(failed(
                    format!(
                        "command '{}' exited with {}: {}",
                        command.join(" "),
                        answer.exit_code,
                        output.trim_end()
                    ),
                    &output,
                ))
            }
        };
    }
    if let Some(action) = &hook.http_get {
        let ip = addresses.of(pod).unwrap_or_default();
        let agent = "kube-lifecycle/1.36";
        let mut target = HttpTarget::new(action, container, &ip, agent)?;
        let mut answer = tokio::time::timeout(HTTP_LIMIT, check::request(&target)).await;
        if target.scheme == "https" && !matches!(answer, Ok(Ok(_))) {
            // Hooks once ignored the scheme: a server without TLS must still be reached.
            target.scheme = "http".into();
            target.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
            answer = tokio::time::timeout(HTTP_LIMIT, check::request(&target)).await;
        }
        return match answer {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(why)) => Err(why),
            Err(_) => Err("context deadline exceeded".into()),
        };
    }
    if let Some(action) = &hook.tcp_socket {
        let ip = addresses.of(pod).unwrap_or_default();
        let host = action.host.as_deref().filter(|h| !h.is_empty()).unwrap_or(&ip);
        return match check::tcp(host, check::port(&action.port, container)?, HTTP_LIMIT).await {
            Outcome::Failure(why) | Outcome::Error(why) => Err(why),
            Outcome::Success | Outcome::Warning(_) => Ok(()),
        };
    }
    if let Some(sleep) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
        return Ok(());
    }
    Err("cannot run handler: unknown handler".into())
}
