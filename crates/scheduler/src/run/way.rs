//! The way of a Pod to its node, once all that it needs is held.

use api::Status;
use tokio::time::Instant;

use crate::extender::Extender;
use crate::framework::points::{Binding, Unbound};
use crate::framework::profile::Profile;
use crate::framework::state::State;
use crate::framework::times::{Code, Point, Times};
use crate::framework::verdict::Rejection;
use crate::framework::waiting::Permitted;
use crate::queue::{Entry, Mark};

use super::metrics::Metrics;

/// A Pod on its way to a node, or at the end of it.
pub(super) struct Bound {
    pub(super) entry: Entry,
    /// The events before its turn began.
    pub(super) mark: Mark,
    pub(super) node: String,
    pub(super) carried: State,
    pub(super) result: Result<(), Failure>,
}

/// Why the way ended.
#[derive(Debug)]
pub(super) enum Failure {
    /// A plugin does not want the Pod there.
    Refused(Rejection),
    /// Something went wrong. The Pod is tried again, unless it is gone.
    Failed { why: String, gone: bool },
}

/// The way of a Pod that holds all it needs: permission, PreBind, Bind, PostBind.
pub(super) async fn go(
    profile: &Profile,
    binding: &Binding<'_>,
    permitted: Option<Permitted>,
    extenders: &[Extender],
    (metrics, mut times): (&Metrics, Times),
) -> Result<(), Failure> {
    let result = async {
        if let Some(permitted) = permitted {
            let start = Instant::now();
            let answer = binding.place.without(permitted.wait()).await;
            let result = if answer.is_ok() { "Success" } else { "Unschedulable" };
            metrics.permitted(result, start.elapsed());
            answer.map_err(Failure::Refused)?;
        }
        prepare(profile, binding, &mut times).await?;
        bind(profile, binding, extenders, &mut times).await?;
        times.pass();
        for at in &profile.post_bind {
            let ask = || at.plugin.post_bind(binding);
            times.plugin(Point::PostBind, at.name, |()| Code::Success, ask);
        }
        times.ended(Point::PostBind, Code::Success);
        Ok(())
    }
    .await;
    metrics.took(&profile.name, &times);
    result
}

/// Why a plugin ends the way.
fn failed(point: &str, name: &str, why: Unbound) -> Failure {
    match why {
        Unbound::Refused(rejection) => Failure::Refused(rejection),
        Unbound::Failed(Status { message, .. }) if message.is_empty() => {
            Failure::Failed { why: format!("running {point} plugin {name:?}"), gone: false }
        }
        Unbound::Failed(status) => Failure::Failed {
            why: format!("running {point} plugin {name:?}: {}", status.message),
            gone: status.is_not_found(),
        },
    }
}

fn code<T>(answer: &Result<T, Unbound>) -> Code {
    match answer {
        Ok(_) => Code::Success,
        Err(Unbound::Refused(rejection)) => Code::of(rejection),
        Err(Unbound::Failed(_)) => Code::Error,
    }
}

/// Asks the PreBind plugins that have something to do.
async fn prepare(profile: &Profile, binding: &Binding<'_>, times: &mut Times) -> Result<(), Failure> {
    times.pass();
    let mut concerned = Vec::new();
    for at in &profile.pre_bind {
        let asked = times.asks();
        let concerns = at.plugin.concerns(binding.pod, binding.node, binding.carried);
        let code = if concerns { Code::Success } else { Code::Skip };
        times.answered(asked, Point::PreBindPreFlight, at.name, code);
        if concerns {
            concerned.push(at);
        }
    }
    times.ended(Point::PreBindPreFlight, if concerned.is_empty() { Code::Skip } else { Code::Success });
    for at in &concerned {
        let asked = times.asks();
        let answer = at.plugin.pre_bind(binding).await;
        times.answered(asked, Point::PreBind, at.name, code(&answer));
        times.ended(Point::PreBind, code(&answer));
        answer.map_err(|e| failed("PreBind", at.name, e))?;
    }
    Ok(())
}

/// Has an extender or a plugin bind the Pod.
async fn bind(
    profile: &Profile,
    binding: &Binding<'_>,
    extenders: &[Extender],
    times: &mut Times,
) -> Result<(), Failure> {
    if let Some(extender) = extenders.iter().find(|e| e.binds() && e.concerns(binding.pod)) {
        match extender.bind(binding.pod, binding.node).await {
            Ok(()) => return Ok(()),
            Err(_) if extender.is_ignorable() => {}
            Err(Unbound::Refused(rejection)) => return Err(Failure::Refused(rejection)),
            Err(Unbound::Failed(status)) => return Err(Failure::Failed { why: status.message, gone: false }),
        }
        times.pass();
    }
    for at in &profile.bind {
        let asked = times.asks();
        let answer = at.plugin.bind(binding).await;
        let code = if matches!(answer, Ok(false)) { Code::Skip } else { code(&answer) };
        times.answered(asked, Point::Bind, at.name, code);
        times.ended(Point::Bind, code);
        if answer.map_err(|e| failed("Bind", at.name, e))? {
            return Ok(());
        }
    }
    Err(Failure::Failed { why: "no Bind plugin binds the Pod".to_owned(), gone: false })
}
