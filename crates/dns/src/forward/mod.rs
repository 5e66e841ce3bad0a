//! Questions for names that are not the cluster's: other servers are asked.

pub mod message;
mod resolv_conf;
mod server;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use component::Shutdown;
use component::metrics::Page;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

pub(crate) use message::{failure, join};
pub use resolv_conf::ResolvConf;

use crate::cache::{Answer, Question};
use crate::name::{Name, QName, push_label};
use crate::packet::{kind, rcode_of};
use resolv_conf::Stamp;
use server::Server;

/// How long a question may take, with all servers; CoreDNS'.
const WHOLE_TIME: Duration = Duration::from_secs(5);
/// So often is a server asked at most; CoreDNS'.
const TRIES_EACH: usize = 2;
/// How long after a look at a file the next one comes, if there are questions.
const LOOK_AFTER: Duration = Duration::from_secs(5);
/// How long a loop is looked for, and how often; CoreDNS'.
const LOOP_TRIES: u32 = 15;
const LOOP_EVERY: Duration = Duration::from_secs(2);

/// The servers to ask.
#[derive(Debug, Clone)]
pub enum Upstreams {
    /// None: names outside the cluster are refused.
    None,
    /// These. Addresses of this machine are taken as they are.
    Servers(Vec<SocketAddr>),
    /// Those of a file, which is read again when it changes.
    ResolvConf(ResolvConf),
}

/// A domain, and the servers to ask for names below it.
#[derive(Debug, Clone)]
pub struct StubDomain {
    /// The domain.
    pub domain: Name,
    /// The servers.
    pub servers: Vec<SocketAddr>,
}

/// The servers of a domain.
pub(crate) struct Group {
    domain: Name,
    labels: usize,
    source: Option<ResolvConf>,
    known: Mutex<Known>,
}

/// The servers that are known, and when their file was looked at.
struct Known {
    servers: Vec<Arc<Server>>,
    looked: Option<Instant>,
    stamps: Vec<Stamp>,
}

/// Asks other servers.
pub(crate) struct Forwarder {
    groups: Vec<Arc<Group>>,
    /// Addresses on which we listen: they are not asked.
    own: Vec<SocketAddr>,
    /// The names by which questions are known that come back to us, with the servers that were asked.
    marks: Mutex<HashMap<Box<[u8]>, Arc<Server>>>,
    shutdown: Shutdown,
    all_down: AtomicU64,
}

