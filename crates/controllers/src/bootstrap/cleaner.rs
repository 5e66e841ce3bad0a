//! Token cleaner: a bootstrap token is removed when its time is over.

use std::sync::Arc;

use api::Status;
use client::bootstrap::{Entry, Life};
use client::{Client, Informer, Key, resource_of};
use component::Clock;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};

use crate::host::{Controller, Host, Next, Wiring};

/// The cleaner.
pub(crate) struct TokenCleaner {
    client: Client,
    clock: Clock,
    tokens: Informer<Secret>,
}

impl Controller for TokenCleaner {
    const NAME: &'static str = "token-cleaner-controller";
    const ALIASES: &'static [&'static str] = &["tokencleaner"];
    const ACCOUNT: &'static str = "token-cleaner";
    const QUEUE: &'static str = "token_cleaner";
    type Key = Key;

    fn new(host: &Host<Key>) -> Self {
        let tokens = host.select(resource_of::<Secret>(), super::tokens());
        Self { client: host.client(), clock: host.clock(), tokens }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.tokens, false);
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(secret) = self.tokens.get_key(&key) else { return Ok(Next::Done) };
        match Entry::from(&*secret).life(self.clock.now()) {
            Life::Forever => Ok(Next::Done),
            Life::Left(left) => Ok(Next::After(left)),
            Life::Over => {
                // DIFFERENCE: upstream removes one, too, whose time somebody has made longer since it was seen.
                let seen = Preconditions {
                    uid: secret.metadata.uid.clone(),
                    resource_version: secret.metadata.resource_version.clone(),
                };
                let options = DeleteOptions { preconditions: Some(seen), ..DeleteOptions::default() };
                match self.client.api::<Secret>(&key.namespace).delete(&key.name, Some(&options)).await {
                    // It is gone, or has changed: it is looked at again when that is seen.
                    Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e),
                    _ => Ok(Next::Done),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use client::bootstrap::{Spec, Token};
    use jiff::Timestamp;

    use super::*;

    /// Upstream's cases of `TestCleanerNoExpiration`, `TestCleanerExpired`, `TestCleanerNotExpired` and
    /// `TestCleanerExpiredAt`. The simulation shows that a Secret is looked at again in time.
    #[test]
    fn times() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let token: Token = "abcdef.0123456789abcdef".parse().unwrap();
        let check = |expires: Option<&str>, want: Life| {
            let spec = Spec {
                token: token.clone(),
                description: String::new(),
                expires: expires.map(|at| at.parse().unwrap()),
                usages: Vec::new(),
                groups: Vec::new(),
            };
            assert_eq!(Entry::from(&spec.secret()).life(now), want, "{expires:?}");
        };
        check(None, Life::Forever);
        check(Some("2026-01-01T11:00:00Z"), Life::Over);
        check(Some("2026-01-01T13:00:00Z"), Life::Left(Duration::from_hours(1)));
        check(Some("2026-01-01T12:00:02Z"), Life::Left(Duration::from_secs(2)));
        check(Some("2026-01-01T12:00:00Z"), Life::Over);
    }
}
