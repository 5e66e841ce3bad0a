//! Links, addresses, routes and neighbours.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use ferrokube_netlink::{Address, Limit, LinkChange, Neighbour, Route, Routing, Scope, Vxlan, namespace};
use testkit::{Host, eventually};

use crate::{of, within};

const FAR: [u8; 6] = [2, 0, 0, 0, 0, 2];
const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Links two hosts: `near` has 10.0.0.1 and `far` 10.0.0.2, without a network around them.
fn linked() -> (Host, Host) {
    let (near, far) = (Host::new("near").unwrap(), Host::new("far").unwrap());
    let to = of(&far);
    within(&near, || {
        let mut routing = Routing::open().unwrap();
        let outside =
            LinkChange { up: Some(true), mtu: Some(1400), address: Some(NEAR), ..LinkChange::default() };
        let inside = LinkChange {
            mtu: Some(1400),
            address: Some(FAR),
            namespace: Some(to.as_fd()),
            ..LinkChange::default()
        };
        routing.add_veth("v0", &outside, "eth0", &inside).unwrap();
        assert!(routing.add_veth("v0", &outside, "eth0", &inside).unwrap_err().is_present());
        end(&mut routing, "v0", "10.0.0.1", "10.0.0.2", FAR);
    });
    within(&far, || {
        let mut routing = Routing::open().unwrap();
        end(&mut routing, "eth0", "10.0.0.2", "10.0.0.1", NEAR);
    });
    (near, far)
}

/// Gives a link an address and the way to the other end.
fn end(routing: &mut Routing, name: &str, own: &str, other: &str, hardware: [u8; 6]) {
    let link = routing.link(name).unwrap().unwrap();
    routing.change_link(link.index, &LinkChange { up: Some(true), ..LinkChange::default() }).unwrap();
    let link = routing.link(name).unwrap().unwrap();
    assert_eq!((link.kind.as_str(), link.mtu, link.up), ("veth", 1400, true));
    let address = Address { link: link.index, address: ip(own), prefix: 32 };
    routing.add_address(&address).unwrap();
    routing.add_address(&address).unwrap();
    assert!(routing.addresses().unwrap().contains(&address));
    let route = Route { protocol: 70, source: Some(ip(own)), ..Route::on(link.index, ip(other), 32) };
    routing.replace_route(&route).unwrap();
    routing.replace_route(&route).unwrap();
    assert!(routing.routes().unwrap().contains(&route), "{:?}", routing.routes());
    let neighbour = Neighbour::Address { link: link.index, address: ip(other), hardware };
    routing.replace_neighbour(&neighbour).unwrap();
    assert_eq!(routing.neighbours(link.index).unwrap(), [neighbour]);
}

/// Whether a datagram from one host reaches another's address.
fn reaches(from: &Host, to: &Host, address: &str) -> bool {
    let Ok(there) = within(to, || UdpSocket::bind((address, 4000))) else { return false };
    there.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let sent = within(from, || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.send_to(b"hello", (address, 4000))
    });
    sent.is_ok() && there.recv(&mut [0; 8]).is_ok()
}

/// Waits until a datagram arrives: the kernel takes up to a second until it believes in a link that comes up.
fn arrives(from: &Host, to: &Host, address: &str) {
    eventually("a datagram arrives", || Ok(reaches(from, to, address).then_some(()))).unwrap();
}

