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
mod capacity;
#[cfg(test)]
mod cases;
mod choose;
mod constraint;
mod counters;
mod pools;
mod request;
mod result;
mod search;
pub mod selector;
pub mod stock;
mod terms;

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use objects::node_affinity::Seen;

pub use allocator::Allocator;
use search::Search;
pub use terms::{AllocationError, DeviceId, Features, Limits, WORK};

impl Allocator {
    /// An allocation for each claim, or `None` if there is none on this node.
    ///
    /// # Errors
    /// In upstream's words, if the search cannot be done, or took too long.
    pub fn allocate(
        &self,
        node: Seen<'_>,
        claims: &[&ResourceClaim],
        limits: Limits<'_>,
    ) -> Result<Option<Vec<AllocationResult>>, AllocationError> {
        self.search(node, claims, limits, |search| result::of(search, node.name))
    }

    /// Whether there is an allocation for all claims on this node.
    ///
    /// # Errors
    /// Those of [`Allocator::allocate`].
    pub fn can_allocate(
        &self,
        node: Seen<'_>,
        claims: &[&ResourceClaim],
        limits: Limits<'_>,
    ) -> Result<bool, AllocationError> {
        self.search(node, claims, limits, result::check).map(|found| found.is_some())
    }

    fn search<T>(
        &self,
        node: Seen<'_>,
        claims: &[&ResourceClaim],
        limits: Limits<'_>,
        result: impl FnOnce(&Search<'_>) -> Result<T, String>,
    ) -> Result<Option<T>, AllocationError> {
        let pools = pools::gather(&self.stock, node, self.features);
        let mut search = Search::new(self, node, claims, &pools, limits)?;
        if !search.run()? {
            return Ok(None);
        }
        result(&search).map(Some).map_err(AllocationError::Failed)
    }
}
