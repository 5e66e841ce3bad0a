//! The converter of a resource's objects, where that is not the strategy.

use std::sync::Arc;

use api::Struct;
use api::schema::Gvk;
use futures::future::BoxFuture;
use kinds::Strategy;

/// Somebody who is asked to convert objects, and may take time for it.
pub(crate) trait Converter: Send + Sync {
    /// Converts trees of one version of a kind to another version: as many, in their order. The error is a text.
    fn convert(
        &self,
        trees: Vec<Struct>,
        from: &Gvk,
        to: &Gvk,
    ) -> BoxFuture<'static, Result<Vec<Struct>, String>>;
}

/// The rules of a resource's objects.
#[derive(Clone)]
pub(crate) struct Rules {
    /// The kind's facts and rules.
    pub(crate) strategy: Arc<dyn Strategy>,
    /// The one who converts objects; `None` where the strategy does, at once.
    pub(crate) converter: Option<Arc<dyn Converter>>,
}

impl Rules {
    /// The rules of a kind that its strategy converts.
    pub(crate) fn of(strategy: Arc<dyn Strategy>) -> Self {
        Self { strategy, converter: None }
    }
    /// The rules of a built-in resource.
    pub(crate) fn builtin(group: &str, plural: &str) -> Self {
        Self::of(kinds::strategy(group, plural))
    }
}
