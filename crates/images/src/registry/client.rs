//! Requests to the hosts of a registry: authentication, redirects, and what an answer means.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, LOCATION, RANGE, USER_AGENT, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;

use crate::registry::auth::{Question, Secret, Token, Tokens, header};
use crate::registry::challenge::{self, Challenge};
use crate::registry::connect::{Connector, proxy_of};
use crate::registry::hosts::{Host, Scheme};
use crate::registry::tls;
use crate::settings::Credentials;

const MAX_REDIRECTS: u32 = 10;
/// The longest answer of a token server, and the part of an error that is shown.
const MAX_ANSWER: usize = 1 << 20;
const MAX_SHOWN: usize = 4 << 10;
const MAX_CLIENTS: usize = 64;

/// A request that got no usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The host does not have it.
    NotFound,
    /// The host refuses.
    Unauthorized(String),
    /// It may succeed later; after the time, if the host says when.
    Unavailable(String, Option<Duration>),
    /// The range is not there.
    Range,
    /// It never will.
    Fatal(String),
}

type HttpClient = Client<Connector, Full<Bytes>>;

/// The clients of all registries.
pub(crate) struct Clients {
    clients: Mutex<HashMap<Host, HttpClient>>,
    tokens: Tokens,
    proxies: Arc<Matcher>,
    user_agent: HeaderValue,
    silence: Duration,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

impl Clients {
    /// No connections yet. The proxies are the environment's.
    pub(crate) fn new(user_agent: &str, silence: Duration) -> Self {
        Self {
            clients: Mutex::default(),
            tokens: Tokens::default(),
            proxies: Arc::new(Matcher::from_env()),
            user_agent: HeaderValue::from_str(user_agent).unwrap_or(HeaderValue::from_static("ferrokube")),
            silence,
        }
    }

    /// How long a host may send nothing.
    pub(crate) fn silence(&self) -> Duration {
        self.silence
    }

    fn client(&self, host: &Host) -> HttpClient {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(host) {
            return client.clone();
        }
        let tls = match host.scheme {
            Scheme::Http => Err("it is spoken to without TLS".to_owned()),
            _ => tls::config(host).map(Arc::new),
        };
        // Settings that cannot be read are read anew by the next pull.
        let keep = tls.is_ok() || host.scheme == Scheme::Http;
        let connector = Connector {
            scheme: host.scheme,
            tls,
            proxies: Arc::clone(&self.proxies),
            limit: host.dial_timeout,
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(8)
            .build(connector);
        if keep {
            if clients.len() >= MAX_CLIENTS {
                clients.clear();
            }
            clients.insert(host.clone(), client.clone());
        }
        client
    }
}

/// A repository on one host, for one pull.
pub(crate) struct Remote<'a> {
    clients: &'a Clients,
    host: &'a Host,
    /// The repository's path.
    repository: &'a str,
    /// The registry that a mirror stands for.
    namespace: Option<&'a str>,
    secret: Secret,
    /// The header that the host took last.
    authorization: Mutex<Option<HeaderValue>>,
}

impl<'a> Remote<'a> {
    /// A repository of the registry `domain` on `host`.
    pub(crate) fn new(
        clients: &'a Clients,
        host: &'a Host,
        domain: &'a str,
        repository: &'a str,
        credentials: &Credentials,
    ) -> Result<Self, Failure> {
        let own = domain == host.host || domain == "docker.io" && host.host == "registry-1.docker.io";
        let secret = Secret::of(credentials, &host.host).map_err(|e| Failure::Unauthorized(e.to_string()))?;
        let authorization = match &secret {
            Secret::Bearer(token) => header(&format!("Bearer {token}")),
            _ => None,
        };
        Ok(Self {
            clients,
            host,
            repository,
            namespace: (!own).then_some(domain),
            secret,
            authorization: Mutex::new(authorization),
        })
    }

    /// The host's name.
    pub(crate) fn host(&self) -> &str {
        &self.host.host
    }

    fn uri(&self, kind: &str, name: &str) -> Result<Uri, Failure> {
        let scheme = if self.host.scheme == Scheme::Http { "http" } else { "https" };
        let (host, path, repository) = (&self.host.host, &self.host.path, self.repository);
        let namespace = self.namespace.map(|n| format!("?ns={n}")).unwrap_or_default();
        let text = format!("{scheme}://{host}{path}/{repository}/{kind}/{name}{namespace}");
        text.parse().map_err(|e| Failure::Fatal(format!("{text}: {e}")))
    }

    /// Asks for a manifest (`manifests`) or other content (`blobs`), from `offset` on. The answer is 200 or 206.
    pub(crate) async fn get(
        &self,
        method: Method,
        kind: &str,
        name: &str,
        accept: &'static str,
        offset: u64,
    ) -> Result<Response<Incoming>, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if offset > 0
            && let Ok(value) = HeaderValue::try_from(format!("bytes={offset}-"))
        {
            headers.insert(RANGE, value);
        }
        let uri = self.uri(kind, name)?;
        let mut challenged = 0;
        loop {
            let sent = self.authorization.lock().clone();
            let answer = self.follow(&method, uri.clone(), &headers, sent.clone()).await?;
            match answer.status() {
                StatusCode::OK | StatusCode::PARTIAL_CONTENT => return Ok(answer),
                // Without a header, with one that may have aged, and with a new one.
                StatusCode::UNAUTHORIZED if challenged < 3 => {
                    challenged += 1;
                    let challenges = challenges(&answer);
                    drop(answer);
                    self.authorize(&challenges, sent.as_ref()).await?;
                }
                _ => return Err(failure(answer).await),
            }
        }
    }

