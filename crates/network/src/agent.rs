//! The agent: it owns the addresses of a node's Pods, and answers the plugin at a socket.

use std::fs::DirBuilder;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use component::Shutdown;
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

use crate::cni::{Call, CniError, Outcome, Request, code};
use crate::place::Place;
use crate::plugin::{ANSWER, LONGEST};
use crate::pods::{Facts, Pods};
use crate::steps::Steps;

/// The number of calls that are read or answered at a time; others wait to be accepted.
const CALLS: usize = 32;

/// The agent of a node. Clones are the same agent.
#[derive(Clone)]
pub struct Agent {
    place: Place,
    pods: Arc<Mutex<Pods>>,
}

impl Agent {
    /// Reads what an agent before left, makes it whole, and answers in the background until `shutdown`.
    pub async fn start(place: Place, shutdown: &Shutdown) -> io::Result<Self> {
        let at = place.clone();
        // The kernel is asked by calls that block.
        let open = tokio::task::spawn_blocking(move || {
            let mut pods = Pods::open(at, Steps::default())?;
            pods.adopt();
            io::Result::Ok(pods)
        });
        let pods = open.await.map_err(io::Error::other)??;
        let agent = Self { place, pods: Arc::new(Mutex::new(pods)) };
        agent.serve(shutdown)?;
        Ok(agent)
    }

    /// Takes new facts of the node.
    pub(crate) fn learn(&self, facts: Facts) -> Result<(), netlink::Error> {
        self.pods.lock().learn(facts)
    }

    /// Opens the socket, and answers in the background until `shutdown`.
    fn serve(&self, shutdown: &Shutdown) -> io::Result<()> {
        let path = self.place.socket();
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        let (agent, stop) = (self.clone(), shutdown.clone());
        shutdown.spawn(async move {
            let _ = stop.run(agent.accept(&listener, &stop)).await;
            // A plugin that finds no socket waits for the next agent.
            let _ = std::fs::remove_file(path);
        });
        Ok(())
    }

    async fn accept(&self, listener: &UnixListener, shutdown: &Shutdown) {
        let places = Arc::new(Semaphore::new(CALLS));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let agent = self.clone();
                    // The kernel is asked by calls that block.
                    shutdown.spawn_one(tokio::task::spawn_blocking(move || {
                        if let Err(error) = stream.into_std().and_then(|stream| agent.converse(stream)) {
                            tracing::debug!(%error, "a call of the CNI plugin broke off");
                        }
                        drop(place);
                    }));
                }
                Err(error) => {
                    tracing::warn!(%error, "the CNI plugin's calls cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn converse(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        let mut text = Vec::new();
        (&stream).take(LONGEST).read_to_end(&mut text)?;
        let outcome = self.answer(&text);
        stream.write_all(&serde_json::to_vec(&outcome)?)
    }

    fn answer(&self, text: &[u8]) -> Outcome {
        let call = serde_json::from_slice::<Call>(text);
        let call = call.map_err(|e| CniError::because(code::DECODING, "failed to decode the call", e));
        match call.and_then(|call| Request::read(&call)).and_then(|request| self.pods.lock().answer(&request))
        {
            Ok(result) => Outcome::Done(result),
            Err(error) => Outcome::Failed(error),
        }
    }
}
