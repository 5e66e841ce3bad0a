//! The end of a control plane: by a signal, or by a part that cannot go on.

use anyhow::{Result, bail};
use component::Shutdown;
use tokio::signal::unix::{SignalKind, signal};

use crate::control_plane::ControlPlane;
use crate::say::say;

/// Waits for an interrupt, then stops in order: nodes that are processes of their own, then the control plane.
pub(crate) async fn until_stopped(
    plane: ControlPlane,
    nodes: Option<Shutdown>,
    farewell: &str,
) -> Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let failure = plane.failure();
    let process = plane.shutdown().clone();
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        why = failure.wait() => return Err(why),
        lost = process.panicked() => bail!(
            "{lost}; that is a defect of FerroKube, please report it; nothing that was acknowledged is lost, start it again"
        ),
    }
    say(farewell);
    let again = async {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
    };
    let stop = async {
        if let Some(nodes) = nodes {
            nodes.finish().await;
        }
        plane.stop().await;
    };
    tokio::select! {
        () = stop => Ok(()),
        () = again => bail!("stopped at once; what was acknowledged is safe"),
    }
}
