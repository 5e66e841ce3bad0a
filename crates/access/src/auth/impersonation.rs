//! Impersonation: acting as somebody else, by headers, as far as the caller may.
//!
//! The ways are tried in upstream's order: bound to the caller's own node, any node, a service
//! account, any other user (each asks for the verb `impersonate:WAY` on the user and
//! `impersonate-on:WAY:VERB` on the request itself), and last the plain verb `impersonate`.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::names;
use api::{Status, Text};
use compact_str::format_compact;
use http::{HeaderMap, HeaderValue};

use super::authorizer::SUPERUSERS;
use super::{Access, UnionAuthorizer, forbidden};
use crate::RequestInfo;
use crate::UserInfo;

/// The beginning of the names of all these headers.
pub(super) const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const AUTHENTICATION: &str = "authentication.k8s.io";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// The user as whom the caller `user` acts, which asked to act as `wanted`.
pub(super) async fn impersonate(
    wanted: UserInfo,
    user: &UserInfo,
    info: &RequestInfo,
    authorizer: &UnionAuthorizer,
) -> Result<Arc<UserInfo>, Status> {
    let mut first = None;
    for way in [Way::AssociatedNode, Way::ArbitraryNode, Way::ServiceAccount, Way::UserInfo, Way::Legacy] {
        if !way.applies(&wanted, user) {
            continue;
        }
        match way.check(&wanted, user, info, authorizer).await {
            Ok(user) => return Ok(Arc::new(user)),
            Err(status) => {
                first.get_or_insert(status);
            }
        }
    }
    Err(first.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
}

/// The user whom impersonation headers name, whether the caller may act as it or not; `None` without such headers.
///
/// As upstream: of several names or uids the first counts, of groups and extra values all; an empty name is none, and
/// anything else without a name is a 400.
///
/// DIFFERENCE: upstream passes on whatever bytes a value has. A user is text here, so what is not UTF-8 is a 400.
pub fn wanted(headers: &HeaderMap) -> Result<Option<UserInfo>, Status> {
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(None);
    }
    let all = |name: &'static str| headers.get_all(name).into_iter().map(move |value| text(name, value));
    let first = |name| all(name).reduce(|first, next| next.and(first)).unwrap_or(Ok(Text::default()));
    let mut user = UserInfo { name: first(USER)?, uid: first(UID)?, ..UserInfo::default() };
    user.groups = all(GROUP).collect::<Result<_, _>>()?;
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(EXTRA) else { continue };
        user.extra.entry(unescape(key)?).or_default().push(text(name.as_str(), value)?);
    }
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty() {
        return Ok(None);
    }
    let groups = user.groups.iter().map(|g| format!("{g:?}")).collect::<Vec<_>>().join(", ");
    let groups = if groups.is_empty() { "[]string(nil)".into() } else { format!("[]string{{{groups}}}") };
    let extra: Vec<String> = user
        .extra
        .iter()
        .map(|(k, v)| {
            let values = v.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(", ");
            format!("{k:?}:[]string{{{values}}}")
        })
        .collect();
    let extra = if extra.is_empty() {
        "map[string][]string(nil)".into()
    } else {
        format!("map[string][]string{{{}}}", extra.join(", "))
    };
    Err(Status::bad_request(format!(
        "requested &user.DefaultInfo{{Name:\"\", UID:{:?}, Groups:{groups}, Extra:{extra}}} without impersonating a user name",
        user.uid
    )))
}

/// The text of a header's value.
fn text(name: &str, value: &HeaderValue) -> Result<Text, Status> {
    let text = std::str::from_utf8(value.as_bytes());
    text.map(Text::from)
        .map_err(|_| Status::bad_request(format!("the value of the header {name} is not UTF-8")))
}

/// Decodes `%xx`; a key that is not well escaped stays as it is.
fn unescape(key: &str) -> Result<Text, Status> {
    let mut out = Vec::with_capacity(key.len());
    let mut bytes = key.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16));
        match (digit(bytes.next()), digit(bytes.next())) {
            (Some(high), Some(low)) => out.push((high * 16 + low) as u8),
            _ => return Ok(key.into()),
        }
    }
    let not_text = |_| Status::bad_request(format!("the key of the header {EXTRA}{key} is not UTF-8"));
    String::from_utf8(out).map(Text::from).map_err(not_text)
}

