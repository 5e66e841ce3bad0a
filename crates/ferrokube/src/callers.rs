//! The callers of a component's own endpoint that show certificates: clients of the cluster's authorities, and those whom
//! front proxies name. The authorities are in files, which are read again when they change, or the API server tells them
//! in a ConfigMap, which is followed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use access::auth::{Peers, RequestHeaders};
use anyhow::{Context, Error, Result, anyhow};
use client::{Cached, Change, Client, Factory, Selection, resource_of};
use component::{Clock, Shutdown};
use http::HeaderMap;
use k8s_openapi::api::core::v1::ConfigMap;
use rustls_pki_types::CertificateDer;
use serving::User;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::certificate_files::{self, Part};
use crate::cli;
use crate::say::warn;

/// The ConfigMap in which the API server tells its authorities, and its namespace.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// How long the first look at the ConfigMap may take.
const FIRST_LOOK: Duration = Duration::from_secs(10);

/// The authorities and headers that are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Known {
    /// The authorities of clients, PEM.
    clients: Option<String>,
    proxies: Option<RequestHeaders>,
}

#[derive(Default)]
struct State {
    known: Known,
    peers: Arc<Peers>,
}

/// The callers, as they are recognised now.
pub(crate) struct Callers {
    state: watch::Sender<State>,
    /// Whether uids that front proxies name count.
    uid: bool,
    clock: Clock,
}

/// The parts that no flag names, and that the ConfigMap tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    clients: bool,
    proxies: bool,
}

impl Callers {
    /// Begins to recognise the callers that flags and the cluster tell of; `uid` says whether the feature
    /// RemoteRequestHeaderUID is on, `client` asks the cluster.
    ///
    /// # Errors
    /// A flag or its file cannot be used; or the cluster does not tell of front proxies, and not `tolerant`.
    pub(crate) async fn start(
        flags: &cli::Serving,
        uid: bool,
        client: &Client,
        tolerant: bool,
        clock: Clock,
        shutdown: &Shutdown,
    ) -> Result<Arc<Self>> {
        let callers = Arc::new(Self { state: watch::Sender::default(), uid, clock });
        // The headers are checked in any case, as in upstream.
        let headers = flags.proxies("", uid)?;
        let mut parts = Vec::new();
        if let Some(file) = &flags.client_ca_file {
            let to = callers.clone();
            let take = move |pem: &str| to.learn(|known| known.clients = Some(pem.to_owned()));
            parts.push(first_look("--client-ca-file", file, take)?);
        }
        if let Some(file) = &flags.requestheader_client_ca_file {
            let to = callers.clone();
            let take = move |pem: &str| {
                let proxies = RequestHeaders { authorities_pem: pem.to_owned(), ..headers.clone() };
                to.learn(|known| known.proxies = Some(proxies))
            };
            parts.push(first_look("--requestheader-client-ca-file", file, take)?);
        }
        certificate_files::follow(parts, shutdown);
        let wanted = Wanted {
            clients: flags.client_ca_file.is_none(),
            proxies: flags.requestheader_client_ca_file.is_none(),
        };
        if !flags.authentication_skip_lookup && (wanted.clients || wanted.proxies) {
            if let Err(error) = callers.ask(client, wanted).await {
                let error = error.context("unable to load configmap based request-header-client-ca-file");
                if wanted.proxies && !tolerant {
                    return Err(error);
                }
                warn(&format!("{error:#}; callers with certificates are strangers until it can be had"));
            }
            callers.follow(client, wanted, shutdown);
        }
        Ok(callers)
    }

    /// Looks at the ConfigMap once.
    async fn ask(&self, client: &Client, wanted: Wanted) -> Result<()> {
        let api = client.api::<ConfigMap>(NAMESPACE);
        let map = timeout(FIRST_LOOK, api.get(NAME)).await.context("the API server does not answer")?;
        self.take(&map.map_err(Error::new)?, wanted)
    }

