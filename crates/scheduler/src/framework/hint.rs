//! Hints of plugins: whether something that happened makes a refused Pod worth another try.

use crate::cache::Cache;
use crate::events::Happening;
use crate::pod::PodInfo;

/// Says whether something that happened may lift a plugin's refusal of a Pod (upstream's `QueueingHintFn`). It is asked
/// about events of the kinds for which the plugin waits.
pub trait Hint: Send + Sync {
    /// Whether the Pod is worth another try. All Pods that have the same [signature](crate::pod::PodView::signature) and priority get
    /// the answer of one of them, unless the event is the Pod's own.
    ///
    /// # Errors
    /// The reason for which this cannot be said; then the Pod is tried again.
    fn lifts(&self, pod: &PodInfo, what: &Happening, cluster: &Cache) -> Result<bool, String>;
}

impl<F> Hint for F
where
    F: Fn(&PodInfo, &Happening, &Cache) -> Result<bool, String> + Send + Sync,
{
    fn lifts(&self, pod: &PodInfo, what: &Happening, cluster: &Cache) -> Result<bool, String> {
        self(pod, what, cluster)
    }
}
