//! DynamicResources: the devices that Pods claim.
//!
//! DIFFERENCE: devices are not allocated yet, so a Pod that claims some waits, and its `PodScheduled` condition says so.

use std::sync::Arc;

use crate::events::Events;
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{Cycle, Failed, PostFilter, PostFiltered, PreFilter, Prefiltered};
use crate::framework::verdict::Stop;
use crate::pod::PodInfo;

/// The plugin's name.
pub const NAME: &str = "DynamicResources";

struct Devices;

impl PreFilter for Devices {
    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Result<Prefiltered, Stop> {
        let claims = cycle.pod.spec().and_then(|s| s.resource_claims.as_deref()).unwrap_or_default();
        match claims {
            [] => Ok(Prefiltered::Skip),
            [first, ..] => {
                let why = format!("resource claim {:?}: allocating devices is not supported yet", first.name);
                Err(Stop::rejected(NAME, why))
            }
        }
    }
    /// Pods with claims have no signature.
    fn keeps(&self, _pod: &PodInfo) -> bool {
        true
    }
}

impl PostFilter for Devices {
    fn post_filter(&self, _cycle: &mut Cycle<'_>, _failed: &Failed<'_>) -> PostFiltered {
        PostFiltered::Other("no new claims to deallocate".to_owned())
    }
}

pub(super) fn dynamic_resources() -> Plugin {
    let points = Points {
        pre_filter: Some(Arc::new(Devices)),
        post_filter: Some(Arc::new(Devices)),
        ..Points::default()
    };
    Plugin::new(NAME, points).lifted_by(Events::NONE)
}
