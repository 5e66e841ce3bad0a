//! CertificateSigningRequests: who asks is known from the request.

use api::view::{Edit, strings};
use api::{Map, Node, Status, Struct, Text};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::scope::{Lifecycle, Reserved, Scope};

/// The lifecycle of CertificateSigningRequests.
pub(crate) struct CertificateRequests;

impl Lifecycle for CertificateRequests {
    fn begin_create<'a>(
        &'a self,
        scope: &'a Scope<'a>,
        new: &'a mut Struct,
        _dry_run: bool,
    ) -> BoxFuture<'a, Result<Reserved, Status>> {
        set_requester(scope, new);
        async { Ok(None) }.boxed()
    }
}

/// Writes the user of the request into the object as its requester, whatever the object says.
fn set_requester(scope: &Scope<'_>, tree: &mut Struct) {
    let user = &scope.req.user;
    let mut e = Edit::new(scope.catalog.schema(), tree);
    let Some(mut spec) = e.make("spec") else { return };
    let text = |t: &Text| (!t.is_empty()).then(|| Node::from(t.clone()));
    let list = |l: &[Text]| (!l.is_empty()).then(|| strings(l.iter().map(Text::as_str)));
    spec.put("username", text(&user.name));
    spec.put("uid", text(&user.uid));
    spec.put("groups", list(&user.groups));
    let extra: Vec<_> =
        user.extra.iter().map(|(k, v)| (k.clone(), strings(v.iter().map(Text::as_str)))).collect();
    spec.put("extra", (!extra.is_empty()).then(|| Node::from(Map::from_entries(extra))));
}
