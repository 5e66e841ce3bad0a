//! The contents of the table after changes, kills and strangers.

use std::collections::BTreeSet;

use netlink::nft::{Batch, Family, Filter, Table};
use proxy::{Event, LocalTraffic, Place, Proxier, Settings};
use serde_json::json;
use testkit::Host;

use crate::network::within;
use crate::objects::{open, service, slice};

const NAME: &str = "proxy-test";

fn proxier() -> Proxier {
    let blocks = vec!["10.0.0.0/8".parse().unwrap()];
    let settings = Settings { local_traffic: LocalTraffic::Blocks(blocks), ..Settings::default() };
    Proxier::new(NAME, settings, Place { node: "me".into(), zone: "".into() })
}

/// All of a table but handles, as text.
fn listing(filter: &mut Filter) -> BTreeSet<String> {
    let table = Table { family: Family::Inet, name: NAME.into() };
    let mut all = BTreeSet::new();
    for chain in filter.chains(&table).unwrap() {
        all.insert(format!("{chain:?}"));
    }
    for rule in filter.rules(&table).unwrap() {
        all.insert(format!("{} {:?}", rule.chain, rule.note));
    }
    for set in filter.sets(&table).unwrap() {
        // The kind matters for ranges alone, and there are none.
        let kind = netlink::nft::SetKind::set(&[]);
        for element in filter.elements(&table, &set.name, &kind).unwrap() {
            all.insert(format!("{} {element:?}", set.name));
        }
        all.insert(format!("{set:?}"));
    }
    all
}

/// A change by chance of one of five Services, or of its endpoints.
fn change(random: &mut fastrand::Rng) -> Event {
    let number = random.u8(0..5);
    let name = format!("s{number}");
    let cluster = format!("172.30.0.{}", number + 1);
    let mut spec = json!({});
    for (field, value) in [
        ("externalTrafficPolicy", json!("Local")),
        ("internalTrafficPolicy", json!("Local")),
        ("sessionAffinity", json!("ClientIP")),
        ("loadBalancerSourceRanges", json!(["192.0.2.0/24"])),
    ] {
        if random.bool() {
            spec[field] = value;
        }
    }
    match random.u8(0..8) {
        0 => Event::ServiceGone(client::Key::new("ns", &name)),
        1 => Event::SliceGone(client::Key::new("ns", format!("{name}-1"))),
        // All of these name the same node port and addresses from outside.
        2 | 3 => open(&name, &cluster, spec),
        4 => service(&name, &cluster, spec),
        _ => {
            let endpoints: Vec<String> = (0..random.u8(0..4))
                .map(|i| format!("10.1.{number}.{i}{}", random.choice(["", "@other", "!"]).unwrap()))
                .collect();
            slice(&name, &endpoints.iter().map(String::as_str).collect::<Vec<_>>())
        }
    }
}

#[test]
fn any_way_ends_in_the_same_contents() {
    let host = Host::new("contents").unwrap();
    for seed in 0..6 {
        within(&host, || {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut filter = Filter::open().unwrap();
            let mut proxier = proxier();
            let mut events = Vec::new();
            for step in 0..60 {
                let event = change(&mut random);
                events.push(event.clone());
                proxier.apply(event);
                if random.bool() {
                    proxier
                        .sync(&mut filter)
                        .unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
                }
            }
            proxier.sync(&mut filter).unwrap();
            let grown = listing(&mut filter);
            // A process that was killed and started finds nothing to do.
            let mut next = self::proxier();
            for event in events {
                next.apply(event);
            }
            let changes = next.sync(&mut filter).unwrap();
            assert!(changes.is_empty(), "seed {seed}: {changes:?}");
            Proxier::remove(&mut filter, NAME).unwrap();
            next.doubt();
            next.sync(&mut filter).unwrap();
            let made = listing(&mut filter);
            let difference: Vec<_> = grown.symmetric_difference(&made).collect();
            assert!(difference.is_empty(), "seed {seed}: {difference:#?}");
            Proxier::remove(&mut filter, NAME).unwrap();
            Proxier::remove(&mut filter, NAME).unwrap();
        });
    }
}

