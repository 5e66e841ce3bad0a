//! The expressions that select devices, compiled once and kept (upstream's `dynamic-resource-allocation/cel`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cel::admission::{SELECTOR_COST, device, selector};
use cel::{Budget, Environment, EvalError, Foreign, Program, Shape, Text, Value, Variables, Version};

use super::stock::{Attribute, Device, Slice};

/// How many expressions are kept; beyond it those that were not used for longest go.
const KEPT: usize = 256;

/// Compiled expressions.
#[derive(Debug)]
pub struct Selectors {
    env: Environment,
    kept: Mutex<Kept>,
}

/// A program, or why there is none.
type Compiled = Arc<Result<Program, String>>;

#[derive(Debug, Default)]
struct Kept {
    /// By expression, with its number and that of the last use.
    programs: HashMap<Box<str>, (Compiled, u64, u64)>,
    uses: u64,
    compiled: u64,
}

impl Default for Selectors {
    fn default() -> Self {
        Self { env: device(Version::STORED), kept: Mutex::default() }
    }
}

/// The reason for which an expression has no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    Compile(String),
    Runtime(String),
}

impl Selectors {
    /// The program of an expression, and its number, which no other has.
    fn program(&self, expression: &str) -> (Compiled, u64) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.uses += 1;
        let now = kept.uses;
        if let Some((program, number, used)) = kept.programs.get_mut(expression) {
            *used = now;
            return (program.clone(), *number);
        }
        if kept.programs.len() >= KEPT {
            let oldest = kept.programs.iter().min_by_key(|(_, (.., used))| *used).map(|(e, _)| e.clone());
            oldest.map(|e| kept.programs.remove(&e));
        }
        let program = Arc::new(selector(&self.env, expression));
        kept.compiled += 1;
        let number = kept.compiled;
        kept.programs.insert(expression.into(), (program.clone(), number, now));
        (program, number)
    }

    /// Whether an expression selects a device of a slice, and what it cost to find out, unless it was asked before.
    pub(super) fn answer(
        &self,
        expression: &str,
        slice: &Slice,
        place: u32,
    ) -> (Result<bool, Unanswered>, Option<u64>) {
        let (program, number) = self.program(expression);
        if let Some(known) = slice.answer(number, place) {
            return (Ok(known), None);
        }
        let Some(device) = slice.devices.get(place as usize) else { return (Ok(false), None) };
        let (answer, cost) = evaluate(&program, device);
        if let Ok(answer) = answer {
            slice.answered(number, place, answer);
        }
        (answer, Some(cost))
    }
}

/// Whether an expression selects a device, and what it cost to find out.
fn evaluate(program: &Result<Program, String>, device: &Device) -> (Result<bool, Unanswered>, u64) {
    let program = match program {
        Ok(program) => program,
        Err(why) => return (Err(Unanswered::Compile(why.clone())), 0),
    };
    if let Err(why) = &device.attributes {
        return (Err(Unanswered::Runtime(why.clone())), 0);
    }
    let variables = Variables::default().with("device", Value::Foreign(Arc::new(Whole(device))));
    let mut budget = Budget::new(SELECTOR_COST, SELECTOR_COST);
    let value = program.evaluate(&variables, &mut budget);
    let answer = match value {
        Ok(Value::Bool(b)) => Ok(b),
        Ok(other) => Err(Unanswered::Runtime(unusable(&other))),
        Err(e) => Err(Unanswered::Runtime(e.to_string())),
    };
    (answer, budget.last())
}

/// Upstream's complaint about a value that is no boolean.
fn unusable(value: &Value<'_>) -> String {
    let name = value.type_name();
    let why = match value {
        Value::Int(_) => "unsupported type conversion from 'int' to bool".to_owned(),
        Value::String(_) => "unsupported native conversion from string to 'bool'".to_owned(),
        _ => format!("type conversion error from {name} to 'bool'"),
    };
    format!("CEL result of type {name} could not be converted to bool: {why}")
}

/// A device.
struct Whole<'d>(&'d Device);

const FIELDS: [&str; 4] = ["allowMultipleAllocations", "attributes", "capacity", "driver"];

