//! The rules of a definition in the expression language (`x-kubernetes-validations`).
//!
//! The rules of upstream's `apiextensions-apiserver/pkg/apiserver/schema/cel`: where they are asked, about which former
//! value, within which budget, and in which words they refuse.

use std::fmt::Write;
use std::sync::Arc;

use api::field::{Errors, Path, Plain};
use api::go::{quote, scalar_json};
use api::status::{FieldError, FieldErrorKind};
use api::structural::{self as of, Additional, PartId, Rule, Structural};
use api::{Map, Node, Text};
use cel::schema::{Declared, Definition, Kind, ListType, Registry, declare, typed};
use cel::{Budget, Environment, EvalError, Program, Type, Value, Variables, Version};

/// The rules of a part and of those below it.
#[derive(Debug)]
pub(super) struct Rules {
    definition: Arc<Definition>,
    /// The type's name, as errors print it.
    kind: &'static str,
    compiled: Vec<Compiled>,
    properties: Vec<(Text, Rules)>,
    additional: Option<Box<Rules>>,
    items: Option<Box<Rules>>,
    all_of: Vec<Rules>,
    /// The keys of a list that merges as a map.
    keys: Option<Vec<Text>>,
}

/// A rule that is ready to be asked.
#[derive(Debug)]
struct Compiled {
    rule: Rule,
    program: Result<Program, String>,
    message: Option<Program>,
    uses_old: bool,
    /// The path of the field that a failure is about.
    field: String,
}

/// A part of a structural schema, as types of expressions see it.
fn definition(schema: &Structural, id: PartId) -> Definition {
    let part = schema.part(id);
    let inner = |id: PartId| Arc::new(definition(schema, id));
    let name = |text: &Text| -> Arc<str> { text.as_str().into() };
    let checks = part.checks();
    let properties: Vec<(Arc<str>, Arc<Definition>)> =
        part.properties.iter().map(|(n, id)| (name(n), inner(*id))).collect();
    let longest = checks.filter(|c| !c.values.is_empty()).map(|c| {
        let lengths = c.values.iter().map(|v| match v {
            Node::Str(s) => s.len() as i64,
            _ => 0,
        });
        lengths.max().unwrap_or_default()
    });
    Definition {
        kind: match part.kind {
            of::Kind::Any | of::Kind::IntOrString => Kind::None,
            of::Kind::Object => Kind::Object,
            of::Kind::Array => Kind::Array,
            of::Kind::String => Kind::String,
            of::Kind::Integer => Kind::Integer,
            of::Kind::Number => Kind::Number,
            of::Kind::Boolean => Kind::Boolean,
        },
        format: checks.map(|c| c.format_text.to_string()).unwrap_or_default(),
        nullable: part.nullable,
        max_length: checks.and_then(|c| c.max_length),
        max_items: checks.and_then(|c| c.max_items),
        max_properties: checks.and_then(|c| c.max_properties),
        longest_enum: longest,
        has_default: part.default_value().is_some(),
        properties: (!properties.is_empty()).then_some(properties),
        required: checks.map(|c| c.required.iter().map(name).collect()).unwrap_or_default(),
        additional: match part.additional {
            Additional::Part(id) => Some(inner(id)),
            _ => None,
        },
        items: part.items.map(inner),
        list_type: match part.list {
            of::ListType::Atomic => ListType::Atomic,
            of::ListType::Set => ListType::Set,
            of::ListType::Map => ListType::Map,
        },
        list_map_keys: part.keys().iter().map(name).collect(),
        int_or_string: part.kind == of::Kind::IntOrString,
        embedded: part.embedded,
        preserve_unknown: part.keeps_unknown,
    }
}

/// The part that a value has, and the part whose rules are asked about it: others only below a condition.
#[derive(Clone, Copy)]
struct Place {
    node: PartId,
    asks: PartId,
}

impl Rules {
    /// Compiles the rules of a schema; `None` if it has none.
    pub(super) fn new(schema: &Structural) -> Option<Self> {
        if !schema.has_rules() {
            return None;
        }
        let root = schema.root();
        Self::compile(schema, Place { node: root, asks: root }, true)
    }

