//! The properties that hold of any input. The fuzz targets in `fuzz/` run these, too.

use ferrokube_access::auth::impersonated;
use http::{HeaderMap, HeaderName, HeaderValue};

/// A property, and the name of its seeds and of its fuzz target.
pub type Property = (&'static str, fn(&[u8]));

/// All properties.
pub const ALL: [Property; 1] = [("impersonation", impersonation)];

/// Impersonation headers, a line each, are either refused or name exactly the user that comes out.
pub fn impersonation(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|b| *b == b'\n') {
        let at = line.iter().position(|b| *b == b':').unwrap_or(line.len());
        let (name, value) = (&line[..at], line.get(at + 1..).unwrap_or_default());
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value.trim_ascii()))
        {
            headers.append(name, value);
        }
    }
    let all = |name: &str| headers.get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>();
    let first = |name: &str| all(name).first().copied().unwrap_or_default();
    let (name, uid, groups) = (first("impersonate-user"), first("impersonate-uid"), all("impersonate-group"));
    let extras: Vec<_> = headers
        .iter()
        .filter_map(|(name, value)| {
            Some((name.as_str().strip_prefix("impersonate-extra-")?, value.as_bytes()))
        })
        .collect();
    let more = !uid.is_empty() || !groups.is_empty() || !extras.is_empty();
    match impersonated(&headers) {
        Ok(None) => assert!(name.is_empty() && !more, "ignored"),
        Ok(Some(user)) => {
            assert!(!user.name.is_empty());
            assert_eq!((user.name.as_bytes(), user.uid.as_bytes()), (name, uid));
            assert_eq!(user.groups.iter().map(|g| g.as_bytes()).collect::<Vec<_>>(), groups);
            let mut given: Vec<_> = extras.iter().map(|(_, value)| *value).collect();
            let mut taken: Vec<_> = user.extra.values().flatten().map(|value| value.as_bytes()).collect();
            given.sort_unstable();
            taken.sort_unstable();
            assert_eq!(taken, given);
            for (key, value) in extras.iter().filter(|(key, _)| !key.contains('%')) {
                assert!(user.extra[*key].iter().any(|taken| taken.as_bytes() == *value), "{key}");
            }
        }
        Err(status) => {
            assert_eq!(status.code, 400);
            let mut values = headers.iter().filter(|(name, _)| name.as_str().starts_with("impersonate-"));
            let text = values.all(|(_, value)| std::str::from_utf8(value.as_bytes()).is_ok());
            let escaped = extras.iter().any(|(key, _)| key.contains('%'));
            assert!(!text || escaped || name.is_empty() && more, "{}", status.message);
        }
    }
}
