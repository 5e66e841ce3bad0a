//! Which flow schema a request matches: by its user, and by what it asks.

use access::{RequestInfo, UserInfo};
use api::Text;
use k8s_openapi::api::flowcontrol::v1::{
    FlowSchemaSpec, NonResourcePolicyRule, PolicyRulesWithSubjects, ResourcePolicyRule, Subject as ApiSubject,
};

/// Names, or any.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Names {
    Any,
    Of(Box<[Text]>),
}

impl Names {
    /// `*` stands for any where it stands alone; validation lets it stand nowhere else.
    fn new(names: &[String]) -> Self {
        match names {
            [any] if any == "*" => Self::Any,
            _ => Self::Of(names.iter().map(Into::into).collect()),
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Of(names) => names.iter().any(|n| n == name),
        }
    }

    /// The same for a resource with a subresource.
    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        if subresource.is_empty() {
            return self.has(resource);
        }
        let is = |name: &Text| name.split_once('/') == Some((resource, subresource));
        match self {
            Self::Any => true,
            Self::Of(names) => names.iter().any(is),
        }
    }
}

/// Some users.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Everybody,
    User(Text),
    Group(Text),
    /// A namespace, and a name there or all.
    ServiceAccount(Text, Option<Text>),
}

/// The beginning of the user names of service accounts.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

impl Subject {
    /// None if it names nobody.
    fn new(subject: &ApiSubject) -> Option<Self> {
        match subject.kind.as_str() {
            "User" => Some(match subject.user.as_ref()?.name.as_str() {
                "*" => Self::Everybody,
                name => Self::User(name.into()),
            }),
            "Group" => Some(match subject.group.as_ref()?.name.as_str() {
                "*" => Self::Everybody,
                name => Self::Group(name.into()),
            }),
            "ServiceAccount" => {
                let account = subject.service_account.as_ref()?;
                let name = (account.name != "*").then(|| account.name.as_str().into());
                Some(Self::ServiceAccount(account.namespace.as_str().into(), name))
            }
            _ => None,
        }
    }

