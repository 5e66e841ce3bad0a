//! Bearer tokens: the API server reviews them, one question a token at a time, and its answers, good and bad, are
//! remembered for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::auth::{Cache, User};

/// The time that a review may take; upstream's.
const TIME: Duration = Duration::from_secs(10);
/// The number of reviews that run at once, and the number of those that wait.
const AT_ONCE: usize = 8;
const WAITING: usize = 256;

/// A token's hash, in place of the token: it is short, and of no use to somebody who reads it.
type Key = [u8; 32];
/// The user of a token; `None` if the token is nobody's.
type Verdict = Option<Arc<User>>;
/// The answer for which all callers with the same token wait. The error is that there was no answer.
type Answer = watch::Receiver<Option<Result<Verdict, ()>>>;

/// The tokens that callers showed.
pub(crate) struct Tokens(Arc<Inner>);

struct Inner {
    client: Client,
    known: Cache<Key, Verdict>,
    asked: Mutex<HashMap<Key, Answer>>,
    turns: Semaphore,
    /// How long an answer is remembered.
    ttl: Duration,
}

impl Tokens {
    pub(crate) fn new(client: Client, ttl: Duration) -> Self {
        Self(Arc::new(Inner {
            ttl,
            client,
            known: Cache::new(),
            asked: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
        }))
    }

    /// The user of a token; `None` if it is nobody's, or if there was no answer.
    pub(crate) async fn user(&self, token: &str) -> Verdict {
        let key: Key = Sha256::digest(token).into();
        if let Some(verdict) = self.0.known.get(&key) {
            return verdict;
        }
        let mut answer = self.ask(key, token)?;
        let answer = answer.wait_for(Option::is_some).await.ok()?.clone();
        answer.and_then(Result::ok).flatten()
    }

    /// Joins the callers that asked already, or asks. The question goes on if the first caller goes away.
    fn ask(&self, key: Key, token: &str) -> Option<Answer> {
        let mut asked = self.0.asked.lock();
        if let Some(answer) = asked.get(&key) {
            return Some(answer.clone());
        }
        if asked.len() >= WAITING {
            tracing::warn!("too many tokens wait for their review");
            return None;
        }
        let (tell, answer) = watch::channel(None);
        asked.insert(key, answer.clone());
        drop(asked);
        let (inner, token) = (self.0.clone(), token.to_owned());
        tokio::spawn(async move {
            let verdict = timeout(TIME, inner.review(token)).await.unwrap_or(Err(()));
            if let Ok(verdict) = &verdict {
                inner.known.put(key, verdict.clone(), inner.ttl);
            }
            inner.asked.lock().remove(&key);
            tell.send_replace(Some(verdict));
        });
        Some(answer)
    }
}

impl Inner {
    async fn review(&self, token: String) -> Result<Verdict, ()> {
        let _turn = self.turns.acquire().await.map_err(drop)?;
        let review = TokenReview {
            spec: TokenReviewSpec { token, ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let answer = self.client.api::<TokenReview>("").create(&review).await.map_err(|error| {
            tracing::warn!(%error, "cannot review a token");
        })?;
        let user = answer.status.filter(|s| s.authenticated == Some(true)).and_then(|s| s.user);
        Ok(user.map(|user| {
            Arc::new(User {
                name: user.username.unwrap_or_default(),
                uid: user.uid.unwrap_or_default(),
                groups: user.groups.unwrap_or_default(),
                extra: user.extra.unwrap_or_default(),
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use api::Status;
    use futures::FutureExt;
    use serde_json::{Value, json};

    use super::*;

    const TTL: Duration = Duration::from_secs(7);
    use crate::testing::Reviewer;

    /// Knows the token `good`; is away for `away`; never answers for `slow`. Reviews are counted.
    fn reviewer(reviews: &Arc<AtomicUsize>) -> Client {
        let reviews = Arc::clone(reviews);
        let answer = move |review: Value| {
            reviews.fetch_add(1, Ordering::SeqCst);
            async move {
                let token = review["spec"]["token"].as_str().unwrap();
                tokio::time::sleep(Duration::from_secs(if token == "slow" { 1000 } else { 1 })).await;
                if token == "away" {
                    return Err(Status::failure(503, "ServiceUnavailable", "away"));
                }
                let good = token == "good";
                let user = json!({"username": if good { "me" } else { "" }});
                let status = json!({"authenticated": good, "user": user});
                Ok(json!({"metadata": {}, "spec": {}, "status": status}))
            }
            .boxed()
        };
        Client::new(Arc::new(Reviewer(answer)), "kubelet")
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_reviewed_once() {
        let reviewed = Arc::new(AtomicUsize::default());
        let tokens = Tokens::new(reviewer(&reviewed), TTL);
        let check = async |token: &str, user: Option<&str>, reviews: usize| {
            let before = reviewed.load(Ordering::SeqCst);
            let all = futures::future::join_all((0..50).map(|_| tokens.user(token))).await;
            for got in all {
                assert_eq!(got.map(|u| u.name.clone()).as_deref(), user, "{token}");
            }
            assert_eq!(reviewed.load(Ordering::SeqCst) - before, reviews, "{token}");
        };
        check("good", Some("me"), 1).await;
        check("good", Some("me"), 0).await;
        check("bad", None, 1).await;
        check("bad", None, 0).await;
        check("away", None, 1).await;
        check("away", None, 1).await;
        check("slow", None, 1).await;
        tokio::time::advance(TTL).await;
        check("good", Some("me"), 1).await;
        check("bad", None, 1).await;
        // The first caller may go away: the answer comes all the same.
        assert!(timeout(Duration::from_millis(1), tokens.user("other")).await.is_err());
        check("other", None, 0).await;
        // These tokens are too many to be all asked about.
        let before = reviewed.load(Ordering::SeqCst);
        let many: Vec<String> = (0..2000).map(|n| format!("t{n}")).collect();
        futures::future::join_all(many.iter().map(|t| tokens.user(t))).await;
        assert!(reviewed.load(Ordering::SeqCst) - before <= WAITING);
        assert!(tokens.0.asked.lock().is_empty());
    }
}
