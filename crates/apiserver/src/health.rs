//! `/livez`, `/readyz`, `/healthz` and their single checks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::authorization_feed::Feeds;
use access::Query;
use component::{Shutdown, Slis};
use futures::future::BoxFuture;
use http::Response;
use parking_lot::{Mutex, RwLock};
use storage::Store;

use crate::config::Etcd;
use crate::front::{Body, text};
use crate::store_probe::StoreProbe;

/// The check that all that this server answers itself has its APIService; upstream's name, which is no hook's.
pub(crate) const REGISTERED: &str = "autoregister-completion";

/// Tells whether something works; the reason if not.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The endpoints that have a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// All three.
    All,
    /// `/readyz` alone.
    Readiness,
    /// `/readyz` and `/healthz`.
    NotLiveness,
}

#[derive(Clone)]
struct Named {
    name: String,
    of: Of,
    check: Check,
    /// It passes once something is done with which the server begins.
    begins: bool,
}

/// The checks of a server.
pub struct Health {
    checks: RwLock<Vec<Named>>,
    /// The hooks by their names, and whether they have run.
    hooks: Arc<[(&'static str, AtomicBool)]>,
    slis: Slis,
    /// From when `/livez` fails for what the server has not begun with yet.
    lives_from: tokio::time::Instant,
}

impl Health {
    /// Those of every API server, by upstream's names and in its order. The store goes by that of etcd, whatever it is.
    /// The server is ready until its end begins; for the grace, `/livez` takes it that the hooks will be done.
    pub(crate) fn new(
        ending: &Shutdown,
        (store, times): (&Store, Option<&Etcd>),
        (hooks, grace): (&[&'static str], Duration),
        feeds: Option<Feeds>,
    ) -> Self {
        let hooks: Arc<[_]> = hooks.iter().map(|name| (*name, AtomicBool::default())).collect();
        let mut checks = Vec::new();
        let mut add = |name: String, of: Of, check: Check| {
            checks.push(Named { name, of, check, begins: false });
        };
        add("ping".into(), Of::All, Arc::new(|| Ok(())));
        add("log".into(), Of::All, logging());
        let times = times.map(|etcd| [etcd.health_timeout, etcd.ready_timeout]);
        for (at, (name, of)) in [("etcd", Of::All), ("etcd-readiness", Of::Readiness)].into_iter().enumerate()
        {
            let probe = times.map(|times| {
                let asked = store.clone();
                let ask = move || {
                    let asked = asked.clone();
                    Box::pin(async move { asked.probe().await }) as BoxFuture<'static, _>
                };
                StoreProbe::new(Arc::new(ask), times[at])
            });
            let store = store.clone();
            let check =
                move || store.healthy().and_then(|()| probe.as_ref().map_or(Ok(()), StoreProbe::check));
            add(name.into(), of, Arc::new(check));
        }
        let synced = move || feeds.as_ref().map_or(Ok(()), Feeds::healthy);
        add(INFORMERS.into(), Of::Readiness, Arc::new(synced));
        for (at, (name, _)) in hooks.iter().enumerate() {
            let hooks = Arc::clone(&hooks);
            let check = move || match hooks.get(at) {
                Some((_, done)) if done.load(Ordering::Acquire) => Ok(()),
                _ => Err("not finished".to_owned()),
            };
            let name = if *name == REGISTERED { (*name).to_owned() } else { format!("poststarthook/{name}") };
            checks.push(Named { name, of: Of::All, check: Arc::new(check), begins: true });
        }
        let ending = ending.clone();
        let check = move || {
            if ending.stopped() { Err("process is shutting down".to_owned()) } else { Ok(()) }
        };
        checks.push(Named {
            name: "shutdown".into(),
            of: Of::Readiness,
            check: Arc::new(check),
            begins: false,
        });
        let lives_from = tokio::time::Instant::now() + grace;
        Self { checks: RwLock::new(checks), hooks, slis: Slis::default(), lives_from }
    }
    /// A hook has run.
    pub(crate) fn done(&self, hook: &str) {
        if let Some((_, done)) = self.hooks.iter().find(|(name, _)| *name == hook) {
            done.store(true, Ordering::Release);
        }
    }
    /// Adds a check, after those of the store.
    pub fn add(&self, name: impl Into<String>, of: Of, check: Check) {
        let mut checks = self.checks.write();
        let at = checks.iter().position(|c| c.name == INFORMERS).unwrap_or(checks.len());
        checks.insert(at, Named { name: name.into(), of, check, begins: false });
    }
    /// Whether every check of readiness passes.
    pub fn ready(&self) -> bool {
        self.checks.read().iter().all(|c| (c.check)().is_ok())
    }
    /// Answers a health path.
    pub(crate) fn serve(&self, path: &str, query: &Query) -> Option<Response<Body>> {
        let mut parts = path.strip_prefix('/')?.splitn(2, '/');
        let endpoint = parts.next().filter(|e| matches!(*e, "livez" | "readyz" | "healthz"))?;
        let checks = self.of(endpoint);
        if let Some(name) = parts.next() {
            let check = checks.iter().find(|c| c.name == name)?;
            return Some(match (check.check)() {
                Ok(()) => text(200, "ok"),
                Err(why) => text(500, format!("internal server error: {why}\n")),
            });
        }
        let excluded: BTreeSet<&str> = query.all("exclude").collect();
        let mut out = String::new();
        let mut failed = false;
        for check in &checks {
            let (sign, outcome) = if excluded.contains(check.name.as_str()) {
                ("[+]", " excluded: ok\n")
            } else {
                let answer = (check.check)();
                self.slis.note(&check.name, endpoint, answer.is_ok());
                if let Err(why) = answer {
                    tracing::warn!(check = check.name, why, "health check failed");
                    failed = true;
                    ("[-]", " failed: reason withheld\n")
                } else {
                    ("[+]", " ok\n")
                }
            };
            out.extend([sign, &check.name, outcome]);
        }
        let unknown: Vec<String> = excluded
            .iter()
            .filter(|e| checks.iter().all(|c| c.name != **e))
            .map(|e| format!("{e:?}"))
            .collect();
        if !unknown.is_empty() {
            let names = unknown.join(", ");
            out.extend(["warn: some health checks cannot be excluded: no matches for ", &names, "\n"]);
        }
        Some(if failed {
            text(500, format!("{out}{endpoint} check failed\n"))
        } else if query.get("verbose").is_some() {
            text(200, format!("{out}{endpoint} check passed\n"))
        } else {
            text(200, "ok")
        })
    }
    /// `/metrics/slis`: the outcomes of all checks.
    pub(crate) fn slis(&self) -> String {
        for endpoint in ["healthz", "livez", "readyz"] {
            for check in self.of(endpoint) {
                self.slis.known(&check.name, endpoint, (check.check)().is_ok());
            }
        }
        self.slis.page().text()
    }
    fn of(&self, endpoint: &str) -> Vec<Named> {
        let has = |of: Of| match endpoint {
            "readyz" => true,
            "healthz" => of != Of::Readiness,
            _ => of == Of::All,
        };
        let grace = endpoint == "livez" && tokio::time::Instant::now() < self.lives_from;
        let as_of_now = |named: &Named| {
            let mut named = named.clone();
            if grace && named.begins {
                named.check = Arc::new(|| Ok(()));
            }
            named
        };
        self.checks.read().iter().filter(|c| has(c.of)).map(as_of_now).collect()
    }
}

const INFORMERS: &str = "informer-sync";

/// How often it is tried whether what is logged gets away, and after what time it is said that it does not; upstream's.
const FLUSHED: (Duration, Duration) = (Duration::from_mins(1), Duration::from_mins(2));

/// Whether the log gets away. A thread of its own tries, from the first time that somebody asks: where nobody reads
/// what the process writes, everybody who writes waits.
fn logging() -> Check {
    let last = Arc::new(Mutex::new(None::<Instant>));
    Arc::new(move || {
        let mut at = last.lock();
        let Some(at) = *at else {
            *at = Some(Instant::now());
            let last = Arc::downgrade(&last);
            let flush = move || {
                loop {
                    let flushed = std::io::Write::flush(&mut std::io::stderr().lock());
                    let Some(last) = last.upgrade() else { return };
                    if flushed.is_ok() {
                        *last.lock() = Some(Instant::now());
                    }
                    drop(last);
                    std::thread::park_timeout(FLUSHED.0);
                }
            };
            let started = std::thread::Builder::new().name("log-check".into()).spawn(flush);
            return started.map(drop).map_err(|e| e.to_string());
        };
        if at.elapsed() < FLUSHED.1 { Ok(()) } else { Err("logging blocked".into()) }
    })
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn ask(health: &Health, path: &str) -> (u16, String) {
        let answer = health.serve(path, &Query::default()).unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_begins_lives_for_its_grace() {
        let ending = Shutdown::new();
        let store = crate::testing::Cluster::new().server.0.objects.store.clone();
        let health = Health::new(&ending, (&store, None), (&["slow"], Duration::from_secs(30)), None);
        assert_eq!(ask(&health, "/livez").await, (200, "ok".into()));
        assert_eq!(ask(&health, "/livez/poststarthook/slow").await.0, 200);
        for path in ["/readyz", "/healthz"] {
            let (status, body) = ask(&health, path).await;
            assert!(status == 500 && body.contains("[-]poststarthook/slow failed"), "{body}");
        }
        tokio::time::advance(Duration::from_secs(31)).await;
        assert_eq!(ask(&health, "/livez").await.0, 500);
        health.done("slow");
        for path in ["/livez", "/readyz", "/healthz"] {
            assert_eq!(ask(&health, path).await, (200, "ok".into()));
        }
        ending.stop();
        for (path, status) in [("/livez", 200), ("/readyz", 500), ("/healthz", 200)] {
            assert_eq!(ask(&health, path).await.0, status, "{path}");
        }
    }
}
