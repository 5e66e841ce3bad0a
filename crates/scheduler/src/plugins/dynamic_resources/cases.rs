//! Upstream's own cases of DynamicResources (the table of `dynamicresources_test.go`'s `TestPlugin`), with what upstream
//! v1.36.2 answers at each step, and the claims that are stored and in flight after it. One case a line, in
//! `plugins/cases/dynamic_resources.jsonl`.
//!
//! Cases that make requests fail, end a search from outside or need resources of nodes that devices stand for, which are
//! off in v1.36, are not among them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use client::{Call, Change, Client, ListAnswer, Transport, Verb, WatchEvent};
use component::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::*;
use crate::framework::place::{Gone, Place};
use crate::framework::points::{Candidate, Consent, Dissent, Move, Simulation};
use crate::inventory::{Devices, News};
use crate::nominated::Nominated;

const CASES: &str = include_str!("../cases/dynamic_resources.jsonl");

/// How many cases there are.
const COUNT: usize = 77;

fn typed<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{e}: {value}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The claims of an API server, which the plugin's stock of claims follows at once.
struct Api {
    devices: Devices,
    claims: Mutex<BTreeMap<String, Value>>,
    /// The patches of Pods' statuses.
    patches: Mutex<Vec<Value>>,
    made: Mutex<u64>,
}

impl Api {
    fn claims(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn next(&self) -> u64 {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        *made += 1;
        *made
    }
    /// Stores a claim, or removes it.
    fn set(&self, key: String, claim: Option<Value>) -> Option<Value> {
        let version = self.next().to_string();
        let mut all = self.claims();
        let news = match claim {
            None => Change::Deleted(Arc::new(typed(&all.remove(&key)?))),
            Some(mut claim) => {
                claim["metadata"]["resourceVersion"] = version.into();
                let new = Arc::new(typed(&claim));
                match all.insert(key.clone(), claim) {
                    Some(old) => Change::Updated { old: Arc::new(typed(&old)), new },
                    None => Change::Added(new),
                }
            }
        };
        self.devices.take(&News::Claim(news));
        all.get(&key).cloned()
    }
    fn answer(&self, call: &Call) -> Result<Value, Status> {
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let key = |name: &str| format!("{}/{name}", call.namespace);
        let known = self.claims().get(&key(&call.name)).cloned();
        let missing = || Status::not_found("resource.k8s.io", "resourceclaims", &call.name);
        if call.resource.plural == "pods" {
            self.patches.lock().unwrap_or_else(PoisonError::into_inner).push(body);
            return Ok(json!({"metadata": {"name": call.name, "namespace": call.namespace}}));
        }
        match call.verb {
            Verb::Create => {
                let (mut made, n) = (body, self.next());
                let name = format!("{}{n}", text(&made["metadata"]["generateName"]));
                made["metadata"]["name"] = name.as_str().into();
                made["metadata"]["uid"] = format!("made-{n}").into();
                Ok(self.set(key(&name), Some(made)).unwrap())
            }
            Verb::Get => known.ok_or_else(missing),
            Verb::Update => {
                let (mut next, known) = (body, known.ok_or_else(missing)?);
                let version = &next["metadata"]["resourceVersion"];
                if !version.is_null() && *version != known["metadata"]["resourceVersion"] {
                    return Err(Status::conflict("resource.k8s.io", "resourceclaims", &call.name, "changed"));
                }
                let kept: &[&str] =
                    if call.subresource.is_empty() { &["status"] } else { &["metadata", "spec"] };
                for field in kept {
                    next[field] = known[field].clone();
                }
                Ok(self.set(key(&call.name), Some(next)).unwrap())
            }
            Verb::StrategicPatch => {
                let mut next = known.ok_or_else(missing)?;
                let gone = &body["status"]["reservedFor"][0]["uid"];
                if let Some(all) = next["status"]["reservedFor"].as_array_mut() {
                    all.retain(|consumer| consumer["uid"] != *gone);
                }
                Ok(self.set(key(&call.name), Some(next)).unwrap())
            }
            Verb::Delete => {
                known.ok_or_else(missing)?;
                self.set(key(&call.name), None);
                Ok(json!({}))
            }
            verb => panic!("{verb:?} is not expected"),
        }
    }
}

impl Transport for Api {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        let answer = self.answer(&call).map(|v| Bytes::from(v.to_string()));
        async move { answer }.boxed()
    }
    fn list(&self, call: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        panic!("{call:?} is not expected")
    }
    fn raw(&self, path: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        panic!("{path} is not expected")
    }
    fn watch(
        &self,
        call: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        panic!("{call:?} is not expected")
    }
}

