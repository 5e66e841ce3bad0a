//! The agent: it owns the addresses of a node's Pods, and answers the plugin at a socket.

use std::collections::HashSet;
use std::fs::DirBuilder;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use component::Shutdown;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

use crate::cni::{Call, CniError, Command, Outcome, Request, code};
use crate::guard::Guard;
use crate::place::Place;
use crate::plugin::{ANSWER, LONGEST};
use crate::pods::{Facts, Pods};
use crate::records::Key;
use crate::steps::Steps;

/// The number of calls that are read or answered at a time; others wait to be accepted.
const CALLS: usize = 32;

/// The container about which a runtime of this process asks.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Its id.
    pub id: &'a str,
    /// The file of its network namespace; empty if that is gone.
    pub namespace: &'a Path,
    /// Its interface.
    pub interface: &'a str,
    /// `CNI_ARGS`, which name its Pod.
    pub arguments: &'a str,
}

/// The agent of a node. Clones are the same agent.
#[derive(Clone)]
pub struct Agent {
    place: Place,
    pods: Arc<Mutex<Pods>>,
    guard: Option<Arc<dyn Guard>>,
    leaving: Arc<Leaving>,
}

/// The outcome for a container that left with others.
type Left = OnceLock<Result<(), CniError>>;

/// The containers that are to leave. The kernel takes as long for one as for many, so all that come while some leave
/// go together after them.
#[derive(Default)]
struct Leaving {
    waiting: Mutex<Vec<(Key, Arc<Left>)>>,
    turn: Mutex<()>,
}

impl Agent {
    /// Reads what an agent before left, makes it whole, and answers in the background until `shutdown`. Containers of
    /// Pods come into the network if `guard` agrees.
    pub async fn start(place: Place, guard: Option<Arc<dyn Guard>>, shutdown: &Shutdown) -> io::Result<Self> {
        let at = place.clone();
        // The kernel is asked by calls that block.
        let open = tokio::task::spawn_blocking(move || {
            let mut pods = Pods::open(at, Steps::default())?;
            pods.adopt();
            io::Result::Ok(pods)
        });
        let pods = open.await.map_err(io::Error::other)??;
        if let Some(guard) = &guard {
            guard.adopt(pods.joined());
        }
        let agent = Self { place, pods: Arc::new(Mutex::new(pods)), guard, leaving: Arc::default() };
        agent.serve(shutdown)?;
        Ok(agent)
    }

