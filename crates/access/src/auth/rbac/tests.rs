use super::*;
use crate::auth::Decision;

fn rule(verbs: &str, groups: &str, resources: &str, names: &str, urls: &str) -> Rule {
    let list = |s: &str| {
        s.split(',')
            .filter(|p| !p.is_empty())
            .map(|p| if p == "core" { "".into() } else { p.into() })
            .collect()
    };
    Rule {
        verbs: list(verbs),
        api_groups: list(groups),
        resources: list(resources),
        resource_names: list(names),
        non_resource_urls: list(urls),
    }
}

fn request<'a>(
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
) -> Access<'a> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Access { is_resource: true, verb, group, resource, subresource, namespace, name, ..Access::default() }
}

fn path<'a>(verb: &'a str, path: &'a str) -> Access<'a> {
    Access { verb, path, ..Access::default() }
}

#[test]
fn rules_allow() {
    let cases = [
        (rule("get", "core", "pods", "", ""), request("get", "", "pods", "a", "p"), true),
        (rule("get", "core", "pods", "", ""), request("list", "", "pods", "a", ""), false),
        (rule("get", "core", "pods", "", ""), request("get", "apps", "pods", "a", "p"), false),
        (rule("get", "core", "pods", "", ""), request("get", "", "pods/log", "a", "p"), false),
        (rule("get", "core", "pods/log", "", ""), request("get", "", "pods/log", "a", "p"), true),
        (rule("get", "core", "pods/log", "", ""), request("get", "", "pods", "a", "p"), false),
        (rule("*", "*", "*/scale", "", ""), request("update", "apps", "deployments/scale", "a", "d"), true),
        (rule("*", "*", "*/scale", "", ""), request("update", "apps", "deployments/status", "a", "d"), false),
        (rule("*", "*", "*/scale", "", ""), request("update", "apps", "scale", "a", "d"), false),
        (rule("*", "*", "*", "", ""), request("escalate", "x", "y/z", "", ""), true),
        (rule("get", "core", "secrets", "one,two", ""), request("get", "", "secrets", "a", "two"), true),
        (rule("get", "core", "secrets", "one,two", ""), request("get", "", "secrets", "a", "three"), false),
        (rule("list", "core", "secrets", "one", ""), request("list", "", "secrets", "a", ""), false),
        (rule("*", "*", "*", "", ""), path("get", "/healthz"), false),
        (rule("get", "", "", "", "/healthz"), path("get", "/healthz"), true),
        (rule("get", "", "", "", "/healthz"), path("get", "/healthz/etcd"), false),
        (rule("get", "", "", "", "/healthz/*"), path("get", "/healthz/etcd"), true),
        (rule("get", "", "", "", "/healthz*"), path("get", "/healthz"), true),
        (rule("get", "", "", "", "*"), path("get", "/anything"), true),
        (rule("get", "", "", "", "/apis/*"), path("post", "/apis/x"), false),
    ];
    for (rule, request, want) in cases {
        assert_eq!(rule.allows(&request), want, "{rule:?} {request:?}");
    }
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        name: name.into(),
        groups: groups.iter().map(|g| Text::from(*g)).collect(),
        ..UserInfo::default()
    }
}

fn subject(kind: &str, name: &str, namespace: &str) -> Subject {
    Subject { kind: kind.into(), name: name.into(), namespace: namespace.into(), api_group: "".into() }
}

fn binding(name: &str, namespace: &str, role_kind: &str, role: &str, subjects: Vec<Subject>) -> Change {
    let role_ref = RoleRef { api_group: GROUP.into(), kind: role_kind.into(), name: role.into() };
    let binding = Binding { name: name.into(), namespace: namespace.into(), subjects, role_ref };
    Change::Binding(namespace.into(), name.into(), Some(binding))
}

fn role(namespace: &str, name: &str, rules: Vec<Rule>) -> Change {
    Change::Role(namespace.into(), name.into(), Some(Role { rules }))
}

fn index() -> RbacIndex {
    let index = RbacIndex::default();
    index.reset([
        role("", "admin", vec![rule("*", "*", "*", "", "")]),
        role("", "public", vec![rule("get", "", "", "", "/version")]),
        role("a", "reader", vec![rule("get,list", "core", "pods", "", "")]),
        binding("admins", "", "ClusterRole", "admin", vec![subject("Group", "admins", "")]),
        binding("all", "", "ClusterRole", "public", vec![subject("Group", "system:authenticated", "")]),
        binding("b-admin", "b", "ClusterRole", "admin", vec![subject("User", "bob", "")]),
        binding(
            "readers",
            "a",
            "Role",
            "reader",
            vec![
                subject("User", "bob", ""),
                subject("ServiceAccount", "default", ""),
                subject("ServiceAccount", "robot", "b"),
            ],
        ),
        binding("lost", "c", "Role", "gone", vec![subject("User", "bob", "")]),
    ]);
    index
}

