//! User namespaces for mappings, and the namespaces of a sandbox that has one.

use std::os::fd::OwnedFd;
use std::process::Child;

use crate::core::{Machine, blocking};
use crate::error::{Doing, Error, Result};
use crate::plan::{self, Plan, sync};
use crate::shim::setup::{self, Note};
use crate::shim::socket;
use crate::sources;
use crate::spec::{IdMappings, SandboxSpec};

/// A process that makes namespaces and is gone afterwards.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes namespaces by a plan, and takes hold of those with the given names.
async fn make(
    machine: &Machine,
    plan: &Plan,
    maps: &IdMappings,
    names: &[&'static str],
) -> Result<Vec<(&'static str, OwnedFd)>> {
    let (ours, theirs) = socket::pair().doing(|| "make a socket")?;
    let helper = Helper(machine.program.run(theirs).doing(|| "start the shim's program")?);
    let pid = helper.0.id() as i32;
    setup::send(&ours, plan, &[]).await?;
    let mut held = Vec::new();
    loop {
        match setup::next(&ours, plan).await? {
            Note::Sync(code) => {
                if code == sync::MAPPINGS {
                    sources::write_mappings(pid, maps)?;
                } else {
                    for name in names {
                        held.push((*name, sources::file(format!("/proc/{pid}/ns/{name}").as_ref())?));
                    }
                }
                setup::go_on(&ours, code).await?;
            }
            Note::Gone if held.len() == names.len() => break,
            _ => return Err(Error::Invalid("the namespaces were not made".to_owned())),
        }
    }
    blocking(move || {
        drop(helper);
        Ok(())
    })
    .await?;
    Ok(held)
}

/// The namespaces of a sandbox with a user namespace.
pub(crate) async fn sandbox(
    machine: &Machine,
    spec: &SandboxSpec,
    maps: &IdMappings,
) -> Result<Vec<(&'static str, OwnedFd)>> {
    let mut names = vec!["user"];
    names.extend(plan::made_names(spec));
    make(machine, &plan::namespaces(spec), maps, &names).await
}

/// The user namespaces of those mounts of a plan whose mappings are not the sandbox's.
pub(crate) async fn foreign(
    machine: &Machine,
    plan: &Plan,
    own: Option<&IdMappings>,
) -> Result<Vec<(OwnedFd, IdMappings)>> {
    let mut out = Vec::new();
    for maps in sources::foreign_maps(&plan.sources, own) {
        let made = make(machine, &plan::mapping(), &maps, &["user"]).await?;
        out.extend(made.into_iter().map(|(_, d)| (d, maps.clone())));
    }
    Ok(out)
}
