//! A certificate that is kept good: read from its file, asked for where there is none, and exchanged for a new one
//! between 70 and 90 % of its life, as upstream's kubelet does.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use api::Status;
use client::{Backoff, Certificate, Client, Config, Remote};
use component::{Clock, Shutdown};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;

use super::request::{Issued, Wanted, obtain, validity};
use super::store::{Pair, Store, parse};
use crate::failure::Failure;

/// The time after which the clock is looked at again at the latest: it may be set meanwhile.
const LOOK: Duration = Duration::from_hours(1);

/// A certificate that is kept good.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) wanted: Wanted,
    pub(super) store: Store,
    /// The place from which it is used.
    pub(super) place: Certificate,
    pub(super) clock: Clock,
    /// The end of the certificate; none while there is no certificate.
    pub(super) end: Arc<watch::Sender<Option<Timestamp>>>,
    /// The API server that must take a client certificate before it replaces another one.
    pub(super) server: Option<Server>,
    /// The administrator who approves each request; otherwise the cluster's controllers do.
    pub(super) approver: Option<Client>,
}

/// An API server with its authorities.
#[derive(Debug, Clone)]
pub(crate) struct Server(Arc<Config>);

impl Server {
    /// That of a configuration, without anybody's credentials.
    pub(super) fn of(config: &Config) -> Self {
        Self(Arc::new(config.without_credentials()))
    }

    /// Its URL.
    pub(super) fn url(&self) -> &str {
        &self.0.server
    }

    /// Those who may have signed its certificate.
    pub(super) fn authorities(&self) -> &[CertificateDer<'static>] {
        &self.0.authorities
    }

    /// The configuration for one who has these credentials.
    pub(super) fn with(&self, identity: Certificate) -> Config {
        self.0.without_credentials().with_identity(identity)
    }
}

impl Kept {
    /// A certificate that is not there yet.
    pub(super) fn new(wanted: Wanted, store: Store, clock: Clock) -> Self {
        Self {
            wanted,
            store,
            place: Certificate::default(),
            clock,
            end: Arc::default(),
            server: None,
            approver: None,
        }
    }

    /// With the API server that must take a client certificate before it replaces another one.
    pub(super) fn tried_at(self, server: Server) -> Self {
        Self { server: Some(server), ..self }
    }

    /// With an administrator who approves each request.
    pub(super) fn approved_by(self, admin: Client) -> Self {
        Self { approver: Some(admin), ..self }
    }

    /// Resolves once there is a certificate.
    pub(super) fn there(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut end = self.end.subscribe();
        async move {
            let _ = end.wait_for(Option::is_some).await;
        }
    }

    /// Takes the certificate of the file, if it is what is wanted and still good. Returns the time of its exchange.
    pub(super) fn load(&self) -> Result<Option<Timestamp>> {
        let Some(Pair { chain, key }) = self.store.read()? else { return Ok(None) };
        let Some((begin, end)) = chain.first().and_then(|c| validity(c)) else { return Ok(None) };
        let wanted = chain.first().is_some_and(|c| self.wanted.is_satisfied(c));
        let now = self.clock.now();
        if !wanted || begin > now || end <= now || self.place.exchange(chain, key).is_err() {
            return Ok(None);
        }
        self.end.send_replace(Some(end));
        self.place.renewed((begin, end), now);
        Ok(Some(deadline(begin, end, fastrand::f64())))
    }

    /// Asks for a new certificate as `client`, and uses it from then on. Returns the time of its exchange.
    pub(super) async fn renew(&self, client: &Client) -> Result<Timestamp> {
        let asked = Box::pin(obtain(client, &self.wanted, self.approver.as_ref()));
        let Issued { chain, key, request } = asked.await?;
        if let Some(server) = &self.server {
            let Pair { chain, key } =
                parse(format!("{chain}{key}").as_bytes()).context("the new certificate is none")?;
            let new =
                Client::new(Arc::new(Remote::new(server.with(Certificate::new(chain, key)?))?), "ferrokube");
            self.judge(new.api::<CertificateSigningRequest>("").get(&request).await.map(drop))?;
        }
        self.store.write(&chain, &key, self.clock.now())?;
        tracing::info!(%request, user = self.wanted.common_name, "a new certificate is used");
        self.load()?
            .context("the new certificate cannot be used: is this machine's clock right, and the server's?")
    }

