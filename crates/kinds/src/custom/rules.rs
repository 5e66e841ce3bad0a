//! The rules of a definition in the expression language (`x-kubernetes-validations`).
//!
//! The rules of upstream's `apiextensions-apiserver/pkg/apiserver/schema/cel`: where they are asked, about which former
//! value, within which budget, and in which words they refuse.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use api::field::{Errors, Path, Plain};
use api::go::{quote, scalar_json};
use api::status::{FieldError, FieldErrorKind};
use api::structural::{self as of, Additional, ByKey, PartId, Rule, Structural};
use api::{Map, Node, Text};
use cel::schema::{Definition, Kind, ListType, Registry, declare, max_cardinality, typed};
use cel::{Budget, Environment, EvalError, Program, Type, Value, Variables, Version};

use super::field_path::{self, Stop};

/// The longest message that an expression may make. Upstream's `MaxEvaluatedMessageExpressionSizeBytes`.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// Says in which version of the environment an expression is compiled; whether it makes a message is told, too.
pub(crate) type VersionOf<'a> = &'a dyn Fn(&str, bool) -> Version;

/// The rules of a part and of those below it.
#[derive(Debug)]
pub(crate) struct Rules {
    definition: Arc<Definition>,
    /// How often a value can stand in a request, by its least size.
    cardinality: u64,
    /// The type's name, as errors print it.
    kind: &'static str,
    compiled: Vec<Compiled>,
    properties: Vec<(Text, Rules)>,
    additional: Option<Box<Rules>>,
    items: Option<Box<Rules>>,
    all_of: Vec<Rules>,
    /// The part of the schema.
    part: PartId,
}

/// The things that compiling the parts of a schema shares.
struct Compiler<'a> {
    schema: &'a Structural,
    version_of: VersionOf<'a>,
    /// The definitions that were made.
    definitions: HashMap<PartId, Arc<Definition>>,
}

/// A rule that is ready to be asked.
#[derive(Debug)]
struct Compiled {
    rule: Rule,
    program: Result<Program, String>,
    message: Option<Result<Program, String>>,
    uses_old: bool,
    /// The path of the field that a failure is about.
    field: String,
}

/// The outcome of compiling a rule: the costs of its expressions, or what is wrong with them.
pub(crate) struct Outcome<'a> {
    /// The rule's estimated cost.
    pub(crate) rule: Result<u64, &'a str>,
    /// The estimated cost of the expression that makes the message, if there is one.
    pub(crate) message: Option<Result<u64, &'a str>>,
    /// Whether the rule asks for the former value.
    pub(crate) uses_old: bool,
}

impl Compiler<'_> {
    /// A part as types of expressions see it. Parts within are shared.
    fn definition(&mut self, id: PartId) -> Arc<Definition> {
        if let Some(made) = self.definitions.get(&id) {
            return Arc::clone(made);
        }
        let made = definition(self.schema, id, &mut |id| self.definition(id));
        let is_object = id == self.schema.root() || self.schema.part(id).embedded;
        let made = if is_object && made.kind == Kind::Object { made.with_type_and_metadata() } else { made };
        let made = Arc::new(made);
        self.definitions.insert(id, Arc::clone(&made));
        made
    }
}

