//! DefaultBinder: binds a Pod by the API's `binding` subresource.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Binding as Body, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{Bind, Binding, Later, Unbound};

/// The plugin's name.
pub const NAME: &str = "DefaultBinder";

struct Binder;

impl Bind for Binder {
    fn bind<'a>(&'a self, binding: &'a Binding<'a>) -> Later<'a, Result<bool, Unbound>> {
        Box::pin(async move {
            let (name, namespace) = (binding.pod.name(), binding.pod.namespace());
            let body = Body {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    namespace: Some(namespace.to_owned()),
                    uid: Some(binding.pod.uid().to_owned()),
                    ..ObjectMeta::default()
                },
                target: ObjectReference {
                    kind: Some("Node".into()),
                    name: Some(binding.node.to_owned()),
                    ..ObjectReference::default()
                },
            };
            let bound = binding.client.api::<Pod>(namespace).bind(name, &body).await;
            bound.map(|()| true).map_err(Unbound::Failed)
        })
    }
}

pub(super) fn default_binder() -> Plugin {
    Plugin::new(NAME, Points { bind: Some(Arc::new(Binder)), ..Points::default() })
}
