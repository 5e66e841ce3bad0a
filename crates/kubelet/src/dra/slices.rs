//! Removal of the ResourceSlices of drivers that are gone: nobody could prepare what they offer.

use std::sync::Arc;
use std::time::Duration;

use client::{Backoff, Client, ListParams};
use k8s_openapi::api::resource::v1::ResourceSlice;

/// The least and the most time between attempts; upstream's.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(5)];

/// Removes slices of this node.
#[derive(Clone)]
pub(super) struct Slices {
    pub(super) client: Client,
    pub(super) node_name: String,
    /// Whether the node is registered: before, it may do nothing.
    pub(super) registered: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Slices {
    /// Removes those of a driver, or of all drivers; tries until it succeeds.
    pub(super) async fn wipe(&self, driver: Option<&str>) {
        let field_selector = selector(&self.node_name, driver);
        let params = ListParams { field_selector, ..ListParams::default() };
        let all = self.client.api::<ResourceSlice>("");
        let mut backoff = Backoff::new(AGAIN[0], AGAIN[1]);
        loop {
            if (self.registered)() {
                match all.delete_collection(None, &params).await {
                    Ok(()) => return,
                    Err(error) if error.is_not_found() => return,
                    Err(error) => {
                        tracing::debug!(%error, ?driver, "ResourceSlices are not removed, will retry");
                    }
                }
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }
}

/// The selector of slices; a driver's name is one that the API takes, or none is found.
fn selector(node: &str, driver: Option<&str>) -> String {
    let of_driver = driver.map(|driver| format!("spec.driver={},", escaped(driver))).unwrap_or_default();
    format!("{of_driver}spec.nodeName={}", escaped(node))
}

/// A value in a field selector: what would end it is escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors() {
        assert_eq!(selector("n", None), "spec.nodeName=n");
        assert_eq!(selector("n", Some("d.example.com")), "spec.driver=d.example.com,spec.nodeName=n");
        // A name cannot widen what is removed.
        assert_eq!(
            selector("n", Some("x,spec.driver=y\\")),
            "spec.driver=x\\,spec.driver\\=y\\\\,spec.nodeName=n"
        );
    }
}
