//! The packet filter and tracked connections.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use ferrokube_netlink::conntrack::{Connections, UDP};
use ferrokube_netlink::nft::{
    Base, Batch, Compare, Element, Expression, Family, Field, Filter, Hook, Kind, Meta, Register, SetKind,
    Table, Value, Verdict,
};
use testkit::Host;

use crate::within;

const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

fn table() -> Table {
    Table { family: Family::Inet, name: "test".into() }
}

/// address . protocol . port
fn service(port: u16) -> Vec<u8> {
    endpoint(SERVICE, 6, port)
}

fn endpoint(address: Ipv4Addr, protocol: u8, port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    [&address.octets()[..], &[protocol, 0, 0, 0], &[high, low, 0, 0]].concat()
}

fn services() -> SetKind {
    SetKind::verdicts(&[Field::Address4, Field::Protocol, Field::Port])
}

/// Reads address, protocol and port of the destination into the registers 0 to 2, for IPv4.
fn destination() -> Vec<Expression<'static>> {
    vec![
        Expression::Meta(Meta::Network, Register(0)),
        Expression::Compare(Compare::Equal, Register(0), Cow::Borrowed(&[2])),
        Expression::Payload { base: Base::Network, offset: 16, length: 4, to: Register(0) },
        Expression::Meta(Meta::Transport, Register(1)),
        Expression::Payload { base: Base::Transport, offset: 2, length: 2, to: Register(2) },
    ]
}

/// Connections to the service's port 80 go to one of the two ports of this machine.
fn balance(filter: &mut Filter, ports: [u16; 2]) {
    let table = table();
    let mut batch = Batch::new(&table);
    batch.add_table();
    batch.add_base_chain("output", Kind::Nat, Hook::Output, -100);
    batch.add_set("services", &services(), b"of services");
    batch.add_chain("two", b"a note");
    let backends = SetKind::map(&[Field::Number], &[Field::Address4, Field::Port]);
    batch.add_set("backends", &backends, &[]);
    let values: Vec<Vec<u8>> = ports
        .iter()
        .map(|port| {
            let [high, low] = port.to_be_bytes();
            [&[127, 0, 0, 1][..], &[high, low, 0, 0]].concat()
        })
        .collect();
    let numbers = [0_u32.to_ne_bytes(), 1_u32.to_ne_bytes()];
    let elements: Vec<Element<'_>> = numbers
        .iter()
        .zip(&values)
        .map(|(number, value)| Element::value(&number[..], Value::Bytes(Cow::Borrowed(&value[..]))))
        .collect();
    batch.add_elements("backends", &backends, &elements);
    batch.add_rule(
        "two",
        &[
            Expression::Random { modulus: 2, offset: 0, to: Register(0) },
            Expression::Map { map: "backends", key: Register(0), to: Register(4) },
            Expression::DestinationNat { ipv6: false, address: Register(4), port: Some(Register(5)) },
        ],
        b"pick",
    );
    let mut rule = destination();
    rule.push(Expression::Counter);
    rule.push(Expression::VerdictMap("services", Register(0)));
    batch.add_rule("output", &rule, &[]);
    let key = service(80);
    let to = Element::value(&key[..], Value::Verdict(Verdict::Goto("two".into())));
    batch.add_elements("services", &services(), [&to]);
    filter.commit(batch).unwrap();
}

fn loopback_up() {
    let mut routing = ferrokube_netlink::Routing::open().unwrap();
    let lo = routing.link("lo").unwrap().unwrap();
    // Packets to the service need a way before they are rewritten.
    let any = ferrokube_netlink::Route {
        protocol: 70,
        source: Some(Ipv4Addr::LOCALHOST.into()),
        ..ferrokube_netlink::Route::on(lo.index, Ipv4Addr::new(10, 96, 0, 0).into(), 16)
    };
    routing.replace_route(&any).unwrap();
}

/// A server that tells its name to everybody who connects.
fn server(name: u8) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let _ = connection.write_all(&[name]);
        }
    });
    port
}