    /// Follows the ConfigMap until the shutdown.
    fn follow(self: &Arc<Self>, client: &Client, wanted: Wanted, shutdown: &Shutdown) {
        let factory = Factory::new(client.clone());
        let one = Selection {
            namespace: NAMESPACE.to_owned(),
            field_selector: format!("metadata.name={NAME}"),
            ..Selection::default()
        };
        let callers = self.clone();
        factory.select::<ConfigMap>(resource_of::<ConfigMap>(), one).handle(move |change| {
            // One that is gone says nothing against the authorities that it told.
            let map = change.object();
            if !matches!(change, Change::Deleted(_))
                && map.key().name == NAME
                && let Err(error) = callers.take(map, wanted)
            {
                tracing::warn!("{error:#}; the authorities before count");
            }
        });
        factory.start(shutdown);
    }

    /// Takes over the wanted parts of a ConfigMap.
    fn take(&self, map: &ConfigMap, wanted: Wanted) -> Result<()> {
        let empty = BTreeMap::new();
        let told = told(map.data.as_ref().unwrap_or(&empty))?;
        let lacks = wanted.proxies && told.proxies.is_none();
        self.learn(|known| {
            if wanted.clients {
                known.clients = told.clients;
            }
            if wanted.proxies {
                known.proxies = told.proxies;
            }
        })?;
        if lacks {
            return Err(anyhow!("ConfigMap {NAMESPACE}/{NAME} has no requestheader-client-ca-file"));
        }
        Ok(())
    }

    /// Takes a change of what is known over; what cannot be used leaves everything as it is.
    fn learn(&self, change: impl FnOnce(&mut Known)) -> Result<()> {
        let mut outcome = Ok(());
        self.state.send_if_modified(|state| {
            let mut known = state.known.clone();
            change(&mut known);
            if known == state.known {
                return false;
            }
            match Peers::new(known.clients.as_deref(), known.proxies.clone(), self.uid) {
                Ok(peers) => *state = State { known, peers: Arc::new(peers) },
                Err(error) => outcome = Err(error.into()),
            }
            outcome.is_ok()
        });
        outcome
    }
}

impl serving::Peers for Callers {
    fn user(&self, headers: &mut HeaderMap, chain: &[CertificateDer<'static>]) -> Option<User> {
        let peers = self.state.borrow().peers.clone();
        let user = peers.user(headers, chain, self.clock.now())?;
        let texts = |list: Vec<api::Text>| list.into_iter().map(|text| text.to_string()).collect();
        Some(User {
            name: user.name.to_string(),
            uid: user.uid.to_string(),
            groups: texts(user.groups),
            extra: user.extra.into_iter().map(|(key, values)| (key.to_string(), texts(values))).collect(),
        })
    }
}

/// Takes a file's text over, and makes the part by which it is followed.
fn first_look(flag: &str, file: &Path, take: impl Fn(&str) -> Result<()> + Send + 'static) -> Result<Part> {
    let unusable = || format!("cannot use {flag} {}", file.display());
    take(&std::fs::read_to_string(file).with_context(unusable)?).with_context(unusable)?;
    Ok(Part::new(vec![file.to_owned()], move |texts| take(texts.first().map_or("", String::as_str))))
}

/// The authorities and headers in the ConfigMap, whose lists are JSON.
fn told(data: &BTreeMap<String, String>) -> Result<Known> {
    let text = |key: &str| data.get(key).filter(|text| !text.is_empty());
    let list = |key: &str| -> Result<Vec<String>> {
        let Some(text) = text(key) else { return Ok(Vec::new()) };
        serde_json::from_str(text).with_context(|| format!("{key} in ConfigMap {NAMESPACE}/{NAME}"))
    };
    let proxies = match text("requestheader-client-ca-file") {
        None => None,
        Some(pem) => Some(RequestHeaders {
            authorities_pem: pem.clone(),
            allowed_names: list("requestheader-allowed-names")?,
            username: list("requestheader-username-headers")?,
            uid: list("requestheader-uid-headers")?,
            group: list("requestheader-group-headers")?,
            extra_prefixes: list("requestheader-extra-headers-prefix")?,
        }),
    };
    Ok(Known { clients: text("client-ca-file").cloned(), proxies })
}
