//! Objects of definitions that many bring into the same version at once.

use std::sync::Arc;

use api::{Object, Status};
use futures::FutureExt;
use futures::future::Shared;

use super::Catalog;
use super::converted::{Key, UnderWay};
use super::resource::ResourceEntry;

impl Catalog {
    /// The objects as they are in the version of a resource, for one of many who ask for the same: what somebody else is
    /// having converted is waited for.
    pub(crate) async fn shared_objects(
        self: &Arc<Self>,
        resource: &Arc<ResourceEntry>,
        objects: &[Arc<Object>],
    ) -> Result<Vec<Arc<Object>>, Status> {
        let mut out = objects.to_vec();
        let mut waits: Vec<(usize, Shared<UnderWay>, usize)> = Vec::new();
        let stale: Vec<usize> = (0..objects.len()).filter(|i| !resource.is_current(&objects[*i])).collect();
        if stale.is_empty() {
            return Ok(out);
        }
        {
            let mut state = self.converted.0.lock();
            let mut missing = Vec::new();
            for at in stale {
                let key = Key::of(resource, &objects[at]);
                if let Some(made) = state.made.get(&key) {
                    out[at] = Arc::clone(made);
                } else if let Some((flight, place)) = state.under_way.get(&key)
                    && let Some(flight) = flight.upgrade()
                {
                    waits.push((at, flight, *place));
                } else {
                    missing.push((at, key));
                }
            }
            if !missing.is_empty() {
                let wanted: Vec<Arc<Object>> =
                    missing.iter().map(|(at, _)| Arc::clone(&objects[*at])).collect();
                let flight = self.flight(Arc::clone(resource), wanted);
                for (place, (at, key)) in missing.into_iter().enumerate() {
                    if let Some(weak) = flight.downgrade() {
                        state.under_way.insert(key, (weak, place));
                    }
                    waits.push((at, flight.clone(), place));
                }
            }
        }
        for (at, flight, place) in waits {
            let made = flight.await.map_err(|status| Status::clone(&status))?;
            out[at] = made.get(place).cloned().ok_or_else(Status::no_such_resource)?;
        }
        Ok(out)
    }

    /// A conversion that many wait for.
    fn flight(self: &Arc<Self>, resource: Arc<ResourceEntry>, wanted: Vec<Arc<Object>>) -> Shared<UnderWay> {
        let catalog = Arc::clone(self);
        let convert = async move {
            let made = catalog.current_objects(&resource, &wanted, &resource.kind.kind, None).await;
            let mut state = catalog.converted.0.lock();
            for object in &wanted {
                state.under_way.remove(&Key::of(&resource, object));
            }
            made.map(Arc::from).map_err(Arc::new)
        };
        convert.boxed().shared()
    }
}