    /// Sends a request, and follows where it is sent to. Credentials and the host's headers go to no other host.
    async fn follow(
        &self,
        method: &Method,
        start: Uri,
        headers: &HeaderMap,
        authorization: Option<HeaderValue>,
    ) -> Result<Response<Incoming>, Failure> {
        let mut uri = start.clone();
        for _ in 0..MAX_REDIRECTS {
            let mut request = Request::new(Full::new(Bytes::new()));
            *request.method_mut() = method.clone();
            *request.headers_mut() = headers.clone();
            let own = uri.authority() == start.authority() && uri.scheme() == start.scheme();
            let client = if own {
                for (name, value) in &self.host.header {
                    if let (Ok(name), Ok(value)) =
                        (HeaderName::try_from(&**name), HeaderValue::try_from(&**value))
                    {
                        request.headers_mut().append(name, value);
                    }
                }
                if let Some(value) = &authorization {
                    request.headers_mut().insert(AUTHORIZATION, value.clone());
                }
                self.clients.client(self.host)
            } else {
                let scheme = if uri.scheme_str() == Some("http") { Scheme::Http } else { Scheme::Https };
                self.clients.client(&Host {
                    scheme,
                    client: Vec::new(),
                    header: Vec::new(),
                    ..self.host.clone()
                })
            };
            *request.uri_mut() = uri.clone();
            let answer = self.send(&client, request).await?;
            let moved = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            if !moved {
                return Ok(answer);
            }
            let location = answer.headers().get(LOCATION).and_then(|l| l.to_str().ok());
            let next = location.and_then(|l| resolve(&uri, l));
            uri = next.ok_or_else(|| Failure::Unavailable("it sends to nowhere".to_owned(), None))?;
        }
        Err(Failure::Unavailable("it sends around in circles".to_owned(), None))
    }

