//! Health: whether the proxy keeps up, and the health-check ports of Services (upstream: `pkg/proxy/healthcheck`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use client::{EventType, Key, Recorder};
use component::{Clock, Shutdown};
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use objects::Cidr;
use parking_lot::Mutex;
use serde_json::json;
use serving::plain::{Answer, Handler, answer, not_found, serve};

use crate::metrics::Metrics;

/// The proxy is not healthy if a change waits longer than this: twice upstream's period of syncs.
const TOO_LATE: Duration = Duration::from_mins(1);
const JSON: &str = "application/json";

#[derive(Debug, Default)]
struct State {
    updated: Option<Timestamp>,
    /// Since when a change waits.
    waiting: Option<Timestamp>,
    eligible: bool,
    services: BTreeMap<Key, (u16, usize)>,
}

/// The health of the proxy. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    state: Arc<Mutex<State>>,
    clock: Clock,
    metrics: Metrics,
}

impl Health {
    pub(crate) fn new(clock: Clock, metrics: Metrics) -> Self {
        Self { state: Arc::default(), clock, metrics }
    }

    /// A change waits.
    pub(crate) fn queued(&self) {
        let now = self.clock.now();
        self.state.lock().waiting.get_or_insert(now);
    }

    /// All changes are in force.
    pub(crate) fn updated(&self) {
        let mut state = self.state.lock();
        (state.waiting, state.updated) = (None, Some(self.clock.now()));
    }

    /// Whether load balancers may use the node.
    pub(crate) fn set_eligible(&self, eligible: bool) {
        self.state.lock().eligible = eligible;
    }

    fn is_healthy(&self) -> bool {
        let waiting = self.state.lock().waiting;
        waiting.is_none_or(|since| self.clock.now().duration_since(since).unsigned_abs() < TOO_LATE)
    }

    /// The answer of `/healthz` or `/livez`.
    pub(crate) fn answer(&self, path: &str) -> Answer {
        let livez = match path {
            "/healthz" => false,
            "/livez" => true,
            _ => return not_found(),
        };
        let well = self.is_healthy();
        let (updated, eligible) = {
            let state = self.state.lock();
            (state.updated, state.eligible)
        };
        let healthy = well && (livez || eligible);
        self.metrics.probed(livez, healthy);
        let now = self.clock.now();
        // Go's zero time, which upstream shows before the first sync.
        let time =
            |time: Option<Timestamp>| time.map_or("0001-01-01T00:00:00Z".to_owned(), |t| t.to_string());
        let shown = if healthy { Some(now) } else { updated };
        let mut body = json!({
            "lastUpdated": time(shown), "currentTime": now.to_string(), "healthy": well,
        });
        if !livez {
            body["nodeEligible"] = eligible.into();
        }
        if updated.is_some() {
            let one = json!({"lastUpdated": time(updated), "healthy": well});
            body["status"] = json!({"IPv4": one, "IPv6": one});
        }
        let code = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        answer(code, JSON, body.to_string())
    }

    /// The answer of a Service's health-check port.
    fn answer_for(&self, key: &Key) -> Answer {
        let count = self.state.lock().services.get(key).map_or(0, |(_, count)| *count);
        let healthy = self.is_healthy();
        let code = if count > 0 && healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let text = format!(
            "{{\n\t\"service\": {{\n\t\t\"namespace\": {:?},\n\t\t\"name\": {:?}\n\t}},\n\t\"localEndpoints\": {count},\n\t\"serviceProxyHealthy\": {healthy}\n}}",
            key.namespace, key.name,
        );
        let mut response = answer(code, JSON, text);
        let headers = response.headers_mut();
        headers.insert("x-load-balancing-endpoint-weight", HeaderValue::from(count));
        response
    }
}

/// The open health-check ports.
pub(crate) struct Ports {
    health: Health,
    /// The blocks of the addresses at which they answer; `None` for all.
    addresses: Option<Vec<Cidr>>,
    open: BTreeMap<Key, (u16, Shutdown)>,
    /// The ports that could not be opened; they are tried again, and told of once.
    failed: BTreeSet<(Key, u16)>,
    node: String,
    recorder: Recorder,
    shutdown: Shutdown,
}

impl Ports {
    pub(crate) fn new(
        health: Health,
        addresses: Option<Vec<Cidr>>,
        node: &str,
        recorder: Recorder,
        shutdown: &Shutdown,
    ) -> Self {
        Self {
            health,
            addresses,
            open: BTreeMap::new(),
            failed: BTreeSet::new(),
            node: node.to_owned(),
            recorder,
            shutdown: shutdown.clone(),
        }
    }

    /// Opens and closes ports as Services ask for.
    pub(crate) async fn set(&mut self, services: BTreeMap<Key, (u16, usize)>) {
        let closed: Vec<Key> = self
            .open
            .iter()
            .filter(|(key, (port, _))| services.get(*key).is_none_or(|(wanted, _)| wanted != port))
            .map(|(key, _)| key.clone())
            .collect();
        for key in closed {
            if let Some((_, server)) = self.open.remove(&key) {
                server.finish().await;
            }
        }
        let missing: Vec<(Key, u16)> = services
            .iter()
            .filter(|(key, _)| !self.open.contains_key(*key))
            .map(|(key, (port, _))| (key.clone(), *port))
            .collect();
        self.health.state.lock().services = services;
        let failed = std::mem::take(&mut self.failed);
        for (key, port) in missing {
            match self.open(&key, port).await {
                Ok(server) => drop(self.open.insert(key, (port, server))),
                Err(error) => {
                    let one = (key, port);
                    if !failed.contains(&one) {
                        self.tell(&one.0, port, &error);
                    }
                    self.failed.insert(one);
                }
            }
        }
    }