    fn compile(schema: &Structural, place: Place, is_root: bool) -> Option<Self> {
        let (node, asks) = (schema.part(place.node), schema.part(place.asks));
        let below = |node: PartId, asks: PartId| {
            Self::compile(schema, Place { node, asks }, schema.part(node).embedded)
        };
        let properties: Vec<(Text, Self)> = asks
            .properties
            .iter()
            .filter_map(|(name, asks)| Some((name.clone(), below(node.property(name)?, *asks)?)))
            .collect();
        let additional = match (node.additional, asks.additional) {
            (Additional::Part(node), Additional::Part(asks)) => below(node, asks).map(Box::new),
            _ => None,
        };
        let items = match (node.items, asks.items) {
            (Some(node), Some(asks)) => below(node, asks).map(Box::new),
            _ => None,
        };
        let all_of = asks.checks().map_or(&[][..], |c| &c.all_of);
        let all_of: Vec<Self> = all_of
            .iter()
            .filter_map(|asks| Self::compile(schema, Place { asks: *asks, ..place }, is_root))
            .collect();
        let nothing = asks.rules().is_empty()
            && properties.is_empty()
            && additional.is_none()
            && items.is_none()
            && all_of.is_empty();
        if nothing {
            return None;
        }
        let own = definition(schema, place.node);
        let compiled = if asks.rules().is_empty() {
            Vec::new()
        } else {
            let declared = declare(&own, "selfType", is_root);
            asks.rules().iter().map(|rule| compiled(schema, place.node, rule, declared.as_ref())).collect()
        };
        Some(Self {
            definition: Arc::new(own.completed(is_root)),
            kind: node.kind.name(),
            compiled,
            properties,
            additional,
            items,
            all_of,
            keys: (node.list == of::ListType::Map).then(|| node.keys().to_vec()),
        })
    }

    /// Asks the rules about an object.
    pub(super) fn validate(&self, errs: &mut Errors, object: &Node, old: Option<&Node>) {
        let mut run = Run { errs, budget: Budget::default(), ended: false };
        let correlation = Correlation { pair: old.map(|old| (object, old)), above: None };
        self.ask(&mut run, &Path::root("<nil>"), object, old, &correlation);
    }

    fn ask(
        &self,
        run: &mut Run<'_>,
        at: &Path<'_>,
        object: &Node,
        old: Option<&Node>,
        correlation: &Correlation<'_>,
    ) {
        // Rules about a value that may be absent stand above it.
        if *object == Node::Null || run.ended {
            return;
        }
        self.ask_own(run, at, object, old, correlation);
        for rules in &self.all_of {
            rules.ask(run, at, object, old, &Correlation { pair: None, above: correlation.above });
        }
        match object {
            Node::Map(map) => {
                let old = old.and_then(Node::as_map);
                for (name, value) in map.iter() {
                    let rules = self.properties.iter().find(|(n, _)| n == name).map(|(_, rules)| rules);
                    let is_key = rules.is_none();
                    let Some(rules) = rules.or(self.additional.as_deref()) else { continue };
                    let before = old.and_then(|old| old.get(name));
                    let below = correlation.below(value, before);
                    let path = below_path(at, name, is_key);
                    rules.ask(run, &path, value, before, &below);
                }
            }
            Node::List(list) => {
                let Some(rules) = &self.items else { return };
                for (i, value) in list.iter().enumerate() {
                    let before = self.before(value, old);
                    rules.ask(run, &at.index(i), value, before, &correlation.below(value, before));
                }
            }
            _ => {}
        }
    }

