//! The flow schemas and priority levels of the API, as flow control uses them: those of the store, and always those
//! that upstream calls mandatory.

use access::reader::read;
use api::{Object, Text};
use k8s_openapi::api::flowcontrol::v1::{FlowSchemaSpec, PriorityLevelConfigurationSpec};
use serde::Deserialize;
use serde_json::Value;

use super::borrowing::Shares;
use super::classify::Matcher;
use super::queues::Limit;
use super::shuffle::Dealer;
use crate::hooks::{flow_schemas, priority_levels};

/// The level without limits.
pub(super) const EXEMPT: &str = "exempt";
/// The level and the schema of what matches nothing else.
pub(super) const CATCH_ALL: &str = "catch-all";

/// A priority level, as the API has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LevelConfig {
    /// Its name.
    pub(super) name: Text,
    /// Its uid; "" if the store has none.
    pub(super) uid: Text,
    /// Its seats.
    pub(super) shares: Shares,
    /// The treatment of requests for which it has none.
    pub(super) limit: Limit,
    /// The size of a hand of queues, if it has queues.
    pub(super) hand: Option<u32>,
}

/// A flow schema, as the API has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SchemaConfig {
    /// Its name.
    pub(super) name: Text,
    /// Its uid; "" if the store has none.
    pub(super) uid: Text,
    /// The least is looked at first.
    pub(super) precedence: i32,
    /// The name of its level.
    pub(super) level: Text,
    /// Its requests.
    pub(super) matcher: Matcher,
}

/// The spec of a stored object.
#[derive(Deserialize)]
struct Stored<S> {
    spec: S,
}

impl LevelConfig {
    /// Of a stored object; upstream's words if it is broken, which leaves it out.
    pub(super) fn stored(object: &Object) -> Result<Self, String> {
        let stored: Stored<PriorityLevelConfigurationSpec> = read(object).ok_or("it cannot be read")?;
        Self::new(&object.data.name, &object.data.uid, &stored.spec)
    }

    fn new(name: &str, uid: &str, spec: &PriorityLevelConfigurationSpec) -> Result<Self, String> {
        let (limited, exempt) = (spec.limited.as_ref(), spec.exempt.as_ref());
        if (spec.type_ == "Limited") != limited.is_some() {
            return Err("broken union structure at the top, for Limited".into());
        }
        if (spec.type_ == "Exempt") != exempt.is_some() {
            return Err("broken union structure at the top, for Exempt".into());
        }
        if exempt.is_some() != (name == EXEMPT) {
            return Err("non-alignment between name and type".into());
        }
        let (name, uid) = (name.into(), uid.into());
        let Some(limited) = limited else {
            let (nominal, lendable) =
                exempt.map_or((None, None), |e| (e.nominal_concurrency_shares, e.lendable_percent));
            let shares =
                Shares { nominal: nominal.unwrap_or(0), lendable: lendable.unwrap_or(0), borrowing: None };
            return Ok(Self { name, uid, shares, limit: Limit::Exempt, hand: None });
        };
        let response = limited.limit_response.as_ref();
        let queuing = response.and_then(|response| response.queuing.as_ref());
        let rejects = response.is_none_or(|response| response.type_ == "Reject");
        if rejects != queuing.is_none() {
            return Err("broken union structure for limit response".into());
        }
        let (limit, hand) = match queuing {
            None => (Limit::Reject, None),
            Some(queuing) => {
                let (queues, hand) = (queuing.queues.unwrap_or(64), queuing.hand_size.unwrap_or(8));
                let dealer = Dealer::new(queues, hand)?;
                let length = usize::try_from(queuing.queue_length_limit.unwrap_or(50)).unwrap_or(0);
                (Limit::Queue { dealer, length }, Some(dealer.hand()))
            }
        };
        let shares = Shares {
            nominal: limited.nominal_concurrency_shares.unwrap_or(30),
            lendable: limited.lendable_percent.unwrap_or(0),
            borrowing: limited.borrowing_limit_percent,
        };
        Ok(Self { name, uid, shares, limit, hand })
    }
}

impl SchemaConfig {
    /// Of a stored object; nothing if it cannot be read.
    pub(super) fn stored(object: &Object) -> Option<Self> {
        let stored: Stored<FlowSchemaSpec> = read(object)?;
        Some(Self::new(&object.data.name, &object.data.uid, &stored.spec))
    }

    fn new(name: &str, uid: &str, spec: &FlowSchemaSpec) -> Self {
        Self {
            name: name.into(),
            uid: uid.into(),
            // Upstream's default.
            precedence: spec.matching_precedence.unwrap_or(1000),
            level: spec.priority_level_configuration.name.as_str().into(),
            matcher: Matcher::new(spec),
        }
    }
}

/// Levels and schemas.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Configs {
    /// The levels.
    pub(super) levels: Vec<LevelConfig>,
    /// The schemas, in the order in which they are looked at. Each has its level here.
    pub(super) schemas: Vec<SchemaConfig>,
}

