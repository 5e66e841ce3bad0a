//! Image credential providers: programs that are asked for the credentials of images; upstream's
//! `--image-credential-provider-config` and `--image-credential-provider-bin-dir`.

mod cache;
mod config;
mod exec;
mod once;
pub(crate) mod place;
mod provider;
mod validate;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::Client;
use component::Clock;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::cache::Cache;
pub use self::config::{CredentialProviders, CredentialProvidersError};
use self::exec::{Asked, ExecError, Login, Program, Response};
use self::once::Once;
use self::place::Place;
use self::provider::{Provider, TokenAttributes};
use crate::metrics::{
    CREDENTIAL_PROVIDER_CONFIG_INFO, CREDENTIAL_PROVIDER_PLUGIN_DURATION,
    CREDENTIAL_PROVIDER_PLUGIN_ERRORS_TOTAL, Metrics,
};
use crate::pods::spec;
use crate::volumes::tokens::{Issuer, TokenError};

/// The key of answers that are good for all images; it is no registry's name.
const GLOBAL: &str = "<global>";
/// How long a service account's token is asked to be good, in seconds; upstream's.
const TOKEN: i64 = 3600;
/// How many programs run at once: each is a process, and a Pod's user says how many Pods there are.
const AT_ONCE: usize = 32;

/// A service account, by whose token credentials were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The credentials that one provider gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Provided {
    /// User and password by the place that they are for.
    pub(crate) logins: Vec<(String, String, String)>,
    /// By whose token they were given, if by one.
    pub(crate) account: Option<Account>,
}

/// An answer of a provider, shared by those who asked for it.
type Logins = Arc<Vec<(String, Login)>>;

/// Why a provider gives no credentials for an image; upstream's words.
#[derive(Debug, thiserror::Error)]
enum ProvideError {
    #[error("failed to get service account: {0}")]
    Account(Box<Status>),
    #[error("failed to get service account: cannot get ServiceAccounts when kubelet is in standalone mode")]
    Standalone,
    #[error("failed to get service account token: {0}")]
    Token(#[from] TokenError),
    #[error("failed to get credential from external registry credential provider: {0}")]
    Exec(#[from] ExecError),
    #[error(
        "credential provider plugin returned the service account token as the password which is not allowed when service account cache type is not set to 'Token'"
    )]
    TokenAsPassword,
    #[error("credential provider plugin did not return a valid cacheKeyType: {0}")]
    CacheKeyType(String),
}

/// Answers are kept for an image, a registry or all images, and for one account, token and its annotations.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    of: String,
    whose: Option<Whose>,
}

/// The account whose token an answer was given to; the token's hash counts where answers are not for the account.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Whose {
    namespace: String,
    name: String,
    uid: String,
    annotations: BTreeMap<String, String>,
    token: Option<[u8; 32]>,
}

/// Calls under way for the same image, token and annotations are one.
type Call = (String, [u8; 32], BTreeMap<String, String>);

/// A provider that can be asked.
struct Plugin {
    name: String,
    places: Vec<Place>,
    program: Program,
    /// How long an answer is kept that does not say.
    keep: Duration,
    tokens: Option<TokenAttributes>,
    cache: Mutex<Cache<Key, Logins>>,
    under_way: Once<Call, Result<Response, ExecError>>,
}

/// The things that a provider is told of the Pod's account.
#[derive(Default)]
struct Shown {
    account: Option<Account>,
    token: String,
    annotations: BTreeMap<String, String>,
}

/// The providers of a kubelet.
pub(crate) struct Providers {
    plugins: Vec<Plugin>,
    client: Client,
    issuer: Issuer,
    standalone: bool,
    metrics: Metrics,
    turns: Semaphore,
}

impl Providers {
    /// They, before anything was asked. Tokens are asked for with the node's identity.
    pub(crate) fn new(
        configured: &CredentialProviders,
        client: &Client,
        clock: Clock,
        standalone: bool,
        metrics: Metrics,
    ) -> Self {
        metrics.set(&CREDENTIAL_PROVIDER_CONFIG_INFO, &[&configured.hash], 1.0);
        let plugin = |provider: &Provider| Plugin {
            name: provider.name.clone(),
            // They were checked.
            places: provider.match_images.iter().filter_map(|image| Place::parse(image).ok()).collect(),
            program: Program::new(&configured.programs, provider),
            keep: provider.keeps(),
            tokens: provider.token_attributes.clone(),
            cache: Mutex::new(Cache::new()),
            under_way: Once::default(),
        };
        Self {
            plugins: configured.providers.iter().map(plugin).collect(),
            client: client.clone(),
            issuer: Issuer::new(client.clone(), clock),
            standalone,
            metrics,
            turns: Semaphore::new(AT_ONCE),
        }
    }

    /// Forgets the tokens of a Pod.
    pub(crate) fn forget(&self, uid: &str) {
        self.issuer.forget(uid);
    }

    /// The credentials that the providers have for a Pod's image, which is a name without tag and digest. A provider that
    /// has none for it, or fails, is left out.
    pub(crate) async fn credentials(&self, pod: &Pod, image: &str) -> Vec<Provided> {
        let Ok(target) = Place::parse(image) else { return Vec::new() };
        let asked = self.plugins.iter().filter(|p| p.places.iter().any(|place| place.covers(&target)));
        let answers = join_all(asked.map(|plugin| self.provided(plugin, pod, image)));
        answers.await.into_iter().flatten().collect()
    }

