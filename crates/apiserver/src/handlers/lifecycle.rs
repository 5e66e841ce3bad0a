//! What the server itself does when objects of a resource come and go, beyond their rules.

use access::admission::DeleteOptions;
use api::{Status, Struct};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::Scope;
use crate::answer::Outcome;

/// What was taken for a write that is still to be made, if anything was.
pub(crate) type Reserved = Option<Box<dyn Reservation>>;

/// What was taken for a write.
pub(crate) trait Reservation: Send + Sync {
    /// The write is in.
    fn keep(self: Box<Self>) -> BoxFuture<'static, ()>;
    /// The write is not in, or it is in doubt whether it is.
    fn fail(self: Box<Self>, doubtful: bool) -> BoxFuture<'static, ()>;
}

/// What the server does when objects of a resource come and go. Trees are of the version that is kept. Nothing is done
/// for updates by the rules of a subresource.
pub(crate) trait Lifecycle: Send + Sync {
    /// Before a create is checked: takes what the object needs, and writes it in.
    fn begin_create<'a>(
        &'a self,
        _scope: &'a Scope<'a>,
        _new: &'a mut Struct,
        _dry_run: bool,
    ) -> BoxFuture<'a, Result<Reserved, Status>> {
        async { Ok(None) }.boxed()
    }
    /// Before an update is checked.
    fn begin_update<'a>(
        &'a self,
        _scope: &'a Scope<'a>,
        _new: &'a mut Struct,
        _old: &'a Struct,
        _dry_run: bool,
    ) -> BoxFuture<'a, Result<Reserved, Status>> {
        async { Ok(None) }.boxed()
    }
    /// Before an object is deleted: an answer, if that is not yet to be done.
    fn delete<'a>(
        &'a self,
        _scope: &'a Scope<'a>,
        _name: &'a str,
        _options: &'a DeleteOptions,
    ) -> BoxFuture<'a, Result<Option<Outcome>, Status>> {
        async { Ok(None) }.boxed()
    }
    /// After an object is gone; its last state.
    fn deleted<'a>(&'a self, _scope: &'a Scope<'a>, _last: &'a Struct) -> BoxFuture<'a, ()> {
        async {}.boxed()
    }
}
