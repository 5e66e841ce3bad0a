//! The headers by which an aggregated server learns who asks; it believes them for the certificate that comes along.

use access::UserInfo;
use http::header::{HeaderMap, HeaderName, HeaderValue};

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
/// The beginning of the headers of a user's further attributes.
const EXTRA: &str = "x-remote-extra-";

/// The identity of the server when it asks an aggregated one for itself.
pub(crate) fn aggregator() -> UserInfo {
    UserInfo {
        name: "system:kube-aggregator".into(),
        groups: vec!["system:masters".into()],
        ..UserInfo::default()
    }
}

/// Writes the caller's name into a request's headers in place of whatever names somebody there; `uid` says whether its
/// uid is told, too (the feature `RemoteRequestHeaderUID`). An error names the part that no header can hold.
pub(crate) fn name_caller(headers: &mut HeaderMap, user: &UserInfo, uid: bool) -> Result<(), String> {
    access::auth::credentials::remove(headers);
    let value = |text: &str, what: &str| {
        HeaderValue::from_bytes(text.as_bytes())
            .map_err(|_| format!("net/http: invalid header field value for {}", api::go::quote(what)))
    };
    headers.insert(USER, value(&user.name, "X-Remote-User")?);
    if uid && !user.uid.is_empty() {
        headers.insert(UID, value(&user.uid, "X-Remote-Uid")?);
    }
    for group in &user.groups {
        headers.append(GROUP, value(group, "X-Remote-Group")?);
    }
    for (key, values) in &user.extra {
        let name = format!("{EXTRA}{}", api::go::header_key(key));
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("net/http: invalid header field name {}", api::go::quote(&name)))?;
        for text in values {
            headers.append(&header, value(text, &name)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let mut given = HeaderMap::new();
        for (name, value) in [
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-scopes", "all"),
            ("authorization", "Bearer x"),
            ("accept", "*/*"),
        ] {
            given.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let user = UserInfo {
            name: "jürgen".into(),
            uid: "7".into(),
            groups: vec!["a".into(), "b".into()],
            extra: [("example.com/Key%".into(), vec!["1".into(), "2".into()])].into(),
        };
        let check = |uid: bool, want: &[(&str, &str)]| {
            let mut headers = given.clone();
            name_caller(&mut headers, &user, uid).unwrap();
            let mut got: Vec<_> = headers
                .iter()
                .map(|(n, v)| (n.as_str(), std::str::from_utf8(v.as_bytes()).unwrap()))
                .collect();
            got.sort_unstable();
            assert_eq!(got, want);
        };
        let all = [
            ("accept", "*/*"),
            ("x-remote-extra-example.com%2fkey%25", "1"),
            ("x-remote-extra-example.com%2fkey%25", "2"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-uid", "7"),
            ("x-remote-user", "jürgen"),
        ];
        check(true, &all);
        check(false, &[&all[..5], &all[6..]].concat());
        let odd = UserInfo { name: "a\nb".into(), ..UserInfo::default() };
        let error = name_caller(&mut HeaderMap::new(), &odd, true).unwrap_err();
        assert_eq!(error, "net/http: invalid header field value for \"X-Remote-User\"");
    }
}
