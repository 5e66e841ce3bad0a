//! The paths that every component answers: `/healthz`, `/livez`, `/readyz`, `/metrics`, `/configz`, `/statusz`,
//! `/flagz`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use api::zpages::{self, Asked, Running};
use api::{FeatureGates, Gate};
use component::{Clock, Health, Registry, Shutdown, metrics};
use http::header::HeaderMap;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use jiff::Timestamp;
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::answer::{Body, Failure, asked, full, page, text, typed};
use crate::auth::{Access, Auth, User};
use crate::connection::{Manners, Service, accept};

/// All paths of the endpoint.
const PATHS: [&str; 7] = ["/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz"];

/// The paths that everybody may ask for; health alone by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Whole paths, without the first slash.
    whole: Vec<String>,
    /// How paths begin, without the first slash.
    beginnings: Vec<String>,
}

impl Default for Open {
    fn default() -> Self {
        Self { whole: ["healthz", "readyz", "livez"].map(str::to_owned).into(), beginnings: Vec::new() }
    }
}

impl Open {
    /// Reads a list as upstream's `--authorization-always-allow-paths` has it: a path that ends with `*` is the
    /// beginning of others, and the first slash may be left out.
    ///
    /// # Errors
    /// There is a `*` elsewhere.
    pub fn parse<'p>(paths: impl IntoIterator<Item = &'p str>) -> Result<Self, String> {
        let mut open = Self { whole: Vec::new(), beginnings: Vec::new() };
        for path in paths {
            let path = path.strip_prefix('/').unwrap_or(path);
            match path.split_once('*') {
                None => open.whole.push(path.to_owned()),
                Some((beginning, "")) => open.beginnings.push(beginning.to_owned()),
                Some(_) => return Err(format!("only trailing * allowed in {path:?}")),
            }
        }
        Ok(open)
    }

    /// Whether everybody may ask for a path.
    fn has(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.whole.iter().any(|open| path == open)
            || self.beginnings.iter().any(|beginning| path.starts_with(beginning.as_str()))
    }
}

/// A component's endpoint.
pub struct Endpoint {
    /// The component's name.
    pub name: &'static str,
    /// The component's version.
    pub version: &'static str,
    /// The check of access.
    pub auth: Auth,
    /// The paths that everybody may ask for.
    pub open: Open,
    /// The time of day.
    pub clock: Clock,
    /// The start time of the component.
    pub started: Timestamp,
    /// The component's metrics.
    pub metrics: Registry,
    /// The component's health checks.
    pub health: Health,
    /// The component's settings as `/configz` has them: by the name of a kind of settings.
    pub settings: Value,
    /// The component's flags with their values.
    pub flags: BTreeMap<String, String>,
    /// The features that are on: `ComponentStatusz` and `ComponentFlagz` count here.
    pub gates: FeatureGates,
}

/// The reason for which an endpoint cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port cannot be used.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
}

/// Binds a port, with `shared` beside other processes that say so, too ([`component::listen()`]).
///
/// # Errors
/// If the port cannot be used.
pub fn listen(address: SocketAddr, shared: bool) -> Result<TcpListener, ServeError> {
    component::listen(address, shared).map_err(|source| ServeError::Listen { address, source })
}

/// Binds the port and serves an endpoint until `shutdown`; returns the address on which it listens.
///
/// # Errors
/// If the port cannot be used.
pub fn serve<S: Service>(
    service: S,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    shutdown: &Shutdown,
) -> Result<SocketAddr, ServeError> {
    let listener = listen(address, false)?;
    let address = listener.local_addr().map_err(|source| ServeError::Listen { address, source })?;
    serve_on(service, listener, tls, Manners::default(), shutdown);
    Ok(address)
}

/// Serves an endpoint on a port that is bound already, until `shutdown`.
pub fn serve_on<S: Service>(
    service: S,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    manners: Manners,
    shutdown: &Shutdown,
) {
    let acceptor = tokio_rustls::TlsAcceptor::from(tls);
    shutdown.spawn(accept(Arc::new(service), listener, acceptor, manners, shutdown.clone()));
}

