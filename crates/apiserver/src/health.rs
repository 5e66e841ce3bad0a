//! `/livez`, `/readyz`, `/healthz` and their single checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use component::Shutdown;
use http::Response;
use parking_lot::RwLock;
use storage::Store;

use crate::front::{Body, text};
use crate::inner::Inner;
use crate::query::Query;

/// Tells whether something works; the reason if not.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

#[derive(Clone)]
struct Named {
    name: String,
    ready_only: bool,
    check: Check,
}

/// The checks of a server.
#[derive(Default)]
pub struct Health {
    checks: RwLock<Vec<Named>>,
    started: Arc<AtomicBool>,
}

impl Health {
    /// Those of every API server, by upstream's names. The store goes by that of etcd, whatever it is.
    pub(crate) fn new(shutdown: &Shutdown, store: &Store) -> Self {
        let health = Self::default();
        health.add("ping", false, Arc::new(|| Ok(())));
        for (name, ready_only) in [("etcd", false), ("etcd-readiness", true)] {
            let store = store.clone();
            health.add(name, ready_only, Arc::new(move || store.healthy()));
        }
        for hook in [
            "start-system-namespaces-controller",
            "rbac/bootstrap-roles",
            "scheduling/bootstrap-system-priority-classes",
            "bootstrap-controller",
        ] {
            let started = Arc::clone(&health.started);
            let check = move || {
                if started.load(Ordering::Acquire) { Ok(()) } else { Err("not finished".to_owned()) }
            };
            health.add(format!("poststarthook/{hook}"), false, Arc::new(check));
        }
        let shutdown = shutdown.clone();
        let check = move || {
            if shutdown.stopped() { Err("process is shutting down".to_owned()) } else { Ok(()) }
        };
        health.add("shutdown", true, Arc::new(check));
        health
    }
    /// What every cluster has is there.
    pub(crate) fn started(&self) {
        self.started.store(true, Ordering::Release);
    }
    /// Adds a check; one of readiness only does not count for liveness.
    pub fn add(&self, name: impl Into<String>, ready_only: bool, check: Check) {
        self.checks.write().push(Named { name: name.into(), ready_only, check });
    }
    /// Whether every check of readiness passes.
    pub fn ready(&self) -> bool {
        self.checks.read().iter().all(|c| (c.check)().is_ok())
    }
    fn of(&self, endpoint: &str) -> Vec<Named> {
        self.checks.read().iter().filter(|c| endpoint == "readyz" || !c.ready_only).cloned().collect()
    }
}

/// Answers a health path.
pub(crate) fn serve(inner: &Inner, path: &str, query: &Query) -> Option<Response<Body>> {
    let mut parts = path.strip_prefix('/')?.splitn(2, '/');
    let endpoint = parts.next().filter(|e| matches!(*e, "livez" | "readyz" | "healthz"))?;
    let checks = inner.health.of(endpoint);
    if let Some(name) = parts.next() {
        let check = checks.iter().find(|c| c.name == name)?;
        return Some(match (check.check)() {
            Ok(()) => text(200, "ok"),
            Err(why) => text(500, format!("internal server error: {why}\n")),
        });
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut out = String::new();
    let mut failed = false;
    for check in &checks {
        let (sign, outcome) = if excluded.contains(&check.name.as_str()) {
            ("[+]", " excluded: ok\n")
        } else if let Err(why) = (check.check)() {
            tracing::warn!(check = check.name, why, "health check failed");
            failed = true;
            ("[-]", " failed: reason withheld\n")
        } else {
            ("[+]", " ok\n")
        };
        out.extend([sign, &check.name, outcome]);
    }
    let unknown: Vec<String> =
        excluded.iter().filter(|e| checks.iter().all(|c| c.name != **e)).map(|e| format!("{e:?}")).collect();
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