fn made<S: serde::de::DeserializeOwned>(objects: Vec<Value>) -> impl Iterator<Item = (String, S)> {
    objects.into_iter().filter_map(|mut object| {
        let name = object["metadata"]["name"].as_str()?.to_owned();
        Some((name, serde_json::from_value(object["spec"].take()).ok()?))
    })
}

impl Configs {
    /// Those that every cluster begins with.
    pub(super) fn suggested() -> Self {
        let levels = made(priority_levels()).filter_map(|(n, spec)| LevelConfig::new(&n, "", &spec).ok());
        let schemas = made(flow_schemas()).map(|(n, spec)| SchemaConfig::new(&n, "", &spec));
        Self { levels: levels.collect(), schemas: schemas.collect() }
    }

    /// These, with the mandatory ones that are missing, without schemas whose level is missing, and in order.
    pub(super) fn completed(mut self) -> Self {
        let suggested = Self::suggested();
        self.schemas.retain(|schema| self.levels.iter().any(|level| level.name == schema.level));
        self.schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        for level in suggested.levels.into_iter().filter(|l| l.name == EXEMPT || l.name == CATCH_ALL) {
            if self.levels.iter().all(|l| l.name != level.name) {
                self.levels.push(level);
            }
        }
        for schema in suggested.schemas {
            let first = schema.name == EXEMPT;
            if !(first || schema.name == CATCH_ALL) || self.schemas.iter().any(|s| s.name == schema.name) {
                continue;
            }
            self.schemas.insert(if first { 0 } else { self.schemas.len() }, schema);
        }
        self
    }
}

#[cfg(test)]
impl Configs {
    /// Adds a level and its only schema, of the same name.
    pub(super) fn add(&mut self, name: &str, level: &Value, schema: &Value) {
        let (level, schema) = (serde_json::from_value(level.clone()), serde_json::from_value(schema.clone()));
        self.levels.push(LevelConfig::new(name, "", &level.unwrap()).unwrap());
        self.schemas.push(SchemaConfig::new(name, "", &schema.unwrap()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn level(name: &str, spec: Value) -> Result<LevelConfig, String> {
        LevelConfig::new(name, "", &serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn levels_that_are_broken() {
        let check = |name: &str, spec: Value, expected: &str| {
            assert_eq!(level(name, spec.clone()).err().unwrap_or_default(), expected, "{name} {spec}");
        };
        let limited = |response: Value| json!({"type": "Limited", "limited": {"limitResponse": response}});
        let queuing = |queuing: Value| limited(json!({"type": "Queue", "queuing": queuing}));
        check("a", limited(json!({"type": "Reject"})), "");
        check("a", queuing(json!({"queues": 1, "handSize": 1, "queueLengthLimit": 1})), "");
        check("exempt", json!({"type": "Exempt", "exempt": {}}), "");
        check("a", json!({"type": "Limited"}), "broken union structure at the top, for Limited");
        check("a", json!({"type": "Exempt"}), "broken union structure at the top, for Exempt");
        check("a", json!({"type": "Exempt", "exempt": {}}), "non-alignment between name and type");
        check("exempt", limited(json!({"type": "Reject"})), "non-alignment between name and type");
        check("a", limited(json!({"type": "Queue"})), "broken union structure for limit response");
        check(
            "a",
            limited(json!({"type": "Reject", "queuing": {}})),
            "broken union structure for limit response",
        );
        let hand = "handSize 2 is greater than deckSize 1";
        check("a", queuing(json!({"queues": 1, "handSize": 2})), hand);
    }

    #[test]
    fn what_is_mandatory_is_always_there() {
        let names = |configs: &Configs| {
            let schemas: Vec<_> = configs.schemas.iter().map(|s| s.name.to_string()).collect();
            let levels: Vec<_> = configs.levels.iter().map(|l| l.name.to_string()).collect();
            (schemas.join(" "), levels.join(" "))
        };
        let nothing = Configs::default().completed();
        assert_eq!(names(&nothing), ("exempt catch-all".into(), "exempt catch-all".into()));
        let suggested = Configs::suggested();
        assert_eq!((suggested.levels.len(), suggested.schemas.len()), (8, 11));
        assert_eq!(suggested.clone().completed().schemas.len(), 11);

        let reject = json!({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}});
        let schema = |name: &str, precedence: i32, level: &str| {
            let spec = json!({
                "matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level},
            });
            SchemaConfig::new(name, "", &serde_json::from_value(spec).unwrap())
        };
        let schemas = vec![
            schema("c", 5, "l"),
            schema("z", 1, "l"),
            schema("a", 5, "l"),
            schema("dangling", 3, "none"),
            schema("b", 10_000, "l"),
        ];
        let configs = Configs { levels: vec![level("l", reject).unwrap()], schemas }.completed();
        assert_eq!(names(&configs), ("exempt z a c b catch-all".into(), "l exempt catch-all".into()));
    }
}
