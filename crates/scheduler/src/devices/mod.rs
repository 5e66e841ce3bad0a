//! The choice of devices for claims (upstream's `dynamic-resource-allocation/structured`).
//!
//! [`Allocator::allocate`] is pure: claims, the devices that drivers publish ([`stock`]), classes, and what is allocated
//! already ([`allocated`]) go in, an allocation for each claim comes out. It searches all combinations in a fixed order,
//! and the first that does is taken; the search is bounded in work and time ([`Limits`]).
//!
//! It is part of the scheduler, since nobody else allocates; rules on claims that controllers and kubelets need as well
//! are in `objects::claims`.

pub mod allocated;
mod allocator;
mod bits;
mod capacity;
#[cfg(test)]
mod cases;
mod choose;
mod constraint;
mod counters;
mod known;
mod memo;
#[cfg(test)]
mod plain;
mod reach;
mod request;
mod result;
mod search;
pub mod selector;
pub mod snapshot;
pub mod stock;
mod terms;
mod usage;

use std::sync::{Arc, MutexGuard};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use objects::node_affinity::Seen;

pub use allocator::Allocator;
use known::Known;
use memo::Far;
pub use memo::Outcome;
use reach::Reach;
use search::Search;
pub use terms::{AllocationError, DeviceId, Features, Limits, WORK};

/// Tells what claims ask for, so that others that ask for the same have the same text.
pub fn sort_of(claims: &[&ResourceClaim]) -> Arc<str> {
    let asked = |claim: &&ResourceClaim| {
        let devices = claim.spec.devices.as_ref();
        devices.map(|d| serde_json::to_string(&(&d.requests, &d.constraints)).unwrap_or_default())
    };
    let all: Vec<String> = claims.iter().map(|claim| asked(claim).unwrap_or_default()).collect();
    all.join("\0").into()
}

impl Allocator {
    /// An allocation for each claim, or `None` if there is none on this node, whose place among all nodes is likely this.
    ///
    /// # Errors
    /// In upstream's words, if the search cannot be done, or took too long.
    pub fn allocate(
        &self,
        (node, place): (&Arc<Node>, usize),
        claims: &[&ResourceClaim],
        limits: Limits<'_>,
    ) -> Result<Option<Vec<AllocationResult>>, AllocationError> {
        let mut known = self.known();
        let reach = known.reaches.of((node, place), &self.snapshot.stock);
        let seen = Seen::of(node);
        let (found, _) =
            self.search(seen, &reach, &mut known, (claims, limits), |s| result::of(s, seen.name))?;
        Ok(found)
    }

    /// Whether there is an allocation for all claims on this node, and which one, if any has alternatives. `sort` is what
    /// the claims ask for ([`sort_of`]); it is not looked for anew where it is known.
    ///
    /// # Errors
    /// In upstream's words, if the search cannot be done, or took too long.
    pub fn judge(
        &self,
        (node, place): (&Arc<Node>, usize),
        (claims, sort, has_alternatives): (&[&ResourceClaim], &Arc<str>, bool),
        limits: Limits<'_>,
    ) -> Result<Outcome, AllocationError> {
        let mut known = self.known();
        let reach = known.reaches.of((node, place), &self.snapshot.stock);
        let memo = known.memos.of(sort, &self.classes, &self.snapshot.usage);
        if let Some(outcome) = memo.get(&reach, &self.snapshot.stock) {
            return Ok(outcome);
        }
        let seen = Seen::of(node);
        let results = |search: &Search<'_>| {
            if has_alternatives {
                return result::of(search, seen.name).map(|all| Some(Arc::new(all)));
            }
            result::check(search).map(|()| None)
        };
        let (outcome, far) = match self.search(seen, &reach, &mut known, (claims, limits), results) {
            Ok((found, far)) => (found.map_or(Outcome::Nothing, Outcome::Found), far),
            Err(AllocationError::Node(why)) => (Outcome::Unusable(why), Far::Special),
            Err(other) => return Err(other),
        };
        known.memos.of(sort, &self.classes, &self.snapshot.usage).found(&reach, far, &outcome);
        Ok(outcome)
    }

    /// This is known of the devices, as they are now.
    fn known(&self) -> MutexGuard<'_, Known> {
        let mut known = self.snapshot.known();
        known.catch_up(&self.snapshot.stock, &self.snapshot.usage, self.features);
        known
    }

    /// Searches; tells the result, and how far the search came.
    fn search<T>(
        &self,
        node: Seen<'_>,
        reach: &Reach,
        known: &mut Known,
        (claims, limits): (&[&ResourceClaim], Limits<'_>),
        result: impl FnOnce(&Search<'_>) -> Result<T, String>,
    ) -> Result<(Option<T>, Far), AllocationError> {
        let mut search = Search::new(self, node, reach, known, (claims, limits))?;
        if !search.run()? {
            return Ok((None, search.far()));
        }
        let found = result(&search).map_err(AllocationError::Failed)?;
        Ok((Some(found), search.far()))
    }
}