#[test]
fn strangers_are_left_alone_and_damage_is_mended() {
    let host = Host::new("strangers").unwrap();
    within(&host, || {
        let mut filter = Filter::open().unwrap();
        let stranger = Table { family: Family::Inet, name: "stranger".into() };
        let mut batch = Batch::new(&stranger);
        batch.add_table();
        batch.add_chain("services", b"mine");
        filter.commit(batch).unwrap();
        let mut proxier = proxier();
        proxier.apply(slice("s", &["10.1.0.1", "10.1.0.2"]));
        proxier.apply(open("s", "172.30.0.1", json!({})));
        proxier.sync(&mut filter).unwrap();
        let whole = listing(&mut filter);
        assert!(proxier.is_there(&mut filter).unwrap());
        let table = Table { family: Family::Inet, name: NAME.into() };
        let damages: [&dyn Fn(&mut Batch<'_>); 4] = [
            &|batch| batch.delete_table(),
            &|batch| batch.flush_set("services-4"),
            &|batch| batch.flush_chain("output"),
            // A set of another kind has its name: the table is made anew.
            &|batch| {
                batch.delete_table();
                batch.add_table();
                let kind = netlink::nft::SetKind::set(&[netlink::nft::Field::Mark]);
                batch.add_set("services-4", &kind, b"other");
                batch.add_chain("odd", &[]);
            },
        ];
        for (number, damage) in damages.into_iter().enumerate() {
            let mut batch = Batch::new(&table);
            damage(&mut batch);
            filter.commit(batch).unwrap();
            assert_eq!(proxier.is_there(&mut filter).unwrap(), number == 1 || number == 2, "{number}");
            proxier.doubt();
            assert!(!proxier.sync(&mut filter).unwrap().is_empty(), "{number}");
            assert_eq!(listing(&mut filter), whole, "{number}");
            assert!(proxier.is_there(&mut filter).unwrap());
        }
        // A refusal in between loses nothing.
        let mut batch = Batch::new(&table);
        batch.delete_table();
        filter.commit(batch).unwrap();
        proxier.apply(slice("s", &["10.1.0.1"]));
        assert!(proxier.sync(&mut filter).is_err());
        proxier.sync(&mut filter).unwrap();
        let mut next = self::proxier();
        next.apply(slice("s", &["10.1.0.1"]));
        next.apply(open("s", "172.30.0.1", json!({})));
        let changes = next.sync(&mut filter).unwrap();
        assert!(changes.is_empty(), "{changes:?}");
        assert_eq!(filter.chains(&stranger).unwrap().len(), 1);
    });
}

/// One change costs work for its Service alone.
#[test]
fn a_change_is_small() {
    let host = Host::new("small").unwrap();
    within(&host, || {
        let mut filter = Filter::open().unwrap();
        let mut proxier = proxier();
        for i in 0..500_u32 {
            let name = format!("s{i}");
            proxier.apply(service(&name, &format!("172.30.{}.{}", i / 250, i % 250 + 1), json!({})));
            proxier.apply(slice(&name, &["10.1.0.1", "10.1.0.2"]));
        }
        let all = proxier.sync(&mut filter).unwrap();
        assert!(all.added > 3000, "{all:?}");
        assert!(proxier.sync(&mut filter).unwrap().is_empty());
        proxier.apply(slice("s7", &["10.1.0.1", "10.1.0.3"]));
        let one = proxier.sync(&mut filter).unwrap();
        // An endpoint of two ports, and the address that may send to itself.
        assert_eq!((one.added, one.removed, one.chains), (3, 0, 0));
    });
}

/// 10,000 Services of 10 endpoints applied at once, and by the next process; the times are printed.
#[test]
fn ten_thousand_services() {
    let host = Host::new("many").unwrap();
    within(&host, || {
        let mut filter = Filter::open().unwrap();
        let events: Vec<Event> = (0..10_000_u32)
            .flat_map(|i| {
                let (high, low) = (i / 250, i % 250 + 1);
                let endpoints: Vec<String> =
                    (0..10).map(|n| format!("10.{}.{high}.{low}@n{n}", n + 1)).collect();
                let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
                let ports = json!({"ports": [{"name": "t", "port": 80, "protocol": "TCP"}]});
                let name = format!("s{i}");
                [service(&name, &format!("172.30.{high}.{low}"), ports), slice(&name, &endpoints)]
            })
            .collect();
        let start = |filter: &mut Filter| {
            let began = std::time::Instant::now();
            let mut proxier = proxier();
            for event in &events {
                proxier.apply(event.clone());
            }
            let changes = proxier.sync(filter).unwrap();
            (proxier, changes, began.elapsed())
        };
        let (_, changes, first) = start(&mut filter);
        assert_eq!(changes.added, 10_000 * (1 + 1 + 10));
        let (mut proxier, changes, again) = start(&mut filter);
        assert!(changes.is_empty(), "{changes:?}");
        let mut times: Vec<_> = (0..200_u32)
            .map(|i| {
                let began = std::time::Instant::now();
                proxier.apply(slice(&format!("s{i}"), &["10.1.0.1", "10.200.0.1@n1"]));
                assert!(!proxier.sync(&mut filter).unwrap().is_empty());
                began.elapsed()
            })
            .collect();
        times.sort_unstable();
        eprintln!(
            "first start {first:?}, next start {again:?}, one change: median {:?}, p99 {:?}",
            times[times.len() / 2],
            times[times.len() * 99 / 100]
        );
    });
}

#[test]
fn balancers_learn_of_endpoints_that_stay() {
    let check = |endpoints: &[&str], count: usize| {
        let mut proxier = proxier();
        proxier.apply(open("s", "172.30.0.1", json!({"externalTrafficPolicy": "Local"})));
        proxier.apply(slice("s", endpoints));
        proxier.plan();
        let ports: Vec<_> = proxier.health_ports().into_values().collect();
        assert_eq!(ports, [(32000, count)], "{endpoints:?}");
    };
    check(&["10.1.0.1", "10.1.0.2", "10.1.0.3@other"], 2);
    check(&["10.1.0.1!", "10.1.0.2"], 1);
    check(&["10.1.0.1!"], 0);
    check(&[], 0);
}