/// A part of a structural schema, as types of expressions see it; `inner` makes those within.
fn definition(
    schema: &Structural,
    id: PartId,
    inner: &mut dyn FnMut(PartId) -> Arc<Definition>,
) -> Definition {
    let part = schema.part(id);
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
        items: part.items.map(&mut *inner),
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
    pub(crate) fn new(schema: &Structural, version_of: VersionOf<'_>) -> Option<Self> {
        if !schema.has_rules() {
            return None;
        }
        let root = schema.root();
        let mut compiler = Compiler { schema, version_of, definitions: HashMap::new() };
        Self::compile(&mut compiler, Place { node: root, asks: root }, None)
    }

    /// Compiles the rules of a schema that is stored.
    pub(super) fn of_stored(schema: &Structural) -> Option<Self> {
        Self::new(schema, &|_, _| Version::STORED)
    }

    /// `above` is the type of the part, if that of a part above is known.
    fn compile(c: &mut Compiler<'_>, place: Place, above: Option<&Registry>) -> Option<Self> {
        let schema = c.schema;
        let (node, asks) = (schema.part(place.node), schema.part(place.asks));
        let definition = c.definition(place.node);
        let is_root = place.node == schema.root() || node.embedded;
        let own = match above {
            Some(above) => Some(above.clone()),
            None if asks.rules().is_empty() => None,
            None => declare(&definition, "selfType", is_root).map(Registry::new),
        };
        let types = own.as_ref();
        let mut properties: Vec<(Text, Self)> = Vec::new();
        for (name, asks) in &asks.properties {
            let Some(node) = node.property(name) else { continue };
            let ty = types.and_then(|t| t.property(name));
            let rules = Self::compile(c, Place { node, asks: *asks }, ty.as_ref());
            properties.extend(rules.map(|rules| (name.clone(), rules)));
        }
        // The conditions on an object's name stand beside the values.
        if let Some(id) = schema.metadata().filter(|_| place.node == schema.root()) {
            let rules = Self::compile(c, Place { node: id, asks: id }, None);
            properties.extend(rules.map(|rules| ("metadata".into(), rules)));
        }
        let elements = types.and_then(Registry::elements);
        let mut below = |pair: Option<(PartId, PartId)>| {
            let (node, asks) = pair?;
            Self::compile(c, Place { node, asks }, elements.as_ref()).map(Box::new)
        };
        let additional = below(match (node.additional, asks.additional) {
            (Additional::Part(node), Additional::Part(asks)) => Some((node, asks)),
            _ => None,
        });
        let items = below(node.items.zip(asks.items));
        let all_of = asks.checks().map_or(&[][..], |c| &c.all_of);
        let all_of: Vec<Self> = all_of
            .iter()
            .filter_map(|asks| Self::compile(c, Place { asks: *asks, ..place }, types))
            .collect();
        let nothing = asks.rules().is_empty()
            && properties.is_empty()
            && additional.is_none()
            && items.is_none()
            && all_of.is_empty();
        if nothing {
            return None;
        }
        let compiled = |rule| compiled(schema, place.node, rule, types, c.version_of);
        Some(Self {
            cardinality: types.map_or(1, |t| max_cardinality(t.declared())),
            compiled: asks.rules().iter().map(compiled).collect(),
            definition,
            kind: node.kind.name(),
            properties,
            additional,
            items,
            all_of,
            part: place.node,
        })
    }

    /// The rules of a property and below it.
    pub(crate) fn property(&self, name: &str) -> Option<&Self> {
        self.properties.iter().find(|(n, _)| n == name).map(|(_, rules)| rules)
    }
    /// The rules of a map's values.
    pub(crate) fn additional(&self) -> Option<&Self> {
        self.additional.as_deref()
    }
    /// The rules of a list's elements.
    pub(crate) fn items(&self) -> Option<&Self> {
        self.items.as_deref()
    }
    /// How often a value can stand in a request, by its least size.
    pub(crate) fn cardinality(&self) -> u64 {
        self.cardinality
    }
    /// The outcome of each rule that is asked about the value itself.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = Outcome<'_>> {
        fn cost(program: &Result<Program, String>) -> Result<u64, &str> {
            program.as_ref().map(|p| p.static_cost().max).map_err(String::as_str)
        }
        self.compiled.iter().map(|c| Outcome {
            rule: cost(&c.program),
            message: c.message.as_ref().map(cost),
            uses_old: c.uses_old,
        })
    }

    /// Asks the rules about an object. A rule that does not hold where nothing has changed is only warned of.
    pub(super) fn validate(
        &self,
        schema: &Structural,
        errs: &mut Errors,
        warn: Warn<'_>,
        object: &Node,
        old: Option<&Node>,
    ) {
        let mut run = Run::new(schema, errs, warn, Budget::default());
        self.validate_at(&mut run, &Path::root("<nil>"), object, old);
    }

    /// Asks the rules about a value that stands at a path.
    pub(crate) fn validate_at(&self, run: &mut Run<'_>, at: &Path<'_>, value: &Node, old: Option<&Node>) {
        let correlation = Correlation::new(old.map(|old| (value, old, self.part)), None);
        self.ask(run, at, value, old, &correlation);
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
            rules.ask(run, at, object, old, &Correlation::new(None, correlation.above));
        }
        match object {
            Node::Map(map) => {
                let old = old.and_then(Node::as_map);
                for (name, value) in map.iter() {
                    let rules = self.property(name);
                    let is_key = rules.is_none();
                    let Some(rules) = rules.or(self.additional.as_deref()) else { continue };
                    let before = old.and_then(|old| old.get(name));
                    let below = correlation.below(value, before, rules.part);
                    let path = below_path(at, name, is_key);
                    rules.ask(run, &path, value, before, &below);
                }
            }
            Node::List(list) => {
                let Some(rules) = &self.items else { return };
                // Elements without keys have no former state.
                let former = ByKey::new(run.schema.part(self.part), old);
                for (i, value) in list.iter().enumerate() {
                    if run.ended {
                        return;
                    }
                    let before = former.of(value);
                    let below = correlation.below(value, before, rules.part);
                    rules.ask(run, &at.index(i), value, before, &below);
                }
            }
            _ => {}
        }
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
                Ok(_) => {
                    // Upstream shows messages the former value as it is, optional or not.
                    let mut variables = Variables::default();
                    for (name, value) in [("self", Some(object)), ("oldSelf", old)] {
                        if let Some(Ok(value)) = value.map(|value| typed(value, &self.definition)) {
                            variables = variables.with(name, value);
                        }
                    }
                    let unchanged = !compiled.uses_old && correlation.is_unchanged(run.schema);
                    self.refuse(run, at, object, compiled, &variables, unchanged);
                }
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

    /// Reports a rule that does not hold; where nothing has changed, a Warning is enough.
    fn refuse(
        &self,
        run: &mut Run<'_>,
        at: &Path<'_>,
        object: &Node,
        compiled: &Compiled,
        variables: &Variables<'_>,
        unchanged: bool,
    ) {
        let path = if compiled.field.is_empty() {
            at.to_string()
        } else {
            match at.to_string().as_str() {
                "<nil>" => compiled.field.trim_start_matches('.').to_owned(),
                above => format!("{above}{}", compiled.field),
            }
        };
        let report = |run: &mut Run<'_>, error: FieldError| {
            if unchanged {
                (run.warn)(error.to_string());
            } else {
                run.errs.append_list(vec![error]);
            }
        };
        let detail = match &compiled.message {
            Some(Ok(program)) => program.evaluate(variables, &mut run.budget).map(Some),
            _ => Ok(None),
        };
        let ends = if run.budget.exhausted() {
            Some("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".into())
        } else if matches!(detail, Err(EvalError::CostLimit)) {
            let source = quote(&compiled.rule.message_expression);
            Some(format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {source}"
            ))
        } else {
            None
        };
        if let Some(detail) = ends {
            let value = Some(quote(self.kind));
            report(run, FieldError { kind: FieldErrorKind::Invalid, field: path, value, detail });
            run.ended = true;
            return;
        }
        // A message that is none gives way to the rule's own.
        let detail = match detail {
            Ok(Some(Value::String(text))) => Some(text.trim().to_owned())
                .filter(|t| !t.is_empty() && t.len() <= LONGEST_MESSAGE && !t.contains('\n')),
            _ => None,
        };
        let rule = &compiled.rule;
        let detail = detail.unwrap_or_else(|| match rule.message.trim() {
            "" => format!("failed rule: {}", shown(rule)),
            message => message.to_owned(),
        });
        let is_large = matches!(self.kind, "object" | "array");
        let value = if is_large { None } else { Some(printed(object)) };
        let (kind, value) = match rule.reason.as_str() {
            "FieldValueForbidden" => (FieldErrorKind::Forbidden, None),
            "FieldValueRequired" => (FieldErrorKind::Required, None),
            "FieldValueDuplicate" => (FieldErrorKind::Duplicate, value),
            _ => (FieldErrorKind::Invalid, value),
        };
        report(run, FieldError { kind, field: path, value, detail });
    }
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Takes the Warnings about rules that do not hold where nothing has changed.
pub(crate) type Warn<'a> = &'a dyn Fn(String);

