//! Tokens of ServiceAccounts in Secrets (upstream: `pkg/controller/serviceaccount`): [`AccountTokens`] fills Secrets of
//! the type `kubernetes.io/service-account-token` and removes them with their account, [`LegacyTokens`] removes those
//! that nobody uses.

mod cleaner;
mod plan;

use std::fmt;
use std::sync::Arc;

use api::Status;
use client::{Client, Factory, Informer, Key, Selection, resource_of};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};

use crate::common::retry;
use crate::host::{Controller, Host, Next, Shared, Wiring};

pub(crate) use cleaner::LegacyTokens;
use plan::{Content, names};

/// The type of a Secret with a token.
const TYPE: &str = "kubernetes.io/service-account-token";
/// The annotations by which a Secret names its account.
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// The account and the Secret that a token is for.
#[derive(Debug, Clone, Copy)]
pub struct TokenSubject<'a> {
    /// The namespace of both.
    pub namespace: &'a str,
    /// The account's name.
    pub account: &'a str,
    /// The account's uid.
    pub uid: &'a str,
    /// The Secret's name.
    pub secret: &'a str,
}

/// The signer of tokens in Secrets.
pub trait TokenSigner: fmt::Debug + Send + Sync + 'static {
    /// Makes the token of a Secret.
    ///
    /// # Errors
    /// The key cannot sign, in a sentence.
    fn sign(&self, subject: TokenSubject<'_>) -> Result<String, String>;
}

/// The informer of all Secrets with tokens.
fn token_secrets(factory: &Factory) -> Informer<Secret> {
    let own = Selection { field_selector: format!("type={TYPE}"), ..Selection::default() };
    factory.select(resource_of::<Secret>(), own)
}

/// A look of [`AccountTokens`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Look {
    /// At the Secrets of an account that may be gone.
    Account { account: Key, uid: String },
    /// At a Secret, and at its account in the state in which the Secret named it.
    Secret { secret: Key, uid: String, account: String, account_uid: String },
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account { account, .. } => write!(f, "account {account}"),
            Self::Secret { secret, .. } => write!(f, "secret {secret}"),
        }
    }
}

/// The controller of tokens in Secrets.
pub(crate) struct AccountTokens {
    client: Client,
    signer: Option<Arc<dyn TokenSigner>>,
    /// PEM of the authorities by which the token's user verifies the API server; "" for none.
    root_ca: String,
    accounts: Informer<ServiceAccount>,
    secrets: Informer<Secret>,
}

impl Controller for AccountTokens {
    const NAME: &'static str = "serviceaccount-token-controller";
    const ALIASES: &'static [&'static str] = &["serviceaccount-token"];
    /// As upstream's, it works as the controllers' common user: the accounts of all others may need it first.
    const ACCOUNT: &'static str = "";
    const QUEUE: &'static str = "serviceaccount_tokens_service";
    type Key = Look;

    fn workers(config: &crate::Config) -> usize {
        config.workers.account_tokens
    }

    fn wanted(shared: &Shared) -> bool {
        shared.config.token_signer.is_some()
    }

    fn new(host: &Host<Look>) -> Self {
        Self {
            client: host.client(),
            signer: host.config().token_signer.clone(),
            root_ca: host.config().root_ca.clone(),
            accounts: host.informer(),
            secrets: token_secrets(host.factory()),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Look>) {
        let queue = wiring.queue();
        self.accounts.handle(move |change| {
            let account = client::Cached::key(&**change.object());
            let uid = change.object().metadata.uid.clone().unwrap_or_default();
            queue.add(Look::Account { account, uid });
        });
        let queue = wiring.queue();
        self.secrets.handle(move |change| {
            let secret = change.object();
            let (account, account_uid) = names(secret);
            queue.add(Look::Secret {
                secret: client::Cached::key(&**secret),
                uid: secret.metadata.uid.clone().unwrap_or_default(),
                account: account.to_owned(),
                account_uid: account_uid.to_owned(),
            });
        });
    }

    async fn sync(&self, look: Look) -> Result<Next, Status> {
        match look {
            Look::Account { account, uid } => self.sync_account(&account, &uid).await?,
            Look::Secret { secret, uid, account, account_uid } => {
                let known = self.secrets.get_key(&secret).filter(|s| s.metadata.uid.as_deref() == Some(&uid));
                match known {
                    Some(known) => self.sync_secret(&known).await?,
                    None => self.forget(&secret, &account, &account_uid).await?,
                }
            }
        }
        Ok(Next::Done)
    }
}