impl Service for Endpoint {
    async fn authenticate(
        &self,
        headers: &mut HeaderMap,
        chain: &[CertificateDer<'static>],
    ) -> Result<Arc<User>, Failure> {
        let user = self.auth.authenticate(headers, chain).await?;
        Ok(user.unwrap_or_else(|| Arc::new(User::anonymous())))
    }

    async fn handle(&self, request: Request<Incoming>, user: &Arc<User>) -> Result<Response<Body>, Failure> {
        let path = request.uri().path();
        self.authorize(request.method(), path, user).await?;
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed"));
        }
        let query = request.uri().query().unwrap_or_default();
        let pretty = query.split('&').find_map(|pair| pair.strip_prefix("pretty="));
        self.route(path, query, asked(request.headers(), pretty))
    }
}

impl Endpoint {
    async fn authorize(&self, method: &Method, path: &str, user: &Arc<User>) -> Result<(), Failure> {
        if self.open.has(path) {
            return Ok(());
        }
        let verb = method.as_str().to_ascii_lowercase();
        let access = Access::Path { verb: verb.clone(), path: path.to_owned() };
        match self.auth.allowed(user, &access).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let text = format!("forbidden: User {:?} cannot {verb} path {path:?}\n", user.name);
                Err(Failure::new(StatusCode::FORBIDDEN, text))
            }
            Err(error) => {
                tracing::warn!(%error, "the API server does not say who may ask");
                let text = format!("Internal Server Error: {path:?}: {error}\n");
                Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, text))
            }
        }
    }

    fn route(&self, path: &str, query: &str, asked: Asked<'_>) -> Result<Response<Body>, Failure> {
        match path {
            "/metrics" => {
                let mut page = self.metrics.page();
                metrics::process(&mut page);
                let text = self.metrics.shown().apply(page.text());
                Ok(typed(text.into_bytes(), metrics::CONTENT_TYPE))
            }
            "/metrics/slis" => {
                for (check, answer) in self.checks() {
                    for kind in ["healthz", "livez", "readyz"] {
                        self.health.slis().known(&check, kind, answer.is_ok());
                    }
                }
                let text = self.metrics.shown().apply(self.health.slis().page().text());
                Ok(typed(text.into_bytes(), metrics::CONTENT_TYPE))
            }
            "/configz" => Ok(typed(self.settings.to_string().into_bytes(), "application/json")),
            "/statusz" if self.gates.enabled(Gate::ComponentStatusz) => {
                Ok(page(zpages::statusz(asked, &self.running())).map(full))
            }
            "/flagz" if self.gates.enabled(Gate::ComponentFlagz) => {
                Ok(page(zpages::flagz(asked, self.name, &self.flags)).map(full))
            }
            other => {
                let parts: Vec<&str> = other.trim_start_matches('/').splitn(2, '/').collect();
                match parts.as_slice() {
                    [kind @ ("healthz" | "livez" | "readyz")] => Ok(self.answer(kind, query)),
                    ["healthz" | "livez" | "readyz", check] => self.one(check),
                    _ => Err(Failure::not_found()),
                }
            }
        }
    }

    fn running(&self) -> Running<'_> {
        Running {
            component: self.name,
            version: self.version,
            api_version: component::version::EMULATION,
            started: self.started,
            now: self.clock.now(),
            paths: &PATHS,
        }
    }

    fn checks(&self) -> component::health::Answers {
        let mut all = vec![("ping".to_owned(), Ok(()))];
        all.extend(self.health.answers());
        all
    }

    /// The answer of one check.
    fn one(&self, name: &str) -> Result<Response<Body>, Failure> {
        let (_, answer) =
            self.checks().into_iter().find(|(n, _)| n == name).ok_or_else(Failure::not_found)?;
        Ok(match answer {
            Ok(()) => text(StatusCode::OK, "ok"),
            Err(why) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n")),
        })
    }

    /// The answer of all checks but those that the query excludes.
    fn answer(&self, kind: &str, query: &str) -> Response<Body> {
        let pairs = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let verbose = pairs().any(|(name, _)| name == "verbose");
        let excluded = |check: &str| pairs().any(|(name, value)| name == "exclude" && value == check);
        let (mut page, mut failed) = (String::new(), false);
        for (check, answer) in self.checks() {
            let is_excluded = excluded(&check);
            if !is_excluded {
                self.health.slis().note(&check, kind, answer.is_ok());
            }
            let _ = if is_excluded {
                writeln!(page, "[+]{check} excluded: ok")
            } else if answer.is_ok() {
                writeln!(page, "[+]{check} ok")
            } else {
                failed = true;
                writeln!(page, "[-]{check} failed: reason withheld")
            };
        }
        match (failed, verbose) {
            (true, _) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{page}{kind} check failed\n")),
            (false, true) => text(StatusCode::OK, format!("{page}{kind} check passed\n")),
            (false, false) => text(StatusCode::OK, "ok"),
        }
    }
}