    /// The former state of a list's element, if the list tells its elements apart.
    fn before<'a>(&self, item: &Node, old: Option<&'a Node>) -> Option<&'a Node> {
        let (Some(keys), Some(Node::List(old)), Node::Map(item)) = (&self.keys, old, item) else {
            return None;
        };
        let same = |o: &&Node| o.as_map().is_some_and(|o| keys.iter().all(|k| o.get(k) == item.get(k)));
        old.iter().find(same)
    }

    fn ask_own(
        &self,
        run: &mut Run<'_>,
        at: &Path<'_>,
        object: &Node,
        old: Option<&Node>,
        correlation: &Correlation<'_>,
    ) {
        let old = old.filter(|old| **old != Node::Null);
        for compiled in &self.compiled {
            let about = |run: &mut Run<'_>, what: String| run.errs.invalid(at, Plain(self.kind), what);
            if run.ended {
                return;
            }
            if run.budget.left() == 0 {
                about(run, OUT_OF_BUDGET.into());
                run.ended = true;
                return;
            }
            let program = match &compiled.program {
                Ok(program) => program,
                Err(why) => {
                    about(run, format!("rule compile error: {why}"));
                    continue;
                }
            };
            let is_optional = compiled.rule.optional_old_self == Some(true);
            if compiled.uses_old && old.is_none() && !is_optional {
                continue;
            }
            let mut variables = Variables::default();
            if let Ok(value) = typed(object, &self.definition) {
                variables = variables.with("self", value);
            }
            if is_optional {
                let value = old.and_then(|old| typed(old, &self.definition).ok());
                variables = variables.with("oldSelf", Value::Optional(value.map(Arc::new)));
            } else if let Some(Ok(value)) = old.map(|old| typed(old, &self.definition)) {
                variables = variables.with("oldSelf", value);
            }
            let outcome = program.evaluate(&variables, &mut run.budget);
            if run.budget.exhausted() {
                about(run, OUT_OF_BUDGET.into());
                run.ended = true;
                return;
            }
            let shown = shown(&compiled.rule);
            match outcome {
                Ok(Value::Bool(true)) => {}
                Ok(_) => self.refuse(run, at, object, compiled, &variables, correlation),
                Err(EvalError::CostLimit) => {
                    about(
                        run,
                        format!(
                            "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}",
                            EvalError::CostLimit
                        ),
                    );
                    run.ended = true;
                }
                Err(error) => {
                    let text = error.to_string();
                    about(
                        run,
                        if text.starts_with("no such overload") {
                            format!(
                                "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"
                            )
                        } else {
                            format!("{text} evaluating rule: {shown}")
                        },
                    );
                }
            }
        }
    }

    /// Reports a rule that does not hold, unless nothing has changed where it is asked.
    fn refuse(
        &self,
        run: &mut Run<'_>,
        at: &Path<'_>,
        object: &Node,
        compiled: &Compiled,
        variables: &Variables<'_>,
        correlation: &Correlation<'_>,
    ) {
        let detail = compiled.message.as_ref().and_then(|program| {
            match program.evaluate(variables, &mut run.budget) {
                Ok(Value::String(text)) if !text.trim().is_empty() && !text.contains('\n') => {
                    Some(text.to_string())
                }
                _ => None,
            }
        });
        if run.budget.exhausted() {
            let why = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
            run.errs.invalid(at, Plain(self.kind), why);
            run.ended = true;
            return;
        }
        if !compiled.uses_old && correlation.is_unchanged() {
            return;
        }
        let rule = &compiled.rule;
        let detail = detail.unwrap_or_else(|| match rule.message.trim() {
            "" => format!("failed rule: {}", shown(rule)),
            message => message.to_owned(),
        });
        let path = if compiled.field.is_empty() {
            at.to_string()
        } else {
            match at.to_string().as_str() {
                "<nil>" => compiled.field.trim_start_matches('.').to_owned(),
                above => format!("{above}{}", compiled.field),
            }
        };
        let is_large = matches!(self.kind, "object" | "array");
        let value = if is_large { None } else { Some(printed(object)) };
        let (kind, value) = match rule.reason.as_str() {
            "FieldValueForbidden" => (FieldErrorKind::Forbidden, None),
            "FieldValueRequired" => (FieldErrorKind::Required, None),
            "FieldValueDuplicate" => (FieldErrorKind::Duplicate, value),
            _ => (FieldErrorKind::Invalid, value),
        };
        run.errs.append_list(vec![FieldError { kind, field: path, value, detail }]);
    }
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// An object for which rules are asked.
struct Run<'e> {
    errs: &'e mut Errors,
    budget: Budget,
    /// Whether no further rules are asked.
    ended: bool,
}

/// A value with its former state, and the values above.
struct Correlation<'a> {
    pair: Option<(&'a Node, &'a Node)>,
    above: Option<&'a Correlation<'a>>,
}