/// The name of the server that answers for the service.
fn answer() -> u8 {
    let mut near = TcpStream::connect_timeout(&(SERVICE, 80).into(), Duration::from_secs(5)).unwrap();
    let mut name = [0];
    near.read_exact(&mut name).unwrap();
    name[0]
}

#[test]
fn connections_go_where_maps_say_until_they_are_told_otherwise() {
    let host = Host::new("nat").unwrap();
    within(&host, || {
        loopback_up();
        let ports = [server(b'a'), server(b'b')];
        let mut filter = Filter::open().unwrap();
        balance(&mut filter, ports);
        let seen: BTreeSet<u8> = (0..40).map(|_| answer()).collect();
        assert_eq!(seen, BTreeSet::from(*b"ab"));

        // One endpoint of two.
        let table = table();
        let mut batch = Batch::new(&table);
        let backends = SetKind::map(&[Field::Number], &[Field::Address4, Field::Port]);
        let (zero, one) = (0_u32.to_ne_bytes(), 1_u32.to_ne_bytes());
        batch.delete_elements("backends", &backends, [&Element::key(&one[..])]);
        let value = endpoint(Ipv4Addr::LOCALHOST, 0, ports[0]);
        let value = [&value[..4], &value[8..]].concat();
        batch.add_elements(
            "backends",
            &backends,
            [&Element::value(&zero[..], Value::Bytes(Cow::Borrowed(&value[..])))],
        );
        batch.flush_chain("two");
        batch.add_rule(
            "two",
            &[
                Expression::Set(Register(0), Cow::Borrowed(&zero[..])),
                Expression::Map { map: "backends", key: Register(0), to: Register(4) },
                Expression::DestinationNat { ipv6: false, address: Register(4), port: Some(Register(5)) },
            ],
            &[],
        );
        filter.commit(batch).unwrap();
        for _ in 0..20 {
            assert_eq!(answer(), b'a');
        }

        // None: an answer at once.
        let mut batch = Batch::new(&table);
        batch.add_base_chain("refuse", Kind::Filter, Hook::Output, 0);
        let mut rule = destination();
        rule.push(Expression::Compare(Compare::Equal, Register(0), Cow::Owned(service(80))));
        rule.push(Expression::Reject { tcp: true });
        batch.add_rule("refuse", &rule, &[]);
        batch.delete_elements("services", &services(), [&Element::key(service(80))]);
        filter.commit(batch).unwrap();
        let error = TcpStream::connect_timeout(&(SERVICE, 80).into(), Duration::from_secs(5)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);

        let chains = filter.chains(&table).unwrap();
        let names: Vec<(&str, bool, &[u8])> =
            chains.iter().map(|c| (c.name.as_str(), c.base, c.note.as_slice())).collect();
        assert_eq!(names, [("output", true, &[][..]), ("two", false, b"a note"), ("refuse", true, &[])]);
        let rules = filter.rules(&table).unwrap();
        assert_eq!(rules.iter().map(|r| r.chain.as_str()).collect::<Vec<_>>(), ["output", "two", "refuse"]);
        let mut batch = Batch::new(&table);
        batch.delete_rule("refuse", rules[2].handle);
        filter.commit(batch).unwrap();
        assert_eq!(filter.rules(&table).unwrap().len(), 2);
        let sets = filter.sets(&table).unwrap();
        assert_eq!(sets[0].note, b"of services");
        assert_eq!(filter.tables(Family::Inet).unwrap(), ["test"]);
        let mut batch = Batch::new(&table);
        batch.delete_table();
        filter.commit(batch).unwrap();
        assert_eq!(filter.tables(Family::Inet).unwrap(), [""; 0]);
        assert_eq!(filter.sets(&table).unwrap(), []);
    });
}

