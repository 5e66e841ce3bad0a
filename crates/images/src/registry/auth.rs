//! Authentication towards a registry: user and password, or a token from the server that the registry names.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::{HeaderValue, Uri};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use crate::digest::Digest;
use crate::settings::Credentials;

/// How long a token is good for if its server does not say: the token specification's figure.
const DEFAULT_AGE: u64 = 60;
/// A token is not used for its last seconds.
const MARGIN: u64 = 5;
const MAX_TOKENS: usize = 256;

/// The credentials of a pull, ready for use.
#[derive(Clone)]
pub(crate) enum Secret {
    /// None.
    Anonymous,
    /// A user's name and password.
    Password(String, String),
    /// A refresh token.
    Refresh(String),
    /// A bearer token for the registry itself.
    Bearer(String),
}

/// Credentials that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the credentials' `auth` is not base64 of user:password")]
pub(crate) struct InvalidAuth;

impl Secret {
    /// The credentials for a host, as containerd's CRI service reads them (`ParseAuth`).
    pub(crate) fn of(credentials: &Credentials, host: &str) -> Result<Self, InvalidAuth> {
        if !credentials.server_address.is_empty() && server(&credentials.server_address) != host {
            return Ok(Self::Anonymous);
        }
        if !credentials.username.is_empty() {
            return Ok(Self::Password(credentials.username.clone(), credentials.password.clone()));
        }
        if !credentials.identity_token.is_empty() {
            return Ok(Self::Refresh(credentials.identity_token.clone()));
        }
        if !credentials.auth.is_empty() {
            let text = credentials.auth.trim();
            let bytes =
                STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).map_err(|_| InvalidAuth)?;
            let text = String::from_utf8(bytes).map_err(|_| InvalidAuth)?;
            let (user, password) = text.split_once(':').ok_or(InvalidAuth)?;
            // Docker pads the password with zeros.
            return Ok(Self::Password(user.to_owned(), password.trim_end_matches('\0').to_owned()));
        }
        if !credentials.registry_token.is_empty() {
            return Ok(Self::Bearer(credentials.registry_token.clone()));
        }
        Ok(Self::Anonymous)
    }

    /// The header of basic authentication.
    pub(crate) fn basic(&self) -> Option<HeaderValue> {
        let Self::Password(user, password) = self else { return None };
        header(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
    }

    /// Something that differs between secrets, and tells nothing of them.
    fn mark(&self) -> String {
        let text = match self {
            Self::Anonymous => String::new(),
            Self::Password(user, password) => format!("p\0{user}\0{password}"),
            Self::Refresh(token) => format!("r\0{token}"),
            Self::Bearer(token) => format!("b\0{token}"),
        };
        Digest::of(text.as_bytes()).to_string()
    }
}

/// The host of a registry's address, which may be a URL.
fn server(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default()
}

/// A header that no log shows.
pub(crate) fn header(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The tokens that servers gave, by server, service, scopes and credentials.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<HashMap<String, (HeaderValue, Instant)>>);

impl Tokens {
    fn key(question: &Question, secret: &Secret) -> String {
        format!("{}\0{}\0{}\0{}", question.realm, question.service, question.scopes.join(" "), secret.mark())
    }

    /// A token that is still good.
    pub(crate) fn get(&self, question: &Question, secret: &Secret) -> Option<HeaderValue> {
        let tokens = self.0.lock();
        let (value, until) = tokens.get(&Self::key(question, secret))?;
        (*until > Instant::now()).then(|| value.clone())
    }

    /// Keeps a token.
    pub(crate) fn put(&self, question: &Question, secret: &Secret, token: &Token) {
        let Some(value) = header(&format!("Bearer {}", token.text)) else { return };
        let mut tokens = self.0.lock();
        if tokens.len() >= MAX_TOKENS {
            let now = Instant::now();
            tokens.retain(|_, (_, until)| *until > now);
            if tokens.len() >= MAX_TOKENS {
                tokens.clear();
            }
        }
        tokens.insert(Self::key(question, secret), (value, Instant::now() + token.age));
    }

