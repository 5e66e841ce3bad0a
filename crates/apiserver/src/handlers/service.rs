//! Services: each has its addresses and ports while it is there.

use api::{Status, Struct};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::scope::{Lifecycle, Reservation, Reserved, Scope};
use crate::allocate;

/// The lifecycle of Services.
pub(crate) struct Services;

impl Reservation for allocate::Reservation {
    fn keep(self: Box<Self>) -> BoxFuture<'static, ()> {
        (*self).keep().boxed()
    }
    fn fail(self: Box<Self>, doubtful: bool) -> BoxFuture<'static, ()> {
        (*self).fail(doubtful).boxed()
    }
}

fn reserved(taken: allocate::Reservation) -> Reserved {
    Some(Box::new(taken))
}

impl Lifecycle for Services {
    fn begin_create<'a>(
        &'a self,
        scope: &'a Scope<'a>,
        new: &'a mut Struct,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Reserved, Status>> {
        async move { scope.handlers.allocators.create(scope.namespace, new, dry_run).await.map(reserved) }
            .boxed()
    }
    fn begin_update<'a>(
        &'a self,
        scope: &'a Scope<'a>,
        new: &'a mut Struct,
        old: &'a Struct,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Reserved, Status>> {
        async move { scope.handlers.allocators.update(scope.namespace, new, old, dry_run).await.map(reserved) }.boxed()
    }
    fn deleted<'a>(&'a self, scope: &'a Scope<'a>, last: &'a Struct) -> BoxFuture<'a, ()> {
        scope.handlers.allocators.release(last).boxed()
    }
}
