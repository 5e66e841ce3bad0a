//! Tells when the kernel kills processes of a cgroup because memory is out.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::EventfdFlags;
use tokio::io::Interest;

use crate::cgroups::Group;

/// How often it is looked whether the kernel has killed something, and the time before the first look; it doubles with
/// each. A busy machine takes seconds to choose whom to kill.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// Calls `tell` for each time. It ends with an error where the kernel cannot tell, or once the cgroup is gone.
pub(crate) async fn watch(group: &Group, tell: impl Fn()) -> io::Result<()> {
    if group.unified() { watch_v2(group, tell).await } else { watch_v1(group, tell).await }
}

/// Version 1 counts into an event descriptor.
async fn watch_v1(group: &Group, tell: impl Fn()) -> io::Result<()> {
    let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    group.tell_oom(event.as_fd())?;
    let event = crate::raw::registered(event, Interest::READABLE)?;
    let mut seen = 0;
    loop {
        event.async_io(Interest::READABLE, |d| Ok(rustix::io::read(d, &mut [0u8; 8])?)).await?;
        // The removal of the cgroup is told as well.
        let Some(directory) = group.memory_directory().filter(|d| d.is_dir()) else { return Ok(()) };
        drop(directory);
        // The kernel tells that memory is out before it has chosen whom to kill, and some thousand times until then.
        let mut kills = group.oom_kills();
        for look in 0..LOOKS {
            if kills > seen || group.memory_directory().is_none_or(|d| !d.is_dir()) {
                break;
            }
            tokio::time::sleep(PAUSE * (1 << look)).await;
            kills = group.oom_kills();
        }
        if kills > seen {
            seen = kills;
            tell();
        }
    }
}

/// Version 2 has a file that can be polled for changes.
async fn watch_v2(group: &Group, tell: impl Fn()) -> io::Result<()> {
    let file: OwnedFd = group.open_memory("memory.events")?;
    let file = crate::raw::registered(file, Interest::PRIORITY)?;
    let mut seen = group.oom_kills();
    loop {
        file.ready(Interest::PRIORITY).await?.clear_ready();
        let kills = group.oom_kills();
        if kills > seen {
            seen = kills;
            tell();
        }
        if group.memory_directory().is_none_or(|d| !d.is_dir()) {
            return Ok(());
        }
    }
}
