//! News of devices, and errands that turns leave behind.

use tokio::time::Instant;

use super::preemptor::Evicted;
use super::{Input, Scheduler};
use crate::events::Events;
use crate::framework::points::Errand;
use crate::inventory::News;

impl Scheduler {
    /// Takes in a change of devices or claims, and wakes the Pods that it may help.
    pub(super) fn take_devices(&mut self, news: &News, now: Instant) -> Events {
        let devices = self.cache.devices().clone();
        let what = devices.take(news);
        if let News::Class(_) = news {
            self.cache.classes_changed();
        }
        if let News::Claim(change) = news {
            let meta = &change.object().metadata;
            let [namespace, name] = [&meta.namespace, &meta.name].map(|t| t.as_deref().unwrap_or_default());
            self.queue.look_again_for(what.kinds, namespace, name);
        }
        self.happened(&what, None, now)
    }

    /// Starts a task that ends with the scheduler, whatever it waits for.
    pub(super) fn aside(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.shutdown.clone();
        self.shutdown.spawn(async move {
            let _ = stop.run(task).await;
        });
    }

    /// Does an errand. If it fails, the Pod for which it is done is tried again.
    pub(super) fn send(&self, errand: Errand, uid: Option<&str>) {
        let (client, tx, uid) = (self.client.clone(), self.tx.clone(), uid.map(str::to_owned));
        self.aside(async move {
            if let Err(e) = errand.run(client).await
                && !e.is_not_found()
            {
                tracing::warn!(error = %e, "a claim could not be written");
                uid.map(|uid| tx.send(Input::Evicted(Evicted { uid, group: None, victims: Vec::new() })));
            }
        });
    }
}
