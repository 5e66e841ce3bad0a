//! A plugin: a name, the extension points that it extends, and the events that may lift its refusals.

use std::sync::Arc;

use crate::events::Events;
use crate::framework::hint::Hint;
use crate::framework::points::{
    Bind, Filter, Permit, PlacementGenerate, PlacementScore, PostBind, PostFilter, PreBind, PreEnqueue,
    PreFilter, PreScore, QueueSort, Reserve, Score,
};

/// A plugin.
#[derive(Clone)]
pub struct Plugin {
    /// Its name, as the configuration and messages have it.
    pub name: &'static str,
    /// The events that may lift its refusals (upstream's `EventsToRegister`).
    pub lifted_by: Events,
    /// Says which of these events may; all, if there is none (upstream's `QueueingHintFn`).
    pub hint: Option<Arc<dyn Hint>>,
    /// Its implementations of extension points.
    pub points: Points,
}

/// The extension points of a plugin.
#[derive(Clone, Default)]
#[allow(missing_docs, reason = "each field has the name of its trait")]
pub struct Points {
    pub pre_enqueue: Option<Arc<dyn PreEnqueue>>,
    pub queue_sort: Option<Arc<dyn QueueSort>>,
    pub pre_filter: Option<Arc<dyn PreFilter>>,
    pub filter: Option<Arc<dyn Filter>>,
    pub post_filter: Option<Arc<dyn PostFilter>>,
    pub pre_score: Option<Arc<dyn PreScore>>,
    pub score: Option<Arc<dyn Score>>,
    pub reserve: Option<Arc<dyn Reserve>>,
    pub permit: Option<Arc<dyn Permit>>,
    pub pre_bind: Option<Arc<dyn PreBind>>,
    pub bind: Option<Arc<dyn Bind>>,
    pub post_bind: Option<Arc<dyn PostBind>>,
    pub placement_generate: Option<Arc<dyn PlacementGenerate>>,
    pub placement_score: Option<Arc<dyn PlacementScore>>,
}

impl Plugin {
    /// A plugin. Any event may lift its refusals, unless [`Plugin::lifted_by`] says which.
    pub fn new(name: &'static str, points: Points) -> Self {
        Self { name, lifted_by: Events::ALL, hint: None, points }
    }
    /// Says which events may lift its refusals.
    #[must_use]
    pub fn lifted_by(mut self, events: Events) -> Self {
        self.lifted_by = events;
        self
    }
    /// Says which of those events may lift its refusal of a Pod.
    #[must_use]
    pub fn hinted(mut self, hint: impl Hint + 'static) -> Self {
        self.hint = Some(Arc::new(hint));
        self
    }
}
