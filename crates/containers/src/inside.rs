//! The hooks of a container that run in its namespaces, while the host's files are there yet.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use oci_spec::runtime::Hook;

use crate::core::Core;
use crate::error::{Doing, Result};
use crate::hooks::{self, Moment, Of, TOLD, environment, fault, limit, told};
use crate::plan;
use crate::shim::wire::spawn;
use crate::sources::Given;
use crate::stream::{Stream, pipe};
use crate::under_way;

/// Runs the hooks that belong into the container's namespaces, while the host's files are there yet.
pub(crate) async fn run(core: &Arc<Core>, of: &Of<'_>, pid: i32, pidfd: &OwnedFd) -> Result<()> {
    let moment = Moment::CreateContainer;
    let state = of.state(moment, Some(pid))?;
    for (place, one) in hooks::of(of.spec, moment).iter().enumerate() {
        let done = tokio::time::timeout(limit(one), inside(core, one, &state, pidfd)).await;
        match done {
            Ok(Ok((0, _))) => {}
            Ok(Ok((code, said))) => {
                return Err(fault(moment, place, &format!("exit status {code}, stderr: {}", told(&said))));
            }
            Ok(Err(e)) => return Err(fault(moment, place, &e.to_string())),
            Err(_) => {
                let text = format!("hook ran past specified timeout of {:?}", limit(one));
                return Err(fault(moment, place, &text));
            }
        }
    }
    Ok(())
}

/// Ends a process of the shim's, and has it forgotten, however its maker ends.
struct Discard(Arc<Core>, u32);

impl Drop for Discard {
    fn drop(&mut self) {
        let (core, slot) = (Arc::clone(&self.0), self.1);
        self.0.shutdown.spawn_one(async move { core.discard(slot).await });
    }
}

/// Runs a hook in the namespaces of a process: its exit code, and its words.
async fn inside(core: &Arc<Core>, one: &Hook, state: &[u8], of: &OwnedFd) -> Result<(i32, Vec<u8>)> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let again = || of.try_clone().doing(|| "duplicate a descriptor");
    let (input, write) = pipe().doing(|| "make a pipe")?;
    let (read, output) = pipe().doing(|| "make a pipe")?;
    let both = output.try_clone().doing(|| "duplicate a descriptor")?;
    let streams = [Some(input), Some(output), Some(both)];
    let given = Given { process: Some(again()?), streams, ..Given::default() };
    let mut args = one.args().clone().unwrap_or_default();
    if args.is_empty() {
        args.push(one.path().display().to_string());
    }
    let path = one.path().display().to_string();
    let plan = plan::hook_inside(&path, &args, &environment(one));
    let slot = core.slot();
    let mut ended = core.follow(slot, None);
    let discard = Discard(Arc::clone(core), slot);
    under_way::run(core, slot, spawn::EXEC | spawn::IN_PID, vec![again()?], &plan, given).await?;
    let (mut write, read) =
        (Stream::new(write).doing(|| "write a pipe")?, Stream::new(read).doing(|| "read a pipe")?);
    let mut said = Vec::new();
    let feed = async {
        let _ = write.write_all(state).await;
        drop(write);
    };
    let mut read = read.take(TOLD as u64);
    let hear = async {
        let _ = read.read_to_end(&mut said).await;
        let _ = tokio::io::copy(&mut read.into_inner(), &mut tokio::io::sink()).await;
    };
    tokio::join!(feed, hear);
    let ended = ended.wait_for(Option::is_some).await.ok().and_then(|e| *e);
    drop(discard);
    Ok((ended.map_or(255, |e| e.code().0), said))
}
