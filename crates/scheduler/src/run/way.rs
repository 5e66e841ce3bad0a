//! The way of a Pod to its node, once all that it needs is held.

use api::Status;
use tokio::time::Instant;

use crate::extender::Extender;
use crate::framework::points::{Binding, Unbound};
use crate::framework::profile::Profile;
use crate::framework::state::State;
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
    metrics: &Metrics,
) -> Result<(), Failure> {
    if let Some(permitted) = permitted {
        let start = Instant::now();
        let answer = binding.place.without(permitted.wait()).await;
        let result = if answer.is_ok() { "Success" } else { "Unschedulable" };
        metrics.permitted(result, start.elapsed());
        answer.map_err(Failure::Refused)?;
    }
    let failed = |point: &str, name: &str, why: Unbound| match why {
        Unbound::Refused(rejection) => Failure::Refused(rejection),
        Unbound::Failed(Status { message, .. }) if message.is_empty() => {
            Failure::Failed { why: format!("running {point} plugin {name:?}"), gone: false }
        }
        Unbound::Failed(status) => Failure::Failed {
            why: format!("running {point} plugin {name:?}: {}", status.message),
            gone: status.is_not_found(),
        },
    };
    for at in &profile.pre_bind {
        if at.plugin.concerns(binding.pod, binding.node, binding.carried) {
            at.plugin.pre_bind(binding).await.map_err(|e| failed("PreBind", at.name, e))?;
        }
    }
    let bound = || profile.post_bind.iter().for_each(|at| at.plugin.post_bind(binding));
    if let Some(extender) = extenders.iter().find(|e| e.binds() && e.concerns(binding.pod)) {
        match extender.bind(binding.pod, binding.node).await {
            Ok(()) => {
                bound();
                return Ok(());
            }
            Err(_) if extender.is_ignorable() => {}
            Err(Unbound::Refused(rejection)) => return Err(Failure::Refused(rejection)),
            Err(Unbound::Failed(status)) => return Err(Failure::Failed { why: status.message, gone: false }),
        }
    }
    for at in &profile.bind {
        if at.plugin.bind(binding).await.map_err(|e| failed("Bind", at.name, e))? {
            bound();
            return Ok(());
        }
    }
    Err(Failure::Failed { why: "no Bind plugin binds the Pod".to_owned(), gone: false })
}