    /// Forgets a token that the registry refused.
    pub(crate) fn forget(&self, question: &Question, secret: &Secret) {
        self.0.lock().remove(&Self::key(question, secret));
    }
}

/// A question for a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    /// The token server's URL.
    pub realm: String,
    /// The registry's name there.
    pub service: String,
    /// The purposes of the token, sorted.
    pub scopes: Vec<String>,
}

impl Question {
    /// The question that a challenge asks for, about a repository that is to be pulled from.
    pub(crate) fn new(realm: &str, service: &str, scope: &str, repository: &str) -> Self {
        let own = format!("repository:{repository}:pull");
        let mut scopes: Vec<String> = scope.split(' ').filter(|s| !s.is_empty()).map(str::to_owned).collect();
        let covered = scopes.iter().any(|s| {
            s.strip_prefix(&*format!("repository:{repository}:"))
                .is_some_and(|actions| actions.split(',').any(|a| a == "pull" || a == "*"))
        });
        if !covered {
            scopes.push(own);
        }
        scopes.sort();
        scopes.dedup();
        Self { realm: realm.to_owned(), service: service.to_owned(), scopes }
    }

    /// The URL and body of a form (OAuth 2), for a secret.
    pub(crate) fn form(&self, secret: &Secret) -> String {
        let scopes = self.scopes.join(" ");
        let mut fields = vec![("scope", &*scopes), ("service", &self.service), ("client_id", "ferrokube")];
        match secret {
            Secret::Password(user, password) => {
                fields.extend([("grant_type", "password"), ("username", user), ("password", password)]);
            }
            Secret::Refresh(token) | Secret::Bearer(token) => {
                fields.extend([("grant_type", "refresh_token"), ("refresh_token", token)]);
            }
            Secret::Anonymous => {}
        }
        encode(&fields)
    }

    /// The URL of a plain question.
    pub(crate) fn url(&self) -> Option<Uri> {
        let mut fields = Vec::new();
        if !self.service.is_empty() {
            fields.push(("service", &*self.service));
        }
        fields.extend(self.scopes.iter().map(|s| ("scope", &**s)));
        let join = if self.realm.contains('?') { '&' } else { '?' };
        format!("{}{join}{}", self.realm, encode(&fields)).parse().ok()
    }
}

/// `application/x-www-form-urlencoded`.
fn encode(fields: &[(&str, &str)]) -> String {
    let part = |text: &str| {
        let mut out = String::new();
        for b in text.bytes() {
            match b {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    out.push(char::from(b));
                }
                b' ' => out.push('+'),
                b => out = format!("{out}%{b:02X}"),
            }
        }
        out
    };
    fields.iter().map(|(k, v)| format!("{}={}", part(k), part(v))).collect::<Vec<_>>().join("&")
}

/// A token.
pub(crate) struct Token {
    /// The token itself.
    pub text: String,
    /// How long it is good for.
    pub age: Duration,
}

