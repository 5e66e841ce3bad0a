//! Names of images.

/// The longest path of a repository.
const MAX_PATH: usize = 255;
/// The start of a path of Docker's registry that is not written if the rest has one part.
const LIBRARY: &str = "library/";

/// Why a text is no image's name; upstream's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image name {image:?}: {why}")]
pub(crate) struct NameError {
    image: String,
    why: Why,
}

/// The rule that a text breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Why {
    /// It is none of the grammar's.
    #[error("invalid reference format")]
    Format,
    /// Its repository has capital letters.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    UpperCase(String),
    /// Its repository is an image's id.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Id(String),
    /// Its repository is too long.
    #[error("repository name must not be more than {MAX_PATH} characters")]
    Long,
    /// Its digest is longer or shorter than its algorithm makes one.
    #[error("invalid checksum digest length")]
    DigestLength,
    /// Its digest is none.
    #[error("invalid checksum digest format")]
    Digest,
    /// Nothing is known of its digest's algorithm.
    #[error("unsupported digest algorithm")]
    Algorithm,
}

impl NameError {
    /// The reason without the image's name.
    pub(super) fn into_why(self) -> Why {
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
    parts(image).map_err(|why| NameError { image: image.to_owned(), why })
}

fn parts(image: &str) -> Result<ImageName<'_>, Why> {
    let lower_hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if image.len() == 64 && lower_hex(image) {
        return Err(Why::Id(image.to_owned()));
    }
    let (host, remainder) = split_host(image);
    let of_docker = matches!(host, None | Some("docker.io" | "index.docker.io"));
    let library = if of_docker && !remainder.contains('/') { LIBRARY } else { "" };
    let path = remainder.split_once(':').map_or(remainder, |(path, _)| path);
    if path.to_lowercase() != path {
        return Err(Why::UpperCase(format!("{library}{path}")));
    }
    let (name, digest) = match remainder.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (remainder, None),
    };
    let (path, tag) = match name.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (name, None),
    };
    // A part of the path may look like a host.
    let fits = host.is_none_or(|host| is_host(host) || is_component(host));
    if !fits || !path.split('/').all(is_component) || !tag.is_none_or(is_tag) {
        return Err(Why::Format);
    }
    let digest = digest.map(|digest| digest.split_once(':').ok_or(Why::Format)).transpose()?;
    if digest.is_some_and(|(algorithm, hex)| !is_algorithm(algorithm) || !is_hash(hex)) {
        return Err(Why::Format);
    }
    if library.len() + path.len() > MAX_PATH {
        return Err(Why::Long);
    }
    if let Some((algorithm, hex)) = digest {
        let length = match algorithm {
            "sha256" => 64,
            "sha384" => 96,
            "sha512" => 128,
            other if other.bytes().any(|b| b.is_ascii_uppercase()) => return Err(Why::Digest),
            _ => return Err(Why::Algorithm),
        };
        if hex.len() != length {
            return Err(Why::DigestLength);
        }
        if !lower_hex(hex) {
            return Err(Why::Digest);
        }
    }
    let version = tag.map_or(0, |tag| tag.len() + 1)
        + digest.map_or(0, |(algorithm, hex)| algorithm.len() + hex.len() + 2);
    Ok(ImageName { repository: &image[..image.len() - version], tagged: version > 0 })
}

/// The registry's host and the rest, if the first part of a name is one.
fn split_host(name: &str) -> (Option<&str>, &str) {
    match name.split_once('/') {
        Some((host, rest))
            if host.contains(['.', ':']) || host == "localhost" || host.to_lowercase() != host =>
        {
            (Some(host), rest)
        }
        _ => (None, name),
    }
}

fn is_host(text: &str) -> bool {
    let (fits, port) = if let Some(address) = text.strip_prefix('[') {
        let (address, rest) = address.split_once(']').unwrap_or_default();
        let fits = !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        (
            fits,
            Some(rest).filter(|rest| !rest.is_empty()).map(|rest| rest.strip_prefix(':').unwrap_or_default()),
        )
    } else {
        let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
        (name.split('.').all(is_host_part), port)
    };
    fits && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

fn is_host_part(text: &str) -> bool {
    let whole = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    whole && !text.is_empty() && !text.starts_with('-') && !text.ends_with('-')
}

/// Whether a text is a part of a path: small letters and digits, with separators between them.
fn is_component(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator = |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|b| b == b'-');
    text.starts_with(is_plain) && text.ends_with(is_plain) && text.split(is_plain).all(is_separator)
}

