//! Continue tokens: where the next page of a list begins.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::tree::Text;

/// The JSON of upstream's token.
#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

/// The start of a page: the state's revision (-1 for the current one), and the object after which the page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The revision.
    pub revision: i64,
    /// The object's namespace.
    pub namespace: Text,
    /// The object's name.
    pub name: Text,
}

impl Start {
    /// Writes the token. In a list of one namespace it does not name the namespace.
    pub fn encode(&self, namespaced_list: bool) -> String {
        let Self { revision, namespace, name } = self;
        let start = if namespace.is_empty() || namespaced_list {
            format!("{name}\0")
        } else {
            format!("{namespace}/{name}\0")
        };
        let token = Token { v: "meta.k8s.io/v1".into(), rv: *revision, start };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    /// Reads a token for a list in `namespace` (all if it is empty) of objects that have one if `namespaced`. The error
    /// is in upstream's words.
    pub fn decode(token: &str, namespace: &str, namespaced: bool) -> Result<Self, String> {
        let invalid = "continue key is not valid";
        let data = URL_SAFE_NO_PAD.decode(token).map_err(|e| {
            let at = match e {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                _ => token.len(),
            };
            format!("{invalid}: illegal base64 data at input byte {at}")
        })?;
        let token: Token = serde_json::from_slice(&data).map_err(|e| format!("{invalid}: {e}"))?;
        if token.v != "meta.k8s.io/v1" {
            return Err(format!("{invalid}: server does not recognize this encoded version {}", token.v));
        }
        if token.rv == 0 {
            return Err(format!(
                "{invalid}: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
            ));
        }
        if token.start.is_empty() {
            return Err(format!("{invalid}: encoded start key empty (version meta.k8s.io/v1)"));
        }
        let key = token.start.trim_start_matches('/');
        if key.split('/').any(|p| matches!(p, "" | "." | "..")) {
            return Err(format!("{invalid}: {}", token.start));
        }
        let key = key.strip_suffix('\0').unwrap_or(key);
        let (namespace, name) = match key.split_once('/') {
            Some(both) => both,
            None if namespaced => (namespace, key),
            None => ("", key),
        };
        Ok(Self { revision: token.rv, namespace: namespace.into(), name: name.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_upstreams() {
        let start = Start { revision: 7, namespace: "ns".into(), name: "a".into() };
        let token = start.encode(false);
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(&token).unwrap()).unwrap();
        assert_eq!(text, "{\"v\":\"meta.k8s.io/v1\",\"rv\":7,\"start\":\"ns/a\\u0000\"}");
        assert_eq!(Start::decode(&token, "", true).unwrap(), start);
        assert_eq!(Start::decode(&start.encode(true), "ns", true).unwrap(), start);
        for bad in ["!", "e30", &URL_SAFE_NO_PAD.encode(br#"{"v":"meta.k8s.io/v1","rv":1,"start":"../x"}"#)] {
            assert!(Start::decode(bad, "", true).is_err(), "{bad}");
        }
    }
}