#[test]
fn two_ends_of_a_link_reach_each_other_until_something_is_missing() {
    let (near, far) = linked();
    arrives(&near, &far, "10.0.0.2");
    arrives(&far, &near, "10.0.0.1");
    within(&near, || {
        let mut routing = Routing::open().unwrap();
        let link = routing.link("v0").unwrap().unwrap();
        assert_eq!(routing.link_by_index(link.index).unwrap().as_ref(), Some(&link));
        let changed = LinkChange { up: Some(false), alias: Some("a Pod's"), ..LinkChange::default() };
        routing.change_link(link.index, &changed).unwrap();
        let link = routing.link("v0").unwrap().unwrap();
        assert_eq!((link.up, link.alias.as_str()), (false, "a Pod's"));
        routing.change_link(link.index, &LinkChange { up: Some(true), ..LinkChange::default() }).unwrap();
        let route = Route { protocol: 70, ..Route::on(link.index, ip("10.0.0.2"), 32) };
        assert!(
            !routing.routes().unwrap().iter().any(|r| r.destination == ip("10.0.0.2")),
            "it went with the link"
        );
        routing.delete_route(&route).unwrap();
        routing.replace_route(&route).unwrap();
    });
    arrives(&near, &far, "10.0.0.2");
    within(&near, || {
        let mut routing = Routing::open().unwrap();
        let link = routing.link("v0").unwrap().unwrap();
        let neighbour = Neighbour::Address { link: link.index, address: ip("10.0.0.2"), hardware: FAR };
        routing.delete_neighbour(&neighbour).unwrap();
        routing.delete_neighbour(&neighbour).unwrap();
        assert_eq!(routing.neighbours(link.index).unwrap(), []);
        let address = Address { link: link.index, address: ip("10.0.0.1"), prefix: 32 };
        routing.delete_address(&address).unwrap();
        routing.delete_address(&address).unwrap();
        routing.delete_link(link.index).unwrap();
        routing.delete_link(link.index).unwrap();
        assert_eq!(routing.link("v0").unwrap(), None);
        assert_eq!(routing.link_by_index(link.index).unwrap(), None);
    });
    assert!(!reaches(&near, &far, "10.0.0.2"));
}

#[test]
fn many_links_go_together_and_no_other() {
    let host = Host::new("many").unwrap();
    within(&host, || {
        let mut routing = Routing::open().unwrap();
        let mut indexes = Vec::new();
        let own = LinkChange { group: Some(0x666b_0000), ..LinkChange::default() };
        for (name, change) in [("a", &LinkChange::default()), ("b", &own), ("c", &LinkChange::default())] {
            let far = format!("{name}-far");
            routing.add_veth(name, &LinkChange::default(), &far, &LinkChange::default()).unwrap();
            let link = routing.link(name).unwrap().unwrap();
            routing.change_link(link.index, change).unwrap();
            indexes.push(link.index);
        }
        assert_eq!(routing.link("b").unwrap().unwrap().group, 0x666b_0000);
        let names = |routing: &mut Routing| {
            let links = routing.links().unwrap().into_iter().map(|link| link.name);
            links.filter(|name| name != "lo").collect::<std::collections::BTreeSet<_>>()
        };
        let gone = [indexes[0], indexes[2], 4_000_000];
        routing.delete_links(&gone).unwrap();
        assert_eq!(names(&mut routing), ["b".to_owned(), "b-far".to_owned()].into());
        routing.delete_links(&gone).unwrap();
        routing.delete_links(&[]).unwrap();
        assert_eq!(names(&mut routing).len(), 2);
        routing.delete_links(&[indexes[1]]).unwrap();
        assert!(names(&mut routing).is_empty());
    });
}

#[test]
fn a_vxlan_joins_machines_behind_a_gateway() {
    let (near, far) = linked();
    let ends = [
        (&near, "v0", "10.0.0.1", "10.0.0.2", "10.1.1.1", "10.1.2.0", [6, 0, 0, 0, 0, 1], [6, 0, 0, 0, 0, 2]),
        (
            &far,
            "eth0",
            "10.0.0.2",
            "10.0.0.1",
            "10.1.2.1",
            "10.1.1.0",
            [6, 0, 0, 0, 0, 2],
            [6, 0, 0, 0, 0, 1],
        ),
    ];
    for (host, below, local, machine, own, others, hardware, other) in ends {
        within(host, || {
            let mut routing = Routing::open().unwrap();
            let link = routing.link(below).unwrap().unwrap().index;
            let vxlan =
                Vxlan { name: "vx", id: 7, port: 8472, local: ip(local), link, address: hardware, mtu: 1350 };
            routing.add_vxlan(&vxlan).unwrap();
            let made = routing.link("vx").unwrap().unwrap();
            assert_eq!((made.kind.as_str(), made.mtu, made.up), ("vxlan", 1350, true));
            assert_eq!(made.address, hardware);
            routing.add_address(&Address { link: made.index, address: ip(own), prefix: 32 }).unwrap();
            let gateway = IpAddr::from([10, 1, others.as_bytes()[5] - b'0', 1]);
            let entries = [
                Neighbour::Address { link: made.index, address: gateway, hardware: other },
                Neighbour::Machine { link: made.index, hardware: other, machine: ip(machine) },
            ];
            for entry in &entries {
                routing.replace_neighbour(entry).unwrap();
            }
            assert_eq!(routing.neighbours(made.index).unwrap(), entries);
            let route =
                Route { on_link: true, protocol: 70, ..Route::via(gateway, made.index, ip(others), 24) };
            routing.replace_route(&route).unwrap();
            let found: Vec<Route> = routing
                .routes()
                .unwrap()
                .into_iter()
                .filter(|r| r.protocol == 70 && r.link == made.index)
                .collect();
            assert_eq!(found, [route]);
            assert_eq!(found[0].scope, Scope::Universe);
        });
    }
    arrives(&near, &far, "10.1.2.1");
    arrives(&far, &near, "10.1.1.1");
}

