//! Decisions in which extenders have a say.

use crate::config::args::PluginArgs;
use crate::config::document::Document;
use crate::cycle::{Decision, Step};
use crate::extender::Talk;
use crate::pod::PodInfo;

use super::Scheduler;

/// Leaves resources to extenders: no profile looks at them (upstream's `buildExtenders`).
pub(super) fn hide(config: &mut Document, hidden: &[String]) {
    for plugin in config.profiles.iter_mut().flat_map(|p| &mut p.plugin_config) {
        if let PluginArgs::NodeResourcesFit(args) = &mut plugin.args {
            args.ignored_resources.extend_from_slice(hidden);
        }
    }
}

impl Scheduler {
    /// Decides about a Pod. Meanwhile nothing else is decided and no news is taken in, as upstream has it, so that each
    /// try of the turn sees the same cluster.
    pub(super) async fn decide(&mut self, info: &PodInfo) -> Decision {
        let mut talk = Talk::new(self.extenders.clone());
        loop {
            match self.step(info, &talk) {
                Step::Decided(decision) => return decision,
                Step::Ask(question) => {
                    let asked = talk.ask(&question, info, &self.cache, &self.client);
                    let Some(answer) = self.shutdown.run(asked).await else {
                        return Decision::Error("the scheduler ends".to_owned());
                    };
                    talk.note(question, answer);
                }
            }
        }
    }
}
