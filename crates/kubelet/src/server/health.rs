//! `/healthz`: whether this kubelet does its work.

use super::served::Served;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use component::{Shutdown, Slis};
use http::request::Parts;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use tokio::time::Instant;

use serving::answer::{TEXT, text as answer};
use serving::{Body, plain};

use crate::watchdog;

/// How often it is tried whether Pods are taken care of.
const PERIOD: Duration = Duration::from_secs(10);
/// For how long that may fail; upstream's `syncloop` check.
const STALLED: Duration = Duration::from_mins(5);

/// The checks, in their order. `ping` is that there is an answer at all; `log` is upstream's, whose log
/// may be stuck: here a log that nobody reads loses lines instead.
const CHECKS: [&str; 3] = ["ping", "log", "syncloop"];

/// When this kubelet was last seen to go through its Pods.
pub(super) struct Health(Mutex<Instant>, Slis);

impl Health {
    /// Looks after it until the shutdown.
    pub(super) fn start(served: &Served, shutdown: &Shutdown) -> Arc<Self> {
        let health = Arc::new(Self(Mutex::new(Instant::now()), Slis::default()));
        let (served, noted, stop) = (served.clone(), health.clone(), shutdown.clone());
        shutdown.spawn(async move {
            let look = async {
                loop {
                    // No Pod starts while one is decided about for long.
                    if served.admission.is_free() {
                        drop(served.workers.all());
                        *noted.0.lock() = Instant::now();
                    }
                    tokio::time::sleep(PERIOD).await;
                }
            };
            let _ = stop.run(look).await;
        });
        health
    }

    /// Serves `/healthz` in plain HTTP until the shutdown. Where the address is taken the kubelet runs all the same, as
    /// upstream's does.
    pub(super) async fn serve(self: &Arc<Self>, address: SocketAddr, shutdown: &Shutdown) {
        let health = self.clone();
        let handler = move |head: &Parts, _: SocketAddr| {
            if head.uri.path() != "/healthz" {
                return Some(plain::not_found());
            }
            let failed = CHECKS.iter().any(|check| health.failure(check).is_some());
            let (code, text) = if failed {
                (StatusCode::INTERNAL_SERVER_ERROR, "healthz check failed\n")
            } else {
                (StatusCode::OK, "ok")
            };
            Some(plain::answer(code, TEXT, text))
        };
        if let Err(error) = plain::serve(Arc::new(handler), address, shutdown).await {
            tracing::error!(%address, %error, "failed to start the healthz server");
        }
    }

    /// Tells the service manager every `period` that this kubelet is well, while it is, until the shutdown.
    pub(super) fn feed_watchdog(self: Arc<Self>, period: Duration, shutdown: &Shutdown) {
        let stop = shutdown.clone();
        shutdown.spawn(async move {
            let failure = || {
                CHECKS
                    .iter()
                    .find_map(|check| Some(format!("checker {check} failed: {}", self.failure(check)?)))
            };
            let tell = || systemd::notify::notify(systemd::notify::WATCHDOG);
            let _ = stop.run(watchdog::feed(period, failure, tell)).await;
        });
    }

    fn failure(&self, check: &str) -> Option<&'static str> {
        let stalled = check == "syncloop" && self.0.lock().elapsed() > STALLED;
        stalled.then_some("sync Loop took longer than expected")
    }

    /// `/metrics/slis`: the outcomes of the checks.
    pub(super) fn slis(&self) -> String {
        for check in CHECKS {
            self.1.known(check, "healthz", self.failure(check).is_none());
        }
        self.1.page().text()
    }

    /// The answer of one check; none if there is no such check.
    pub(super) fn one(&self, check: &str) -> Option<Response<Body>> {
        if !CHECKS.contains(&check) {
            return None;
        }
        Some(match self.failure(check) {
            None => answer(StatusCode::OK, "ok"),
            Some(why) => answer(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n")),
        })
    }

    /// The answer of all of them.
    pub(super) fn answer(&self, verbose: bool) -> Response<Body> {
        let mut page = String::new();
        let mut failed = false;
        for check in CHECKS {
            let sound = self.failure(check).is_none();
            self.1.note(check, "healthz", sound);
            failed |= !sound;
            let _ = if sound {
                writeln!(page, "[+]{check} ok")
            } else {
                writeln!(page, "[-]{check} failed: reason withheld")
            };
        }
        match (failed, verbose) {
            (true, _) => answer(StatusCode::INTERNAL_SERVER_ERROR, page + "healthz check failed\n"),
            (false, true) => answer(StatusCode::OK, page + "healthz check passed\n"),
            (false, false) => answer(StatusCode::OK, "ok"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stalled_kubelet_says_so() {
        let health = Health(Mutex::new(Instant::now()), Slis::default());
        let check = async |response: Response<Body>, code: u16, text: &str| {
            assert_eq!(response.status().as_u16(), code);
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), text);
        };
        let listed = "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n";
        check(health.answer(false), 200, "ok").await;
        check(health.answer(true), 200, listed).await;
        check(health.one("syncloop").unwrap(), 200, "ok").await;
        assert!(health.one("other").is_none());
        tokio::time::advance(STALLED + PERIOD).await;
        let failed = "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n";
        check(health.answer(false), 500, failed).await;
        let why = "internal server error: sync Loop took longer than expected\n";
        check(health.one("syncloop").unwrap(), 500, why).await;
        check(health.one("ping").unwrap(), 200, "ok").await;
    }
}