    /// Tells of a port that cannot be opened, as upstream does.
    fn tell(&self, key: &Key, port: u16, error: &std::io::Error) {
        let about = ObjectReference {
            kind: Some("Service".to_owned()),
            namespace: Some(key.namespace.to_string()),
            name: Some(key.name.to_string()),
            uid: Some(key.name.to_string()),
            ..ObjectReference::default()
        };
        let service = key.to_string();
        let message =
            format!("node {} failed to start healthcheck {service:?} on port {port}: {error}", self.node);
        tracing::warn!("{message}");
        self.recorder.event_about(about, EventType::Warning, "FailedToStartServiceHealthcheck", message);
    }

    async fn open(&self, key: &Key, port: u16) -> std::io::Result<Shutdown> {
        let server = self.shutdown.child();
        let (health, of, blocks) = (self.health.clone(), key.clone(), self.addresses.clone());
        let handler: Arc<Handler> = Arc::new(move |_, local: SocketAddr| {
            let at = local.ip().to_canonical();
            let here = blocks.as_ref().is_none_or(|all| all.iter().any(|b| b.contains(Cidr::from(at))));
            here.then(|| health.answer_for(&of))
        });
        let both: IpAddr = Ipv6Addr::UNSPECIFIED.into();
        match serve(handler.clone(), (both, port).into(), &server).await {
            Ok(_) => {}
            // A machine without IPv6.
            Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => {
                serve(handler, (IpAddr::from(Ipv4Addr::UNSPECIFIED), port).into(), &server).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(server)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn check(health: &Health, path: &str, code: u16, fields: serde_json::Value) {
        let response = health.answer(path);
        assert_eq!(response.status().as_u16(), code, "{path}");
        assert_eq!(response.headers()["content-type"], JSON);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        for (name, value) in fields.as_object().unwrap() {
            assert_eq!(&body[name], value, "{path}: {body}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_waits_too_long_is_told() {
        let clock = Clock::from("2026-01-02T03:04:05Z".parse().unwrap());
        let health = Health::new(clock, Metrics::default());
        check(&health, "/healthz", 503, json!({"nodeEligible": false, "healthy": true})).await;
        check(&health, "/livez", 200, json!({"healthy": true, "nodeEligible": null, "status": null})).await;
        health.set_eligible(true);
        health.queued();
        check(&health, "/healthz", 200, json!({"lastUpdated": "2026-01-02T03:04:05Z"})).await;
        health.updated();
        tokio::time::advance(Duration::from_hours(1)).await;
        check(&health, "/healthz", 200, json!({"currentTime": "2026-01-02T04:04:05Z"})).await;
        health.queued();
        tokio::time::advance(Duration::from_secs(30)).await;
        health.queued();
        check(&health, "/livez", 200, json!({"healthy": true})).await;
        tokio::time::advance(Duration::from_secs(30)).await;
        let late = json!({"lastUpdated": "2026-01-02T03:04:05Z", "healthy": false});
        check(&health, "/livez", 503, late.clone()).await;
        check(&health, "/healthz", 503, late).await;
        assert_eq!(health.answer("/").status().as_u16(), 404);
    }

    #[tokio::test]
    async fn a_port_in_use_is_told_once_and_opened_later() {
        let clock = Clock::system();
        let (recorder, mut events) = Recorder::channel("kube-proxy", clock);
        let shutdown = Shutdown::new();
        let mut ports = Ports::new(Health::new(clock, Metrics::default()), None, "n", recorder, &shutdown);
        let taken = std::net::TcpListener::bind("[::]:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let services: BTreeMap<_, _> = [(Key::new("ns", "s"), (port, 1))].into();
        ports.set(services.clone()).await;
        ports.set(services.clone()).await;
        let event = events.try_recv().unwrap();
        assert_eq!(event.reason.as_deref(), Some("FailedToStartServiceHealthcheck"));
        let message = event.message.unwrap();
        let wanted = format!("node n failed to start healthcheck \"ns/s\" on port {port}: ");
        assert!(message.starts_with(&wanted), "{message}");
        assert!(events.try_recv().is_err());
        drop(taken);
        ports.set(services).await;
        assert!(ports.open.len() == 1 && ports.failed.is_empty());
        shutdown.finish().await;
    }

    #[tokio::test]
    async fn balancers_learn_of_endpoints_here() {
        let health = Health::new(Clock::system(), Metrics::default());
        let key = Key::new("ns", "s");
        let check = async |count: usize, code: u16| {
            health.state.lock().services.insert(key.clone(), (32000, count));
            let response = health.answer_for(&key);
            assert_eq!(response.status().as_u16(), code);
            assert_eq!(response.headers()["x-load-balancing-endpoint-weight"], count.to_string().as_str());
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let wanted = json!({
                "service": {"namespace": "ns", "name": "s"}, "localEndpoints": count, "serviceProxyHealthy": true,
            });
            assert_eq!(body, wanted);
        };
        check(0, 503).await;
        check(2, 200).await;
    }
}