#[test]
fn many_elements_come_back_as_they_were_written() {
    let host = Host::new("many").unwrap();
    within(&host, || {
        let mut filter = Filter::open().unwrap();
        let table = table();
        let address = |i: u32| Ipv4Addr::from(0x0a00_0000 + i).octets();
        let kinds = [
            ("plain", SetKind::map(&[Field::Address4], &[Field::Mark])),
            ("ranges", SetKind { ranges: true, ..SetKind::set(&[Field::Address4]) }),
            ("fields", SetKind { ranges: true, ..SetKind::verdicts(&[Field::Address4, Field::Port]) }),
            ("ports", SetKind { ranges: true, ..SetKind::set(&[Field::Port]) }),
        ];
        for (name, kind) in &kinds {
            let count = if *name == "plain" { 100_000 } else { 5_000 };
            let written: Vec<Element<'static>> = (0..count)
                .map(|i| {
                    let key = address(4 * i).to_vec();
                    let port = (4 * i) as u16;
                    let port = port.to_be_bytes();
                    match *name {
                        "plain" => Element::value(key, Value::Bytes(Cow::Owned(i.to_be_bytes().to_vec()))),
                        "ranges" => {
                            Element { last: Some(address(4 * i + 2).to_vec().into()), ..Element::key(key) }
                        }
                        "fields" => Element {
                            key: [&key[..], &port, &[0, 0]].concat().into(),
                            last: Some(
                                [&address(4 * i + 2)[..], &u16::MAX.to_be_bytes(), &[0, 0]].concat().into(),
                            ),
                            value: Some(Value::Verdict(Verdict::Drop)),
                        },
                        _ => Element {
                            last: Some(((4 * i + 1) as u16).to_be_bytes().to_vec().into()),
                            ..Element::key(port.to_vec())
                        },
                    }
                })
                .collect();
            let mut batch = Batch::new(&table);
            batch.add_table();
            batch.add_set(name, kind, &[]);
            batch.add_elements(name, kind, &written);
            filter.commit(batch).unwrap_or_else(|error| panic!("{name}: {error}"));
            let read = filter.elements(&table, name, kind).unwrap();
            assert_eq!(read.len(), written.len(), "{name}");
            if let Some((read, written)) = read.iter().zip(&written).find(|(read, written)| read != written) {
                panic!("{name}: {read:?} is not {written:?}");
            }
            let mut batch = Batch::new(&table);
            batch.delete_elements(name, kind, &written[..count as usize / 2]);
            filter.commit(batch).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(filter.elements(&table, name, kind).unwrap().len(), count as usize / 2, "{name}");
        }
    });
}

#[test]
fn a_batch_is_made_whole_or_not_at_all() {
    let host = Host::new("whole").unwrap();
    within(&host, || {
        let mut filter = Filter::open().unwrap();
        let table = table();
        let mut batch = Batch::new(&table);
        batch.add_table();
        batch.add_chain("one", &[]);
        batch.add_rule("one", &[Expression::Verdict(Verdict::Goto("nowhere".into()))], &[]);
        let error = filter.commit(batch).unwrap_err();
        assert!(error.to_string().starts_with("cannot add a rule to chain one: "), "{error}");
        assert!(error.is_missing());
        assert_eq!(filter.chains(&table).unwrap(), []);
        assert_eq!(filter.tables(Family::Inet).unwrap(), [""; 0]);
        filter.commit(Batch::new(&table)).unwrap();
        let mut batch = Batch::new(&table);
        batch.add_table();
        filter.commit(batch).unwrap();
        assert_eq!(filter.tables(Family::Inet).unwrap(), ["test"]);
    });
}

#[test]
fn connections_are_listed_and_forgotten() {
    let host = Host::new("tracked").unwrap();
    within(&host, || {
        loopback_up();
        let mut filter = Filter::open().unwrap();
        // Connections are tracked where something asks for it.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        balance(&mut filter, [listener.local_addr().unwrap().port(); 2]);
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (from, to) = (near.local_addr().unwrap(), far.local_addr().unwrap());
        near.send_to(b"?", to).unwrap();
        let mut connections = Connections::open().unwrap();
        let found = connections.list(|flow| flow.protocol == UDP && flow.original.destination == to).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].original.source, found[0].reply.source), (from, to));
        assert_eq!(connections.delete_all(|flow| flow.original.source == from).unwrap(), 1);
        assert_eq!(connections.list(|flow| flow.protocol == UDP).unwrap(), []);
        connections.delete(&found[0]).unwrap();
    });
}