impl Token {
    /// Reads a token server's answer.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            token: Option<String>,
            #[serde(default)]
            access_token: Option<String>,
            #[serde(default)]
            expires_in: Option<u64>,
        }
        let answer: Answer = serde_json::from_slice(bytes)
            .map_err(|e| format!("the token server's answer is no token: {e}"))?;
        let text = answer.access_token.filter(|t| !t.is_empty()).or(answer.token).filter(|t| !t.is_empty());
        let text = text.ok_or("the token server's answer has no token")?;
        let seconds = answer.expires_in.unwrap_or(DEFAULT_AGE).clamp(DEFAULT_AGE, 86_400) - MARGIN;
        Ok(Self { text, age: Duration::from_secs(seconds) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(credentials: Credentials, host: &str) -> String {
        match Secret::of(&credentials, host) {
            Ok(Secret::Anonymous) => "anonymous".to_owned(),
            Ok(Secret::Password(user, password)) => format!("{user}:{password}"),
            Ok(Secret::Refresh(token)) => format!("refresh {token}"),
            Ok(Secret::Bearer(token)) => format!("bearer {token}"),
            Err(e) => e.to_string(),
        }
    }

    /// containerd's cases (`TestParseAuth`).
    #[test]
    fn credentials_are_read_as_containerd_reads_them() {
        let auth = |auth: &str| Credentials { auth: auth.to_owned(), ..Credentials::default() };
        let user = Credentials { username: "u".into(), password: "p".into(), ..Credentials::default() };
        assert_eq!(secret(Credentials::default(), "h"), "anonymous");
        assert_eq!(secret(user.clone(), "h"), "u:p");
        assert_eq!(secret(auth("dXNlcm5hbWU6cGFzc3dvcmQ="), "h"), "username:password");
        assert_eq!(secret(auth("dXNlcm5hbWU6cGFzc3dvcmQ"), "h"), "username:password");
        assert!(secret(auth("!!"), "h").contains("base64"));
        assert!(secret(auth("dXNlcg=="), "h").contains("base64"));
        let token = Credentials { identity_token: "t".into(), ..Credentials::default() };
        assert_eq!(secret(token, "h"), "refresh t");
        let token = Credentials { registry_token: "t".into(), ..Credentials::default() };
        assert_eq!(secret(token, "h"), "bearer t");
        for address in ["https://registry-1.io", "registry-1.io", "http://registry-1.io/v1/"] {
            let own = Credentials { server_address: address.into(), ..user.clone() };
            assert_eq!(secret(own.clone(), "registry-1.io"), "u:p");
            assert_eq!(secret(own, "registry-2.io"), "anonymous");
        }
        assert!(!format!("{user:?}").contains("password"));
    }

    #[test]
    fn questions_name_each_scope_once() {
        let check = |scope: &str, expected: &str| {
            assert_eq!(Question::new("https://a/t", "s", scope, "x/y").scopes.join(" "), expected, "{scope}");
        };
        check("", "repository:x/y:pull");
        check("repository:x/y:pull", "repository:x/y:pull");
        check("repository:x/y:pull,push", "repository:x/y:pull,push");
        check("repository:x/z:pull", "repository:x/y:pull repository:x/z:pull");
        check("repository:x/y:pull  repository:x/y:pull", "repository:x/y:pull");
        let question = Question::new("https://a/t?a=b", "s p", "", "x/y");
        let url = question.url().unwrap().to_string();
        assert_eq!(url, "https://a/t?a=b&service=s+p&scope=repository%3Ax%2Fy%3Apull");
        let form = question.form(&Secret::Password("ü".into(), "a&b".into()));
        assert!(form.ends_with("grant_type=password&username=%C3%BC&password=a%26b"), "{form}");
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_age() {
        let tokens = Tokens::default();
        let question = Question::new("https://a/t", "s", "", "x/y");
        let secret = Secret::Anonymous;
        let token = Token::parse(br#"{"token": "abc", "expires_in": 300}"#).unwrap();
        tokens.put(&question, &secret, &token);
        assert_eq!(tokens.get(&question, &secret).unwrap(), "Bearer abc");
        assert!(tokens.get(&question, &Secret::Refresh("x".into())).is_none());
        tokio::time::advance(Duration::from_secs(296)).await;
        assert!(tokens.get(&question, &secret).is_none());
        for bad in ["", "{}", "[]", r#"{"token": ""}"#, r#"{"token": null}"#] {
            assert!(Token::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        for i in 0..1000 {
            tokens.put(&Question::new("https://a/t", "s", "", &format!("x/{i}")), &secret, &token);
        }
        assert!(tokens.0.lock().len() <= MAX_TOKENS);
    }
}
