//! Credentials by the places that they count for, as upstream's keyring looks them up.

use std::collections::BTreeMap;

use super::credential::{Credential, DEFAULT_REGISTRY};
use crate::credential_providers::place::Place;

/// Credentials by places.
#[derive(Debug, Default)]
pub(super) struct Keyring(BTreeMap<String, (Place, Vec<Credential>)>);

impl Keyring {
    /// Adds a credential for a server: a place, which may have the scheme `https` or `http`, and `/v1/` or `/v2/` before
    /// its path. A server that is none has no credentials.
    pub(super) fn add(&mut self, server: &str, credential: Credential) {
        let schemed = server.starts_with("https://") || server.starts_with("http://");
        let parsed = if schemed { Place::of_url(server) } else { Place::parse(server) };
        let place = match parsed {
            Ok(place) => place,
            Err(error) => {
                tracing::error!(%error, "a server of image pull credentials is none; they are left out");
                return;
            }
        };
        let versioned = place.path.starts_with("/v1/") || place.path.starts_with("/v2/");
        let path = if versioned { &place.path[3..] } else { &place.path };
        let path = if path == "/" { "" } else { path };
        let key = format!("{}{path}", place.host);
        // A path may have been written with escapes, which are none here.
        let Ok(place) = Place::parse(&key) else { return };
        self.0.entry(key).or_insert_with(|| (place, Vec::new())).1.push(credential);
    }

    /// The credentials for a repository, the most special place first. Those of Docker's own registry count for names
    /// without a registry if no others do.
    pub(super) fn find(&self, repository: &str) -> Vec<Credential> {
        let Ok(target) = Place::parse(repository) else { return Vec::new() };
        // By the reverse order of names a path is before its beginnings.
        let all = self.0.values().rev().filter(|(place, _)| place.covers(&target));
        let found: Vec<Credential> = all.flat_map(|(_, credentials)| credentials).cloned().collect();
        if found.is_empty() && of_default_registry(repository) {
            return self.0.get(DEFAULT_REGISTRY).map(|(_, all)| all.clone()).unwrap_or_default();
        }
        found
    }
}

/// Whether a repository is one of Docker's own registry, named or not.
fn of_default_registry(repository: &str) -> bool {
    match repository.split_once('/') {
        None => !repository.is_empty(),
        Some((host, _)) => {
            !host.is_empty() && (matches!(host, "docker.io" | DEFAULT_REGISTRY) || !host.contains(['.', ':']))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::credential::Source;
    use super::*;

    /// The users of a keyring with these servers, each its own user, for a repository.
    fn check(servers: &[&str], repository: &str, want: &[&str]) {
        let mut keyring = Keyring::default();
        for server in servers {
            let login = (server.to_string(), "p".to_owned());
            keyring.add(server, Credential::of_login(login, Source::Node));
        }
        let found: Vec<_> = keyring.find(repository).into_iter().map(|c| c.auth.username).collect();
        assert_eq!(found, want, "{servers:?} {repository}");
    }

    /// Upstream's cases.
    #[test]
    fn credentials_have_places() {
        for (server, target) in [
            ("https://hello.kubernetes.io", "hello.kubernetes.io"),
            ("https://*.docker.io", "prefix.docker.io"),
            ("https://prefix.*.io", "prefix.docker.io"),
            ("https://prefix.docker.*", "prefix.docker.io"),
            ("https://*.docker.io/path", "prefix.docker.io/path"),
            ("https://prefix.*.io/path", "prefix.docker.io/path/subpath"),
            ("https://*.docker.io:8888", "prefix.docker.io:8888"),
            ("https://*.docker.io/path:1111", "prefix.docker.io/path:1111"),
            ("https://*.docker.io/v1/", "prefix.docker.io/path:1111"),
            ("https://*.docker.io/v2/", "prefix.docker.io/path:1111"),
            ("prefix.docker.io:1111", "prefix.docker.io:1111/path"),
            ("*.docker.io:1111", "prefix.docker.io:1111/path"),
            ("http://host.test/v2/a", "host.test/a"),
        ] {
            check(&[server], &format!("{target}/foo/bar"), &[server]);
        }
        for (server, target) in [
            ("https://hello.kubernetes.io", "world.mesos.org/foo/bar"),
            ("https://*.docker.com", "prefix.docker.io"),
            ("https://suffix.*.io", "prefix.docker.io"),
            ("https://prefix.docker.c*", "prefix.docker.io"),
            ("https://prefix.*.io/path:1111", "prefix.docker.io/path/subpath:1111"),
            ("suffix.*.io", "prefix.docker.io"),
            ("a b", "a"),
            ("https://index.docker.io/v1/", "world.mesos.org"),
        ] {
            check(&[server], &format!("{target}/foo/bar"), &[]);
        }
        let hub = "https://index.docker.io/v1/";
        for name in ["busybox", "library/busybox", "docker.io/library/busybox", "index.docker.io/a/b"] {
            check(&[hub], name, &[hub]);
        }
        check(&[hub, "docker.io"], "docker.io/library/busybox", &["docker.io"]);
        let all = ["r.test", "r.test/a", "*.test", "r.test/a/b", "other.test"];
        check(&all, "r.test/a/b", &["r.test/a/b", "r.test/a", "r.test", "*.test"]);
        check(&all, "r.test/ab", &["r.test/a", "r.test", "*.test"]);
    }
}
