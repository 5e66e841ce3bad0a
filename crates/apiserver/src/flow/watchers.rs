//! How many watchers would be told of a write. Those count as alike that watch the same resource, namespace and name;
//! what else they select shows only in an event itself.

use std::collections::HashMap;
use std::sync::Arc;

use access::RequestInfo;
use api::Text;
use parking_lot::Mutex;

/// The part of a resource that is watched: group, resource, namespace and name.
type Part = (Text, Text, Text, Text);

/// The watchers of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watchers(Arc<Mutex<HashMap<Part, usize>>>);

/// One that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Watches {
    all: Watchers,
    part: Part,
}

impl Drop for Watches {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(count) = all.get_mut(&self.part) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.part);
            }
        }
    }
}

impl Watchers {
    /// Counts a watch.
    pub(crate) fn add(&self, info: &RequestInfo) -> Watches {
        let part = (info.group.clone(), info.resource.clone(), info.namespace.clone(), info.name.clone());
        *self.0.lock().entry(part.clone()).or_default() += 1;
        Watches { all: self.clone(), part }
    }

    /// How many are told of a write.
    pub(super) fn of_write(&self, info: &RequestInfo) -> usize {
        let all = self.0.lock();
        let mut part: Part = (info.group.clone(), info.resource.clone(), Text::default(), Text::default());
        let mut count = all.get(&part).copied().unwrap_or_default();
        if !info.namespace.is_empty() {
            part.2.clone_from(&info.namespace);
            count += all.get(&part).copied().unwrap_or_default();
        }
        if !info.name.is_empty() {
            part.3.clone_from(&info.name);
            count += all.get(&part).copied().unwrap_or_default();
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use access::{Query, request_info};
    use http::Method;

    use super::*;

    fn at(method: Method, path: &str) -> RequestInfo {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        request_info::parse(&method, path, &Query::parse(query)).unwrap()
    }

    /// Upstream's `TestGetInterestedWatchCount`.
    #[test]
    fn those_that_are_told() {
        let watchers = Watchers::default();
        let watches: Vec<_> = [
            "/api/v1/pods?watch=true",
            "/api/v1/namespaces/foo/pods?watch=true",
            "/api/v1/namespaces/foo/pods?watch=true&fieldSelector=metadata.name=mypod",
            "/api/v1/namespaces/bar/pods?watch=true&fieldSelector=metadata.name=mypod",
            "/apis/group/v1/namespaces/foo/pods?watch=true",
            "/apis/group/v1/namespaces/bar/pods?watch=true&fieldSelector=metadata.name=mypod",
        ]
        .iter()
        .map(|path| watchers.add(&at(Method::GET, path)))
        .collect();
        let check = |method: Method, path: &str, expected: usize| {
            assert_eq!(watchers.of_write(&at(method, path)), expected, "{path}");
        };
        check(Method::POST, "/api/v1/namespaces/foo/pods", 2);
        check(Method::PUT, "/api/v1/namespaces/foo/pods/mypod", 3);
        check(Method::DELETE, "/api/v1/namespaces/foo/pods/mypod", 3);
        check(Method::PUT, "/api/v1/namespaces/foo/pods/otherpod", 2);
        check(Method::POST, "/api/v1/namespaces/bar/pods", 1);
        check(Method::PUT, "/api/v1/namespaces/bar/pods/mypod", 2);
        check(Method::PUT, "/apis/group/v1/namespaces/foo/pods/mypod", 1);
        check(Method::PUT, "/apis/group/v1/namespaces/bar/pods/mypod", 1);
        check(Method::PUT, "/apis/group/v1/namespaces/bar/pods/otherpod", 0);
        drop(watches);
        assert!(watchers.0.lock().is_empty());
    }
}
