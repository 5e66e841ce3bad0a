//! The gate by which a node's containers come into the network: a new one waits until the kernel has its rules.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use compact_str::CompactString as Text;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::enforcer::Attached;
use crate::views::Listed;

/// How long a container waits. Runtimes try again themselves, and each that waits keeps a place of the network's agent.
const PATIENCE: Duration = Duration::from_secs(5);

/// The reason for which a container is not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmitError {
    /// The policies are not known yet, or the kernel does not have them.
    #[error("the network policies of the Pod are not in force yet")]
    Late,
    /// Nobody enforces policies.
    #[error("network policies cannot be enforced: {0}; --disable-network-policy runs Pods without")]
    Closed(String),
}

/// A container that waits.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) attached: Attached,
    pub(crate) began: Instant,
    /// The policies of its namespace, and when they were asked for.
    pub(crate) listed: Option<(Instant, Vec<Listed>)>,
    pub(crate) reply: SyncSender<()>,
}

impl Admission {
    /// Whether nobody waits any more.
    pub(crate) fn is_over(&self) -> bool {
        self.began.elapsed() >= PATIENCE
    }
}

/// Something that happened to a container.
#[derive(Debug)]
pub(crate) enum Call {
    /// It was there before.
    Adopt(Attached),
    /// It wants to come in.
    Admit(Admission),
    /// It is gone.
    Release(Text),
}

impl Call {
    fn container(&self) -> &Text {
        match self {
            Self::Adopt(one) => &one.container,
            Self::Admit(one) => &one.attached.container,
            Self::Release(container) => container,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// The calls that nobody took yet: the newest of each container.
    calls: Vec<Call>,
    adopted: bool,
    closed: Option<String>,
}

/// The gate of a node. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<State>, Notify)>);

impl Gate {
    /// Tells of all containers that are there already. Nothing is written before.
    pub fn adopt(&self, all: Vec<Attached>) {
        for one in all {
            self.put(Call::Adopt(one));
        }
        self.0.0.lock().adopted = true;
        self.0.1.notify_one();
    }

    /// Lets a container in: waits until the kernel has the rules of its Pod, with every policy that the API server had
    /// when this was called. It blocks, for some seconds at most.
    ///
    /// # Errors
    /// If the rules are not there in time. Then nothing is known of the container any more.
    pub fn admit(&self, attached: Attached) -> Result<(), AdmitError> {
        if let Some(why) = self.0.0.lock().closed.clone() {
            return Err(AdmitError::Closed(why));
        }
        let (reply, done) = sync_channel(1);
        let container = attached.container.clone();
        self.put(Call::Admit(Admission { attached, began: Instant::now(), listed: None, reply }));
        let answer = done.recv_timeout(PATIENCE);
        answer.map_err(|error| {
            self.release(&container);
            match (error, self.0.0.lock().closed.clone()) {
                (RecvTimeoutError::Disconnected, Some(why)) => AdmitError::Closed(why),
                _ => AdmitError::Late,
            }
        })
    }

    /// Tells that a container is gone; one that was never there is no error.
    pub fn release(&self, container: &str) {
        self.put(Call::Release(container.into()));
    }

    /// Lets nobody in from now on.
    pub(crate) fn close(&self, why: String) {
        let mut state = self.0.0.lock();
        state.closed = Some(why);
        // Who waits is told: the senders go.
        state.calls.clear();
    }

    /// Waits until something happened.
    pub(crate) async fn changed(&self) {
        self.0.1.notified().await;
    }

    /// Waits until the containers that were there before are known.
    pub(crate) async fn adopted(&self) {
        while !self.0.0.lock().adopted {
            self.changed().await;
        }
    }

    fn put(&self, call: Call) {
        let mut state = self.0.0.lock();
        if state.closed.is_some() {
            return;
        }
        state.calls.retain(|other| other.container() != call.container());
        state.calls.push(call);
        drop(state);
        self.0.1.notify_one();
    }

    /// Takes what happened.
    pub(crate) fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.0.0.lock().calls)
    }

    /// Puts one that waits back, unless more happened to the container; `news` if it is to be looked at again at once.
    pub(crate) fn wait(&self, admission: Admission, news: bool) {
        let mut state = self.0.0.lock();
        let container = &admission.attached.container;
        if state.closed.is_some() || state.calls.iter().any(|other| other.container() == container) {
            return;
        }
        state.calls.push(Call::Admit(admission));
        drop(state);
        if news {
            self.0.1.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use client::Key;

    use super::*;
    use crate::enforcer::Owner;

    fn attached(container: &str) -> Attached {
        let pod = Owner { key: Key::new("n", "p"), uid: "u".into() };
        Attached { container: container.into(), pod, addresses: Vec::new() }
    }

    #[test]
    fn the_newest_call_of_a_container_counts() {
        let gate = Gate::default();
        gate.adopt(vec![attached("a"), attached("b")]);
        gate.release("a");
        let calls = gate.take();
        assert!(matches!(&calls[..], [Call::Adopt(b), Call::Release(a)] if b.container == "b" && a == "a"));
        let (reply, _done) = sync_channel(1);
        let one = Admission { attached: attached("c"), began: Instant::now(), listed: None, reply };
        gate.release("c");
        gate.wait(one, true);
        assert!(matches!(&gate.take()[..], [Call::Release(_)]));
    }

    #[test]
    fn who_waits_is_told_of_the_end() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.admit(attached("a")));
            testkit::eventually("a container", || Ok((!gate.0.0.lock().calls.is_empty()).then_some(())))
                .unwrap();
            gate.close("no packet filter".into());
            assert_eq!(waiting.join().unwrap(), Err(AdmitError::Closed("no packet filter".into())));
        });
        assert!(gate.admit(attached("b")).is_err());
        gate.release("b");
        assert!(gate.take().is_empty());
    }
}
