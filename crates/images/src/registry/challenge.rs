//! `WWW-Authenticate`: how a registry wants to be asked (RFC 9110). Pure.

/// A way of authentication that the client knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Challenge {
    /// A token from a server.
    Bearer {
        /// The server's URL.
        realm: String,
        /// The name under which the server knows the registry; empty if it gives none.
        service: String,
        /// The scopes, e.g. `repository:library/busybox:pull`; empty if it gives none.
        scope: String,
        /// The fault of the token that was sent; empty if it names none.
        error: String,
    },
    /// User and password.
    Basic,
}

/// The longest header that is read.
const MAX_HEADER: usize = 8 << 10;

/// Reads the challenges of one header, in its order. Schemes that are not known, and what is not well formed, are
/// left out.
pub fn parse(header: &str) -> Vec<Challenge> {
    let mut challenges = Vec::new();
    if header.len() > MAX_HEADER {
        return challenges;
    }
    let mut rest = header;
    let mut current: Option<(String, Vec<(String, String)>)> = None;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (word, after) = token(rest);
        if word.is_empty() {
            break;
        }
        let word = word.to_ascii_lowercase();
        let after_space = after.trim_start_matches([' ', '\t']);
        if let Some(value) = after_space.strip_prefix('=')
            && let Some((_, parameters)) = &mut current
        {
            let Some((value, next)) = token_or_quoted(value.trim_start_matches([' ', '\t'])) else { break };
            parameters.push((word, value));
            rest = next;
        } else {
            challenges.extend(current.take().and_then(|(scheme, p)| challenge(&scheme, p)));
            current = Some((word, Vec::new()));
            rest = after_space;
        }
    }
    challenges.extend(current.and_then(|(scheme, p)| challenge(&scheme, p)));
    challenges
}

fn challenge(scheme: &str, parameters: Vec<(String, String)>) -> Option<Challenge> {
    let get = |name: &str| {
        let found = parameters.iter().rev().find(|(n, _)| n == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    match scheme {
        "bearer" => {
            let realm = get("realm");
            (!realm.is_empty()).then(|| Challenge::Bearer {
                realm,
                service: get("service"),
                scope: get("scope"),
                error: get("error"),
            })
        }
        "basic" => Some(Challenge::Basic),
        _ => None,
    }
}

fn is_token(b: u8) -> bool {
    b.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&b)
}

fn token(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|b| !is_token(b)).unwrap_or(text.len());
    text.split_at(end)
}

/// A token or a quoted string, and what follows; `None` where the quotes do not end.
fn token_or_quoted(text: &str) -> Option<(String, &str)> {
    let Some(inner) = text.strip_prefix('"') else {
        let (word, rest) = token(text);
        return Some((word.to_owned(), rest));
    };
    let mut value = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &inner[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, expected: &[Challenge]) {
        assert_eq!(parse(header), expected, "{header}");
    }

    fn bearer(realm: &str, service: &str, scope: &str, error: &str) -> Challenge {
        Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.to_owned(),
            scope: scope.to_owned(),
            error: error.to_owned(),
        }
    }

    #[test]
    fn containerds_cases() {
        let (realm, service) = ("https://auth.docker.io/token", "registry.docker.io");
        for scope in [
            "repository:foo/bar:pull,push",
            "repository:foo/bar:pull,push repository:foo/baz:pull repository:foo/foo:push",
        ] {
            let header = format!(r#"Bearer realm="{realm}",service="{service}",scope="{scope}""#);
            check(&header, &[bearer(realm, service, scope, "")]);
        }
        check(
            r#"Bearer realm="https://auth.example.io/token",empty="",service="registry.example.io",scope="repository:library/hello-world:pull,push""#,
            &[bearer(
                "https://auth.example.io/token",
                "registry.example.io",
                "repository:library/hello-world:pull,push",
                "",
            )],
        );
    }

    #[test]
    fn forms_that_servers_send() {
        check("Basic", &[Challenge::Basic]);
        check(r#"basic realm="Registry Realm""#, &[Challenge::Basic]);
        check(r"BEARER realm=x , service = y", &[bearer("x", "y", "", "")]);
        check(
            r#"Bearer realm="https://a/t",error="invalid_token", Basic realm="r""#,
            &[bearer("https://a/t", "", "", "invalid_token"), Challenge::Basic],
        );
        check(r#"Negotiate, Basic realm="r""#, &[Challenge::Basic]);
        check(r#"Bearer realm="a\"b\\c""#, &[bearer("a\"b\\c", "", "", "")]);
    }

    #[test]
    fn nonsense_is_no_challenge() {
        for bad in [
            "",
            "  ",
            ",,,",
            "Bearer",
            "Digest realm=\"x\"",
            "Bearer realm=\"",
            "=",
            "Bearer realm=\"a\\",
            "\u{e4}",
        ] {
            check(bad, &[]);
        }
        check(&format!("Bearer realm={}", "a".repeat(9000)), &[]);
    }
}
