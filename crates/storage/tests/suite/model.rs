//! A sequential model: every answer to a random sequence of operations is the one that the model allows.

use std::collections::BTreeMap;

use bytes::Bytes;
use storage::Compacted;

use super::*;

/// The number of steps in the sequence; `FERROKUBE_MODEL_STEPS` sets another number, `FERROKUBE_MODEL_SEED` another
/// seed.
const STEPS: u64 = 1500;

type Key = (&'static str, &'static str);

const KEYS: [Key; 8] =
    [("a", "1"), ("a", "2"), ("a", "10"), ("a-b", "1"), ("b", "1"), ("b", "2"), ("b", "3"), ("c", "1")];

#[derive(Debug, Clone, PartialEq)]
struct Stored {
    revision: u64,
    node: &'static str,
    body: Bytes,
}

impl Stored {
    fn of(object: &Object, node: &'static str) -> Self {
        Self { revision: object.revision, node, body: object.data.body.clone() }
    }
    fn is(&self, object: &Object) -> bool {
        (object.revision, object.data.fields[NODE].as_str(), &object.data.body)
            == (self.revision, self.node, &self.body)
    }
}

/// A write: its revision, its object, and the object's state before and after.
#[derive(Debug, Clone)]
struct Step {
    revision: u64,
    key: Key,
    before: Option<Stored>,
    after: Option<Stored>,
}

/// The model: all writes.
#[derive(Debug, Default)]
struct Model {
    state: BTreeMap<Key, Stored>,
    steps: Vec<Step>,
    /// The revision before which the history is dropped.
    floor: u64,
}

fn in_scope(key: Key, stored: &Stored, scope: &Scope) -> bool {
    (scope.namespace.is_empty() || scope.namespace == key.0)
        && (scope.name.is_empty() || scope.name == key.1)
        && scope.field.as_ref().is_none_or(|(_, node)| node == stored.node)
}

impl Model {
    fn did(&mut self, key: Key, revision: u64, after: Option<Stored>) {
        assert!(self.steps.last().is_none_or(|s| s.revision < revision), "revisions ascend");
        let before = match &after {
            Some(stored) => self.state.insert(key, stored.clone()),
            None => self.state.remove(&key),
        };
        self.steps.push(Step { revision, key, before, after });
    }

    /// The state at a revision.
    fn at(&self, revision: u64) -> BTreeMap<Key, Stored> {
        let mut state = self.state.clone();
        for step in self.steps.iter().rev().take_while(|s| s.revision > revision) {
            match &step.before {
                Some(before) => state.insert(step.key, before.clone()),
                None => state.remove(&step.key),
            };
        }
        state
    }

    /// The events of a scope after a revision.
    fn since(&self, revision: u64, scope: &Scope) -> Vec<String> {
        let of_scope = |s: &&Step| {
            [&s.before, &s.after].into_iter().flatten().any(|stored| in_scope(s.key, stored, scope))
        };
        let shown = |s: &Step| {
            let cause = match (&s.before, &s.after) {
                (None, _) => "Added",
                (_, Some(_)) => "Modified",
                (_, None) => "Deleted",
            };
            format!("{cause} {}/{} {}", s.key.0, s.key.1, s.revision)
        };
        self.steps.iter().filter(|s| s.revision > revision).filter(of_scope).map(shown).collect()
    }

    fn check_list(&self, snapshot: &Snapshot, scope: &Scope, random: &mut fastrand::Rng) {
        let state = self.at(snapshot.revision());
        let mut expected: Vec<_> = state.iter().filter(|(key, s)| in_scope(**key, s, scope)).collect();
        expected.sort_by_key(|((namespace, name), _)| format!("{namespace}/{name}"));
        let after = random.choice(KEYS).filter(|_| random.bool());
        if let Some((namespace, name)) = after {
            expected.retain(|((n, m), _)| format!("{n}/{m}") > format!("{namespace}/{name}"));
        }
        let found: Vec<_> = snapshot.scan(scope, after).collect();
        assert_eq!(found.len(), expected.len(), "{scope:?} after {after:?} at {}", snapshot.revision());
        for (object, (_, stored)) in found.into_iter().zip(expected) {
            assert!(stored.is(object), "{object:?} is not {stored:?}");
        }
        assert_eq!(snapshot.count(scope, after), snapshot.scan(scope, after).count());
        for key in KEYS {
            assert_eq!(snapshot.get(key.0, key.1).map(|o| o.revision), state.get(&key).map(|s| s.revision));
        }
    }
}

