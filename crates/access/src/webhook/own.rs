//! Webhooks behind the own server: those of the Service `kubernetes`, which an aggregated API server answers. They are
//! called as the server itself, without a connection to its own address (upstream:
//! `NewDefaultAuthenticationInfoResolverWrapper`).

use api::Status;
use bytes::Bytes;
use client::{Call, Resource, Verb};

use super::address::{Address, ClientConfig};

/// The call of a webhook that is behind the own server; none of another webhook.
pub(super) fn call(to: &ClientConfig, body: &Bytes) -> Option<Result<Call, Status>> {
    let Address::Service { namespace, name, port: 443, path } = &to.address else { return None };
    if namespace != "default" || name != "kubernetes" {
        return None;
    }
    let missing =
        || Status::failure(404, "NotFound", "the server could not find the requested resource".to_owned());
    let made = create_at(path).map(|call| Call { body: body.clone(), ..call });
    Some(made.ok_or_else(missing))
}

/// A create at a path.
fn create_at(path: &str) -> Option<Call> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, version, rest) = match &parts[..] {
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        ["api", version, rest @ ..] => ("", *version, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name, subresource] => (*plural, *name, *subresource),
        _ => return None,
    };
    let resource = Resource { group: group.into(), version: version.into(), plural: plural.into() };
    Some(Call::new(Verb::Create, resource, namespace, name, subresource))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let check = |path: &str, expected: Option<[&str; 6]>| {
            let got = create_at(path).map(|c| {
                let client::Resource { group, version, plural } = c.resource;
                [group, version, c.namespace, plural, c.name, c.subresource]
            });
            assert_eq!(got, expected.map(|e| e.map(Into::into)), "{path}");
        };
        check("/apis/a.example/v1/reviews", Some(["a.example", "v1", "", "reviews", "", ""]));
        check("/apis/a.example/v1/namespaces/n/reviews/", Some(["a.example", "v1", "n", "reviews", "", ""]));
        check("/api/v1/namespaces/n/pods/p/eviction", Some(["", "v1", "n", "pods", "p", "eviction"]));
        check("/api/v1/namespaces", Some(["", "v1", "", "namespaces", "", ""]));
        check("/apis/a.example/v1", None);
        check("/apis/a.example/v1/reviews/r", None);
        check("/healthz", None);
        check("", None);
    }

    #[test]
    fn webhooks() {
        let check = |namespace: &str, name: &str, port: u16, path: &str, expected: Option<bool>| {
            let [namespace, name, path] = [namespace, name, path].map(str::to_owned);
            let address = Address::Service { namespace, name, port, path };
            let found = call(&ClientConfig { address, ca_bundle: Vec::new() }, &Bytes::new());
            assert_eq!(found.map(|call| call.is_ok()), expected);
        };
        check("default", "kubernetes", 443, "/apis/a/v1/b", Some(true));
        check("default", "kubernetes", 443, "/", Some(false));
        check("default", "kubernetes", 6443, "/apis/a/v1/b", None);
        check("other", "kubernetes", 443, "/apis/a/v1/b", None);
        check("default", "other", 443, "/apis/a/v1/b", None);
        let url = ClientConfig { address: Address::Url("https://kubernetes".into()), ca_bundle: Vec::new() };
        assert!(call(&url, &Bytes::new()).is_none());
    }
}
