//! Removes credentials from requests once they have done their work: no server behind the API server gets to see them,
//! nor headers by which only an API server may name a caller.

use http::header::{
    AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL,
};

use super::authenticator::TOKEN_PROTOCOL;
use super::impersonation::PREFIX as IMPERSONATION;

/// Removes credentials, impersonation, and the headers by which a proxy of the API server's names the caller.
pub fn remove(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    // DIFFERENCE: upstream passes on this header, which is for a proxy, with an upgrade.
    headers.remove(PROXY_AUTHORIZATION);
    if headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        remove_token_protocol(headers);
    }
    let named: Vec<HeaderName> = headers.keys().filter(|name| says_who(name.as_str())).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}

fn says_who(name: &str) -> bool {
    let remote = |rest: &str| matches!(rest, "user" | "uid" | "group") || rest.starts_with("extra-");
    name.starts_with(IMPERSONATION) || name.strip_prefix("x-remote-").is_some_and(remote)
}

/// Leaves the subprotocols that are no tokens, as upstream does: in one header, in their order.
fn remove_token_protocol(headers: &mut HeaderMap) {
    let is_token = |p: &[u8]| {
        p.get(..TOKEN_PROTOCOL.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(TOKEN_PROTOCOL.as_bytes()))
    };
    let all = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter();
    let all: Vec<&[u8]> =
        all.flat_map(|v| v.as_bytes().split(|b| *b == b',')).map(<[u8]>::trim_ascii).collect();
    if !all.iter().any(|p| is_token(p)) {
        return;
    }
    let others = all.into_iter().filter(|p| !is_token(p)).collect::<Vec<_>>().join(&b","[..]);
    match HeaderValue::from_bytes(&others) {
        Ok(others) if !others.is_empty() => drop(headers.insert(SEC_WEBSOCKET_PROTOCOL, others)),
        _ => drop(headers.remove(SEC_WEBSOCKET_PROTOCOL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &[(&str, &str)], left: &[(&str, &str)]) {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        remove(&mut headers);
        let got: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), std::str::from_utf8(value.as_bytes()).unwrap()))
            .collect();
        assert_eq!(got, left, "{given:?}");
    }

    #[test]
    fn credentials() {
        check(
            &[
                ("Accept", "*/*"),
                ("Authorization", "Bearer a"),
                ("Authorization", "Bearer b"),
                ("Proxy-Authorization", "Basic x"),
                ("Impersonate-User", "root"),
                ("Impersonate-Extra-Scopes", "y"),
                ("X-Remote-User", "root"),
                ("X-Remote-Group", "system:masters"),
                ("X-Remote-Group", "a"),
                ("X-Remote-Uid", "1"),
                ("X-Remote-Extra-Scopes", "z"),
                ("X-Remote-Host", "kept"),
            ],
            &[("accept", "*/*"), ("x-remote-host", "kept")],
        );
    }

    #[test]
    fn subprotocols() {
        const NAME: &str = "sec-websocket-protocol";
        let token = format!("{TOKEN_PROTOCOL}dG9r");
        let upper = token.to_uppercase();
        check(&[(NAME, "a, b")], &[(NAME, "a, b")]);
        check(&[(NAME, &format!("a, {token}, b"))], &[(NAME, "a,b")]);
        check(&[(NAME, "a"), (NAME, &token), (NAME, &upper)], &[(NAME, "a")]);
        check(&[(NAME, &token)], &[]);
    }
}
