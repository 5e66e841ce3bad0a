//! Health checks of a component, by name.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Slis;

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks of a component, in the order in which they were added. Clones are the same checks.
#[derive(Clone, Default)]
pub struct Health(Arc<Mutex<Vec<(String, Check)>>>, Slis);

/// The answers of all checks: name, and the reason of a failure.
pub type Answers = Vec<(String, Result<(), String>)>;

impl Health {
    /// Adds a check, in the place of one of the same name. It must be quick, and able to fail.
    pub fn add(&self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        let mut all = self.0.lock();
        let check: Check = Arc::new(check);
        match all.iter_mut().find(|(known, _)| known == name) {
            Some(known) => known.1 = check,
            None => all.push((name.to_owned(), check)),
        }
    }
    /// The outcomes of the checks that were asked for.
    pub fn slis(&self) -> &Slis {
        &self.1
    }
    /// Asks every check.
    pub fn answers(&self) -> Answers {
        let all = self.0.lock().clone();
        all.into_iter().map(|(name, check)| (name, check())).collect()
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.lock().iter().map(|c| &c.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_name_counts() {
        let health = Health::default();
        health.add("a", || Err("first".to_owned()));
        health.add("b", || Ok(()));
        health.add("a", || Err("second".to_owned()));
        assert_eq!(health.answers(), [("a".to_owned(), Err("second".to_owned())), ("b".to_owned(), Ok(()))]);
    }
}
