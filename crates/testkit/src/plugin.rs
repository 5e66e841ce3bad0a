//! Plugins of nodes that run in the test's process.

use std::fs;
use std::path::PathBuf;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use plugins::socket::listen;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;

/// Sockets that are served by a thread of their own. They go with it.
pub(crate) struct Serving {
    sockets: Vec<PathBuf>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Listens, and serves until it is dropped.
    pub(crate) fn start<F>(
        sockets: Vec<PathBuf>,
        serve: impl FnOnce(Vec<UnixListenerStream>) -> F + Send + 'static,
    ) -> Result<Self>
    where
        F: Future<Output = ()>,
    {
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listeners = {
            let _inside = runtime.enter();
            let one = |socket: &PathBuf| {
                let listener =
                    listen(socket).with_context(|| format!("{}: is the kubelet there?", socket.display()));
                Ok(UnixListenerStream::new(listener?))
            };
            sockets.iter().map(one).collect::<Result<Vec<_>>>()?
        };
        let thread = std::thread::spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(listeners) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { sockets, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for socket in &self.sockets {
            let _ = fs::remove_file(socket);
        }
    }
}
