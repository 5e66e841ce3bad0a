//! Whether something that happened is a reason to try a waiting Pod again: its plugins are asked.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::pods::{panicked, scheduler_of};
use crate::cache::Cache;
use crate::events::Happening;
use crate::framework::profile::Profile;
use crate::queue::{Counts, Entry, Said};

/// The surroundings of the question.
pub(super) struct Worth<'a> {
    profiles: &'a BTreeMap<String, Profile>,
    cluster: &'a Cache,
    counts: &'a Counts,
}

impl<'a> Worth<'a> {
    pub(super) fn of(
        profiles: &'a BTreeMap<String, Profile>,
        cluster: &'a Cache,
        counts: &'a Counts,
    ) -> Self {
        Self { profiles, cluster, counts }
    }

    /// Asks the plugins that refused the Pod (upstream's `isPodWorthRequeuing`). A plugin that cannot say, or panics, must
    /// not keep it waiting.
    pub(super) fn says(&self, entry: &Entry, what: &Happening) -> bool {
        let pod = &entry.info;
        if what.up_to.is_some_and(|most| pod.priority() > most) {
            return false;
        }
        let Some(profile) = self.profiles.get(scheduler_of(pod)) else { return true };
        entry.refused_by.is_empty()
            || entry.refused_by.iter().any(|plugin| {
                let Some(waits) = profile.waits(plugin) else { return true };
                if !waits.lifted_by.meets(what.kinds) {
                    return false;
                }
                let Some(hint) = &waits.hint else { return true };
                let start = Instant::now();
                let answer = catch_unwind(AssertUnwindSafe(|| hint.lifts(pod, what, self.cluster)));
                let answer = answer.unwrap_or_else(|panic| Err(panicked(pod, &*panic)));
                let said = match &answer {
                    Ok(true) => Said::Queue,
                    Ok(false) => Said::QueueSkip,
                    Err(error) => {
                        let (name, namespace, event) =
                            (pod.name(), pod.namespace(), waits.lifted_by.label(what.kinds));
                        tracing::error!(
                            pod = name,
                            namespace,
                            plugin,
                            event,
                            error,
                            "a plugin cannot say whether an event helps"
                        );
                        Said::Error
                    }
                };
                self.counts.hinted(plugin, waits.lifted_by.label(what.kinds), said, start.elapsed());
                said != Said::QueueSkip
            })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use component::metrics::Page;
    use serde_json::json;

    use super::*;
    use crate::config::defaults::{self, SCHEDULER_NAME};
    use crate::config::document::{Document, Named};
    use crate::events::{About, Events};
    use crate::framework::plugin::{Plugin, Points};
    use crate::framework::profile::profiles;
    use crate::pod::PodInfo;
    use crate::queue::{Queue, Rules};

    /// A Pod of this priority that the plugin refused.
    fn refused(profile: &Profile, plugin: &'static str, priority: i32) -> Entry {
        let mut queue = Queue::new(Rules {
            sort: profile.queue_sort.clone(),
            gated: Box::new(|_| false),
            initial_backoff: Duration::ZERO,
            max_backoff: Duration::ZERO,
            max_wait: Duration::ZERO,
            cuts_backoff: false,
        });
        let pod = json!({"metadata": {"uid": "u"}, "spec": {"priority": priority, "containers": []}});
        let pod = PodInfo::new(serde_json::from_value(pod).unwrap());
        let now = tokio::time::Instant::now();
        queue.set(pod, &Happening::nothing(), now, &mut |_, _| false);
        let (mut entry, _) = queue.pop(now).unwrap();
        entry.refused_by = vec![plugin];
        entry
    }

    #[test]
    fn plugins_are_asked_and_faults_keep_nobody_waiting() {
        let mut plugins = crate::plugins::registry().unwrap();
        let mut config = Document::default();
        let hint = |pod: &PodInfo, _: &Happening, _: &Cache| match pod.priority() {
            0 => Ok(false),
            1 => Ok(true),
            2 => Err("no".to_owned()),
            _ => panic!("a fault"),
        };
        let made = |name: &'static str| Plugin::new(name, Points::default()).lifted_by(Events::NODE_ADDED);
        plugins.add("Hinting", move |_| Ok(made("Hinting").hinted(hint))).unwrap();
        plugins.add("Silent", move |_| Ok(made("Silent"))).unwrap();
        defaults::complete(&mut config);
        let enabled = &mut config.profiles[0].plugins.as_mut().unwrap().multi_point.enabled;
        enabled.extend(["Hinting", "Silent"].map(|name| Named { name: name.to_owned(), weight: 0 }));
        let profiles = profiles(&config, &plugins).unwrap();
        let (cluster, counts) = (Cache::default(), Counts::default());
        let worth = Worth::of(&profiles, &cluster, &counts);
        let says = |plugin, priority, kinds, up_to| {
            let what = Happening { up_to, ..Happening::new(kinds, About::Nothing) };
            worth.says(&refused(&profiles[SCHEDULER_NAME], plugin, priority), &what)
        };
        let added = Events::NODE_ADDED;
        let answers = [0, 1, 2, 3].map(|priority| says("Hinting", priority, added, None));
        assert_eq!(answers, [false, true, true, true]);
        assert!(!says("Hinting", 1, Events::POD_ADDED, None), "it does not wait for that");
        assert!(
            !says("Hinting", 1, added, Some(0)),
            "it is more important than those that have something of it"
        );
        assert!(says("Silent", 0, added, None) && says("of nobody", 0, added, None));
        let mut page = Page::default();
        counts.report(&mut page);
        for (said, n) in [("Error", 2), ("Queue", 1), ("QueueSkip", 1)] {
            let line = format!(
                "scheduler_queueing_hint_execution_duration_seconds_count{{event=\"NodeAdd\",hint=\"{said}\",plugin=\"Hinting\"}} {n}"
            );
            assert!(page.text().lines().any(|l| l == line), "{line}\n{}", page.text());
        }
    }
}
