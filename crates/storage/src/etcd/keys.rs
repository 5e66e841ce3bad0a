//! Upstream's keys: `/registry/pods/default/web`, `/registry/minions/node-1`, `/registry/example.com/widgets/ns/w`.

use std::collections::HashMap;

use api::Text;
use bytes::Bytes;

use super::codec::Placement;

/// The start of the keys of API servers' addresses.
const SERVERS: &str = "masterleases";

/// The layout of the keys below a prefix.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The prefix, which begins and ends with a slash.
    prefix: String,
    by_path: HashMap<String, (Text, Text)>,
    paths: HashMap<(Text, Text), String>,
}

/// The meaning of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place<'k> {
    /// An object.
    Object { group: &'k str, plural: &'k str, namespace: &'k str, name: &'k str },
    /// The address of an API server.
    Server(&'k str),
    /// The key of something else.
    Other,
}

impl Keys {
    pub(crate) fn new(prefix: &str, placements: Vec<Placement>) -> Self {
        let inner = prefix.trim_matches('/');
        let prefix = if inner.is_empty() { "/".to_owned() } else { format!("/{inner}/") };
        let mut keys = Self { prefix, by_path: HashMap::new(), paths: HashMap::new() };
        for Placement { group, plural, path } in placements {
            keys.paths.insert((group.clone(), plural.clone()), path.clone());
            keys.by_path.insert(path, (group, plural));
        }
        keys
    }

    /// The start of every key.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A key that every server may read; upstream's health check reads it.
    pub(crate) fn health(&self) -> Bytes {
        format!("{}health", self.prefix).into()
    }

    /// The start of the keys of a resource, without the last slash.
    fn above(&self, group: &Text, plural: &Text) -> String {
        let mut key = String::with_capacity(self.prefix.len() + 64);
        key.push_str(&self.prefix);
        if let Some(path) = self.paths.get(&(group.clone(), plural.clone())) {
            key.push_str(path);
        } else {
            key.push_str(group);
            key.push('/');
            key.push_str(plural);
        }
        key
    }

    /// The start of the keys of a resource.
    pub(crate) fn resource(&self, group: &Text, plural: &Text) -> Bytes {
        (self.above(group, plural) + "/").into()
    }

    /// The start of the keys of the API servers' addresses.
    pub(crate) fn servers(&self) -> Bytes {
        format!("{}{SERVERS}/", self.prefix).into()
    }

    /// Every resource that has a place of its own.
    pub(crate) fn placed(&self) -> impl Iterator<Item = &(Text, Text)> {
        self.paths.keys()
    }

    /// The key of an object.
    pub(crate) fn object(&self, group: &Text, plural: &Text, namespace: &str, name: &str) -> Bytes {
        let mut key = self.above(group, plural);
        for part in [namespace, name] {
            if !part.is_empty() {
                key.push('/');
                key.push_str(part);
            }
        }
        key.into()
    }

    /// The key of an API server's address.
    pub(crate) fn server(&self, address: &str) -> Bytes {
        format!("{}{SERVERS}/{address}", self.prefix).into()
    }

    /// The meaning of a key.
    pub(crate) fn place<'k>(&'k self, key: &'k [u8]) -> Place<'k> {
        self.find(key).unwrap_or(Place::Other)
    }

    fn find<'k>(&'k self, key: &'k [u8]) -> Option<Place<'k>> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(self.prefix.as_str())?;
        let (first, after_first) = rest.split_once('/')?;
        if let Some((group, plural)) = self.by_path.get(first) {
            return object(group, plural, after_first);
        }
        if first == SERVERS {
            return Some(Place::Server(after_first));
        }
        let (second, after_second) = after_first.split_once('/')?;
        let both = rest.get(..first.len() + 1 + second.len())?;
        match self.by_path.get(both) {
            Some((group, plural)) => object(group, plural, after_second),
            // Only a group's name has a dot in it.
            None if first.contains('.') => object(first, second, after_second),
            None => None,
        }
    }
}

fn object<'k>(group: &'k str, plural: &'k str, rest: &'k str) -> Option<Place<'k>> {
    let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
    let good = !name.is_empty() && !name.contains('/');
    good.then_some(Place::Object { group, plural, namespace, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(prefix: &str) -> Keys {
        let row = |group: &str, plural: &str, path: &str| Placement {
            group: group.into(),
            plural: plural.into(),
            path: path.into(),
        };
        Keys::new(
            prefix,
            vec![
                row("", "pods", "pods"),
                row("", "nodes", "minions"),
                row("", "services", "services/specs"),
                row("", "endpoints", "services/endpoints"),
                row("apps", "deployments", "deployments"),
                row("apiregistration.k8s.io", "apiservices", "apiregistration.k8s.io/apiservices"),
            ],
        )
    }

    #[test]
    fn there_and_back() {
        let check = |key: &str, group: &str, plural: &str, namespace: &str, name: &str| {
            for prefix in ["/registry", "registry/", "/a/b", "/"] {
                let keys = keys(prefix);
                let full = format!("{}{key}", keys.prefix());
                let place = Place::Object { group, plural, namespace, name };
                assert_eq!(keys.place(full.as_bytes()), place, "{full}");
                assert_eq!(keys.object(&group.into(), &plural.into(), namespace, name), full);
            }
        };
        check("pods/default/web", "", "pods", "default", "web");
        check("minions/node-1", "", "nodes", "", "node-1");
        check("services/specs/default/kubernetes", "", "services", "default", "kubernetes");
        check("services/endpoints/default/kubernetes", "", "endpoints", "default", "kubernetes");
        check("deployments/a/b", "apps", "deployments", "a", "b");
        check("apiregistration.k8s.io/apiservices/v1.", "apiregistration.k8s.io", "apiservices", "", "v1.");
        check("example.com/widgets/ns/w", "example.com", "widgets", "ns", "w");
        check("example.com/globals/g", "example.com", "globals", "", "g");
    }

    #[test]
    fn others() {
        let keys = keys("/registry");
        assert_eq!(keys.prefix(), "/registry/");
        assert_eq!(keys.place(b"/registry/masterleases/10.0.0.1"), Place::Server("10.0.0.1"));
        for other in [
            "compact_rev_key",
            "/registry/health",
            "/registry/ranges/serviceips",
            "/registry/podsecuritypolicy/x",
            "/registry/pods/a/b/c",
            "/registry/pods/a/",
            "/registryx/pods/a/b",
            "/other/pods/a/b",
        ] {
            assert_eq!(keys.place(other.as_bytes()), Place::Other, "{other}");
        }
        assert_eq!(keys.place(b"/registry/\xff/a/b"), Place::Other);
    }
}
