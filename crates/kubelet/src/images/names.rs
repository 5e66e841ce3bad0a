//! Names of images.

const FORMAT: &str = "invalid reference format";
const UPPER_CASE: &str = "invalid reference format: repository name must be lowercase";

/// Why a text is no image's name; upstream's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image name {image:?}: {why}")]
pub(crate) struct NameError {
    image: String,
    why: &'static str,
}

impl NameError {
    /// The reason without the image's name.
    pub(super) const fn why(&self) -> &'static str {
        self.why
    }
}

/// A parsed image name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImageName<'a> {
    /// Registry and path, without tag and digest.
    pub(super) repository: &'a str,
    /// Whether it has a tag or a digest.
    tagged: bool,
}

/// Parses an image's name, as Docker's reference grammar has it.
pub(super) fn parse(image: &str) -> Result<ImageName<'_>, NameError> {
    let invalid = || NameError { image: image.to_owned(), why: FORMAT };
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    if let Some(digest) = digest {
        let (algorithm, hex) = digest.split_once(':').ok_or_else(invalid)?;
        if algorithm.is_empty() || hex.len() < 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(invalid());
        }
    }
    let path_at = name.rfind('/').map_or(0, |i| i + 1);
    let (repository, tag) = match name[path_at..].find(':') {
        Some(i) => (&name[..path_at + i], Some(&name[path_at + i + 1..])),
        None => (name, None),
    };
    if let Some(tag) = tag {
        let first = tag.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !first
            || tag.len() > 128
            || !tag.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
        {
            return Err(invalid());
        }
    }
    let (domain, path) = match repository.split_once('/') {
        Some((d, p))
            if d.contains(['.', ':']) || d == "localhost" || d.bytes().any(|b| b.is_ascii_uppercase()) =>
        {
            (Some(d), p)
        }
        _ => (None, repository),
    };
    if domain.is_some_and(|d| {
        !d.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':' | b'[' | b']'))
    }) {
        return Err(invalid());
    }
    for component in path.split('/') {
        let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
        if !edge(component.bytes().next())
            || !edge(component.bytes().last())
            || !component.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
        {
            return Err(invalid());
        }
    }
    if path.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(NameError { image: image.to_owned(), why: UPPER_CASE });
    }
    Ok(ImageName { repository, tagged: tag.is_some() || digest.is_some() })
}

/// The image with its tag, `latest` where it has none.
pub(super) fn with_tag(image: &str) -> Result<String, NameError> {
    let name = parse(image)?;
    Ok(if name.tagged { image.to_owned() } else { format!("{image}:latest") })
}

/// A repository with its registry, as Docker completes it: names without one are at `docker.io`, and those there without a
/// path below `library`.
pub(super) fn with_registry(repository: &str) -> String {
    let of_registry = |host: &str| {
        host.contains(['.', ':']) || host == "localhost" || host.bytes().any(|b| b.is_ascii_uppercase())
    };
    let (host, path) = match repository.split_once('/') {
        Some(("index.docker.io", path)) => ("docker.io", path),
        Some((host, path)) if of_registry(host) => (host, path),
        _ => ("docker.io", repository),
    };
    let library = if host == "docker.io" && !path.contains('/') { "library/" } else { "" };
    format!("{host}/{library}{path}")
}

/// Whether a runtime's name of an image is the one that a Pod has for it: runtimes add the tag and the registry.
pub(crate) fn is_named(name: &str, wanted: &str) -> bool {
    let tagged = with_tag(wanted).unwrap_or_default();
    !tagged.is_empty()
        && name.strip_suffix(&tagged).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_have_registries() {
        for (repository, want) in [
            ("busybox", "docker.io/library/busybox"),
            ("team/app", "docker.io/team/app"),
            ("docker.io/busybox", "docker.io/library/busybox"),
            ("index.docker.io/a/b", "docker.io/a/b"),
            ("localhost/a", "localhost/a"),
            ("r.test:5000/a/b", "r.test:5000/a/b"),
        ] {
            assert_eq!(with_registry(repository), want);
        }
    }

    #[test]
    fn image_names() {
        for (image, want) in [
            ("busybox", Some("busybox:latest")),
            ("busybox:1", Some("busybox:1")),
            ("host.test:5000/a/b", Some("host.test:5000/a/b:latest")),
            ("host.test:5000/a/b:2", Some("host.test:5000/a/b:2")),
            ("a@sha256:0123456789abcdef0123456789abcdef", Some("a@sha256:0123456789abcdef0123456789abcdef")),
            ("", None),
            ("a b", None),
            ("Upper", None),
            (":tag", None),
            ("a:", None),
            ("///", None),
            ("a/", None),
        ] {
            assert_eq!(with_tag(image).ok().as_deref(), want, "{image}");
        }
    }

    /// Upstream's 20 cases of `TestTrimImageTagDigest` and 5 of `TestApplyDefaultImageTag`.
    #[test]
    fn names_without_tags_and_with_one() {
        let digest = "@sha256:38a8906435c4dd5f4258899d46621bfd8eea3ad6ff494ee3c2f17ef0321625bd";
        let check = |image: &str, expected: Option<&str>| {
            assert_eq!(parse(image).ok().map(|name| name.repository), expected, "{image}");
        };
        for name in ["myimage", "registry.io/myimage", "registry.io/myorg/myimage"] {
            for more in ["", ":latest", digest, &format!(":v1{digest}")] {
                check(&format!("{name}{more}"), Some(name));
            }
        }
        check("registry.io/a/b/c/myimage:latest", Some("registry.io/a/b/c/myimage"));
        check("registry.io/myorg/", None);
        check("registry.io/myorg/:tag", None);
        check(&format!("registry.io/myorg/{digest}"), None);
        check("localhost:5000/myimage:v1", Some("localhost:5000/myimage"));
        check("myregistry:5000/myorg/myimage:v1", Some("myregistry:5000/myorg/myimage"));
        check("docker.io/taghere/image:taghere", Some("docker.io/taghere/image"));
        let many = format!("registry.io/{}/myorg/image", &digest[8..]);
        check(&format!("{many}{digest}"), Some(&many));

        let tagged = |image: &str, expected: &str| assert_eq!(with_tag(image).as_deref(), Ok(expected));
        tagged("root", "root:latest");
        for image in ["root:tag", &format!("root{digest}"), &format!("root:latest{digest}"), "root:latest"] {
            tagged(image, image);
        }
    }
}