fn scope(random: &mut fastrand::Rng) -> Scope {
    Scope {
        namespace: random.choice(["", "", "a", "b", "none"]).unwrap_or_default().into(),
        name: random.choice(["", "", "", "1", "2"]).unwrap_or_default().into(),
        field: random
            .choice([None, None, Some("n1"), Some("n2"), Some("")])
            .flatten()
            .map(|n| (NODE, n.into())),
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

#[expect(clippy::too_many_lines, reason = "an arm for each kind of step")]
pub(crate) async fn sequential<F: Fixture>() {
    let seed = from_environment("FERROKUBE_MODEL_SEED").unwrap_or(1);
    println!("FERROKUBE_MODEL_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut f = F::fresh().await;
    let mut r = pods(f.store());
    let mut model = Model { floor: f.store().current(r), ..Model::default() };
    let mut watchers: Vec<(Watcher, Scope, u64)> = Vec::new();
    for n in 0..from_environment("FERROKUBE_MODEL_STEPS").unwrap_or(STEPS) {
        let s = f.store();
        let key @ (namespace, name) = random.choice(KEYS).unwrap();
        let there = model.state.get(&key).cloned();
        // Half of the time this is the right revision, otherwise one that was or never was.
        let expect = match &there {
            Some(stored) if random.u8(..4) > 0 => stored.revision,
            _ => model.steps.last().map_or(1, |s| s.revision) - random.u64(..2),
        };
        let node = random.choice(["", "n1", "n2"]).unwrap();
        let new = object(namespace, name, node, &random.choice(["same".to_owned(), n.to_string()]).unwrap());
        match random.u8(..20) {
            0..4 => {
                let body = new.body.clone();
                match (s.commit(Write::Create { resource: r, object: new, ttl: None }).await, there) {
                    (Ok(o), None) => {
                        assert_eq!(o.data.body, body);
                        model.did(key, o.revision, Some(Stored::of(&o, node)));
                    }
                    (Err(WriteError::Exists(o)), Some(stored)) => assert!(stored.is(&o)),
                    (answer, there) => panic!("create over {there:?}: {answer:?}"),
                }
            }
            4..10 => {
                let body = new.body.clone();
                let write = Write::Update { resource: r, object: new, expect, ttl: None };
                match (s.commit(write).await, there) {
                    (Ok(o), Some(stored)) if stored.revision == expect => {
                        if stored.body == body {
                            assert!(stored.is(&o), "nothing changed, nothing is written");
                        } else {
                            assert_eq!(o.data.body, body);
                            model.did(key, o.revision, Some(Stored::of(&o, node)));
                        }
                    }
                    (Err(WriteError::Changed(o)), Some(stored)) => {
                        assert!(stored.is(&o) && stored.revision != expect);
                    }
                    (Err(WriteError::NotFound), None) => {}
                    (answer, there) => panic!("update of {there:?} at {expect}: {answer:?}"),
                }
            }
            10..13 => {
                let (namespace, name) = (namespace.into(), name.into());
                let write = Write::Delete { resource: r, namespace, name, expect };
                match (s.commit(write).await, there) {
                    (Ok(o), Some(stored)) if stored.revision == expect => {
                        assert_eq!(o.data.body, stored.body);
                        model.did(key, o.revision, None);
                    }
                    (Err(WriteError::Changed(o)), Some(stored)) => {
                        assert!(stored.is(&o) && stored.revision != expect);
                    }
                    (Err(WriteError::NotFound), None) => {}
                    (answer, there) => panic!("deletion of {there:?} at {expect}: {answer:?}"),
                }
            }
            13 => {
                let found = s.get(r, namespace, name);
                assert_eq!(found.as_ref().map(|o| o.revision), there.as_ref().map(|t| t.revision));
                assert!(found.zip(there).is_none_or(|(o, stored)| stored.is(&o)));
            }
            14 => {
                let snapshot = s.snapshot(r);
                assert!(snapshot.revision() >= model.steps.last().map_or(0, |s| s.revision));
                model.check_list(&snapshot, &scope(&mut random), &mut random);
            }
            15 => {
                let Some(step) = random.choice(&model.steps) else { continue };
                match s.snapshot_at(r, step.revision) {
                    Some(past) => {
                        assert_eq!(past.revision(), step.revision);
                        model.check_list(&past, &scope(&mut random), &mut random);
                    }
                    None => assert!(step.revision < model.floor, "{} is not forgotten", step.revision),
                }
            }
            16 => {
                let Some(step) = random.choice(&model.steps) else { continue };
                let scope = scope(&mut random);
                match s.watch(r, scope.clone(), WatchStart::After(step.revision), WatchOptions::default()) {
                    Ok(w) => watchers.push((w, scope, step.revision)),
                    Err(Compacted { oldest }) => {
                        assert!(step.revision < model.floor && step.revision < oldest);
                    }
                }
            }
            17 => {
                // The watcher yields all events that are due by now, in order.
                if watchers.is_empty() {
                    continue;
                }
                let (mut w, scope, from) = watchers.swap_remove(random.usize(..watchers.len()));
                expect_all(&mut w, &model.since(from, &scope)).await;
            }
            18 if random.u8(..4) == 0 => {
                let Some(step) = random.choice(&model.steps) else { continue };
                s.compact(step.revision);
                model.floor = model.floor.max(step.revision);
            }
            19 if random.u8(..16) == 0 => {
                watchers.clear();
                f = f.reopen().await;
                r = pods(f.store());
                let last = model.steps.last().map_or(0, |s| s.revision);
                assert!(f.store().current(r) >= last);
                model.check_list(&f.store().snapshot(r), &Scope::default(), &mut random);
                // The history that is known after a restart is the engine's choice.
                model.floor = f.store().current(r);
            }
            _ => {}
        }
    }
    for (mut w, scope, from) in watchers {
        expect_all(&mut w, &model.since(from, &scope)).await;
    }
}

async fn expect_all(w: &mut Watcher, expected: &[String]) {
    expect(w, expected).await;
}