fn is_tag(text: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.bytes().next().is_some_and(is_word)
        && text.len() <= 128
        && text.bytes().all(|b| is_word(b) || matches!(b, b'.' | b'-'))
}

/// Whether a text is the name of an algorithm of digests.
fn is_algorithm(text: &str) -> bool {
    text.split(['-', '_', '+', '.']).all(|part| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
    })
}

fn is_hash(text: &str) -> bool {
    text.len() >= 32 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The image with its tag, `latest` where it has none.
pub(super) fn with_tag(image: &str) -> Result<String, NameError> {
    let name = parse(image)?;
    Ok(if name.tagged { image.to_owned() } else { format!("{image}:latest") })
}

/// A repository with its registry, as Docker completes it: names without one are at `docker.io`, and those there without a
/// path below `library`.
pub(super) fn with_registry(repository: &str) -> String {
    let (host, path) = match split_host(repository) {
        (None | Some("index.docker.io"), path) => ("docker.io", path),
        (Some(host), path) => (host, path),
    };
    let library = if host == "docker.io" && !path.contains('/') { LIBRARY } else { "" };
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
            ("a@sha256:0123456789abcdef0123456789abcdef", None),
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

    /// Upstream's cases (`TestParseImageName` of `pkg/util/parsers`), and what its grammar refuses besides.
    #[test]
    fn names_and_why_they_are_none() {
        let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        for (name, repository) in [
            ("root", "docker.io/library/root"),
            ("user/repo", "docker.io/user/repo"),
            ("url:5000/repo", "url:5000/repo"),
            ("docker.io/root", "docker.io/library/root"),
            ("[2001:db8::1]:5000/repo", "[2001:db8::1]:5000/repo"),
            ("Host/a__b/c--d/e.f_g", "Host/a__b/c--d/e.f_g"),
            ("xn--n3h.com/a", "xn--n3h.com/a"),
        ] {
            for more in ["", ":tag", &format!("@sha256:{hash}"), &format!(":latest@sha256:{hash}")] {
                let image = format!("{name}{more}");
                let parsed = parse(&image).unwrap();
                assert_eq!((parsed.repository, parsed.tagged), (name, !more.is_empty()), "{image}");
                assert_eq!(with_registry(parsed.repository), repository);
            }
        }
        let check = |image: &str, why: &str| {
            let error = parse(image).unwrap_err().to_string();
            assert_eq!(error, format!("couldn't parse image name {image:?}: {why}"));
        };
        let upper =
            |name: &str| format!("invalid reference format: repository name ({name}) must be lowercase");
        check("ROOT", &upper("library/ROOT"));
        check("h.io/ROOT", &upper("ROOT"));
        check(hash, &format!("invalid repository name ({hash}), cannot specify 64-byte hexadecimal strings"));
        let long = "a/".repeat(128);
        check(&format!("{long}b"), "repository name must not be more than 255 characters");
        check(&format!("a@sha256:{}", &hash[1..]), "invalid checksum digest length");
        check(&format!("a@sha512:{hash}"), "invalid checksum digest length");
        check(&format!("a:b@sha256:{}", hash.to_uppercase()), "invalid checksum digest format");
        check(&format!("a@md5:{hash}"), "unsupported digest algorithm");
        for image in [
            "http://root",
            "a..b",
            "a___b",
            "a.-b",
            "-a",
            "a/",
            "/a",
            "a:",
            "a:-b",
            "a:b:c",
            "a@sha256",
            "h.io:x/a",
            "h.io:/a",
            "[::1/a",
            "[]/a:b",
            "-h.io/a",
            "h_h.io:1/a",
            "a@sha256:",
            "a@:x",
            "",
        ] {
            check(image, "invalid reference format");
        }
        assert_eq!(parse("h_h.io/a").unwrap().repository, "h_h.io/a", "a path");
    }
}