impl AccountTokens {
    /// Returns an account as it is cached, if it is the one of this uid; any, if that is "".
    fn cached(&self, namespace: &str, name: &str, uid: &str) -> Option<Arc<ServiceAccount>> {
        let account = self.accounts.get(namespace, name)?;
        (uid.is_empty() || account.metadata.uid.as_deref() == Some(uid)).then_some(account)
    }

    /// Removes the tokens of an account that is gone.
    async fn sync_account(&self, account: &Key, uid: &str) -> Result<(), Status> {
        if self.cached(&account.namespace, &account.name, uid).is_some() {
            return Ok(());
        }
        // A Secret from which somebody took the uid may be of the account that has the name now.
        //
        // DIFFERENCE: upstream removes it in any case.
        let anew = self.cached(&account.namespace, &account.name, "").is_some();
        let of_account = |s: &Arc<Secret>| {
            let (name, its_uid) = names(s);
            name == &*account.name && (its_uid == uid || its_uid.is_empty() && !anew)
        };
        let secrets = self.secrets.list_namespace(&account.namespace);
        for secret in secrets.iter().filter(|s| of_account(s)) {
            self.delete(secret).await?;
        }
        Ok(())
    }

    /// Fills a Secret, or removes it if its account is gone.
    async fn sync_secret(&self, secret: &Arc<Secret>) -> Result<(), Status> {
        let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
        let (name, uid) = names(secret);
        let account = match self.cached(namespace, name, uid) {
            Some(account) => account,
            // The cache may be behind: the Secret must not go with an account that has just come.
            None => match self.client.api::<ServiceAccount>(namespace).get(name).await {
                Ok(account) if uid.is_empty() || account.metadata.uid.as_deref() == Some(uid) => {
                    Arc::new(account)
                }
                Ok(_) => return self.delete(secret).await,
                Err(e) if e.is_not_found() => return self.delete(secret).await,
                Err(e) => return Err(e),
            },
        };
        if Content::missing(secret, &self.root_ca).is_empty() {
            return Ok(());
        }
        let api = self.client.api::<Secret>(namespace);
        let live = match api.get(secret.metadata.name.as_deref().unwrap_or_default()).await {
            Err(e) if e.is_not_found() => return Ok(()),
            other => other?,
        };
        if live.metadata.resource_version != secret.metadata.resource_version {
            // The newer state comes through the informer, and is looked at then.
            return Ok(());
        }
        let missing = Content::missing(&live, &self.root_ca);
        let token = if missing.token { Some(self.sign(&account, &live)?) } else { None };
        match api.update(&plan::filled(live, &account, &missing, &self.root_ca, token)).await {
            Err(e) if e.is_not_found() => Ok(()),
            // DIFFERENCE: after a conflict upstream waits for an event, which a conflict about something else never brings.
            other => other.map(drop),
        }
    }

    fn sign(&self, account: &ServiceAccount, secret: &Secret) -> Result<String, Status> {
        let text = |t: &Option<String>| t.clone().unwrap_or_default();
        let (namespace, name) = (text(&secret.metadata.namespace), text(&secret.metadata.name));
        let (account, uid) = (text(&account.metadata.name), text(&account.metadata.uid));
        let subject = TokenSubject { namespace: &namespace, account: &account, uid: &uid, secret: &name };
        self.signer.as_ref().ok_or_else(|| retry("no key signs tokens"))?.sign(subject).map_err(retry)
    }

    async fn delete(&self, secret: &Secret) -> Result<(), Status> {
        let meta = &secret.metadata;
        let uid = Preconditions { uid: meta.uid.clone(), ..Preconditions::default() };
        let options = DeleteOptions { preconditions: Some(uid), ..DeleteOptions::default() };
        let api = self.client.api::<Secret>(meta.namespace.as_deref().unwrap_or_default());
        match api.delete(meta.name.as_deref().unwrap_or_default(), Some(&options)).await {
            Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e),
            _ => Ok(()),
        }
    }

    /// Removes the mention of a Secret that is gone from its account.
    async fn forget(&self, secret: &Key, account: &str, uid: &str) -> Result<(), Status> {
        const TRIES: usize = 5;
        if self.cached(&secret.namespace, account, uid).is_none() {
            return Ok(());
        }
        let api = self.client.api::<ServiceAccount>(&secret.namespace);
        let mut last = Ok(());
        for _ in 0..TRIES {
            let live = match api.get(account).await {
                Err(e) if e.is_not_found() => return Ok(()),
                other => other?,
            };
            let Some(without) = plan::without(live, uid, &secret.name) else { return Ok(()) };
            match api.update(&without).await {
                Err(e) if e.is_not_found() => return Ok(()),
                Err(e) if e.is_conflict() => last = Err(e),
                other => return other.map(drop),
            }
        }
        last
    }
}