#[cfg(test)]
mod tests {
    use client::Client;
    use futures::FutureExt;
    use http_body_util::BodyExt;
    use serde_json::json;

    use super::*;
    use crate::testing::Reviewer;

    /// Lets `admin` do everything, and nobody else anything.
    fn reviewer() -> Client {
        let answer = |review: Value| {
            let allowed =
                review["spec"]["user"] == "admin" && review["spec"]["nonResourceAttributes"]["verb"] == "get";
            let answer = json!({"metadata": {}, "spec": {}, "status": {"allowed": allowed}});
            async move { Ok(answer) }.boxed()
        };
        Client::new(Arc::new(Reviewer(answer)), "test")
    }

    fn endpoint() -> Endpoint {
        let started = "2026-01-02T03:04:05Z".parse().unwrap();
        let health = Health::default();
        health.add("a-controller", || Ok(()));
        let metrics = Registry::default();
        metrics.register("m", |page| {
            page.metric("m", "gauge", "M.").value("m", &[], 1.0);
        });
        Endpoint {
            name: "kube-something",
            version: "v1.36.2",
            auth: Auth::new(reviewer()),
            open: Open::default(),
            clock: Clock::from(started),
            started,
            metrics,
            health,
            settings: json!({"somethingconfig": {"a": 1}}),
            flags: BTreeMap::from([("b".to_owned(), "2".to_owned()), ("a".to_owned(), "1".to_owned())]),
            gates: FeatureGates::default(),
        }
    }