    async fn send(
        &self,
        client: &HttpClient,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Failure> {
        request.headers_mut().entry(USER_AGENT).or_insert(self.clients.user_agent.clone());
        // A tunnel tells the proxy who asks; a plain request does it by a header.
        if request.uri().scheme_str() == Some("http")
            && let Some(proxy) = proxy_of(&self.clients.proxies, request.uri())
            && let Some(value) = proxy.basic_auth()
        {
            request.headers_mut().insert("proxy-authorization", value.clone());
        }
        match tokio::time::timeout(self.clients.silence, client.request(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Failure::Unavailable(whole(&error), None)),
            Err(_) => Err(Failure::Unavailable("no answer in time".to_owned(), None)),
        }
    }

    /// Gets the header that the host asks for.
    async fn authorize(
        &self,
        challenges: &[Challenge],
        refused: Option<&HeaderValue>,
    ) -> Result<(), Failure> {
        let refuse = |reason: &str| Err(Failure::Unauthorized(reason.to_owned()));
        if matches!(self.secret, Secret::Bearer(_)) {
            return refuse("it does not take the registry token");
        }
        let bearer = challenges.iter().find_map(|c| match c {
            Challenge::Bearer { realm, service, scope, .. } => {
                Some(Question::new(realm, service, scope, self.repository))
            }
            Challenge::Basic => None,
        });
        if let Some(question) = bearer {
            if let Some(value) = self.clients.tokens.get(&question, &self.secret)
                && Some(&value) != refused
            {
                *self.authorization.lock() = Some(value);
                return Ok(());
            }
            self.clients.tokens.forget(&question, &self.secret);
            let token = self.token(&question).await?;
            let value = header(&format!("Bearer {}", token.text));
            let value = value.ok_or_else(|| Failure::Unauthorized("its token is no header".to_owned()))?;
            self.clients.tokens.put(&question, &self.secret, &token);
            *self.authorization.lock() = Some(value);
            return Ok(());
        }
        if !challenges.contains(&Challenge::Basic) {
            return refuse("it asks for an authentication that is not supported");
        }
        match self.secret.basic() {
            None => refuse("it wants a user and a password, and there are none"),
            Some(value) if refused == Some(&value) => refuse("it does not take the user and the password"),
            Some(value) => {
                *self.authorization.lock() = Some(value);
                Ok(())
            }
        }
    }

    /// Asks a token server: by a form if there is a secret, and plainly where it knows no forms, as containerd does.
    async fn token(&self, question: &Question) -> Result<Token, Failure> {
        let bad = || Failure::Unauthorized(format!("its token server {:?} is no URL", question.realm));
        let realm: Uri = question.realm.parse().map_err(|_| bad())?;
        if !matches!(realm.scheme_str(), Some("http" | "https")) || realm.authority().is_none() {
            return Err(bad());
        }
        let secure = self.host.scheme == Scheme::Https && self.host.skip_verify != Some(true);
        // DIFFERENCE: containerd sends the secret in the clear.
        if secure && realm.scheme_str() == Some("http") && !matches!(self.secret, Secret::Anonymous) {
            let fault = format!("it wants the credentials sent to {realm} without TLS");
            return Err(Failure::Unauthorized(fault));
        }
        let scheme = if realm.scheme_str() == Some("http") { Scheme::Http } else { Scheme::Https };
        let client = self.clients.client(&Host { scheme, client: Vec::new(), ..self.host.clone() });
        if !matches!(self.secret, Secret::Anonymous) {
            let mut request = Request::new(Full::new(Bytes::from(question.form(&self.secret))));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = realm.clone();
            let form = HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8");
            request.headers_mut().insert(http::header::CONTENT_TYPE, form);
            let answer = self.send(&client, request).await?;
            let code = answer.status().as_u16();
            let user = matches!(self.secret, Secret::Password(..));
            let unknown = matches!(code, 400 | 401 | 404) || code == 405 && user;
            if !unknown {
                return read_token(answer).await;
            }
        }
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = question.url().ok_or_else(bad)?;
        if let Some(value) = self.secret.basic() {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        read_token(self.send(&client, request).await?).await
    }
}

async fn read_token(answer: Response<Incoming>) -> Result<Token, Failure> {
    match answer.status().as_u16() {
        200..=299 => {}
        400..=428 | 430..=499 => {
            let reason = shown(answer).await;
            return Err(Failure::Unauthorized(format!("its token server refuses: {reason}")));
        }
        _ => return Err(failure(answer).await),
    }
    let odd = |e: String| Failure::Unavailable(e, None);
    let body =
        Limited::new(answer.into_body(), MAX_ANSWER).collect().await.map_err(|e| odd(e.to_string()))?;
    Token::parse(&body.to_bytes()).map_err(odd)
}

fn challenges(answer: &Response<Incoming>) -> Vec<Challenge> {
    let values = answer.headers().get_all(WWW_AUTHENTICATE).iter();
    values.filter_map(|v| v.to_str().ok()).flat_map(challenge::parse).collect()
}

/// The URL that a `Location` names.
fn resolve(base: &Uri, location: &str) -> Option<Uri> {
    let text = location.split('#').next()?;
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    let absolute = if text.contains("://") {
        text.to_owned()
    } else if let Some(rest) = text.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if text.starts_with('/') {
        format!("{scheme}://{authority}{text}")
    } else {
        let directory = base.path().rsplit_once('/').map_or("", |(d, _)| d);
        format!("{scheme}://{authority}{directory}/{text}")
    };
    let uri: Uri = absolute.parse().ok()?;
    let usable = matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some();
    usable.then_some(uri)
}

/// The meaning of an answer that is no success.
async fn failure(answer: Response<Incoming>) -> Failure {
    let status = answer.status();
    let wait =
        answer.headers().get(http::header::RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    match status.as_u16() {
        404 | 410 => Failure::NotFound,
        401 | 403 => Failure::Unauthorized(shown(answer).await),
        416 => Failure::Range,
        408 | 425 | 429 | 500..=599 => {
            Failure::Unavailable(shown(answer).await, wait.map(|s| Duration::from_secs(s.min(60))))
        }
        _ => Failure::Fatal(shown(answer).await),
    }
}

/// The status, and what the registry says about it.
async fn shown(answer: Response<Incoming>) -> String {
    #[derive(serde::Deserialize)]
    struct Errors {
        errors: Vec<One>,
    }
    #[derive(serde::Deserialize)]
    struct One {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_SHOWN).collect();
    let body = match tokio::time::timeout(Duration::from_secs(5), body).await {
        Ok(Ok(body)) => body.to_bytes(),
        _ => Bytes::new(),
    };
    let text = serde_json::from_slice::<Errors>(&body).ok().and_then(|e| e.errors.into_iter().next());
    match text {
        Some(One { code, message }) => format!("{status}: {code} {message}").trim_end().to_owned(),
        None => status.to_string(),
    }
}

/// An error with its causes.
pub(crate) fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_resolved() {
        let base: Uri = "https://r.test:5000/v2/a/blobs/x?ns=y".parse().unwrap();
        let check = |location: &str, expected: Option<&str>| {
            assert_eq!(resolve(&base, location).map(|u| u.to_string()).as_deref(), expected, "{location}");
        };
        check("https://cdn.test/b?c=d#e", Some("https://cdn.test/b?c=d"));
        check("//cdn.test/b", Some("https://cdn.test/b"));
        check("/b?c", Some("https://r.test:5000/b?c"));
        check("b", Some("https://r.test:5000/v2/a/blobs/b"));
        for bad in ["file:///etc/passwd", "ftp://x/y", "http://", ""] {
            if !bad.is_empty() {
                check(bad, None);
            }
        }
    }
}