    /// Answers a runtime of this process as it answers the plugin: `command` is CNI's, and `settings` are those that a
    /// configuration has besides its name and version. The kernel is asked by calls that block.
    ///
    /// # Errors
    /// The sentence that a runtime would get.
    pub fn ask(&self, command: &str, container: &Asked<'_>, settings: Value) -> Result<Value, String> {
        let mut config = json!({ "cniVersion": "1.1.0", "name": self.place.name() });
        if let (Some(config), Value::Object(settings)) = (config.as_object_mut(), settings) {
            config.extend(settings);
        }
        let call = Call {
            command: command.to_owned(),
            container: container.id.to_owned(),
            namespace: container.namespace.to_string_lossy().into_owned(),
            interface: container.interface.to_owned(),
            arguments: container.arguments.to_owned(),
            config,
        };
        let answer = Request::read(&call).and_then(|request| self.work(&request));
        answer.map_err(|error| error.to_string())
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
        match call.and_then(|call| Request::read(&call)).and_then(|request| self.work(&request)) {
            Ok(result) => Outcome::Done(result),
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Does what a runtime asks, and lets the guard know. Nobody else waits while the guard does.
    fn work(&self, request: &Request) -> Result<Value, CniError> {
        if request.command == Command::Del {
            return self.leave(request).map(|()| Value::Null);
        }
        let (result, new) = self.change(|pods| (pods.answer(request), pods.joined_by(request)));
        if result.is_ok()
            && request.command == Command::Add
            && let Some(guard) = &self.guard
            && let Some(new) = new
            && let Err(why) = guard.admit(new)
        {
            self.pods.lock().refuse(request);
            return Err(CniError::because(code::LATER, "the Pod cannot be in the network yet", why));
        }
        result
    }

    /// Takes a container out, with all others that wait for the same.
    fn leave(&self, request: &Request) -> Result<(), CniError> {
        let (key, done) = ((request.container.clone(), request.interface.clone()), Arc::new(OnceLock::new()));
        self.leaving.waiting.lock().push((key, done.clone()));
        let _turn = self.leaving.turn.lock();
        if let Some(done) = done.get() {
            return done.clone();
        }
        let (keys, all): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *self.leaving.waiting.lock()).into_iter().unzip();
        let result = self.change(|pods| pods.leave_together(&keys));
        for other in all {
            let _ = other.set(result.clone());
        }
        result
    }

    /// Changes the Pods, and tells the guard which are gone.
    fn change<T>(&self, work: impl FnOnce(&mut Pods) -> T) -> T {
        let mut pods = self.pods.lock();
        let Some(guard) = &self.guard else { return work(&mut pods) };
        let before = pods.joined();
        let result = work(&mut pods);
        let after: HashSet<String> = pods.joined().into_iter().map(|one| one.id).collect();
        drop(pods);
        for gone in before.iter().filter(|one| !after.contains(&one.id)) {
            guard.release(&gone.id);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use testkit::Host;

    use super::*;
    use crate::attachment::tests::blocks;
    use crate::filter::Ranges;
    use crate::guard::Joined;
    use crate::testing::{place, request, within};

    /// Writes down what it is told, and refuses Pods if it is said so.
    #[derive(Debug, Default)]
    struct Told {
        calls: Mutex<Vec<String>>,
        refuses: Mutex<bool>,
    }

    impl Guard for Told {
        fn adopt(&self, all: Vec<Joined>) {
            self.calls.lock().push(format!("adopt {}", all.len()));
        }
        fn admit(&self, one: Joined) -> Result<(), String> {
            self.calls.lock().push(format!("admit {} {} {}", one.id, one.pod.name, one.addresses.len()));
            if *self.refuses.lock() { Err("not yet".into()) } else { Ok(()) }
        }
        fn release(&self, id: &str) {
            self.calls.lock().push(format!("release {id}"));
        }
    }

    fn agent_of(node: &Host, pods: Pods, guard: Option<Arc<dyn Guard>>) -> Agent {
        let (place, pods) = (place(node.dir()), Arc::new(Mutex::new(pods)));
        Agent { place, pods, guard, leaving: Arc::default() }
    }

    /// Those that come while another one leaves go together, and each gets its answer; one that comes back is in.
    #[test]
    fn many_leave_together() {
        let node = Host::new("node").unwrap();
        let containers: Vec<Host> = (0..12).map(|n| Host::new(&format!("c{n}")).unwrap()).collect();
        let mut pods = Pods::open(place(node.dir()), Steps::default()).unwrap();
        let ranges = Ranges { pods: blocks(&["10.244.0.0/16"]), inside: Vec::new() };
        let facts = Facts { blocks: blocks(&["10.244.7.0/24"]), ranges, mtu: 1400 };
        within(&node, || pods.learn(facts)).unwrap();
        let told = Arc::new(Told::default());
        let agent = agent_of(&node, pods, Some(told.clone()));
        let ask = |command: &str, n: usize| {
            let request = request(command, &format!("c{n}"), &containers[n].network(), json!({}));
            within(&node, || agent.work(&request)).unwrap()
        };
        for round in 0..3 {
            for n in 0..containers.len() {
                ask("ADD", n);
            }
            told.calls.lock().clear();
            std::thread::scope(|scope| {
                for n in 0..containers.len() {
                    scope.spawn(move || ask("DEL", n));
                }
            });
            let mut calls = std::mem::take(&mut *told.calls.lock());
            calls.sort();
            let mut expected: Vec<String> =
                (0..containers.len()).map(|n| format!("release c{n}@eth0")).collect();
            expected.sort();
            assert_eq!(calls, expected, "{round}");
            assert_eq!(agent.pods.lock().joined(), []);
            assert!(agent.leaving.waiting.lock().is_empty());
        }
        let left = within(&node, || netlink::Routing::open().unwrap().links().unwrap());
        assert_eq!(left.iter().map(|link| link.name.as_str()).collect::<Vec<_>>(), ["lo"]);
    }

    #[test]
    fn a_guard_is_asked_before_a_container_is_in_and_told_when_it_is_gone() {
        let (node, pod) = (Host::new("node").unwrap(), Host::new("pod").unwrap());
        let mut pods = Pods::open(place(node.dir()), Steps::default()).unwrap();
        let ranges = Ranges { pods: blocks(&["10.244.0.0/16"]), inside: Vec::new() };
        let facts = Facts { blocks: blocks(&["10.244.7.0/24"]), ranges, mtu: 1400 };
        within(&node, || pods.learn(facts)).unwrap();
        let told = Arc::new(Told::default());
        let agent = agent_of(&node, pods, Some(told.clone()));
        let ask = |command: &str, container: &str| {
            within(&node, || agent.work(&request(command, container, &pod.network(), json!({}))))
        };
        let check = |expected: &[&str]| {
            assert_eq!(std::mem::take(&mut *told.calls.lock()), expected);
        };
        ask("ADD", "a").unwrap();
        check(&["admit a@eth0 p-a 1"]);
        ask("DEL", "a").unwrap();
        check(&["release a@eth0"]);
        ask("DEL", "a").unwrap();
        check(&[]);
        *told.refuses.lock() = true;
        let error = ask("ADD", "b").unwrap_err();
        assert_eq!((error.code, error.details.as_str()), (code::LATER, "not yet"));
        check(&["admit b@eth0 p-b 1"]);
        assert_eq!(agent.pods.lock().joined(), []);
        *told.refuses.lock() = false;
        ask("ADD", "b").unwrap();
        let gc = json!({"cni.dev/valid-attachments": []});
        within(&node, || agent.work(&request("GC", "", &pod.network(), gc))).unwrap();
        check(&["admit b@eth0 p-b 1", "release b@eth0"]);
    }
}