#[test]
fn ipv6_routes_and_a_bridge() {
    let host = Host::new("six").unwrap();
    within(&host, || {
        let mut routing = Routing::open().unwrap();
        let up = LinkChange { up: Some(true), ..LinkChange::default() };
        routing.add_bridge("b0", &up).unwrap();
        let bridge = routing.link("b0").unwrap().unwrap();
        assert_eq!(bridge.kind, "bridge");
        let address = Address { link: bridge.index, address: ip("fd00::1"), prefix: 64 };
        routing.add_address(&address).unwrap();
        assert!(routing.addresses().unwrap().contains(&address));
        let route =
            Route { metric: 500, mtu: 1300, ..Route::via(ip("fd00::2"), bridge.index, ip("fd01::"), 48) };
        routing.replace_route(&Route { protocol: 70, ..route }).unwrap();
        let found = routing.routes().unwrap();
        assert!(found.contains(&Route { protocol: 70, ..route }), "{found:?}");
        routing.add_veth("p0", &up, "p1", &LinkChange::default()).unwrap();
        let port = routing.link("p0").unwrap().unwrap();
        let joined = LinkChange { master: Some(bridge.index), ..LinkChange::default() };
        routing.change_link(port.index, &joined).unwrap();
        assert_eq!(routing.link("p0").unwrap().unwrap().master, Some(bridge.index));
        assert!(routing.links().unwrap().len() >= 4);
    });
}

#[test]
fn refusals_say_what_was_to_be_done() {
    let host = Host::new("refused").unwrap();
    within(&host, || {
        let mut routing = Routing::open().unwrap();
        let error = routing.add_bridge("a name that is far too long", &LinkChange::default()).unwrap_err();
        assert!(
            error.to_string().starts_with("cannot make the bridge a name that is far too long: "),
            "{error}"
        );
        let error = routing.replace_route(&Route::via(ip("192.0.2.1"), 0, ip("10.9.0.0"), 16)).unwrap_err();
        assert!(error.to_string().starts_with("cannot make the route to 10.9.0.0/16: "), "{error}");
        let error = routing.change_link(4711, &LinkChange::default()).unwrap_err();
        assert!(error.is_missing(), "{error}");
    });
    assert!(namespace::open(Path::new("/proc/self/status")).is_err());
    assert!(namespace::open(Path::new("/proc/0/ns/net")).is_err());
}

#[test]
fn a_link_sends_no_faster_than_it_may() {
    use std::time::Instant;
    let (near, far) = linked();
    arrives(&near, &far, "10.0.0.2");
    within(&near, || {
        let mut routing = Routing::open().unwrap();
        let link = routing.link("v0").unwrap().unwrap().index;
        let limit = Limit { rate: 200_000, burst: 10_000, queue: 1_000_000 };
        routing.limit_link(link, &limit).unwrap();
        routing.limit_link(link, &limit).unwrap();
    });
    let there = within(&far, || UdpSocket::bind(("10.0.0.2", 4000)).unwrap());
    there.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let started = Instant::now();
    within(&near, || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for _ in 0..60 {
            socket.send_to(&[0; 1000], "10.0.0.2:4000").unwrap();
        }
    });
    for _ in 0..60 {
        there.recv(&mut [0; 1500]).unwrap();
    }
    // 62,520 bytes with their headers, of which 10,000 go at once.
    let took = started.elapsed();
    assert!(took > Duration::from_millis(240), "{took:?}");
}
