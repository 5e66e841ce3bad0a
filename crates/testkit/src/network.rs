//! The network of a host, entered by one thread of the test.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace.
pub struct Network(File);

impl Network {
    /// The network of a process.
    pub fn of(process: u32) -> Result<Self> {
        Self::at(format!("/proc/{process}/ns/net").as_ref())
    }

    /// The network that a file stands for.
    pub(crate) fn at(file: &Path) -> Result<Self> {
        Ok(Self(File::open(file).with_context(|| format!("no network at {}", file.display()))?))
    }

    /// Does work on a thread in the network. Sockets that it makes and threads that it starts stay there; the thread
    /// itself ends with the work.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?;
                work()
            });
            thread.join().map_err(|_| anyhow!("the thread in the host's network panicked"))?
        })
    }

    /// Makes a future and runs it on a thread in the network.
    pub fn run<T: Send, F: Future<Output = Result<T>>>(&self, make: impl FnOnce() -> F + Send) -> Result<T> {
        self.within(|| tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(make()))
    }
}
