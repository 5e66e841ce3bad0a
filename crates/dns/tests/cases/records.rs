//! Changes of objects, and answers that are too long.

use std::collections::HashSet;

use serde_json::json;

use super::*;

#[tokio::test]
async fn answers_follow_the_objects() {
    let run = start(Config { reverse: vec!["10.0.0.0/8".parse().unwrap()], ..config() }).await;
    let zone = run.zone();
    namespace(zone, "ns");
    zone.set_synced();
    let answers = async |asked: &str| ask(&run, asked).await.answers.len();
    let http = json!([{"name": "http", "port": 80}]);
    // Slices may come before their Service, and stay when it goes.
    let one = slice_view("s.ns", 1, &http, &endpoints(&["10.0.0.1", "10.0.0.2"]));
    apply(zone, Event::Slice(Change::Added(one.clone())));
    assert_eq!(answers("s.ns.svc.cluster.local A").await, 0);
    let headless = service_view("s.ns", &json!({"clusterIP": "None"}));
    apply(zone, Event::Service(Change::Added(headless.clone())));
    assert_eq!(answers("s.ns.svc.cluster.local A").await, 2);
    let two = slice_view("s.ns", 1, &http, &endpoints(&["10.0.0.2", "10.0.0.3", "10.0.0.4"]));
    apply(zone, Event::Slice(Change::Updated { old: one, new: two.clone() }));
    assert_eq!(answers("s.ns.svc.cluster.local A").await, 3);
    assert_eq!(answers("1.0.0.10.in-addr.arpa PTR").await, 0);
    assert_eq!(answers("2.0.0.10.in-addr.arpa PTR").await, 1);
    let other = slice_view("t.ns", 1, &http, &endpoints(&["10.0.0.2"]));
    apply(zone, Event::Slice(Change::Added(other.clone())));
    assert_eq!(answers("2.0.0.10.in-addr.arpa PTR").await, 2, "two Services have it");
    apply(zone, Event::Slice(Change::Deleted(two)));
    assert_eq!(answers("2.0.0.10.in-addr.arpa PTR").await, 1);
    assert_eq!(ask(&run, "s.ns.svc.cluster.local A").await.rcode, "NXDOMAIN");
    apply(zone, Event::Slice(Change::Deleted(other)));
    let cluster = service_view("s.ns", &json!({"clusterIP": "10.0.0.9"}));
    apply(zone, Event::Service(Change::Updated { old: headless, new: cluster.clone() }));
    assert_eq!(answers("s.ns.svc.cluster.local A").await, 1);
    assert_eq!(answers("9.0.0.10.in-addr.arpa PTR").await, 1);
    apply(zone, Event::Service(Change::Deleted(cluster)));
    assert_eq!(answers("9.0.0.10.in-addr.arpa PTR").await, 0);
    assert_eq!(
        (ask(&run, "s.ns.svc.cluster.local A").await.rcode.as_str(), zone.services()),
        ("NXDOMAIN", 0)
    );
    run.shutdown.finish().await;
}

#[tokio::test]
async fn addresses_come_in_any_order() {
    let run = start(config()).await;
    namespace(run.zone(), "ns");
    service(run.zone(), "s.ns", &json!({"clusterIP": "None"}));
    let all: Vec<String> = (1..=4).map(|n| format!("10.0.0.{n}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    slice(run.zone(), "s.ns", 1, &json!([]), &endpoints(&all));
    let packet = question(1, "s.ns.svc.cluster.local", 1, None);
    let mut first = HashSet::new();
    for _ in 0..200 {
        let message = message(&udp(run.address(), &packet).await);
        assert_eq!(message.answers.len(), 4);
        first.insert(message.answers[0].data.to_string());
    }
    assert_eq!(first.len(), 4);
    run.shutdown.finish().await;
}

#[tokio::test]
async fn long_answers_are_cut_and_whole_over_tcp() {
    let run = start(config()).await;
    namespace(run.zone(), "ns");
    service(run.zone(), "s.ns", &json!({"clusterIP": "None"}));
    let http = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    for n in 0..50usize {
        let all: Vec<String> = (0..100).map(|i| format!("10.1.{n}.{i}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        slice(run.zone(), "s.ns", n, &http, &endpoints(&all));
    }
    for (name, kind, whole) in [
        ("s.ns.svc.cluster.local", 1, None),
        ("_http._tcp.s.ns.svc.cluster.local", 33, None),
        ("10-1-0-1.s.ns.svc.cluster.local", 1, Some(1)),
    ] {
        for (edns, limit) in [(None, 512), (Some(600), 600), (Some(100), 512), (Some(65535), 1232)] {
            let packet = question(1, name, kind, edns);
            let cut = udp(run.address(), &packet).await;
            let message = message(&cut);
            assert_eq!(
                (cut.len() <= limit, message.metadata.truncation, message.edns.is_some()),
                (true, whole.is_none(), edns.is_some())
            );
            assert!(whole.is_some() || cut.len() > limit - 100, "{name} {edns:?}: {}", cut.len());
        }
        let message = message(&tcp(run.address(), &question(1, name, kind, None)).await);
        let distinct: HashSet<String> = message.answers.iter().map(ToString::to_string).collect();
        assert_eq!(distinct.len(), message.answers.len());
        assert!(whole.is_none_or(|n| n == distinct.len()));
        assert!(whole.is_some() || distinct.len() > 500, "{}", distinct.len());
    }
    run.shutdown.finish().await;
}