    /// Judges the answer of the API server to the new certificate's first request, which is for its own request. A node
    /// may read that; another part of it may not, which is told only to one who is known.
    fn judge(&self, answer: Result<(), Status>) -> Result<()> {
        match answer {
            Ok(()) => Ok(()),
            Err(status) if status.code == 403 && self.wanted.organization.is_none() => Ok(()),
            Err(status) => Err(anyhow!(status).context("the API server does not take the new certificate")),
        }
    }

    /// Whether the certificate has expired, so that `error` is no wonder.
    fn has_expired(&self, error: &anyhow::Error) -> bool {
        let told = |status: &Status| status.code == 401 || status.message.contains("xpired");
        let refused = error.chain().filter_map(|cause| cause.downcast_ref::<Status>()).any(told);
        refused && self.end.borrow().is_some_and(|end| end <= self.clock.now())
    }

    /// Keeps the certificate good until the shutdown. The old one is used until there is a new one. If `client` has the
    /// certificate itself, and the API server takes it no more since it has expired, that ends the work: `failure` tells.
    pub(super) async fn keep(
        self,
        mut next: Option<Timestamp>,
        client: Client,
        failure: Option<Failure>,
        shutdown: Shutdown,
    ) {
        let mut backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(32));
        let work = async {
            loop {
                if let Some(at) = next {
                    let left = Duration::try_from(at.duration_since(self.clock.now())).unwrap_or_default();
                    if !left.is_zero() {
                        tokio::time::sleep(left.min(LOOK)).await;
                        continue;
                    }
                }
                match self.renew(&client).await {
                    Ok(at) => {
                        backoff.reset();
                        next = Some(at);
                    }
                    Err(error) => {
                        self.place.not_renewed();
                        let user = &self.wanted.common_name;
                        if let Some(failure) = failure.as_ref().filter(|_| self.has_expired(&error)) {
                            failure.report(format!(
                                "the certificate of {user} has expired, and without one it gets no other: join again, with the command that `ferrokube token create` prints on the control plane"
                            ));
                            return;
                        }
                        tracing::warn!("no new certificate of {user}, will retry: {error:#}");
                        tokio::time::sleep(backoff.delay()).await;
                    }
                }
            }
        };
        let _ = shutdown.run(work).await;
    }
}

