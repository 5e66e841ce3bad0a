//! URLs that are good once and for a minute. A URL lets its holder do what it stands for, so it cannot be guessed.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::backend::Task;

/// How long a URL is good; upstream's.
const GOOD: Duration = Duration::from_mins(1);
/// The number of URLs that are good at a time; upstream's.
const MOST: usize = 1000;

/// The URLs that nobody has used yet.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<HashMap<String, (Task, Instant)>>);

/// Too many URLs wait to be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("maximum number of in-flight requests exceeded")]
pub(crate) struct TooMany;

impl Tokens {
    /// Makes the secret of a task's URL.
    pub(crate) fn insert(&self, task: Task) -> Result<String, TooMany> {
        let mut all = self.0.lock();
        let now = Instant::now();
        all.retain(|_, (_, until)| *until > now);
        if all.len() >= MOST {
            return Err(TooMany);
        }
        let token = random(16);
        all.insert(token.clone(), (task, now + GOOD));
        Ok(token)
    }

    /// Takes the task of a secret.
    pub(crate) fn take(&self, token: &str) -> Option<Task> {
        let (task, until) = self.0.lock().remove(token)?;
        (until > Instant::now()).then_some(task)
    }
}

/// Random bytes as text that a URL may contain.
fn random(bytes: usize) -> String {
    let mut all = vec![0; bytes];
    crate::ids::fill(&mut all);
    URL_SAFE_NO_PAD.encode(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn once_and_for_a_minute() {
        let tokens = Tokens::default();
        let task = Task::PortForward { sandbox: "a".into(), ports: Vec::new() };
        let (first, second) = (tokens.insert(task.clone()).unwrap(), tokens.insert(task.clone()).unwrap());
        assert_ne!(first, second);
        assert_eq!(tokens.take(&first), Some(task.clone()));
        assert_eq!(tokens.take(&first), None);
        tokio::time::advance(GOOD).await;
        assert_eq!(tokens.take(&second), None);
        for _ in 0..MOST {
            tokens.insert(task.clone()).unwrap();
        }
        assert_eq!(tokens.insert(task.clone()), Err(TooMany));
        tokio::time::advance(GOOD).await;
        tokens.insert(task).unwrap();
    }
}