    async fn check(endpoint: &Endpoint, path: &str, code: u16, text: &str) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let response = endpoint.route(path, query, Asked::default()).unwrap_or_else(Failure::into_response);
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body);
        assert!(status == code && body.contains(text), "{path}: {status} {body}");
    }

    #[tokio::test(start_paused = true)]
    async fn answers() {
        let endpoint = endpoint();
        check(&endpoint, "/healthz", 200, "ok").await;
        check(&endpoint, "/livez?verbose", 200, "[+]ping ok\n[+]a-controller ok\nlivez check passed\n").await;
        check(&endpoint, "/readyz/a-controller", 200, "ok").await;
        check(&endpoint, "/healthz/other", 404, "404 page not found").await;
        check(&endpoint, "/metrics", 200, "# TYPE m gauge\nm 1\n").await;
        check(&endpoint, "/metrics", 200, "\nprocess_cpu_seconds_total ").await;
        check(&endpoint, "/configz", 200, r#"{"somethingconfig":{"a":1}}"#).await;
        check(&endpoint, "/flagz", 200, "only.\na=1\nb=2\n".trim_start_matches("only.")).await;
        tokio::time::advance(std::time::Duration::from_secs(3700)).await;
        let status =
            "\nStarted: Fri Jan  2 03:04:05 UTC 2026\nUp: 1 hr 01 min 40 sec\nBinary version: v1.36.2\n";
        check(&endpoint, "/statusz", 200, status).await;
        check(&endpoint, "/", 404, "").await;
        check(&endpoint, "/metricsx", 404, "").await;
        let asked = |accept| Asked { accept, ..Asked::default() };
        let refused = endpoint.route("/flagz", "", asked("application/json")).unwrap();
        assert_eq!(refused.status(), StatusCode::NOT_ACCEPTABLE);
        let old = asked("application/json;v=v1alpha1;g=config.k8s.io;as=Statusz");
        let object = endpoint.route("/statusz", "", old).unwrap();
        let warning = object.headers()["warning"].to_str().unwrap();
        assert!(warning.contains("This version of the statusz endpoint is deprecated."), "{warning}");
        assert_eq!(object.headers()["content-type"], "application/json");
        let gates = FeatureGates::default().with(Gate::ComponentStatusz, false);
        check(&Endpoint { gates, ..self::endpoint() }, "/statusz", 404, "").await;
        endpoint.health.add("a-controller", || Err("it is stuck".to_owned()));
        let failed = "[+]ping ok\n[-]a-controller failed: reason withheld\nhealthz check failed\n";
        check(&endpoint, "/healthz", 500, failed).await;
        check(&endpoint, "/healthz?exclude=a-controller&verbose", 200, "[+]a-controller excluded: ok").await;
        check(&endpoint, "/livez/a-controller", 500, "internal server error: it is stuck").await;
    }

    #[tokio::test]
    async fn strangers_learn_of_health_alone() {
        let endpoint = endpoint();
        let user = |name: &str| Arc::new(User { name: name.to_owned(), ..User::default() });
        let check = async |name: &str, method: Method, path: &str, code: Option<u16>| {
            let got = endpoint.authorize(&method, path, &user(name)).await;
            assert_eq!(got.err().map(|f| f.code.as_u16()), code, "{name} {method} {path}");
        };
        for path in ["/healthz", "/livez", "/readyz"] {
            check("system:anonymous", Method::GET, path, None).await;
        }
        for path in ["/metrics", "/configz", "/statusz", "/flagz", "/healthzx", "/healthz/ping", "/"] {
            check("system:anonymous", Method::GET, path, Some(403)).await;
            check("admin", Method::GET, path, None).await;
        }
        check("admin", Method::POST, "/metrics", Some(403)).await;
        let masters = User { groups: vec!["system:masters".to_owned()], ..User::default() };
        assert!(endpoint.authorize(&Method::POST, "/metrics", &Arc::new(masters)).await.is_ok());
    }

    /// After upstream's `TestNewAuthorizer` of paths.
    #[test]
    fn open_paths() {
        let check = |paths: &[&str], open: &[&str], closed: &[&str]| {
            let parsed = Open::parse(paths.iter().copied()).unwrap();
            for path in open {
                assert!(parsed.has(path), "{paths:?} {path}");
            }
            for path in closed {
                assert!(!parsed.has(path), "{paths:?} {path}");
            }
        };
        check(&[], &[], &["/", "/healthz"]);
        check(&["/"], &["/"], &["/foo"]);
        check(&["/foo", "foo/bar"], &["/foo", "/foo/bar"], &["/", "/foox", "/foo/", "/foo/bar/baz"]);
        check(&["/foo/*"], &["/foo/", "/foo/bar", "/foo/bar/baz"], &["/foo", "/"]);
        check(&["*"], &["/", "/foo"], &[]);
        check(&["/*", "/metrics"], &["/", "/foo"], &[]);
        for bad in ["/foo*bar", "/*/foo", "**"] {
            let why = Open::parse([bad]).unwrap_err();
            assert!(why.starts_with("only trailing * allowed in"), "{why}");
        }
    }
}