#[test]
fn decisions() {
    let pods = |ns: &'static str| request("get", "", "pods", ns, "p");
    let cases = [
        (
            user("ann", &["admins"]),
            pods("x"),
            Ok("ClusterRoleBinding \"admins\" of ClusterRole \"admin\" to Group \"admins\""),
        ),
        (user("bob", &[]), pods("a"), Ok("RoleBinding \"readers/a\" of Role \"reader\" to User \"bob\"")),
        (
            user("bob", &[]),
            pods("b"),
            Ok("RoleBinding \"b-admin/b\" of ClusterRole \"admin\" to User \"bob\""),
        ),
        (user("bob", &[]), pods(""), Err("")),
        (user("bob", &[]), pods("c"), Err("RBAC: role.rbac.authorization.k8s.io \"gone\" not found")),
        (
            user("system:serviceaccount:a:default", &[]),
            pods("a"),
            Ok("RoleBinding \"readers/a\" of Role \"reader\" to ServiceAccount \"default/a\""),
        ),
        (
            user("system:serviceaccount:b:robot", &[]),
            pods("a"),
            Ok("RoleBinding \"readers/a\" of Role \"reader\" to ServiceAccount \"robot/b\""),
        ),
        (user("system:serviceaccount:a:robot", &[]), pods("a"), Err("")),
        (
            user("eve", &["system:authenticated"]),
            path("get", "/version"),
            Ok("ClusterRoleBinding \"all\" of ClusterRole \"public\" to Group \"system:authenticated\""),
        ),
        (user("eve", &["system:unauthenticated"]), path("get", "/version"), Err("")),
    ];
    let index = index();
    for (user, request, want) in cases {
        let want = match want {
            Ok(source) => Decision::Allow(format!("RBAC: allowed by {source}")),
            Err(reason) => Decision::NoOpinion(reason.into()),
        };
        assert_eq!(index.decision(&user, &request), want, "{user:?} {request:?}");
    }
}

#[test]
fn changes_are_followed() {
    let index = index();
    let bob = user("bob", &[]);
    let get = request("get", "", "pods", "a", "p");
    index.apply([binding("readers", "a", "Role", "reader", vec![subject("User", "eve", "")])]);
    assert!(matches!(index.decision(&bob, &get), Decision::NoOpinion(_)));
    assert!(matches!(index.decision(&user("eve", &[]), &get), Decision::Allow(_)));
    index.apply([Change::Role("a".into(), "reader".into(), None)]);
    assert!(matches!(index.decision(&user("eve", &[]), &get), Decision::NoOpinion(_)));
    index.apply([Change::Binding("b".into(), "b-admin".into(), None)]);
    assert_eq!(index.rules_for(&bob, "b").0, vec![]);
}

#[test]
fn coverage() {
    let cases = [
        (vec![rule("*", "*", "*", "", "")], vec![rule("get", "core", "pods/log", "x", "")], 0),
        (vec![rule("get", "core", "pods", "", "")], vec![rule("get,list", "core", "pods", "", "")], 1),
        (vec![rule("get", "core", "pods", "x", "")], vec![rule("get", "core", "pods", "", "")], 1),
        (vec![rule("get", "core", "pods", "", "")], vec![rule("get", "core", "pods", "x,y", "")], 0),
        (vec![rule("get", "core", "*/log", "", "")], vec![rule("get", "core", "pods/log,pods", "", "")], 1),
        (vec![rule("get", "", "", "", "/a/*")], vec![rule("get", "", "", "", "/a/b,/b")], 1),
        (
            vec![rule("get", "core", "pods", "", ""), rule("list", "core", "pods", "", "")],
            vec![rule("get,list", "core", "pods", "", "")],
            0,
        ),
    ];
    for (owned, wanted, want) in cases {
        assert_eq!(missing(&owned, &wanted).unwrap().len(), want, "{owned:?} {wanted:?}");
    }
    // The product of these parts is too great to be listed.
    let many = |n: usize| (0..n).map(|i| api::Text::from(format!("x{i}"))).collect::<Vec<_>>();
    let huge = Rule { verbs: many(1000), api_groups: many(1000), resources: many(1000), ..Rule::default() };
    let why = missing(&[], &[huge]).unwrap_err();
    assert_eq!(why, "the rules have 1000000000 parts, of which at most 50000 can be compared");
    let lacking =
        missing(&[], &[rule("get,list", "core", "pods", "", ""), rule("get", "", "", "", "/x")]).unwrap();
    assert_eq!(
        refusal(&user("bob", &["g", "h"]), lacking, None),
        "user \"bob\" (groups=[\"g\" \"h\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}\n\
         {NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}"
    );
}

/// A comparison of each subject with all before it would take many minutes.
#[test]
fn a_binding_may_name_very_many() {
    let subjects = (0..200_000).map(|i| subject("User", &format!("user-{i}"), "")).collect();
    let index = RbacIndex::default();
    index.reset([
        role("a", "reader", vec![rule("get,list", "core", "pods", "", "")]),
        binding("crowd", "a", "Role", "reader", subjects),
    ]);
    let verdict = |name: &str| index.decision(&user(name, &[]), &request("get", "", "pods", "a", "p"));
    assert!(matches!(verdict("user-199999"), Decision::Allow(_)));
    assert_eq!(verdict("user-200000"), Decision::NoOpinion(String::new()));
    index.apply([Change::Binding("a".into(), "crowd".into(), None)]);
    assert_eq!(verdict("user-1"), Decision::NoOpinion(String::new()));
}
