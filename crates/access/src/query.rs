//! Query parameters, read as Go's `url.ParseQuery` and upstream's parameter codec read them.

use api::Status;

/// The parameters of a request, decoded, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the text after the `?`. Pairs with a bad escape or a semicolon are left out, as Go does; pairs with bytes
    /// that are no text are kept, so that a bad demand is not taken for none.
    pub fn parse(text: &str) -> Self {
        let mut pairs = Vec::new();
        for pair in text.split('&') {
            if pair.is_empty() || pair.contains(';') {
                continue;
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(key), Some(value)) = (unescaped(key, true), unescaped(value, true)) {
                pairs.push((text_of(key), text_of(value)));
            }
        }
        Self(pairs)
    }
    /// Makes a query from pairs that are not escaped.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(pairs.into_iter().collect())
    }
    /// The first value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|p| p.0 == key).map(|p| p.1.as_str())
    }
    /// The first value of a key, or "".
    pub fn str(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }
    /// Every value of a key.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |p| p.0 == key).map(|p| p.1.as_str())
    }
    /// A boolean: false if absent, "false" or "0"; true for anything else, also "".
    pub fn bool(&self, key: &str) -> Option<bool> {
        self.get(key).map(|v| !(v.eq_ignore_ascii_case("false") || v == "0"))
    }
    /// An integer; a 400 with Go's text if it is none.
    pub fn int(&self, key: &str) -> Result<Option<i64>, Status> {
        let Some(v) = self.get(key) else { return Ok(None) };
        v.parse::<i64>().map(Some).map_err(|e| Status::bad_request(api::go::no_integer("ParseInt", v, &e)))
    }
    /// The pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|p| (p.0.as_str(), p.1.as_str()))
    }
}

/// Undoes percent escapes; `None` for a bad one or for bytes that are not UTF-8.
pub fn unescape(text: &str, plus_is_space: bool) -> Option<String> {
    String::from_utf8(unescaped(text, plus_is_space)?).ok()
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

fn unescaped(text: &str, plus_is_space: bool) -> Option<Vec<u8>> {
    if !text.contains('%') && (!plus_is_space || !text.contains('+')) {
        return Some(text.into());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        match b {
            b'%' => {
                let hex = |b: u8| (b as char).to_digit(16);
                let (high, low) = (hex(bytes.next()?)?, hex(bytes.next()?)?);
                out.push((high * 16 + low) as u8);
            }
            b'+' if plus_is_space => out.push(b' '),
            b => out.push(b),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded_and_bad_ones_left_out() {
        let q = Query::parse("labelSelector=a%3Db%2Cc+in&watch&x;y=1&bad=%zz&watch=0");
        assert_eq!(q.str("labelSelector"), "a=b,c in");
        assert_eq!(q.bool("watch"), Some(true));
        assert_eq!(q.all("watch").collect::<Vec<_>>(), ["", "0"]);
        assert_eq!(q.get("bad"), None);
        let q = Query::parse("labelSelector=%ff&%fe=1");
        assert_eq!((q.str("labelSelector"), q.str("\u{fffd}")), ("\u{fffd}", "1"));
    }

    #[test]
    fn integers_fail_with_gos_text() {
        let q = Query::parse("limit=ten&big=99999999999999999999&ok=7");
        assert_eq!(q.int("limit").unwrap_err().message, "strconv.ParseInt: parsing \"ten\": invalid syntax");
        assert_eq!(
            q.int("big").unwrap_err().message,
            "strconv.ParseInt: parsing \"99999999999999999999\": value out of range"
        );
        assert_eq!(q.int("ok").unwrap(), Some(7));
        assert_eq!(q.int("none").unwrap(), None);
    }
}