impl Forwarder {
    /// Makes the groups of servers. `own` are the addresses on which we listen.
    pub(crate) fn new(
        upstreams: Upstreams,
        stubs: Vec<StubDomain>,
        own: Vec<SocketAddr>,
        shutdown: &Shutdown,
    ) -> Arc<Self> {
        let group = |domain: Name, servers: Vec<SocketAddr>, source| {
            let servers = servers.into_iter().map(|a| Arc::new(Server::new(a))).collect();
            let known = Mutex::new(Known { servers, looked: None, stamps: Vec::new() });
            Arc::new(Group { labels: domain.labels(), domain, source, known })
        };
        let mut groups: Vec<_> = stubs.into_iter().map(|s| group(s.domain, s.servers, None)).collect();
        // The root has no labels; its name is always one.
        if let Ok(root) = ".".parse::<Name>() {
            match upstreams {
                Upstreams::None => {}
                Upstreams::Servers(servers) => groups.push(group(root, servers, None)),
                Upstreams::ResolvConf(file) => groups.push(group(root, Vec::new(), Some(file))),
            }
        }
        groups.sort_by_key(|g| std::cmp::Reverse(g.labels));
        let (marks, all_down) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { groups, own, marks, shutdown: shutdown.clone(), all_down })
    }

    /// Looks for loops through the servers that are known now.
    pub(crate) fn start(self: &Arc<Self>) {
        for group in &self.groups {
            for server in self.servers(group) {
                self.look_for_loop(server);
            }
        }
    }

    /// The group of servers for a name: that of the longest domain.
    pub(crate) fn group(&self, name: &QName) -> Option<&Arc<Group>> {
        self.groups.iter().find(|g| name.below(g.domain.wire(), g.labels).is_some())
    }

    /// The servers of a group; a file that changed is read again.
    fn servers(self: &Arc<Self>, group: &Group) -> Vec<Arc<Server>> {
        let mut known = group.known.lock();
        let due = known.looked.is_none_or(|l| l.elapsed() >= LOOK_AFTER);
        let Some(source) = group.source.as_ref().filter(|_| due) else { return known.servers.clone() };
        let first = known.looked.is_none();
        known.looked = Some(Instant::now());
        let stamps = source.stamps();
        if stamps == known.stamps && !first {
            return known.servers.clone();
        }
        known.stamps = stamps;
        let before = std::mem::take(&mut known.servers);
        for address in source.servers(&self.own) {
            let server = before.iter().find(|s| s.address() == address).cloned().unwrap_or_else(|| {
                let new = Arc::new(Server::new(address));
                if !first {
                    self.look_for_loop(new.clone());
                }
                new
            });
            known.servers.push(server);
        }
        let named: Vec<String> = known.servers.iter().map(|s| s.address().to_string()).collect();
        tracing::info!(file = %source.path.display(), servers = named.join(" "), "name servers for names outside the cluster");
        known.servers.clone()
    }

    /// Asks the servers of a group, in any order, until one answers.
    pub(crate) async fn ask(self: &Arc<Self>, group: &Group, question: &Question) -> Answer {
        let mut servers = self.servers(group);
        servers.retain(|s| !s.is_looping());
        fastrand::shuffle(&mut servers);
        let up: Vec<_> = servers.iter().filter(|s| !s.is_down()).cloned().collect();
        if up.is_empty() && !servers.is_empty() {
            // Perhaps it is the checks that fail.
            self.all_down.fetch_add(1, Ordering::Relaxed);
            servers.truncate(1);
        } else {
            servers = up;
        }
        let until = Instant::now() + WHOLE_TIME;
        let mut refusal = None;
        for server in servers.iter().cycle().take(servers.len() * TRIES_EACH) {
            if Instant::now() >= until || refusal.as_ref().is_some_and(|(s, _)| Arc::ptr_eq(s, server)) {
                break;
            }
            match server.ask(question, until).await {
                // DIFFERENCE: upstream passes a refusal on; others may know better, as resolvers have it.
                Ok(answer) if matches!(rcode_of(&answer.message), 2 | 4 | 5) => {
                    refusal.get_or_insert((server.clone(), answer));
                }
                Ok(answer) => return answer,
                Err(error) => {
                    tracing::debug!(server = %server.address(), %error, "a name server failed");
                    server.failed(&self.shutdown);
                }
            }
        }
        refusal.map_or_else(|| failure(question), |(_, answer)| answer)
    }

    /// Sends a question with a name that nobody else has. If it comes to us, the server asks us.
    fn look_for_loop(self: &Arc<Self>, server: Arc<Server>) {
        let forwarder = self.clone();
        self.shutdown.spawn_one(async move {
            let mut name = Vec::new();
            for _ in 0..2 {
                // A number is a label.
                let _ = push_label(&mut name, server.random().to_string().as_bytes());
            }
            name.push(0);
            forwarder.marks.lock().insert(name.clone().into(), server.clone());
            let question =
                Question { name: name.clone().into(), kind: kind::HINFO, dnssec: false, unchecked: false };
            let look = async {
                for _ in 0..LOOP_TRIES {
                    let answered = server.ask(&question, Instant::now() + LOOP_EVERY).await.is_ok();
                    if answered || server.is_looping() {
                        break;
                    }
                    sleep(LOOP_EVERY).await;
                }
            };
            forwarder.shutdown.run(look).await;
            forwarder.marks.lock().remove(name.as_slice());
        });
    }

    /// Whether a question that came is one of ours. The server that we sent it to is not asked any more.
    pub(crate) fn came_back(&self, name: &QName) -> bool {
        let server = self.marks.lock().get(name.lower()).cloned();
        let Some(server) = server else { return false };
        if !server.is_looping() {
            server.set_looping();
            tracing::error!(
                server = %server.address(),
                "this name server sends our questions back to us, so it is not asked any more: give one that does not \
                 (a stub on the node's loopback address, mostly)"
            );
        }
        true
    }

    /// Tells of the servers.
    pub(crate) fn report(&self, page: &mut Page) {
        let name = "coredns_forward_healthcheck_broken_total";
        page.metric(name, "counter", "Counter of the number of complete failures of the healthchecks.");
        page.value(name, &[], self.all_down.load(Ordering::Relaxed) as f64);
        for group in &self.groups {
            let servers = group.known.lock().servers.clone();
            for server in servers {
                server.report(page);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_that_changes_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resolv.conf");
        fs::write(&path, "nameserver 192.0.2.1\n").unwrap();
        let file = ResolvConf { path: path.clone(), behind: Vec::new() };
        let shutdown = Shutdown::new();
        let forwarder = Forwarder::new(Upstreams::ResolvConf(file), Vec::new(), Vec::new(), &shutdown);
        let group = forwarder.groups[0].clone();
        let known = || -> Vec<String> {
            forwarder.servers(&group).iter().map(|s| s.address().ip().to_string()).collect()
        };
        assert_eq!(known(), ["192.0.2.1"]);
        let first = forwarder.servers(&group)[0].clone();
        fs::write(&path, "nameserver 192.0.2.22\nnameserver 192.0.2.1\n").unwrap();
        assert_eq!(known(), ["192.0.2.1"], "it was looked at just now");
        tokio::time::advance(LOOK_AFTER).await;
        assert_eq!(known(), ["192.0.2.22", "192.0.2.1"]);
        assert!(Arc::ptr_eq(&first, &forwarder.servers(&group)[1]), "its health is known still");
        fs::remove_file(&path).unwrap();
        tokio::time::advance(LOOK_AFTER).await;
        assert!(known().is_empty());
        shutdown.finish().await;
    }
}
