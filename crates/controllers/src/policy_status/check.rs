//! The types of a policy's expressions (upstream: `policy/validating/typechecking.go`).

use std::sync::Arc;

use api::Gvk;
use cel::admission::{Composed, Parts, admission, with_composed};
use cel::schema::{Declared, Definition, Registry, declare};
use cel::{CompileError, Environment, Type, Version};
use serde::Deserialize;

/// The greatest number of kinds of one rule by which an expression is checked; upstream's.
pub(super) const MOST_KINDS: usize = 10;

/// The spec of a policy, as far as its types go.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    param_kind: Option<ParamKind>,
    match_constraints: Option<Constraints>,
    variables: Vec<Variable>,
    validations: Vec<Validation>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ParamKind {
    api_version: String,
    kind: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Constraints {
    resource_rules: Vec<Rule>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    api_groups: Vec<String>,
    api_versions: Vec<String>,
    resources: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Variable {
    name: String,
    expression: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Validation {
    expression: String,
    message_expression: String,
}

/// A group, a version and a plural name.
pub(super) type Plural = (String, String, String);

impl Spec {
    /// The kind of the parameters.
    pub(super) fn params(&self) -> Option<Gvk> {
        let ParamKind { api_version, kind } = self.param_kind.as_ref()?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Some(Gvk::new(group, version, kind))
    }
    /// The resources of each rule, in order. A rule for any group or version says nothing of types, nor does a
    /// subresource.
    pub(super) fn resources(&self) -> Vec<Vec<Plural>> {
        let rules = self.match_constraints.iter().flat_map(|c| &c.resource_rules);
        rules
            .filter(|rule| {
                ![&rule.api_groups, &rule.api_versions].into_iter().flatten().any(|t| t.contains('*'))
            })
            .map(|rule| {
                let sorted = |of: &[String]| {
                    let mut of = of.to_vec();
                    of.sort();
                    of
                };
                let mut out = Vec::new();
                for group in sorted(&rule.api_groups) {
                    for version in sorted(&rule.api_versions) {
                        let named = sorted(&rule.resources).into_iter().filter(|r| !r.contains(['*', '/']));
                        out.extend(named.map(|r| (group.clone(), version.clone(), r)));
                    }
                }
                out
            })
            .collect()
    }
}

/// The faults of the types of a policy's expressions, by the paths of their fields. `types` are the definitions of
/// the kinds that it matches, in order; `params` is that of its parameters, if it has a kind that is known.
pub(super) fn warnings(
    spec: &Spec,
    types: &[(Gvk, Definition)],
    params: Option<&Definition>,
) -> Vec<(String, String)> {
    let declared = |definition: &Definition, name: &str| declare(definition, name, true);
    let params = params.and_then(|definition| declared(definition, "params.kind"));
    let environments: Vec<(&Gvk, Environment)> = types
        .iter()
        .map(|(kind, definition)| {
            let object = declared(definition, &format!("object.{}", kind.kind));
            (kind, environment(spec, object, params.clone()))
        })
        .collect();
    let check = |expression: &str| {
        let texts = environments.iter().filter_map(|(kind, env)| match env.compile(expression) {
            Err(CompileError::Issues(issues)) => {
                let Gvk { group, version, kind } = kind;
                let version =
                    if group.is_empty() { format!("/{version}") } else { format!("{group}/{version}") };
                Some(format!("{version}, Kind={kind}: {issues}\n"))
            }
            // A constant of which no value can be made is no fault of types.
            Ok(_) | Err(CompileError::Constant(_)) => None,
        });
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    };
    let mut out = Vec::new();
    for (i, validation) in spec.validations.iter().enumerate() {
        let fields =
            [("expression", &validation.expression), ("messageExpression", &validation.message_expression)];
        for (field, expression) in
            fields.into_iter().filter(|(field, e)| *field == "expression" || !e.is_empty())
        {
            if let Some(warning) = check(expression) {
                out.push((format!("spec.validations[{i}].{field}"), warning));
            }
        }
    }
    out
}

/// The environment of a policy's expressions where the object is of a type, with its variables.
fn environment(spec: &Spec, object: Option<Arc<Declared>>, params: Option<Arc<Declared>>) -> Environment {
    let parts = Parts { params: spec.params().is_some(), authorizer: true, mutations: false };
    let mut env = admission(Version::STORED, parts);
    let typed = [("object", &object), ("oldObject", &object)];
    for (name, declared) in typed.into_iter().chain([("params", &params)]) {
        if let Some(declared) = declared {
            env = env.with_variable(name, declared.ty.clone());
        }
    }
    for declared in [object, params].into_iter().flatten() {
        env = env.with_objects(Arc::new(Registry::new(declared)));
    }
    let composed = Arc::new(Composed::default());
    let env = with_composed(env, Arc::clone(&composed));
    for Variable { name, expression } in &spec.variables {
        let program = env.compile(expression);
        composed.add(name, program.map_or(Type::Dyn, |program| program.result_type().clone()));
    }
    env
}

#[cfg(test)]
mod tests {
    use cel::schema::Kind;
    use serde_json::{Value, json};

    use super::*;

    fn spec(validations: Value, more: Value) -> Spec {
        let rules = json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}]);
        let mut all = json!({"validations": validations, "matchConstraints": {"resourceRules": rules}});
        for (field, value) in more.as_object().unwrap() {
            all[field] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    fn object(fields: &[(&str, Kind)]) -> Definition {
        let one = |kind| Arc::new(Definition { kind, ..Definition::default() });
        let properties = fields.iter().map(|(name, kind)| ((*name).into(), one(*kind))).collect();
        Definition { kind: Kind::Object, properties: Some(properties), ..Definition::default() }
    }

    /// Expected are the fields and a part of each warning.
    fn check(spec: &Spec, fields: Option<&[(&str, Kind)]>, expected: &[(&str, &str)]) {
        let kind = Gvk::new("apps", "v1", "Deployment");
        let types: Vec<_> = fields.map(|f| (kind, object(f))).into_iter().collect();
        let params = spec.params().and_then(|_| fields.map(object));
        let found = warnings(spec, &types, params.as_ref());
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((field, text), (wanted, part)) in found.iter().zip(expected) {
            assert_eq!(field, wanted);
            assert!(text.contains(part), "{text}");
            assert!(text.starts_with("apps/v1, Kind=Deployment: ERROR: <input>:1:"), "{text}");
            assert!(text.ends_with('\n'), "{text}");
        }
    }

    #[test]
    fn types_are_checked_as_upstreams() {
        // The cases of typechecking_test.go.
        let one = |e: &str| spec(json!([{"expression": e}]), json!({}));
        let foo = one("object.foo == 'bar'");
        let at = "spec.validations[0].expression";
        check(&Spec::default(), None, &[]);
        check(&foo, None, &[]);
        check(&foo, Some(&[("foo", Kind::String)]), &[]);
        check(&foo, Some(&[("bar", Kind::String)]), &[(at, "undefined field 'foo'")]);
        check(&foo, Some(&[("foo", Kind::Integer)]), &[(at, "found no matching overload")]);
        let params = json!({"paramKind": {"apiVersion": "v1", "kind": "DoesNotMatter"}});
        let by_params = spec(json!([{"expression": "object.foo == params.bar"}]), params.clone());
        check(&by_params, Some(&[("foo", Kind::String)]), &[(at, "undefined field 'bar'")]);
        let several = spec(
            json!([{"expression": "object.foo == 'bar'"}, {"expression": "object.bar == 'foo'"}]),
            json!({}),
        );
        let second = "spec.validations[1].expression";
        check(
            &several,
            Some(&[("foo", Kind::Integer)]),
            &[(at, "found no matching overload"), (second, "undefined field 'bar'")],
        );
        let message = spec(
            json!([{"expression": "object.foo == 'bar'", "messageExpression": "object.foo + 114514"}]),
            json!({}),
        );
        check(
            &message,
            Some(&[("foo", Kind::String)]),
            &[(
                "spec.validations[0].messageExpression",
                "found no matching overload for '_+_' applied to '(string, int)'",
            )],
        );
        let asks = "authorizer.group('').resource('endpoints').check('create').allowed()";
        check(&one(asks), Some(&[("foo", Kind::String)]), &[]);
        check(
            &one("authorizer.allowed()"),
            Some(&[("foo", Kind::String)]),
            &[(at, "found no matching overload for 'allowed'")],
        );
        let variables = json!({"variables": [{"name": "foo", "expression": "object.foo"}]});
        let by_variable = |e: &str| spec(json!([{"expression": e}]), variables.clone());
        check(&by_variable("variables.foo == 'a'"), Some(&[("foo", Kind::String)]), &[]);
        check(
            &by_variable("variables.foo == 1"),
            Some(&[("foo", Kind::String)]),
            &[(at, "found no matching overload")],
        );
        check(
            &by_variable("variables.bar == 1"),
            Some(&[("foo", Kind::String)]),
            &[(at, "undefined field 'bar'")],
        );
        check(&one("object.metadata.name == request.name && object.kind == 'x'"), Some(&[]), &[]);
    }

    #[test]
    fn rules_name_resources_in_order() {
        let check = |rules: Value, expected: &[&[&str]]| {
            let spec: Spec =
                serde_json::from_value(json!({"matchConstraints": {"resourceRules": rules}})).unwrap();
            let found: Vec<Vec<String>> = spec
                .resources()
                .into_iter()
                .map(|rule| rule.into_iter().map(|(g, v, r)| format!("{g}/{v}/{r}")).collect())
                .collect();
            assert_eq!(found, expected);
        };
        let rule =
            |g: &[&str], v: &[&str], r: &[&str]| json!({"apiGroups": g, "apiVersions": v, "resources": r});
        check(json!([]), &[]);
        check(json!([rule(&["*"], &["v1"], &["deployments"])]), &[]);
        check(json!([rule(&["apps"], &["*"], &["deployments"])]), &[]);
        check(json!([rule(&["apps"], &["v1"], &["*"])]), &[&[]]);
        check(json!([rule(&["apps"], &["v1"], &["deployments/*"])]), &[&[]]);
        check(
            json!([rule(&["batch", "apps"], &["v1"], &["b", "a"])]),
            &[&["apps/v1/a", "apps/v1/b", "batch/v1/a", "batch/v1/b"]],
        );
    }
}
