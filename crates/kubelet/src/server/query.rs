//! Parameters of requests.

/// The parameters of a request, decoded, in order.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses what follows the `?`; pairs with a bad escape are left out, as Go does.
    pub(super) fn parse(text: &str) -> Self {
        let decode = |part: &str| unescape(&part.replace('+', " "));
        Self(
            text.split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .filter_map(|(key, value)| Some((decode(key)?, decode(value)?)))
                .collect(),
        )
    }
    /// The first value of a parameter.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.all(key).next()
    }
    /// All values of a parameter.
    pub(super) fn all<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |p| p.0 == key).map(|p| p.1.as_str())
    }
    /// False if absent, "false" or "0".
    pub(super) fn bool(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| !(v.eq_ignore_ascii_case("false") || v == "0"))
    }
}

/// Undoes percent escapes; `None` for a bad one or what is not UTF-8.
pub(super) fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || (bytes.next()? as char).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            out.push((high * 16 + low) as u8);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        let query = Query::parse("command=a+b&command=c%26d&bad=%zz&tty&x=0");
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["a b", "c&d"]);
        assert!(query.bool("tty") && !query.bool("x") && !query.bool("bad"));
        assert_eq!(unescape("%e"), None);
    }
}
