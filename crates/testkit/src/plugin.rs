//! Plugins of nodes that run in the test's process.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use plugins::registration::registration_server::Registration;
use plugins::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use plugins::socket::listen;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ways in which calls of a plugin go wrong, by the calls' names. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Faults<F>(Arc<Mutex<BTreeMap<String, F>>>);

impl<F> Default for Faults<F> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<F: Clone> Faults<F> {
    /// Lets calls of a name go wrong, or go well again.
    pub(crate) fn set(&self, call: &str, fault: Option<F>) {
        let mut all = locked(&self.0);
        match fault {
            Some(fault) => drop(all.insert(call.to_owned(), fault)),
            None => drop(all.remove(call)),
        }
    }

    /// The way in which calls of a name go wrong.
    pub(crate) fn of(&self, call: &str) -> Option<F> {
        locked(&self.0).get(call).cloned()
    }
}

/// The service by which the kubelet learns of a plugin. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Introduction {
    info: PluginInfo,
    answers: Arc<Mutex<Vec<String>>>,
}

impl Introduction {
    /// Of a plugin of this kind, name and socket.
    pub(crate) fn new(kind: &str, name: &str, endpoint: &std::path::Path, versions: &[&str]) -> Self {
        let info = PluginInfo {
            r#type: kind.to_owned(),
            name: name.to_owned(),
            endpoint: endpoint.display().to_string(),
            supported_versions: versions.iter().map(ToString::to_string).collect(),
        };
        Self { info, answers: Arc::default() }
    }

    /// The kubelet's answers: the errors, empty for none.
    pub(crate) fn answers(&self) -> Vec<String> {
        locked(&self.answers).clone()
    }
}

#[tonic::async_trait]
impl Registration for Introduction {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        locked(&self.answers).push(status.into_inner().error);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

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