/// No simulations are made, and nobody has a say.
struct Nobody;

impl Simulation for Nobody {
    fn fits(&self, _: &mut Cycle<'_>, _: &NodeInfo) -> Result<(), Rejection> {
        Ok(())
    }
    fn count(&self, _: &mut Cycle<'_>, _: Move<'_>) {}
}

impl Consent for Nobody {
    fn candidates(&self) -> Option<&[Candidate]> {
        None
    }
    fn agreed(&self, _: &PodInfo, candidates: Vec<Candidate>) -> Result<Vec<Candidate>, Dissent> {
        Ok(candidates)
    }
}

/// An answer in upstream's form: its code and reasons.
type Answer = (&'static str, Vec<String>);

fn of_rejection(rejection: &Rejection) -> Answer {
    let code = match (rejection.failed, rejection.unresolvable) {
        (true, _) => "Error",
        (_, true) => "UnschedulableAndUnresolvable",
        _ => "Unschedulable",
    };
    (code, rejection.reasons.iter().map(|r| r.to_string()).collect())
}

fn of(result: &Result<(), Rejection>) -> Answer {
    result.as_ref().map_or_else(of_rejection, |()| ("Success", Vec::new()))
}

/// A claim without what differs from run to run: ids, times, and which of several devices was chosen.
fn told(claim: &Value) -> Value {
    let claim: ResourceClaim = typed(claim);
    let status = claim.status.unwrap_or_default();
    let mut results = json!(status.allocation.as_ref().and_then(|a| a.devices.as_ref()).map(|d| &d.results));
    for result in results.as_array_mut().into_iter().flatten() {
        for field in ["device", "shareID"] {
            result.as_object_mut().map(|r| r.remove(field));
        }
    }
    let made = claim.metadata.generate_name.is_some();
    json!({
        "name": if made { claim.metadata.generate_name } else { claim.metadata.name },
        "finalizers": claim.metadata.finalizers.unwrap_or_default(),
        "reservedFor": status.reserved_for.unwrap_or_default(),
        "results": results,
        "selector": status.allocation.as_ref().map(|a| &a.node_selector),
        "requests": claim.spec.devices.and_then(|d| d.requests),
    })
}

fn sorted(claims: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut all: Vec<Value> = claims.collect();
    all.sort_by_key(Value::to_string);
    all
}

struct Run {
    plugin: Arc<DynamicResources>,
    api: Arc<Api>,
    client: Client,
    cache: Cache,
    pod: PodInfo,
    carried: State,
    /// The scores that are to be normalized.
    scores: Vec<(String, i64)>,
}

fn settings(case: &Value) -> Settings {
    let has = |list: &str, gate: &str| self::list(&case[list]).iter().any(|g| g == gate);
    let is_on = |gate: &str| !has("disabled", gate);
    let duration = |field: &str, default: u64| match case[field].as_str() {
        Some(text) => Duration::try_from(api::time::parse_duration(text).unwrap()).unwrap_or_default(),
        None => Duration::from_secs(default),
    };
    let timeout = duration("filterTimeout", 10);
    Settings {
        features: Features {
            admin_access: is_on("DRAAdminAccess"),
            consumable_capacity: has("enabled", "DRAConsumableCapacity"),
            binding_conditions: is_on("DRADeviceBindingConditions") && is_on("DRAResourceClaimDeviceStatus"),
            device_taints: has("enabled", "DRADeviceTaints"),
            list_attributes: false,
            partitionable_devices: false,
            prioritized_list: has("enabled", "DRAPrioritizedList"),
        },
        extended: has("enabled", "DRAExtendedResource"),
        by_group: has("enabled", "DRAWorkloadResourceClaims"),
        filter_timeout: (is_on("DRASchedulerFilterTimeout") && !timeout.is_zero()).then_some(timeout),
        binding_timeout: duration("bindingTimeout", 600),
    }
}

impl Run {
    fn new(case: &Value) -> Self {
        let mut cache = Cache::default();
        for node in list(&case["nodes"]) {
            cache.set_node(Arc::new(typed::<Node>(node)));
        }
        let (devices, settings) = (cache.devices().clone(), settings(case));
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        devices.begin(Clock::from(now), settings.features.consumable_capacity, false);
        for class in list(&case["classes"]) {
            devices.take(&News::Class(Change::Added(Arc::new(typed(class)))));
        }
        for object in list(&case["objs"]) {
            if object["spec"].get("pool").is_some() {
                devices.take(&News::Slice(Change::Added(Arc::new(typed(object)))));
            }
        }
        for group in list(&case["podGroups"]) {
            cache.groups().take(&Change::Added(Arc::new(typed(group))));
        }
        for pod in list(&case["placed"]) {
            cache.set_pod(PodInfo::new(typed(pod)), text(&pod["spec"]["nodeName"]));
        }
        let api = Arc::new(Api {
            devices: devices.clone(),
            claims: Mutex::default(),
            patches: Mutex::default(),
            made: Mutex::default(),
        });
        let run = Self {
            plugin: Arc::new(DynamicResources { settings }),
            client: Client::new(api.clone(), "cases"),
            api,
            cache,
            pod: PodInfo::new(typed::<Pod>(&case["pod"])),
            carried: State::default(),
            scores: Vec::new(),
        };
        run.show(&case["claims"]);
        for claim in list(&case["pending"]) {
            let allocation =
                typed::<ResourceClaim>(claim).status.and_then(|s| s.allocation).unwrap_or_default();
            devices.write().set_pending(text(&claim["metadata"]["uid"]), allocation);
        }
        run
    }

    /// The API shows these claims.
    fn show(&self, claims: &Value) {
        for claim in list(claims) {
            let key =
                format!("{}/{}", text(&claim["metadata"]["namespace"]), text(&claim["metadata"]["name"]));
            let known = self.api.claims().get(&key).cloned();
            if known.is_none_or(|known| told(&known) != told(claim) || known["status"] != claim["status"]) {
                self.api.set(key, Some(claim.clone()));
            }
        }
    }

    fn normalized(&self) -> Value {
        let mut scores: Vec<i64> = self.scores.iter().map(|(_, score)| *score).collect();
        let cycle = Cycle { pod: &self.pod, cluster: &self.cache, state: State::default() };
        self.plugin.normalize(&cycle, &[], &mut scores);
        let names = self.scores.iter().map(|(name, _)| name.clone());
        Value::Object(names.zip(scores).map(|(name, score)| (name, json!(score))).collect::<Map<_, _>>())
    }

    fn binds(&self, node: &str) -> bool {
        PreBind::concerns(&*self.plugin, &self.pod, node, &self.carried)
    }

    fn reserved(&mut self, node: &str) -> Answer {
        let info = self.cache.node(node).unwrap();
        of(&self.plugin.reserve(&self.pod, &self.cache, info, &mut self.carried))
    }

    async fn unreserved(&mut self, node: &str) -> Answer {
        self.plugin.unreserve(&self.pod, node, &mut self.carried);
        if let Some(errand) = self.plugin.afterwards(&self.pod, &self.carried) {
            errand.run(self.client.clone()).await.unwrap();
        }
        ("Success", Vec::new())
    }

    async fn pre_bound(&self, node: &str) -> Answer {
        let all = Arc::new(Semaphore::new(1));
        let place = Place::new(all.clone(), all.clone().try_acquire_owned().unwrap());
        let gone = Gone::default();
        let (client, profile) = (&self.client, "default-scheduler");
        let binding = Binding {
            pod: &self.pod,
            node,
            carried: &self.carried,
            profile,
            recorder: None,
            client,
            place: &place,
            gone: &gone,
        };
        match self.plugin.pre_bind(&binding).await {
            Ok(()) => ("Success", Vec::new()),
            Err(Unbound::Refused(rejection)) => of_rejection(&rejection),
            Err(Unbound::Failed(status)) => ("Error", vec![status.message]),
        }
    }

    async fn post_filtered(&self, cycle: &mut Cycle<'_>) -> Answer {
        let nobody = Nobody;
        let failed = Failed {
            stopped: None,
            verdicts: &Verdicts::default(),
            simulation: &nobody,
            nominated: &Nominated::default(),
            budgets: &[],
            consent: &nobody,
        };
        let why = match self.plugin.post_filter(cycle, &failed) {
            PostFiltered::Does(errand, why) => {
                errand.run(self.client.clone()).await.unwrap();
                why
            }
            PostFiltered::Other(why) => why,
            other => panic!("{other:?}"),
        };
        ("Unschedulable", vec![why])
    }

    /// Compares an answer, and the state after it, with upstream's.
    fn check(&self, wrong: &mut Vec<String>, name: &str, step: &Value, answer: &Answer) {
        let at = format!("{name}, {} {}", text(&step["step"]), text(&step["node"]));
        let expected: Vec<&str> = list(&step["reasons"]).iter().map(text).collect();
        let ((code, said), expected) = ((answer.0, answer.1.join("; ")), expected.join("; "));
        // Upstream's table has only the beginning of some errors.
        let same = if code == "Error" { said.contains(&expected) } else { said == expected };
        if code != text(&step["code"]) || !same {
            wrong.push(format!("{at}: {code} {said:?} instead of {} {expected:?}", step["code"]));
        }
        let stored = sorted(self.api.claims().values().map(told));
        let expected = sorted(list(&step["claims"]).iter().map(told));
        if stored != expected {
            wrong.push(format!("{at}: claims {} instead of {}", json!(stored), json!(expected)));
        }
        let (pending, expected) =
            (self.api.devices.read().all_pending().count(), list(&step["inFlight"]).len());
        if pending != expected {
            wrong.push(format!("{at}: {pending} in flight instead of {expected}"));
        }
        let expected = &step["podStatus"]["extendedResourceClaimStatus"]["requestMappings"];
        let patches = self.api.patches.lock().unwrap_or_else(PoisonError::into_inner);
        let got = patches.last().map(|p| &p["status"]["extendedResourceClaimStatus"]["requestMappings"]);
        if !expected.is_null() && got != Some(expected) {
            wrong.push(format!("{at}: the Pod's status says {got:?} instead of {expected}"));
        }
    }
}

/// The steps of a case, as far as they differ from upstream's.
async fn differences(case: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = text(&case["name"]);
    let mut run = Run::new(case);
    let mut state = State::default();
    for step in list(&case["steps"]) {
        let (kind, node) = (text(&step["step"]), text(&step["node"]));
        if kind == "prepare" {
            run.show(&step["claims"]);
            continue;
        }
        let mut cycle = Cycle { pod: &run.pod, cluster: &run.cache, state };
        let mut judged = None;
        let mut answer: Option<Answer> = match kind {
            "preEnqueue" => {
                let devices = run.cache.devices().clone();
                let prospects = Prospects { devices, ..Prospects::default() };
                Some(of(&run.plugin.pre_enqueue(&run.pod, &prospects)))
            }
            "preFilter" => Some(match run.plugin.pre_filter(&mut cycle) {
                Ok(Prefiltered::Skip) => ("Skip", Vec::new()),
                Ok(_) => ("Success", Vec::new()),
                Err(Stop::Rejected(rejection)) => of_rejection(&rejection),
                Err(Stop::Error(why)) => ("Error", vec![why]),
            }),
            "filter" => Some(of(&run.plugin.filter(&cycle, run.cache.node(node).unwrap()))),
            "score" => {
                judged = Some(run.plugin.score(&cycle, run.cache.node(node).unwrap()));
                Some(("Success", Vec::new()))
            }
            "postFilter" => Some(run.post_filtered(&mut cycle).await),
            _ => None,
        };
        state = std::mem::take(&mut cycle.state);
        drop(cycle);
        match kind {
            // Some time passes.
            "preFilter" => tokio::time::advance(Duration::from_millis(1)).await,
            "score" => {
                let score = judged.unwrap_or(Ok(0));
                if score != Ok(step["score"].as_i64().unwrap_or_default()) {
                    wrong.push(format!("{name}, score of {node}: {score:?} instead of {}", step["score"]));
                }
                run.scores.push((node.to_owned(), score.unwrap_or_default()));
            }
            "normalize" => {
                let got = run.normalized();
                if got != step["scores"] {
                    wrong.push(format!("{name}, normalized: {got} instead of {}", step["scores"]));
                }
                answer = Some(("Success", Vec::new()));
            }
            "reserve" => answer = Some(run.reserved(node)),
            "unreserve" => answer = Some(run.unreserved(node).await),
            "preBindPreFlight" => {
                answer = Some((if run.binds(node) { "Success" } else { "Skip" }, Vec::new()));
            }
            "preBind" if run.binds(node) => answer = Some(run.pre_bound(node).await),
            _ => {}
        }
        run.check(&mut wrong, name, step, &answer.unwrap_or(("Success", Vec::new())));
    }
    wrong
}

#[tokio::test(start_paused = true)]
async fn upstreams_steps() {
    let (mut cases, mut wrong) = (0, Vec::new());
    for line in CASES.lines() {
        cases += 1;
        wrong.extend(differences(&serde_json::from_str(line).unwrap()).await);
    }
    assert!(wrong.is_empty(), "{} of {cases}:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(cases, COUNT);
}
