//! Conditions in the status of objects: one of each type, with the time since when it has its status.

use k8s_openapi::api::apps::v1::DeploymentCondition;
use k8s_openapi::api::core::v1::NamespaceCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as MetaCondition, Time};

/// A condition of a kind of objects.
pub(crate) trait Condition {
    /// The condition's type.
    fn kind(&self) -> &str;
    /// The condition's status: `True`, `False` or `Unknown`.
    fn status(&self) -> &str;
    /// Takes the time of the last transition over from an old condition.
    fn take_since(&mut self, old: &Self);
}

/// Implements [`Condition`].
macro_rules! conditions {
    ($($type:ty),*) => {$(
        impl Condition for $type {
            fn kind(&self) -> &str {
                &self.type_
            }
            fn status(&self) -> &str {
                &self.status
            }
            fn take_since(&mut self, old: &Self) {
                if is_known(old.last_transition_time.clone()) {
                    self.last_transition_time.clone_from(&old.last_transition_time);
                }
            }
        }
    )*};
}

conditions!(DeploymentCondition, NamespaceCondition, MetaCondition);

fn is_known(time: impl Into<Option<Time>>) -> bool {
    time.into().is_some()
}

/// Finds the condition of a type.
pub(crate) fn find<'c, C: Condition>(all: impl IntoIterator<Item = &'c C>, kind: &str) -> Option<&'c C> {
    all.into_iter().find(|c| c.kind() == kind)
}

/// Returns a condition after an old one: the time of the transition changes with the status alone.
pub(crate) fn after<C: Condition>(old: &C, mut new: C) -> C {
    if old.status() == new.status() {
        new.take_since(old);
    }
    new
}

/// Puts a condition in the place of the one of its type, as upstream's `SetStatusCondition` does.
pub(crate) fn set<C: Condition>(all: &mut Vec<C>, new: C) {
    match all.iter_mut().find(|c| c.kind() == new.kind()) {
        Some(old) => *old = after(old, new),
        None => all.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(kind: &str, status: &str, second: i64) -> NamespaceCondition {
        let since = jiff::Timestamp::from_second(second).unwrap();
        NamespaceCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            last_transition_time: Some(Time(since)),
            ..NamespaceCondition::default()
        }
    }

    #[test]
    fn the_time_changes_with_the_status() {
        let mut all = vec![condition("A", "True", 1), condition("B", "True", 1)];
        for new in [condition("A", "True", 2), condition("B", "False", 2), condition("C", "True", 2)] {
            set(&mut all, new);
        }
        let seconds = |c: &NamespaceCondition| c.last_transition_time.as_ref().unwrap().0.as_second();
        let all: Vec<_> = all.iter().map(|c| (c.type_.as_str(), c.status.as_str(), seconds(c))).collect();
        assert_eq!(all, [("A", "True", 1), ("B", "False", 2), ("C", "True", 2)]);
    }
}
