//! Lists and their pages.

use std::sync::Arc;

use api::Status;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::watch::{FRESH_TIMEOUT, too_large};
use super::{Scope, watch};
use crate::answer::{List, Outcome};
use crate::options::{ListOptions, Match};
use crate::select::Selection;

/// Upstream's continue token.
#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

/// Where a page starts: the state's revision, and the key after which it goes on.
#[derive(Debug, PartialEq, Eq)]
struct From {
    revision: i64,
    namespace: String,
    name: String,
}

fn encode(revision: u64, namespace: &str, name: &str, namespaced_list: bool) -> String {
    let key = if namespace.is_empty() || namespaced_list {
        format!("{name}\0")
    } else {
        format!("{namespace}/{name}\0")
    };
    let token = Token { v: "meta.k8s.io/v1".into(), rv: revision as i64, start: key };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

fn decode(token: &str, namespace: &str, namespaced: bool) -> Result<From, String> {
    let invalid = "continue key is not valid";
    let data = URL_SAFE_NO_PAD.decode(token).map_err(|e| {
        let at = match e {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            _ => token.len(),
        };
        format!("{invalid}: illegal base64 data at input byte {at}")
    })?;
    let token: Token = serde_json::from_slice(&data).map_err(|e| format!("{invalid}: {e}"))?;
    if token.v != "meta.k8s.io/v1" {
        return Err(format!("{invalid}: server does not recognize this encoded version {}", token.v));
    }
    if token.rv == 0 {
        return Err(format!("{invalid}: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
    }
    if token.start.is_empty() {
        return Err(format!("{invalid}: encoded start key empty (version meta.k8s.io/v1)"));
    }
    let key = token.start.trim_start_matches('/');
    if key.split('/').any(|p| matches!(p, "" | "." | "..")) {
        return Err(format!("{invalid}: {}", token.start));
    }
    let key = key.strip_suffix('\0').unwrap_or(key);
    let (ns, name) = match key.split_once('/') {
        Some((ns, name)) => (ns, name),
        None if namespaced => (namespace, key),
        None => ("", key),
    };
    Ok(From { revision: token.rv, namespace: ns.into(), name: name.into() })
}

/// Upstream's text for a token whose state is gone; it carries a token that goes on in the current one.
fn expired(from: &From, namespaced_list: bool) -> Status {
    let mut s = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    let key = if from.namespace.is_empty() || namespaced_list {
        format!("{}\0", from.name)
    } else {
        format!("{}/{}\0", from.namespace, from.name)
    };
    let token = Token { v: "meta.k8s.io/v1".into(), rv: -1, start: key };
    s.continue_token = Some(URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default()));
    s
}

/// Answers a list; a watch, if the query asks for one.
pub(crate) async fn list(scope: &Scope<'_>, options: ListOptions) -> Result<Outcome, Status> {
    if options.watch {
        return watch::watch(scope.inner, scope.req, scope.resource, options).await;
    }
    Ok(Outcome::List(select(scope, &options).await?))
}

/// The objects that a list's options select.
pub(crate) async fn select(scope: &Scope<'_>, options: &ListOptions) -> Result<List, Status> {
    let selection = Selection::new(
        scope.stored,
        scope.namespace,
        scope.name(),
        &options.label_selector,
        &options.field_selector,
    )?;
    let store = &scope.inner.store;
    let id = scope.stored.id;
    let namespaced_list = !selection.scope.namespace.is_empty();
    let revision = options.revision()?;
    let from = if options.token.is_empty() {
        None
    } else {
        let from = decode(&options.token, &selection.scope.namespace, scope.resource.namespaced)
            .map_err(|e| Status::bad_request(format!("invalid continue token: {e}")))?;
        if revision != 0 {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        Some(from)
    };
    match &from {
        // What was read from another server may be new to this one.
        Some(from) if from.revision > 0 && store.is_shared() => {
            store.wait_for(from.revision as u64, FRESH_TIMEOUT).await;
        }
        _ if options.resource_version.is_empty() => super::fresh(store).await?,
        _ => {}
    }
    // As upstream's first API: a page of a revision is of exactly that one, unless something else is said.
    let matching = match options.matching {
        None if options.limit > 0 && revision > 0 => Some(Match::Exact),
        matching => matching,
    };
    let snapshot = match (&from, matching) {
        (Some(from), _) if from.revision > 0 => {
            let at = from.revision as u64;
            match store.snapshot_at(id, at) {
                Some(s) => s,
                None => return Err(expired(from, namespaced_list)),
            }
        }
        (Some(_), _) => store.snapshot(id),
        (None, Some(Match::Exact)) => {
            if revision > store.current() && !store.wait_for(revision, FRESH_TIMEOUT).await {
                return Err(too_large(revision, store.current()));
            }
            store
                .snapshot_at(id, revision)
                .ok_or_else(|| Status::expired("The resourceVersion for the provided list is too old."))?
        }
        (None, _) => {
            if revision > store.current() && !store.wait_for(revision, FRESH_TIMEOUT).await {
                return Err(too_large(revision, store.current()));
            }
            store.snapshot(id)
        }
    };
    if let Some((key, why)) = store.unreadable(id, &selection.scope) {
        return Err(Status::internal(format!("unable to transform key {key:?}: {why}")));
    }
    let after = from.as_ref().map(|f| (f.namespace.as_str(), f.name.as_str()));
    // As upstream: a page of the state "0" is the whole of it.
    let limit = if options.resource_version == "0" && options.matching != Some(Match::Exact) {
        0
    } else {
        usize::try_from(options.limit).unwrap_or_default()
    };
    let mut items = Vec::new();
    let mut more = false;
    for object in snapshot.scan(&selection.scope, after).marked(selection.marks()) {
        if !selection.everything && !selection.matches(object) {
            continue;
        }
        if limit > 0 && items.len() == limit {
            more = true;
            break;
        }
        items.push(Arc::clone(object));
    }
    let (mut token, mut remaining) = (String::new(), None);
    if let (true, Some(last)) = (more, items.last()) {
        let data = &last.data;
        token = encode(snapshot.revision(), &data.namespace, &data.name, namespaced_list);
        if selection.everything {
            let after = Some((data.namespace.as_str(), data.name.as_str()));
            remaining = Some(snapshot.count(&selection.scope, after) as u64);
        }
    }
    Ok(List { resource: Arc::clone(scope.resource), revision: snapshot.revision(), token, remaining, items })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_upstreams() {
        let token = encode(7, "ns", "a", false);
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(&token).unwrap()).unwrap();
        assert_eq!(text, "{\"v\":\"meta.k8s.io/v1\",\"rv\":7,\"start\":\"ns/a\\u0000\"}");
        let from = decode(&token, "", true).unwrap();
        assert_eq!(from, From { revision: 7, namespace: "ns".into(), name: "a".into() });
        let token = encode(7, "ns", "a", true);
        assert_eq!(decode(&token, "ns", true).unwrap().namespace, "ns");
        for bad in ["!", "e30", &URL_SAFE_NO_PAD.encode(br#"{"v":"meta.k8s.io/v1","rv":1,"start":"../x"}"#)] {
            assert!(decode(bad, "", true).is_err(), "{bad}");
        }
    }
}