#[test]
fn addresses_of_this_machine_are_known_as_such() {
    let host = Host::new("own").unwrap();
    within(&host, || {
        loopback_up();
        let table = table();
        let mut batch = Batch::new(&table);
        batch.add_table();
        batch.add_base_chain("output", Kind::Filter, Hook::Output, 0);
        batch.add_base_chain("prerouting", Kind::Filter, Hook::Prerouting, 0);
        let local = 2_u32.to_ne_bytes();
        batch.add_rule(
            "output",
            &[
                Expression::DestinationKind(Register(0)),
                Expression::Compare(Compare::Equal, Register(0), Cow::Borrowed(&local)),
                Expression::Reject { tcp: false },
            ],
            &[],
        );
        let mut filter = Filter::open().unwrap();
        filter.commit(batch).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let own = socket.send_to(b"?", "127.0.0.1:9");
        let other = socket.send_to(b"?", (SERVICE, 9));
        assert_eq!((own.is_err(), other.is_ok()), (true, true), "{own:?} {other:?}");
        // A packet whose answer would leave elsewhere; of those that come back from loopback none.
        let mut batch = Batch::new(&table);
        batch.flush_chain("output");
        batch.add_rule(
            "prerouting",
            &[
                Expression::SourceRoute(Register(0)),
                Expression::Compare(Compare::Equal, Register(0), Cow::Borrowed(&[0; 4])),
                Expression::Verdict(Verdict::Drop),
            ],
            &[],
        );
        filter.commit(batch).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket.send_to(b"!", socket.local_addr().unwrap()).unwrap();
        assert_eq!(socket.recv(&mut [0; 2]).unwrap(), 1);
    });
}

#[test]
fn chains_that_drop_are_told() {
    let host = Host::new("drops").unwrap();
    host.run("nft", &["add table inet test"]).unwrap();
    for (name, policy) in [("open", "accept"), ("closed", "drop")] {
        let chain = format!("{{ type filter hook forward priority 0; policy {policy}; }}");
        host.run("nft", &["add", "chain", "inet", "test", name, &chain]).unwrap();
    }
    within(&host, || {
        let mut filter = Filter::open().unwrap();
        let found = filter.dropping(Family::Inet, Hook::Forward).unwrap();
        assert_eq!(found, [("test".to_owned(), "closed".to_owned())]);
        assert_eq!(filter.dropping(Family::Inet, Hook::Input).unwrap(), []);
        assert_eq!(filter.dropping(Family::Ipv4, Hook::Forward).unwrap(), []);
    });
}

/// People and other programs list the whole packet filter: no set of ours may stop that.
#[test]
fn nft_lists_sets_of_every_kind() {
    let host = Host::new("listed").unwrap();
    within(&host, || {
        let mut filter = Filter::open().unwrap();
        let table = table();
        for (family, address) in [(4, Field::Address4), (6, Field::Address6)] {
            let octets = if family == 4 { 4 } else { 16 };
            for (index, key) in [
                vec![Field::Number],
                vec![address, Field::Protocol, Field::Port],
                vec![address, Field::Protocol, Field::Port, Field::Number],
                vec![address, Field::Protocol, Field::Port, Field::Number, address, Field::Port],
                vec![Field::Name, Field::Mark],
            ]
            .into_iter()
            .enumerate()
            {
                let length: usize = key
                    .iter()
                    .map(|field| match field {
                        Field::Address4 | Field::Address6 => octets,
                        Field::Name => 16,
                        _ => 4,
                    })
                    .sum();
                let name = format!("of{family}_{index}");
                let kind = SetKind::map(&key, &[address, Field::Port]);
                let elements: Vec<_> = (1..3_u8)
                    .map(|i| Element::value(vec![i; length], Value::Bytes(vec![i; octets + 4].into())))
                    .collect();
                let mut batch = Batch::new(&table);
                batch.add_table();
                batch.add_set(&name, &kind, &[]);
                batch.add_elements(&name, &kind, &elements);
                filter.commit(batch).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
    });
    let listed = host.run("nft", &["list", "ruleset"]).unwrap();
    assert!(listed.contains("of6_4"), "{listed}");
    host.run("nft", &["-j", "list", "ruleset"]).unwrap();
}
