//! Flow control as requests meet it: levels that follow their configuration, waiting on a paused clock, whole servers.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use access::{Query, RequestInfo, UserInfo, request_info};
use api::FeatureGates;
use client::Verb;
use futures::{FutureExt, StreamExt};
use http::{HeaderMap, Method};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::config::Configs;
use super::control::{Flow, Patience, Seat, TooMany};
use super::follow;
use crate::config::Limits;
use crate::request::Request;
use crate::testing::{Cluster, call, config_map};

const GROUP: &str = "flowcontrol.apiserver.k8s.io/v1";

fn flow() -> Flow {
    Flow::new(&Limits::default(), FeatureGates::default())
}

/// Requests of users, as the server makes them.
struct Requests(Cluster);

impl Requests {
    fn new() -> Self {
        Self(Cluster::new())
    }

    fn of(&self, flow: &Flow, user: &str, groups: &[&str], path: &str) -> Request {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let query = Query::parse(query);
        let info = request_info::parse(&Method::GET, path, &query).unwrap();
        let mut request = Request::new(self.0.server.objects().catalog(), info, query, None);
        let groups = groups.iter().map(|group| (*group).into()).collect();
        request.user = Arc::new(UserInfo { name: user.into(), groups, ..UserInfo::default() });
        request.caller = flow.caller(&request.user, &request.info);
        request
    }
}

/// The seat of a request that finds one at once.
fn at_once(flow: &Flow, request: &Request) -> Option<Result<Seat, TooMany>> {
    flow.seat(request.asked(), Patience::OnlyAtLevels).now_or_never()
}

fn seats(flow: &Flow, level: &str) -> (usize, usize, u32) {
    flow.live.look(|levels| levels.all.get(level).map_or((0, 0, 0), |seats| seats.level.look(|q| q.load())))
}

const KNOWN: &str = "system:authenticated";