/// The time at which a certificate is exchanged: between 70 and 90 % of its life, by `jitter` from 0 to 1.
fn deadline(begin: Timestamp, end: Timestamp, jitter: f64) -> Timestamp {
    let life = end.duration_since(begin).as_secs_f64();
    let used = SignedDuration::try_from_secs_f64(life * (0.7 + 0.2 * jitter)).unwrap_or_default();
    begin.saturating_add(used).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use access::pki::Authority;
    use api::Status;
    use bytes::Bytes;
    use client::{Call, ListAnswer, Transport, Verb, WatchEvent};
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use futures::stream::BoxStream;
    use parking_lot::Mutex;
    use rcgen::{CertificateSigningRequestParams, Issuer, KeyPair};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn between_70_and_90_percent() {
        let (begin, end) = ("2026-01-01T00:00:00Z".parse().unwrap(), "2026-01-01T00:15:00Z".parse().unwrap());
        let check = |jitter: f64, expected: &str| {
            assert_eq!(deadline(begin, end, jitter).round(jiff::Unit::Second).unwrap().to_string(), expected);
        };
        check(0.0, "2026-01-01T00:10:30Z");
        check(0.5, "2026-01-01T00:12:00Z");
        check(1.0, "2026-01-01T00:13:30Z");
    }

    /// Signs what it is asked for at once, with a life of ten minutes; refuses while it is told to.
    struct Signer {
        issuer: Issuer<'static, KeyPair>,
        clock: Clock,
        asked: AtomicUsize,
        refuses: Mutex<Option<u16>>,
    }

    impl Signer {
        fn sign(&self, body: &[u8]) -> Value {
            let mut csr: Value = serde_json::from_slice(body).unwrap();
            let pem = base64::Engine::decode(
                &base64::engine::general_purpose::STANDARD,
                csr["spec"]["request"].as_str().unwrap(),
            );
            let mut request =
                CertificateSigningRequestParams::from_pem(&String::from_utf8(pem.unwrap()).unwrap()).unwrap();
            let now = self.clock.now();
            let epoch = rcgen::date_time_ymd(1970, 1, 1);
            let at = |t: Timestamp| epoch + Duration::from_secs(u64::try_from(t.as_second()).unwrap());
            request.params.not_before = at(now - SignedDuration::from_mins(5));
            request.params.not_after = at(now + SignedDuration::from_mins(10));
            let signed = request.signed_by(&self.issuer).unwrap().pem();
            csr["metadata"] = json!({"name": "csr-1", "resourceVersion": "1"});
            csr["status"]["certificate"] =
                base64::Engine::encode(&base64::engine::general_purpose::STANDARD, signed).into();
            csr
        }
    }

    impl Transport for Signer {
        fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
            let refused = *self.refuses.lock();
            self.asked.fetch_add(1, Ordering::Relaxed);
            let answer = match call.verb {
                _ if refused.is_some() => Err(Status::failure(refused.unwrap_or_default(), "", "no")),
                Verb::Create => Ok(Bytes::from(self.sign(&call.body).to_string())),
                _ => Err(Status::bad_request("no such call")),
            };
            async { answer }.boxed()
        }
        fn raw(&self, _: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
            async { Err(Status::bad_request("no such call")) }.boxed()
        }
        fn list(&self, _: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
            async { Err(Status::bad_request("no such call")) }.boxed()
        }
        fn watch(
            &self,
            _: Call,
        ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
            async { Err(Status::bad_request("no such call")) }.boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_is_exchanged_in_time_and_survives_restarts() {
        let clock = Clock::from("2026-01-01T00:00:00Z".parse().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let ca = Authority::generate("kubernetes", clock.now()).unwrap();
        let issuer =
            Issuer::from_ca_cert_pem(&ca.certificate_pem, KeyPair::from_pem(&ca.key_pem).unwrap()).unwrap();
        let signer =
            Arc::new(Signer { issuer, clock, asked: AtomicUsize::new(0), refuses: Mutex::new(None) });
        let kept = || Kept::new(Wanted::node_client("n"), Store::new(dir.path(), "kubelet-client"), clock);
        let client = Client::new(Arc::<Signer>::clone(&signer), "test");
        let one = kept();
        assert_eq!(one.load().unwrap(), None);
        let next = one.renew(&client).await.unwrap();
        let place = one.place.clone();
        assert_eq!((place.version(), place.is_there()), (1, true));
        // A restart takes the file, and asks for nothing.
        let again = kept();
        assert!(again.load().unwrap().is_some());
        assert_eq!(signer.asked.load(Ordering::Relaxed), 1);
        // In half an hour, certificates of ten minutes are exchanged four times or more.
        let shutdown = Shutdown::new();
        let failure = Failure::default();
        let (keeping, stop, told) = (one.clone(), shutdown.clone(), failure.clone());
        shutdown.spawn(async move { keeping.keep(Some(next), client, Some(told), stop).await });
        tokio::time::sleep(Duration::from_mins(30)).await;
        assert!((4..=8).contains(&place.version()), "{}", place.version());
        // A server that refuses is asked again, and the old certificate is used meanwhile.
        *signer.refuses.lock() = Some(503);
        let before = place.version();
        tokio::time::sleep(Duration::from_mins(12)).await;
        assert_eq!((place.version(), place.is_there()), (before, true));
        // Nobody uses what has expired after a restart.
        assert_eq!(kept().load().unwrap(), None);
        assert!(failure.wait().now_or_never().is_none(), "a server that is away tells nothing");
        *signer.refuses.lock() = None;
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(place.version(), before + 1);
        assert!(kept().load().unwrap().is_some());
        let other = Kept { wanted: Wanted::node_client("m"), ..kept() };
        assert_eq!(other.load().unwrap(), None, "another node's name");
        // A server that knows nobody any more, after the end of the certificate.
        *signer.refuses.lock() = Some(401);
        tokio::time::sleep(Duration::from_mins(12)).await;
        let why = failure.wait().now_or_never().unwrap().to_string();
        assert!(why.starts_with("the certificate of system:node:n has expired"), "{why}");
        shutdown.stop();
        shutdown.finish().await;
    }

    #[test]
    fn the_first_answer_to_a_new_certificate() {
        let check = |wanted: Wanted, code: u16, expected: bool| {
            let dir = tempfile::tempdir().unwrap();
            let kept = Kept::new(wanted, Store::new(dir.path(), "c"), Clock::system());
            let answer = if code == 200 { Ok(()) } else { Err(Status::failure(code, "", "")) };
            assert_eq!(kept.judge(answer).is_ok(), expected, "{code}");
        };
        for (code, node, account) in
            [(200, true, true), (403, false, true), (401, false, false), (503, false, false)]
        {
            check(Wanted::node_client("n"), code, node);
            check(Wanted::account("system:kube-proxy"), code, account);
        }
    }
}