    /// The credentials of one provider; a failure is told.
    async fn provided(&self, plugin: &Plugin, pod: &Pod, image: &str) -> Option<Provided> {
        self.provide(plugin, pod, image).await.unwrap_or_else(|error| {
            let pod = spec::full_name(pod);
            tracing::error!(%error, provider = plugin.name, image, pod, "Failed to provide credentials for image");
            None
        })
    }

    async fn provide(
        &self,
        plugin: &Plugin,
        pod: &Pod,
        image: &str,
    ) -> Result<Option<Provided>, ProvideError> {
        let Some(shown) = self.shown(plugin, pod).await? else { return Ok(None) };
        let hash: [u8; 32] = Sha256::digest(&shown.token).into();
        let by_token = plugin.tokens.as_ref().is_some_and(|tokens| tokens.cache_type == "Token");
        let whose = shown.account.as_ref().map(|account| Whose {
            namespace: account.namespace.clone(),
            name: account.name.clone(),
            uid: account.uid.clone(),
            annotations: shown.annotations.clone(),
            token: by_token.then_some(hash),
        });
        let key = |of: &str| Key { of: of.to_owned(), whose: whose.clone() };
        let registry = image.split('/').next().unwrap_or_default();
        let kept = plugin.cache.lock().get(&[key(image), key(registry), key(GLOBAL)]);
        let logins = if let Some(kept) = kept {
            kept
        } else {
            let call = (image.to_owned(), hash, shown.annotations.clone());
            let response = plugin.under_way.get(call, self.ask(plugin, image, &shown)).await?;
            if !shown.token.is_empty()
                && !by_token
                && response.logins().any(|(_, login)| login.password == shown.token)
            {
                return Err(ProvideError::TokenAsPassword);
            }
            let key = key(match response.cache_key_type.as_str() {
                "Image" => image,
                "Registry" => registry,
                "Global" => GLOBAL,
                other => return Err(ProvideError::CacheKeyType(other.to_owned())),
            });
            let logins: Logins = Arc::new(response.logins().map(|(p, l)| (p.clone(), l)).collect());
            let keep = response.keep().unwrap_or(plugin.keep);
            if !keep.is_zero() {
                plugin.cache.lock().put(key, logins.clone(), keep);
            }
            logins
        };
        let logins =
            logins.iter().map(|(place, l)| (place.clone(), l.username.clone(), l.password.clone())).collect();
        Ok(Some(Provided { logins, account: shown.account }))
    }

    /// The account and its token that a provider is shown for a Pod; none if it is not asked for that Pod.
    async fn shown(&self, plugin: &Plugin, pod: &Pod) -> Result<Option<Shown>, ProvideError> {
        let Some(tokens) = &plugin.tokens else { return Ok(Some(Shown::default())) };
        let name = spec::spec(pod).service_account_name.as_deref().unwrap_or_default();
        if name.is_empty() {
            // Static Pods have none.
            let required = tokens.require_service_account.unwrap_or(true);
            return Ok((!required).then(Shown::default));
        }
        if self.standalone {
            return Err(ProvideError::Standalone);
        }
        let accounts = self.client.api::<ServiceAccount>(spec::namespace(pod));
        let account = accounts.get(name).await.map_err(|error| ProvideError::Account(Box::new(error)))?;
        let Some(annotations) = annotations(&account, tokens) else {
            tracing::debug!(
                provider = plugin.name,
                pod = spec::full_name(pod),
                "a required annotation is not there"
            );
            return Ok(None);
        };
        let uid = account.metadata.uid.unwrap_or_default();
        let audience = &tokens.service_account_token_audience;
        let token = self.issuer.token_of_account(pod, &uid, audience, TOKEN).await?.text;
        let account = Account { namespace: spec::namespace(pod).to_owned(), name: name.to_owned(), uid };
        Ok(Some(Shown { account: Some(account), token, annotations }))
    }

    /// Asks a provider's program, and counts it.
    async fn ask(&self, plugin: &Plugin, image: &str, shown: &Shown) -> Result<Response, ExecError> {
        // It is never closed.
        let _turn = self.turns.acquire().await.ok();
        let began = Instant::now();
        let asked = Asked { image, token: &shown.token, annotations: &shown.annotations };
        let answer = plugin.program.ask(asked).await;
        let labels = [plugin.name.as_str()];
        self.metrics.took(&CREDENTIAL_PROVIDER_PLUGIN_DURATION, &labels, began.elapsed());
        if matches!(answer, Err(ExecError::Failed { .. })) {
            self.metrics.count(&CREDENTIAL_PROVIDER_PLUGIN_ERRORS_TOTAL, &labels);
        }
        answer
    }
}

/// The annotations of an account that a provider gets; none if one is not there that it requires.
fn annotations(account: &ServiceAccount, tokens: &TokenAttributes) -> Option<BTreeMap<String, String>> {
    let all = account.metadata.annotations.as_ref();
    let get = |key: &String| all.and_then(|all| all.get(key)).map(|value| (key.clone(), value.clone()));
    let required = tokens.required_service_account_annotation_keys.iter();
    let mut shown = required.map(get).collect::<Option<BTreeMap<_, _>>>()?;
    shown.extend(tokens.optional_service_account_annotation_keys.iter().filter_map(get));
    Some(shown)
}

#[cfg(test)]
mod tests;