impl Foreign for Whole<'_> {
    fn shape(&self) -> Shape {
        Shape::Map
    }
    fn len(&self) -> usize {
        FIELDS.len()
    }
    fn get<'v>(&self, key: &str) -> Result<Option<Value<'v>>, EvalError>
    where
        Self: 'v,
    {
        let domains = |of: Of| Value::Foreign(Arc::new(Domains { device: self.0, of }));
        Ok(Some(match key {
            "driver" => Value::String(Text::Borrowed(self.0.id.driver.as_str())),
            "allowMultipleAllocations" => Value::Bool(self.0.multiple),
            "attributes" => domains(Of::Attributes),
            "capacity" => domains(Of::Capacity),
            _ => return Ok(None),
        }))
    }
    fn keys<'v>(&self) -> Vec<Text<'v>>
    where
        Self: 'v,
    {
        FIELDS.map(Text::Borrowed).to_vec()
    }
}

#[derive(Clone, Copy)]
enum Of {
    Attributes,
    Capacity,
}

/// The attributes or capacities of a device, by domain. Each domain is there, but those without any are not among the
/// keys.
struct Domains<'d> {
    device: &'d Device,
    of: Of,
}

/// Those of one domain.
struct Domain<'d> {
    device: &'d Device,
    of: Of,
    domain: String,
}

impl Of {
    /// The domains and names.
    fn names(self, device: &Device) -> impl Iterator<Item = (&str, &str)> {
        let attributes = matches!(self, Self::Attributes).then_some(&device.attributes);
        let capacities = matches!(self, Self::Capacity).then_some(&device.capacity);
        let attributes = attributes.into_iter().flatten().flatten().map(|(named, _)| named);
        let capacities = capacities.into_iter().flatten().map(|(_, capacity)| &capacity.named);
        attributes.chain(capacities).map(|(domain, name)| (domain.as_str(), name.as_str()))
    }
}

impl Domains<'_> {
    fn domains(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.of.names(self.device).map(|(domain, _)| domain).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl Foreign for Domains<'_> {
    fn shape(&self) -> Shape {
        Shape::Map
    }
    fn len(&self) -> usize {
        self.domains().len()
    }
    fn get<'v>(&self, key: &str) -> Result<Option<Value<'v>>, EvalError>
    where
        Self: 'v,
    {
        let domain = Domain { device: self.device, of: self.of, domain: key.to_owned() };
        Ok(Some(Value::Foreign(Arc::new(domain))))
    }
    fn holds(&self, key: &str) -> Option<bool> {
        Some(self.of.names(self.device).any(|(domain, _)| domain == key))
    }
    fn keys<'v>(&self) -> Vec<Text<'v>>
    where
        Self: 'v,
    {
        self.domains().into_iter().map(|d| Text::from(d.to_owned())).collect()
    }
}

impl Domain<'_> {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.of.names(self.device).filter(|(domain, _)| *domain == self.domain).map(|(_, name)| name)
    }
}

impl Foreign for Domain<'_> {
    fn shape(&self) -> Shape {
        Shape::Map
    }
    fn len(&self) -> usize {
        self.names().count()
    }
    fn get<'v>(&self, key: &str) -> Result<Option<Value<'v>>, EvalError>
    where
        Self: 'v,
    {
        let device = self.device;
        let is = |named: &(String, String)| named.0 == self.domain && named.1 == key;
        if matches!(self.of, Of::Capacity) {
            let found = device.capacity.values().find(|c| is(&c.named));
            return Ok(found.map(|c| Value::Opaque(c.value.clone())));
        }
        let found = device.attributes.iter().flatten().find(|(named, _)| is(named));
        Ok(found.map(|(_, value)| match value {
            Attribute::Int(i) => Value::Int(*i),
            Attribute::Bool(b) => Value::Bool(*b),
            Attribute::Text(text) => Value::String(Text::Borrowed(text)),
            Attribute::Version(version) => Value::Opaque(version.clone()),
        }))
    }
    fn keys<'v>(&self) -> Vec<Text<'v>>
    where
        Self: 'v,
    {
        self.names().map(|name| Text::from(name.to_owned())).collect()
    }
}

#[cfg(test)]
mod tests;