fn node_of(name: &str) -> Option<&str> {
    name.strip_prefix("system:node:").filter(|n| names::name_subdomain(n, false).is_empty())
}

fn account_of(name: &str) -> Option<(&str, &str)> {
    let (namespace, account) = name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let good =
        names::name_label(namespace, false).is_empty() && names::name_subdomain(account, false).is_empty();
    good.then_some((namespace, account))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn applies(self, wanted: &UserInfo, caller: &UserInfo) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        match self {
            Self::AssociatedNode => only_name
                && account_of(&caller.name).is_some()
                && node_of(&wanted.name).is_some_and(
                    |node| matches!(caller.extra.get(NODE_NAME).map(Vec::as_slice), Some([n]) if n == node),
                ),
            Self::ArbitraryNode => only_name && node_of(&wanted.name).is_some(),
            Self::ServiceAccount => only_name && account_of(&wanted.name).is_some(),
            Self::UserInfo => node_of(&wanted.name).is_none() && account_of(&wanted.name).is_none(),
            Self::Legacy => true,
        }
    }

    async fn check(
        self,
        wanted: &UserInfo,
        caller: &UserInfo,
        info: &RequestInfo,
        authorizer: &UnionAuthorizer,
    ) -> Result<UserInfo, Status> {
        // An association was proved by the caller's token; the rule is asked for every node at once,
        // and only the names of the caller's extra fields may matter to it.
        let stripped;
        let caller: &UserInfo = if self == Self::AssociatedNode {
            let keys = caller.extra.keys().cloned().collect();
            let key = Text::from("authentication.kubernetes.io/associated-node-keys");
            stripped = UserInfo { extra: BTreeMap::from([(key, keys)]), ..caller.clone() };
            &stripped
        } else {
            caller
        };
        let constrained = self != Self::Legacy;
        if constrained {
            let verb = format!("impersonate-on:{}:{}", self.name(), info.verb);
            authorizer.require(caller, &Access { verb: &verb, ..Access::from(info) }).await?;
        }
        let verb = if constrained { format!("impersonate:{}", self.name()) } else { "impersonate".into() };
        let names_group = if constrained { AUTHENTICATION } else { "" };
        let base = Access { is_resource: true, verb: &verb, ..Access::default() };
        let mut user = wanted.clone();

        let mut who = Access { group: names_group, resource: "users", name: &wanted.name, ..base };
        if constrained && let Some(node) = node_of(&wanted.name) {
            who.resource = "nodes";
            who.name = if self == Self::AssociatedNode { "*" } else { node };
            user.groups = vec!["system:nodes".into()];
        }
        if let Some((namespace, account)) = account_of(&wanted.name) {
            (who.resource, who.namespace, who.name) = ("serviceaccounts", namespace, account);
            if wanted.groups.is_empty() {
                user.groups = vec![
                    "system:serviceaccounts".into(),
                    format_compact!("system:serviceaccounts:{namespace}"),
                ];
            }
        }
        authorizer.require(caller, &who).await?;

        if !wanted.uid.is_empty() {
            let uid = Access { group: AUTHENTICATION, resource: "uids", name: &wanted.uid, ..base };
            authorizer.require(caller, &uid).await?;
        }

        let groups = Access { group: names_group, resource: "groups", ..base };
        if constrained && wanted.groups.iter().any(|g| g.is_empty()) {
            return Err(forbidden(caller, &groups, "impersonating the empty string group is not allowed"));
        }
        if constrained && wanted.groups.iter().any(|g| g == SUPERUSERS) {
            let access = Access { name: SUPERUSERS, ..groups };
            return Err(forbidden(caller, &access, "impersonating the system:masters group is not allowed"));
        }
        for group in &wanted.groups {
            authorizer.require(caller, &Access { name: group, ..groups }).await?;
        }

        let extras = Access { group: AUTHENTICATION, resource: "userextras", ..base };
        for (key, values) in &wanted.extra {
            if constrained && let Some(why) = extra_error(key, values) {
                return Err(forbidden(caller, &extras, &why));
            }
            for value in values {
                authorizer.require(caller, &Access { subresource: key, name: value, ..extras }).await?;
            }
        }

        let has = |user: &UserInfo, group: &str| user.groups.iter().any(|g| g == group);
        let everybody = if user.name == "system:anonymous" {
            Some(UNAUTHENTICATED)
        } else {
            (!has(&user, UNAUTHENTICATED)).then_some(AUTHENTICATED)
        };
        if let Some(group) = everybody.filter(|g| !has(&user, g)) {
            user.groups.push(group.into());
        }
        Ok(user)
    }
}