impl<'a> Correlation<'a> {
    fn below(&'a self, value: &'a Node, before: Option<&'a Node>) -> Correlation<'a> {
        match (self.pair, before) {
            // Below a value without a former one, the nearest value that has one counts.
            (None, _) => Correlation { pair: None, above: self.above },
            (Some(_), before) => {
                Correlation { pair: before.map(|before| (value, before)), above: Some(self) }
            }
        }
    }
    /// Whether the value is what it was, or the nearest value above that can be told.
    fn is_unchanged(&self) -> bool {
        match (self.pair, self.above) {
            (Some((now, before)), _) => now == before,
            (None, Some(above)) => above.is_unchanged(),
            (None, None) => false,
        }
    }
}

fn below_path<'a>(at: &'a Path<'a>, name: &'a str, is_key: bool) -> Path<'a> {
    match at.is_named("<nil>") {
        true => Path::root(name),
        false if is_key => at.key(name),
        false => at.field(name),
    }
}

/// A value as an error prints it.
fn printed(node: &Node) -> String {
    match node {
        Node::Str(s) => quote(s),
        n => scalar_json(n),
    }
}

/// A rule as errors name it.
fn shown(rule: &Rule) -> &str {
    if rule.message.is_empty() { rule.rule.trim() } else { &rule.message }
}

fn compiled(schema: &Structural, at: PartId, rule: &Rule, declared: Option<&Arc<Declared>>) -> Compiled {
    let Some(declared) = declared else {
        let program = Err("the schema has no type that expressions know".to_owned());
        return Compiled {
            rule: rule.clone(),
            program,
            message: None,
            uses_old: false,
            field: String::new(),
        };
    };
    let ty = declared.ty.clone();
    let old = if rule.optional_old_self == Some(true) { Type::optional(ty.clone()) } else { ty.clone() };
    let env = Environment::new(Version::STORED)
        .with_objects(Arc::new(Registry::new(Arc::clone(declared))))
        .with_variable("self", ty)
        .with_variable("oldSelf", old);
    let program = env.compile(&rule.rule).map_err(|e| format!("compilation failed: {e}"));
    let program = program.and_then(|p| match p.result_type() {
        Type::Bool => Ok(p),
        _ => Err("cel expression must evaluate to a bool".to_owned()),
    });
    let uses_old = program.as_ref().is_ok_and(|p| p.uses("oldSelf"));
    let message = Some(rule.message_expression.as_str()).filter(|m| !m.is_empty());
    let message = message.and_then(|m| env.compile(m).ok());
    let field = field_path(schema, at, &rule.field_path);
    Compiled { rule: rule.clone(), program, message, uses_old, field }
}

/// The path of a field below a part, as errors print it: `.a.b` for fields, `[k]` for keys of maps.
fn field_path(schema: &Structural, at: PartId, path: &str) -> String {
    let mut out = String::new();
    let (mut rest, mut at) = (path, Some(at));
    while !rest.is_empty() {
        let name = if let Some(below) = rest.strip_prefix("['") {
            let Some((name, below)) = below.split_once("']") else { break };
            rest = below;
            name.replace('\\', "")
        } else {
            let below = rest.strip_prefix('.').unwrap_or(rest);
            let end = below.find(['.', '[']).unwrap_or(below.len());
            rest = &below[end..];
            below[..end].to_owned()
        };
        let part = at.map(|id| schema.part(id));
        let property = part.and_then(|p| p.property(&name));
        match (property, part.map(|p| p.additional)) {
            (None, Some(Additional::Part(id))) => {
                // Writing to a String does not fail.
                let _ = write!(out, "[{name}]");
                at = Some(id);
            }
            (property, _) => {
                let _ = write!(out, ".{name}");
                at = property;
            }
        }
    }
    out
}

/// Whether errors keep the rules from being asked, as upstream says, with the error that tells so.
pub(super) fn blocked(errs: &Errors) -> Option<FieldError> {
    let blocks = |e: &FieldError| {
        matches!(
            e.kind,
            FieldErrorKind::NotSupported
                | FieldErrorKind::Required
                | FieldErrorKind::TooLong
                | FieldErrorKind::TooMany
                | FieldErrorKind::TypeInvalid
        )
    };
    errs.0.iter().any(blocks).then(|| FieldError {
        kind: FieldErrorKind::Invalid,
        field: "<nil>".into(),
        value: Some("null".into()),
        detail: "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation".into(),
    })
}

/// The whole object as rules see it: what its definition describes, with its type and its name.
pub(super) fn object(values: &Map, api_version: &str, kind: &str, metadata: Map) -> Node {
    let mut all = values.clone();
    all.insert("apiVersion", api_version);
    all.insert("kind", kind);
    all.insert("metadata", metadata);
    Node::Map(all)
}
