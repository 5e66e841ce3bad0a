//! Clients by user name: what a component is started with, in whatever process it runs.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::client::Client;
use crate::config::{Config, ConfigError, Token, TokenSource};
use crate::factory::Factory;
use crate::remote::Remote;
use crate::requests::Requests;

/// How long a service account's token is asked for; upstream's.
const TOKEN_LIFE: Duration = Duration::from_hours(1);

type ByName = dyn Fn(&str) -> Client + Send + Sync;

/// Gives clients and informers by the names of users. Clones are the same.
#[derive(Clone)]
pub struct Clients {
    by_name: Arc<ByName>,
    factories: Arc<parking_lot::Mutex<HashMap<String, Factory>>>,
    requests: Requests,
}

impl Clients {
    /// As a function gives them. Their requests are counted together.
    pub fn new(by_name: impl Fn(&str) -> Client + Send + Sync + 'static) -> Self {
        let requests = Requests::default();
        let counted = requests.clone();
        let by_name = move |user: &str| by_name(user).counted_among(counted.clone());
        Self { by_name: Arc::new(by_name), factories: Arc::default(), requests }
    }

    /// Over HTTPS, with the one identity that a configuration has, whoever is named; but with `accounts` a service
    /// account's client has a token of its own, which the configuration's identity asks for. That one's requests leave
    /// `agent` in `managedFields`.
    ///
    /// # Errors
    /// Where the configuration cannot be used.
    pub fn remote(config: Config, agent: &'static str, accounts: bool) -> Result<Self, ConfigError> {
        let bare = config.without_credentials();
        let main = Client::new(Arc::new(Remote::new(config)?), agent);
        Ok(Self::new(move |user| {
            let account = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
            let Some((namespace, name)) = account.filter(|_| accounts) else { return main.clone() };
            let source = AccountToken::new(main.clone(), namespace, name);
            let mut own = bare.without_credentials().with_token(Token::Source(Arc::new(source)));
            own.user_agent = format!("{}/{name}", bare.user_agent);
            // One client could be made of this, so another can.
            Remote::new(own).map_or_else(|_| main.clone(), |remote| Client::new(Arc::new(remote), agent))
        }))
    }

    /// The client of a user.
    pub fn of(&self, user: &str) -> Client {
        (self.by_name)(user)
    }

    /// The requests of all these clients so far.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// The informers of a user: the same for all parts of the process that work as this user, and for nobody else. So
    /// nobody sees what only another's rights show.
    pub fn factory(&self, user: &str) -> Factory {
        let mut factories = self.factories.lock();
        factories.entry(user.to_owned()).or_insert_with(|| Factory::new(self.of(user))).clone()
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clients")
    }
}

/// A service account's token, renewed when half of its life is over.
struct AccountToken {
    client: Client,
    namespace: String,
    name: String,
    held: Mutex<Option<(String, Instant)>>,
}

impl AccountToken {
    fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), name: name.to_owned(), held: Mutex::default() }
    }

    async fn ask(&self) -> Result<String, Status> {
        let api = self.client.api::<ServiceAccount>(&self.namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: i64::try_from(TOKEN_LIFE.as_secs()).ok(),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let asked = match api.token(&self.name, &request).await {
            Err(e) if e.is_not_found() => {
                let account = ServiceAccount {
                    metadata: ObjectMeta {
                        name: Some(self.name.clone()),
                        namespace: Some(self.namespace.clone()),
                        ..ObjectMeta::default()
                    },
                    ..ServiceAccount::default()
                };
                match api.create(&account).await {
                    Err(e) if !e.is_already_exists() => return Err(e),
                    _ => {}
                }
                api.token(&self.name, &request).await
            }
            asked => asked,
        };
        let token = asked?.status.and_then(|s| s.token);
        token.ok_or_else(|| Status::internal("the API server gave no token"))
    }
}

impl TokenSource for AccountToken {
    fn token(&self) -> BoxFuture<'_, Result<String, Status>> {
        async {
            // Others that come meanwhile wait for the one request.
            let mut held = self.held.lock().await;
            if let Some((token, until)) = &*held
                && *until > Instant::now()
            {
                return Ok(token.clone());
            }
            let token = self.ask().await?;
            *held = Some((token.clone(), Instant::now() + TOKEN_LIFE / 2));
            Ok(token)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::stream::BoxStream;
    use serde_json::json;

    use super::*;
    use crate::transport::{Call, ListAnswer, Transport, WatchEvent};

    /// Has no account at first, and gives a new token each time.
    #[derive(Default)]
    struct Server(parking_lot::Mutex<Vec<String>>);

    impl Transport for Server {
        fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
            let mut calls = self.0.lock();
            calls.push(format!("{}/{}", call.name, call.subresource));
            let answer = match (calls.len(), call.subresource.as_str()) {
                (1, _) => Err(Status::not_found("", "serviceaccounts", &call.name)),
                (_, "token") => {
                    let token = format!("token-{}", calls.len());
                    let status = json!({"token": token, "expirationTimestamp": "2026-01-01T00:00:00Z"});
                    Ok(json!({"metadata": {}, "spec": {"audiences": []}, "status": status}))
                }
                _ => Ok(json!({"metadata": {"name": "a"}})),
            };
            async move { answer.map(|a| Bytes::from(a.to_string())) }.boxed()
        }
        fn list(&self, _: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
            async { Err(Status::bad_request("")) }.boxed()
        }
        fn raw(&self, _: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
            async { Err(Status::bad_request("")) }.boxed()
        }
        fn watch(
            &self,
            _: Call,
        ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
            async { Err(Status::bad_request("")) }.boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_kept_for_half_their_life() {
        let server = Arc::new(Server::default());
        let source = AccountToken::new(Client::new(server.clone(), "test"), "kube-system", "a");
        let both = tokio::join!(source.token(), source.token());
        assert_eq!(both, (Ok("token-3".to_owned()), Ok("token-3".to_owned())));
        assert_eq!(*server.0.lock(), ["a/token", "/", "a/token"]);
        tokio::time::advance((TOKEN_LIFE / 2).checked_sub(Duration::from_secs(1)).unwrap()).await;
        assert_eq!(source.token().await, Ok("token-3".to_owned()));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(source.token().await, Ok("token-4".to_owned()));
    }
}