fn extra_error(key: &str, values: &[Text]) -> Option<String> {
    let (domain, path) = key.split_once('/').unwrap_or((key, ""));
    if key.is_empty() {
        Some("impersonating the empty string key in extra is not allowed".into())
    } else if path.is_empty() || !names::name_subdomain(domain, false).is_empty() {
        Some(format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {key:?}: must be a domain-prefixed path (such as \"acme.io/foo\")"
        ))
    } else if key.chars().any(char::is_uppercase) {
        Some(format!("impersonating a non-lowercase key in extra is not allowed: {key:?}"))
    } else if values.iter().any(|v| v.is_empty()) {
        Some("impersonating the empty string value in extra is not allowed".into())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;
    use crate::auth::AuthorizationMode;
    use crate::auth::rbac::{Binding, Change, RbacIndex, Role, RoleRef, Rule, Subject};

    fn authorizer() -> UnionAuthorizer {
        let rbac = RbacIndex::default();
        let grant = |user: &str, rules: Vec<Rule>| {
            rbac.apply([
                Change::Role("".into(), user.into(), Some(Role { rules })),
                Change::Binding(
                    "".into(),
                    user.into(),
                    Some(Binding {
                        name: user.into(),
                        namespace: "".into(),
                        subjects: vec![Subject {
                            kind: "User".into(),
                            name: user.into(),
                            ..Subject::default()
                        }],
                        role_ref: RoleRef {
                            kind: "ClusterRole".into(),
                            name: user.into(),
                            api_group: "".into(),
                        },
                    }),
                ),
            ]);
        };
        let named = |rule: Rule, name: &str| Rule { resource_names: vec![name.into()], ..rule };
        grant(
            "legacy",
            vec![
                named(Rule::resources(&["impersonate"], "", &["users"]), "bob"),
                Rule::resources(&["impersonate"], "", &["serviceaccounts", "groups"]),
                Rule::resources(&["impersonate"], AUTHENTICATION, &["userextras/scopes"]),
            ],
        );
        grant(
            "constrained",
            vec![
                Rule::resources(&["impersonate:user-info"], AUTHENTICATION, &["users", "groups"]),
                Rule::resources(&["impersonate-on:user-info:list"], "", &["pods"]),
            ],
        );
        UnionAuthorizer::new(&[AuthorizationMode::Rbac], Arc::default(), Arc::new(rbac))
    }

    fn map(headers: &[(&str, &[u8])]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_bytes(value).unwrap(),
            );
        }
        map
    }

    async fn ask(
        caller: &str,
        verb: &'static str,
        headers: &[(&str, &str)],
    ) -> Result<Option<String>, String> {
        let map = map(&headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect::<Vec<_>>());
        let user = UserInfo { name: caller.into(), ..UserInfo::default() };
        let info = RequestInfo { is_resource: true, verb, resource: "pods".into(), ..RequestInfo::default() };
        let answered = match wanted(&map) {
            Ok(Some(wanted)) => impersonate(wanted, &user, &info, &authorizer()).await.map(Some),
            Ok(None) => Ok(None),
            Err(status) => Err(status),
        };
        answered.map(|u| u.map(|u| format!("{} {:?} {:?}", u.name, u.groups, u.extra))).map_err(|s| s.message)
    }

    #[tokio::test]
    async fn ways() {
        let user = |u: &'static str| ("Impersonate-User", u);
        assert_eq!(ask("legacy", "list", &[]).await, Ok(None));
        assert_eq!(
            ask("legacy", "list", &[user("bob")]).await,
            Ok(Some("bob [\"system:authenticated\"] {}".into()))
        );
        assert_eq!(
            ask(
                "legacy",
                "list",
                &[user("bob"), ("Impersonate-Group", "g"), ("Impersonate-Extra-Scopes", "a")]
            )
            .await,
            Ok(Some("bob [\"g\", \"system:authenticated\"] {\"scopes\": [\"a\"]}".into()))
        );
        assert_eq!(
            ask("legacy", "list", &[user("system:serviceaccount:a:b")]).await,
            Ok(Some("system:serviceaccount:a:b [\"system:serviceaccounts\", \"system:serviceaccounts:a\", \"system:authenticated\"] {}".into()))
        );
        assert_eq!(
            ask("constrained", "list", &[user("eve"), ("Impersonate-Group", "g")]).await,
            Ok(Some("eve [\"g\", \"system:authenticated\"] {}".into()))
        );
        assert_eq!(
            ask("constrained", "get", &[user("eve")]).await,
            Err("pods is forbidden: User \"constrained\" cannot impersonate-on:user-info:get resource \"pods\" in API group \"\" at the cluster scope".into())
        );
        assert_eq!(
            ask("constrained", "list", &[user("eve"), ("Impersonate-Group", "system:masters")]).await,
            Err("groups.authentication.k8s.io \"system:masters\" is forbidden: User \"constrained\" cannot impersonate:user-info resource \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating the system:masters group is not allowed".into())
        );
        assert_eq!(
            ask("legacy", "list", &[("Impersonate-Group", "g")]).await,
            Err("requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"g\"}, Extra:map[string][]string(nil)} without impersonating a user name".into())
        );
    }

    #[test]
    fn escaped_keys() {
        for (given, want) in [
            ("scopes", Some("scopes")),
            ("acme.com%2fproject", Some("acme.com/project")),
            ("m%c3%bcller", Some("müller")),
            ("a%2", Some("a%2")),
            ("%ff", None),
        ] {
            assert_eq!(unescape(given).ok().as_deref(), want);
        }
    }

    #[test]
    fn no_header_is_ignored() {
        type Named<'a> = Option<(&'a str, &'a str, &'a [&'a str])>;
        let check = |headers: &[(&str, &[u8])], expected: Result<Named<'_>, &str>| {
            let got = wanted(&map(headers));
            let got = got.as_ref().map_err(|status| (status.code, status.message.as_str())).map(|user| {
                user.as_ref().map(|user| {
                    let groups: Vec<_> = user.groups.iter().map(Text::as_str).collect();
                    (user.name.as_str(), user.uid.as_str(), groups)
                })
            });
            let expected = expected.map_err(|message| (400, message));
            let expected = expected.map(|user| user.map(|(name, uid, groups)| (name, uid, groups.to_vec())));
            assert_eq!(got, expected, "{headers:?}");
        };
        const BOB: (&str, &[u8]) = (USER, b"bob");
        check(&[("accept", b"*/*")], Ok(None));
        check(&[(USER, "müller".as_bytes())], Ok(Some(("müller", "", &[]))));
        check(
            &[BOB, (UID, "ü".as_bytes()), (GROUP, "\u{1f980}".as_bytes()), (GROUP, b"")],
            Ok(Some(("bob", "ü", &["\u{1f980}", ""]))),
        );
        for name in [USER, UID, GROUP, "impersonate-extra-a"] {
            let message = format!("the value of the header {name} is not UTF-8");
            check(&[BOB, (name, b"m\xfcller")], Err(&message));
        }
        check(
            &[BOB, ("impersonate-extra-%fc", b"a")],
            Err("the key of the header impersonate-extra-%fc is not UTF-8"),
        );
        // As upstream's: the first of several; an empty name is none.
        check(&[BOB, (USER, b"eve"), (UID, b"1"), (UID, b"2")], Ok(Some(("bob", "1", &[]))));
        check(&[(USER, b"")], Ok(None));
        check(&[(USER, b""), BOB], Ok(None));
        check(&[(USER, b""), (UID, b"")], Ok(None));
        let without =
            |what: &str| format!("requested &user.DefaultInfo{{{what}}} without impersonating a user name");
        check(
            &[(USER, b""), (GROUP, b"")],
            Err(&without("Name:\"\", UID:\"\", Groups:[]string{\"\"}, Extra:map[string][]string(nil)")),
        );
        check(
            &[("impersonate-extra-a", b"")],
            Err(&without(
                "Name:\"\", UID:\"\", Groups:[]string(nil), Extra:map[string][]string{\"a\":[]string{\"\"}}",
            )),
        );
    }
}