    fn is(&self, user: &UserInfo) -> bool {
        match self {
            Self::Everybody => true,
            Self::User(name) => user.name == *name,
            Self::Group(name) => user.groups.contains(name),
            Self::ServiceAccount(namespace, name) => {
                let account = user.name.strip_prefix(SERVICE_ACCOUNT).and_then(|a| a.split_once(':'));
                account.is_some_and(|(of, account)| {
                    of == namespace && name.as_ref().is_none_or(|n| n == account)
                })
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    resources: Names,
    namespaces: Names,
    /// Requests in no namespace match, too.
    cluster: bool,
}

impl ResourceRule {
    fn new(rule: &ResourcePolicyRule) -> Self {
        Self {
            verbs: Names::new(&rule.verbs),
            groups: Names::new(&rule.api_groups),
            resources: Names::new(&rule.resources),
            namespaces: Names::new(rule.namespaces.as_deref().unwrap_or_default()),
            cluster: rule.cluster_scope.unwrap_or_default(),
        }
    }

    fn is(&self, info: &RequestInfo) -> bool {
        let namespace =
            if info.namespace.is_empty() { self.cluster } else { self.namespaces.has(&info.namespace) };
        namespace
            && self.verbs.has(info.verb)
            && self.resources.has_resource(&info.resource, &info.subresource)
            && self.groups.has(&info.group)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PathRule {
    verbs: Names,
    paths: Box<[Text]>,
}

impl PathRule {
    fn new(rule: &NonResourcePolicyRule) -> Self {
        let paths = rule.non_resource_urls.iter().map(Into::into).collect();
        Self { verbs: Names::new(&rule.verbs), paths }
    }

    fn is(&self, info: &RequestInfo) -> bool {
        // A path stands for all below it, with `*` at its end or without.
        let below = |path: &str| {
            let path = path.strip_suffix('*').unwrap_or(path);
            let rest = info.path.strip_prefix(path);
            rest.is_some_and(|rest| path.ends_with('/') || rest.starts_with('/'))
        };
        self.verbs.has(info.verb) && self.paths.iter().any(|p| p == "*" || *p == info.path || below(p))
    }
}

/// The requests of some users.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    subjects: Box<[Subject]>,
    resources: Box<[ResourceRule]>,
    paths: Box<[PathRule]>,
}

impl Rule {
    fn new(rule: &PolicyRulesWithSubjects) -> Self {
        let resources = rule.resource_rules.as_deref().unwrap_or_default();
        let paths = rule.non_resource_rules.as_deref().unwrap_or_default();
        Self {
            subjects: rule.subjects.iter().filter_map(Subject::new).collect(),
            resources: resources.iter().map(ResourceRule::new).collect(),
            paths: paths.iter().map(PathRule::new).collect(),
        }
    }

    fn is(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        self.subjects.iter().any(|subject| subject.is(user))
            && if info.is_resource {
                self.resources.iter().any(|rule| rule.is(info))
            } else {
                self.paths.iter().any(|rule| rule.is(info))
            }
    }
}

/// The mark that tells the flows of a schema from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distinguisher {
    /// Nothing: they are one.
    Nothing,
    /// The user.
    User,
    /// The namespace.
    Namespace,
}

impl Distinguisher {
    /// The part of a request that tells its flow from others.
    pub(super) fn of<'r>(self, user: &'r UserInfo, info: &'r RequestInfo) -> &'r str {
        match self {
            Self::Nothing => "",
            Self::User => &user.name,
            Self::Namespace => &info.namespace,
        }
    }
}

/// The requests that match a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Matcher {
    rules: Box<[Rule]>,
    /// The mark that tells its flows from each other.
    pub(super) distinguisher: Distinguisher,
}

impl Matcher {
    /// Of a schema.
    pub(super) fn new(spec: &FlowSchemaSpec) -> Self {
        let rules = spec.rules.as_deref().unwrap_or_default();
        let distinguisher = match spec.distinguisher_method.as_ref().map(|m| m.type_.as_str()) {
            Some("ByUser") => Distinguisher::User,
            Some("ByNamespace") => Distinguisher::Namespace,
            _ => Distinguisher::Nothing,
        };
        Self { rules: rules.iter().map(Rule::new).collect(), distinguisher }
    }

    /// Whether a request matches.
    pub(super) fn is(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        self.rules.iter().any(|rule| rule.is(user, info))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn user(name: &str, groups: &[&str]) -> UserInfo {
        let groups = groups.iter().map(|g| (*g).into()).collect();
        UserInfo { name: name.into(), groups, ..UserInfo::default() }
    }

    fn matches(rule: &Value, user: &UserInfo, info: &RequestInfo) -> bool {
        let spec = json!({
            "matchingPrecedence": 1, "priorityLevelConfiguration": {"name": "l"}, "rules": [rule],
        });
        Matcher::new(&serde_json::from_value(spec).unwrap()).is(user, info)
    }

    fn resource(namespace: &str, subresource: &str) -> RequestInfo {
        RequestInfo {
            is_resource: true,
            verb: "update",
            group: "goodapig".into(),
            namespace: namespace.into(),
            resource: "goodrscs".into(),
            subresource: subresource.into(),
            name: "eman".into(),
            ..RequestInfo::default()
        }
    }

    /// A rule with some of its parts changed.
    fn rule(subject: Value, parts: &[(&str, Value)]) -> Value {
        let mut rule = json!({
            "verbs": ["update"], "apiGroups": ["goodapig"], "resources": ["goodrscs"], "namespaces": ["goodns"],
        });
        for (name, value) in parts {
            rule[*name] = value.clone();
        }
        json!({"subjects": [subject], "resourceRules": [rule]})
    }

    fn named(kind: &str, name: &str) -> Value {
        match kind {
            "User" => json!({"kind": kind, "user": {"name": name}}),
            "Group" => json!({"kind": kind, "group": {"name": name}}),
            _ => {
                let (namespace, name) = name.split_once('/').unwrap();
                json!({"kind": kind, "serviceAccount": {"namespace": namespace, "name": name}})
            }
        }
    }

    /// Upstream's `TestLiterals`.
    #[test]
    fn rules_for_resources() {
        let good = user("goodu", &["goodg1", "goodg2"]);
        let check = |expected: bool, at: &RequestInfo, subject: Value, parts: &[(&str, Value)]| {
            let rule = rule(subject, parts);
            assert_eq!(matches(&rule, &good, at), expected, "{rule}");
        };
        let (in_ns, cluster) = (resource("goodns", ""), resource("", ""));
        for (kind, name) in [("User", "goodu"), ("Group", "goodg1"), ("User", "*"), ("Group", "*")] {
            check(true, &in_ns, named(kind, name), &[]);
        }
        for part in ["verbs", "apiGroups", "resources", "namespaces"] {
            check(true, &in_ns, named("User", "goodu"), &[(part, json!(["*"]))]);
            check(
                true,
                &in_ns,
                named("User", "goodu"),
                &[(
                    part,
                    json!([
                        "x",
                        if part == "verbs" {
                            "update"
                        } else {
                            match part {
                                "apiGroups" => "goodapig",
                                "resources" => "goodrscs",
                                _ => "goodns",
                            }
                        }
                    ]),
                )],
            );
            check(false, &in_ns, named("User", "goodu"), &[(part, json!(["bad"]))]);
        }
        check(false, &in_ns, named("User", "badu"), &[]);
        check(false, &in_ns, named("Group", "badg"), &[]);
        check(false, &in_ns, named("ServiceAccount", "goodns/goodu"), &[]);
        check(false, &in_ns, json!({"kind": "User"}), &[]);
        let scope = ("clusterScope", json!(true));
        for part in ["verbs", "apiGroups", "resources"] {
            check(true, &cluster, named("User", "goodu"), &[scope.clone(), (part, json!(["*"]))]);
            check(false, &cluster, named("User", "goodu"), &[scope.clone(), (part, json!(["bad"]))]);
        }
        check(true, &cluster, named("User", "goodu"), std::slice::from_ref(&scope));
        check(false, &cluster, named("User", "goodu"), &[("namespaces", json!(["*"]))]);
        check(false, &resource("badns", ""), named("User", "goodu"), &[scope]);
        let status = resource("goodns", "status");
        check(false, &status, named("User", "goodu"), &[]);
        check(true, &status, named("User", "goodu"), &[("resources", json!(["goodrscs/status"]))]);
        check(true, &status, named("User", "goodu"), &[("resources", json!(["*"]))]);
        check(false, &in_ns, named("User", "goodu"), &[("resources", json!(["goodrscs/status"]))]);
    }

    #[test]
    fn rules_for_paths() {
        let good = user("goodu", &[]);
        let check = |expected: bool, path: &str, urls: &[&str], verbs: &[&str]| {
            let rule = json!({
                "subjects": [named("User", "goodu")],
                "nonResourceRules": [{"verbs": verbs, "nonResourceURLs": urls}],
            });
            let at = RequestInfo { path: path.into(), verb: "get", ..RequestInfo::default() };
            assert_eq!(matches(&rule, &good, &at), expected, "{path} {urls:?}");
        };
        let get = &["get"][..];
        check(true, "/openapi/v2", &["/openapi/v2"], get);
        check(true, "/openapi/v2", &["/openapi/v2"], &["*"]);
        check(true, "/openapi/v2", &["*"], get);
        check(false, "/openapi/v2", &["/openapi/v2"], &["badverb"]);
        check(false, "/openapi/v2", &["/closedapi/v2"], get);
        check(true, "/openapi/v2", &["/x", "/openapi/*"], get);
        check(true, "/openapi/v2", &["/openapi"], get);
        check(true, "/openapi/v2", &["/openapi/"], get);
        check(false, "/openapis", &["/openapi"], get);
        check(false, "/openapis", &["/openapi*"], get);
        check(false, "/openapi", &["/openapi/*"], get);
    }

    #[test]
    fn service_accounts() {
        let check = |expected: bool, name: &str, account: &str| {
            let rule = rule(named("ServiceAccount", account), &[]);
            assert_eq!(
                matches(&rule, &user(name, &[]), &resource("goodns", "")),
                expected,
                "{name} {account}"
            );
        };
        check(true, "system:serviceaccount:a:b", "a/b");
        check(true, "system:serviceaccount:a:b", "a/*");
        check(false, "system:serviceaccount:a:c", "a/b");
        check(false, "system:serviceaccount:ab:c", "a/*");
        check(false, "system:serviceaccount:a", "a/*");
        check(false, "a:b", "a/*");
    }

    #[test]
    fn flows_of_a_schema() {
        let check = |method: Value, expected: &str| {
            let mut spec = json!({"matchingPrecedence": 1, "priorityLevelConfiguration": {"name": "l"}});
            spec["distinguisherMethod"] = method;
            let matcher = Matcher::new(&serde_json::from_value(spec).unwrap());
            let info = resource("goodns", "");
            assert_eq!(matcher.distinguisher.of(&user("goodu", &[]), &info), expected);
        };
        check(json!({"type": "ByUser"}), "goodu");
        check(json!({"type": "ByNamespace"}), "goodns");
        check(Value::Null, "");
    }
}