/// An object for which rules are asked.
pub(crate) struct Run<'e> {
    schema: &'e Structural,
    errs: &'e mut Errors,
    warn: Warn<'e>,
    /// The rest of the budget.
    pub(crate) budget: Budget,
    /// Whether no further rules are asked.
    ended: bool,
}

impl<'e> Run<'e> {
    /// Rules are asked within this budget.
    pub(crate) fn new(schema: &'e Structural, errs: &'e mut Errors, warn: Warn<'e>, budget: Budget) -> Self {
        Self { schema, errs, warn, budget, ended: false }
    }
}

/// A value with its former state and its part of the schema, and the values above.
struct Correlation<'a> {
    pair: Option<(&'a Node, &'a Node, PartId)>,
    above: Option<&'a Correlation<'a>>,
    /// Whether the value is what it was, once that was asked: all elements of a list may ask it.
    unchanged: Cell<Option<bool>>,
}

impl<'a> Correlation<'a> {
    fn new(pair: Option<(&'a Node, &'a Node, PartId)>, above: Option<&'a Correlation<'a>>) -> Self {
        Self { pair, above, unchanged: Cell::new(None) }
    }
    fn below(&'a self, value: &'a Node, before: Option<&'a Node>, part: PartId) -> Correlation<'a> {
        match self.pair {
            // Below a value without a former one, the nearest value that has one counts.
            None => Correlation::new(None, self.above),
            Some(_) => Correlation::new(before.map(|before| (value, before, part)), Some(self)),
        }
    }
    /// Whether the value is what it was, or the nearest value above that can be told.
    fn is_unchanged(&self, schema: &Structural) -> bool {
        let Some((now, before, part)) = self.pair else {
            return self.above.is_some_and(|above| above.is_unchanged(schema));
        };
        self.unchanged.get().unwrap_or_else(|| {
            let is = schema.is_unchanged(part, now, before);
            self.unchanged.set(Some(is));
            is
        })
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

fn compiled(
    schema: &Structural,
    at: PartId,
    rule: &Rule,
    types: Option<&Registry>,
    version_of: VersionOf<'_>,
) -> Compiled {
    let (mut program, mut message) = (Err("the schema has no type that expressions know".to_owned()), None);
    if let Some(types) = types {
        let ty = types.declared().ty.clone();
        let is_optional = rule.optional_old_self == Some(true);
        let old = if is_optional { Type::optional(ty.clone()) } else { ty.clone() };
        let objects: Arc<dyn cel::Objects> = Arc::new(types.clone());
        let compile = |text: &str, is_message: bool, wanted: &Type, otherwise: &str| {
            let program = Environment::new(version_of(text, is_message))
                .with_objects(Arc::clone(&objects))
                .with_variable("self", ty.clone())
                .with_variable("oldSelf", old.clone())
                .compile(text);
            match program {
                Ok(program) if program.result_type() == wanted => Ok(program),
                Ok(_) => Err(otherwise.to_owned()),
                Err(why) if is_message => Err(format!("messageExpression compilation failed: {why}")),
                Err(why) => Err(format!("compilation failed: {why}")),
            }
        };
        program = compile(&rule.rule, false, &Type::Bool, "cel expression must evaluate to a bool");
        let text = Some(rule.message_expression.as_str()).filter(|m| !m.is_empty() && program.is_ok());
        message =
            text.map(|m| compile(m, true, &Type::String, "messageExpression must evaluate to a string"));
    }
    let uses_old = program.as_ref().is_ok_and(|p| p.uses("oldSelf"));
    let field = field_path(schema, at, &rule.field_path);
    Compiled { rule: rule.clone(), program, message, uses_old, field }
}

/// The path of a field below a part, as errors print it: `.a.b` for fields, `[k]` for keys of maps.
fn field_path(schema: &Structural, at: PartId, path: &str) -> String {
    let next = |at: &PartId, name: &str| {
        let part = schema.part(*at);
        match (part.property(name), part.additional) {
            (Some(id), _) => Some(Stop::Property(id)),
            (None, Additional::Part(id)) => Some(Stop::Entry(id)),
            _ => None,
        }
    };
    match field_path::follow(path, true, at, next) {
        Ok((path, _)) if path.is_empty() || path.starts_with('[') => path,
        Ok((path, _)) => format!(".{path}"),
        Err(_) => String::new(),
    }
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