#[test]
fn suggested_schemas_sort_requests_in() {
    let flow = flow();
    let check = |(name, groups): (&str, &[&str]), method: Method, path: &str, expected: &str| {
        let info = request_info::parse(&method, path, &Query::default()).unwrap();
        let groups = groups.iter().map(|group| (*group).into()).collect();
        let user = UserInfo { name: name.into(), groups, ..UserInfo::default() };
        let schema = flow.live.find(&user, &info).unwrap();
        let level = &schema.counts.level;
        assert_eq!(format!("{} {level}", schema.name), expected, "{name} {path}");
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces";
    let pods = "/api/v1/namespaces/a/pods/b";
    let node: (&str, &[&str]) = ("system:node:n", &["system:nodes", KNOWN]);
    let lease = format!("{leases}/kube-node-lease/leases/n");
    check(node, Method::PUT, &lease, "system-node-high node-high");
    check(node, Method::PUT, "/api/v1/nodes/n/status", "system-node-high node-high");
    check(node, Method::GET, pods, "system-nodes system");
    let manager: (&str, &[&str]) = ("system:kube-controller-manager", &[KNOWN]);
    let lock = format!("{leases}/kube-system/leases/l");
    check(manager, Method::PUT, &lock, "system-leader-election leader-election");
    check(manager, Method::PUT, pods, "kube-controller-manager workload-high");
    let own: (&str, &[&str]) = ("system:serviceaccount:kube-system:a", &["system:serviceaccounts", KNOWN]);
    check(own, Method::PUT, pods, "kube-system-service-accounts workload-high");
    let other: (&str, &[&str]) = ("system:serviceaccount:a:a", &["system:serviceaccounts", KNOWN]);
    check(other, Method::PUT, pods, "service-accounts workload-low");
    check(("a", &[KNOWN]), Method::PUT, pods, "global-default global-default");
    check(("a", &["system:masters", KNOWN]), Method::PUT, pods, "exempt exempt");
    let anonymous: (&str, &[&str]) = ("system:anonymous", &["system:unauthenticated"]);
    check(anonymous, Method::GET, "/readyz", "probes exempt");
    check(anonymous, Method::GET, "/version", "global-default global-default");
    check(("nobody", &[]), Method::PUT, pods, "catch-all catch-all");
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_a_quarter_of_their_time() {
    let (flow, requests) = (flow(), Requests::new());
    let request = |at| {
        let mut request = requests.of(&flow, "a", &[KNOWN], "/api/v1/namespaces/a/pods/b");
        request.deadline = at;
        request
    };
    let first = request(None);
    let mut all: Vec<Seat> = Vec::new();
    while let Some(Ok(seat)) = at_once(&flow, &first) {
        all.push(seat);
    }
    let taken = seats(&flow, "global-default");
    assert_eq!((taken.1, taken.2), (all.len(), all.len() as u32));
    assert!(all.len() >= 20 && taken.0 == 0, "who gave up waits no longer: {taken:?}");
    let start = Instant::now();
    let waits = |after: u64, deadline: Option<u64>| {
        let request = request(deadline.map(|at| Instant::now() + Duration::from_secs(at)));
        let flow = &flow;
        async move {
            let start = Instant::now();
            let refused = flow.seat(request.asked(), Patience::OnlyAtLevels).await.err();
            assert!(refused.is_some());
            assert_eq!(start.elapsed(), Duration::from_secs(after), "{deadline:?}");
        }
    };
    waits(15, None).await;
    waits(2, Some(8)).await;
    waits(60, Some(3600)).await;
    let (got, ()) = tokio::join!(flow.seat(first.asked(), Patience::OnlyAtLevels), async {
        tokio::task::yield_now().await;
        all.pop();
    });
    assert!(got.is_ok());
    assert_eq!(start.elapsed(), Duration::from_secs(77), "as soon as there is one");
    drop((got, all));
    assert_eq!(seats(&flow, "global-default"), (0, 0, 0));
}

/// Whenever a request is given up, its seat is free, and so is that which it was about to get.
#[tokio::test(start_paused = true)]
async fn seats_come_back_from_whoever_goes() {
    let (flow, requests) = (flow(), Requests::new());
    let request = requests.of(&flow, "a", &[KNOWN], "/api/v1/namespaces/a/pods/b");
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..20 {
        let mut seated: Vec<Seat> = Vec::new();
        let mut waiting: Vec<_> =
            (0..200).map(|_| Box::pin(flow.seat(request.asked(), Patience::OnlyAtLevels))).collect();
        for _ in 0..400 {
            match rng.u8(0..3) {
                0 if !waiting.is_empty() => drop(waiting.swap_remove(rng.usize(..waiting.len()))),
                1 if !waiting.is_empty() => {
                    let at = rng.usize(..waiting.len());
                    if let Some(got) = waiting[at].as_mut().now_or_never() {
                        seated.extend(got.ok());
                        drop(waiting.swap_remove(at));
                    }
                }
                _ if !seated.is_empty() => drop(seated.swap_remove(rng.usize(..seated.len()))),
                _ => {}
            }
        }
        drop((waiting, seated));
        assert_eq!(seats(&flow, "global-default"), (0, 0, 0));
    }
    let kinds = |phases: &[super::counts::Phase; 2]| phases.iter().map(|phase| phase.count()).sum::<u32>();
    assert_eq!((kinds(&flow.kinds.running), kinds(&flow.kinds.waiting)), (0, 0));
}

/// Seats that linger are free in time, even if nothing else happens.
#[tokio::test(start_paused = true)]
async fn who_waits_gets_the_seats_of_what_lingers() {
    let (flow, requests) = (flow(), Requests::new());
    let path = "/api/v1/namespaces/a/pods/b";
    let info = request_info::parse(&Method::PUT, path, &Query::default()).unwrap();
    let _watches: Vec<_> = (0..50).map(|_| flow.watchers.add(&info)).collect();
    let mut write = requests.of(&flow, "a", &[KNOWN], path);
    (write.info, write.mutating) = (Arc::new(info), true);
    let mut all: Vec<Seat> = Vec::new();
    while let Some(Ok(seat)) = at_once(&flow, &write) {
        all.push(seat);
    }
    let start = Instant::now();
    let mut next = pin!(flow.seat(write.asked(), Patience::OnlyAtLevels));
    assert!(next.as_mut().now_or_never().is_none());
    all.pop();
    assert!(next.as_mut().now_or_never().is_none(), "watchers are being told");
    assert!(next.await.is_ok());
    let took = start.elapsed();
    assert!((Duration::from_millis(5)..Duration::from_secs(1)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn levels_come_and_go_quietly() {
    let (flow, requests) = (flow(), Requests::new());
    let level = |queue: bool| {
        let response = if queue {
            json!({"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 1}})
        } else {
            json!({"type": "Reject"})
        };
        json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": response}})
    };
    let mine = json!({
        "matchingPrecedence": 3,
        "priorityLevelConfiguration": {"name": "mine"},
        "rules": [{
            "subjects": [{"kind": "User", "user": {"name": "me"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}],
        }],
    });
    let configs = |spec: Option<Value>| {
        let mut configs = Configs::suggested();
        if let Some(spec) = spec {
            configs.add("mine", &spec, &mine);
        }
        flow.live.configure(configs);
    };
    let request = || requests.of(&flow, "me", &[KNOWN], "/api/v1/namespaces/a/pods/b");
    let level_of = |request: &Request| request.caller.schema.as_ref().unwrap().counts.level.to_string();
    assert_eq!(level_of(&request()), "global-default");
    configs(Some(level(false)));
    let sorted = request();
    assert_eq!(level_of(&sorted), "mine");
    let mut all: Vec<Seat> = Vec::new();
    let refused = loop {
        match at_once(&flow, &sorted).unwrap() {
            Ok(seat) => all.push(seat),
            Err(refused) => break refused,
        }
    };
    let (current, bounds) = flow.live.look(|levels| (levels.all["mine"].current, levels.all["mine"].bounds));
    assert_eq!((bounds.nominal, bounds.least, bounds.most), (3, 3, 603), "600 seats, 246 shares");
    assert_eq!((refused, all.len()), (TooMany { retry_after: 1 }, current as usize));
    assert_eq!(flow.may_come(sorted.asked()), Err(refused));
    configs(Some(level(true)));
    let mut waits = pin!(flow.seat(sorted.asked(), Patience::OnlyAtLevels));
    assert!(waits.as_mut().now_or_never().is_none());
    assert!(at_once(&flow, &sorted).unwrap().is_err(), "the queue is full");
    // The level goes; those that have come to it stay.
    configs(None);
    assert_eq!((level_of(&request()), seats(&flow, "mine").0), ("global-default".into(), 1));
    all.clear();
    let seat = waits.await.unwrap();
    assert_eq!(seats(&flow, "mine"), (0, 1, 1));
    let mut idle = pin!(flow.live.idle.notified());
    assert!(idle.as_mut().now_or_never().is_none());
    drop(seat);
    idle.await;
    configs(None);
    assert!(flow.live.look(|levels| !levels.all.contains_key("mine")));
}

#[tokio::test(start_paused = true)]
async fn without_fairness_there_are_only_limits() {
    let limits = Limits { max_in_flight: 2, priority_and_fairness: false, ..Limits::default() };
    let (flow, requests) = (Flow::new(&limits, FeatureGates::default()), Requests::new());
    let request = requests.of(&flow, "a", &[KNOWN], "/api/v1/namespaces/a/pods/b");
    let seats: Vec<_> = (0..2).map(|_| at_once(&flow, &request).unwrap().unwrap()).collect();
    let none = TooMany { retry_after: 1 };
    assert_eq!(at_once(&flow, &request).unwrap().err(), Some(none));
    assert_eq!(flow.may_come(request.asked()), Err(none));
    let start = Instant::now();
    assert_eq!(flow.seat(request.asked(), Patience::Always).await.err(), Some(none), "not for ever");
    assert_eq!(start.elapsed(), Duration::from_secs(15));
    let master = requests.of(&flow, "m", &["system:masters"], "/api/v1/namespaces/a/pods/b");
    assert!(at_once(&flow, &master).unwrap().is_ok());
    let watch = requests.of(&flow, "a", &[KNOWN], "/api/v1/namespaces/a/pods?watch=true");
    assert!(at_once(&flow, &watch).unwrap().is_ok());
    drop(seats);
    assert!(at_once(&flow, &request).unwrap().is_ok());
    let mut headers = HeaderMap::new();
    request.caller.tell(&mut headers);
    assert!(headers.is_empty());
}

/// A watch has its seats until its initial state was sent.
#[tokio::test]
async fn watches_give_their_seats_back_when_they_have_begun() {
    let c = Cluster::new();
    let user = UserInfo { name: "w".into(), groups: vec![KNOWN.into()], ..UserInfo::default() };
    let transport = c.server.transport(user, "w");
    let flow = &c.server.0.front.flow;
    c.call(Verb::Create, "-/v1/configmaps/ns", config_map("a", "1")).await.unwrap();
    let path = "-/v1/configmaps/ns?allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut events = transport.watch(call(Verb::Watch, path, &Value::Null)).await.unwrap();
    assert_eq!(seats(flow, "global-default").1, 1);
    events.next().await.unwrap().unwrap();
    events.next().await.unwrap().unwrap();
    assert_eq!(seats(flow, "global-default"), (0, 0, 0), "the bookmark ends its state");
    let write =
        RequestInfo { resource: "configmaps".into(), namespace: "ns".into(), ..RequestInfo::default() };
    assert_eq!(flow.watchers.of_write(&write), 1);
    let later = transport.watch(call(Verb::Watch, "-/v1/configmaps/ns?resourceVersion=1", &Value::Null));
    let later = later.await.unwrap();
    assert_eq!((seats(flow, "global-default").1, flow.watchers.of_write(&write)), (0, 2));
    drop((events, later));
    assert_eq!(flow.watchers.of_write(&write), 0);
}

/// The flow schemas and levels of the store act as soon as they are there.
#[tokio::test]
async fn the_store_is_followed() {
    let c = Cluster::new();
    let flow = Arc::clone(&c.server.0.front.flow);
    let (own, objects) = (Arc::clone(&flow), Arc::clone(c.server.objects()));
    let following = tokio::spawn(async move { follow(&own, &objects).await });
    let schema_of = || {
        let info = RequestInfo { path: "/version".into(), verb: "get", ..RequestInfo::default() };
        let user = UserInfo { name: "noxu".into(), groups: vec![KNOWN.into()], ..UserInfo::default() };
        flow.live.find(&user, &info).unwrap()
    };
    let becomes = async |name: &str| {
        let reached = async {
            while schema_of().name != name {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), reached).await.unwrap();
    };
    let level = json!({
        "apiVersion": GROUP, "kind": "PriorityLevelConfiguration", "metadata": {"name": "l"},
        "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}},
    });
    let schema = json!({
        "apiVersion": GROUP, "kind": "FlowSchema", "metadata": {"name": "s"},
        "spec": {
            "matchingPrecedence": 1000,
            "priorityLevelConfiguration": {"name": "l"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "noxu"}}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            }],
        },
    });
    c.call(Verb::Create, &format!("{GROUP}/flowschemas"), schema).await.unwrap();
    becomes("catch-all").await;
    let level = c.call(Verb::Create, &format!("{GROUP}/prioritylevelconfigurations"), level).await.unwrap();
    becomes("s").await;
    assert_eq!(schema_of().level_uid, level["metadata"]["uid"].as_str().unwrap());
    c.call(Verb::Delete, &format!("{GROUP}/prioritylevelconfigurations/-/l"), Value::Null).await.unwrap();
    becomes("catch-all").await;
    following.abort();
}
