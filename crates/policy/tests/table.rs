//! The table in the kernel: what the next process finds, and what others have.

use std::process::Command;

use netlink::nft::{Batch, Family, Filter, Hook, Kind, SetKind, Table};
use policy::{Changes, Enforcer, Event, PodView, PolicyView, SpaceView};
use serde_json::json;
use testkit::Host;

use crate::network::{host, view, within};

fn enforcer(pods: u8) -> Enforcer {
    let mut enforcer = Enforcer::new("policy-test", "me");
    enforcer
        .apply(Event::Space(view::<SpaceView>(&json!({"metadata": {"name": "n", "labels": {"a": "b"}}}))));
    for number in 0..pods {
        enforcer.apply(Event::Pod(view::<PodView>(&json!({
            "metadata": {"namespace": "n", "name": format!("p{number}"), "labels": {"app": (number % 3).to_string()}},
            "spec": {"nodeName": "me", "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 80}]}]},
            "status": {"podIPs": [{"ip": format!("10.0.0.{number}")}, {"ip": format!("fd00::{number}")}]},
        }))));
    }
    for number in 0..3 {
        enforcer.apply(ports(number, 80));
    }
    enforcer
}

fn ports(number: u8, port: u16) -> Event {
    Event::Policy(view::<PolicyView>(&json!({
        "metadata": {"namespace": "n", "name": format!("p{number}")},
        "spec": {
            "podSelector": {"matchLabels": {"app": number.to_string()}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {"from": [{"podSelector": {"matchLabels": {"app": "1"}}}, {"namespaceSelector": {}}]},
                {"ports": [{"port": port}, {"port": "web"}, {"port": 1, "endPort": 9, "protocol": "SCTP"}]},
            ],
            "egress": [{"to": [
                {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8", "192.0.2.1/32"]}},
                {"ipBlock": {"cidr": "::/0", "except": ["fd00::/8"]}},
            ], "ports": [{"protocol": "UDP"}]}],
        },
    })))
}

fn sync(host: &Host, enforcer: &mut Enforcer) -> Changes {
    within(host, || enforcer.sync(&mut Filter::open().unwrap())).unwrap()
}

#[test]
fn the_next_process_writes_the_difference_alone() {
    let host = host("node");
    let first = sync(&host, &mut enforcer(6));
    assert!(first.added > 20 && first.objects > 20, "{first:?}");
    assert_eq!(sync(&host, &mut enforcer(6)), Changes::default());
    let more = sync(&host, &mut enforcer(7));
    // Its addresses: in two maps, in the sets of the node's isolated Pods, of all Pods and of named ports.
    assert_eq!(more, Changes { added: 10, removed: 0, objects: 0 });
    let mut less = enforcer(6);
    assert_eq!(sync(&host, &mut less), Changes { added: 0, removed: 10, objects: 0 });
    less.apply(ports(1, 81));
    let one = sync(&host, &mut less);
    // The policy's chain, the chain of its ports for it alone; both families.
    assert_eq!((one.added, one.removed, one.objects), (0, 0, 4), "{one:?}");
    for name in ["p0", "p1", "p2"] {
        less.apply(Event::PolicyGone(client::Key::new("n", name)));
    }
    sync(&host, &mut less);
    let table = Table { family: Family::Inet, name: "policy-test".into() };
    let left = within(&host, || Filter::open().unwrap().rules(&table).unwrap().len());
    assert_eq!(left, 10, "the base chains' rules");
    assert_eq!(sync(&host, &mut Enforcer::new("policy-test", "me")), Changes::default());
}

#[test]
fn what_somebody_changed_is_mended_and_a_table_of_a_stranger_is_left_alone() {
    let host = host("node");
    let stranger = Table { family: Family::Inet, name: "stranger".into() };
    within(&host, || {
        let mut batch = Batch::new(&stranger);
        batch.add_table();
        batch.add_base_chain("mine", Kind::Filter, Hook::Forward, 5);
        batch.add_chain("ingress", &[]);
        Filter::open().unwrap().commit(batch).unwrap();
    });
    let mut enforcer = enforcer(6);
    sync(&host, &mut enforcer);
    let own = Table { family: Family::Inet, name: "policy-test".into() };
    let there =
        |enforcer: &Enforcer| within(&host, || enforcer.is_there(&mut Filter::open().unwrap())).unwrap();
    assert!(there(&enforcer));
    within(&host, || {
        let mut filter = Filter::open().unwrap();
        let mut batch = Batch::new(&own);
        batch.flush_chain("ingress");
        batch.add_chain("other", &[]);
        batch.add_set("other", &SetKind::set(&[netlink::nft::Field::Port]), &[]);
        filter.commit(batch).unwrap();
    });
    assert!(!there(&enforcer));
    enforcer.doubt();
    assert_eq!(sync(&host, &mut enforcer).objects, 3);
    assert!(there(&enforcer) && sync(&host, &mut enforcer).is_empty());
    // A table that cannot be changed into this one is replaced in one step.
    within(&host, || {
        let mut filter = Filter::open().unwrap();
        let mut batch = Batch::new(&own);
        batch.delete_table();
        batch.add_table();
        batch.add_chain("ingress", &[]);
        filter.commit(batch).unwrap();
    });
    enforcer.doubt();
    sync(&host, &mut enforcer);
    assert!(there(&enforcer));
    within(&host, || policy::remove("policy-test")).unwrap();
    within(&host, || policy::remove("policy-test")).unwrap();
    let tables = within(&host, || Filter::open().unwrap().tables(Family::Inet)).unwrap();
    assert_eq!(tables, ["stranger"]);
    let chains = within(&host, || Filter::open().unwrap().chains(&stranger)).unwrap();
    assert_eq!(chains.len(), 2);
}

/// A policy with a thousand rules, each of many peers and ports.
#[test]
fn a_policy_with_a_thousand_rules() {
    let host = host("node");
    let mut enforcer = enforcer(6);
    let rules: Vec<_> = (0..1000)
        .map(|number: u32| {
            let peers: Vec<_> = (0..5)
                .map(|peer| json!({"podSelector": {"matchLabels": {"app": (number * 5 + peer).to_string()}}}))
                .chain([json!({"ipBlock": {"cidr": format!("10.{}.{}.0/24", number / 250, number % 250)}})])
                .collect();
            json!({"from": peers, "ports": [{"port": number + 1}, {"port": number + 10_000, "endPort": number + 20_000}]})
        })
        .collect();
    let object = json!({"metadata": {"namespace": "n", "name": "long"}, "spec": {"podSelector": {}, "ingress": rules}});
    enforcer.apply(Event::Policy(view::<PolicyView>(&object)));
    let changes = sync(&host, &mut enforcer);
    assert!(changes.objects > 5000, "{changes:?}");
    enforcer.doubt();
    assert_eq!(sync(&host, &mut enforcer), Changes::default());
    enforcer.apply(Event::PolicyGone(client::Key::new("n", "long")));
    assert!(sync(&host, &mut enforcer).objects > 5000);
    // The program of nftables reads all of it.
    let network = format!("--net={}", host.network().display());
    if let Ok(out) = Command::new("nsenter").arg(network).args(["--", "nft", "list", "ruleset"]).output() {
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}
