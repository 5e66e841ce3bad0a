//! Tokens of a file (`--token-auth-file`), one a line: `token,user,uid,"group1,group2"`.

use std::collections::HashMap;
use std::sync::Arc;

use api::Text;
use sha2::{Digest as _, Sha256};

use super::groups::add_authenticated;
use crate::UserInfo;

/// The tokens of a file with their users.
#[derive(Debug, Clone, Default)]
pub struct TokenFile(HashMap<[u8; 32], Arc<UserInfo>>);

/// A line that is none of such a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    /// A quote that does not end, or stands where none may.
    #[error(
        "line {0} of the token file is not a line of comma-separated values; quote each value whole or not at all"
    )]
    Quotes(usize),
    /// A line with fewer than three values.
    #[error("line {0} of the token file must have at least 3 columns (token, user name, user uid)")]
    Columns(usize),
}

impl TokenFile {
    /// Reads the content of a file. As upstream: a line without a token is passed over, and of a token that is there
    /// twice the last counts.
    ///
    /// # Errors
    /// Where a line is none of such a file.
    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut users = HashMap::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let values = values(line).ok_or(TokenFileError::Quotes(at + 1))?;
            let [token, name, uid, rest @ ..] = values.as_slice() else {
                return Err(TokenFileError::Columns(at + 1));
            };
            if token.is_empty() {
                tracing::warn!(line = at + 1, "a line of the token file has no token");
                continue;
            }
            let groups = rest.first().map_or("", String::as_str).split(',').map(str::trim);
            let mut groups: Vec<Text> = groups.filter(|g| !g.is_empty()).map(Text::from).collect();
            add_authenticated(&mut groups);
            let user = UserInfo { name: name.into(), uid: uid.into(), groups, ..UserInfo::default() };
            users.insert(Sha256::digest(token).into(), Arc::new(user));
        }
        Ok(Self(users))
    }
    /// The user of a token.
    pub(super) fn user(&self, token: &str) -> Option<&Arc<UserInfo>> {
        if self.0.is_empty() {
            return None;
        }
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.0.get(&digest)
    }
}

/// The values of a line.
fn values(line: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let mut rest = line;
    loop {
        let (value, after) = match rest.strip_prefix('"') {
            None => {
                let (value, after) = rest.split_once(',').map_or((rest, None), |(v, a)| (v, Some(a)));
                if value.contains('"') {
                    return None;
                }
                (value.to_owned(), after)
            }
            Some(quoted) => {
                let mut value = String::new();
                let mut chars = quoted.char_indices().peekable();
                let end = loop {
                    match chars.next()? {
                        (_, '"') if chars.peek().is_some_and(|(_, c)| *c == '"') => {
                            chars.next();
                            value.push('"');
                        }
                        (at, '"') => break at,
                        (_, other) => value.push(other),
                    }
                };
                let after = quoted.get(end + 1..)?;
                if !after.is_empty() && !after.starts_with(',') {
                    return None;
                }
                (value, after.strip_prefix(','))
            }
        };
        all.push(value);
        match after {
            Some(after) => rest = after,
            None => return Some(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        let check = |text: &str, token: &str, want: Option<(&str, &str, &str)>| {
            let file = TokenFile::parse(text).unwrap();
            let found = file.user(token).map(|u| (u.name.to_string(), u.uid.to_string(), u.groups.join(" ")));
            let want = want.map(|(n, u, g)| (n.to_owned(), u.to_owned(), g.to_owned()));
            assert_eq!(found, want, "{text}");
        };
        let ann = |groups| Some(("ann", "1", groups));
        check("tok,ann,1", "tok", ann("system:authenticated"));
        check("tok,ann,1,a", "tok", ann("a system:authenticated"));
        check("tok,ann,1,\"a, b\"", "tok", ann("a b system:authenticated"));
        check("\"t\"\"k\",ann,1\n\n", "t\"k", ann("system:authenticated"));
        check("tok,bob,2\ntok,ann,1", "tok", ann("system:authenticated"));
        check(",bob,2\n", "", None);
        check("tok,ann,1", "other", None);
        let bad = |text: &str, want: TokenFileError| assert_eq!(TokenFile::parse(text).unwrap_err(), want);
        bad("tok,ann", TokenFileError::Columns(1));
        bad("tok,ann,1\ntok,\"ann,1", TokenFileError::Quotes(2));
        bad("tok,a\"nn,1", TokenFileError::Quotes(1));
        bad("tok,\"ann\"x,1", TokenFileError::Quotes(1));
    }
}
